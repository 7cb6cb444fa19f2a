"""The shapes of the parameters of Mamba's layers, as trees; both worlds build and check their parameters from these."""


def mamba_shapes(d: int, inner: int, states: int, rank: int, taps: int = 4) -> dict:
    """The tree of `attnmath.numpy.selective_scan.mamba`.

    Parameters
    ----------
    d : width of the rows.
    inner : width between the projections, usually 2 d.
    states : numbers in the state of a channel.
    rank : width through which the step is computed, usually d / 16.
    taps : rows that the convolution reads.

    Examples
    --------
    >>> mamba_shapes(4, 8, 3, 1)["select"]
    {'weight': (8, 7)}
    """
    return {
        "input": {"weight": (d, 2 * inner)},
        "conv": {"weight": (taps, inner), "bias": (inner,)},
        "select": {"weight": (inner, rank + 2 * states)},
        "step": {"weight": (rank, inner), "bias": (inner,)},
        "rate": (inner, states),
        "skip": (inner,),
        "output": {"weight": (inner, d)},
    }


def mamba2_shapes(d: int, inner: int, states: int, heads: int, taps: int = 4) -> dict:
    """The tree of `attnmath.numpy.selective_scan.mamba2`, with one step and one rate for each head.

    Parameters
    ----------
    d, inner, states, taps : as in `mamba_shapes`.
    heads : divide the inner width.

    Examples
    --------
    >>> mamba2_shapes(4, 8, 3, 2)["rate"]
    (2,)
    """
    return {
        "input": {"weight": (d, 2 * inner + 2 * states + heads)},
        "conv": {"weight": (taps, inner + 2 * states), "bias": (inner + 2 * states,)},
        "step": (heads,),
        "rate": (heads,),
        "skip": (heads,),
        "norm": {"gain": (inner,)},
        "output": {"weight": (inner, d)},
    }
