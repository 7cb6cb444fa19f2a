"""The gradebook is written with what a grader may say, fast, and only where something changed."""

import time

import pytest
import sqlalchemy as sa

from nbreferee.course.gradebook import Entry, GradebookError, Writer
from tests.nbreferee.toycourse import gradebook


def test_scores_are_finite_and_bounded(root):
    with Writer(f"sqlite:///{root / 'gradebook.db'}") as writer:
        for score in (float("nan"), float("inf"), "1", True):
            with pytest.raises(ValueError, match="finite"):
                writer.write(Entry("ada", "toy", "toy", {"square_test": score}))
        writer.write(Entry("ada", "toy", "toy", {"square_test": 7, "double_test-shown": -1.0}))
        written = writer.flush()[0]
        assert (written.scores["square_test"], written.scores["double_test-shown"]) == (1.0, 0.0)


def test_of_two_entries_the_later_counts(root):
    with Writer(f"sqlite:///{root / 'gradebook.db'}") as writer:
        for score in (0.0, 1.0):
            writer.write(Entry("ada", "toy", "toy", {"square_test": score}))
        assert [w.scores["square_test"] for w in writer.flush()] == [0.0, 1.0]
    with gradebook(root) as book:
        assert len(book.students) == 1 and book.find_grade("square_test", "toy", "toy", "ada").auto_score == 1.0


def test_what_is_no_gradebook_or_knows_no_such_cell_says_so(root, tmp_path):
    with pytest.raises(GradebookError, match="no gradebook yet; run: nbgrader generate_assignment"):
        Writer(f"sqlite:///{tmp_path / 'new.db'}")
    (tmp_path / "text.db").write_text("no database " * 1000)
    with pytest.raises(GradebookError, match="damaged; put a backup"):
        Writer(f"sqlite:///{tmp_path / 'text.db'}")
    with pytest.raises(GradebookError, match="cannot be opened for writing"):
        Writer(f"sqlite:///{tmp_path / 'no/such/folder.db'}")
    for entry in (
        Entry("ada", "toy", "toy", {"no_such": 1.0}),
        Entry("ada", "other", "toy"),
        Entry("ada", "toy", "other"),
    ):
        writer = Writer(f"sqlite:///{root / 'gradebook.db'}")
        writer.write(entry)
        with pytest.raises(GradebookError, match="run: nbgrader generate_assignment"):
            writer.flush()
        writer.close()


def test_the_writer_is_fast_and_writes_only_what_changed(root):
    writer = Writer(f"sqlite:///{root / 'gradebook.db'}")
    scores = {"double_test-shown": 1.0, "double_test-hidden": 0.0, "square_test": 1.0, "proof_text": None}

    def run(scores):
        began = time.perf_counter()
        for number in range(400):
            writer.write(Entry(f"s{number}", "toy", "toy", scores, {"proof_text": None}))
            if writer.due:
                writer.flush()
        writer.flush()
        return (time.perf_counter() - began) / 400

    assert run(scores) < 0.02  # a few milliseconds; the rest is for busy machines
    statements = []
    sa.event.listen(writer._engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    run(scores)
    assert statements and not [text for text in statements if text.startswith(("INSERT", "UPDATE"))]
    run(scores | {"square_test": 0.0})
    assert [text for text in statements if text.startswith("UPDATE grade ")]
    assert not [text for text in statements if text.startswith("INSERT")]
    writer.close()
