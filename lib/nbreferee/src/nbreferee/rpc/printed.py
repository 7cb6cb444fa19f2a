"""What the student's code prints, kept until it is asked for: at Python's level, and below it."""

import contextlib
import fcntl
import io
import os
import tempfile

__all__ = ["Descriptors", "Printed"]


class Printed(io.TextIOBase):
    """Standard output and standard error of the student's code: what exceeds the limit is dropped at once."""

    name = "stdout"
    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self):
        self.limit, self.text = 65_536, []
        self.room = self.limit

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return 1

    def close(self):
        """Nothing can be closed that the next cell prints to."""

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        kept = str(text[: self.room])
        if kept:
            self.text.append(kept)
            self.room -= len(kept)
        return len(text)

    def take(self) -> str:
        """What was printed since this was last called."""
        text, self.text, self.room = "".join(self.text), [], self.limit
        return text


class Descriptors:
    """Descriptors 1 and 2, for what is printed below Python: a file in memory that is emptied after each question."""

    def __init__(self):
        self.fd = None
        try:
            with tempfile.TemporaryFile() as file:  # in the sandbox, in memory; memory without a file is refused there
                first = os.dup(file.fileno())
        except OSError:
            return
        self.fd = first
        with contextlib.suppress(OSError):
            self.fd = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 100)  # out of the way of a student's closerange(3, 20)
            os.close(first)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, fcntl.fcntl(self.fd, fcntl.F_GETFL) | os.O_APPEND)
        os.dup2(self.fd, 1)
        os.dup2(self.fd, 2)

    def take(self, limit: int) -> str:
        """What was printed since this was last called, at most so many bytes of it."""
        try:
            if self.fd is None or not os.fstat(self.fd).st_size:
                return ""
            data = os.pread(self.fd, limit, 0)
            os.ftruncate(self.fd, 0)
            return data.decode("utf-8", "backslashreplace")
        except OSError:
            return ""
