"""The record of the study of heads that hardly move, and its task."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnmath import tangent_study as study
from attnmath.check import compare

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / study.STUDY.file).read_text(encoding="utf-8"))


def test_the_record_is_whole():
    assert study.STUDY.record(RECORD["lines"], RECORD["choices"]) == RECORD
    assert {part: list(RECORD[part]) for part in ("lines", "choices")} == {
        part: list(runs) for part, runs in study.plan().items()
    }


@pytest.mark.slow
def test_runs_come_again(as_users_call):
    """Without the tests' checks of shapes, which take longer than the training."""
    wanted = RECORD["lines"]["4.2"], RECORD["choices"]["1.3"]
    for found, want in zip((study.learn(4, 2), study.choose(1, 3)), wanted, strict=True):
        for name in found.keys() - {"left"}:  # what is left is next to nothing, and the machine's
            compare(found[name], want[name], name=name, atol=0.0, rtol=2e-2)


def test_one_token_is_marked_and_the_target_is_its_third_component(rng):
    X, y = study.marked(rng, 50, n=6, d=16)
    marks = X[:, :, 0] == study.MARK
    assert (marks.sum(1) == 1).all() and not marks[:, -1].any()
    compare(X[marks][:, 2], y)
    assert (X[:, -1] == X[0, -1]).all() and abs(y.mean()) < 0.5 and (X[~marks][:, 0] == 0).all()
    assert len(np.unique(marks.argmax(1))) == 5, "every place is marked now and then"
