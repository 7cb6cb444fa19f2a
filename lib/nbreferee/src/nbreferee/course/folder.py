"""A course as nbgrader lays it out: where its folders and its gradebook are, and what is put into the gradebook."""

import contextlib
import hashlib
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from ..walls.sandbox import Policy, files_beside
from .entries import Bookless, GradebookError, has_nbgrader, require_nbgrader
from .files import BatchError, in_words, put, reading, writing
from .settings import Settings, load
from .template import Template

__all__ = ["CourseFolder", "reason", "without_warnings"]


@dataclass(frozen=True)
class CourseFolder:
    """A course as nbgrader lays it out.

    Parameters
    ----------
    root : the folder that holds source/, submitted/, autograded/, feedback/.
    settings : see `nbreferee.course.settings`.
    config : nbgrader's configuration (traitlets), None: its defaults.
    db_url : of the gradebook; empty: what the configuration says, or gradebook.db in root.
    """

    root: Path
    settings: Settings
    config: object = None
    db_url: str = ""

    @classmethod
    def load(cls, root: Path | str, *, db_url: str = "") -> "CourseFolder":
        """Read nbreferee.toml and nbgrader_config.py of a course.

        Raises
        ------
        BatchError : there is no such folder, or nbgrader_config.py cannot be read.
        """
        from traitlets.config.loader import PyFileConfigLoader

        root = Path(root).resolve()
        if not root.is_dir():
            raise BatchError(f"there is no folder {root}; name the folder that holds source/")
        config = None
        if (root / "nbgrader_config.py").exists():
            try:
                config = PyFileConfigLoader("nbgrader_config.py", str(root)).load_config()
            except Exception as error:
                raise BatchError(f"nbgrader_config.py cannot be read ({in_words(error)}); correct it") from None
        return cls(root, load(root), config, db_url)

    def _said(self, name, default):
        section = (self.config or {}).get("CourseDirectory", {})
        value = section.get(name, default)
        return value if isinstance(value, str) else default

    def folder(self, step: str) -> Path:
        """source, release, submitted, autograded or feedback, wherever the configuration puts it."""
        return self.root / self._said(f"{step}_directory", step)

    @property
    def gradebook(self) -> str:
        """The address of the gradebook."""
        if self.db_url:
            return self.db_url
        head, found, path = self._said("db_url", "sqlite:///gradebook.db").partition("sqlite:///")
        if head or not path or path.startswith((":", "file:")) or Path(path).is_absolute():
            return head + found + path
        return f"{found}{self.root / path}"  # as nbgrader takes it, which is started there

    @property
    def state(self) -> Path:
        """The folder in which nbreferee keeps results and a lock."""
        return self.root / ".nbreferee"

    def assignments(self) -> list[str]:
        """What lies in source/."""
        return sorted({path.parent.name for path in self.folder("source").glob("*/*.ipynb")})

    def notebooks(self, name: str) -> dict:
        """{notebook's name: path} of an assignment's sources.

        Raises
        ------
        BatchError : there is no such assignment.
        """
        found = {path.stem: path for path in sorted(self.folder("source").joinpath(name).glob("*.ipynb"))}
        if not found:
            there = ", ".join(self.assignments()) or "none"
            raise BatchError(f"there is no assignment {name} in {self.folder('source').name}/; there are: {there}")
        return found

    def policy(self, name: str) -> Policy:
        """What answers to an assignment may use: what the settings say, and the files beside its notebooks."""
        folder = str(self.folder("source") / name)
        return replace(self.settings.policy, beside=folder if files_beside(folder) else "")

    def prepare(self, name: str) -> Path:
        """Put an assignment into the gradebook, as ``nbgrader generate_assignment`` does.

        Returns
        -------
        The folder with the student version, made afresh from the source. It is not the released one.

        Raises
        ------
        BatchError : nbgrader cannot make it; the text says why.
        """
        from nbgrader.apps import NbGraderAPI
        from nbgrader.coursedir import CourseDirectory
        from sqlalchemy.exc import SAWarning
        from traitlets.config import Config

        release, sources = self.state / "release", self.notebooks(name)
        made, mark = release / f"{name}.sha256", self._made_of(sources)
        with contextlib.suppress(OSError, GradebookError):
            if made.read_text() == mark and self._stands(name, sources):
                return release / name
        config = Config(self.config or {})
        config.CourseDirectory.root = str(self.root)
        config.CourseDirectory.db_url = self.gradebook
        config.CourseDirectory.source_directory = str(self.folder("source").relative_to(self.root))
        config.CourseDirectory.release_directory = str(release.relative_to(self.root))
        config.ClearSolutions.text_stub = self.settings.text_stub
        config.ClearSolutions.code_stub = {"python": self.settings.code_stub}
        if not self._said("course_id", "") and not self.gradebook.startswith("sqlite"):
            config.CourseDirectory.course_id = "default_course"  # with none, nbgrader breaks a foreign key
        config.Exchange.root = str(self.root)  # none is used; nbgrader complains if it cannot write there
        with without_warnings(), _told_by_alembic(), writing(release):
            release.mkdir(parents=True, exist_ok=True)
            api = NbGraderAPI(CourseDirectory(config=config), config=config)
            api.log.propagate, api.log.handlers = False, []
            warnings.simplefilter("ignore", SAWarning)
            result = api.generate_assignment(name, force=True, create=True)
        if not result["success"]:
            raise BatchError(f"{name}: nbgrader could not make the student version: {reason(result, name)}")
        put(made, mark)
        return release / name

    @property
    def bookless(self) -> bool:
        """Whether marks are entered nowhere, for want of nbgrader and of a gradebook that is there or asked for."""
        sqlite, _, path = self.gradebook.partition("sqlite:///")
        return not (has_nbgrader() or sqlite or self.db_url or Path(path).exists())

    def writer(self, name: str):
        """What enters an assignment's marks: into the gradebook, in which the assignment stands then.

        A course without one, see `bookless`, gets a stand-in that enters nothing.

        Raises
        ------
        BatchError, GradebookError : the gradebook cannot be made, or opened.
        """
        if self.bookless:
            return Bookless({book: Template(path).graded for book, path in self.notebooks(name).items()})
        require_nbgrader()
        from .gradebook import Writer

        self.prepare(name)
        return Writer(self.gradebook)

    def _made_of(self, sources):
        """Digest of what the student version and the gradebook's cells depend on."""
        from nbgrader import __version__

        digest = hashlib.sha256(f"{__version__} {self.config} {self.settings}".encode())
        for book, path in sources.items():
            with reading(path):
                digest.update(f"{book}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def _stands(self, name, sources):
        """Whether the gradebook knows the assignment as the sources have it."""
        from .gradebook import Writer

        with contextlib.closing(Writer(self.gradebook)) as writer:
            return writer.cells(name) == {book: Template(path).graded for book, path in sources.items()}


@contextlib.contextmanager
def without_warnings():
    """Without the warnings of nbgrader and what it uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _told_by_alembic():
    """nbgrader asks alembic for the version of a new gradebook's tables, in a process that takes seconds to start.

    Asked in this process, it says the same.
    """
    from nbgrader import api, dbutil

    def version():
        from alembic.script import ScriptDirectory

        return ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head()

    before, api.get_alembic_version = api.get_alembic_version, version
    try:
        yield
    finally:
        api.get_alembic_version = before


def reason(result: dict, name: str) -> str:
    """Why nbgrader could not make a student version, in one line."""
    text = (result.get("log") or "") + "\n" + (result.get("error") or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any("there are submissions associated with it" in line for line in lines):
        return (
            "cells were added or removed since submissions were graded; keep their ids, or start its marks afresh "
            f"with: nbgrader db assignment remove {name} --force"
        )
    telling = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Entry): ", line) and "above" not in line]
    return (telling or lines or ["no reason was given"])[-1]
