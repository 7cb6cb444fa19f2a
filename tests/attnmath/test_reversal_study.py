"""The record of the study of strings in reverse, its strings and its four networks."""

import json
from pathlib import Path

import pytest
import torch

from attnmath import reversal_study as study
from attnmath.check import compare

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / study.FILE).read_text(encoding="utf-8"))
PARTS = ("sweep", "longer", "test")


def test_the_record_is_whole():
    assert study.record(*(RECORD[part] for part in PARTS)) == RECORD
    assert {part: list(RECORD[part]) for part in PARTS} == {part: list(runs) for part, runs in study.plan().items()}


def test_the_chosen_rates_are_those_that_the_validation_strings_prefer():
    """At length 12, but for the vector that copies: there at length 3, beyond which it knows next to nothing."""
    for case, chosen in study.TUNED.items():
        place = study.LENGTHS.index(3 if case == "fixed vector copy" else 12)
        found = {rate: RECORD["sweep"][f"{case} {rate:g}"][place] for rate in study.RATES}
        assert found[chosen] == max(found.values()), case


def test_strings_are_written_in_reverse_or_as_they_are():
    x, y, y_in = study.batch(5, 3, torch.Generator().manual_seed(0))
    assert torch.equal(y, x.flip(1)) and (y_in[:, 0] == study.A).all() and torch.equal(y_in[:, 1:], y[:, :-1])
    x, y, _ = study.batch(5, 3, torch.Generator().manual_seed(0), "copy")
    assert torch.equal(x, y)


def test_the_fixed_vector_knows_the_last_state_alone_and_attention_all_of_them():
    """Two strings that leave the same last state cannot be told apart without attention."""
    x, _, y_in = study.batch(6, 2, torch.Generator().manual_seed(1))
    other = x.clone()
    other[:, 0] = (other[:, 0] + 1) % study.A
    for name, model in study.MODELS.items():
        p = study.start(name, torch.Generator().manual_seed(2))
        W, U, b = p["encoder"]
        p["encoder"] = W, 0 * U, b  # a state of the last letter alone
        changed = (model(p, x, y_in)[0] - model(p, other, y_in)[0]).abs().max().item()
        assert (changed > 1e-4) == (name != "fixed vector"), name


@pytest.mark.slow
def test_a_run_comes_again(as_users_call):
    found = study.tested("Luong, general", "reverse", 2)
    compare(found, RECORD["test"]["Luong, general reverse 2"], atol=0.1, rtol=0.0)
