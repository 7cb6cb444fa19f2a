"""What scores from a distance ask of their bandwidth, and a graph of its weights."""


def bandwidth(bandwidth, isfinite):
    """Positive and finite numbers."""
    if not bool((isfinite(bandwidth) & (bandwidth > 0)).all()):
        raise ValueError(
            "bandwidth holds a number that is not positive and finite; a distance is divided by it, so learn its "
            "logarithm and pass the exponential"
        )


def graph(A, allclose):
    """Weights of a graph without direction, of which every node has a neighbour or a loop."""
    shape = tuple(A.shape)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise ValueError(
            f"A has shape {shape}; expected a square matrix with a row for each node, and one node at least"
        )
    if not bool((A >= 0).all()) or not allclose(A, A.T):
        raise ValueError("A is not symmetric or has a negative entry; give weights A[i, j] = A[j, i] >= 0")
    if not bool((A.sum(-1) > 0).all()):
        raise ValueError("A has a row of zeros; a node without an edge has no average, so give it a loop, A[i, i] > 0")
