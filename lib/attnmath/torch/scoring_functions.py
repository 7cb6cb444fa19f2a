"""Four ways to score a query against a key. Rows are vectors, so the text's W^T q is q @ W here."""

import torch
from jaxtyping import Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.torch.half import half_in_float32
from attnmath.torch.types import Array, T


def dot_score(Q: Float[Array, "... n k"], K: Float[Array, "... m k"]) -> Float[Array, "... n m"]:
    r"""Dot-product scores.

    .. math:: S = Q K^\top

    Parameters, errors and source as in `attnmath.numpy.scoring_functions.dot_score`.

    Examples
    --------
    >>> dot_score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [2.0, -1.0]]))
    tensor([[11.,  0.]])
    """
    _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"))
    return Q @ T(K)  # eq:dot-score


@half_in_float32
def scaled_dot_score(
    Q: Float[Array, "... n k"], K: Float[Array, "... m k"], *, scale: float | None = None
) -> Float[Array, "... n m"]:
    r"""Scaled dot-product scores.

    .. math:: S = c\, Q K^\top,\qquad c = 1/\sqrt{d_k}

    Parameters, errors and source as in `attnmath.numpy.scoring_functions.scaled_dot_score`.

    Examples
    --------
    >>> scaled_dot_score(torch.ones(1, 4), torch.ones(2, 4))
    tensor([[2., 2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"))
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    return factor(scale, sizes["k"]) * (Q @ T(K))  # eq:scaled-dot-score


def multiplicative_score(
    Q: Float[Array, "... n q"], K: Float[Array, "... m k"], W: Float[Array, "q k"]
) -> Float[Array, "... n m"]:
    r"""Bilinear scores; queries and keys may differ in width.

    .. math:: S = Q W K^\top

    Parameters, errors and source as in `attnmath.numpy.scoring_functions.multiplicative_score`.

    Examples
    --------
    >>> multiplicative_score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]), torch.tensor([[1.0], [10.0]]))
    tensor([[63.]])
    """
    _require.shapes(Q=(Q, "... n q"), K=(K, "... m k"), W=(W, "q k"))
    return Q @ W @ T(K)  # eq:multiplicative-score


@half_in_float32
def additive_score(
    Q: Float[Array, "... n q"],
    K: Float[Array, "... m k"],
    Wq: Float[Array, "q a"],
    Wk: Float[Array, "k a"],
    w: Float[Array, " a"],
) -> Float[Array, "... n m"]:
    r"""Scores of a network with one hidden layer.

    .. math:: S_{ij} = \tanh(Q_i W_q + K_j W_k)\, w

    Parameters, errors and source as in `attnmath.numpy.scoring_functions.additive_score`.

    Examples
    --------
    >>> additive_score(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(2, 1), torch.ones(2, 1), torch.ones(1))
    tensor([[0.9640]])
    """
    _require.shapes(Q=(Q, "... n q"), K=(K, "... m k"), Wq=(Wq, "q a"), Wk=(Wk, "k a"), w=(w, "a"))
    H = torch.tanh((Q @ Wq)[..., :, None, :] + (K @ Wk)[..., None, :, :])  # (..., n, m, a)
    return H @ w  # eq:additive-score
