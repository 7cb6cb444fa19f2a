"""Attention maps: the measures on maps made by hand, the bounds proved in Chapter 3, and what its page measured.

The facts about MiniLM are tested on fewer sentences than the page uses.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath import corpus, minilm, patterns
from attnmath.check import check_vjp, compare

seeds, sizes = st.integers(0, 2**20), st.integers(1, 9)


few = settings(max_examples=25)


def random_map(seed, *shape, spread=3.0):
    S = spread * np.random.default_rng(seed).standard_normal(shape)
    return an.softmax(S)[0]


# Rows 1, 2 look at key 1; every entry that a wrong sign, a wrong axis or an off-by-one would read is different.
HAND = np.array([[0.5, 0.25, 0.125, 0.125], [0.75, 0.0, 0.25, 0.0], [0.0, 0.375, 0.0, 0.625], [0.0, 0.0, 1.0, 0.0]])


@pytest.mark.claim("eq:offset-score")
def test_offset_score_by_hand():
    wanted = {
        -3: 0.0,
        -2: 0.0,
        -1: (0.75 + 0.375 + 1.0) / 3,
        0: 0.5 / 4,
        1: (0.25 + 0.25 + 0.625) / 3,
        2: 0.125 / 2,
        3: 0.125,
    }
    for offset, want in wanted.items():
        compare(patterns.offset_score(HAND, offset), want, name=f"offset {offset}")
    compare(patterns.offset_score(HAND.T, 1), wanted[-1], name="the transpose looks the other way")
    compare(patterns.offset_score(HAND[:2], 2), (0.125 + 0.0) / 2, name="fewer queries than keys")
    with pytest.raises(ValueError, match="no query"):
        patterns.offset_score(HAND, 4)


@pytest.mark.claim("eq:local-score", "eq:column-score", "eq:broadcast-score", "eq:entropy")
def test_the_other_scores_by_hand():
    compare(patterns.local_score(HAND, 0), 0.125, name="window of 0")
    compare(patterns.local_score(HAND, 1), (0.75 + 1.0 + 1.0 + 1.0) / 4, name="window of 1")
    compare(patterns.local_score(HAND, 2), (0.875 + 1.0 + 1.0 + 1.0) / 4, name="window of 2")
    compare(patterns.local_score(HAND, 3), 1.0, name="the whole row")
    compare(patterns.column_score(HAND, np.array([True, False, True, False])), (1.25 + 1.375) / 4, name="two columns")
    compare(patterns.broadcast_score(HAND), 1.375 / 4, name="the third key receives most")
    two = np.log(2)
    by_hand = [1.75 * two, 0.75 * np.log(4 / 3) + 0.5 * two, -0.375 * np.log(0.375) - 0.625 * np.log(0.625), 0.0]
    compare(patterns.entropy(HAND), by_hand, name="entropy in nats")


@few
@given(seeds, st.integers(1, 4), sizes)
def test_a_stack_of_heads_is_scored_head_by_head(seed, heads, n):
    P = random_map(seed, 2, heads, n, n)
    columns = np.random.default_rng(seed).random(n) < 0.5
    for score in (
        lambda P: patterns.offset_score(P, 0),
        lambda P: patterns.local_score(P, 1),
        lambda P: patterns.column_score(P, columns),
        patterns.broadcast_score,
        patterns.entropy,
    ):
        compare(score(P), np.array([[score(Q) for Q in row] for row in P]), name="stacked")


@few
@given(seeds, st.integers(2, 9))
def test_what_a_permutation_of_the_tokens_changes(seed, n):
    """A relabelling of queries and keys together keeps entropies, columns and broadcast; reversal flips the offsets."""
    P, order = random_map(seed, n, n), np.random.default_rng(seed).permutation(n)
    Q, columns = P[order][:, order], np.arange(n) < 1
    compare(patterns.entropy(Q), patterns.entropy(P)[order], name="entropy")
    compare(patterns.broadcast_score(Q), patterns.broadcast_score(P), name="broadcast")
    compare(patterns.column_score(Q, columns[order]), patterns.column_score(P, columns), name="column")
    compare(patterns.offset_score(P[::-1, ::-1], 1), patterns.offset_score(P, -1), name="reversal")
    compare(patterns.local_score(P[::-1, ::-1], 1), patterns.local_score(P, 1), name="reversal")


@pytest.mark.claim("lem-uniform-patterns")
@few
@given(seeds, st.integers(1, 30), st.data())
def test_what_indifference_scores(seed, n, data):
    w, offset = data.draw(st.integers(0, n - 1)), data.draw(st.integers(1 - n, n - 1))
    U, columns = np.full((n, n), 1 / n), np.random.default_rng(seed).random(n) < 0.5
    compare(patterns.offset_score(U, offset), 1 / n, name="offset")
    compare(patterns.local_score(U, w), ((2 * w + 1) * n - w * (w + 1)) / n**2, name="local")
    compare(patterns.column_score(U, columns), columns.sum() / n, name="column")
    compare(patterns.broadcast_score(U), 1 / n, name="broadcast")
    P = random_map(seed, n, n)
    assert 1 / n - 1e-12 <= patterns.broadcast_score(P) <= 1 + 1e-12
    assert patterns.column_score(P, columns) <= columns.sum() * patterns.broadcast_score(P) + 1e-12


@pytest.mark.claim("eq:gaussian-window")
@few
@given(st.integers(1, 12), st.floats(0.1, 50))
def test_the_gaussian_window_is_a_softmax_of_rank_two(n, sigma):
    """Its shape by ratios, its limits, and the solution of exr-gaussian-two-coordinates."""
    G, i = patterns.gaussian_window(n, sigma), np.arange(n, dtype=float)
    compare(G.sum(-1), np.ones(n), name="rows")
    want = np.exp(-((i[:, None] - i) ** 2) / (2 * sigma**2))
    compare(G / np.diag(G)[:, None], want, name="ratio to the centre")
    Q = np.sqrt(2) / sigma**2 * np.stack([i, np.full(n, -0.5)], -1)
    compare(an.attention_weights(Q, np.stack([i, i**2], -1))[0], G, name="two coordinates", atol=1e-9)
    compare(patterns.gaussian_window(n, 1e-2), np.eye(n), name="narrow")
    compare(patterns.gaussian_window(n, 1e6), np.full((n, n), 1 / n), name="wide", atol=1e-9)


@pytest.mark.claim("lem-gaussian-previous")
@few
@given(st.integers(3, 40), st.floats(0.05, 100))
def test_a_centred_window_cannot_look_back(n, sigma):
    G = patterns.gaussian_window(n, sigma)
    distance = np.array([np.abs(G[i] - np.eye(n)[i - 1]).sum() / 2 for i in range(1, n - 1)])
    bound = 2 / 3
    assert (distance > bound).all()
    compare(1 - patterns.gaussian_window(3, 1e4)[1, 0], bound, name="three positions, a wide window", atol=1e-6)
    assert np.abs(G[-1] - np.eye(n)[-2]).sum() / 2 >= 1 / 2 - 1e-12  # the last row may come down to a half


def test_at_the_end_of_the_sequence_the_bound_of_two_thirds_fails():
    G = patterns.gaussian_window(30, 1.0)
    assert 1 - G[-1, -2] < 2 / 3, "the hypothesis i < n is needed"


@pytest.mark.claim("lem-entropy-bounds")
@few
@given(seeds, st.integers(1, 12), st.floats(0, 40))
def test_entropy_lies_between_one_key_and_all_alike(seed, m, spread):
    H = patterns.entropy(random_map(seed, 5, m, spread=spread))
    assert (H >= 0).all() and (H <= np.log(m) + 1e-12).all()
    compare(patterns.entropy(np.eye(m)), np.zeros(m), name="one key")
    compare(patterns.entropy(np.full((1, m), 1 / m)), [np.log(m)], name="all alike")
    if m > 1:
        assert (patterns.entropy(random_map(seed, 5, m, spread=1.0)) > 0).all(), "0 only for one key"
        assert (patterns.entropy(random_map(seed, 5, m, spread=1.0)) < np.log(m) - 1e-9).all(), (
            "log m only if all alike"
        )


@pytest.mark.claim("lem-entropy-split")
@few
@given(seeds, st.integers(2, 12), st.data())
def test_entropy_splits(seed, m, data):
    p, size = random_map(seed, m), data.draw(st.integers(1, m - 1))
    inside = np.random.default_rng(seed).permutation(m) < size
    c = p[inside].sum()
    assume(1e-9 < c < 1 - 1e-9)

    def H(p):
        return patterns.entropy(p[None])[0]

    between = -c * np.log(c) - (1 - c) * np.log(1 - c)
    compare(between + c * H(p[inside] / c) + (1 - c) * H(p[~inside] / (1 - c)), H(p), name="the parts", atol=1e-10)


@pytest.mark.claim("eq:softmax-entropy", "eq:softmax-entropy-vjp", "eq:entropy")
@few
@given(seeds, st.integers(1, 8), st.sampled_from([0.1, 1.0, 4.0]))
def test_entropy_of_scores_is_the_entropy_of_their_weights(seed, m, spread):
    rng = np.random.default_rng(seed)
    S = spread * rng.standard_normal((3, m))
    H, vjp = an.softmax_entropy(S)
    P, dH = an.softmax(S)[0], rng.standard_normal(3)
    compare(H, patterns.entropy(P), name="entropy", atol=1e-10)
    compare(H, an.logsumexp(S)[0] - (P * S).sum(-1), name="lse minus the mean score", atol=1e-10)
    compare(vjp(dH), -P * (S - (P * S).sum(-1, keepdims=True)) * dH[:, None], name="dS", atol=1e-10)
    compare(vjp(dH).sum(-1), np.zeros(3), name="a constant changes nothing", atol=1e-12)
    check_vjp(an.softmax_entropy, S, rng=rng)


@pytest.mark.claim("lem-entropy-temperature")
@few
@given(seeds, st.integers(2, 8), st.floats(0.05, 4))
def test_cooling_focuses(seed, m, beta):
    S = np.random.default_rng(seed).standard_normal(m)
    P, _ = an.softmax(beta * S)
    slope = -beta * ((P * S**2).sum() - (P * S).sum() ** 2)
    steps = np.array([beta - 1e-5, beta, beta + 1e-5, 1.1 * beta, 0.0])
    H, _ = an.softmax_entropy(steps[:, None] * S)
    compare((H[2] - H[0]) / 2e-5, slope, name="dH/dbeta", atol=1e-8, rtol=1e-5)
    assert slope < 0 and H[3] < H[1]
    compare(H[4], np.log(m), name="hot")
    tied = np.round(3 * S)  # often several keys share the largest score
    compare(an.softmax_entropy(60 * tied[None])[0], [np.log((tied == tied.max()).sum())], name="cold", atol=1e-9)


@few
@given(seeds, st.integers(1, 12))
def test_the_largest_weight_is_at_least_the_even_share(seed, m):
    """The solution of exr-entropy-largest-weight."""
    P = random_map(seed, 4, m)
    assert (P.max(-1) >= np.exp(-patterns.entropy(P)) - 1e-12).all()


# What the page measured, on every tenth of its sentences.


@pytest.fixture(scope="module")
def model():
    return minilm.load()


def weights_of(model, ids):
    record = {}
    an.bert(ids, model.params, model.heads, record=record)
    layers = range(len(model.params["layers"]))
    return np.array([record["layers"][str(l)]["attention"]["weights"][0] for l in layers], float)


@pytest.fixture(scope="module")
def measured(model):
    rng = np.random.default_rng(33)
    ids = [model.encode([sentence])[0] for sentence in corpus.sentences(300)[::25]]
    mixed = [np.concatenate([x[:, :1], rng.permutation(x[:, 1:-1], axis=1), x[:, -1:]], axis=1) for x in ids]
    tokens = [np.array(model.tokens(x[0])) for x in ids]
    return [weights_of(model, x) for x in ids], [weights_of(model, x) for x in mixed], tokens


@pytest.mark.slow
@pytest.mark.claim("ex-local-patterns", "ex-positional-patterns")
def test_neighbour_heads_follow_the_place_not_the_word(measured):
    ordered, mixed, _ = measured
    scores = {
        d: [np.mean([patterns.offset_score(P, d) for P in maps], 0) for maps in (ordered, mixed)] for d in (-1, 1)
    }
    assert scores[-1][0].argmax() == 2 and all(score[0, 2] > 0.99 for score in scores[-1]), "1.3 looks back by one"
    assert all(0.5 < score[1, 8] < 0.75 and score.argmax() == 12 + 8 for score in scores[1]), "2.9 looks forward by one"
    assert max(np.abs(a - b).max() for a, b in scores.values()) < 0.2, "in any order of the tokens"
    local = np.mean([patterns.local_score(P, 2) for P in ordered], 0)
    uniform = np.mean([patterns.local_score(np.full(P.shape[-2:], 1 / P.shape[-1]), 2) for P in ordered])
    assert np.argsort(-local.ravel())[:3].tolist() == [2, 12 + 8, 5], "the most local heads: 1.3, 2.9, 1.6"
    assert (local[:2] > 2 * uniform).sum() <= 12, "but not most heads of the first two layers"
    G = np.mean([np.abs(P[0, 2] - patterns.gaussian_window(P.shape[-1], 1.0)).sum(-1).mean() / 2 for P in ordered])
    assert G > 2 / 3, "and 1.3 is not a Gaussian"


@pytest.mark.slow
@pytest.mark.claim("ex-broadcast-patterns")
def test_cls_takes_half_of_the_weight_in_the_middle_layers(measured):
    ordered, _, tokens = measured
    cls = np.mean([patterns.column_score(P, t == "[CLS]") for P, t in zip(ordered, tokens, strict=True)], 0)
    stop = np.mean([patterns.column_score(P, t == ".") for P, t in zip(ordered, tokens, strict=True)], 0)
    assert stop.argmax() == 36 + 11 and stop[3, 11] > 0.35, "4.12 looks at the full stop"
    own = np.mean([P[..., 0, 0] for P in ordered], 0).mean(1)
    assert (cls.mean(1)[1:5] > 0.4).all() and cls.mean(1)[0] < 0.2 and cls[3, 11] < 0.06
    assert (own[1:5] > 0.85).all() and own[5] < 0.3, "its own row is closed, and opens in the last layer"


@pytest.mark.slow
def test_the_first_layer_is_the_broadest_not_the_most_focused(measured):
    ordered, _, _ = measured
    H = np.mean([patterns.entropy(P).mean(-1) / np.log(P.shape[-1]) for P in ordered], 0)
    means = H.mean(1)
    assert (
        means.argmax() == 0 and means.argmin() in (1, 2) and (means[[0, 5]] > 0.65).all() and (means[1:5] < 0.6).all()
    )
    assert H[0, 2] < 0.02 and (np.delete(H[0], 2) > 0.5).all(), "but for 1.3"


@pytest.mark.slow
@pytest.mark.claim("ex-syntactic-patterns")
def test_a_head_prefers_the_noun_of_the_pronouns_gender_in_any_order(model, rng):
    right = {"in order": [], "mixed": []}
    for he, she in (("king", "queen"), ("uncle", "aunt"), ("waiter", "waitress")):
        for first, second, pronoun in ((he, she, "he"), (he, she, "she"), (she, he, "he"), (she, he, "she")):
            ids = model.encode([f"The {first} called the {second} because {pronoun} was late."])[0]
            mixed = np.concatenate([ids[:, :1], rng.permutation(ids[:, 1:-1], axis=1), ids[:, -1:]], axis=1)
            for name, row in (("in order", ids), ("mixed", mixed)):
                t = model.tokens(row[0])
                P = weights_of(model, row)[:, :, t.index(pronoun)]
                right[name].append(P[..., t.index(he)] > P[..., t.index(she)])
                right[name][-1] ^= pronoun == "she"
    for name, hits in right.items():
        hits = np.mean(hits, 0)
        assert hits[1, 3] > 0.9 and hits[1, 5] == 0, f"{name}: 2.4 prefers the noun that agrees, 2.6 the other one"
        assert abs(hits - 0.5).mean() < 0.2, f"{name}: most heads do not care"


@pytest.mark.slow
@pytest.mark.claim("ex-syntactic-patterns")
def test_the_places_of_verb_and_subject_suffice_for_head_4_1(model, rng):
    nouns = (
        "table river apple garden window stone paper basket candle island pencil mirror carpet hammer bottle".split()
    )
    hits = []
    for _ in range(40):
        ids = model.encode(["The {} that the {} {} {}.".format(*rng.choice(nouns, 4, replace=False))])[0]
        assert ids.shape == (1, 10)
        P = weights_of(model, ids)[3, 0]
        hits += [P[6, 5] > P[6, 2], P[7, 2] > P[7, 5]]
    assert 0.6 < np.mean(hits) < 0.95, "without any verb"


@pytest.mark.slow
def test_in_layer_one_the_ratio_of_two_weights_ignores_all_other_words(model):
    rows = []
    for ending in ("tired", "wide"):
        ids = model.encode([f"The animal didn't cross the street because it was too {ending}."])[0]
        t = model.tokens(ids[0])
        row = weights_of(model, ids)[:, :, t.index("it")]
        rows.append(row[..., t.index("animal")] / row[..., t.index("street")])
    compare(rows[0][0], rows[1][0], name="layer 1", rtol=1e-3)
    assert np.abs(np.log(rows[0][1:] / rows[1][1:])).max() > 0.5, "later layers do react"
