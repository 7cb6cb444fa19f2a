"""nbgrader in a course that this package grades: its own graders refuse, and no student's file takes formgrader down.

`nbgrader autograde`, and the buttons of formgrader that call it, run a stranger's code as the instructor, beside the
hidden tests and the gradebook. And a timestamp.txt that holds no time makes formgrader's list of submissions fail.
nbgrader has no settings for either.
"""

from nbgrader.apps.api import NbGraderAPI
from nbgrader.converters import Autograde, GenerateFeedback, NbGraderException

from . import late

__all__ = ["guard"]

TEXT = (
    "Nothing was done: this course is graded by nbreferee, which keeps students' code away from the tests and the "
    "gradebook. {instead}"
)


def guard(instead: str = "Give: nbreferee grade --assignment <name>") -> None:
    """Call it in ``nbgrader_config.py``.

    Parameters
    ----------
    instead : a sentence, what to type to grade and to write feedback.
    """
    text = TEXT.format(instead=instead)

    def start(converter):
        converter.log.error(text)
        raise NbGraderException(text)

    Autograde.start = GenerateFeedback.start = start
    NbGraderAPI.get_submitted_timestamp = _submitted_timestamp


def _submitted_timestamp(api, assignment_id, student_id):
    """As the gradebook has it; formgrader takes a submission for ungraded if the two differ."""
    course = api.coursedir
    return late.timestamp(course.format_path(course.submitted_directory, student_id, assignment_id))
