"""The study of a language model that learns to see: its sentences, strips and measures, and the committed record."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attnmath import digits
from attnmath import flamingo_study as study
from attnmath.check import compare

RECORD = Path(__file__).parents[2] / "chapters" / "08_at_work" / "gated_cross_attention.json"


def test_sentences_say_what_is_true_and_kept_combinations_are_never_read(rng):
    seen = set()
    for text in study.reading(rng, 300).tolist():
        words = [study.WORDS[k] for k in text if k != study.PAD]
        row = [int(word) for word in words[4 : words.index(".")]]
        assert study.COUNTS.index(words[1]) == len(row) - 1 and not study.held_out(row)
        ask, told = words[words.index(".") + 1], [int(word) for word in words[words.index(".") + 2 : -1]]
        assert told == {"sum": [sum(row)], "largest": [max(row)], "backwards": row[::-1]}[ask] and words[-1] == "."
        seen.add((len(row), ask))
    assert len(seen) == 9, "each number of digits with each question"
    kept = [study.combination(rng, kept=True) for _ in range(50)]
    assert all(study.held_out(row) and study.held_out(row[::-1]) and len(row) > 1 for row in kept)
    rows = [study.combination(rng) for _ in range(2000)]
    share = np.mean([study.held_out(rng.integers(0, 10, 3).tolist()) for _ in range(2000)])
    assert 0.1 < share < 0.3 and not any(map(study.held_out, rows))


def test_strips_show_their_digits_from_left_to_right_by_the_hands_of_one_part(rng):
    part, other = digits.digits().test, digits.digits().train
    X, rows = study.strips(rng, 40, part)
    where = set()
    for picture, row in zip(X.numpy(), rows, strict=True):
        slots = [s for s in range(3) if picture[..., 8 * s : 8 * s + 8].any()]
        where.add(tuple(slots))
        assert len(slots) == len(row)
        for slot, digit in zip(slots, row, strict=True):
            own = picture[..., 8 * slot : 8 * slot + 8]
            assert (part.X[part.y == digit] == own).all((1, 2, 3)).any()
            assert not (other.X == own).all((1, 2, 3)).any()
    assert len(where) == 7, "every choice of slots"


class Told(torch.nn.Module):
    """A model that writes given words, whatever it sees: word i of each text at place i."""

    def __init__(self, texts):
        super().__init__()
        self.ids = study.encoded(texts, study.SENTENCE + 1)

    def forward(self, ids, memory=None):
        return torch.nn.functional.one_hot(self.ids[:, 1 : ids.shape[1] + 1], len(study.WORDS)).double()


def test_what_is_written_ends_at_the_stop_and_is_counted_by_its_parts():
    rows = [[4, 2, 7], [4, 2], [5], [3, 3]]
    texts = [study.sentence(row, "sum") for row in ([4, 2, 7], [4, 3], [5], [3])]
    first = study.written(Told(texts), [["<picture>"]] * 4)
    assert [" ".join(words) for words in first[:2]] == ["three digits : 4 2 7 .", "two digits : 4 3 ."]
    assert [study.listed(words) for words in first] == [[4, 2, 7], [4, 3], [5], [3]]
    found = study.captions(Told(texts), None, rows)
    assert found["count"] == 0.75 and found["list"] == 0.5
    assert found["digit"] == round(6 / 8, 4) and found["sum"] == 0.5


def test_a_loss_counts_words_and_no_padding():
    model = Told([study.sentence([5], "sum"), study.sentence([4, 2, 7], "largest")])
    ids = study.encoded([study.sentence([5], "sum"), study.sentence([4, 2, 7], "largest")], study.SENTENCE)
    right = float(np.log(np.e + len(study.WORDS) - 1) - 1)  # one_hot's surprise at its own word
    compare(float(study.loss(model, ids)), right, atol=1e-6)
    ids[0, 9:] = study.PICTURE  # nothing is asked about a mark
    compare(float(study.loss(model, ids)), right, atol=1e-6)


def test_the_committed_record_is_whole():
    record = json.loads(RECORD.read_text())
    runs, sweep, tuned = (record[name] for name in ("runs", "sweep", "tuned"))
    assert study.record(runs, sweep, tuned) == record
    assert list(runs) == ["blind", *(f"{name} {seed}" for seed in study.SEEDS for name in study.RUNS)]
    for name, one in runs.items():
        if name.startswith(("frozen", "open")):
            assert one["texts"] == one["texts before"] == runs["blind"]["texts"], "exactly"
    for name, one in tuned.items():
        assert (one["texts"] == one["texts before"]) == name.startswith("open"), "exactly"
    assert list(sweep) == [f"{name} {rate:g}" for name, rates in study.RATES.items() for rate in rates]
    other = [(name, rate) for name, rate in study.CHOSEN.items() if rate != study.RATE]
    assert list(tuned) == [f"{name} {rate:g} {seed}" for name, rate in other for seed in study.SEEDS]


def test_the_chosen_rates_are_the_best_of_the_sweep_and_no_end_of_it():
    sweep = json.loads(RECORD.read_text())["sweep"]
    for name, rates in study.RATES.items():
        assert study.best(sweep, name) == study.CHOSEN[name] not in (min(rates), max(rates))
        assert max(rates) >= 9.99 * min(rates)


@pytest.mark.slow
def test_the_committed_study_begins_as_a_run_does_today():
    found = json.loads(RECORD.read_text())["runs"]["nothing 2"]
    model, parameters = study.start("nothing", 2)
    rng = np.random.default_rng(1002)
    rate, steps = study.RATE, study.LOOKING
    losses, optimiser = [], torch.optim.Adam(parameters, rate)
    for step in range(study.FIRST):
        optimiser.param_groups[0]["lr"] = rate * (step + 1) / (steps / 10)
        loss = study.caption_loss(model, rng)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        losses.append(loss.item())
    compare(losses, found["first"], atol=2e-4)
    assert sum(P.numel() for P in parameters) == found["trained"]
