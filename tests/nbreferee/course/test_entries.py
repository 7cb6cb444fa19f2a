"""Without nbgrader a course is graded all the same; what wants its gradebook says what to install."""

import json

import nbformat
import pytest

from nbreferee.course import entries, folder
from nbreferee.course.entries import Bookless, Entry, GradebookError
from nbreferee.export import marks
from tests.nbreferee import toycourse, toyset
from tests.nbreferee.toycourse import by_student, grade, submit


@pytest.fixture
def without(monkeypatch):
    monkeypatch.setattr(folder, "has_nbgrader", lambda: False)
    monkeypatch.setattr(entries, "has_nbgrader", lambda: False)


def test_what_a_gradebook_would_say():
    book = Bookless({"one": {"test": 3.0, "proof": 2.0, "rest": 1.0}})
    book.write(
        Entry("ada", "set", "one", {"test": 2.5, "proof": None}, penalty=lambda score, most: (score + most, "late"))
    )
    book.write(Entry("bea", "set", "one", {"test": 9, "proof": 1, "rest": 0}, penalty=lambda *_: (0.5, "late")))
    book.write(Entry("cal", "set", "one", refused=True))
    ada, bea, cal = book.flush()
    assert ada.scores == {"test": 2.5, "proof": 0.0, "rest": 0.0} and ada.waiting == {"proof": 2.0, "rest": 1.0}
    assert (ada.penalty, ada.sentence) == (2.5, "late"), "no more is taken than there is"
    assert bea.scores == {"test": 3.0, "proof": 1.0, "rest": 0.0} and not bea.waiting and bea.penalty == 0.5
    assert cal.scores == {"test": 0.0, "proof": 0.0, "rest": 0.0} and not cal.waiting
    assert book.flush() == [] and not book.due


def test_a_course_is_graded_as_with_a_gradebook(tmp_path, without, one_environment, root, monkeypatch):
    bare = tmp_path / "bare"
    toyset.write(bare)
    for course in (bare, root):
        submit(course, "ada")
        submit(course, "bea", {"double_answer": "def double(x):\n    return 3"})
    rows = by_student(grade(bare))
    assert not (bare / "gradebook.db").exists()
    assert (bare / "feedback/ada/toy/toy.html").exists()
    nbformat.validate(nbformat.read(bare / "autograded/ada/toy/toy.ipynb", 4))
    again = by_student(grade(bare))
    assert all(row.cached for row in again.values())

    with pytest.raises(GradebookError, match=r"wants nbgrader; install it with: pip install 'nbreferee\[nbgrader\]'$"):
        grade(root)  # where a gradebook lies, marks are not left out of it unsaid
    for module in (folder, entries):
        monkeypatch.setattr(module, "has_nbgrader", lambda: True)
    wanted = by_student(grade(root))
    seen = [
        {who: json.dumps(vars(row) | {"cached": 0, "seconds": 0}) for who, row in r.items()} for r in (rows, wanted)
    ]
    assert seen[0] == seen[1] and rows["ada"].total > rows["bea"].total


@pytest.mark.parametrize("url", ["postgresql+psycopg2://grader@db/course", "sqlite:///marks.db"])
def test_a_gradebook_that_is_asked_for_is_not_left_out(url, tmp_path, without, one_environment):
    toyset.write(tmp_path)
    submit(tmp_path, "ada")
    course = folder.CourseFolder(tmp_path, toycourse.SETTINGS, db_url=url)
    with pytest.raises(GradebookError, match="the gradebook wants nbgrader"):
        grade(tmp_path, course=course)


@pytest.mark.parametrize("read", [marks.read_marks, marks.roster, lambda db: marks.handed_in(db, "toy")])
def test_marks_cannot_be_exported_without_nbgrader(read, without, tmp_path):
    with pytest.raises(GradebookError, match="the gradebook wants nbgrader"):
        read(f"sqlite:///{tmp_path}/gradebook.db")
