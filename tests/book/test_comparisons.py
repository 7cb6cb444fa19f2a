"""Every comparison of the book is between tuned rivals, and a page speaks of what its comparison lacks."""

import nbformat
import pytest

from attnmath.comparisons import read
from fingerprint import ROOT


@pytest.fixture
def every(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    from comparisons import stored

    return stored(ROOT)


def words(page):
    """What a reader of the page sees of its text, in one line."""
    cells = nbformat.read(ROOT / f"{page}.ipynb", 4).cells
    return " ".join(" ".join(cell.source for cell in cells if cell.cell_type == "markdown").split())


def test_a_departure_from_the_rule_is_spoken_of(every):
    silent = []
    for page, data in every:
        one = read(data)
        for fault in one.faults():
            sentence = " ".join(one.said.get(fault, "").split())
            if not sentence or sentence not in words(page):
                silent.append(f"{page}, {one.title}: {fault}")
    assert silent == []


def test_the_opposite_of_a_claim_is_refused(every):
    claims = [(read(data), claim) for _, data in every for claim in data["claims"]]
    assert len(claims) >= 20
    for one, (a, relation, b) in claims:
        if relation == ">":
            assert not one.entails(b, ">", a) and not one.entails(a, "~", b)
        else:
            assert not one.entails(a, ">", b) and not one.entails(b, ">", a)


def test_titles_differ(every):
    titles = [(page, data["title"]) for page, data in every]
    assert len(set(titles)) == len(titles)
