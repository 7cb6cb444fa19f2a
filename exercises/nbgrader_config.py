"""nbgrader's settings for this course; read by `course.py`, by `nbgrader …` typed here, and by formgrader."""

import os
import sys
from pathlib import Path

from nbreferee.course.guard import guard
from nbreferee.course.validation import shorten

root = Path(__file__).resolve().parent
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # it calls alembic

c = get_config()  # noqa: F821  (traitlets gives it to configuration files)
c.CourseDirectory.course_id = "attention"
c.CourseDirectory.root = str(root)
c.CourseDirectory.db_url = f"sqlite:///{root / 'gradebook.db'}?timeout=120"  # wait for the other writer

c.ClearSolutions.code_stub = {"python": 'raise NotImplementedError("Your answer here.")'}
c.ClearSolutions.text_stub = "*Your answer here.*"

# `nbgrader zip_collect`: a notebook's student and time as the guide says they may be written, ada_set2.ipynb,
# ada_lovelace_20270312T211000_set2 (1).ipynb, ada_homework.ipynb, or a folder or an archive of the name ada_set2.
names = "|".join(path.name for path in root.joinpath("source").glob("*/"))
time = r"[0-9]{8}T[0-9]{6}"
c.FileNameCollectorPlugin.valid_ext = [".ipynb", ".txt", ".json"]
c.FileNameCollectorPlugin.named_regexp = (
    rf"(?i).*/extracted/(?:.*/)?(?P<student_id>\w[\w.-]*?(?=_(?:{time}_)?(?:{names})(?![0-9]))|[a-z0-9][a-z0-9.-]*)"
    rf"_(?:(?P<timestamp>{time})_)?(?P<file_id>[^/]+?)(?:\.ipynb(?:\.txt|\.json)?|/[^/]*\.ipynb(?:\.txt|\.json)?)$"
)

# The Validate button: as many seconds a cell as nbreferee.toml gives, and its messages in short.
c.Execute.timeout = 60
shorten()
guard("Give `make grade`; it writes the feedback too.")
