"""Modern Hopfield networks: patterns that are keys and values at once, states that attend to them, and their energy."""

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.numpy.attention import attention
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.scoring_functions import scaled_dot_score
from attnmath.numpy.softmax import logsumexp
from attnmath.numpy.types import Array, Vjp, differentiable, sum_to


@differentiable
@half_in_float32
def hopfield(
    X: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    scale: float | None = None,
    steps: int = 1,
) -> tuple[Float[Array, "... n k"], Vjp]:
    r"""Let states fall towards stored patterns: each step is attention with the patterns as keys and as values.

    .. math:: X^{(t+1)} = \operatorname{softmax}(\beta X^{(t)} K^\top)\, K,\qquad X^{(0)} = X

    Parameters
    ----------
    X : (..., n, k) states, one cue in each row.
    K : (..., m, k) patterns.
    mask : boolean, broadcasts to (..., n, m); True = this state sees this pattern.
    scale : :math:`\beta > 0`; None is :math:`1/\sqrt{k}`. A large one recalls a pattern, a small one averages.
    steps : how many updates, >= 1.

    Returns
    -------
    Y : (..., n, k) the states after the last step; each row lies in the convex hull of the patterns that it sees.
    vjp : dY -> (dX, dK), through all steps.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no pattern, the mask is not boolean or does not broadcast, a state sees
        no pattern, the scale is not positive and finite, or steps is not an integer >= 1.

    References
    ----------
    Ramsauer et al. (2021), equation 3, whose X and xi are K and a row of X here, as columns. Chapter 9, eq:hopfield.

    Examples
    --------
    >>> K = np.array([[3.0, 0.0], [0.0, 3.0]])
    >>> hopfield(np.array([[1.0, 0.5]]), K, scale=2.0, steps=3)[0].round(3)
    array([[3., 0.]])
    """
    _require.count("steps", steps)
    Y, vjps = X, []
    for _ in range(steps):
        Y, step_vjp = attention(Y, K, K, mask, scale=scale)  # eq:hopfield
        vjps.append(step_vjp)

    def vjp(dY):
        dX, dK = dY, np.zeros_like(K)
        for back in reversed(vjps):
            dX, dkeys, dvalues = back(dX)  # eq:hopfield-vjp
            dK = dK + dkeys + dvalues
        return dX, dK

    return Y, vjp


@differentiable
@half_in_float32
def hopfield_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    scale: float | None = None,
    steps: int = 2,
) -> tuple[Float[Array, "... n v"], Vjp]:
    r"""Attention whose queries first fall towards the keys: a core that goes into every model.

    .. math:: O = \operatorname{softmax}(\beta\, Q^{(T-1)} K^\top)\, V,\qquad
              Q^{(t+1)} = \operatorname{softmax}(\beta\, Q^{(t)} K^\top)\, K

    Parameters
    ----------
    Q : (..., n, k) queries.
    K : (..., m, k) keys.
    V : (..., m, v) values.
    mask : boolean, broadcasts to (..., n, m); True = may attend.
    scale : :math:`\beta > 0`; None is :math:`1/\sqrt{d_k}`.
    steps : T >= 1, the last of which reads the values; 1 is `attention`.

    Returns
    -------
    O : (..., n, v); each row lies in the convex hull of the rows of V.
    vjp : dO -> (dQ, dK, dV).

    Raises
    ------
    ValueError
        As `attention`, and if steps is not an integer >= 1.

    References
    ----------
    Ramsauer et al. (2021), the layer Hopfield of their section 3. Chapter 9, eq:hopfield-attention.

    Examples
    --------
    >>> Q, K, V = np.array([[1.0, 0.0]]), 2 * np.eye(2), np.array([[0.0], [1.0]])
    >>> [round(float(hopfield_attention(Q, K, V, scale=1.0, steps=t)[0][0, 0]), 3) for t in (1, 2, 3)]
    [0.119, 0.045, 0.026]
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.count("steps", steps)
    start = np.broadcast_to(Q, (*sizes["..."], *Q.shape[-2:]))  # a mask may have the leading axes that only V has
    alone = (start, lambda dQ: (dQ, 0))
    fallen, fall_vjp = alone if steps == 1 else hopfield(start, K, mask, scale=scale, steps=steps - 1)
    O, read_vjp = attention(fallen, K, V, mask, scale=scale)  # eq:hopfield-attention

    def vjp(dO):
        dfallen, dkeys, dV = read_vjp(dO)
        dQ, dK = fall_vjp(dfallen)  # eq:hopfield-attention-vjp
        return sum_to(dQ, Q.shape), dK + dkeys, dV

    return O, vjp


@differentiable
@half_in_float32
def hopfield_energy(
    X: Float[Array, "... n k"], K: Float[Array, "... m k"], *, scale: float | None = None
) -> tuple[Float[Array, "... n"], Vjp]:
    r"""What each step of `hopfield` lowers.

    .. math:: E(x) = \frac{\lVert x\rVert^2}{2} - \frac1\beta \log\sum_j e^{\beta\, x\cdot k_j}

    Parameters
    ----------
    X : (..., n, k) states.
    K : (..., m, k) patterns.
    scale : :math:`\beta > 0`; None is :math:`1/\sqrt{k}`.

    Returns
    -------
    E : (..., n), at least :math:`-\max_j\lVert k_j\rVert^2/2 - \log(m)/\beta`.
    vjp : dE -> (dX, dK); the gradient at x is x minus its update.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, there is no pattern, or the scale is not positive and finite.

    References
    ----------
    Ramsauer et al. (2021), equation 2, without the two terms that do not depend on x. Chapter 9, eq:hopfield-energy.

    Examples
    --------
    >>> E, vjp = hopfield_energy(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 0.0], [0.0, 3.0]]), scale=1.0)
    >>> E.round(3)
    array([-0.693, -4.5  ])
    """
    sizes = _require.shapes(X=(X, "... n k"), K=(K, "... m k"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "pattern")
    beta = factor(scale, sizes["k"])
    S, score_vjp = scaled_dot_score(X, K, scale=scale)
    L, sum_vjp = logsumexp(S)
    E = (X * X).sum(-1) / 2 - L / beta  # eq:hopfield-energy

    def vjp(dE):
        dX, dK = score_vjp(sum_vjp(-dE / beta))
        return dX + sum_to(dE[..., None] * X, X.shape), dK  # eq:hopfield-energy-vjp

    return E, vjp
