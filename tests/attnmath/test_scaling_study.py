"""The sweep: no run reads a token twice, budgets are kept, and the committed record begins as a run does today."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import bpe
from attnmath import scaling_study as study
from attnmath.check import compare
from attnmath.tasks import lm

RECORD = json.loads((Path(__file__).parents[2] / study.FILE).read_text(encoding="utf-8"))
RUNS = RECORD["runs"]
WORDS = "the mean of an array is the sum of all its numbers over how many there are and no more "


@pytest.fixture(scope="module")
def small():
    texts = [WORDS + str(i) for i in range(60)]
    tokens = bpe.train(texts, 270, (lm.END,))
    return study.Data(tokens, lm.stream(tokens, texts), {"test": (lm.stream(tokens, texts[:5]), lm.length(texts[:5]))})


def config(**options):
    sizes = {"d": 8, "heads": 1, "f": 32, "layers": 1, "vocabulary": 270, "context": 16, "batch": 3, "warmup": 2}
    return lm.Config(**sizes | {"epochs": 2, "steps": 20, "seed": 5} | options)


def test_no_token_is_predicted_twice_and_windows_come_in_another_order(small):
    task = study.Once(config(), small)
    starts = np.concatenate([task.epoch(0), task.epoch(1)]).ravel()
    read = (starts[:, None] + 1 + np.arange(16)).ravel()
    assert len(set(read)) == len(read) == 2 * 20 * 3 * 16 and max(read) < len(small.train)
    assert (np.diff(starts) < 0).any()
    other = study.Once(config(seed=6), small).epoch(0)
    assert (task.epoch(0) != other).any() and (task.epoch(0) == study.Once(config(), small).epoch(0)).all()
    batch = task.batch(task.epoch(0)[0], torch.device("cpu"))
    compare(batch[1], small.train[task.epoch(0)[0][1] :][:17], atol=0.0)


def test_a_text_that_is_too_short_is_refused_in_one_line(small):
    with pytest.raises(ValueError, match=r"the run reads 48000 tokens and the text has .* take a larger model") as told:
        study.Once(config(steps=500), small)
    assert "\n" not in str(told.value)


def test_bits_are_those_of_the_held_out_text_by_byte(small):
    task = study.Once(config(), small)
    torch.manual_seed(0)
    model = task.model().eval()
    ids, size = small.held["test"]
    total = 0.0
    for first in range(0, len(ids) - 1, 16):  # side by side; the last window reaches back
        begin = min(first, len(ids) - 17)
        row = torch.from_numpy(ids[begin : begin + 17])
        with torch.no_grad():
            logp = torch.log_softmax(model(row[None, :-1])[0].double(), -1)
        total -= sum(float(logp[i, row[i + 1]]) for i in range(first - begin, 16))
    compare(task.evaluate(model)["bits"], total / np.log(2) / size, atol=1e-5)


def test_weights_that_multiply_are_counted():
    torch.manual_seed(0)
    tokens = bpe.BytePairs(tuple((i % 256 + 1, 1 + i // 256) for i in range(255)), (lm.END,))
    for d in (6, 16, 48):
        model = lm.LanguageModel(replace(study.BASE, d=d, heads=max(1, d // 16), f=4 * d), tokens)
        named = dict(model.named_parameters())
        matrices = sum(P.numel() for name, P in named.items() if P.ndim == 2 and "position" not in name)
        assert study.parameters(d) == matrices, "the words' table multiplies as the head"


def test_runs_spend_their_budgets():
    for name, one in study.plan().items():
        (own,) = one.args
        C = 6 * study.parameters(own.d) * own.epochs * own.steps * study.WINDOW
        assert C == pytest.approx(float(name.split()[0]), rel=0.03), name
        assert own.warmup == own.epochs * own.steps // 10 and own.rate == study.rate(own.d)


def test_the_record_is_whole():
    assert list(RUNS) == list(study.plan()) and study.record(RUNS) == RECORD
    for name, one in study.plan().items():
        (own,), found = one.args, RUNS[name]
        assert (found["d"], found["N"]) == (own.d, study.parameters(own.d))
        assert found["D"] == own.epochs * own.steps * study.WINDOW
        assert len(found["bits"]) == own.epochs and len(found["first"]) == study.FIRST


@pytest.mark.slow
def test_the_committed_study_begins_as_its_runs_do_today():
    """In a process of its own: with types checked at every call, reading the text takes half a minute."""
    names = ["1e+10 8 1", "3e+10 16 2", "1e+11 24 1", "3e+11 64 1"]
    code = f"import json; from attnmath import scaling_study as s; print(json.dumps([s.begin(n) for n in {names}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, losses in zip(names, json.loads(done.stdout), strict=True):
        compare(np.array(losses), np.array(RUNS[name]["first"]), name=name, atol=2e-4)


def test_one_run_from_beginning_to_end(small, monkeypatch):
    monkeypatch.setattr(study, "data", lambda: small)
    found = study.run(config(rate=1e-2))
    assert found["d"] == 8 and found["D"] == 40 * study.WINDOW
    assert len(found["bits"]) == 2 and found["bits"][1] < found["bits"][0] < 9
