"""The concordance tells the truth: nothing points nowhere, and formulas, code and tests carry the same labels."""

import re
import shutil
from pathlib import Path

import pytest

from coverage_index import Index, problem_sets

ROOT = Path(__file__).parents[2]

STATED = ("prf:theorem", "prf:proposition", "prf:corollary", "prf:lemma")
WORLDS = re.compile(r"attnmath\.(numpy|torch)\.")


@pytest.fixture(scope="module")
def index():
    return Index(ROOT)


def test_nothing_points_nowhere(index):
    """Equation tags and chapter labels match both ways; concordance, claims and exercises name labels that exist."""
    assert index.problems() == []


def test_every_result_has_a_test_that_would_refute_it(index):
    """Whatever is called a theorem, proposition, corollary or lemma is claimed by a test."""
    stated = {place.label for place in index.all_places if place.kind in STATED}
    assert len(stated) > 20
    assert stated - set(index.claims) == set()


def test_every_equation_of_the_library_is_witnessed(index):
    """A tagged line stands in a component with a row of cases, or is claimed by a test."""
    tagged = {label for label in index.places if label.startswith("eq:")}
    assert len(tagged) > 40
    assert [label for label in sorted(tagged) if not index.tests(label)] == []


def test_both_worlds_carry_the_forward_equations(index):
    """Backward lines stand in NumPy only, where they are written by hand; counts and measures belong to none.

    Algorithms are left out: beam search and a scale of the loss belong to no world, data parallel to PyTorch's.
    """
    equations = {label for label in index.functions if label.startswith("eq:")}
    assert index.functions.keys() - equations == {label for label in index.places if label.startswith("alg-")}
    backward = {label for label in index.functions if "-vjp" in label}
    shared = {label for label, names in index.functions.items() if not any(map(WORLDS.match, names))}
    for label in equations - backward - shared:
        assert index.world(label, "numpy") and index.world(label, "torch"), label
    assert backward and all(not index.world(label, "torch") for label in backward)


def test_the_first_six_chapters_are_covered(index):
    for chapter in ("1", "2", "3", "4", "5", "6"):
        open_items = [item.name for item in index.items if item.chapter == chapter and not index.is_covered(item)]
        assert open_items == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the index reads, in a folder where a fault may be planted; it is right before, and to be right after."""
    root = tmp_path_factory.mktemp("concordance")
    for part in ("lib", "chapters", "tests"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    shutil.copytree(problem_sets(ROOT), root / "exercises" / "release")
    for page in ("concordance.yml", "_toc.yml", "intro.md"):
        shutil.copy(ROOT / page, root / page)
    assert Index(root).problems() == []
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "right", "wrong", "said"),
    [
        ("concordance.yml", "thm-dot-variance", "thm-dot-varianc", "points to thm-dot-varianc, which no page defines"),
        ("lib/attnmath/numpy/softmax.py", "# eq:logsumexp\n", "# eq:log-sum-exp\n", "carries the tag eq:log-sum-exp"),
        ("lib/attnmath/numpy/activations.py", "  # eq:gelu-vjp", "", "defines eq:gelu-vjp, which no line"),
        ("lib/attnmath/decoding.py", "  # alg-beam-search", "", "defines alg-beam-search, which no line"),
        ("chapters/02_foundations/scaling.ipynb", ":label: thm-dot-variance", ":label: thm-dot", "thm-dot-variance"),
        ("tests/attnmath/test_check.py", '"eq:attention-bytes"', '"eq:attention-byte"', "claims eq:attention-byte"),
    ],
)
def test_a_planted_fault_is_seen(file, right, wrong, said, copy):
    text = (copy / file).read_text(encoding="utf-8")
    assert right in text
    (copy / file).write_text(text.replace(right, wrong), encoding="utf-8")
    try:
        assert any(said in problem for problem in Index(copy).problems())
    finally:
        (copy / file).write_text(text, encoding="utf-8")
