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

# The Validate button: as many seconds a cell as nbreferee.toml gives, and its messages in short.
c.Execute.timeout = 60
shorten()
guard("Give `make grade`; it writes the feedback too.")
