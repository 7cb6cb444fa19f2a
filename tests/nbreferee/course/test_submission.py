"""What a row says of a submission, in which order."""

from types import SimpleNamespace

from nbreferee.course.rows import Row
from nbreferee.course.submission import Submission

TOY = SimpleNamespace(points={"toy": 2.0})


def test_lateness_is_the_first_reason_for_a_mark():
    late = Submission(None, TOY, Row("ada", "toy", "toy"))
    late.say("graded", ["Not answered: b.", "Not answered: b."])
    assert late.row.reason == "Not answered: b."
    late.marked(SimpleNamespace(scores={"toy_test": 2.0}, waiting=(), penalty=2.0, sentence="Too late."))
    assert late.row.total == 0 and late.row.reason == "Too late. (1 more note)"
    late.say("graded", [*late.row.notes, "A third one."])
    assert late.row.reason == "Too late. (2 more notes)"
