"""Weights that can be exactly zero: sparsemax and alpha-entmax, their entropies, their losses, and attention with them.

Supports and thresholds that are searched for are found without a gradient; one differentiable step then gives the
threshold, so that autograd computes the derivative that the page writes down.
"""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import sparse_weights as require
from attnmath.torch.attention import _allow
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.softmax import softmax
from attnmath.torch.types import Array
from attnmath.torch.weighed import weighed


def _below_top(S, c, empty_rows):
    """Scores times c, less the row's largest and at least -1; the rows that hold -inf only; those without a maximum."""
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    top = S.detach().amax(-1, keepdim=True)
    empty = torch.isneginf(top)
    if empty_rows == "error" and can_look(S) and bool(empty.any()):
        _require.no_empty_row(tuple(empty[..., 0].nonzero()[0].tolist()), "empty_rows='zero'")
    lost = torch.isnan(top) | torch.isposinf(top)
    unseen = torch.isneginf(S) | lost
    Z = (c * (S.masked_fill(unseen, 0) - top.masked_fill(empty | lost, 0))).clamp(min=-1)
    return torch.where(unseen, -1.0, Z).masked_fill(empty | lost, 0), empty, lost


def _finish(P, empty, lost):
    """Zeros for an empty row, nan for one whose largest score is +inf or nan."""
    return P.masked_fill(empty, 0).masked_fill(lost, torch.nan)


@torch.no_grad()
def _sorted_support(Z, power):
    """Which keys have a weight above 0: those that the larger scores do not push out."""
    ordered = Z.sort(-1, descending=True).values
    k = torch.arange(1, Z.shape[-1] + 1, dtype=Z.dtype, device=Z.device)
    total = ordered.cumsum(-1)
    if power == 1:
        pushed = total - k * ordered  # the sum of the leads over key k
    else:
        pushed = ordered.square().cumsum(-1) - 2 * ordered * total + k * ordered.square()  # of their squares
    last = (pushed < 1).sum(-1, keepdim=True) - 1
    return ordered.gather(-1, last) <= Z


def _masked_mean(X, on, count):
    return X.masked_fill(~on, 0).sum(-1, keepdim=True) / count


@half_in_float32
def sparsemax(S: Float[Array, "... m"], *, empty_rows: str = "error") -> Float[Array, "... m"]:
    r"""The point of the simplex that lies nearest to each row of scores.

    .. math:: P_i = \arg\min_{p\ge0,\ \sum p=1}\lVert p - S_i\rVert^2,\qquad P_{ij} = \max(S_{ij} - \tau_i, 0)

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.sparsemax`. Where no value can be looked at
    (`attnmath.torch.look.can_look`), an empty row is no error but zeros; so it is in all functions of this module.

    Examples
    --------
    >>> sparsemax(torch.tensor([[1.0, 0.5, -0.5]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """
    Z, empty, lost = _below_top(S, 1, empty_rows)
    on = _sorted_support(Z, 1)  # eq:support
    count = on.sum(-1, keepdim=True).to(S.dtype)
    tau = _masked_mean(Z, on, count) - 1 / count  # eq:sparsemax-threshold
    return _finish((Z - tau).relu(), empty, lost)  # eq:sparsemax


@half_in_float32
def entmax15(S: Float[Array, "... m"], *, empty_rows: str = "error") -> Float[Array, "... m"]:
    r"""Half way between softmax and sparsemax: alpha-entmax at 1.5.

    .. math:: P_{ij} = \max(S_{ij}/2 - \tau_i, 0)^2

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.entmax15`.

    Examples
    --------
    >>> entmax15(torch.tensor([[2.0, 1.6, -1.0]]))
    tensor([[0.6400, 0.3600, 0.0000]])
    """
    Z, empty, lost = _below_top(S, 0.5, empty_rows)
    on = _sorted_support(Z, 2)  # eq:support
    count = on.sum(-1, keepdim=True).to(S.dtype)
    mean = _masked_mean(Z, on, count)
    spread = _masked_mean((Z - mean).square(), on, count)
    tau = mean - (1 / count - spread).clamp(min=torch.finfo(S.dtype).tiny).sqrt()  # eq:entmax15-threshold
    return _finish((Z - tau).relu().square(), empty, lost)


def _power(U, power):
    """Positive numbers to a power, and 0 for the others, whose slope would be nan."""
    on = U > 0
    return torch.where(on, torch.where(on, U, 1.0) ** power, 0.0)


@half_in_float32
def entmax_bisect(
    S: Float[Array, "... m"],
    alpha: Float[Array, "..."] | float = 1.5,
    *,
    empty_rows: str = "error",
    halvings: int | None = None,
) -> Float[Array, "... m"]:
    r"""The alpha-entmax of each row of scores, for any alpha above 1, its threshold by bisection.

    .. math:: P_{ij} = \max\bigl((\alpha-1)S_{ij} - \tau_i,\ 0\bigr)^{1/(\alpha-1)}

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.entmax_bisect`. It can be differentiated once.

    Examples
    --------
    >>> entmax_bisect(torch.tensor([[2.0, 1.6, -1.0]]), 1.5)
    tensor([[0.6400, 0.3600, 0.0000]])
    """
    _require.shapes(S=(S, "... m"))
    if isinstance(alpha, float | int):
        require.above_one(alpha)
    else:
        require.array(alpha, S)
        if can_look(alpha):
            require.array_values(alpha.detach())
    if halvings is not None:
        _require.count("halvings", halvings)
    Z, empty, lost = _below_top(S, alpha - 1, empty_rows)
    power = 1 / (alpha - 1)
    with torch.no_grad():
        low = torch.full_like(Z[..., :1], -1)
        width = 1 - torch.full_like(low, S.shape[-1]) ** (1 - alpha)
        for _ in range(halvings or _digits(S.dtype) + 2):
            width = width / 2
            middle = low + width
            heavy = _power(Z - middle, power).sum(-1, keepdim=True) >= 1
            low = torch.where(heavy, middle, low)  # eq:entmax-bisection
        slope = power * _power(Z - low, power - 1).sum(-1, keepdim=True)
    excess = _power(Z - low, power).sum(-1, keepdim=True) - 1
    tau = low + (excess - excess.detach()) / slope  # the value is the one found, the slope that of the true threshold
    P = _power(Z - tau, power)  # eq:entmax
    return _finish(P / P.detach().sum(-1, keepdim=True), empty, lost)


def _digits(dtype):
    """Binary digits after the point."""
    return {torch.float32: 23, torch.float64: 52}[dtype]


def _weights(S, alpha, empty_rows):
    """The weights for an alpha from 1, by the exact algorithm where there is one."""
    if isinstance(alpha, float | int):
        require.number(alpha)
        exact = {1: softmax, 1.5: entmax15, 2: sparsemax}.get(alpha)
        if exact is not None:
            return exact(S, empty_rows=empty_rows)
    return entmax_bisect(S, alpha, empty_rows=empty_rows)


@half_in_float32
def tsallis_entropy(P: Float[Array, "... m"], alpha: float = 1.5) -> Float[Array, "..."]:
    r"""How spread out each row of weights is, by the entropy whose maximisers are the alpha-entmax weights.

    .. math:: H_\alpha(p) = \frac{\sum_j p_j - p_j^\alpha}{\alpha(\alpha-1)},\qquad H_1(p) = -\sum_j p_j\log p_j

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.tsallis_entropy`.

    Examples
    --------
    >>> tsallis_entropy(torch.tensor([[0.5, 0.5, 0.0, 0.0]]), 2.0)
    tensor([0.2500])
    """
    _require.shapes(P=(P, "... m"))
    require.number(alpha)
    if alpha == 1:
        return torch.special.entr(P).sum(-1)
    return (P - P**alpha).sum(-1) / (alpha * (alpha - 1))  # eq:tsallis-entropy


@half_in_float32
def fenchel_young_loss(S: Float[Array, "... m"], Y: Float[Array, "... m"], alpha: float = 1.5) -> Float[Array, "..."]:
    r"""How far scores are from choosing given weights: 0 if and only if their alpha-entmax is these weights.

    .. math:: L(s, y) = \max_p\,[\,p\cdot s + H_\alpha(p)\,] - [\,y\cdot s + H_\alpha(y)\,]

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.fenchel_young_loss`. The weights are detached:
    at the maximum they do not move the value, so autograd gives the weights less Y.

    Examples
    --------
    >>> fenchel_young_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 2.0)  # a lead of 1 is enough
    tensor([0.])
    """
    _require.shapes(S=(S, "... m"), Y=(Y, "... m"))
    if can_look(Y):
        require.weights(Y)
    P, Y = _weights(S.detach(), alpha, "error"), Y.detach()
    moved = P - Y
    leads = torch.where(moved == 0, 0.0, S - S.detach().amax(-1, keepdim=True))  # what no weight moves may be -inf
    return (moved * leads).sum(-1) + tsallis_entropy(P, alpha) - tsallis_entropy(Y, alpha)  # eq:fenchel-young


@cast_by_autocast
@half_in_float32
def entmax_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    alpha: Float[Array, "..."] | float = 1.5,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
    scale: float | None = None,
) -> Float[Array, "... n v"]:
    r"""Attention whose weights are the alpha-entmax of the scores, most of them exactly 0.

    .. math:: O = \operatorname{entmax}_\alpha(Q K^\top / \sqrt{d_k})\, V

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.entmax_attention`.

    Examples
    --------
    >>> Q, K, V = torch.tensor([[1.0]]), torch.tensor([[2.0], [1.6], [-1.0]]), torch.tensor([[1.0], [0.0], [100.0]])
    >>> entmax_attention(Q, K, V)
    tensor([[0.6400]])
    """

    def weigh(S):
        return _weights(_allow(S, mask), alpha, empty_rows)

    return weighed(Q, K, V, mask, bias, scale, weigh)  # eq:entmax-attention


def sparsemax_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
    scale: float | None = None,
) -> Float[Array, "... n v"]:
    r"""Attention whose weights are the projection of the scores onto the simplex.

    .. math:: O = \operatorname{sparsemax}(Q K^\top / \sqrt{d_k})\, V

    Parameters, errors and source as in `attnmath.numpy.sparse_weights.sparsemax_attention`.

    Examples
    --------
    >>> sparsemax_attention(torch.tensor([[1.0]]), torch.tensor([[2.0], [1.5]]), torch.tensor([[1.0], [0.0]]))
    tensor([[0.7500]])
    """
    return entmax_attention(Q, K, V, mask, alpha=2.0, bias=bias, empty_rows=empty_rows, scale=scale)
