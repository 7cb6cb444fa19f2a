"""The study of three streams: what its runs see, what it measures, and the committed record."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import films_study as study
from attnmath.check import compare
from attnmath.digits import digits
from attnmath.films import COUNTS, FLASHES, films

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "three_modalities.json"


@pytest.fixture(scope="module")
def made():
    return films(np.random.default_rng(3), 60, digits().train)


def double(made):
    return made._replace(pictures=made.pictures.astype(float))


def test_places_are_times_or_orders(made):
    order, merged = (study.places(made, name).numpy() for name in ("order", "merged"))
    for row in range(len(order)):
        there = np.flatnonzero(made.there[row])
        assert order[row, there].tolist() == list(range(len(there)))
        by_time = sorted(there, key=lambda i: made.times[row, i])
        assert merged[row, by_time].tolist() == list(range(len(there)))
    compare(study.places(made, "time").numpy(), made.times, atol=0.0)


@pytest.mark.parametrize("name", study.RUNS)
def test_a_run_reads_what_it_sees_and_nothing_else(name, made):
    """Other rows in the place of hidden ones, and of padding, change no logit; other rows that it sees do."""
    torch.manual_seed(5)
    model = study.Senses(study.RUNS[name]).double().eval()
    hidden = study.RUNS[name].without
    with torch.no_grad():
        Z = model(double(made))
        turned = {
            "pictures": made._replace(pictures=made.pictures[:, ::-1].copy()),
            "sounds": made._replace(sounds=np.where(made.sounds > 0, 1 + made.sounds % 39, 0)),
            "text": made._replace(text=np.concatenate([made.text[:, :1], made.text[:, 1:] % 26 + 1], -1)),
        }
        turned["text"].text[made.text == 0] = 0
        for stream, other in turned.items():
            same = (model(double(other)) - Z).abs().max(-1).values.numpy() < 1e-12
            assert same.all() if stream in hidden else not same.any(), stream
        padded = made.times + 50 * ~made.there
        compare(model(double(made._replace(times=padded))), Z, name="times of padding", atol=1e-9)


def test_frequencies_leave_some_pairs_alone_and_run_from_fast_to_slow():
    found = study.frequencies().numpy()
    assert (found[: study.FREE] == 0).all() and (np.diff(found[study.FREE :]) < 0).all()
    compare(2 * np.pi / found[[study.FREE, -1]], np.array(study.PERIODS), atol=1e-9)


class Rule(study.Senses):
    """A model that takes the flash nearest to the first word."""

    def __init__(self):
        super().__init__(study.RUNS["time"])

    def forward(self, made, record=None):
        heard = made.times[:, COUNTS[0]] + 1
        away = abs(made.times[:, :FLASHES] - heard[:, None])
        Z = np.zeros((len(away), 10))
        np.put_along_axis(Z, made.digits, 20.0 - away, -1)
        return torch.from_numpy(Z)


def test_clocks_are_moved_together_and_sounds_alone():
    first = films(np.random.default_rng(8), 300, digits().test)
    first = first._replace(answer=first.digits[np.arange(300), first.at[:, 0]])  # the rule answers for the first word
    found = study.lagged(Rule(), first)
    assert found[study.LAGS.index(0)] == 1 and found[0] < 0.4 and found[-1] < 0.4
    assert study.shifted(Rule(), first) == [1.0] * len(study.SHIFTS)


def test_a_model_that_knows_is_right_about_both(monkeypatch):
    monkeypatch.setattr(study, "answers", lambda model, made: made.answer)
    monkeypatch.setattr(study, "TESTED", 50)
    found = study.tested(Rule())
    assert found["right"] == found["both"] == 1
    monkeypatch.setattr(study, "answers", lambda model, made: made.digits[:, 0])
    assert study.tested(Rule())["both"] == 0 < study.tested(Rule())["right"]


def test_looking_is_told_by_how_much_later_a_picture_is(monkeypatch):
    monkeypatch.setattr(study, "TESTED", 200)
    torch.manual_seed(2)
    model = study.Senses(study.RUNS["time"])
    params = model.params.tree()["encoder"]["layers"]["0"]["attention"]
    with torch.no_grad():  # every query and key is the same vector, in pairs that turn
        for name in ("query", "key"):
            params[name]["weight"].zero_()
            one = torch.cat([torch.zeros(2 * study.FREE), torch.ones(study.D // study.HEADS - 2 * study.FREE)])
            params[name]["bias"].copy_(3 * one.repeat(study.HEADS))
    layer = np.array(study.looked(model)[0], float)
    middle = study.APART.index(0)
    assert (np.nanargmax(layer, -1) == middle).all() and (layer[:, middle] > 5 * layer[:, middle + 6]).all()
    seen = films(np.random.default_rng(60), study.TESTED, digits().test)
    apart = seen.times[:, None, :FLASHES] - seen.times[:, FLASHES : FLASHES + COUNTS[1], None]
    apart = set(apart[seen.sounds > 0].ravel())
    assert [ticks in apart for ticks in study.APART] == (~np.isnan(layer[0])).tolist()


def test_the_rules_of_the_baselines(made):
    found = study.baselines()
    assert found["nearest"] == 1.0 and found["nearest, read"] > 0.9
    assert 0.6 < found["before"] < 0.75, "5 of 11 words stand before their flash, unless it is the first"
    assert found["before, read"] < found["before"]


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    assert study.record(record["baselines"], record["runs"]) == record
    assert list(record["runs"]) == [f"{name} {seed}" for name in study.RUNS for seed in study.SEEDS[name]]
    for name, one in record["runs"].items():
        assert len(one["curve"]) == study.STEPS // study.EVERY
        if name.startswith("order"):
            assert one["both"] == 0 and len(set(one["shifts"])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["time", "no marks"])
def test_the_committed_study_begins_as_a_run_does_today(name):
    found = json.loads(RECORD.read_text())["runs"][f"{name} 2"]
    model, rng = study.start(name, 2)
    compare(study.fit(model, rng, study.FIRST), found["first"], atol=2e-4)
    assert sum(P.numel() for P in model.parameters()) == found["parameters"]
