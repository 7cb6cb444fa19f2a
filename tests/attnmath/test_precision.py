"""The results of the page on mixed precision: exact scales, lost updates, and a loss scale that follows torch's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.loss_scale import LARGEST, LossScale
from attnmath.tree import flatten, map_tree

seeds = st.integers(0, 2**32 - 1)


def draws(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# scaling


def weight_gradients(s, seed, dtype=np.float32):
    """The gradients of s times a loss, of an encoder layer and of the row it reads, before and after the division."""
    rng = np.random.default_rng(seed)
    params = map_tree(dtype, shapes.random_tree(shapes.encoder_layer_shapes(6, 11), rng, 0.4))
    X, C = rng.standard_normal((2, 5, 6)).astype(dtype)
    Y, vjp = an.encoder_layer(X, params, 2)
    _, scale_vjp = an.scale_loss(np.asarray((C * Y).sum()), s)
    dX, dparams = vjp(scale_vjp(np.ones((), dtype)).astype(dtype) * C)
    scaled = {"X": dX, "params": dparams}
    return flatten(scaled), flatten(an.unscale(scaled, s)[0])


@pytest.mark.slow
@pytest.mark.claim("lem-power-scale", "eq:loss-scale", "eq:loss-scale-vjp", "eq:unscale")
@given(seeds, st.integers(-40, 40))
def test_a_power_of_two_changes_no_bit(seed, k):
    plain, _ = weight_gradients(1.0, seed)
    scaled, divided = weight_gradients(2.0**k, seed)
    for name, g in plain.items():
        assert (scaled[name] == np.float32(2.0**k) * g).all() and (divided[name] == g).all(), name


@pytest.mark.claim("lem-power-scale")
def test_another_factor_does_and_so_do_the_ends_of_the_range():
    def differ(s, dtype):
        with np.errstate(all="ignore"):
            plain, divided = weight_gradients(1.0, 7, dtype)[1], weight_gradients(s, 7, dtype)[1]
        return any((plain[name] != divided[name]).any() for name in plain)

    assert differ(1000.0, np.float32) and not differ(1024.0, np.float32)
    assert differ(2.0**-16, np.float16), "subnormal numbers"
    assert differ(2.0**15, np.float16), "overflow"


@pytest.mark.claim("eq:unscale")
@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("dtype", "kept"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_unscale_divides_in_32_bits_and_sees_what_is_not_finite(world, dtype, kept, rng):
    g = {"a": {"w": rng.standard_normal((3, 4)).astype(dtype)}, "b": np.array([2.0**-14, 3.0], dtype)}
    before = map_tree(np.copy, g)
    into = torch.from_numpy if world is at else np.asarray
    out, finite = world.unscale(map_tree(into, g), 2.0**12)
    assert finite is True
    for name, leaf in flatten(out).items():
        assert str(leaf.dtype).endswith(kept)
        assert (np.asarray(leaf) == flatten(g)[name].astype(kept) / 2**12).all() and np.asarray(leaf).all()
        assert (flatten(g)[name] == flatten(before)[name]).all(), "arguments stay as they are"
    for bad in (np.inf, -np.inf, np.nan):
        g["b"][1] = bad
        assert world.unscale(map_tree(into, g), 2.0**12)[1] is False


def test_unscale_agrees_with_torch_on_a_model():
    """`GradScaler.unscale_` divides in place what `unscale` divides into a new tree."""
    params = {"w": torch.nn.Parameter(torch.randn(5, 3)), "b": torch.nn.Parameter(torch.randn(3))}
    optimiser = torch.optim.SGD(params.values(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    X = torch.randn(4, 5)
    loss = (torch.tanh(X @ params["w"] + params["b"]) ** 2).mean()
    assert at.scale_loss(loss, 2.0**10).item() == scaler.scale(loss).item()
    scaler.scale(loss).backward()
    ours, finite = at.unscale(map_tree(lambda p: p.grad, params), 2.0**10)
    scaler.unscale_(optimiser)
    assert finite and all((ours[name] == p.grad).all() for name, p in params.items())


# the scale


def of_torch(overflows, **options):
    parameter = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([parameter], 0.0)
    scaler, scales = torch.amp.GradScaler("cpu", **options), []
    for overflow in overflows:
        scaler.scale(0 * parameter.sum()).backward()
        if overflow:
            parameter.grad.fill_(torch.inf)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
        scales.append(scaler.get_scale())
    return scales


def ours(overflows, scale):
    scales = []
    for overflow in overflows:
        scale = scale.update(not overflow)
        scales.append(scale.scale)
    return scales


@given(
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(-3, 20),
    st.sampled_from([2.0, 4.0]),
)
def test_the_loss_scale_is_that_of_grad_scaler(overflows, interval, power, growth):
    same = dict(init_scale=2.0**power, growth_interval=interval, growth_factor=growth, backoff_factor=1 / growth)
    mine = LossScale(2.0**power, growth, 1 / growth, interval)
    assert ours(overflows, mine) == of_torch(overflows, **same)


def test_the_loss_scale_has_torchs_defaults_and_stops_where_float32_does():
    scaler, scale = torch.amp.GradScaler("cpu"), LossScale()
    assert (scale.scale, scale.growth, scale.backoff, scale.interval) == (
        scaler.get_scale(),
        scaler.get_growth_factor(),
        scaler.get_backoff_factor(),
        scaler.get_growth_interval(),
    )
    top = [False] * 4
    assert ours(top, LossScale(2.0**126, interval=1)) == of_torch(top, init_scale=2.0**126, growth_interval=1)
    assert ours(top, LossScale(2.0**126, interval=1))[-1] == LARGEST


# updates


@pytest.mark.claim("lem-lost-update")
def test_small_updates_are_lost_and_large_ones_are_not_for_every_float16():
    w = np.arange(0x0400, 0x7C00, dtype=np.uint16).view(np.float16)  # all positive normal numbers
    w = w[np.isfinite(w) & (w < 2.0**14) & (w > 2.0**-12)]  # so that no update is below the format or the sum above it
    exact = w.astype(np.float64)
    for sign in (-1, 1):
        for share, lost in ((0.999 * 2.0**-12, True), (1.001 * 2.0**-11, False)):
            moved = (exact + sign * share * exact).astype(np.float16)  # the exact sum, rounded once
            assert ((moved == w) == lost).all()
    half_way = (exact + 0.75 * 2.0**-11 * exact).astype(np.float16) == w
    assert half_way.any() and not half_way.all(), "in between it depends on the significand"


@pytest.mark.claim("lem-lost-update")
@given(seeds, st.sampled_from([torch.bfloat16, torch.float16, torch.float32]))
def test_updates_are_lost_below_the_same_share_in_every_format(seed, dtype):
    p = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24}[dtype]
    w = torch.from_numpy(np.exp(draws(seed, 50))).to(dtype)
    for share, lost in ((0.99 * 2.0 ** -(p + 1), True), (1.01 * 2.0**-p, False)):
        for sign in (-1, 1):
            moved = (w.double() * (1 + sign * share)).to(dtype)
            assert bool(((moved == w) == lost).all())
