"""What is raised on the trusted side when the student's process, or the code in it, does not do what was asked."""

import builtins
from functools import lru_cache

import numpy as np

__all__ = ["MESSAGE", "Meddled", "StudentError", "StudentLost", "bases", "clean", "name_of", "student_error"]

MESSAGE = 2000  # characters of an error's text
TRACE = 4 * MESSAGE


class StudentLost(BaseException):
    """The student's process is of no use any more.

    Parameters
    ----------
    state : crashed, timeout or memory.
    reason : one sentence.
    """

    def __init__(self, state: str, reason: str):
        super().__init__(reason)
        self.state, self.reason = state, reason


class StudentError(Exception):
    """What the student's code raised. It is also an instance of the built-in exception of that name, if there is one.

    Attributes
    ----------
    ename : name of the exception's type, as the student's process says.
    message : its text.
    trace : the student's own lines that led to it.
    """

    ename = message = trace = ""

    def __str__(self):
        return self.message


class Meddled(StudentError):
    """The student's code changed an argument of the test's. The text is ours."""

    message = "you changed your argument; work on a copy"


def clean(text, limit):
    """Text from the other process that can be written to any file."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


@lru_cache(maxsize=64)
def _error_type(names):
    """A StudentError that is also the first built-in exception of these.

    None that Python itself obeys: a StopIteration out of an answer would end the loops of a test before it has looked.
    """
    for name in names:
        if name in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
            continue
        kind = getattr(builtins, name, None)
        if kind is None and name == "LinAlgError":
            kind = np.linalg.LinAlgError
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
            try:
                made = type(name, (StudentError, kind), {})
                made("text")
            except TypeError:  # its layout, or the number of its arguments, is another one
                continue
            return made
    return StudentError


def student_error(ename, names, message, trace):
    """The error that the student's process tells of: its type's name, those of its bases, its text, its lines."""
    error = _error_type(names)(clean(message, MESSAGE))
    error.ename, error.message, error.trace = clean(ename, 80), clean(message, MESSAGE), clean(trace, TRACE)
    return error


def bases(error):
    """The names of the built-in types that an error is."""
    return tuple(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def name_of(error):
    """The name of an error's type, as its own process calls it."""
    return getattr(error, "ename", "") or type(error).__name__
