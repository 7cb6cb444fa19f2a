"""Weights that are not a softmax: each key by itself, a place to put nothing, and columns that sum to one too."""

from functools import partial

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import other_weights as require
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array, T
from attnmath.torch.weighed import weighed


def _allowed(S, mask):
    """The mask in the scores' shape; every row has a key."""
    _require.shapes(S=(S, "... n m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.mask(mask, S.shape)
    return torch.as_tensor(mask, device=S.device).expand(S.shape)


def _refuse_empty_rows(allowed):
    if can_look(allowed):
        empty = ~allowed.any(-1)
        if empty.any():
            _require.no_empty_row(tuple(empty.nonzero()[0].tolist()), "attention(…, empty_rows='zero')")


@half_in_float32
def pointwise_weights(
    S: Float[Array, "... n m"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    kind: str = "sigmoid",
) -> Float[Array, "... n m"]:
    r"""Weights of which each depends on its own score and on the number of keys only.

    .. math:: w_{ij} = \sigma(s_{ij} - \log m_i),\quad \frac{[s_{ij}]_+}{m_i},\quad \frac{[s_{ij}]_+^2}{m_i},\quad
              \frac{s_{ij}^2}{m_i}

    Parameters, errors and source as in `attnmath.numpy.other_weights.pointwise_weights`. Where no value can be looked
    at (`attnmath.torch.look.can_look`), an empty row is no error but zeros; so it is in all functions of this module.

    Examples
    --------
    >>> pointwise_weights(torch.tensor([[3.0, 1.0, 0.6]]).log())
    tensor([[0.5000, 0.2500, 0.1667]])
    """
    _require.choice("kind", kind, require.KINDS)
    allowed = _allowed(S, mask)
    _refuse_empty_rows(allowed)
    seen = allowed.sum(-1, keepdim=True).clamp(min=1).to(S.dtype)
    if kind == "sigmoid":
        W = (S - seen.log()).sigmoid()  # eq:pointwise-weights
    elif kind == "square":
        W = S.square() / seen
    else:
        W = S.relu() / seen if kind == "relu" else S.relu().square() / seen
    return W.masked_fill(~allowed, 0)


@half_in_float32
def sink_weights(
    S: Float[Array, "... n m"],
    sinks: Float[Array, "..."] | None = None,
    mask: Bool[Array, "..."] | bool = True,
) -> Float[Array, "... n m"]:
    r"""Softmax with one more term in its denominator, so that a row may sum to less than 1.

    .. math:: w_{ij} = \frac{e^{s_{ij}}}{e^{b} + \sum_l e^{s_{il}}}

    Parameters, errors and source as in `attnmath.numpy.other_weights.sink_weights`.

    Examples
    --------
    >>> sink_weights(torch.tensor([[1.0, 2.0]]).log())
    tensor([[0.2500, 0.5000]])
    """
    allowed = _allowed(S, mask)
    require.sinks(sinks, S.shape[:-2], S)
    b = torch.zeros_like(S[..., :1]) if sinks is None else sinks[..., None, None].expand(*S.shape[:-1], 1)
    return torch.cat([S.masked_fill(~allowed, -torch.inf), b], -1).softmax(-1)[..., :-1]  # eq:sink-weights


def _log_sum(X, there, dim):
    """The logarithm of the sum of exponentials along an axis that stays; 0 where there is no term."""
    return X.masked_fill(~there, 0).logsumexp(dim, keepdim=True).masked_fill(~there, 0)


@half_in_float32
def sinkhorn_weights(
    S: Float[Array, "... n m"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    gradient: str = "unrolled",
    steps: int = 20,
) -> Float[Array, "... n m"]:
    r"""Weights whose rows sum to 1 and whose columns all have the same sum, by Sinkhorn's iteration.

    .. math:: P_{ij} = e^{s_{ij} + u_i + v_j},\qquad e^{-u_i} = \sum_j e^{s_{ij} + v_j},\qquad
              c\,e^{-v_j} = \sum_i e^{s_{ij} + u_i},\qquad c = n/m

    Parameters, errors and source as in `attnmath.numpy.other_weights.sinkhorn_weights`. Autograd keeps the scores of
    each step for ``gradient="unrolled"``, and of the last one only for ``"implicit"``.

    Examples
    --------
    >>> sinkhorn_weights(torch.tensor([[4.0, 1.0], [1.0, 1.0]]).log())
    tensor([[0.6667, 0.3333],
            [0.3333, 0.6667]])
    """
    _require.choice("gradient", gradient, require.GRADIENTS)
    require.steps(steps)
    allowed = _allowed(S, mask)
    _require.nonempty("S", S.shape, -2, S.shape[-2], "query")
    _refuse_empty_rows(allowed)
    across, down = allowed.any(-1, keepdim=True), allowed.any(-2, keepdim=True)
    c = S.shape[-2] / down.sum(-1, keepdim=True).clamp(min=1).to(S.dtype)  # what a column should sum to
    L = S.masked_fill(~allowed, -torch.inf)
    if gradient == "implicit":
        L = L.detach()
    u, v = -_log_sum(L, across, -1), torch.zeros_like(L[..., :1, :])
    for _ in range(steps):
        v = c.log().masked_fill(~down, 0) - _log_sum(L + u, down, -2)  # eq:sinkhorn-columns
        u = -_log_sum(L + v, across, -1)  # eq:sinkhorn-rows
    P = (L + u + v).exp()  # eq:sinkhorn-weights
    return P if gradient == "unrolled" else _with_slope(P, S.masked_fill(~allowed, 0), c.masked_fill(~down, 1))


def _with_slope(P, S, c):
    """P as it is, with the slope of the fixed point: how P moves with S while its sums stay 1 and c."""
    change = S - S.detach()  # zero, with the slope 1
    G, root = P * change, c.rsqrt()
    half = root * P
    system = torch.eye(P.shape[-1]).to(P) - T(half) @ half  # singular: constants move from y to x
    inverse = torch.linalg.pinv(system, rtol=10 * P.shape[-1] * torch.finfo(P.dtype).eps, hermitian=True)
    a, b = G.sum(-1, keepdim=True), T(G.sum(-2, keepdim=True))
    y = T(root) * (inverse @ (T(root) * (b - T(P) @ a)))
    return P * (1 + change - (a - P @ y) - T(y))


@cast_by_autocast
@half_in_float32
def pointwise_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    kind: str = "sigmoid",
    scale: float | None = None,
) -> Float[Array, "... n v"]:
    r"""Attention in which no key competes with another: sigmoid, ReLU or squared scores.

    .. math:: O_i = \sum_j w_{ij} v_j,\qquad w_{ij} = \sigma(q_i \cdot k_j / \sqrt{d_k} - \log m_i)

    Parameters, errors and source as in `attnmath.numpy.other_weights.pointwise_attention`.

    Examples
    --------
    >>> pointwise_attention(torch.zeros(1, 2), torch.ones(3, 2), torch.tensor([[1.0], [3.0], [8.0]]))
    tensor([[3.]])
    """
    weigh = partial(pointwise_weights, mask=mask, kind=kind)
    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:weighed


@cast_by_autocast
@half_in_float32
def sink_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    scale: float | None = None,
    sinks: Float[Array, "..."] | None = None,
) -> Float[Array, "... n v"]:
    r"""Attention that may stay silent: one more key, whose score is b and whose value is zero.

    .. math:: O_i = \sum_j \frac{e^{s_{ij}}}{e^b + \sum_l e^{s_{il}}}\, v_j,\qquad s_{ij} = q_i \cdot k_j / \sqrt{d_k}

    Parameters, errors and source as in `attnmath.numpy.other_weights.sink_attention`.

    Examples
    --------
    >>> sink_attention(torch.zeros(1, 2), torch.ones(3, 2), torch.tensor([[1.0], [3.0], [8.0]]))
    tensor([[3.]])
    """
    weigh = partial(sink_weights, sinks=sinks, mask=mask)
    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:weighed


@cast_by_autocast
@half_in_float32
def sinkhorn_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    gradient: str = "unrolled",
    scale: float | None = None,
    steps: int = 20,
) -> Float[Array, "... n v"]:
    r"""Attention in which every key is used equally much: doubly stochastic weights.

    .. math:: O = P V,\qquad P = e^{S + u + v},\qquad P\,1 = 1,\qquad P^\top 1 = \tfrac nm 1

    Parameters, errors and source as in `attnmath.numpy.other_weights.sinkhorn_attention`.

    Examples
    --------
    >>> K, V = torch.tensor([[0.0], [9.0]]), torch.tensor([[1.0], [3.0]])
    >>> sinkhorn_attention(torch.ones(2, 1), K, V).round(decimals=4)
    tensor([[2.],
            [2.]])
    """
    weigh = partial(sinkhorn_weights, mask=mask, gradient=gradient, steps=steps)
    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:weighed
