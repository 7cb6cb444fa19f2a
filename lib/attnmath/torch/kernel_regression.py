"""Attention as kernel regression: lines instead of averages, errors without a query's own value, Taylor's features."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require, monomials
from attnmath._require import kernel_regression as require
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.softmax import softmax
from attnmath.torch.types import Array, T


@cast_by_autocast
@half_in_float32
def local_linear_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    bandwidth: float = 1.0,
    ridge: float = 1e-6,
) -> Float[Array, "... n v"]:
    r"""Gaussian attention that fits a line around each query, and answers with the line's value at the query.

    .. math:: O_i = a,\quad (a, b) = \arg\min \sum_j w_{ij} \lVert v_j - a - b(k_j - q_i)\rVert^2
              + \rho h^2 \lVert b\rVert^2,\quad w_i = \operatorname{softmax}_j(-\lVert k_j - q_i\rVert^2 / 2h^2)

    Parameters, errors and source as in `attnmath.numpy.kernel_regression.local_linear_attention`.

    Examples
    --------
    >>> K = torch.tensor([[4.0], [5.0], [6.0]])
    >>> local_linear_attention(torch.tensor([[4.0]]), K, 100 * K).round(decimals=1)
    tensor([[400.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    _require.positive("bandwidth", bandwidth)
    _require.positive("ridge", ridge)
    D = K[..., None, :, :] - Q[..., :, None, :]  # (..., n, m, k), from each query to each key
    S = D.square().sum(-1) / (-2 * bandwidth**2)
    w = softmax(S if mask is True else torch.where(torch.as_tensor(mask, device=S.device), S, -torch.inf))
    mean = (w[..., None, :] @ D)[..., 0, :]  # (..., n, k)
    E = D - mean[..., None, :]
    A = T(E) @ (w[..., None] * E) + (ridge * bandwidth**2) * torch.eye(sizes["k"], dtype=D.dtype, device=D.device)
    u = torch.linalg.solve(A, mean[..., None])
    return w * (1 - (E @ u)[..., 0]) @ V  # eq:local-linear


@cast_by_autocast
@half_in_float32
def leave_one_out(P: Float[Array, "... n n"], V: Float[Array, "... n v"]) -> Float[Array, "... n v"]:
    r"""What each value would have differed from its prediction, had the prediction been made without it.

    .. math:: R_i = v_i - \frac{\sum_{j \ne i} P_{ij} v_j}{\sum_{j \ne i} P_{ij}} = \frac{v_i - (PV)_i}{1 - P_{ii}}

    Parameters, errors and source as in `attnmath.numpy.kernel_regression.leave_one_out`. Where no value can be looked
    at (`attnmath.torch.look.can_look`), a row that gives nothing to the others gets nan.

    Examples
    --------
    >>> P = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5]])
    >>> leave_one_out(P, torch.tensor([[1.0], [2.0], [4.0]])).T
    tensor([[-2., -2.,  3.]])
    """
    _require.shapes(P=(P, "... n n"), V=(V, "... n v"))
    others = P.masked_fill(torch.eye(P.shape[-1], dtype=torch.bool, device=P.device), 0)
    s = others.sum(-1, keepdim=True)
    if can_look(s) and bool((s == 0).any()):
        require.no_others(tuple((s[..., 0] == 0).nonzero()[0].tolist()))
    return V - others / s @ V  # eq:leave-one-out


def _tables(k, degree, like):
    """Exponents and lengths of the monomials, where ``like`` is and in its dtype."""
    alpha = torch.tensor(monomials.exponents(k, degree).tolist(), device=like.device)
    return alpha, torch.tensor(monomials.lengths(k, degree).tolist(), dtype=like.dtype, device=like.device)


@half_in_float32
def taylor_features(X: Float[Array, "... n k"], degree: int = 2) -> Float[Array, "... n f"]:
    r"""Monomials whose dot products are Taylor's polynomial of the exponential of a dot product.

    .. math:: \phi(x)_\alpha = \frac{x^\alpha}{\sqrt{\alpha!}},\qquad
              \phi(x) \cdot \phi(y) = \sum_{m \le M} \frac{(x \cdot y)^m}{m!}

    Parameters, errors and source as in `attnmath.numpy.kernel_regression.taylor_features`.

    Examples
    --------
    >>> F = taylor_features(torch.tensor([[0.5, 1.0], [1.0, 0.5]]), degree=2)
    >>> F.shape, F[0] @ F[1]  # 1 + 1 + 1/2
    (torch.Size([2, 6]), tensor(2.5000))
    """
    k = _require.shapes(X=(X, "... n k"))["k"]
    _require.count("degree", degree)
    powers = torch.stack([X**e for e in range(degree + 1)], -1)  # (..., n, k, M + 1)
    # NumPy's tables are no part of a graph. A decorator would say so too, and load the whole compiler with this module.
    tables = torch.compiler.disable(_tables) if torch.compiler.is_compiling() else _tables
    alpha, lengths = tables(k, int(degree), X)
    return powers[..., torch.arange(k, device=X.device), alpha].prod(-1) * lengths  # eq:taylor-features
