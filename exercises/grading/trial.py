"""Given answers in, points out, through the same path that grades students."""

import re
import shutil
import tempfile
from pathlib import Path

import nbformat

from .course_root import Course, grade_id
from .runner import grade_set

REGION = re.compile(r"^[ \t]*### (BEGIN|END) SOLUTION[^\n]*\n?", re.M)


def reference_answers(source):
    """{grade id: the instructor's answer} of a source notebook."""
    notebook = nbformat.read(source, 4) if isinstance(source, (str, Path)) else source
    cells = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return {grade_id(cell): REGION.sub("", cell.source) for cell in cells}


def fill(base, answers):
    """The student version with these answers written into it."""
    notebook = nbformat.from_dict(base)
    notebook = nbformat.reads(nbformat.writes(notebook), 4)
    left = dict(answers)
    for cell in notebook.cells:
        if grade_id(cell) in left:
            cell.source = left.pop(grade_id(cell))
    if left:
        raise KeyError(f"no such cell: {', '.join(sorted(left))}")
    return notebook


def trial(source, submissions, *, limits=None, workers=2):
    """Grade `submissions`, {name: {grade id: code}}, against the set in the folder `source`; {name: Row}.

    Runs in a course of its own in a temporary folder; nothing else is touched.
    """
    source = Path(source)
    name = source.name
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        course = Course(folder, limits)
        skip = shutil.ignore_patterns(".ipynb_checkpoints", "__pycache__")
        shutil.copytree(source, course.root / "source" / name, ignore=skip)
        base = course.prepare(name)
        students = {f"trial{number:03d}": key for number, key in enumerate(submissions)}
        for student, key in students.items():
            target = course.root / "submitted" / student / name
            target.mkdir(parents=True)
            nbformat.write(fill(base, submissions[key]), target / f"{name}.ipynb")
        rows, _ = grade_set(course, name, feedback=False, workers=workers)
    return {students[row.student]: row for row in rows}
