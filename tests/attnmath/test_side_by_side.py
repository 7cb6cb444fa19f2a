"""The record of the comparison is what its command makes, and its models are equal in all but what is compared."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import attnmath.torch as at
from attnmath import layouts, memory_tasks
from attnmath import side_by_side as side
from attnmath.cache import KeyValueCache
from attnmath.check import compare
from attnmath.tasks import lm

RECORD = json.loads((Path(__file__).parents[2] / "chapters/07_outlook/side_by_side.json").read_text(encoding="utf-8"))


def test_the_record_is_whole():
    runs, times, equal = (RECORD[part] for part in ("runs", "times", "equal time"))
    assert runs.keys() == {
        f"{task} {mixer} {seed}" for task in side.STEPS for mixer in side.MIXERS for seed in side.SEEDS
    }
    assert times.keys() == {*side.cores(), "s4d"} and all(len(row) == len(side.LENGTHS) for row in times.values())
    assert equal.keys() == {name for name in runs if name.split()[1:-1] != ["softmax"]}
    assert side.record(runs, times, equal) == RECORD
    for name, run in (*runs.items(), *equal.items()):
        assert len(run["curve"]) == math.ceil(run.get("steps", side.STEPS[name.split()[0]]) / side.KEEP)
        assert len(run["first"]) == 4 and run["seconds"] > 1
        if name.startswith("text "):
            assert 1 < run["bits per byte"] < run["bits per token"] < math.log2(side.VOCABULARY["text"])
        else:
            assert 0 <= run["accuracy"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("task", side.STEPS)
@pytest.mark.parametrize("mixer", side.MIXERS)
def test_the_first_steps_are_those_of_the_record(mixer, task):
    for seed in (0, 2):
        again = side.train(mixer, task, seed, steps=4)["first"]
        compare(again, RECORD["runs"][f"{task} {mixer} {seed}"]["first"], name="losses", atol=2e-3)


@pytest.mark.slow
def test_all_models_were_measured_on_the_same_text():
    corpus = side._corpus()
    texts = corpus.texts["test"][: side.DOCUMENTS]
    wanted = lm.length(texts) / (len(lm.stream(corpus.tokens, texts)) - 1)
    for part in ("runs", "equal time"):
        for name, run in RECORD[part].items():
            if name.startswith("text "):
                assert abs(run["bits per token"] / run["bits per byte"] - wanted) < 1e-4, name


def test_in_equal_time_the_rate_is_planned_for_the_steps_that_are_taken(monkeypatch):
    run = RECORD["equal time"]["recall window 2"]
    again = side.train("window", "recall", 2, steps=4, total=run["steps"])["first"]
    compare(again, run["first"], name="losses", atol=2e-3)
    monkeypatch.setattr(side, "steps_in_equal_time", lambda mixer, task: 60)
    found = side.train_in_equal_time("window", "recall", 2)
    assert found["steps"] == 60 and len(found["curve"]) == 3
    assert found["curve"] == side.train("window", "recall", 2, total=60)["curve"]
    unplanned = side.train("window", "recall", 2, steps=60)["curve"]
    assert found["curve"][0] == unplanned[0] and found["curve"][2] != unplanned[2]


@pytest.mark.slow
def test_equal_time_is_a_ratio_of_times(monkeypatch):
    """A model whose steps are twice as long takes half as many; softmax attention takes its own number."""
    side.steps_in_equal_time.cache_clear()
    alone = side.steps_in_equal_time("softmax", "recall", rounds=9)
    assert abs(alone / side.STEPS["recall"] - 1) < 0.3
    build = side.build

    def slow(mixer, *rest):
        model = build(mixer, *rest)
        if mixer == "window":
            model.register_forward_pre_hook(lambda *_: _spin(0.02))
        return model

    def _spin(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    quick = side.steps_in_equal_time("window", "recall", rounds=5)
    side.steps_in_equal_time.cache_clear()
    monkeypatch.setattr(side, "build", slow)
    assert side.steps_in_equal_time("window", "recall", rounds=5) < 0.75 * quick
    side.steps_in_equal_time.cache_clear()


@pytest.fixture
def small_text(monkeypatch):
    """Documents of which those that train and those that test share no letter."""
    texts = {
        "train": ["ten to one", "not one net"] * 9,
        "validation": ["xyz" * 9],
        "test": ["dad-had-a-bad-cab", "ha" * 9],
    }
    task = lm.Task(lm.Config(d=8, heads=2, f=8, layers=1, vocabulary=260, context=8), texts)
    monkeypatch.setattr(side, "_corpus", lambda: task)
    monkeypatch.setitem(side.LENGTH, "text", 8)
    return task


def test_no_text_that_tests_trains(small_text):
    draw, (ids, targets) = side.data("text", np.random.default_rng(0))
    known = small_text.ids["train"].tolist()
    seen = set()
    for _ in range(20):
        rows, wanted = (X.tolist() for X in draw())
        assert len(rows) == side.WINDOWS and {len(row) for row in (*rows, *wanted)} == {8}
        for row, answers in zip(rows, wanted, strict=True):
            assert row[1:] == answers[:-1]
            assert any(known[i : i + 9] == [*row, answers[-1]] for i in range(len(known)))
            seen |= {*row, *answers}
    assert seen & set(ids.unique().tolist()) == {lm.LIMIT}
    asked = targets[targets >= 0]
    compare(asked, small_text.ids["test"][1:], name="each token of the test text, once")


def test_the_bits_are_those_of_the_language_model(small_text):
    torch.manual_seed(0)
    model, (_, held) = small_text.model(), side.data("text", None)
    found = side._bits(model, *held)
    wanted = lm.bits_per_byte(model, small_text.texts["test"], stride=8)
    assert abs(found["bits per byte"] - wanted) < 1e-3
    bytes_, tokens = lm.length(small_text.texts["test"]), len(small_text.ids["test"]) - 1
    assert abs(found["bits per token"] - wanted * bytes_ / tokens) < 1e-3


@pytest.mark.parametrize("task", side.STEPS)
def test_the_models_have_about_as_many_parameters(task):
    counts = {m: sum(map(math.prod, side.sizes(m, task).values())) for m in side.MIXERS}
    assert max(counts.values()) / min(counts.values()) < 1.01
    for mixer in ("softmax", "delta + window", "experts", "s4d"):
        model = side.build(mixer, task, 0)
        assert sum(p.numel() for p in model.parameters()) == counts[mixer]


@pytest.mark.parametrize("mixer", side.MIXERS)
def test_the_models_are_causal_and_look_back(mixer):
    model, ids = side.build(mixer, "recall", 1), memory_tasks.recall(np.random.default_rng(0), 2, side.PAIRS)[0]
    moved = ids.copy()
    moved[:, 9] = (moved[:, 9] + 1) % side.VOCABULARY["recall"]
    with torch.no_grad():
        Y, Z = (model(torch.from_numpy(X)) for X in (ids, moved))
    compare(Z[:, :9], Y[:, :9], name="the past", atol=1e-5)
    changes = (Z - Y).abs().amax((0, 2))
    assert changes[9] > 1e-2 and changes[13] > 1e-5
    assert changes[23] > 1e-7  # 14 tokens later, as far as two windows of 4 behind convolutions of 4 reach


def test_a_window_reaches_as_far_as_is_said():
    model, reach = side.build("window", "digits", 1), 2 * (side.NEAR + side.TAPS - 1)
    ids = torch.zeros(1, 64, dtype=torch.int64)
    moved = ids.clone()
    moved[0, 20] = 9
    with torch.no_grad():
        changes = (model(moved) - model(ids)).abs().amax((0, 2))
    assert (changes[20 : 21 + reach] > 0).all() and (changes[21 + reach :] == 0).all()
    assert reach < memory_tasks.FAR // 2  # so it never sees a far answer


@pytest.mark.parametrize("task", side.OFFSET)
def test_what_is_asked_for_is_a_token(task):
    draw, held = side.data(task, np.random.default_rng(0))
    for ids, targets in (draw(), held):
        assert ids.shape[1] == side.LENGTH[task] and ids.max() < side.VOCABULARY[task]
        for text, wanted in zip(ids.tolist(), targets.tolist(), strict=True):
            assert {answer for answer in wanted if answer >= 0} <= set(text)


def test_a_model_of_two_kinds_has_both():
    found = side.cores()
    assert side.parts("delta + softmax")["attend"] == [found["delta"], at.attention_fused]
    window = side.parts("delta + window")["attend"][1]
    mask = window.keywords["layout"].mask(20)
    assert (mask == layouts.window(side.NEAR, causal=True).mask(20)).all()
    sparse = found["sparse"].keywords["layout"].mask(20)
    assert (
        (sparse & ~mask).any()
        and not np.triu(sparse, 1).any()
        and layouts.layers_to_reach(sparse, wanted=np.tri(20, dtype=bool)) == 2
    )


def test_gates_reach_the_memory(rng):
    Q, K, V = torch.tensor(rng.standard_normal((3, 2, 7, 4)))
    gates = {name: torch.tensor(rng.uniform(0.2, 0.9, (2, 7, 1))) for name in side.GATES}
    found, (q, k) = side.cores(), (X / X.norm(dim=-1, keepdim=True) for X in (Q, K))
    # the duality: a scalar decay of fast weights is the state space with the logarithm of it
    compare(
        found["decay"](Q, K, V, **gates), at.fast_weights(q, gates["rate"] * k, V, decay=gates["decay"]), name="decay"
    )
    recurrent = at.fast_weights_recurrent
    compare(found["delta"](Q, K, V, **gates), recurrent(q, k, V, beta=gates["rate"]), name="delta")
    wanted = recurrent(q, k, V, beta=gates["rate"], decay=gates["decay"])
    compare(found["gated delta"](Q, K, V, **gates), wanted, name="gated delta")


def test_what_is_kept_while_writing_is_what_the_library_keeps(rng):
    n, h, k = 37, 3, 8
    Q, K, V = torch.tensor(rng.standard_normal((3, h, n, k)))
    cache = KeyValueCache()
    cache.append(K, V)
    kept = {"softmax": sum(X.numel() for X in cache.kept)}
    S = at.fast_weights_state(K, V)
    kept |= dict.fromkeys(("decay", "delta", "gated delta"), S.numel())
    kept["linear"] = (at.elu_plus_one(K).transpose(-1, -2) @ torch.cat([V, V[..., :1]], -1)).numel()
    found = side.cores()
    for name in ("window", "sparse"):
        row = found[name].keywords["layout"].mask(n)[-1]
        kept[name] = int(row.sum()) * 2 * h * k
    assert {name: side.writing(name, n, h, k)[0] for name in kept} == kept
    work = {}
    for name, run in {
        "softmax": lambda: at.attention(Q[:, -1:], K, V),
        "delta": lambda: at.fast_weights_recurrent(
            Q[:, -1:], K[:, -1:], V[:, -1:], beta=torch.full((h, 1, 1), 0.5, dtype=K.dtype), state=S
        ),
    }.items():
        with FlopCounterMode(display=False) as counter:
            run()
        work[name] = counter.get_total_flops()
    assert {name: side.writing(name, n, h, k)[1] for name in work} == work


def test_a_state_of_fixed_size_does_not_grow():
    names = ("linear", "performer", "decay", "delta", "gated delta", "mamba-2", "s4d")
    for name in names:
        assert side.writing(name, 64, 4, 64) == side.writing(name, 10**6, 4, 64)
    assert side.writing("window", 64, 4, 64) == side.writing("window", 10**6, 4, 64)
    assert side.writing("softmax", 128, 4, 64)[0] == 2 * side.writing("softmax", 64, 4, 64)[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: side.parts("rnn"), "mixer"),
        (lambda: side.data("parity", None), "task"),
        (lambda: side.writing("experts", 3, 1, 1), "name"),
    ],
)
def test_a_wrong_name_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(side, "STEPS", {"recall": 1})
    monkeypatch.setattr(side, "MIXERS", {name: side.MIXERS[name] for name in ("softmax", "window", "delta")})
    monkeypatch.setattr(side, "SEEDS", (0,))
    monkeypatch.setattr(side, "LENGTHS", (8,))
    monkeypatch.setattr(side, "steps_in_equal_time", lambda mixer, task: 1)
    out, kept = tmp_path / "out.json", {"first": [7.0], "curve": [7.0], "accuracy": 0.5, "seconds": 1.0}
    out.write_text(json.dumps(side.record({"recall window 0": kept}, {"linear": [3.0]}, {})), encoding="utf-8")
    assert side.main([str(out)]) == 0
    done = json.loads(out.read_text(encoding="utf-8"))
    assert done["runs"]["recall window 0"] == kept and len(done["runs"]["recall delta 0"]["first"]) == 1
    assert done["times"]["linear"] == [3.0] and done["times"].keys() == {*side.cores(), "s4d"}
    assert done["equal time"].keys() == {"recall window 0", "recall delta 0"}
    assert side.record(done["runs"], done["times"], done["equal time"]) == done
