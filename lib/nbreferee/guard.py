"""Keep nbgrader's own graders from running in a course that this package grades.

`nbgrader autograde`, and the buttons of formgrader that call it, run a stranger's code as the instructor, beside the
hidden tests and the gradebook. nbgrader has no setting that turns them off.
"""

from nbgrader.converters import Autograde, GenerateFeedback, NbGraderException

__all__ = ["TEXT", "refuse_stock_grading"]

TEXT = (
    "Nothing was done: this course is graded by nbreferee, which keeps students' code away from the tests and the "
    "gradebook. {instead}"
)


def refuse_stock_grading(instead: str = "Give: nbreferee grade --assignment <name>") -> None:
    """Call it in ``nbgrader_config.py``: nbgrader's commands and formgrader's buttons then refuse, and say what to do.

    Parameters
    ----------
    instead : a sentence, what to type to grade and to write feedback.
    """
    text = TEXT.format(instead=instead)

    def start(converter):
        converter.log.error(text)
        raise NbGraderException(text)

    Autograde.start = GenerateFeedback.start = start
