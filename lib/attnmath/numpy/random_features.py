"""Random features of the exponential kernel, and the linear attention that they make of softmax attention."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import random_features as require
from attnmath._require.attention import factor
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.linear_attention import linear_attention
from attnmath.numpy.types import Array, Generator, T, Vjp, differentiable, sum_to


def draw_directions(r: int, k: int, rng: Generator, *, orthogonal: bool = True) -> Float[Array, "r k"]:
    r"""Directions for random features: each is normal, and those of one block are at right angles if wished.

    .. math:: w_a \sim N(0, I_k),\qquad w_a \cdot w_b = 0 \text{ for } a \ne b \text{ in one block of } k

    Parameters
    ----------
    r : how many.
    k : components of each.
    rng : a NumPy generator; its state moves on.
    orthogonal : whether the directions come in blocks of k at right angles, as rotated axes with the lengths of
        independent normal vectors; otherwise all are independent.

    Returns
    -------
    W : (r, k), float64.

    Raises
    ------
    ValueError
        If r or k is no integer >= 1.

    References
    ----------
    Yu et al. (2016); Choromanski et al. (2021), theorem 2. Chapter 7, eq:orthogonal-directions.

    Examples
    --------
    >>> W = draw_directions(2, 2, np.random.default_rng(0))
    >>> print(f"{abs(W[0] @ W[1]):.4f}")
    0.0000
    """
    require.sizes(r, k)
    if not orthogonal:
        return rng.standard_normal((r, k))
    turned = []
    for _ in range(0, r, k):
        U, R = np.linalg.qr(rng.standard_normal((k, k)))
        turned.append(T(U * np.sign(np.diag(R))))  # with these signs every rotation is equally likely
    lengths = np.linalg.norm(rng.standard_normal((r, k)), axis=-1, keepdims=True)
    return lengths * np.concatenate(turned)[:r]  # eq:orthogonal-directions


@differentiable
@half_in_float32
def random_features(
    X: Float[Array, "... n k"],
    W: Float[Array, "r k"],
    *,
    kind: str = "positive",
) -> tuple[Float[Array, "... n f"], Vjp]:
    r"""Features whose products are, on average over the directions, the exponential of a dot product.

    .. math:: \phi(x) &= \frac{1}{\sqrt r}\exp\bigl(W x - \tfrac12 \lVert x\rVert^2\bigr) \quad\text{(positive)},\\
              \phi(x) &= \frac{e^{\lVert x\rVert^2/2}}{\sqrt r}\,[\cos W x, \sin W x] \quad\text{(trigonometric)}

    Parameters
    ----------
    X : (..., n, k) queries or keys; divide both by the fourth root of k for the kernel of attention.
    W : (r, k) directions, as `draw_directions` makes them, the same for queries and keys; a constant.
    kind : ``"positive"``, or ``"trigonometric"``, which is the older and fails where the kernel is small.

    Returns
    -------
    F : (..., n, r), or (..., n, 2 r) of the trigonometric kind; not stabilised, so that a large row overflows.
    vjp : dF -> dX.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no direction, or the kind is none of the two.

    References
    ----------
    Choromanski et al. (2021), lemma 1; Rahimi and Recht (2007). Chapter 7, eq:positive-features.

    Examples
    --------
    >>> W = draw_directions(4096, 2, np.random.default_rng(0))
    >>> F, vjp = random_features(np.array([[0.3, 0.1], [0.2, -0.4]]), W)
    >>> print(f"{F[0] @ F[1]:.2f}, exactly {np.exp(0.02):.2f}")
    1.02, exactly 1.02
    """
    _require.shapes(X=(X, "... n k"), W=(W, "r k"))
    require.directions(W, "W")
    _require.choice("kind", kind, require.KINDS)
    root = len(W) ** -0.5
    half = (X * X).sum(-1, keepdims=True) / 2
    if kind == "positive":
        F = root * np.exp(X @ T(W) - half)  # eq:positive-features

        def vjp(dF):
            dA = dF * F
            return dA @ W - dA.sum(-1, keepdims=True) * X  # eq:positive-features-vjp

        return F, vjp
    A, E = X @ T(W), root * np.exp(half)
    C, S = np.cos(A), np.sin(A)

    def vjp(dF):
        dC, dS = np.split(dF, 2, -1)
        radial = (dC * C + dS * S).sum(-1, keepdims=True)
        return E * ((dS * C - dC * S) @ W + radial * X)  # eq:trigonometric-features-vjp

    return E * np.concatenate([C, S], -1), vjp  # eq:trigonometric-features


def _as_it_is(F):
    """The feature map of what are features already."""
    return F, lambda dF: dF


@differentiable
@half_in_float32
def performer_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    directions: Float[Array, "r k"],
    causal: bool = False,
    chunk: int = 128,
    form: str = "chunked",
    scale: float | None = None,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Softmax attention, approximated in linear time by positive random features.

    .. math:: O_i = \frac{\phi(q_i) \sum_j \phi(k_j)^\top v_j}{\phi(q_i) \sum_j \phi(k_j)^\top},\qquad
              E\,\phi(q)\phi(k)^\top = e^{q k^\top/\sqrt{d_k}}

    Parameters
    ----------
    Q, K, V, mask, causal, chunk, form : as in `linear_attention`.
    directions : W (r, k), as `draw_directions` makes them, in Q's dtype; a constant.
    scale : what multiplies the dot products, > 0; None is :math:`1/\sqrt{d_k}`.

    Returns
    -------
    O : (..., n, v); each row lies in the convex hull of the rows of V. What overflows is divided out: per query the
        largest product of features is 1, so that no sum is smaller, unless a causal query sees none of the large keys.
    vjp : dO -> (dQ, dK, dV).

    Raises
    ------
    ValueError
        As `linear_attention`; and if there is no direction, or the scale is not positive and finite.

    References
    ----------
    Choromanski et al. (2021), section 2. Chapter 7, eq:performer.

    Examples
    --------
    >>> W = draw_directions(8, 2, np.random.default_rng(0))
    >>> O, vjp = performer_attention(np.ones((1, 2)), np.zeros((2, 2)), np.array([[1.0], [3.0]]), directions=W)
    >>> O
    array([[2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"), directions=(directions, "r k"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    require.directions(directions, "directions")
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    c = factor(scale, sizes["k"]) ** 0.5
    W = c * directions
    A = Q @ T(W)  # without the square of the query, which multiplies all its weights alike
    B = K @ T(W)
    B -= c * c / 2 * (K * K).sum(-1, keepdims=True)
    if mask is not True:
        B = np.where(T(_seen(mask)), B, np.asarray(-np.inf, B.dtype))
    top = B.max(-2, keepdims=True)
    top = np.where(np.isneginf(top), np.zeros((), B.dtype), top)
    A = A + top
    A -= A.max(-1, keepdims=True)
    B -= top
    FQ, FK = np.exp(A, out=A), np.exp(B, out=B)  # eq:performer
    options = {"causal": causal, "chunk": chunk, "feature": _as_it_is, "form": form}
    O, sums_vjp = linear_attention(FQ, FK, V, mask, **options)

    def vjp(dO):
        dFQ, dFK, dV = sums_vjp(dO)
        dA, dB = dFQ * FQ, dFK * FK  # what was divided out cancels
        dQ = dA @ W
        dK = sum_to(dB, (*K.shape[:-1], len(W)))
        dK = dK @ W - c * c * dK.sum(-1, keepdims=True) * K  # eq:performer-vjp
        return sum_to(dQ, Q.shape), dK, dV

    return O, vjp


def _seen(mask):
    """The keys that some query sees, (..., 1, m)."""
    mask = np.asarray(mask)
    return mask.reshape((1,) * (2 - mask.ndim) + mask.shape).any(-2, keepdims=True)
