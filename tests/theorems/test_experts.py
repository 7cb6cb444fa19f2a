"""The results of the page on experts: what a router's gradient is, what its loss measures, and who is dropped."""

from functools import partial
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import experts as numbers
from attnmath import shapes
from attnmath.check import check_vjp, compare

seeds = st.integers(0, 2**32 - 1)
D, E = 5, 6


def softmax(S):
    W = np.exp(S - S.max(-1, keepdims=True))
    return W / W.sum(-1, keepdims=True)


def highest(S, top):
    """Booleans, by counting how many scores are higher; without ties."""
    return (S[..., None, :] > S[..., :, None]).sum(-1) < top


@pytest.mark.claim("prop-choose-first", "eq:top-k-gates", "eq:dispatch")
@settings(max_examples=25)
@given(seeds, st.integers(1, E))
def test_choosing_and_softmax_may_be_exchanged(seed, top):
    """Softmax, choose, divide by the sum = choose, softmax; without the division it is another thing."""
    S = np.random.default_rng(seed).standard_normal((7, E))
    C, P = highest(S, top), softmax(S)
    assert (highest(P, top) == C).all() and (an.dispatch(S, top) == C).all()
    late = P * C / (P * C).sum(-1, keepdims=True)
    early = np.array([np.bincount(np.flatnonzero(c), softmax(s[c]), E) for s, c in zip(S, C, strict=True)])
    compare(late, early, name="late and early", atol=1e-14)
    compare(an.top_k_gates(S, top)[0], early, name="gates", atol=1e-14)
    raw, _ = an.top_k_gates(S, top, renormalise=False)
    compare(raw, P * C, name="raw gates", atol=1e-14)
    assert top == E or (raw.sum(-1) < 1 - 1e-6).all()


@pytest.mark.claim("prop-choose-first", "eq:top-k-gates-vjp")
def test_one_renormalised_expert_gives_the_router_no_gradient(rng):
    S = rng.standard_normal((7, E))
    dG = rng.standard_normal((7, E))
    G, vjp = an.top_k_gates(S, 1)
    compare(G, highest(S, 1).astype(float), name="gates")
    compare(vjp(dG), np.zeros((7, E)), name="dS", atol=1e-15)
    _, raw_vjp = an.top_k_gates(S, 1, renormalise=False)
    assert np.abs(raw_vjp(dG)).min() > 1e-4  # and here every score has one
    for top in (2, 3):
        _, vjp = an.top_k_gates(S, top)
        dS = vjp(dG)
        assert not dS[~highest(S, top)].any() and np.abs(dS[highest(S, top)]).min() > 1e-4


def constant_experts(values):
    """Experts that give the same row for every token: what is left to see is the router."""
    return {str(i): {"value": row} for i, row in enumerate(values)}


def constant(X, params):
    value = params["value"]

    def vjp(dY):
        return np.zeros_like(X), {"value": dY.sum(0)}

    return np.broadcast_to(value, (len(X), len(value))).copy(), vjp


def mixed(S, values, **options):
    """The layer as a function of the scores: its router is the identity matrix."""
    params = {"router": {"weight": np.eye(S.shape[-1])}, "experts": constant_experts(values)}
    Y, vjp = an.mixture_of_experts(S, params, S.shape[-1], expert=constant, **options)
    return Y, lambda dY: vjp(dY)[0]


@pytest.mark.claim("prop-routing-gradient", "eq:mixture", "eq:mixture-vjp")
@pytest.mark.parametrize(("top", "renormalise"), [(1, False), (2, True), (3, False)])
def test_away_from_ties_the_layer_is_differentiable(top, renormalise, rng):
    """And its gradient is that with the choice held fixed: a finite difference agrees, up to near a tie."""
    values = rng.standard_normal((E, D))
    S = rng.standard_normal((7, E))
    check_vjp(lambda S: mixed(S, values, top=top, renormalise=renormalise), S, rng=rng)
    order = np.sort(S, -1)
    gap = (order[:, -top] - order[:, -top - 1]).min()
    for size, same in ((0.49 * gap, True), (1.5 * np.ptp(S), False)):
        moved = S + size * rng.uniform(-1, 1, S.shape)
        assert (an.dispatch(moved, top) == an.dispatch(S, top)).all() == same


@pytest.mark.claim("prop-routing-gradient")
@pytest.mark.parametrize(("top", "renormalise"), [(1, True), (1, False), (2, True), (3, False)])
def test_at_a_tie_the_layer_jumps_by_the_gate_times_the_difference_of_two_experts(top, renormalise, rng):
    values = rng.standard_normal((E, D))
    S = np.sort(rng.standard_normal((1, E)))[:, ::-1].copy()
    S[0, top] = S[0, top - 1]  # experts top - 1 and top are tied for the last place
    options = {"top": top, "renormalise": renormalise}
    above, below = S.copy(), S.copy()
    above[0, top - 1] += 1e-11
    below[0, top - 1] -= 1e-11
    jump = mixed(above, values, **options)[0] - mixed(below, values, **options)[0]
    g = an.top_k_gates(S, **options)[0][0, top - 1]
    compare(jump[0], g * (values[top - 1] - values[top]), name="jump", atol=1e-9)
    assert np.abs(jump).max() > 1e-2
    values[top] = values[top - 1]  # two experts that agree: no jump
    jump = mixed(above, values, **options)[0] - mixed(below, values, **options)[0]
    assert np.abs(jump).max() < 1e-9


def covariance_form(f, P):
    return 1 + 0.5 * ((f[:, None] - f) * (P[:, None] - P)).sum()


@pytest.mark.claim("prop-load-balance", "eq:load-balance")
@settings(max_examples=25)
@given(seeds, st.integers(1, E - 1))
def test_the_balancing_loss_is_one_plus_a_covariance(seed, top):
    rng = np.random.default_rng(seed)
    S = rng.standard_normal((2, 9, E)) * rng.uniform(0.1, 4) + rng.standard_normal(E)
    f, P = highest(S, top).mean((0, 1)) / top, softmax(S).mean((0, 1))
    loss, _ = an.load_balance(S, top)
    compare(loss, E * (f * P).sum(), name="the definition", atol=1e-12)
    compare(loss, covariance_form(f, P), name="one plus a covariance", atol=1e-12)
    if ((f[:, None] - f) * (P[:, None] - P) >= 0).all():
        assert loss >= 1 - 1e-12
    same = softmax(rng.standard_normal(E))
    assert covariance_form(same, same) > 1  # f = P, not uniform
    compare(covariance_form(np.full(E, 1 / E), same), 1.0)


def half_dead(e, unused, lead=1e-4):
    """Scores of (e - unused) tokens, each with a favourite of its own that leads all unused experts by a hair."""
    used = e - unused
    S = np.full((used, e), -40.0)
    S[:, used:] = 0
    S[np.arange(used), np.arange(used)] = lead
    return S


@pytest.mark.claim("prop-load-balance")
@pytest.mark.parametrize(("e", "unused"), [(3, 1), (8, 4), (8, 3), (64, 32)])
def test_uniform_is_not_the_smallest_value(e, unused):
    """With half of the experts dead the loss is far below 1."""
    S = half_dead(e, unused)
    assert (an.dispatch(S, 1).sum(0) == 0).sum() == unused
    loss, vjp = an.load_balance(S)
    compare(loss, e / ((e - unused) * (unused + 1)), name="loss", atol=1e-3)
    assert loss < 0.76
    dS = vjp(1.0)
    assert (dS[:, e - unused :] < -1e-5).all()  # descent raises the scores of the dead
    own = np.arange(e - unused)
    assert (dS[own, own] > 1e-5).all()


@pytest.mark.claim("prop-load-balance", "eq:load-balance-vjp")
@settings(max_examples=25)
@given(seeds, st.integers(1, 3))
def test_the_gradient_vanishes_exactly_at_an_even_load(seed, top):
    """Whatever the probabilities are; and with an uneven load some token has a gradient."""
    rng = np.random.default_rng(seed)
    even = np.stack([np.roll(np.sort(rng.standard_normal(E)), i) for i in range(E)])  # each expert in each place once
    even *= rng.uniform(0.5, 3, (E, 1))
    f, P = an.dispatch(even, top).mean(0), softmax(even).mean(0)
    compare(f, np.full(E, top / E), name="load")
    assert np.ptp(P) > 1e-3
    loss, vjp = an.load_balance(even, top)
    compare(loss, 1.0, name="loss", atol=1e-12)
    compare(vjp(1.0), np.zeros_like(even), name="gradient", atol=1e-15)
    S = rng.standard_normal((7, E))  # seven tokens cannot be shared evenly among six experts
    f, P = highest(S, top).mean(0) / top, softmax(S)
    _, vjp = an.load_balance(S, top)
    fixed = E / len(S) * P * (f - (P * f).sum(-1, keepdims=True))
    compare(vjp(1.0), fixed, name="with the loads fixed", atol=1e-14)
    assert np.abs(fixed).max() > 1e-4


@pytest.mark.claim("prop-dropped-tokens", "eq:expert-capacity")
@pytest.mark.parametrize(("n", "e", "c"), [(6, 3, 2), (6, 3, 1), (6, 3, 4), (8, 2, 4), (4, 4, 1)])
def test_a_fair_router_drops_tokens(n, e, c):
    """All e^n ways in which n tokens can choose, each as probable as the other."""
    dropped = 0
    for choices in product(range(e), repeat=n):
        S = np.eye(e)[list(choices)]
        dropped += (~an.dispatch(S, 1, c).any(-1)).sum()
    share = dropped / e**n / n
    chance = [comb(n, b) * (1 / e) ** b * (1 - 1 / e) ** (n - b) for b in range(n + 1)]
    compare(share, e / n * sum((b - c) * chance[b] for b in range(c, n + 1)), name="expected", atol=1e-12)
    if c * e == n:
        assert numbers.expert_capacity(n, e, 1, 1.0) == c
        compare(share, (1 - 1 / e) * chance[c], name="with room for an even load", atol=1e-12)


@pytest.mark.claim("prop-capacity-causal")
def test_room_for_first_choices_alone_looks_back_only(rng):
    """With one expert for each token a row depends on earlier rows; with two it may depend on later ones."""
    params = shapes.random_tree(numbers.mixture_shapes(D, 7, E), rng, 0.6)
    X = rng.standard_normal((2, 12, D))
    later = X.copy()
    later[:, 8:] = rng.standard_normal((2, 4, D))
    changed = {}
    for top in (1, 2):
        run = partial(an.mixture_of_experts, params=params, experts=E, top=top, capacity=2, renormalise=False)
        changed[top] = np.abs(run(later)[0] - run(X)[0]).max(-1)
        alone = run(X[:1])[0]
        compare(run(X)[0][:1], alone, name="other texts do not matter")
        free = partial(an.mixture_of_experts, params=params, experts=E, top=top)
        assert np.abs(free(later)[0] - free(X)[0])[:, :8].max() < 1e-12
    assert changed[1][:, :8].max() < 1e-12 and changed[1][:, 8:].max() > 1e-2
    assert changed[2][:, :8].max() > 1e-3
    S = np.array([[2.0, 1, 0], [0, 2, 1]])  # two tokens, room for one: the second takes the first one's second choice
    first = [an.dispatch(S[:n], 2, 1)[0].tolist() for n in (1, 2)]
    assert first == [[True, True, False], [True, False, False]]
