"""Calibration error and error rates against implementations that nobody here wrote, and at their edges."""

import subprocess
import sys
from difflib import SequenceMatcher

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.numpy as an
from attnmath.check import compare
from attnmath.metrics import ErrorRates, calibration_error, error_rates

few = settings(max_examples=25, deadline=None)
words = st.lists(st.lists(st.sampled_from(["AA", "B", "K", "S"]), max_size=6), min_size=1, max_size=5)


@pytest.mark.claim("eq:calibration-error")
@few
@given(st.integers(0, 2**32 - 1), st.integers(1, 15), st.integers(2, 6))
def test_calibration_error_is_that_of_scikit_learns_curve(seed, bins, t):
    from sklearn.calibration import calibration_curve  # seconds, in each process that collects tests

    rng = np.random.default_rng(seed)
    P, _ = an.softmax(2 * rng.standard_normal((200, t)))
    y = rng.integers(t, size=200)
    sure, hit = P.max(-1), P.argmax(-1) == y
    part, mean = calibration_curve(hit, sure, n_bins=bins)
    counts = np.histogram(sure, np.linspace(0, 1, bins + 1))[0]
    want = (counts[counts > 0] * np.abs(part - mean)).sum() / 200
    compare(calibration_error(P, y, bins), want, name="calibration error")


@pytest.mark.claim("eq:calibration-error")
def test_calibration_error_by_hand():
    P = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    y = np.array([0, 1, 1, 1])  # bins of a half: all above a half; of a tenth: each its own
    compare(calibration_error(P, y, 2), abs(3 / 4 - 0.75), name="one bin", atol=1e-12)
    compare(calibration_error(P, y, 10), (0.1 + 0.8 + 0.4 + 0.3) / 4, name="four bins", atol=1e-12)
    # in one bin a miss and a hit cancel, in two they do not
    P, y = np.array([[0.95, 0.05], [0.55, 0.45]]), np.array([1, 0])
    compare(calibration_error(P, y, 1), abs(0.5 - 0.75), name="one", atol=1e-12)
    compare(calibration_error(P, y, 10), (0.95 + 0.45) / 2, name="ten", atol=1e-12)


@pytest.mark.claim("eq:calibration-error")
def test_calibration_error_at_its_edges():
    assert calibration_error(np.eye(3), np.arange(3)) == 0, "sure and right, confidence 1 in the last bin"
    assert calibration_error(np.eye(3), np.array([1, 2, 0])) == 1
    half = np.array([[0.5, 0.5]] * 2)
    assert calibration_error(half, np.array([0, 1]), 2) == 0, "the upper edge belongs to its bin"
    mixed = np.array([[0.5, 0.5], [0.75, 0.25]])  # 0.5 is of the first bin of two: 0.5 | 0.75
    compare(calibration_error(mixed, np.array([1, 0]), 2), (0.5 + 0.25) / 2, name="not cancelled", atol=1e-12)
    assert calibration_error(np.float32([[1 / 3] * 3]), np.array([0])) == pytest.approx(2 / 3)


@pytest.mark.claim("eq:calibration-error")
def test_true_probabilities_are_calibrated_up_to_noise(rng):
    P, _ = an.softmax(rng.standard_normal((20_000, 4)))
    y = (rng.random((20_000, 1)) > P.cumsum(-1)).sum(-1)
    assert calibration_error(P, y) < 0.015
    assert calibration_error(P[:40], y[:40]) > 0.03, "few examples look worse than they are"


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, z in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != z))
    return row[-1]


@few
@given(words, words)
def test_error_rates_are_edit_distances(hypotheses, references):
    count = min(len(hypotheses), len(references))
    hypotheses, references = hypotheses[:count], references[:count]
    references[0] = references[0] or ["B"]
    rates = error_rates(hypotheses, references)
    edits = sum(levenshtein(h, r) for h, r in zip(hypotheses, references, strict=True))
    assert rates.symbols == edits / sum(map(len, references))
    assert rates.words == sum(h != r for h, r in zip(hypotheses, references, strict=True)) / count
    joined = [SequenceMatcher(None, h, r).ratio() == 1 for h, r in zip(hypotheses, references, strict=True)]
    assert (rates == (0, 0)) == all(joined)


def test_error_rates_by_hand():
    assert error_rates(["kitten"], ["sitting"]) == ErrorRates(3 / 7, 1.0)
    assert error_rates(["", "on"], ["a", "on"]) == ErrorRates(1 / 3, 0.5)
    assert error_rates([[1, 2, 3, 4]], [[9]]) == ErrorRates(4.0, 1.0), "more than 1 if too much is written"
    assert error_rates([np.array([1, 2])], [(1, 2)]) == ErrorRates(0.0, 0.0), "any sequence of symbols"
    assert error_rates([["AA", "B"]], [["A", "AB"]]) == ErrorRates(1.0, 1.0), "symbols, not letters"
    weighted = error_rates(["aaaa", "b"], ["aaaa", "c"])
    assert weighted.symbols == 1 / 5, "all symbols alike, not a mean over words"


def test_neither_rapidfuzz_nor_torch_is_needed_to_import():
    code = "import sys, attnmath.metrics; print([m for m in ('rapidfuzz', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
