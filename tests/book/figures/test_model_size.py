"""The bars of parameters, bytes and operations of a model of any size."""

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import count, shapes
from attnmath.tree import flatten

pytestmark = pytest.mark.book


def bars(L, d, f, h, g, n, t, gated, maps):
    """The four bars by the library's own counts."""
    e = d // h * g
    sizes = dict(key_width=e, gated=gated)
    whole = count.transformer_parameters(d, f, L, t, **sizes)
    attention = count.transformer_parameters(d, 0, L, **sizes)
    network = whole - attention - t * d
    P = whole + t * d * gated
    kept = L * n * (8 * d + (4 if gated else 2) * f) + n * d
    kept = 2 * kept + maps * count.attention_bytes(n, n, heads=h, layers=L, itemsize=2)
    state = count.training_bytes(P, master=0, moments=0)
    cache = count.kv_cache_bytes(n, g, d // h, d // h, layers=L, itemsize=2)
    everything = count.training_flops(n, d, f, L, t, **sizes)
    ours = {
        "parameters": [attention, network, P - attention - network],
        "train": [state, count.training_bytes(P) - state, kept],
        "run": [2 * P, cache],
        "flops": [6 * n * attention, 6 * n * network, 6 * n * t * d, everything - 6 * n * whole],
    }
    assert sum(ours["flops"]) == everything
    return ours


CASES = [
    {},
    {"model": 1},
    {"model": 2, "context": 131072},
    {"model": 3, "maps": False},
    {"model": 3, "keys": 64, "context": 16384},
    {"layers": 1, "width": 64, "heads": 1, "keys": 1, "ratio": 1, "context": 128, "vocabulary": 1000},
    {"layers": 128, "width": 16384, "heads": 128, "keys": 1, "ratio": 8, "context": 131072, "vocabulary": 256000},
    {"width": 1088, "heads": 100, "keys": 33, "ratio": 2.6875, "gated": True},
]


@pytest.mark.needs("browser")
@pytest.mark.parametrize("knobs", CASES, ids=str)
def test_the_bars_are_the_librarys_counts(open_figure, knobs):
    figure = open_figure("model-size")
    figure.turn(**knobs)
    L, d, f, h, g, n, t = map(int, figure.shown("sizes"))
    assert d % h == 0 and h % g == 0 and h <= figure.knob("heads") and g <= figure.knob("keys")
    assert (L, d, t) == (figure.knob("layers"), figure.knob("width"), figure.knob("vocabulary"))
    assert f == round(figure.knob("ratio") * d) and n == round(figure.knob("context"))
    for name, value in knobs.items():
        if name not in ("model", "keys"):
            assert np.isclose(figure.knob(name), value)
    want = bars(L, d, f, h, g, n, t, figure.knob("gated"), figure.knob("maps"))
    for name, parts in want.items():
        np.testing.assert_allclose(figure.shown(name), parts, rtol=1e-12)
    drawn = figure.root.locator("svg rect").evaluate_all("all => all.map(one => one.getAttribute('width'))")
    lengths = np.array(drawn, float) + 1
    shares = np.concatenate([640 * np.array(parts) / sum(parts) for parts in want.values()])
    long = shares > 1
    np.testing.assert_allclose(lengths[long], shares[long], atol=1e-6)
    assert f"{L} layers of width {d:,} with {h} heads and {g} key/value heads" in figure.said()
    assert ("more than a device of 80 GB has" in figure.said()) == (sum(want["train"]) > 80e9)


@pytest.mark.needs("browser")
def test_the_sizes_of_real_models_are_reached_exactly(open_figure):
    figure = open_figure("model-size")
    real = [(12, 768, 3072, 12, 12), (96, 12288, 49152, 96, 96), (32, 4096, 11008, 32, 32), (80, 8192, 28672, 64, 8)]
    for i, sizes in enumerate(real):
        figure.turn(model=i)
        assert tuple(figure.shown("sizes")[:5]) == sizes
    assert "69 billion parameters" in figure.said()


@pytest.mark.parametrize("gated", [False, True])
def test_the_activations_are_what_the_library_keeps(gated):
    parts = {"feed_forward": an.gated_feed_forward} if gated else {}
    rng = np.random.default_rng(3)
    L, d, f, h, n, t = 3, 64, 160, 4, 96, 20
    params = shapes.random_tree(shapes.decoder_only_shapes(t, d, f, L, heads=h, **parts), rng, 0.1)
    _, vjp = an.decoder_only(rng.integers(0, t, (1, n)), params, h, attend=an.attention, **parts)
    weights = sum(A.nbytes for A in flatten(params).values())
    real = (count.bytes_held(vjp) - weights) / 8 * 2
    assert abs(real / bars(L, d, f, h, h, n, t, gated, True)["train"][2] - 1) < 0.02
