"""A class of students who forge, err, break, hoard, spy and kill is graded in one batch, beside three honest ones."""

import json
import os

import pytest

from tests.nbreferee.hostile import ours, table
from tests.nbreferee.hostile.assignment import CANARIES, FULL, NONE, release, source
from tests.nbreferee.hostile.submissions import CLASSES, corpus


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    names = tuple(filter(None, os.environ.get("HOSTILE", "").split(",")))
    root = tmp_path_factory.mktemp("hostile") / "course"
    root.mkdir()
    out = ours.grade(root, names)
    print(f"{len(out.rows)} submissions in {out.seconds:.0f} s")
    return out


def told(faults):
    """A line for each fault, cut to what can be read."""
    lines = [f"{name}: {fault}" for name, fault in faults.items()] if isinstance(faults, dict) else list(faults)
    return [line[:600] for line in lines]


def test_the_corpus_is_whole():
    everybody = corpus()
    assert len(everybody) >= 80
    assert {one.kind for one in everybody} == set(CLASSES)
    assert len({one.student for one in everybody}) == len(everybody)
    for one in everybody:
        assert one.what.endswith(".") and "\n" not in one.what, one.name
        assert one.just is None or (set(one.just) == set(FULL) and all(0 <= one.just[t] <= FULL[t] for t in FULL))
    marks = [sum(one.just.values()) for one in everybody if one.just]
    assert len(set(marks)) >= 5  # a grader that gives all the same mark could not please


def test_the_released_notebook_holds_no_canary():
    text = json.dumps(release())
    assert not [name for name, word in CANARIES.items() if word in text]
    assert all(
        word in json.dumps(source()) for name, word in CANARIES.items() if name in ("hidden", "input", "solution")
    )


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_every_mark_is_just(graded):
    assert told(ours.faults_of_marks(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_every_submission_ends_in_its_state(graded):
    assert told(ours.faults_of_states(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_nobody_reads_what_is_not_his(graded):
    assert told(ours.faults_of_secrets(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_no_page_obeys_a_student(graded):
    assert told(ours.faults_of_pages(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_what_is_printed_is_cut(graded):
    assert told(ours.faults_of_sizes(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_nothing_is_left_behind(graded):
    assert told([f"process {line}" for line in graded.left] + [f"connection {line}" for line in graded.hits]) == []
    assert told(ours.faults_of_files(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_the_gradebook_is_intact(graded):
    assert told(ours.faults_of_the_gradebook(graded)) == []


@pytest.mark.slow
@pytest.mark.needs("walls")
def test_the_table_is_written(graded):
    made = {one.name: ours.outcome(graded, one) for one in graded.chosen}
    assert any(row["points"] == sum(FULL.values()) for row in made.values())
    assert any(row["points"] is None for row in made.values()) or os.environ.get("HOSTILE")
    if not os.environ.get("HOSTILE"):
        table.write(table.BUILD, {"ours": made, "seconds": round(graded.seconds, 1)})


def test_the_table_has_a_row_for_each_submission():
    rows = table.rows({"good": {"points": 12, "words": []}}, {})
    text = table.markdown(rows)
    assert len(rows) == len(corpus()) and text.count("\n| **") == len(rows)
    assert "| 12 | 12 | not tried |" in text
    assert sum(NONE.values()) == 0


def test_the_summary_counts_what_the_rows_say():
    def row(just, plain, ours):
        told = [each and {"points": each[0], "words": list(each[1:])} for each in (plain, ours)]
        return {"just": just, "plain": told[0], "ours": told[1]}

    counted = table.summary(
        [
            row(9, (12, "mark forged: 3 points too many", "read: gradebook"), (9, "crashed: a")),
            row(12, None, (11, "1 process left running")),
            row(12, (None, "batch stopped: no end", "submission lost"), (12,)),
            row(None, (3, "mark forged"), (None, "refused: empty")),
        ]
    )
    counts = [line.split("|")[2:4] for line in counted.splitlines()[2:]]
    assert [[int(one) for one in pair] for pair in counts] == [[2, 0], [1, 1], [1, 0], [1, 0], [0, 1]]
