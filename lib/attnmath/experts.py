"""A layer of experts by numbers, for either world: shapes of its parameters, capacity, what it holds and does."""

from collections.abc import Callable
from math import floor

from attnmath import _require, shapes
from attnmath._require import experts as _ask


def mixture_shapes(d: int, f: int, experts: int = 8, expert: Callable | None = None) -> dict:
    """A router, and so many networks of one kind; gated ones without biases if no kind is named.

    >>> mixture_shapes(2, 3, experts=1)["experts"]["0"]["down"]
    {'weight': (3, 2)}
    """
    network = shapes.gated_feed_forward_shapes(d, f) if expert is None else shapes.of(expert, d, f)
    return {"router": {"weight": (d, experts)}, "experts": {str(i): network for i in range(experts)}}


def expert_capacity(n: int, experts: int, top: int, factor: float) -> int:
    r"""The number of tokens that each expert takes at most.

    .. math:: c = \Bigl\lfloor \phi\,\frac{k\,n}{e} \Bigr\rfloor

    Parameters
    ----------
    n : tokens of a sequence.
    experts, top : e, and k, the number of experts that each token asks for.
    factor : :math:`\phi > 0`, the capacity factor; with 1 there is room for every token only if the load is even.

    Returns
    -------
    c >= 1.

    Raises
    ------
    ValueError
        If that is less than one token; raise the factor.

    References
    ----------
    Fedus et al. (2022), equation 3, for k = 1; Lepikhin et al. (2021), algorithm 1. Chapter 7, eq:expert-capacity.

    Examples
    --------
    >>> expert_capacity(n=64, experts=8, top=1, factor=1.25)
    10
    """
    for name, value in (("n", n), ("experts", experts)):
        _require.count(name, value)
    _ask.top(top, experts)
    _require.positive("factor", factor)
    capacity = floor(round(factor * top * n / experts, 9))  # eq:expert-capacity
    _ask.room(capacity, experts, factor)
    return capacity


def mixture_parameters(d: int, experts: int, top: int, each: int) -> tuple[int, int]:
    r"""The parameters that a layer of experts holds, and those that one token uses.

    .. math:: (de + e\,p,\; de + k\,p)

    Parameters
    ----------
    d, experts, top : width, e, and k.
    each : p, the parameters of one expert.

    Returns
    -------
    (held, used).

    References
    ----------
    Chapter 7, eq:mixture-parameters.

    Examples
    --------
    >>> mixture_parameters(d=4, experts=8, top=2, each=100)
    (832, 232)
    """
    _ask.top(top, experts)
    return d * experts + experts * each, d * experts + top * each  # eq:mixture-parameters


def mixture_flops(n: int, d: int, experts: int, top: int, each: int) -> int:
    r"""Multiplications and additions in the products of a layer of experts that drops no token.

    .. math:: 2\,n\,d\,e + k\,n\,w

    Parameters
    ----------
    n, d, experts, top : tokens, width, e, and k.
    each : w, what one expert does for one token.

    Returns
    -------
    FLOP; softmax and choice are not counted, as in ``torch.utils.flop_counter``.

    References
    ----------
    Chapter 7, eq:mixture-flops.

    Examples
    --------
    >>> mixture_flops(n=3, d=4, experts=8, top=2, each=100)
    792
    """
    _ask.top(top, experts)
    return 2 * n * d * experts + top * n * each  # eq:mixture-flops
