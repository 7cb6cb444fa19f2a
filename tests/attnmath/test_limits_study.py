"""The record of the page on limits is what its command makes, and the models read what the page says."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import limits_study as study
from attnmath.check import compare

RECORD = json.loads((Path(__file__).parents[2] / "chapters/09_theory/limits.json").read_text(encoding="utf-8"))


def test_the_record_is_whole():
    assert study.record(*(RECORD[name] for name in study.STUDY.names)) == RECORD
    plan = study.STUDY.plan()
    assert all(list(RECORD[part]) == list(plan[part]) for part in study.STUDY.names)
    assert list(RECORD["lookup"]) == [f"{layers} {seed}" for layers in (1, 2) for seed in study.SEEDS["lookup"]]
    for name, run in RECORD["lookup"].items():
        assert [step for step, _ in run["log"]] == list(range(50, study.LOOKUPS[int(name[0])] + 1, 50))
    for run in RECORD["parity"].values():
        assert list(run["lengths"]) == [str(n) for n in study.LENGTHS] and len(run["first"]) == study.FIRST


def test_the_sweep_chose_the_rates():
    for layers, rate in study.TUNED.items():
        right = {name.split()[1]: run["choice"] for name, run in RECORD["sweep"].items() if name[0] == str(layers)}
        assert right[f"{rate:g}"] == max(right.values()) and len(right) == len(study.TRIED)


@pytest.mark.parametrize("name", ["1 1", "2 5"])
def test_the_first_steps_of_the_lookups_are_those_of_the_record(name):
    layers, seed = map(int, name.split())
    again = study.look_up(layers, seed, steps=study.FIRST)["first"]
    compare(again, RECORD["lookup"][name]["first"], name="losses", atol=2e-3)


@pytest.mark.parametrize("seed", study.SEEDS["parity"])
def test_the_first_steps_of_parity_are_those_of_the_record(seed):
    compare(study.parity(seed, study.FIRST)["first"], RECORD["parity"][str(seed)]["first"], name="losses", atol=2e-3)


def test_the_texts_are_what_they_say(rng):
    ids, answers = study.lookups(rng, 200)
    for row, answer in zip(ids, answers, strict=True):
        f, g, x = row[: study.NAMES], row[study.NAMES : -1], row[-1]
        assert g[f[x]] == answer
    ids, odd = study.bits(rng, 200, 7)
    assert ids.shape == (200, 8) and (ids[:, -1] == 2).all() and set(ids[:, :-1].ravel()) == {0, 1}
    compare(odd, [sum(row) % 2 for row in ids[:, :-1].tolist()])


@torch.no_grad()
def test_a_model_of_parity_sees_no_order_and_one_of_tables_does(rng):
    torch.manual_seed(0)
    parity, tables = study.Reader(3, 0, 2, 2), study.Reader(study.NAMES, 2 * study.NAMES + 1, 2, study.NAMES)
    ids, _ = study.bits(rng, 20, 9)
    mixed = np.concatenate([rng.permuted(ids[:, :-1], axis=1), ids[:, -1:]], 1)
    compare(*(parity(torch.from_numpy(rows)) for rows in (ids, mixed)), atol=1e-5)
    ids, _ = study.lookups(rng, 20)
    mixed = np.concatenate([rng.permuted(ids[:, :-1], axis=1), ids[:, -1:]], 1)
    assert abs(tables(torch.from_numpy(ids)) - tables(torch.from_numpy(mixed))).max() > 1e-3


def test_a_model_that_counts_is_right_and_moves_and_a_coin_does_neither():
    class Counter:
        def __call__(self, ids):
            z = 4.0 * (-1.0) ** ids[:, :-1].sum(-1)
            return torch.stack([z, -z], -1)

    found = study.at_length(Counter(), 9)
    assert found == {"right": 1.0, "loss": pytest.approx(np.log1p(np.exp(-8)), abs=1e-4), "moved": 16.0}
    coin = study.at_length(lambda ids: torch.zeros(len(ids), 2), 9)
    assert coin["loss"] == pytest.approx(np.log(2), abs=1e-4) and coin["moved"] == 0
