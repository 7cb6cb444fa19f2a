"""The record of the comparison is what its command makes, and every model is tuned as the others are."""

import json
import math
import time
from pathlib import Path

import pytest

from attnmath import side_by_side as side
from attnmath import side_by_side_study as study
from attnmath.check import compare

RECORD = json.loads((Path(__file__).parents[2] / study.STUDY.file).read_text(encoding="utf-8"))
MODELS = RECORD["models"]


def test_the_record_is_whole():
    assert list(MODELS) == [f"{task} {mixer}" for task in study.STEPS for mixer in study.WHO[task]]
    assert RECORD["times"].keys() == {*side.cores(), "s4d"}
    assert all(len(row) == len(side.LENGTHS) for row in RECORD["times"].values())
    assert study.record(MODELS, RECORD["times"]) == RECORD
    for name, found in MODELS.items():
        task, mixer = name.split(maxsplit=1)
        timed = task == "recall" and mixer in study.QUICK
        assert ("equal time" in found) == ("steps" in found) == timed
        assert ("longer" in found) == (task == "recall" and mixer in study.LONGER)
        total = study.STEPS[task]
        for part, steps in {"runs": total, "equal time": found.get("steps"), "longer": 2 * total}.items():
            runs = found.get(part, [])
            assert len(runs) == (len(study.SEEDS) if part in found else 0)
            for run in runs:
                assert len(run["curve"]) == math.ceil(steps / study.KEEP) and len(run["first"]) == 4
                assert 0 <= run["accuracy"] <= 1 and 0 <= run["validation"] <= 1 and run["seconds"] > 0.5


@pytest.mark.parametrize("name", MODELS)
def test_each_model_is_tuned_as_the_others_and_tested_with_what_was_chosen(name):
    task, mixer = name.split(maxsplit=1)
    tried, runs = MODELS[name]["sweep"], MODELS[name]["runs"]
    known = {json.dumps(setting): scores for setting, scores in tried}
    assert len(known) == len(tried)
    assert tried == study.sweep(mixer, task, lambda seed, setting: known[json.dumps(setting)][seed])
    best, _ = study.chosen(tried)
    assert [runs[seed]["validation"] for seed in study.tuning(mixer, task)] == known[json.dumps(best)]
    for start in {setting.get("start") for setting, _ in tried}:
        rates = [setting["rate"] for setting, _ in tried if setting.get("start") == start]
        assert len(rates) >= 3 and max(rates) > 9.9 * min(rates)


def test_a_grid_whose_best_is_its_end_goes_on_and_one_that_is_solved_does_not():
    best = {"rate": 0.1875}

    def peak(seed, setting):
        return 0.9 - abs(math.log(setting["rate"] / best["rate"])) / 99

    def rates(score, mixer="softmax", task="recall"):
        return [setting["rate"] for setting, _ in study.sweep(mixer, task, score)]

    assert rates(peak)[4:] == [0.075, 0.1875]
    best["rate"] = 1e-4
    assert rates(peak)[4:] == [1.2e-3, 4.8e-4]
    assert len(rates(lambda seed, setting: 1.0)) == 4
    best["rate"] = 9e-3
    assert len(rates(peak)) == 4 and len(rates(peak, task="digits")) == 8
    slow = study.sweep("decay", "digits", lambda seed, one: peak(seed, one) + (one["start"] == "published") / 2)
    assert len(slow) == 6 and study.chosen(slow)[0] == {"rate": 1e-2, "start": "published"}
    best["rate"] = 1e-4  # the start that is best goes on, and not the other one
    slow = study.sweep("decay", "digits", lambda seed, one: peak(seed, one) + (one["start"] == "published") / 2)
    assert [(one["rate"], one["start"]) for one, _ in slow[6:]] == [(1.2e-3, "published"), (4.8e-4, "published")]


def test_the_mean_of_the_seeds_chooses():
    scores = {3e-3: (0.1, 0.1), 1e-2: (0.9, 0.3), 2e-2: (0.7, 0.7), 3e-2: (0.6, 0.75)}
    tried = study.sweep("delta", "recall", lambda seed, setting: scores[setting["rate"]][seed])
    assert study.chosen(tried)[0] == {"rate": 2e-2} and [list(s) for _, s in tried][1] == [0.9, 0.3]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_first_steps_are_those_of_the_record(name):
    task, mixer = name.split(maxsplit=1)
    best, _ = study.chosen(MODELS[name]["sweep"])
    for seed in (0, 2):
        again = study.train(mixer, task, seed, best, steps=4)["first"]
        compare(again, MODELS[name]["runs"][seed]["first"], name="losses", atol=2e-3)


def test_in_equal_time_the_rate_is_planned_for_the_steps_that_are_taken(monkeypatch):
    found = MODELS["recall performer"]
    best, _ = study.chosen(found["sweep"])
    again = study.train("performer", "recall", 2, best, steps=4, total=found["steps"])["first"]
    compare(again, found["equal time"][2]["first"], name="losses", atol=2e-3)
    monkeypatch.setattr(study, "steps_in_equal_time", lambda mixer, task: 60)
    monkeypatch.setitem(study.STEPS, "recall", 80)
    monkeypatch.setattr(study, "sweep", lambda mixer, task: [[{"rate": 1e-2}, [0.5, 0.5]]])
    study._trained.cache_clear()
    made = study.find("performer", "recall")
    study._trained.cache_clear()
    assert made["steps"] == 60 and [len(run["curve"]) for run in made["equal time"]] == [3, 3, 3]
    assert made["equal time"][2]["curve"] == study.train("performer", "recall", 2, {"rate": 1e-2}, total=60)["curve"]
    assert made["equal time"][2]["curve"][2] != made["runs"][2]["curve"][2]


@pytest.mark.slow
def test_equal_time_is_a_ratio_of_times(monkeypatch):
    """A model whose steps are twice as long takes half as many; softmax attention takes its own number."""
    study.steps_in_equal_time.cache_clear()
    alone = study.steps_in_equal_time("softmax", "recall", rounds=9)
    assert abs(alone / study.STEPS["recall"] - 1) < 0.3
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

    quick = study.steps_in_equal_time("window", "recall", rounds=5)
    study.steps_in_equal_time.cache_clear()
    monkeypatch.setattr(side, "build", slow)
    assert study.steps_in_equal_time("window", "recall", rounds=5) < 0.75 * quick
    study.steps_in_equal_time.cache_clear()


@pytest.mark.parametrize(
    ("call", "said"),
    [(lambda: study.settings("rnn", "recall"), "mixer"), (lambda: study.sweep("softmax", "parity"), "task")],
)
def test_a_wrong_name_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "STEPS", {"recall": 1})
    monkeypatch.setattr(study, "WHO", {"recall": ("softmax", "window", "delta")})
    monkeypatch.setattr(study, "RATES", {"recall": (1e-3, 2e-3)})
    monkeypatch.setattr(study, "TRIES", 0)
    monkeypatch.setattr(study, "SEEDS", (0,))
    monkeypatch.setattr(side, "LENGTHS", (8,))
    monkeypatch.setattr(study, "steps_in_equal_time", lambda mixer, task: 1)
    study._trained.cache_clear()
    out, kept = tmp_path / "out.json", {"sweep": [], "runs": [{"first": [7.0], "accuracy": 0.5}]}
    out.write_text(json.dumps(study.record({"recall window": kept}, {"linear": [3.0]})), encoding="utf-8")
    assert study.main([str(out)]) == 0
    study._trained.cache_clear()
    done = json.loads(out.read_text(encoding="utf-8"))
    assert list(done["models"]) == ["recall softmax", "recall window", "recall delta"]
    assert done["models"]["recall window"] == kept
    (run,) = done["models"]["recall delta"]["runs"]
    best, _ = study.chosen(done["models"]["recall delta"]["sweep"])
    assert run["first"] == study.train("delta", "recall", 0, best, steps=1)["first"]
    assert done["times"]["linear"] == [3.0] and done["times"].keys() == {*side.cores(), "s4d"}
    assert "equal time" in done["models"]["recall delta"] and "equal time" not in done["models"]["recall softmax"]
    assert study.record(done["models"], done["times"]) == done
