"""The page on universal approximation: contexts, tables, stars, bits, and what lies outside the box."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import layouts
from attnmath import universal as U
from attnmath.check import compare
from attnmath.universal import ANSWER, CONTEXT, pair, run, shallow, star


def waves(rng, n):
    """A random smooth function of n numbers with n answers, its bound, and a bound of its modulus of continuity."""
    A, phase = rng.normal(0, 2, (n, n)), rng.uniform(0, 6, n)
    slope = abs(A).sum(1).max()
    return lambda *x: tuple(np.sin(np.stack(x, -1) @ a + b) for a, b in zip(A, phase, strict=True)), 1.0, slope


def in_band(X, cells, band):
    """Whether some coordinate lies in a band below an inner edge."""
    place = (X * cells) % 1
    return ((place > 1 - band) & (X * cells < cells - 1)).any(-1)


@pytest.mark.claim("lem-pair-context", "def-contextual-mapping", "eq:universal-context")
@pytest.mark.parametrize("cells", [2, 3, 7, 12])
def test_two_heads_number_all_contexts(cells):
    stack = shallow(pair(lambda x, y: (x, y), cells))
    X = U.centres(2, cells)
    hard = run(stack, X, layers=stack.ready, attend=an.hard_attention)[..., CONTEXT]
    compare(np.sort(hard.ravel()), np.arange(2 * cells**2), name="each number once", atol=1e-9)
    for scale in (1.0, 2.0, max(1.0, np.log(4 * (cells - 1)))):
        stack = shallow(pair(lambda x, y: (x, y), cells, scale=scale))
        off = abs(run(stack, X, layers=stack.ready)[..., CONTEXT] - hard).max()
        assert 0.2 * (cells - 1) * np.exp(-scale) < off < (cells - 1) * np.exp(-scale), "of the order of the bound"
    assert off < 0.25


@pytest.mark.claim("lem-pair-context")
def test_a_scale_that_is_too_small_confuses_contexts():
    flat = shallow(pair(lambda x, y: (x, y), 8, scale=0.3))
    assert U.distinct(flat, 2, 8) < 128 == U.distinct(shallow(pair(lambda x, y: (x, y), 8)), 2, 8)


@pytest.mark.claim("thm-universal-pair", "pf:universal-depth", "pf:universal-error", "eq:universal-stack")
@pytest.mark.parametrize("cells", [2, 5, 9])
def test_the_error_outside_the_bands_is_that_of_a_cell(cells, rng):
    f, bound, slope = waves(rng, 2)
    stack = pair(f, cells, band=0.05)
    assert len(stack.layers) == 2 * cells**2 + 2 * cells - 1 and stack.width == 4 and stack.heads == 2
    kinds = [kind for kind, _ in stack.layers]
    assert kinds.count("attention") == 1
    assert max(p["up"]["weight"].shape[1] for kind, p in stack.layers if kind == "feed_forward") == 2
    X = np.concatenate([rng.random((400, 2)), [[0, 0], [1, 1], [0, 1], [1, 0]]])
    Y, right = run(stack, X)[..., ANSWER], np.stack(f(*X.T), -1)
    bad = in_band(X, cells, 0.05)
    middle = (np.minimum((X * cells).astype(int), cells - 1) + 0.5) / cells
    compare(Y[~bad], np.stack(f(*middle.T), -1)[~bad], name="the middle of the cell", atol=1e-8)
    assert abs(Y - right)[~bad].max() <= slope / (2 * cells) and 0 < bad.mean() < 0.2
    assert abs(Y).max() <= bound + 1e-9
    for p in (1, 2, 5):
        assert (abs(Y - right) ** p).mean() <= (slope / (2 * cells)) ** p + bad.mean() * (2 * bound) ** p


@pytest.mark.claim("thm-universal-pair")
def test_answers_in_the_bands_stay_between_the_values_of_the_table(rng):
    f, bound, _ = waves(rng, 2)
    flat = shallow(pair(f, 6, band=0.9))
    Y = run(flat, rng.random((3000, 2)))[..., ANSWER]
    values = np.stack(f(*U.centres(2, 6).T))
    assert values.min() - 1e-9 <= Y.min() and Y.max() <= values.max() + 1e-9 and abs(Y).max() <= bound


def blind(n):
    """A star whose other tokens do not see themselves: the least that the theorem allows."""
    mask = U.star_mask(n)
    mask[1:, 1:] = False
    return mask


PATTERNS = {
    "star": U.star_mask,
    "star without loops": blind,
    "star and window": lambda n: layouts.longformer(1, 1).mask(n),
    "random blocks": lambda n: layouts.bigbird(1, width=0, random=1).mask(n),
    "full": lambda n: np.ones((n, n), bool),
}


def test_the_patterns_differ():
    masks = {name: pattern(5) for name, pattern in PATTERNS.items()}
    assert len({mask.tobytes() for mask in masks.values()}) == len(PATTERNS)
    assert len(set(masks["star and window"].sum(1))) == 3, "three different numbers of keys"


@pytest.mark.claim("lem-star")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_hub_collects_and_gives_back(n, pattern, rng):
    """The three layers alone, on any numbers, against their sum; without the flag the others' noise would come back."""
    mask = PATTERNS[pattern](n)
    stack = star(lambda *x: x, n, 2, mask=mask)
    through = [layer for layer in stack.layers[: stack.ready]][-3:]
    assert [kind for kind, _ in through] == ["attention", "feed_forward", "attention"]
    Z = np.zeros((40, n, stack.width))
    Z[..., 1] = rng.uniform(0, 2**n / n, (40, n))
    Z[:, 1:, 2] = 1.0
    for kind, params in through:
        if kind == "attention":
            assert not params["query"]["weight"].any() and "bias" not in params["query"], "equal weights"
            F, _ = an.multi_head_attention(Z, Z, Z, params, 1, mask)
        else:
            F, _ = an.feed_forward(Z, params, an.relu)
        Z = Z + F
    compare(Z[..., CONTEXT], n / mask.sum(1) * Z[..., 1].sum(-1)[:, None], name="sums", atol=1e-9)


@pytest.mark.claim("thm-universal-star", "eq:universal-star", "def-contextual-mapping")
@pytest.mark.parametrize(
    ("pattern", "n", "cells", "d"),
    [
        ("star", 2, 5, 1),
        ("star", 4, 2, 1),
        ("star", 3, 2, 2),
        ("star without loops", 3, 3, 1),
        ("star and window", 4, 2, 1),
        ("star and window", 4, 2, 2),
        ("random blocks", 5, 2, 1),
        ("full", 3, 3, 1),
        ("full", 2, 2, 3),
    ],
)
def test_a_pattern_with_a_star_has_the_same_accuracy(pattern, n, cells, d, rng):
    g, bound, slope = waves(rng, n * d)
    mask = PATTERNS[pattern](n)

    def f(*tokens):
        """The same function of n d numbers, cut into tokens."""
        answers = np.stack(g(*np.stack(tokens, -1 if d == 1 else -2).reshape(-1, n * d).T), -1)
        return tuple(answers.reshape(-1, n).T if d == 1 else answers.reshape(-1, n, d).swapaxes(0, 1))

    stack = star(f, n, cells, mask=mask, numbers=d, band=0.05)
    assert len(stack.layers) == n * cells ** (n * d) + d * (n * cells - 1) + 2 and stack.width == 2 * d + 4
    assert d > 1 or len(stack.layers) == n * cells**n + n * cells + 1
    assert (stack.mask == mask).all() and [kind for kind, _ in stack.layers].count("attention") == 2
    assert max(p["up"]["weight"].shape[1] for kind, p in stack.layers if kind == "feed_forward") == 2
    flat, K = shallow(stack), cells ** (n * d)
    centres = U.centres(n * d, cells)
    numbers = run(flat, centres if d == 1 else centres.reshape(-1, n, d), layers=flat.ready)[..., stack.context]
    right = n / mask.sum(1) * np.arange(K)[:, None] + np.arange(n) * n * K
    compare(numbers, right, name="the context numbers", atol=1e-7)
    assert np.diff(np.sort(numbers.ravel())).min() > 1 - 1e-7, "at least 1 apart"
    assert U.distinct(flat, n, cells) == n * K
    flags = run(flat, np.full((n,) if d == 1 else (n, d), 0.3), layers=d)[:, d + 1]
    compare(flags, np.minimum(np.arange(n), 1.0), name="flags", atol=1e-9)
    X = rng.random((100, n * d))
    Y = run(stack, X) if d == 1 else run(flat, X.reshape(-1, n, d))  # merged layers are the same function
    Y = Y[..., stack.answers].reshape(-1, n * d)
    right, bad = np.stack(g(*X.T), -1), in_band(X, cells, 0.05)
    middle = (np.minimum((X * cells).astype(int), cells - 1) + 0.5) / cells
    compare(Y[~bad], np.stack(g(*middle.T), -1)[~bad], name="the middle of the cell", atol=1e-8)
    assert abs(Y - right)[~bad].max() <= slope / (2 * cells) and abs(Y).max() <= bound + 1e-9
    assert 0 < bad.mean() < 0.05 * n * d + 0.1
    for p in (1, 2, 5):
        once = (slope / (2 * cells)) ** p + bad.mean() * (2 * bound) ** p
        assert (abs(Y - right) ** p).sum(-1).mean() <= n * d * once


@pytest.mark.claim("thm-universal-star")
@pytest.mark.parametrize("pattern", ["star and window", "full"])
def test_the_distance_in_a_mean_of_powers_goes_to_zero(pattern, rng):
    """More cells and narrower bands: the distance in L^2 falls below that of the best constants."""
    g, _, _ = waves(rng, 4)
    X = rng.random((300, 4))
    right = np.stack(g(*X.T), -1)
    mask, far = PATTERNS[pattern](2), []

    def f(x, y):
        a, b, c, e = g(*x.T, *y.T)
        return np.stack([a, b], -1), np.stack([c, e], -1)

    for cells in (2, 4, 8):
        flat = shallow(star(f, 2, cells, mask=mask, numbers=2, band=0.1 / cells**2))
        Y = run(flat, X.reshape(-1, 2, 2))[..., flat.answers].reshape(-1, 4)
        far.append(((Y - right) ** 2).sum(-1).mean() ** 0.5)
    assert far[1] < 0.75 * far[0] and far[2] < 0.75 * far[1] and far[2] < 0.4 * (right.var(0).sum()) ** 0.5


@pytest.mark.claim("thm-universal-star")
def test_the_star_runs_in_the_other_world_and_on_tiles():
    """The same weights in PyTorch's attention, and in attention that computes the pattern's tiles alone."""
    layout = layouts.longformer(1, 1)
    n = 5
    f, mask = (lambda *x: [sum(x) / n + i * x[0] for i in range(n)]), layout.mask(n)
    stack = shallow(star(f, n, 3, mask=mask, band=0.01))
    X = np.random.default_rng(0).random((20, n))
    right = run(stack, X)
    Z = run(stack, X, layers=0)
    W = torch.tensor(Z)
    for kind, params in stack.layers:
        leaves = {name: {key: torch.tensor(a) for key, a in part.items()} for name, part in params.items()}
        if kind == "attention":
            tiles = partial(an.block_sparse_attention, layout=layout, size=2)
            Z = Z + an.multi_head_attention(Z, Z, Z, params, 1, attend=tiles)[0]
            W = W + at.multi_head_attention(W, W, W, leaves, 1, torch.tensor(stack.mask))
        else:
            Z = Z + an.feed_forward(Z, params, an.relu)[0]
            W = W + at.feed_forward(W, leaves, torch.relu)
    compare(Z, right, name="tiles", rtol=1e-9, atol=1e-8)
    compare(W.numpy(), right, name="torch", rtol=1e-9, atol=1e-8)


@pytest.mark.claim("prop-universal-precision", "pf:universal-bits")
@pytest.mark.parametrize("bits", [5, 6, 8, 9])
def test_contexts_collide_when_the_bits_are_used_up(bits):
    last = int(((2**bits + 1) / 2) ** 0.5)
    for cells, fits in ((last, True), (last + 1, False)):
        flat = shallow(pair(lambda x, y: (x, y), cells))
        kept = U.distinct(flat, 2, cells, store=partial(U.rounded, bits=bits))
        assert (kept == 2 * cells**2) is fits
    assert 2 * last**2 - 1 <= 2**bits < 2 * (last + 1) ** 2 - 1
    assert [int(((2**b + 1) / 2) ** 0.5) for b in (8, 11, 24)] == [11, 32, 2896], "as the page says"


@pytest.mark.claim("prop-universal-precision")
def test_inputs_that_are_stored_alike_have_one_answer():
    store = partial(U.rounded, bits=6)
    flat = shallow(pair(lambda x, y: (200 * x, y), 40))
    X = np.array([[0.501, 0.2], [0.507, 0.2]])
    Y = run(flat, X, store=store)[:, 0, ANSWER]
    assert Y[0] == Y[1] and abs(Y[:, None] - 200 * X[:, 0]).max() >= 0.5 * 200 * 0.006


@pytest.mark.claim("prop-universal-count")
@pytest.mark.parametrize(("n", "cells"), [(1, 5), (2, 3)])
def test_tents_are_as_many_as_sets_of_cells(n, cells, rng):
    """They meet the hypothesis, and any two are 1/(2M) apart at a middle."""
    middles = U.centres(n, cells)

    def tents(chosen, X):
        far = abs(X[:, None] - middles[chosen]).max(-1)
        return np.maximum(0, 1 / (2 * cells) - far).sum(-1)

    X, Y = rng.random((2, 4000, n))
    Y = np.where(rng.random((4000, 1)) < 0.5, Y, np.clip(X + rng.normal(0, 0.05, X.shape), 0, 1))
    seen = set()
    for number in range(2 ** len(middles)):
        chosen = [j for j in range(len(middles)) if number >> j & 1]
        at_middles = tents(chosen, middles)
        seen.add(tuple(np.rint(at_middles * 2 * cells).astype(int)))
        compare(at_middles * 2 * cells, np.isin(np.arange(len(middles)), chosen).astype(float), atol=1e-9)
        if number % 37 == 0:
            assert (abs(tents(chosen, X) - tents(chosen, Y)) <= abs(X - Y).max(-1) + 1e-12).all()
    assert len(seen) == 2**cells**n


@pytest.mark.claim("prop-linear-growth")
@pytest.mark.parametrize("attend", [an.attention, an.hard_attention])
def test_a_stack_grows_at_most_linearly(attend, rng):
    """Random stacks: answers divided by inputs stay bounded while inputs grow a millionfold; squares do not."""
    width, n = 5, 3
    parts = ("query", "key", "value", "output")

    def affine(a, b):
        return {"weight": rng.normal(0, 0.5, (a, b)), "bias": rng.normal(0, 0.5, b)}

    layers = []
    for _ in range(3):
        layers.append(("attention", {name: affine(width, width) for name in parts}))
        layers.append(("feed_forward", {"up": affine(width, 7), "down": affine(7, width)}))
    stack = U.Stack(n, tuple(layers), 0, width, 1, U.star_mask(n))
    X = rng.normal(0, 1, (50, n))
    sizes = 10.0 ** np.arange(7)
    ratio = [abs(run(stack, t * X, attend=attend)[..., ANSWER]).max(-1) / (1 + t * abs(X).max(-1)) for t in sizes]
    bound = growth(stack)
    assert np.max(ratio) <= bound and np.max(ratio) > 0
    assert np.max(ratio[-1]) < 3 * np.max(ratio[2]), "no power of the input higher than the first"


def growth(stack):
    """C of the proposition, layer by layer, with |Z| the largest entry."""
    size, shift = 1.0, 2.0 * (stack.mask.shape[0] - 1)  # |Z| <= size |x| + shift

    def after(affine, a, b):
        norm = abs(affine["weight"]).sum(0).max()
        return norm * a, norm * b + abs(affine["bias"]).max()

    for kind, params in stack.layers:
        first, second = ("value", "output") if kind == "attention" else ("up", "down")
        a, b = after(params[second], *after(params[first], size, shift))
        size, shift = size + a, shift + b
    return max(size, shift)
