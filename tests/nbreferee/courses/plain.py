"""The marks that plain nbgrader gives in these courses, recorded by `python -m tests.nbreferee.courses.plain`.

Plain nbgrader starts a kernel for each student, a quarter of a minute, and gives the same marks every time. So they are
kept beside the courses, each with a hash of what they were given for, and a test refuses marks of another text.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from nbgrader.api import Gradebook
from tqdm import tqdm

from tests.nbreferee import courses

TABLE = courses.HERE / "plain.json"
CONFIG = "c = get_config()\nc.CourseDirectory.course_id = 'toy'\n"


def plain_marks(root: Path, name: str) -> dict:
    """{student: {(notebook, test): points}} of plain nbgrader, which runs everything in one kernel."""
    beside = os.path.dirname(sys.executable)  # where nbgrader finds alembic
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PATH": os.pathsep.join([beside, os.environ["PATH"]])}
    for command in (["generate_assignment", name, "--create"], ["autograde", name]):
        call = [sys.executable, "-m", "nbgrader", *command]
        done = subprocess.run(call, cwd=root, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    marks = {}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        for each in book.assignment_submissions(name):
            for grade in (grade for notebook in each.notebooks for grade in notebook.grades):
                if grade.cell.cell_type == "code" and grade.auto_score is not None:
                    marks.setdefault(each.student_id, {})[grade.notebook.name, grade.name] = grade.auto_score
    return marks


def digest(name: str) -> str:
    """Of a course's text and of what makes notebooks of it."""
    made_from = (courses.HERE / f"{name}.txt").read_bytes() + Path(courses.__file__).read_bytes()
    return hashlib.sha256(made_from).hexdigest()[:16]


def recorded(name: str) -> dict:
    """The same as `plain_marks`, from the table."""
    row = json.loads(TABLE.read_text("utf-8"))[name]
    assert row["of"] == digest(name), f"{name}.txt has changed: python -m tests.nbreferee.courses.plain {name}"
    return {
        student: {(name, test): points for test, points in marks.items()} for student, marks in row["marks"].items()
    }


def record(names) -> None:
    """Run plain nbgrader over these courses and put its marks into the table."""
    table = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    for name in tqdm(names):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            courses.load(name).write(root)
            (root / "nbgrader_config.py").write_text(CONFIG)
            marks = plain_marks(root, name)
        told = {student: {test: points for (_, test), points in row.items()} for student, row in marks.items()}
        table[name] = {"of": digest(name), "marks": told}
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    record(sys.argv[1:] or courses.NAMES)
