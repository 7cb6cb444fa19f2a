"""More features than dimensions: a toy model that stores them in superposition, and an autoencoder that finds them."""

import numpy as np
from jaxtyping import Float

from attnmath import _require
from attnmath._require.superposition import top as _ask_top
from attnmath.numpy.bert import unit_norm
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.linear import linear
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def superposition(
    X: Float[Array, "... n f"], W: Float[Array, "... f m"], b: Float[Array, "... f"]
) -> tuple[Float[Array, "... n f"], Vjp]:
    r"""Press f features into m dimensions along the rows of W, and read them off with the same directions.

    .. math:: Y = \operatorname{relu}(X W W^\top + b)

    Parameters
    ----------
    X : (..., n, f) features of n samples.
    W : (..., f, m) the direction of each feature; leading axes are models side by side.
    b : (..., f) what is added before the negative numbers are cut off.

    Returns
    -------
    Y : (..., n, f), nowhere negative.
    vjp : dY -> (dX, dW, db). At 0 the derivative of relu counts as 0.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree.

    References
    ----------
    Elhage et al. (2022), section 2, with W transposed. Chapter 9, eq:superposition.

    Examples
    --------
    >>> superposition(np.array([[0.5, 0.0], [0.0, 0.5]]), np.array([[1.0], [-1.0]]), np.zeros(2))[0]
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    _require.shapes(X=(X, "... n f"), W=(W, "... f m"), b=(b, "... f"))
    H = X @ W
    Y = np.maximum(H @ T(W) + b[..., None, :], 0)  # eq:superposition

    def vjp(dY):
        G = dY * (Y > 0)
        dX, dW = G @ W @ T(W), T(X) @ (G @ W) + T(G) @ H  # eq:superposition-vjp
        return sum_to(dX, X.shape), sum_to(dW, W.shape), sum_to(G.sum(-2), b.shape)

    return Y, vjp


@differentiable
@half_in_float32
def sparse_code(
    X: Float[Array, "... n d"], E: Float[Array, "d u"], a: Float[Array, "u"], *, top: int | None = None
) -> tuple[Float[Array, "... n u"], Vjp]:
    r"""How strongly each of u units speaks about each row, for all units or for the loudest of them.

    .. math:: Z_{ij} = R_{ij}\,[R_{ij} \ge r_i],\qquad R = \operatorname{relu}(X E + a)

    Parameters
    ----------
    X : (..., n, d) rows, such as the residual stream of n tokens.
    E : (d, u) a column for each unit.
    a : (u,) biases.
    top : k; then r_i is the k-th largest number of the row. None keeps all that is positive, with r_i = 0.

    Returns
    -------
    Z : (..., n, u), nowhere negative; with ``top``, at most k positive numbers in a row, unless some are equal.
    vjp : dZ -> (dX, dE, da); a unit that is silent gets no gradient.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, or top is not in 1 … u.

    References
    ----------
    Makhzani and Frey (2014) for ``top``. Chapter 9, eq:sparse-code.

    Examples
    --------
    >>> sparse_code(np.array([[3.0, 1.0, -2.0]]), np.eye(3), np.zeros(3), top=1)[0]
    array([[3., 0., 0.]])
    """
    u = _require.shapes(X=(X, "... n d"), E=(E, "d u"), a=(a, "u"))["u"]
    _ask_top(top, u)
    S, linear_vjp = linear(X, E, a)
    R = np.maximum(S, 0)
    kept = R > 0 if top is None else (R > 0) & (R >= np.partition(R, u - top, axis=-1)[..., u - top, None])
    Z = np.where(kept, R, 0)  # eq:sparse-code

    def vjp(dZ):
        return linear_vjp(dZ * kept)  # eq:sparse-code-vjp

    return Z, vjp


@differentiable
@half_in_float32
def sparse_autoencoder(
    X: Float[Array, "... n d"],
    E: Float[Array, "d u"],
    a: Float[Array, "u"],
    D: Float[Array, "u d"],
    c: Float[Array, "d"],
    *,
    top: int | None = None,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Write each row as a centre plus a few directions of a dictionary, each of them of length 1.

    .. math:: Y = c + Z \hat D,\qquad Z = \operatorname{code}(X - c),\qquad \hat D_j = D_j / \lVert D_j\rVert

    Parameters
    ----------
    X : (..., n, d) rows.
    E : (d, u) the encoder, a column for each unit.
    a : (u,) its biases.
    D : (u, d) the dictionary, a row for each unit, none of them zero. Only their directions count.
    c : (d,) the centre.
    top : how many units speak at most, as in `sparse_code`.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dE, da, dD, dc).

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, a row of D is zero, or top is not in 1 … u.

    References
    ----------
    Bricken et al. (2023); Gao et al. (2025) for ``top``. Chapter 9, eq:sparse-autoencoder.

    Examples
    --------
    >>> D = np.array([[5.0, 0.0], [0.0, 5.0]])  # the length of a row plays no part
    >>> sparse_autoencoder(np.array([[3.0, 1.0]]), np.eye(2), np.zeros(2), D, np.zeros(2), top=1)[0]
    array([[3., 0.]])
    """
    _require.shapes(X=(X, "... n d"), E=(E, "d u"), a=(a, "u"), D=(D, "u d"), c=(c, "d"))
    Z, code_vjp = sparse_code(X - c, E, a, top=top)
    unit, unit_vjp = unit_norm(D)
    Y, linear_vjp = linear(Z, unit, c)  # eq:sparse-autoencoder

    def vjp(dY):
        dZ, dunit, dc = linear_vjp(dY)
        dX, dE, da = code_vjp(dZ)
        return dX, dE, da, unit_vjp(dunit), dc - sum_to(dX, c.shape)  # eq:sparse-autoencoder-vjp

    return Y, vjp
