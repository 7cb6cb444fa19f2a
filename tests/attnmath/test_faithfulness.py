"""Scores of words against networkx, PyTorch's gradients and counting; the climb against every vertex; bad input."""

import json
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import attnmath.torch as at
from attnmath import faithfulness as F
from attnmath import faithfulness_study as study
from attnmath.check import compare
from attnmath.rollout import attention_rollout


@pytest.mark.slow
def test_the_climb_beats_its_starts():
    """Over ten rows: on average it gets to 95 % of the farthest vertex, farther than without the heaviest key."""
    far, best, begun = [], [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        p, V = weights(rng, 8), rng.standard_normal((8, 2))
        best.append(max(F.distance(q, p) for q in vertices(p, V)))
        far.append(F.distance(F.farthest_weights(p, V, starts=10), p))
        begun.append(F.distance(F.least_weight(p, V, int(p.argmax())), p))
    assert np.mean(far) > 0.95 * np.mean(best) and np.mean(far) > np.mean(begun) + 0.02


def test_a_climb_ends_where_the_next_programme_gains_nothing():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        p, V = weights(rng, 30), rng.standard_normal((30, 5))
        A, q = np.vstack([V.T, np.ones(30)]), F.farthest_weights(p, V, starts=1)
        better = linprog(-np.where(q > p, 1.0, -1.0), A_eq=A, b_eq=A @ p, bounds=[(0, 1)] * 30).x
        assert F.distance(better, p) <= F.distance(q, p) + 1e-6


def weights(rng, *shape, sharp=1.0):
    E = np.exp(sharp * rng.standard_normal(shape))
    return E / E.sum(-1, keepdims=True)


@pytest.mark.parametrize("residual", [0.0, 0.5, 0.9])
def test_flow_is_that_of_networkx(residual, rng):
    P = weights(rng, 3, 2, 4, 4, sharp=2.0)
    A = (1 - residual) * P.mean(1) + residual * np.eye(4)
    graph = nx.DiGraph()
    for level, layer in enumerate(A):
        for a, b in np.ndindex(4, 4):
            graph.add_edge((level + 1, a), (level, b), capacity=layer[a, b])
    want = [[nx.maximum_flow_value(graph, (3, i), (0, j)) for j in range(4)] for i in range(4)]
    compare(F.attention_flow(P, residual), np.array(want), atol=1e-7)


def test_flow_has_leading_axes_and_leaves_the_weights_alone(rng):
    P = weights(rng, 2, 3, 2, 4, 4)
    before = P.copy()
    got = F.attention_flow(P)
    compare(got, np.stack([F.attention_flow(P[:, b]) for b in range(3)]), atol=1e-12)
    compare(P, before)
    causal = np.tril(np.ones((4, 4))) / np.arange(1, 5)[:, None]
    assert not np.triu(F.attention_flow(np.stack([causal[None]] * 2)), 1).any(), "nothing flows from words to come"


def network(X):
    """A smooth function of (..., 3, 2) that is no polynomial."""
    W = torch.tensor([[1.0, -2.0], [0.5, 1.0]], dtype=X.dtype)
    H = torch.tanh(X @ W).sum(-2)
    return torch.exp(0.3 * H[..., 0]) * torch.sigmoid(H[..., 1])


def gradient(X):
    X = torch.as_tensor(X).requires_grad_()
    return torch.autograd.grad(network(X).sum(), X)[0].numpy()


def test_integrated_gradients_of_a_network_by_many_small_steps(rng):
    X, b = rng.standard_normal((2, 3, 2))
    t = (np.arange(4000) + 0.5) / 4000
    want = (X - b) * gradient(b + t[:, None, None] * (X - b)).mean(0)
    compare(F.integrated_gradients(gradient, X, b, points=40), want, atol=1e-6)
    coarse = F.integrated_gradients(gradient, X, b, points=2)
    assert abs(coarse - want).max() > 1e-5, "two points are not enough, so the test above sees the rule"
    fine = F.integrated_gradients(lambda Z: 4 * Z**3, X, b, points=2)  # degree 3: two points are exact
    compare(fine, X**4 - b**4, atol=1e-12)
    compare(F.integrated_gradients(lambda Z: 2 * Z, X, 1.0), X**2 - 1, atol=1e-12)


def test_occlusion_and_curves_by_counting(rng):
    a = rng.standard_normal(7)

    def answer(kept):
        return kept @ a + 3 * kept[:, 0] * kept[:, 5]

    def at(words):
        return a[list(words)].sum() + 3 * (0 in words and 5 in words)

    every = set(range(7))
    compare(F.occlusion(answer, 7), [at(every) - at(every - {j}) for j in range(7)], atol=1e-12)
    scores = np.array([0.1, 5.0, 0.2, 5.0, -3.0, 0.3, 0.2])
    order = [1, 3, 5, 2, 6, 0, 4]  # equal scores keep their order
    ks = [0, 3, 5, 7]  # 7 words in 3 steps: 0, 7/3, 14/3 and 7, rounded up
    compare(F.deletion_curve(answer, scores, steps=3), [at(every - set(order[:k])) for k in ks], atol=1e-12)
    compare(F.deletion_curve(answer, scores, steps=3, keep=True), [at(set(order[:k])) for k in ks], atol=1e-12)
    seven = F.deletion_curve(answer, scores, steps=7)
    compare(seven, [at(every - set(order[:k])) for k in range(8)], atol=1e-12)


def vertices(p, V):
    """All vertices of the weights with the same output: solve for every support."""
    A, n = np.vstack([V.T, np.ones(len(p))]), len(p)
    b, found = A @ p, []
    for support in combinations(range(n), len(A)):
        q = np.zeros(n)
        q[list(support)] = np.linalg.solve(A[:, support], b)
        if (q > -1e-9).all():
            found.append(q)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_the_climb_ends_at_a_vertex_nearly_as_far_as_any(seed):
    rng = np.random.default_rng(seed)
    p, V = weights(rng, 9), rng.standard_normal((9, 2))
    every = vertices(p, V)
    best = max(F.distance(q, p) for q in every)
    q = F.farthest_weights(p, V, starts=20)
    compare(q @ V, p @ V, atol=1e-8)
    assert min(abs(q - r).max() for r in every) < 1e-7
    assert 0.9 * best < F.distance(q, p) < best + 1e-7
    top = int(p.argmax())
    compare(F.least_weight(p, V, top)[top], min(q[top] for q in every), atol=1e-8)


def test_a_tolerance_gives_more_freedom_and_is_kept(rng):
    p, V = weights(rng, 12), rng.standard_normal((12, 5))
    found = [F.farthest_weights(p, V, tolerance=t) for t in (0.0, 0.05, 0.2)]
    moved = [abs(q @ V - p @ V).max() for q in found]
    assert moved[0] < 1e-7 and 0.04 < moved[1] < 0.05 + 1e-7 and 0.16 < moved[2] < 0.2 + 1e-7
    far = [F.distance(q, p) for q in found]
    assert far[0] < far[1] < far[2]
    least = [F.least_weight(p, V, 3, tolerance=t)[3] for t in (0.0, 0.05, 0.2)]
    assert least[0] >= least[1] >= least[2] and least[2] < p[3]
    for q in found:
        assert (q >= 0).all() and abs(q.sum() - 1) < 1e-12


def test_removal_by_attending_again(rng):
    p, V = weights(rng, 6), rng.standard_normal((6, 3))
    for j in range(6):
        rest = np.delete(p, j) / np.delete(p, j).sum()
        compare(F.removal(p, V, j), p @ V - rest @ np.delete(V, j, 0), atol=1e-12)


ROW = np.array([0.25, 0.75])
REFUSED = [
    (lambda: F.attention_flow(np.ones((2, 3, 3))), "layers, ..., h, n, n"),
    (lambda: F.attention_flow(np.full((1, 1, 2, 2), 2.0)), "softmax of the scores"),
    (lambda: F.attention_flow(np.ones((1, 1, 2, 2)) / 2, residual=1.5), "must be a share"),
    (lambda: F.integrated_gradients(gradient, np.array([1, 2]), 0.0), "convert it"),
    (lambda: F.integrated_gradients(lambda Z: Z[0], np.ones(3), 0.0), "one gradient per input"),
    (lambda: F.integrated_gradients(gradient, np.ones(3), 0.0, points=0), "integer >= 1"),
    (lambda: F.occlusion(lambda kept: kept, 3), "one number for each row"),
    (lambda: F.occlusion(lambda kept: kept[:, 0], 0), "integer >= 1"),
    (lambda: F.deletion_curve(lambda kept: kept[:, 0], [[1.0]]), "one for each word"),
    (lambda: F.deletion_curve(lambda kept: kept[:, 0], [np.nan, 1.0]), "finite numbers"),
    (lambda: F.deletion_curve(lambda kept: kept[:, 0], [2.0, 1.0], steps=0), "integer >= 1"),
    (lambda: F.removal(np.array([1.0, 0.0]), np.ones((2, 1)), 0), "all the weight"),
    (lambda: F.least_weight(2 * ROW, np.ones((2, 1)), 0), "sum to 1"),
    (lambda: F.least_weight(ROW, np.ones((3, 1)), 0), "expected"),
    (lambda: F.farthest_weights(ROW, np.ones((2, 1)), tolerance=-1.0), ">= 0"),
    (lambda: F.farthest_weights(ROW, np.ones((2, 1)), starts=0), "integer >= 1"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_bad_input_is_told_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_rollout_is_one_way_to_let_it_flow(rng):
    P = weights(rng, 4, 2, 5, 5)
    assert (F.attention_flow(P) >= attention_rollout(P) - 1e-6).all()


RECORD = json.loads((Path(__file__).parents[2] / "chapters/09_theory/faithfulness.json").read_text(encoding="utf-8"))


def test_the_record_is_whole():
    parts = [RECORD[name] for name in study.PARTS]
    assert RECORD == study.record(*parts)
    for name, planned in study.STUDY.plan().items():
        assert list(RECORD[name]) == list(planned)


def test_the_example_of_the_record_is_found_again():
    """The scores by a way of their own: the word vectors of other ids, maps of the model's own call."""
    one = RECORD["example"]["docstring"]
    model = study.language_model()
    ids = np.array([0, *model.tokens.encode(study.EXAMPLE)])
    record: dict = {}
    with torch.no_grad():
        Z = torch.log_softmax(model(torch.from_numpy(ids)[None], record=record)[0, -1].double(), -1)
    target = int(Z.argmax())
    assert one["next"] == model.tokens.decode([target]) and one["tokens"] == [
        model.tokens.decode([int(i)]) for i in ids
    ]
    compare(one["probability"], float(Z.exp().max()), atol=1e-4)
    P = np.stack([record["layers"][str(i)]["attention"]["weights"][0].numpy() for i in range(3)])
    compare(one["scores"]["attention"], P[-1].mean(0)[-1], atol=1e-4)
    compare(one["scores"]["rollout"], attention_rollout(P.astype(float))[-1], atol=1e-4)
    question = study.Next(ids)
    for name, scores in question.scores().items():
        compare(scores, one["scores"][name], name=name, atol=2e-3)
    table = model.tree()["embeddings"]["word"].clone()
    table = torch.cat([table, table.mean(0, keepdim=True)])  # one more token, that means nothing
    tree = model.tree()
    changed = ids.copy()
    changed[28] = len(table) - 1
    tree = tree | {"embeddings": tree["embeddings"] | {"word": table}}
    with torch.no_grad():
        after = at.decoder_only(torch.from_numpy(changed)[None], tree, model.heads, **model.options)[0, -1, :-1]
    fall = Z[target] - torch.log_softmax(after.double(), -1)[target]
    compare(one["scores"]["occlusion"][28], float(fall), atol=2e-4)
    kept = np.ones((2, len(ids)), bool)
    kept[1] = False
    whole, none = question.answer(kept)
    compare(sum(one["scores"]["integrated"]), whole - none, atol=5e-3)


@pytest.mark.slow
def test_a_similarity_is_minilms_and_its_words_can_be_masked():
    one, other = "The cat sleeps on the warm mat.", "A dog lies on a rug."
    question = study.Similar(one, other)
    model, _ = study.encoder()
    n = len(question.X)
    assert n == len(model.encode([one])[0][0]) - 2
    kept = np.ones((2, n), bool)
    kept[1, 1] = False  # the word cat
    vectors = model.embed([one, other, one.replace("cat", "[MASK]")])
    compare(question.answer(kept), vectors[[0, 2]] @ vectors[1], atol=1e-5)
    X = question.X.double().numpy()
    G, step = question.gradient(X[None])[0], np.random.default_rng(0).standard_normal(X.shape)
    with torch.no_grad():
        up, down = (question.values(torch.tensor(X + h * step).float()[None]).item() for h in (5e-4, -5e-4))
    compare((G * step).sum(), (up - down) / 1e-3, atol=4e-3, rtol=2e-2)
    P = question.maps[-1].mean(0)
    assert P.shape == (n + 2, n + 2)
    compare(question.share(P), P[:, 1:-1].sum(0) / (n + 2), atol=1e-12)


@pytest.mark.slow
def test_a_part_of_the_study_is_measured_again():
    found = study.replaced_everywhere(1)
    assert list(found) == list(RECORD["everywhere"]["1"])
    for name, loss in RECORD["everywhere"]["1"].items():
        compare(found[name], loss, name=name, atol=2e-3)


def test_kept_weights_of_the_last_row_change_nothing_if_they_are_its_own():
    ids = study.Next(np.arange(5, 45)).ids
    before, V, P = study.last_row(ids)
    assert V.shape == (4, 40, 24) and P.shape == (4, 40)
    compare(study.last_row(ids, study.held(P))[0], before, atol=1e-5)
    other = np.roll(P, 1, -1)
    assert abs(study.last_row(ids, study.held(other))[0] - before).max() > 1e-3
    far = np.stack([F.farthest_weights(p, values, starts=1) for p, values in zip(P, V, strict=True)])
    compare(study.last_row(ids, study.held(far))[0], before, atol=1e-5)
    assert abs(far - P).sum() > 0.5


@pytest.mark.parametrize("how", ["own", "uniform", "other text", "permuted"])
def test_weights_are_replaced_as_their_name_says(how, rng):
    Q, K, V = (torch.from_numpy(rng.standard_normal((3, 2, 5, 4))) for _ in range(3))
    seen, record = torch.tril(torch.ones(5, 5, dtype=bool)), {}
    at.recording(at.attention, record)(Q, K, V, mask=seen)
    P = record["weights"].numpy()
    got = study.other_way(how, rng)(Q, K, torch.eye(5, dtype=V.dtype).expand(3, 2, 5, 5), mask=seen).numpy()
    compare(got.sum(-1), np.ones((3, 2, 5)), atol=1e-6)
    assert not np.triu(got, 1).any()
    if how == "permuted":
        compare(np.sort(got), np.sort(P), atol=1e-6)
        assert abs(got - P).max() > 0.1
    else:
        flat = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None] + 0 * P
        compare(got, {"own": P, "uniform": flat, "other text": np.roll(P, 1, 0)}[how], atol=1e-6)


@pytest.mark.slow
def test_a_model_with_equal_weights_reads_as_if_all_cores_were_replaced():
    model = study.language_model()
    flat = study.with_equal_weights(model)
    one = study.read(flat, 1, count=4)
    compare(one["map"], np.full((4, study.LONG), 1 / study.LONG), name="the map", atol=1e-6)
    cores = [study.other_way("uniform", None)] * model.config.layers
    starts = np.random.default_rng((1, 43)).choice(len(study.text()) - study.LONG - 1, 4, replace=False)
    ids = torch.from_numpy(study.text()[starts[:, None] + np.arange(study.LONG + 1)])
    Z = model(ids[:, :-1], attend=cores)
    compare(one["loss"], float(torch.nn.functional.cross_entropy(Z.mT, ids[:, 1:])), name="the loss", atol=1e-4)
    assert study.read(model, 1, count=4)["loss"] < one["loss"] - 0.3


@pytest.mark.slow
def test_a_small_model_begins_to_learn_as_in_the_record():
    _, losses = study.fresh(2, steps=study.FIRST)
    compare(losses, RECORD["learned anew"]["book"]["first"]["2"], name="losses", atol=1e-3)
    equal, others = study.fresh(2, study.EqualTask, steps=study.FIRST)
    assert abs(np.subtract(others, losses)).max() > 1e-3
    loss = equal.requires_grad_()(torch.arange(1, 9)[None]).square().mean()
    loss.backward()
    asks = [P.grad for name, P in equal.named_parameters() if ".query." in name or ".key." in name]
    assert len(asks) >= 8 and all(G is None or abs(G).max() == 0 for G in asks), "queries and keys learn nothing"
    gives = [P.grad for name, P in equal.named_parameters() if name.endswith(".value.weight")]
    assert len(gives) == 2 and all(abs(G).max() > 0 for G in gives)


@pytest.mark.slow
def test_the_readings_of_the_maps_in_the_record_are_those_of_today():
    """The chosen reading on two texts by hand, and its lead over the first draw."""
    want = json.loads((Path(__file__).parents[2] / study.FILE).read_text(encoding="utf-8"))["sweeps"]["attention"]
    question = study.questions("language model", 1)[0]
    scores = study.readings(question)
    assert len(scores) == len(want["tried"]) == 12
    compare(scores["all", "mean"], question.maps[:, :, -1].mean((0, 1)), name="all layers, all heads", atol=1e-12)
    compare(scores[1, "largest"], question.maps[1, :, -1].max(0), name="the largest head", atol=1e-12)
    lead, wins = study.leads(1)["all", "mean"]
    compare(lead, want["lead"][0], name="lead", atol=2e-3)
    assert wins == want["wins"][0]
