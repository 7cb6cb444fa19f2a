"""The folders of a course, its settings, its gradebook."""

import re
import warnings
from contextlib import contextmanager
from pathlib import Path

import nbformat
import nbgrader
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import capture_log, temp_attrs
from sqlalchemy.exc import SAWarning
from traitlets.config.loader import PyFileConfigLoader

HERE = Path(__file__).resolve().parent.parent
NBGRADERS_TEMPLATES = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates"


@contextmanager
def quiet():
    """nbgrader's own use of its database warns at every submission."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        yield


class Course:
    """A course in `root`: source/, submitted/, … as nbgrader has them. `limits` overrides CarefulExecute's seconds."""

    def __init__(self, root=HERE, limits=None):
        self.root = Path(root).resolve()
        self.limits = dict(limits or {})
        self.work = self.root / "reports" / ".work"  # cleaned copies; never what students sent
        self.db_url = f"sqlite:///{self.root / 'gradebook.db'}?timeout=120"

    def config(self, **directories):
        config = PyFileConfigLoader("nbgrader_config.py", str(HERE)).load_config()
        config.CourseDirectory.root = str(self.root)
        config.CourseDirectory.db_url = self.db_url
        config.Exchange.root = str(self.root)  # none is used; nbgrader complains if it cannot write there
        config.HTMLExporter.template_name = "student"  # not in the file, for formgrader's pages would take it too
        config.HTMLExporter.template_file = "student.html.j2"
        config.HTMLExporter.extra_template_basedirs = [str(HERE / "grading" / "templates"), str(NBGRADERS_TEMPLATES)]
        for step, folder in directories.items():  # relative to root: nbgrader makes a regular expression of it
            config.CourseDirectory[f"{step}_directory"] = str(folder.relative_to(self.root))
        for name, value in self.limits.items():
            config.CarefulExecute[name] = value
        return config

    @property
    def seconds(self):
        """How long one submission may take by the settings."""
        return self.config().CarefulExecute.total

    def api(self, **directories):
        config = self.config(**directories)
        api = NbGraderAPI(CourseDirectory(config=config), config=config)
        api.log.setLevel("WARNING")
        api.log.propagate = False
        api.log.handlers = []
        return api

    def feedback(self, name, student):
        """api().generate_feedback, which knows no template but nbgrader's, with the one of this course."""
        api = self.api()
        with temp_attrs(api.coursedir, assignment_id=name, student_id=student):
            step = GenerateFeedback(coursedir=api.coursedir, parent=api)
            step.force = True
            return capture_log(step)

    @contextmanager
    def gradebook(self):
        with quiet(), Gradebook(self.db_url, "attention") as gradebook:
            yield gradebook

    def sets(self):
        return sorted(path.parent.name for path in self.root.glob("source/*/*.ipynb") if path.stem == path.parent.name)

    def source(self, name):
        return self.root / "source" / name / f"{name}.ipynb"

    def prepare(self, name):
        """Put the set into the gradebook and return its student version, made afresh from the source."""
        folder = self.work / "base"
        with quiet():
            result = self.api(release=folder).generate_assignment(name, force=True, create=True)
        if not result["success"]:
            raise SystemExit(f"{name}: nbgrader could not make the student version.\n{why(result)}")
        return nbformat.read(folder / name / f"{name}.ipynb", 4)


def why(result):
    """The telling lines of what nbgrader logged."""
    text = (result.get("log", "") + "\n" + result.get("error", "")).strip().splitlines()
    if any("there are submissions associated with it" in line for line in text):
        return (
            "Cells were added or removed since submissions were graded. Keep their ids, or start this set's marks "
            "afresh, in exercises/, with: ../.venv/bin/nbgrader db assignment remove SET --force"
        )
    telling = [line for line in text if re.match(r"\s*[\w.]*(Error|Exception|Entry): ", line) and "above" not in line]
    return "\n".join(telling or text[-6:])


def grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def exercise_of(name):
    """`window_numpy` and `window_test-hidden` are cells of the exercise `window`."""
    return name.split("_", 1)[0]


def points_by_exercise(notebook):
    """{exercise: points} in the order of the notebook."""
    points = {}
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if meta.get("grade") or meta.get("task"):
            name = exercise_of(meta["grade_id"])
            points[name] = points.get(name, 0) + float(meta["points"])
    return points
