"""The study of what training finds: its goals, its record and the first steps of its runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import universal_study as study
from attnmath.check import compare

RECORD = Path(__file__).parents[2] / "chapters" / "09_theory" / "universal.json"
FOUND = json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_record_is_whole():
    assert study.record(*(FOUND[name] for name in study.STUDY.names)) == FOUND
    plan = study.STUDY.plan()
    assert all(list(FOUND[part]) == list(plan[part]) for part in study.STUDY.names)
    assert list(FOUND["runs"]) == [f"{goal} {seed}" for goal in study.GOALS for seed in study.SEEDS]
    for name, run in FOUND["runs"].items():
        assert ("outside" in run) is name.startswith("smooth")
        assert run["parameters"] == sum(leaf.numel() for leaf in study.leaves(study.start(1)))


@pytest.mark.parametrize("goal", ["smooth", "table"])
def test_the_sweep_chose_the_rate(goal):
    errors = {name.split()[1]: run["choice"] for name, run in FOUND["sweep"].items() if name.startswith(goal)}
    assert errors[f"{study.TUNED[goal]:g}"] == min(errors.values()) and len(errors) == len(study.TRIED)


@pytest.mark.parametrize("name", ["smooth 1", "smooth 4", "table 2", "long 3"])
def test_the_study_begins_as_a_run_does_today(name):
    goal, seed = name.split()
    _, losses = study.train(goal, int(seed), study.FIRST)
    compare(np.array(losses), np.array(FOUND["runs"][name]["first"]), rtol=1e-3, atol=1e-4)


def test_goals_are_what_they_say(rng):
    X = rng.random((300, 2))
    compare(study.smooth(torch.tensor(X)).numpy(), np.stack([X.max(-1), X[:, 0] * X[:, 1]], -1), atol=0.0)
    X = np.concatenate([X, [[0.0, 1.0], [1.0, 0.124]]])
    a, b = np.minimum(X // 0.125, 7).astype(int).T
    T = study.random_table()
    compare(study.tabled(torch.tensor(X)).numpy(), np.stack([T[0, a, b], T[1, a, b]], -1), atol=0.0)
    assert 0.35 < T.mean() < 0.65


def test_each_token_reads_both_numbers_and_its_place():
    params, X = study.start(3), torch.tensor([[0.2, 0.7], [0.2, 0.9], [0.7, 0.2]])
    Y = study.answers(params, X).detach()
    assert abs(Y[0, 0] - Y[1, 0]) > 1e-6, "the first token hears of the second"
    assert abs(Y[0, 0] - Y[2, 1]) > 1e-6, "a token knows which it is"
