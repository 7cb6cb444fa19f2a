"""Weights as heat on a graph: spectrum of the walk, what a step smooths, matrix exponential, and the density's part."""

import numpy as np

from attnmath import _require
from attnmath._require import metric_attention as require


def walk_spectrum(A):
    r"""Eigenvalues and eigenvectors of the weights that a symmetric kernel gives.

    .. math:: P = D^{-1}A = D^{-1/2}\bigl(D^{-1/2} A D^{-1/2}\bigr) D^{1/2},\qquad D_{ii} = \sum_j A_{ij}

    Parameters
    ----------
    A : (n, n) symmetric, not negative, with no row of zeros, such as ``np.exp(S)`` for scores of X with itself.

    Returns
    -------
    values : (n,) the eigenvalues of P, real, the largest first; it is 1.
    U : (n, n) eigenvectors of P as columns, orthonormal in the inner product that weights node i with its share.
    share : (n,) the degrees divided by their sum, the stationary distribution.

    Raises
    ------
    ValueError
        If A is not square, not symmetric, or has a negative entry or a row of zeros.

    References
    ----------
    Coifman and Lafon (2006), section 2. Chapter 9, eq:walk-spectrum.

    Examples
    --------
    >>> values, U, share = walk_spectrum(np.array([[1.0, 1.0], [1.0, 3.0]]))
    >>> values, share.round(3)
    (array([1.  , 0.25]), array([0.333, 0.667]))
    """
    require.graph(A, np.allclose)
    degrees = A.sum(-1)
    root = np.sqrt(degrees / degrees.sum())
    values, vectors = np.linalg.eigh(A / np.sqrt(np.outer(degrees, degrees)))  # eq:walk-spectrum
    return values[::-1], (vectors / root[:, None])[:, ::-1], degrees / degrees.sum()


def dirichlet_energy(A, X):
    r"""How much values differ across the edges of a graph.

    .. math:: E(X) = \frac12\sum_{i,j} A_{ij}\,\lVert x_i - x_j\rVert^2

    Parameters
    ----------
    A : (n, n) symmetric weights, as in `walk_spectrum`.
    X : (n,) or (n, v) values of the nodes.

    Returns
    -------
    E : a number >= 0; 0 if and only if connected nodes have one value.

    Raises
    ------
    ValueError
        As `walk_spectrum`, and if X has another number of rows than A.

    References
    ----------
    Chung (1997), section 1.2, before it is divided. Chapter 9, eq:dirichlet-energy.

    Examples
    --------
    >>> dirichlet_energy(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([0.0, 3.0]))
    18.0
    """
    require.graph(A, np.allclose)
    X = X.reshape(len(X), -1)
    _require.shapes(A=(A, "n n"), X=(X, "n v"))
    return float((X * (A.sum(-1, keepdims=True) * X - A @ X)).sum())  # eq:dirichlet-energy


def graph_heat(A, time: float):
    r"""The heat kernel of a graph: where heat that starts at node i has gone after a time.

    .. math:: H_t = e^{-t(I - P)} = \sum_l e^{-t(1 - \lambda_l)}\, u_l u_l^\top \operatorname{diag}(\pi)

    Parameters
    ----------
    A : (n, n) symmetric weights, as in `walk_spectrum`.
    time : t >= 0; the explicit Euler step of length 1 is P itself.

    Returns
    -------
    H : (n, n), rows sum to 1, no entry negative up to rounding.

    Raises
    ------
    ValueError
        As `walk_spectrum`, and if the time is negative.

    References
    ----------
    Kondor and Lafferty (2002), with the Laplacian of the random walk. Chapter 9, eq:graph-heat.

    Examples
    --------
    >>> graph_heat(np.array([[1.0, 1.0], [1.0, 1.0]]), 1.0).round(4)
    array([[0.6839, 0.3161],
           [0.3161, 0.6839]])
    """
    _require.nonnegative("time", time)
    values, U, share = walk_spectrum(A)
    return (U * np.exp(-time * (1 - values))) @ (U.T * share)  # eq:graph-heat


def without_density(S, alpha: float = 1.0):
    r"""Symmetric scores from which the density of the points is taken away, wholly or in part.

    .. math:: S_{ij} - \alpha\log\rho_i - \alpha\log\rho_j,\qquad \rho_j = \sum_i e^{S_{ij}}

    Parameters
    ----------
    S : (n, n) symmetric scores, such as those of `attnmath.numpy.metric_score` of X with itself.
    alpha : 0 leaves the scores as they are; 1 removes the drift towards dense regions in the limit.

    Returns
    -------
    S : (n, n) symmetric; a softmax of its rows sees only the part that belongs to the key.

    Raises
    ------
    ValueError
        If the scores are not square and symmetric.

    References
    ----------
    Coifman and Lafon (2006), section 3.1. Chapter 9, eq:without-density.

    Examples
    --------
    >>> S = np.log(np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]]))  # two points in one place
    >>> np.exp(without_density(S))[0].round(3)
    array([0.16, 0.16, 0.1 ])
    """
    top = S.max() if S.size else 0.0
    E = np.exp(S - top)
    require.graph(E, np.allclose)
    density = np.log(E.sum(0)) + top
    return S - alpha * (density[:, None] + density)  # eq:without-density
