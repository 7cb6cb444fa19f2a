"""Shared code is found under other names, comments and order; what is given, or common to all, does not count."""

import csv
import re
import time

import pytest

from nbreferee.intake.answers import Answers, Own
from nbreferee.pages import similarity
from nbreferee.pages.similarity import Thresholds, compare, from_answers, page

ADA = '''
def centre(points):
    """The mean, without outliers."""
    total = np.zeros(points.shape[-1])
    for row in points:   # one by one
        if np.abs(row).max() < 1e3:
            total += row * weight(row) ** 2
    return total / max(1, len(points))

def spread(points, middle):
    gaps = points - middle[None, :]
    return np.sqrt((gaps * gaps).sum(axis=-1)).mean()
'''
RENAMED = re.sub(r"\b(points|total|row|gaps|middle|spread|centre)\b", lambda m: "my_" + m[0][::-1], ADA)
COMMENTS = re.sub(r'""".*?"""', "'''Mine.\n    All of it.'''", ADA.replace("# one by one", "")).replace(" * ", "*")
first, second = ADA.split("\ndef spread")
REORDERED = "\ndef spread" + second + first
OTHER = """
def centre(p):
    inside = p[(abs(p) < 1000).all(1)]
    w = [weight(q) for q in inside]
    return np.average(inside, axis=0, weights=np.square(w))

def spread(p, m):
    return float(np.linalg.norm(p - m, axis=1).mean())
"""


def pairs(report):
    return {(p.first, p.second) for p in report.pairs}


@pytest.mark.parametrize("copy", [ADA, RENAMED, COMMENTS, REORDERED], ids=["same", "renamed", "comments", "reordered"])
def test_a_copy_in_disguise_is_found_and_an_own_answer_is_not(copy):
    report = compare({"q": {"ada": ADA, "bob": copy, "eve": OTHER}})
    assert pairs(report) == {("ada", "bob")} and report.pairs[0].share > 0.9


def test_docstrings_comments_and_layout_leave_no_token():
    bare = re.sub(r'""".*?"""|#.*', "", ADA).replace("\n\n", "\n")
    assert len(bare) < len(ADA) - 30
    tokens = similarity._tokens(bare)[0]
    assert len(tokens) > 80 and tokens == similarity._tokens(ADA)[0] == similarity._tokens(COMMENTS)[0]


def test_a_copied_part_counts_in_the_smaller_text():
    report = compare({"q": {"ada": ADA, "bob": OTHER + first.replace("points", "q")}})
    (pair,) = report.pairs
    assert 0.5 < pair.share_first < 0.9 and 0.3 < pair.share_second < 0.7 and pair.tokens > 50, pair


def test_what_was_given_and_what_all_have_does_not_count():
    assert not compare({"q": {"ada": ADA, "bob": RENAMED}}, boilerplate=[ADA]).pairs
    crowd = {f"s{n}": ADA for n in range(6)}
    report = compare({"q": crowd})
    assert not report.pairs and "6 of 6 answers hold fewer than 30 tokens" in report.notes[0]
    assert len(compare({"q": dict(list(crowd.items())[:5])}).pairs) == 10  # so few may be a group


def test_short_answers_are_said_to_be_too_short():
    report = compare({"q": {"ada": "return d + 1", "bob": "return d + 1"}})
    assert not report.pairs and "too little to be compared" in report.notes[0]


def test_long_texts_are_cut_with_a_note_and_odd_ones_take_no_time():
    for text in ('"' * 400_000, "'" * 400_000, "\\" * 400_000, "a\n" * 200_000, "[" * 400_000):
        start = time.perf_counter()
        report = compare({"q": {"ada": text, "bob": text + " "}})
        assert time.perf_counter() - start < 20
        assert "only the first 50000 characters were compared of ada, bob" in report.notes[0]


def test_answers_are_sorted_by_exercise():
    answers = Answers({"q": "x = 1", "r": "stub", "t": None}, (Own("def help(): pass", "q"),), ("r",), ())
    assert from_answers({"ada": answers}) == {"q": {"ada": "x = 1"}, "own cells": {"ada": "def help(): pass"}}


def test_the_marks_are_where_the_shared_code_is():
    text = "alone = 3\n" + ADA
    report = compare({"q": {"ada": text, "bob": RENAMED}})
    (pair,) = report.pairs
    marked = "".join(text[a:b] for a, b in report.marks[pair][0])
    assert "np.abs(row).max()" in marked and "alone" not in marked


def test_the_page_is_safe_and_the_table_defused(tmp_path):
    evil = ADA + "\nx = '</pre><script>alert(1)</script><img src=x onerror=y>' # \u202e \x1b[31m\n"
    report = compare({"q<b>": {"ada": evil, "=1": evil}})
    text = page(report, title="<i>")
    assert "<script" not in text and "<img" not in text and "<b>" not in text and "<i>" not in text
    assert "\u202e" not in text and "\x1b" not in text and "U+202E" in text
    assert "default-src 'none'" in text and not re.search(r"(src|href)=\"(?!#)", text)
    assert text.index("not a verdict") < text.index("<table") and "<mark>" in text
    assert "<section" not in page(report, top=0)
    similarity.table(report, tmp_path / "t.csv")
    rows = list(csv.reader((tmp_path / "t.csv").read_text().splitlines()))
    assert rows[1][:5] == ["q<b>", "'=1", "ada", "1", "1"]


def test_wrong_thresholds_are_refused():
    with pytest.raises(ValueError, match="cannot be used"):
        Thresholds(share=0)
