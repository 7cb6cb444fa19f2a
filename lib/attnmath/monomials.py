"""All monomials of some variables up to a degree: their exponents, and their lengths as features. For either world."""

from functools import lru_cache
from itertools import combinations_with_replacement
from math import factorial, prod

import numpy as np


@lru_cache(maxsize=32)
def exponents(width: int, degree: int):
    r"""The exponents of all monomials, by degree and then in the order of the variables.

    Parameters
    ----------
    width : k, how many variables.
    degree : M >= 0, the highest sum of exponents.

    Returns
    -------
    alpha : (f, k) integers, f the number of monomials, k + M over M. It is kept, so it must not be written into.

    Examples
    --------
    >>> exponents(2, 2).tolist()
    [[0, 0], [1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    picks = [pick for m in range(degree + 1) for pick in combinations_with_replacement(range(width), m)]
    alpha = np.zeros((len(picks), width), int)
    for row, pick in enumerate(picks):
        for i in pick:
            alpha[row, i] += 1
    alpha.flags.writeable = False
    return alpha


@lru_cache(maxsize=32)
def lengths(width: int, degree: int):
    r"""What multiplies each monomial, so that dot products of monomials are sums of powers over factorials.

    .. math:: 1 / \sqrt{\alpha!},\qquad \alpha! = \prod_i \alpha_i!

    Parameters
    ----------
    width, degree : as in `exponents`.

    Returns
    -------
    lengths : (f,) floats. They are kept, so they must not be written into.

    Examples
    --------
    >>> lengths(1, 3).round(3).tolist()
    [1.0, 1.0, 0.707, 0.408]
    """
    found = np.array([prod(map(factorial, row)) for row in exponents(width, degree).tolist()], float) ** -0.5
    found.flags.writeable = False
    return found


@lru_cache(maxsize=32)
def lower(width: int, degree: int):
    r"""For each variable i: which monomials have it, which ones are these with a factor i less, and the exponents of i.

    Parameters
    ----------
    width, degree : as in `exponents`.

    Returns
    -------
    parts : a tuple of (rows, rows of the lower monomials, exponents), one for each variable.

    Examples
    --------
    >>> [part.tolist() for part in lower(2, 2)[0]]  # x from 1, x^2 from x, and xy from y
    [[1, 3, 4], [0, 1, 2], [1, 2, 1]]
    """
    alpha = exponents(width, degree)
    rows, unit = {tuple(row): at for at, row in enumerate(alpha.tolist())}, np.eye(width, dtype=int)
    parts = []
    for i in range(width):
        has = np.flatnonzero(alpha[:, i])
        less = [rows[tuple(row)] for row in (alpha[has] - unit[i]).tolist()]
        parts.append((has, np.array(less, int), alpha[has, i]))
    return tuple(parts)
