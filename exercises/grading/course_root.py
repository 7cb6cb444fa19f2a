"""The folders of a course, its settings, and the ids of its cells."""

from pathlib import Path

from traitlets.config.loader import PyFileConfigLoader

from nbreferee.course.run import CourseFolder, exercise_of
from nbreferee.course.settings import load

__all__ = ["HERE", "course_at", "exercise_of", "grade_id", "points_by_exercise"]

HERE = Path(__file__).resolve().parent.parent


def course_at(root=HERE) -> CourseFolder:
    """A course in `root`, source/, submitted/, … as nbgrader has them, with the settings of this one."""
    root = Path(root).resolve()
    config = PyFileConfigLoader("nbgrader_config.py", str(HERE)).load_config()
    return CourseFolder(root, load(HERE), config, f"sqlite:///{root / 'gradebook.db'}?timeout=120")


def grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def points_by_exercise(notebook):
    """{exercise: points} in the order of the notebook."""
    points = {}
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade") or meta.get("task"):
            name = exercise_of(meta["grade_id"])
            points[name] = points.get(name, 0) + float(meta["points"])
    return points
