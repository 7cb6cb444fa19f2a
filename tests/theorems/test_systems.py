"""Counted all or nothing: a steady gain seems sudden."""

from itertools import product
from math import prod

import pytest


def shares(p, k):
    """Probability that all of k independent answers are right, and the expected share of right ones, by all cases."""
    cases = {case: prod(p if right else 1 - p for right in case) for case in product((True, False), repeat=k)}
    return sum(w for case, w in cases.items() if all(case)), sum(w * sum(case) / k for case, w in cases.items())


@pytest.mark.claim("prop-all-right")
@pytest.mark.parametrize("k", [1, 2, 5, 9])
@pytest.mark.parametrize(("p", "c"), [(0.3, 2.0), (0.5, 1.9), (0.05, 10.0)])
def test_all_right_grows_by_the_power(p, c, k):
    (before, share), (after, larger) = shares(p, k), shares(c * p, k)
    assert before == pytest.approx(p**k, rel=1e-12) and share == pytest.approx(p, rel=1e-12)
    assert after / before == pytest.approx(c**k, rel=1e-12) and larger / share == pytest.approx(c, rel=1e-12)
