"""Paths add up to the logits, the copying circuit errs no more than its bound, and what one layer can say."""

import itertools

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import induction, shapes
from attnmath.check import compare
from attnmath.tree import map_tree

T, N, D, HEADS = 11, 7, 6, 2
LETTERS = A_, B_, C_, D_ = range(4)


def model(layers, seed=0, heads=HEADS, d=D, positions=N):
    """Random weights without biases, sharp enough that the heads differ."""
    own = {name: {"weight": leaf["weight"]} for name, leaf in shapes.attention_shapes(d, heads).items()}
    tree = {
        "embeddings": {"word": (T, d), "position": (positions, d)},
        "layers": {str(i): {"attention": own} for i in range(layers)},
        "head": {"weight": (d, T)},
    }
    return shapes.random_tree(tree, np.random.default_rng(seed), 0.7)


def texts(seed=1, count=3, n=N, vocabulary=T):
    return np.random.default_rng(seed).integers(0, vocabulary, (count, n))


def weights_of(ids, params, heads=HEADS):
    record = {}
    Z, _ = an.attention_only(ids, params, heads, record=record)
    return Z, [record["layers"][str(i)]["attention"]["weights"] for i in range(len(params["layers"]))]


@pytest.mark.claim("thm-logit-paths", "eq:logit-paths", "eq:stream-paths", "eq:attention-only")
@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_the_paths_add_up_to_the_logits(layers):
    ids, params = texts(), model(layers, seed=layers)
    paths = induction.logit_paths(ids, params, HEADS)
    assert len(paths) == (1 + HEADS) ** layers
    compare(sum(paths.values()), an.attention_only(ids, params, HEADS)[0], name="the logits", atol=1e-12)


@pytest.mark.claim("thm-logit-paths")
def test_a_path_is_what_its_heads_do_when_all_others_are_silent():
    """Silence the other heads, give these the weights that they had, and take the shorter paths away."""
    ids, params = texts(), model(2, seed=5)
    _, maps = weights_of(ids, params)
    paths = induction.logit_paths(ids, params, HEADS)
    for a, b in itertools.product(range(HEADS), repeat=2):
        alone = map_tree(np.copy, params)
        for i, head in ((0, a), (1, b)):
            rows = alone["layers"][str(i)]["attention"]["output"]["weight"].reshape(HEADS, -1, D)
            rows[1 - head] = 0
        cores = [an.patched(an.attention, dict(enumerate(np.moveaxis(P, 1, 0)))) for P in maps]
        Z, _ = an.attention_only(ids, alone, HEADS, attend=cores)
        shorter = paths[()] + paths[((0, a),)] + paths[((1, b),)]
        compare(paths[((0, a), (1, b))], Z - shorter, name=f"the path {a}, {b}", atol=1e-12)
        assert abs(paths[((0, a), (1, b))]).max() > 0.1


@pytest.mark.claim("thm-logit-paths", "eq:score-paths", "eq:circuits")
@pytest.mark.parametrize("head", [0, 1])
def test_the_pairs_of_paths_add_up_to_the_scores(head):
    """Scores whose softmax is what the head's weights are; and the direct pair does not see the first layer."""
    ids, params = texts(), model(2, seed=7)
    _, maps = weights_of(ids, params)
    pairs = induction.score_paths(ids, params, HEADS, layer=1, head=head)
    assert len(pairs) == (1 + HEADS) ** 2
    S = np.where(np.tri(N, dtype=bool), sum(pairs.values()), -np.inf)
    compare(an.softmax(S)[0], maps[1][:, head], name="the weights", atol=1e-12)
    params["layers"]["0"]["attention"]["value"]["weight"] *= 2
    other = induction.score_paths(ids, params, HEADS, layer=1, head=head)
    compare(other[(), ()], pairs[(), ()], name="the direct pair", atol=1e-12)
    compare(other[(), ((0, 1),)], 2 * pairs[(), ((0, 1),)], name="K-composition", atol=1e-12)
    compare(other[((0, 0),), ((0, 1),)], 4 * pairs[((0, 0),), ((0, 1),)], name="both sides", atol=1e-12)


@pytest.mark.claim("thm-logit-paths", "eq:circuits")
def test_circuits_have_the_rank_of_a_head():
    QK, OV = induction.circuits(model(1, d=8)["layers"]["0"]["attention"], HEADS)
    assert all((np.linalg.matrix_rank(W) == 4).all() for W in (QK, OV))


@pytest.mark.claim("thm-copying-circuit", "eq:copying-circuit", "eq:copying-error")
@pytest.mark.parametrize(("previous", "match"), [(5.0, 12.0), (8.0, 20.0), (20.0, 20.0), (6.0, 40.0)])
@pytest.mark.parametrize("vocabulary", [4, 17])
def test_the_circuit_attends_where_it_should(previous, match, vocabulary):
    """On texts in which tokens come back in any way: both layers within their bounds, and the logits too."""
    n, gain = 20, 7.0
    ids = 1 + texts(3, 12, n, vocabulary - 1)
    ids[:, 0] = induction.START
    params = induction.copying_circuit(vocabulary, n, previous=previous, match=match, gain=gain)
    Z, (first, second) = weights_of(ids, params, 1)
    epsilon, delta = induction.copying_error(n, previous, match)
    i = np.arange(1, n)
    compare(1 - first[:, 0, i, i - 1], np.broadcast_to(i / (np.exp(previous) + i), (12, n - 1)), name="row", atol=1e-12)
    assert (1 - first[:, 0, i, i - 1]).max() <= epsilon + 1e-15 < 0.5
    behind = induction.after_earlier(ids)
    seen = behind.any(-1)
    seen[:, 0] = False
    there = (second[:, 0] * behind).sum(-1)
    assert seen.sum() > 20 and (~seen[:, 1:]).sum() > 10
    assert (1 - there[seen]).max() <= delta
    assert (1 - there[seen]).max() >= np.exp(-match / 2) / (2 * n)  # the rate of the bound is the right one
    fresh = ~seen
    fresh[:, 0] = False
    assert (1 - second[:, 0, :, 0])[fresh].max() <= delta and Z[fresh].max() <= gain * delta + 1e-12
    for row, i in zip(*np.nonzero(seen), strict=True):
        said = set(ids[row, behind[row, i]])
        others = [token for token in range(vocabulary) if token not in said]
        assert Z[row, i, sorted(said)].sum() >= gain * (1 - delta) - 1e-12
        assert Z[row, i, others].max() <= gain * delta + 1e-12
        if len(said) == 1:
            assert Z[row, i, said.pop()] - Z[row, i, others].max() >= gain * (1 - 2 * delta) - 1e-12


@pytest.mark.claim("thm-copying-circuit")
@pytest.mark.parametrize("period", [1, 2, 7, 13])
def test_a_repetition_is_continued_to_its_end(period):
    ids = induction.repeated(np.random.default_rng(period), 9, 40, 20, (period, period))
    Z, _ = an.attention_only(ids, induction.copying_circuit(20, 40), 1)
    assert (Z[:, period + 1 : -1].argmax(-1) == ids[:, period + 2 :]).all()
    top = np.sort(Z[:, period + 1 :], -1)
    assert (top[..., -1] - top[..., -2]).min() >= 10 * (1 - 2 * induction.copying_error(40)[1])


@pytest.mark.claim("thm-copying-circuit", "eq:score-paths")
def test_the_circuit_is_key_composition_alone():
    ids = induction.repeated(np.random.default_rng(0), 5, 20, 12, (5, 9))
    pairs = induction.score_paths(ids, induction.copying_circuit(12, 20), 1, layer=1, head=0)
    S = {pair: X[..., 1:] for pair, X in pairs.items()}  # of the real tokens
    assert S[(), ((0, 0),)].max() > 19.9
    assert max(abs(X).max() for pair, X in S.items() if pair != ((), ((0, 0),))) == 0


def contest(params, heads):
    """For x1 x2 x3 x4 a, the logit of c less that of d at the end, and the sums of exponentials of all heads."""
    found = {}
    QK, _ = induction.circuits(params["layers"]["0"]["attention"], heads)
    for turned, x2, x4 in itertools.product((0, 1), (C_, D_), (C_, D_)):
        ids = np.array([B_ if turned else A_, x2, A_ if turned else B_, x4, A_])
        Z, _ = an.attention_only(ids, params, heads)
        X, _ = an.token_embedding(ids, params["embeddings"])
        sums = np.exp(X[-1] @ QK @ X.T).sum(-1)
        found[turned, x2, x4] = Z[-1, C_] - Z[-1, D_], sums.prod()
    return found


@pytest.mark.claim("prop-one-head")
@pytest.mark.parametrize("seed", range(5))
def test_one_head_in_one_layer_must_fail_on_one_of_four_texts(seed):
    """The difference times the sum of exponentials is a sum over places, so that four of them cancel."""
    found = contest(model(1, seed, heads=1, d=5), 1)
    (up, down, turned_up, turned_down) = ((0, C_, D_), (0, D_, C_), (1, D_, C_), (1, C_, D_))
    G = {key: difference * total for key, (difference, total) in found.items()}
    compare(G[up] + G[turned_up], G[down] + G[turned_down], name="the sums", atol=1e-10)
    right = [found[up][0] > 0, found[turned_up][0] > 0, found[down][0] < 0, found[turned_down][0] < 0]
    assert not all(right)


@pytest.mark.claim("prop-one-head")
def test_with_two_heads_the_sums_do_not_cancel():
    found = contest(model(1, 3), HEADS)
    G = {key: difference * total for key, (difference, total) in found.items()}
    assert abs(G[0, C_, D_] + G[1, D_, C_] - G[0, D_, C_] - G[1, C_, D_]) > 0.01


@pytest.mark.claim("lem-two-gates")
@pytest.mark.parametrize("sharpness", [1.0, 3.0, 20.0])
def test_two_heads_in_one_layer_are_right_on_all_eight_texts(sharpness):
    least = 1 - 2 * np.exp(-sharpness) - 3 * np.exp(-9 * sharpness)
    found = contest(induction.two_gates(sharpness), 2)
    assert len(found) == 8
    for (turned, x2, x4), (difference, _) in found.items():
        wanted = x4 if turned else x2
        assert (difference if wanted == C_ else -difference) >= least > 0
