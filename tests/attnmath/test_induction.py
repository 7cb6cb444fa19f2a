"""Scores of heads, texts that repeat, patched heads, bad input, and the record of the study."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import induction
from attnmath import induction_study as study
from attnmath.check import compare

PATH = Path(__file__).parents[2] / "chapters/09_theory/induction.json"


@cache
def record():
    return json.loads(PATH.read_text(encoding="utf-8"))


# scores and texts


def behind_earlier(ids, P, head):
    """By loops over texts, rows and keys: a row's weights on what stands behind its token's earlier occurrences."""
    for text, weights in zip(ids, P[:, head], strict=True):
        for i in range(text.size):
            keys = [j for j in range(1, i + 1) if text[j - 1] == text[i]]
            if keys:
                yield weights[i, keys]


@pytest.mark.claim("eq:induction-score")
def test_the_score_is_a_mean_over_tokens_that_came_before(rng):
    ids, P = rng.integers(0, 4, (3, 9)), rng.random((3, 2, 9, 9))
    want = [np.mean([weights.sum() for weights in behind_earlier(ids, P, a)]) for a in range(2)]
    compare(induction.induction_score(P, ids), want, name="the score")
    compare(induction.induction_score(P[0], ids[:1]), induction.induction_score(P[:1], ids[:1]), name="one text")


def test_the_score_is_split_by_occurrence(rng):
    """Against loops; and the parts add up to the score of the rows that they are taken from."""
    ids, P = rng.integers(0, 4, (3, 9)), rng.random((3, 2, 9, 9))
    for count in (1, 2, 3):
        rows = [[weights for weights in behind_earlier(ids, P, a) if weights.size == count] for a in range(2)]
        want = [np.mean(found, 0) for found in rows]
        compare(induction.occurrence_scores(P, ids, count), want, name=f"{count} occurrences")
    text = np.array([[0, 5, 6, 5, 7, 5, 6]])
    P = rng.random((1, 2, 7, 7))
    rows = [3, 6]  # one earlier occurrence each
    whole = [P[0, :, i][:, induction.after_earlier(text)[0, i]].sum(-1) for i in rows]
    compare(induction.occurrence_scores(P, text, 1).sum(-1), np.mean(whole, 0), name="sum")


def test_texts_with_two_answers_ask_for_both():
    ids, answers = study.swapped(50)
    assert ids.shape[1] <= study.N
    for text, (first, last) in zip(ids, answers, strict=True):
        places = np.flatnonzero(text == text[-1])
        assert len(places) == 3 and text[places[0] + 1] == first != last == text[places[1] + 1]


@pytest.mark.claim("eq:previous-score")
def test_the_previous_score_is_a_mean_over_rows(rng):
    P = rng.random((3, 2, 5, 5))
    want = [np.mean([P[b, a, i, i - 1] for b in range(3) for i in range(1, 5)]) for a in range(2)]
    compare(induction.previous_score(P), want, name="the score")


def test_the_circuit_has_both_scores_nearly_one():
    ids = induction.repeated(np.random.default_rng(0), 6, 20, 12, (4, 8))
    seen = {}
    an.attention_only(ids, induction.copying_circuit(12, 20), 1, record=seen)
    first, second = (seen["layers"][i]["attention"]["weights"] for i in "01")
    assert induction.previous_score(first)[0] > 0.999 and induction.previous_score(second)[0] < 0.2
    assert induction.induction_score(second, ids)[0] > 0.999 > 0.1 > induction.induction_score(first, ids)[0]


def test_texts_repeat_different_tokens_with_every_period():
    ids = induction.repeated(np.random.default_rng(1), 300, 30, 12, (3, 6))
    periods = set()
    for text in ids:
        period = next(p for p in range(1, 29) if (text[1 + p :] == text[1:-p]).all())
        assert text[0] == 0 and len(set(text[1 : 1 + period])) == period and 1 <= text[1:].min()
        periods.add(period)
    assert periods == {3, 4, 5, 6} and ids.max() == 11


# heads that are patched


def test_the_weights_that_a_head_had_change_nothing(rng):
    ids, params = rng.integers(0, 12, (3, 9)), induction.copying_circuit(12, 9)
    seen = {}
    Z, _ = an.attention_only(ids, params, 1, record=seen)
    maps = [seen["layers"][i]["attention"]["weights"][:, 0] for i in "01"]
    compare(an.attention_only(ids, params, 1, attend=[an.patched(an.attention, {0: P}) for P in maps])[0], Z, name="Z")
    broken = [an.patched(an.attention, {0: induction.uniform(9)[0]}), an.attention]
    assert abs(an.attention_only(ids, params, 1, attend=broken)[0] - Z).max() > 1


def test_a_patched_head_is_deaf(rng):
    Q, K, V = (rng.standard_normal((2, 3, 4, 5)) for _ in range(3))
    O, vjp = an.patched(an.attention, {1: rng.random((4, 4))})(Q, K, V)
    dQ, dK, dV = vjp(rng.standard_normal(O.shape))
    assert (dQ[:, 1] == 0).all() and (dK[:, 1] == 0).all() and abs(dV[:, 1]).min() > 0 and abs(dQ[:, 0]).min() > 0


# bad input


@pytest.mark.parametrize("world", [an, at])
@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ([0], "patches is a list; expected a dict of weights by the number of the head"),
        ({2: (3, 4)}, "patches names the head 2, but there are 2 heads"),
        ({1: (4, 3)}, r"patches\[1\] has shape \(4, 3\); expected weights of 3 queries for 4 keys"),
    ],
)
def test_wrong_patches_are_told(world, patches, message, rng, as_users_call):
    Q, K, V = (rng.standard_normal((2, n, 5)) for n in (3, 4, 4))
    if isinstance(patches, dict):
        patches = {a: np.ones(shape) for a, shape in patches.items()}
    if world is at:
        Q, K, V = map(torch.from_numpy, (Q, K, V))
        patches = {a: torch.from_numpy(P) for a, P in patches.items()} if isinstance(patches, dict) else patches
    with pytest.raises(ValueError, match=message):
        world.patched(world.attention, patches)(Q, K, V)


def _biased(name):
    params = induction.copying_circuit(4, 5)
    leaf = params["layers"]["1"]["attention"][name]
    leaf["bias"] = np.zeros(leaf["weight"].shape[-1])
    return params


def _grouped():
    own = {name: {"weight": np.ones((4, 2 if name in ("key", "value") else 4))} for name in ("query", "key", "value")}
    own["output"] = {"weight": np.ones((4, 4))}
    return {"embeddings": {"word": np.ones((4, 4))}, "layers": {"0": {"attention": own}}}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: induction.logit_paths(np.array([0, 1]), _biased("value"), 1), "bias in 'value'; paths are products"),
        (lambda: induction.logit_paths(np.array([0, 1]), _grouped(), 2), "queries of width 4 and keys of width 2"),
        (lambda: induction.copying_circuit(4, 0), "n is 0"),
        (lambda: induction.copying_circuit(4, 5, match=0.0), "match"),
        (lambda: induction.two_gates(-1.0), "sharpness"),
        (lambda: induction.repeated(None, 1, 9, 8, (4, 8)), "periods are .* and vocabulary 8"),
        (lambda: induction.induction_score(np.ones((2, 3, 4)), np.ones((1, 4), int)), "expected .* h, n, n"),
        (lambda: induction.induction_score(np.ones((1, 3, 3)), np.arange(3)), "no token of ids comes twice"),
        (lambda: induction.occurrence_scores(np.ones((1, 3, 3)), np.zeros(3, int), 3), "no token of ids comes"),
        (lambda: induction.occurrence_scores(np.ones((1, 3, 3)), np.zeros(3, int), 0), "count"),
        (lambda: an.attention_only(np.array([0, 9]), induction.copying_circuit(4, 5), 1), "9"),
        (lambda: an.attention_only(np.zeros(6, int), induction.copying_circuit(4, 5), 1), "positions"),
    ],
)
def test_bad_input_gets_one_sentence(call, message, as_users_call):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# the study


def test_the_record_is_whole():
    found = record()
    assert study.record(*(found[name] for name in study.PARTS)) == found
    assert list(found["runs"]) == [f"{layers} {seed}" for layers in study.STEPS for seed in study.SEEDS]
    for name, run in found["runs"].items():
        layers = int(name[0])
        assert [at["step"] for at in run["log"]] == list(range(0, study.STEPS[layers] + 1, study.EVERY))
        assert len(run["log"][-1]["induction"]) == layers and ("crossed" in run) == (layers == 2)


def test_the_sweep_chose_the_rates():
    """The best on the texts that choose; and no rate was left out for either number of layers."""
    swept = record()["sweep"]
    assert list(swept) == [f"{layers} {rate:g}" for layers in study.STEPS for rate in study.RATES]
    for layers, rate in study.TUNED.items():
        right = {name.split()[1]: run["choice"] for name, run in swept.items() if name.startswith(f"{layers} ")}
        assert right[f"{rate:g}"] == max(right.values())
    assert list(record()["occurrences"]) == [str(seed) for seed in study.SEEDS]
    for run in record()["occurrences"].values():
        assert sum(run["said"]) == pytest.approx(1, abs=1e-3)
        assert [np.shape(part) for part in run["scores"].values()] == [(study.HEADS, c) for c in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1 2", "2 3"])
def test_the_study_begins_as_a_run_does_today(name):
    layers, seed = map(int, name.split())
    _, losses, log = study.train(layers, seed, study.FIRST)
    compare(losses, record()["runs"][name]["first"], name=name, atol=1e-4)
    for kind in ("copy", "new"):
        compare(log[0][kind], record()["runs"][name]["log"][0][kind], name=kind, atol=1e-3)
    compare(log[0]["induction"], record()["runs"][name]["log"][0]["induction"], name="scores", atol=2e-3)


def test_ablating_nothing_and_crossing_nothing_are_the_model_itself():
    params = study.start(2, 1)
    with torch.no_grad():
        plain = study.measured(params)
        for found in (study.ablated(params, [], "mean"), study.crossed(params)):
            compare([found[kind] for kind in ("copy", "new")], [plain[kind] for kind in ("copy", "new")], atol=2e-4)


def test_ablations_and_crossings_reach_their_heads():
    """In the circuit by hand, whose parts are known: the first layer reaches the second by its keys alone."""
    hand = at.from_numpy(induction.copying_circuit(study.VOCABULARY, study.N), dtype=torch.float32)
    keep, study.HEADS = study.HEADS, 1
    try:
        none, broken = study.crossed(hand), {place: study.crossed(hand, (place,))["copy"] for place in study.PLACES}
        uniform, mean = (study.ablated(hand, [(0, 0)], to)["copy"] for to in ("uniform", "mean"))
        second = study.ablated(hand, [(1, 0)], "mean")["copy"]
    finally:
        study.HEADS = keep
    assert none["copy"] < 0.01 and none["right"] == 1
    assert broken["query"] == broken["value"] == none["copy"] and broken["key"] > 3
    assert uniform > 2 and mean == none["copy"] and second > 2  # its first head attends by place: the mean is itself


@pytest.mark.claim("eq:copying-share")
def test_copying_is_read_from_the_weights():
    """In the circuit by hand the second layer copies all letters; turned by one letter it copies none."""
    hand = induction.copying_circuit(9, 5)
    assert study.copying(hand, 1, heads=1) == [1.0, 1.0]
    own = hand["layers"]["1"]["attention"]
    own["value"]["weight"] = np.roll(own["value"]["weight"], 1, -1)
    assert study.copying(hand, 1, heads=1) == [0.0, 0.0]


def test_the_lead_by_hand_is_that_of_the_keys():
    """20 for a key behind the query's token; the start token has 10, by no head of the first layer."""
    found = study.leads(induction.copying_circuit(study.VOCABULARY, study.N), heads=1)
    ids = study.texts()[:32]
    there = induction.after_earlier(ids)
    rows = there.any(-1) & (np.tri(study.N, dtype=bool) & ~there).any(-1)
    start = (-10 / (np.tri(study.N, dtype=bool) & ~there).sum(-1)[rows]).mean()
    compare(found["key"], [20.0], name="K-composition", atol=1e-3)
    compare(found["direct"], [start], name="the start token", atol=1e-3)
    assert abs(found["query"][0]) < 1e-6 and abs(found["both"][0]) < 1e-6


@pytest.mark.parametrize("seed", [1, 4])
def test_the_circuits_before_training_are_those_of_the_record(seed):
    own, found = study._arrays(study.start(2, seed)), record()["opened"][str(seed)]["untrained"]
    compare([study.copying(own, i) for i in (0, 1)], found["copying"], atol=1e-9)
    leads = study.leads(own)
    for kind, values in found["leads"].items():
        compare(leads[kind], values, name=kind, atol=1e-3)


def test_the_four_kinds_of_path_add_up_to_the_scores():
    params = study._arrays(study.start(2, 3))
    ids, leads = study.texts()[:32], study.leads(params)
    Z = an.token_embedding(ids, params["embeddings"])[0]
    own = params["layers"]
    X = Z + an.multi_head_attention(Z, Z, Z, own["0"]["attention"], study.HEADS, an.causal_mask(study.N))[0]
    QK, _ = induction.circuits(own["1"]["attention"], study.HEADS)
    there = induction.after_earlier(ids)
    other = np.tri(study.N, dtype=bool) & ~there
    rows = there.any(-1) & other.any(-1)
    for head in range(study.HEADS):
        S = X @ QK[head] @ X.swapaxes(-1, -2)
        means = [(S * M).sum(-1)[rows] / M.sum(-1)[rows] for M in (there, other)]
        total = sum(leads[kind][head] for kind in leads)
        compare(total, (means[0] - means[1]).mean(), name=f"head {head}", atol=3e-4)


@pytest.mark.slow
def test_the_language_model_scores_as_in_the_record():
    ids, found = study.passages("random", 1), record()["language_model"]["1"]["random"]
    from attnmath.tasks import lm

    read, maps = study.surprise(lm.load().eval(), ids)
    compare(read["again"], found["loss"]["again"], name="loss", atol=1e-2)
    scores = [induction.induction_score(P, ids) for P in maps]
    compare(scores, found["scores"], name="scores", atol=1e-3)
