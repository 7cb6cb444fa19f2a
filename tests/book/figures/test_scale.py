"""Scores, weights and the norm of the Jacobian for a query of every width, divided or not."""

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def norm_of_jacobian(p):
    """The norm of diag(p) - p^T p, with 1 - p_i as a sum, so that it keeps its digits when p_i is nearly 1."""
    J = -np.outer(p, p)
    np.fill_diagonal(J, [p[i] * np.delete(p, i).sum() for i in range(len(p))])
    return np.linalg.eigvalsh(J)[-1]


def test_scores_weights_and_norm_at_every_width(open_figure):
    figure = open_figure("scale")
    scores = figure.data("scores")
    assert scores.shape == (9, 13, 16)
    settings = [(0, False, 1), (0, True, 9), (3, False, 4), (9, False, 1), (9, True, 1), (12, False, 2), (12, True, 9)]
    for power, divide, query in settings:
        figure.turn(power=power, divide=divide, query=query)
        at_width = scores[:, power] / (2 ** (power / 2) if divide else 1)
        P, vjp = an.softmax(at_width[query - 1])
        np.testing.assert_allclose(figure.shown("scores"), at_width[query - 1], atol=1e-12)
        np.testing.assert_allclose(figure.shown("weights"), P, rtol=1e-9)
        np.testing.assert_allclose(figure.shown("largest"), P.max(), rtol=1e-12)
        np.testing.assert_allclose(figure.shown("median"), np.median(an.softmax(at_width)[0].max(-1)), rtol=1e-12)
        np.testing.assert_allclose(figure.shown("spread"), at_width.std(), rtol=1e-12)
        norm = figure.shown("norm")
        np.testing.assert_allclose(norm, norm_of_jacobian(P), rtol=1e-8)
        J = np.array([vjp(row) for row in np.eye(16)])  # the library's own Jacobian
        np.testing.assert_allclose(norm, np.linalg.norm(J, 2), atol=1e-12)
        assert P.max() * (1 - P.max()) - 1e-12 <= norm <= min(2 * P.max() * (1 - P.max()), 0.5) + 1e-12
        assert f"d_k = {2**power} {'with ' if divide else 'without'}" in figure.said()


def test_the_draws_follow_the_theorem(open_figure):
    figure = open_figure("scale")
    spread = figure.data("scores").std((0, 2))
    np.testing.assert_allclose(spread, 2.0 ** (np.arange(13) / 2), rtol=0.35)
    np.testing.assert_allclose(spread[3:], 2.0 ** (np.arange(3, 13) / 2), rtol=0.1)
    figure.turn(power=12, divide=True)
    divided = figure.shown("median")
    figure.turn(divide=False)
    assert figure.shown("median") > 0.9 > 0.4 > divided
