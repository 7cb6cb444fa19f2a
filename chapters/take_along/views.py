import torch


def edge_attention(Q, K, V, edges):
    """Attention along the edges of a graph: memory grows with edges, not with n x m.

    Q (n, k), K (m, k), V (m, v); edges (2, e): edges[0] asks, edges[1] is asked.
    A node that asks nobody gets a row of zeros.
    """
    asks, asked = edges
    scores = (Q[asks] * K[asked]).sum(-1) / Q.shape[-1] ** 0.5  # (e,)
    largest = torch.full((len(Q),), -torch.inf, dtype=Q.dtype, device=Q.device)
    largest = largest.scatter_reduce(0, asks, scores.detach(), "amax")
    weights = (scores - largest[asks]).exp()  # no exponential is above 1
    total = torch.zeros(len(Q), dtype=Q.dtype, device=Q.device)
    total = total.index_add(0, asks, weights)
    weights = weights / total[asks]  # the weights of one node's edges sum to 1
    messages = weights[:, None] * V[asked]  # (e, v)
    out = torch.zeros(len(Q), V.shape[-1], dtype=V.dtype, device=V.device)
    return out.index_add(0, asks, messages)


def with_loops(edges, n):
    """The same edges, and one from each node to itself."""
    own = torch.arange(n, device=edges.device).expand(2, n)
    return torch.cat([edges, own], 1)
