"""Files of a course: written whole or not at all, and every error of the file system as one line with the cure."""

import contextlib
import os
import time

from ..errors import NbrefereeError
from ..pages.feedback import visible

__all__ = ["BatchError", "in_words", "only_one", "put", "reading", "there", "writing"]

TICK_S = 0.2
FULL, IN_THE_WAY = (27, 28, 122), (17, 20, 21)


class BatchError(NbrefereeError):
    """The assignment cannot be graded, or not any further; the text is one line that names the cure."""


def in_words(error) -> str:
    """An error as one line, in which nothing that a stranger wrote is hidden."""
    return " ".join(visible(str(error)).split())[:300] or type(error).__name__


@contextlib.contextmanager
def writing(path):
    """Raise BatchError for what keeps a file or a folder from being written."""
    try:
        yield
    except OSError as error:
        cure = "make room" if error.errno in FULL else "make its folder writable"
        cure = "move away what lies in its place" if error.errno in IN_THE_WAY else cure
        why = error.strerror or in_words(error)
        raise BatchError(f"{path} cannot be written ({why}); {cure} and give the command again") from None


@contextlib.contextmanager
def reading(path):
    """Raise BatchError for what keeps a file from being read."""
    try:
        yield
    except OSError as error:
        raise BatchError(
            f"{path} cannot be read ({error.strerror or in_words(error)}); check its permissions"
        ) from None


def put(path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_text(text, "utf-8")
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise


def there(path) -> bool:
    """Whether a file is there and holds something."""
    with contextlib.suppress(OSError):
        return path.stat().st_size > 0
    return False


@contextlib.contextmanager
def only_one(folder, wait_s: float = 5.0):
    """No second run in the same course; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "w")
    with file:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > end:
                    raise BatchError("another run grades this course; wait for it or end it") from None
                time.sleep(TICK_S)
        yield
