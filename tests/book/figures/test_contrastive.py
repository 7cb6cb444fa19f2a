"""The contrastive loss at a scale, and its gradients, by the library."""

import numpy as np
import pytest

import attnmath.numpy as an

pytestmark = [pytest.mark.book, pytest.mark.needs("browser")]


def by_the_library(A, B, scale):
    loss, vjp = an.contrastive_loss(A, B, np.log(np.array(scale)))
    dU, dV, dtau = vjp(1.0)
    return float(loss), dU, dV, float(dtau), np.sqrt((dU**2).sum() + (dV**2).sum())


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 14.3, 40.0, 100.0, 250.0])
def test_the_loss_and_its_gradients_are_the_librarys(open_figure, scale):
    figure = open_figure("contrastive")
    A, B = figure.data("pictures"), figure.data("captions")
    figure.turn(scale=scale)
    scale = figure.knob("scale") if abs(figure.knob("scale") / scale - 1) < 0.03 else None
    loss, dU, dV, dtau, move = by_the_library(A, B, scale)
    for name, want in (("loss", loss), ("dU", dU), ("dV", dV), ("dtau", dtau), ("move", move)):
        np.testing.assert_allclose(figure.shown(name), want, atol=3e-7, err_msg=name)
    S = an.cosine_scores(A, B, np.log(np.array(scale)))[0]
    loss_of_scores, vjp = an.matching_loss(S)
    dS = vjp(1.0)
    dS = dS[0] if isinstance(dS, tuple) else dS
    np.testing.assert_allclose(figure.shown("dS"), dS, atol=3e-7)
    np.testing.assert_allclose(loss_of_scores, loss, atol=1e-12)
    entries = figure.root.locator("svg .entry").all_text_contents()
    assert [entry.replace("−", "-") for entry in entries] == [f"{g:.3f}" for g in figure.shown("dS").ravel()]
    assert f"the loss is {loss:.4f}" in figure.said() and f"the length {move:.3f}" in figure.said()
    assert f"Pair {np.diag(dS).argmin() + 1} is pulled together hardest" in figure.said()
    assert ("scale larger" in figure.said()) == (dtau < 0)


def test_the_curves_are_the_same_at_every_scale(open_figure):
    figure = open_figure("contrastive")
    A, B, places = figure.data("pictures"), figure.data("captions"), figure.shown("places")
    assert (places[0], places[-1]) == pytest.approx((0.1, 250))
    want = np.array([[one[0], one[-1]] for one in (by_the_library(A, B, scale) for scale in places)])
    np.testing.assert_allclose(figure.shown("curve"), want, atol=3e-7)
    assert f"longest near the scale {places[want[:, 1].argmax()]:.1f}" in figure.said()


def test_the_page_begins_with_its_own_number(open_figure):
    figure = open_figure("contrastive")
    assert f"{figure.shown('loss'):.4f}" == "0.4127" and "At the scale 5.00 the loss is 0.4127" in figure.said()
