"""Memories, measured: random patterns and how they disturb each other, the binary network of 1982, counts of keys.

The network whose update is attention is `attnmath.numpy.hopfield`.
"""

import numpy as np
from scipy.special import gammaln, ive

from attnmath import _require


def on_sphere(rng, n: int, d: int):
    """Directions drawn uniformly: n rows of length 1 with d components.

    Examples
    --------
    >>> X = on_sphere(np.random.default_rng(0), 3, 5)
    >>> X.shape, (X**2).sum(-1).round(12)
    ((3, 5), array([1., 1., 1.]))
    """
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def separation(K):
    r"""By how much each pattern is more similar to itself than to any other.

    .. math:: \Delta_i = \min_{j\ne i}\,(k_i\cdot k_i - k_i\cdot k_j)

    Parameters
    ----------
    K : (m, k) patterns, at least two.

    Returns
    -------
    Delta : (m,); a pattern whose value is not positive is not recalled even from itself.

    References
    ----------
    Ramsauer et al. (2021), definition 2. Chapter 9, eq:hopfield-separation.

    Examples
    --------
    >>> separation(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    array([1., 0., 1.])
    """
    K = np.asarray(K)
    G = K @ K.T
    gaps = np.diag(G)[:, None] - G
    np.fill_diagonal(gaps, np.inf)
    return gaps.min(-1)  # eq:hopfield-separation


def crosstalk(d: int, overlap: float, sharpness: float) -> float:
    r"""The mean weight of one random pattern, relative to that of the pattern that a cue belongs to.

    .. math:: q = \mathbb E\, e^{b d (u - c)} = e^{-bcd}\,{}_0F_1\bigl(;\tfrac d2;\tfrac{(bd)^2}4\bigr)
              \le e^{-bcd + b^2d/2}

    Parameters
    ----------
    d : components, >= 2; u is one component of a uniform direction.
    overlap : c, the cosine of the angle between the cue and its pattern.
    sharpness : b > 0; for patterns and cues of length 1 the scale is b d.

    Returns
    -------
    q : with N patterns the wrong weights are (N - 1) q times the right one, on average.

    References
    ----------
    Chapter 9, eq:hopfield-crosstalk.

    Examples
    --------
    >>> round(1 / crosstalk(20, 0.8, 0.8))  # so many patterns disturb as much as the right one helps
    1907
    """
    _require.positive("sharpness", sharpness)
    order, z = d / 2 - 1, sharpness * d
    log_mean = gammaln(d / 2) - order * np.log(z / 2) + np.log(ive(order, z)) + z
    return float(np.exp(log_mean - overlap * z))  # eq:hopfield-crosstalk


def wrong_weight(rng, d: int, overlap: float, sharpness: float, *, most: int, cues: int):
    r"""What a memory of random patterns adds to the right weight, for every number of patterns at once.

    .. math:: s_N = \sum_{j=2}^{N} e^{bd\,(x\cdot k_j - c)}

    Parameters
    ----------
    rng : NumPy's generator.
    d, overlap, sharpness : as in `crosstalk`.
    most : the largest number of patterns beside the right one.
    cues : how many cues share the patterns.

    Returns
    -------
    s : (cues, most); column j belongs to j + 1 wrong patterns. The right pattern has the weight 1 / (1 + s).

    Examples
    --------
    >>> s = wrong_weight(np.random.default_rng(0), 8, 0.8, 0.8, most=1000, cues=50)
    >>> bool((s[:, 4] < 1).mean() > 0.8), bool((s[:, -1] < 1).mean() < 0.1)
    (True, True)
    """
    patterns, directions = on_sphere(rng, most, d), on_sphere(rng, cues, d)
    return np.cumsum(np.exp(sharpness * d * (directions @ patterns.T - overlap)), -1)


def hebb(P):
    r"""The weights of the binary network: the sum of the patterns' outer products, without the diagonal.

    .. math:: W = \frac1d\sum_j k_j^\top k_j - \text{its diagonal}

    Parameters
    ----------
    P : (m, d) patterns of -1 and 1.

    References
    ----------
    Hopfield (1982). Chapter 9, eq:hebb.

    Examples
    --------
    >>> hebb(np.array([[1.0, -1.0]]))
    array([[ 0. , -0.5],
           [-0.5,  0. ]])
    """
    W = P.T @ P / P.shape[-1]  # eq:hebb
    np.fill_diagonal(W, 0)
    return W


def settle(W, X, *, sweeps: int = 20):
    r"""Let binary states fall: one component after the other takes the sign of its input.

    .. math:: x_a \leftarrow \operatorname{sign}\Bigl(\sum_b W_{ab}\,x_b\Bigr)

    Parameters
    ----------
    W : (d, d) symmetric, with a diagonal of zeros.
    X : (n, d) states; 0 stands for an unknown component. The input 0 leaves -1 and 1 as they are, and makes 0 a 1.
    sweeps : at most so many rounds; it ends before, when a round changes nothing.

    Returns
    -------
    Y : (n, d) of -1 and 1.

    References
    ----------
    Hopfield (1982). Chapter 9, eq:hopfield-binary.

    Examples
    --------
    >>> P = np.array([[1.0, 1, -1, -1, 1, -1]])
    >>> settle(hebb(P), np.array([[1.0, 1, -1, 0, 0, 0]]))
    array([[ 1.,  1., -1., -1.,  1., -1.]])
    """
    _require.count("sweeps", sweeps)
    Y = np.array(X, float).T.copy()  # one row for each component
    for _ in range(sweeps):
        before = Y.copy()
        for a, row in enumerate(W):
            sign = np.sign(row @ Y)
            Y[a] = np.where(sign == 0, np.where(Y[a] == 0, 1, Y[a]), sign)  # eq:hopfield-binary
        if (Y == before).all():
            break
    return Y.T


def binary_energy(W, X):
    r"""What `settle` lowers, for each row.

    .. math:: E(x) = -\tfrac12\, x W x^\top

    Examples
    --------
    >>> P = np.array([[1.0, -1.0]])
    >>> binary_energy(hebb(P), np.array([[1.0, -1.0], [1.0, 1.0]]))
    array([-0.5,  0.5])
    """
    return -((X @ W) * X).sum(-1) / 2  # eq:hopfield-binary-energy


def binary_recall(rng, count: int, d: int, *, flipped: float = 0.1, good: float = 0.95) -> float:
    """The share of random binary patterns that the network of 1982 finds from a cue with flipped components.

    Parameters
    ----------
    rng : NumPy's generator.
    count, d : how many patterns, of how many components.
    flipped : the share of components that change their sign; the cue's overlap is 1 - 2 flipped.
    good : the overlap from which a pattern counts as found.

    Examples
    --------
    >>> [binary_recall(np.random.default_rng(0), n, 60) for n in (2, 40)]
    [1.0, 0.0]
    """
    P = rng.choice([-1.0, 1.0], (count, d))
    X = P.copy()
    for row in X:
        row[rng.choice(d, round(flipped * d), replace=False)] *= -1
    W = np.rint(d * hebb(P))  # whole numbers: an input of 0 is 0 on every machine
    return float(((settle(W, X) * P).mean(-1) >= good).mean())


def keys_holding(P, share: float = 0.9):
    """How many keys, the heaviest first, hold a share of each row's weight.

    Parameters
    ----------
    P : (..., n, m) weights, rows that sum to 1.
    share : in (0, 1].

    Returns
    -------
    count : (..., n) integers from 1 to m.

    References
    ----------
    Ramsauer et al. (2021), appendix A.5.1, with the share 0.90.

    Examples
    --------
    >>> keys_holding(np.array([[0.95, 0.05, 0.0], [0.5, 0.3, 0.2]]))
    array([1, 3])
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share!r}; it must lie in (0, 1]")
    held = np.cumsum(-np.sort(-np.asarray(P, float), -1), -1)
    return np.minimum((held < share - 1e-9).sum(-1) + 1, held.shape[-1])
