"""The page on what one layer cannot do: bits of a summary, two layers that compose, one token of many, parity."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax

import attnmath.numpy as an
from attnmath import limits
from attnmath.check import compare

# composition ---------------------------------------------------------------------------------------------------------


def decodable(messages, f_tables, x, g_tables):
    """Whether somebody who knows f and the message about g can always say g(f(x))."""
    told = {}
    for g, message in zip(g_tables, messages, strict=True):
        for f in f_tables:
            if told.setdefault((message, f), g[f[x]]) != g[f[x]]:
                return False
    return True


@pytest.mark.claim("thm-one-layer-bits", "eq:table-bits")
def test_no_way_to_summarise_tables_in_fewer_messages_answers_all_questions():
    """All 3^4 ways to tell four tables by three messages, and one way by four."""
    tables = list(itertools.product(range(2), repeat=2))
    assert limits.table_bits(2) == math.log2(len(tables)) == 2
    for messages in itertools.product(range(3), repeat=4):
        for x in range(2):
            assert not decodable(messages, tables, x, tables)
    assert decodable(range(4), tables, 0, tables)


@pytest.mark.claim("thm-one-layer-bits", "eq:summary-bits")
@pytest.mark.parametrize(("n", "precision", "enough"), [(3, 1, False), (3, 2, True), (4, 1, False), (4, 2, True)])
def test_one_wide_head_passes_on_a_whole_table_and_one_bit_less_is_too_little(n, precision, enough):
    """The layer of the last question of the page: even weights on g, and value j of a token says what row j holds."""
    tables, messages = list(itertools.product(range(n), repeat=n)), []
    for g in tables:
        summary = limits.summarise(np.zeros((1, n)), n * np.diag(np.array(g) - (n - 1) / 2)[None])
        message = limits.send(summary, precision, (10.0, (n - 1) / 2))
        messages.append(tuple(message.codes[0, 1:].tolist()))
    have, need = limits.summary_bits(1, n - 1, precision), limits.table_bits(n)  # L is the same for all tables
    some = [tuple(np.full(n, i)) for i in range(n)]
    assert decodable(messages, some, 0, tables) == enough == (have >= need)


@pytest.mark.claim("thm-one-layer-bits", "eq:summary", "eq:summary-merge")
def test_the_last_row_is_a_function_of_the_summary_and_of_what_the_other_knows(rng):
    """Any scores and values: exchanging g changes nothing beyond its summary, for each f."""
    n, h, v = 5, 3, 2
    word, score, value = (
        rng.standard_normal((n, 4)),
        rng.standard_normal((h, 2 * n + 1, 4)),
        rng.standard_normal((4, v)),
    )
    g, x = rng.integers(0, n, n), 2

    def parts(tokens, places):
        return np.einsum("hjd,jd->hj", score[:, places], word[tokens]), np.tile(
            np.tanh(word[tokens]) @ value, (h, 1, 1)
        )

    summary = limits.summarise(*parts(g, np.arange(n, 2 * n)))
    for _ in range(20):
        f = rng.integers(0, n, n)
        known = limits.summarise(*parts(np.append(f, x), np.append(np.arange(n), 2 * n)))
        S, V = parts(np.concatenate([f, g, [x]]), np.arange(2 * n + 1))
        compare(limits.merge(summary, known)[1], (softmax(S, -1)[..., None] * V).sum(-2), atol=1e-12)


@pytest.mark.claim("lem-rounded-summary", "eq:rounded-summary")
@pytest.mark.parametrize("precision", [2, 4, 9])
def test_rounding_a_summary_moves_the_output_by_no_more_than_the_bound(precision, rng):
    ranges, worst = (6.0, 2.0), 0.0
    bound = limits.rounding_bound(precision, ranges)
    grid = 2 / (2**precision - 1)
    for _ in range(300):
        # Alice's numbers in the middle between two of the grid, Bob's equal in weight and opposite in value
        L = (rng.integers(0, 2**precision - 1, 8) + 0.5) * grid * ranges[0] - ranges[0]
        o = (rng.integers(0, 2**precision - 1, (8, 1)) + 0.5) * grid * ranges[1] - ranges[1]
        other = L + rng.normal(0, 0.3, 8), ranges[1] * np.sign(-o)
        rounded = limits.send((L, o), precision, ranges).open()
        worst = max(worst, abs(limits.merge(rounded, other)[1] - limits.merge((L, o), other)[1]).max())
    assert 0.4 * bound < worst <= bound


@pytest.mark.claim("cor-one-layer-margin", "eq:margin-bits")
def test_a_layer_with_a_lead_is_one_of_few_bits():
    """One wide head in exact arithmetic: rounded to the corollary's bits it still gives every answer."""
    n, logit = 3, 1.0
    tables = list(itertools.product(range(n), repeat=n))
    ranges = (math.log(n), 1.0)
    lead = 2 / (n - 1) / 2  # the answers are (2 g - n + 1) / (n - 1), read by distance; half of the least gap
    precision = limits.margin_bits(lead, 2 * logit, ranges)
    assert limits.rounding_bound(precision, ranges) * 2 * logit < lead
    assert limits.rounding_bound(precision - 1, ranges) * 2 * logit >= lead
    assert limits.summary_bits(1, n, precision) >= limits.table_bits(n)
    for g in tables:
        V = n * np.diag((2 * np.array(g, float) - n + 1) / (n - 1))
        message = limits.send(limits.summarise(np.zeros((1, n)), V[None]), precision, ranges)
        found = (message.open()[1][0] * (n - 1) + n - 1) / 2
        assert np.rint(found).astype(int).tolist() == list(g)


@pytest.mark.claim("prop-two-layers", "eq:composing-layers", "eq:composing-sharpness")
@pytest.mark.parametrize("n", [2, 3, 4, 7, 20])
def test_two_layers_answer_every_question_with_the_promised_lead(n, rng):
    if n <= 3:
        tables = list(itertools.product(range(n), repeat=n))
        ids = np.array([[*f, *g, x] for f in tables for g in tables for x in range(n)])
    else:
        ids = rng.integers(0, n, (300, 2 * n + 1))
    Z, _ = an.attention_only(ids, limits.composing_layers(n), heads=1)
    rows = np.arange(len(ids))
    want = ids[rows, n + ids[rows, ids[:, -1]]]
    delta = min(1.0, 1 - math.cos(2 * math.pi / n))
    Z = Z[:, -1].copy()
    right = Z[rows, want]
    Z[rows, want] = -np.inf
    assert 0.98 * delta <= (right - Z.max(-1)).min() <= 1 - math.cos(2 * math.pi / n) + 1e-12
    assert delta >= min(1, 8 / n**2) - 1e-12


def test_scores_that_are_too_small_do_not_compose(rng):
    ids, rows = rng.integers(0, 20, (300, 41)), np.arange(300)
    Z, _ = an.attention_only(ids, limits.composing_layers(20, limits.sharpness(20) / 20), heads=1)
    assert (Z[:, -1].argmax(-1) == ids[rows, 20 + ids[rows, ids[:, -1]]]).mean() < 0.9


# one token of many ---------------------------------------------------------------------------------------------------


def run(X, layers, slope):
    """Layers as in pf:plain-layer, with heads (A, B) and a network that stretches by ``slope`` and bends."""
    for heads in layers:
        X = X + sum(softmax(X @ A @ X.T, -1) @ X @ B for A, B in heads)
        X = slope * np.where(X > 0, X, -0.5 * X)
    return X


def with_norm(rng, d, size):
    return size * np.linalg.qr(rng.standard_normal((d, d)))[0]


@pytest.mark.claim("thm-one-token", "eq:sensitivity-bound", "pf:plain-layer")
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("slope", [0.7, 1.0])
def test_one_token_moves_the_others_by_no_more_than_the_bound(layers, slope, rng):
    a, b, radius, heads = 0.3, 0.8, 0.6, 2
    for n in (2, 5, 30):
        bound = limits.sensitivity_bound(n, radius=radius, scores=a, values=b, layers=layers, slope=slope)
        for _ in range(20):
            model = [
                [(with_norm(rng, 4, a), with_norm(rng, 4, b / heads)) for _ in range(heads)] for _ in range(layers)
            ]
            X = rng.standard_normal((n, 4))
            X *= radius / np.linalg.norm(X, axis=-1, keepdims=True)
            Y = X.copy()
            Y[-1] = -X[-1]
            moved = np.linalg.norm(run(X, model, slope) - run(Y, model, slope), axis=-1)
            assert moved[:-1].max() <= bound
            assert moved[-1] > 0


@pytest.mark.claim("thm-one-token")
@pytest.mark.parametrize("a", [0.5, 1.0, 1.5])
def test_half_of_the_bound_of_one_layer_is_reached(a):
    n = 20_000
    X = np.tile([-1.0, 0.0], (n, 1))
    X[[0, -1]] = [1.0, 0.0]
    Y = X.copy()
    Y[-1] = [-1.0, 0.0]
    out = [(softmax(a * Z[0] @ Z.T) @ Z) for Z in (X, Y)]
    ratio = np.linalg.norm(out[0] - out[1]) / limits.sensitivity_bound(n, radius=1.0, scores=a, values=1.0)
    assert 0.49 < ratio < 0.5 * (1 + 1e-3)


@pytest.mark.claim("thm-one-token")
def test_what_the_first_layer_passes_on_is_within_the_second_ones_factor(rng):
    """The term with delta alone: all rows but one move a little, and the exchanged row has little weight."""
    a, b, d, n = 0.4, 1.0, 3, 400
    for _ in range(20):
        A, B = with_norm(rng, d, a), with_norm(rng, d, b)
        X = rng.standard_normal((n, d))
        X /= np.linalg.norm(X, axis=-1, keepdims=True)
        step = rng.standard_normal(d)  # all rows in one direction, which is the worst for the values
        step *= 1e-5 / np.linalg.norm(step)
        moved = np.linalg.norm(run(X + step, [[(A, B)]], 1.0) - run(X, [[(A, B)]], 1.0), axis=-1).max()
        assert moved <= 1e-5 * (1 + b + 2 * a * b) * (1 + 1e-3)


def passed_on(a, b, R, delta=1e-6, n=2000):
    """How far row 0 moves if it and its keys move by delta, in the worst way that we know, over delta.

    Row 0 stands at R u, half of the keys at R v and half at -R v. Row 0 moves along p and the keys along u, so that all
    scores change by 2 a R delta; the values carry v to p, so that this adds to what row 0 hands on itself.
    """
    u, v, p = np.eye(3)
    A, B = a * (np.outer(p, v) + np.outer(u, u) + np.outer(v, p)), b * (np.outer(v, p) + np.outer(p, v))
    sign = np.resize([1.0, -1.0], n)[:, None]
    X = np.concatenate([[R * u], R * sign * v])
    move = delta * np.concatenate([[p], sign * u])

    def row(X):
        w = softmax(X[0] @ A @ X[1:].T)
        return X[0] + w @ X[1:] @ B

    assert np.linalg.norm(A, 2) <= a * (1 + 1e-9) and np.linalg.norm(B, 2) <= b * (1 + 1e-9)
    return np.linalg.norm(row(X + move) - row(X - move)) / (2 * delta)


@pytest.mark.claim("thm-one-token", "eq:sensitivity-bound")
@pytest.mark.parametrize(("a", "b", "R", "c"), [(1.0, 1.0, 3.0, 1.0), (2.0, 0.5, 4.0, 0.9), (0.01, 3.0, 0.5, 1.2)])
def test_every_term_of_a_second_layer_is_needed(a, b, R, c):
    """What a layer passes on is nearly 1 + 2 a b R^2 or exactly 1 + b, and equal rows become 1 + b times as long."""
    n = 10**9
    one = limits.sensitivity_bound(n, radius=R, scores=a, values=b, slope=c)
    two = limits.sensitivity_bound(n, radius=R, scores=a, values=b, slope=c, layers=2)
    X = np.tile([R, 0.0], (5, 1))
    longer = c * np.linalg.norm(X + softmax(X @ (a * np.eye(2)) @ X.T, -1) @ X @ (b * np.eye(2)), axis=-1).max()
    alone = limits.sensitivity_bound(n, radius=longer, scores=a, values=b, slope=c)
    factor = max(passed_on(a, b, longer), 1 + b)  # 1 + b: all rows move alike, and the values carry it on
    most = 1 + b + 2 * a * b * longer**2
    assert 0.6 * most < factor <= most * (1 + 1e-6)
    assert two >= (alone + c * factor * one) * (1 - 1e-6)
    assert two <= (alone + c * most * one) * (1 + 1e-9)


@pytest.mark.claim("thm-one-token")
def test_when_the_bound_of_two_layers_begins_to_say_something():
    """The page: 24,144 / n with all constants 1, which is less than 8 from 3,018 rows on."""
    bound = [limits.sensitivity_bound(n, radius=1, scores=1, values=1, layers=2) for n in (1, 3017, 3018)]
    assert round(bound[0]) == 24_143 and bound[1] > 8 > bound[2]


@pytest.mark.claim("prop-coin", "eq:coin-floor")
@pytest.mark.parametrize("D", [0.0, 0.3, 2.0, 8.0])
def test_no_logit_that_moves_little_beats_the_floor(D, rng):
    bits = np.array(list(itertools.product((0, 1), repeat=6)))
    odd = bits.sum(-1) % 2 == 1
    floor = limits.coin_floor(D)
    assert floor >= math.log(2) - D / 4

    def loss(z):
        return np.log1p(np.exp(np.where(odd, -z, z))).mean()

    compare(loss(np.where(odd, D / 2, -D / 2)), floor, atol=1e-12)  # the floor is reached
    for _ in range(200):
        base = rng.normal(0, 3, 32)  # the same for both texts of a pair, which differ in their first bit
        z = np.concatenate([base, base + rng.uniform(-D, D, 32)])
        assert loss(z) >= floor - 1e-12


@pytest.mark.claim("prop-parity-by-hand", "eq:faint-parity", "eq:sharp-parity")
def test_both_parities_have_the_right_sign_on_every_text():
    for n in range(1, 11):
        bits = np.array(list(itertools.product((0, 1), repeat=n)))
        sign = (-1.0) ** bits.sum(-1)
        compare(sign * limits.faint_parity(bits), np.full(len(bits), (n + 1.0) ** -2), atol=1e-15)
        for beta in (1.62, 3.0, 6.0):
            assert (sign * limits.sharp_parity(bits, beta)).min() >= 1 - 4 / (math.exp(beta) - 1) > 0
    assert (sign * limits.sharp_parity(bits, 0.2)).min() < 0.1


@pytest.mark.claim("prop-parity-by-hand")
def test_the_sharp_parity_is_attention_whose_scores_are_a_product(rng):
    """Queries (2 beta m, -beta) and keys (i, i^2), as the proof has them."""
    bits = rng.integers(0, 2, 30)
    m, i = bits.sum(), np.arange(31.0)
    O, _ = an.attention(np.array([[6.0 * m, -3.0]]), np.stack([i, i * i], -1), ((-1) ** i)[:, None], scale=1.0)
    compare(O[0, 0], limits.sharp_parity(bits, 3.0), atol=1e-12)
