"""The study of blanks: counts that look to both sides, what is measured, and that the record begins as a run does."""

import json
from pathlib import Path

import numpy as np
import pytest

from attnmath import span_study, spans
from attnmath.check import compare
from attnmath.ngram import KneserNey
from attnmath.torch.training import Run

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "span_corruption.json"


@pytest.mark.parametrize(("place", "until"), [(4, 9), (4, 6), (4, 5), (0, 3), (8, 9)])
def test_both_sides_are_the_joint_probabilities_of_the_counts(place, until, rng):
    """For each token: the product over all places up to the first one that is unknown, divided by the sum."""
    model = KneserNey(rng.integers(0, 5, 300), 5, order=4)
    ids = rng.integers(0, 5, 9)
    joint = np.zeros(5)
    for w in range(5):
        text = ids[:until].copy()
        text[place] = w
        joint[w] = np.prod([model.next(text[max(i - 3, 0) : i])[text[i]] for i in range(place, until)])
    ids[place] = 4 - ids[place]  # it is not looked at
    compare(span_study.both_sides(model, ids, place, until), joint / joint.sum(), atol=1e-9)


def test_counts_are_shown_what_a_model_is_shown(rng):
    """Each number again, by writing into the text what may be known of it."""
    model, k = KneserNey(rng.integers(0, 4, 400), 4, order=4), 9
    texts, masks = rng.integers(0, 4, (6, k)), rng.random((6, k)) < 0.4
    masks[:, 0] = False
    found = span_study.single(model, texts, masks, 2)
    assert found["blanks"] == masks.sum() and found["frequent"] == (texts[masks] == 2).sum()
    want = {name: [0, 0] for name in ("hidden", "guessed", "told")}
    for text, mask in zip(texts, masks, strict=True):
        for both in (False, True):
            guesses = text.copy()
            for i in np.flatnonzero(mask):
                end = next((j for j in range(i + 1, k) if mask[j]), k) if both else i + 1
                begin = max((j + 1 for j in range(i) if mask[j]), default=0)
                for name, known, first in (("hidden", text, begin), ("guessed", guesses, 0), ("told", text, 0)):
                    joint = np.zeros(4)
                    for w in range(4):
                        x = known[first:end].copy()
                        x[i - first] = w
                        joint[w] = np.prod([model.next(x[max(j - 3, 0) : j])[x[j]] for j in range(i - first, len(x))])
                    want[name][both] += int(joint.argmax() == text[i])
                    if name == "guessed":
                        best = joint.argmax()
                guesses[i] = best
    assert {name: found[name] for name in want} == want


def test_answers_are_compared_span_by_span():
    marks = [90, 91, 92]
    targets = [[90, 1, 91, 2, 3, 92]] * 3
    answers = [[90, 1, 91, 2, 92], [90, 4, 91, 2, 3, 92], [90, 91, 92]]
    assert span_study.matches(answers, targets, marks) == (2, 6, 1)


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    assert span_study.record(record["baselines"], record["sweep"], record["fill"]) == record
    rates = [f"{rate:g}" for rate in span_study.RATES]
    assert list(record["sweep"]) == rates and max(rates, key=record["sweep"].get) == rates[1], "the preset's rate"
    assert float(rates[1]) == span_study.t5.PRESETS["book"].rate
    assert set(record["fill"]) == {f"{m} {seed}" for m in span_study.MEANS for seed in span_study.SEEDS}
    for name, run in record["fill"].items():
        mean = name.split()[0]
        for told in run["written"].values():
            assert told["right"] <= told["spans"] and told["malformed"] <= told["texts"] == span_study.TEXTS
        cut, number = spans.span_counts(32, 0.15, float(mean))
        assert run["written"][mean]["spans"] == number * span_study.TEXTS
        for bits in run["bits"].values():
            assert abs(bits["tokens"] + bits["sentinels"] - bits["all"]) < 2e-4 and cut == 5


@pytest.mark.slow
@pytest.mark.parametrize("mean", span_study.MEANS)
def test_the_committed_study_begins_as_a_run_does_today(mean, tmp_path):
    record = json.loads(RECORD.read_text())["fill"][f"{mean} 2"]
    run = Run(span_study.task(2, mean=float(mean)), tmp_path)
    for chosen in run.task.epoch(0)[: span_study.FIRST]:
        run._update(run.task.batch(chosen, run.device))
    compare(run.losses, record["first"], name=f"mean length {mean}", atol=2e-4)
    assert sum(P.numel() for P in run.model.parameters()) == record["parameters"]
