"""Two tokens in a stack of infinitely many heads, where their covariance is not random, and the limit of great depth.

What a single head computes is `attnmath.numpy.shaped_attention` or `attnmath.numpy.attention`.
"""

from functools import cache

import numpy as np

from attnmath import _require


def two_token_layer(
    size: float,
    cosine: float,
    *,
    temperature: float = 1.0,
    share: float = 0.5,
    shaped: bool = True,
    strength: float = 1.0,
) -> tuple[float, float]:
    r"""What one layer of infinitely many wide heads makes of two tokens of equal length.

    .. math:: C' = (1 - b^2)\,C + b^2\,\mathbb E[A C A^\top],\qquad A = I + g\,(P - U)\ \text{or}\ P,\qquad
              C = q\begin{pmatrix}1&c\\c&1\end{pmatrix}

    Parameters
    ----------
    size : q > 0, the squared length of each token by component.
    cosine : c, from -1 to 1.
    temperature : tau > 0; the scores are normal, with the covariances :math:`C_{ik} C_{jl} / \tau^2`.
    share : b^2, from 0 to 1: the square of the branch's factor. The residual has the rest.
    shaped : whether the weights are centred on the identity, or those of softmax.
    strength : g, of shaped attention.

    Returns
    -------
    size, cosine : of the next layer.

    Raises
    ------
    ValueError
        If a number lies outside of its range.

    References
    ----------
    Chapter 9, eq:two-token-layer.

    Examples
    --------
    >>> q, c = two_token_layer(1.0, 0.0, shaped=False)
    >>> round(q, 4), round(c, 4)  # softmax makes them alike
    (0.8184, 0.3055)
    >>> q, c = two_token_layer(1.0, 0.0)
    >>> round(q, 4), round(c, 4)
    (1.0684, 0.0)
    """
    _require.positive("size", size)
    _require.positive("temperature", temperature)
    for name, value, low in (("cosine", cosine, -1), ("share", share, 0)):
        if not low <= value <= 1:
            raise ValueError(f"{name} is {value!r}; it must lie from {low} to 1")
    gap = 2 * size * (1 - cosine)
    own, both = _half_tangents((size * gap) ** 0.5 / temperature, cosine)
    if shaped:
        new, cross = (old + share * strength**2 * gap * e for old, e in ((size, own), (size * cosine, both)))
    else:
        mean = size * (1 + cosine) / 2
        keep = 1 - share
        new = keep * size + share * (mean + gap * own)  # eq:two-token-layer
        cross = keep * size * cosine + share * (mean + gap * both)
    return float(new), float(cross / new)


def _half_tangents(spread, cosine):
    """E[e e] and E[e e'] for e = sigmoid(x) - 1/2 and two normal x of a spread and a correlation, by quadrature."""
    nodes, weights = _nodes()
    first = np.tanh(spread * nodes / 2) / 2
    second = np.tanh(spread * (cosine * nodes[:, None] + (1 - cosine**2) ** 0.5 * nodes) / 2) / 2
    return weights @ first**2, (weights * first) @ second @ weights


@cache
def _nodes():
    """Points and weights of the quadrature, for a normal number with variance 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    return nodes, weights / weights.sum()


def two_token_stack(layers: int, size: float, cosine: float, **options) -> np.ndarray:
    """Sizes and cosines before the first of some equal layers and after each.

    Parameters
    ----------
    layers : L, a count.
    size, cosine, options : as in `two_token_layer`.

    Returns
    -------
    path : (L + 1, 2).

    Examples
    --------
    >>> two_token_stack(2, 1.0, 0.0, shaped=False).round(4)
    array([[1.    , 0.    ],
           [0.8184, 0.3055],
           [0.6997, 0.5705]])
    """
    _require.count("layers", layers)
    path = [(size, cosine)]
    for _ in range(layers):
        path.append(two_token_layer(*path[-1], **options))
    return np.array(path)


def two_token_limit(time, size: float, cosine: float, *, share: float = 0.5, strength: float = 1.0):
    r"""The size of two tokens after a share t of a deep shaped stack with the temperature :math:`\sqrt L`.

    .. math:: q(t) = \frac{q_0}{\sqrt{1 - 2\kappa t}},\qquad \kappa = \tfrac14\,b^2 g^2 q_0^2 (1 - c_0)^2

    Parameters
    ----------
    time : t, a number or an array, from 0 to less than :math:`1 / (2\kappa)`.
    size, cosine, share, strength : q and c at the start, b^2 and g, as in `two_token_layer`.

    Returns
    -------
    size : of the shape of time. The cosine stays as it is.

    Raises
    ------
    ValueError
        If the time reaches the one at which the size becomes infinite.

    References
    ----------
    Chapter 9, eq:two-token-limit.

    Examples
    --------
    >>> float(two_token_limit(1.0, 1.0, 0.0).round(4))  # 1 / sqrt(1 - 1/4)
    1.1547
    """
    kappa = share * (strength * size * (1 - cosine)) ** 2 / 4
    left = 1 - 2 * kappa * np.asarray(time, float)
    if (left <= 0).any():
        end = 1 / (2 * kappa)
        raise ValueError(f"the largest time is {np.max(time)}; it must be below {end:.4g}, where q is infinite")
    return size / np.sqrt(left)  # eq:two-token-limit
