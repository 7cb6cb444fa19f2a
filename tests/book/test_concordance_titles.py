"""A title of the concordance says what stands at its label, and suits no neighbour better."""

import re
from dataclasses import replace
from itertools import combinations

import pytest

from coverage_index import Index
from fingerprint import ROOT

NEIGHBOURS = 3  # items that lie so near each other are most easily taken for one another
STEM = 4  # letters of a word that count, so that "normalised" is found in "norm" and "norms"
SMALL = set(
    "a an the of in on at to for with by and or not is are what how why which where when its it as from all one two "
    "many that this than into before after under over does can has have they their there each every only same".split()
)


def words(text):
    """The words of a text that say something, by their first letters."""
    return {word[:STEM] for word in re.findall(r"[a-z]{3,}", text.lower()) if word not in SMALL}


def own_words(label):
    return words(re.sub(r"[:._-]+", " ", label))


@pytest.fixture(scope="module")
def index():
    return Index(ROOT)


@pytest.fixture(scope="module")
def texts(index):
    """Label -> the text around it, within its section."""
    found = {}
    for cells in index.pages.values():
        for text in (part for cell in cells for part in re.split(r"(?<!=\n)(?=^\([\w:.-]+\)=\n)", cell, flags=re.M)):
            for label in set(re.findall(r"\b[a-z]+[:-][\w:.-]*\w", text)):
                mark = rf"\({re.escape(label)}\)|label\{{{re.escape(label)}\}}|:(?:label|name):\s*{re.escape(label)}\s"
                if place := re.search(mark, text):
                    found[label] = text[max(0, place.start() - 600) : place.end() + 900]
    return found


def complaints(items, texts):
    """Which titles share no word with the text at their labels, and which suit a neighbour's label better."""
    said = []
    for item in items:
        known = set().union(*(words(texts.get(label, "")) | own_words(label) for label in item.labels))
        if not words(item.title) & known:
            said.append(f"{item.name}, {item.title!r}: none of its words stands at {', '.join(item.labels[:3])}")

    equations = [item for item in items if item.name.startswith("equation")]

    def fits(title, item):
        return len(words(title) & own_words(item.labels[0]))

    for one, two in combinations(equations, 2):
        if abs(items.index(one) - items.index(two)) <= NEIGHBOURS:
            if fits(one.title, two) + fits(two.title, one) > fits(one.title, one) + fits(two.title, two):
                said.append(
                    f"{one.name}, {one.title!r}, and {two.name}, {two.title!r}, suit each other's labels better"
                )
    return said


def test_each_title_says_what_stands_at_its_label(index, texts):
    assert complaints(index.items, texts) == []


@pytest.mark.parametrize(
    ("titles", "said"),
    [
        ({"equation 5.14": "The normalised vector", "equation 5.16": "The mean"}, "suit each other's labels better"),
        ({"equation 2.5": "The trace", "equation 2.6": "Cosine similarity"}, "suit each other's labels better"),
        ({"equation 6.19": "A bird in the hand"}, "none of its words stands at eq:clip"),
    ],
)
def test_a_wrong_title_is_seen(index, texts, titles, said):
    items = [replace(item, title=titles.get(item.name, item.title)) for item in index.items]
    assert any(said in line for line in complaints(items, texts))
