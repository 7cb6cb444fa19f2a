"""How much time a submission has used, and how much it has left.

What is limited is processor time, of the student's processes and of the tests that judge them: a busy machine does not
change it. Beside it there is a far limit of the time in which a submission waits, for input, a lock or a sleep. The
time in which it would compute and gets no processor counts as neither.
"""

import os
import time
from typing import NamedTuple

__all__ = ["Account", "Clock"]

COARSE_S = 0.05  # so old a measurement may be; each costs a fifth of a millisecond
SHORT_S = 0.01  # between two looks, as the kernel counts in hundredths of a second


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _own():
    """Seconds that this process has computed, and that it has been ready to compute and had no processor."""
    try:
        with open("/proc/self/schedstat") as file:
            queued = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        queued = 0.0
    return time.process_time(), queued


class Spent(NamedTuple):
    """Seconds of computing, and seconds without a processor, up to a moment of ``time.monotonic()``."""

    at: float
    cpu_s: float
    queued_s: float


class Account:
    """What one submission has used, in all its processes.

    Parameters
    ----------
    limits : `nbreferee.judge.job.RunLimits`.
    spent_s : processor time that is gone before.

    Attributes
    ----------
    waited : whether a wait, and not a computation, has cost something.
    asking : a measurement is under way; who interrupts it must not ask.
    known : whether the last measurement had an answer; if not, nothing may be concluded from how long it took.
    """

    def __init__(self, limits, spent_s: float = 0.0):
        self.limits, self.cores = limits, processors()
        self.waited, self.asking, self.known = False, False, True
        self.began, self._own = time.monotonic(), _own()
        self._closed = spent_s, 0.0  # of processes that have ended
        self._line, self._seen = None, Spent(self.began, 0.0, 0.0)

    def open(self, line, since: float) -> None:
        """Count a new process of the student's, which began at a value of ``time.monotonic()``."""
        self._line, self._seen = line, Spent(since, 0.0, 0.0)

    def close(self) -> None:
        """The student's process is about to be ended."""
        self._look(COARSE_S)
        self._closed = self._closed[0] + self._seen.cpu_s, self._closed[1] + self._seen.queued_s
        self._line, self._seen = None, Spent(time.monotonic(), 0.0, 0.0)

    def _look(self, old_s):
        """Measure the student's process, unless that was done a moment ago."""
        if self._line is None or time.monotonic() - self._seen.at < old_s:
            return
        self.asking = True
        try:
            used = self._line.used()
        finally:
            self.asking = False
        self.known = used is not None
        if self.known:
            self._seen = Spent(time.monotonic(), max(used[0], self._seen.cpu_s), max(used[1], self._seen.queued_s))

    def spent(self, old_s: float = 0.0) -> Spent:
        """All that has been used up to now, or up to ``old_s`` seconds ago."""
        self._look(old_s)
        cpu, queued = (now - then for now, then in zip(_own(), self._own, strict=True))
        now = time.monotonic()
        return Spent(now, self._closed[0] + self._seen.cpu_s + cpu, self._closed[1] + self._seen.queued_s + queued)

    def at_most(self) -> Spent:
        """A bound on what has been used up to now, which costs no measurement if there was one a moment ago."""
        spent = self.spent(COARSE_S)
        since = spent.at - self._seen.at if self._line is not None else 0.0
        return spent._replace(cpu_s=spent.cpu_s + self.cores * since)

    def over(self) -> str:
        """Why the submission as a whole has no time left, or an empty text."""
        limits, since = self.limits, time.monotonic() - self.began
        most = self._closed[0] + self.cores * since
        if most < limits.total_s and since < limits.patience * limits.total_s:
            return ""  # it cannot have used that much
        spent = self.spent(COARSE_S)
        if spent.cpu_s >= limits.total_s:
            return f"the submission had used its {limits.total_s:g} seconds of processor time"
        if self.known and self.waits(spent) >= limits.patience * limits.total_s:
            self.waited = True
            return f"the submission had waited for {limits.patience * limits.total_s:g} seconds"
        return ""

    def waits(self, spent: Spent) -> float:
        """Seconds in which nothing was computed and nothing wanted a processor."""
        return max(0.0, spent.at - self.began - spent.cpu_s - spent.queued_s)


class Clock:
    """The time of one cell, or of one test with all that it asks.

    Parameters
    ----------
    account : whose time it is.
    more_s : seconds beyond the limits.

    Attributes
    ----------
    over : how it came that the time is over, in words.
    """

    def __init__(self, account: Account, more_s: float = 0.0):
        self.account, self.over = account, "the time was over"
        self._began = began = account.at_most()
        limits = account.limits
        self._cpu_s = min(limits.cell_s, max(0.0, limits.total_s - began.cpu_s)) + more_s
        whole = max(0.0, limits.patience * limits.total_s - account.waits(began))
        self._wait_s = min(limits.patience * limits.cell_s, whole) + more_s
        self._look = began.at + min(self._cpu_s / account.cores, self._wait_s)

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time that were left at the beginning."""
        return self._cpu_s

    def left(self) -> float:
        """Seconds until it is worth while to ask again; 0 if the time is over."""
        now = time.monotonic()
        if now < self._look:
            return self._look - now
        if self.account.asking:
            return SHORT_S
        spent = self.account.spent()
        if not self.account.known:
            return SHORT_S
        used = spent.cpu_s - self._began.cpu_s
        waited = spent.at - self._began.at - used - (spent.queued_s - self._began.queued_s)
        if used >= self._cpu_s:
            limits = self.account.limits
            last = self._cpu_s < limits.cell_s
            allowed = (
                f"{limits.total_s:g} s of processor time in all" if last else f"{limits.cell_s:g} s of processor time"
            )
            self.over = f"the time was over: {allowed} were allowed, and are used"
            return 0.0
        if waited >= self._wait_s:
            self.account.waited = True
            self.over = (
                f"the time was over: it computed little and waited, for input, a lock or a sleep; {self._wait_s:.3g} s "
                "were allowed"
            )
            return 0.0
        self._look = spent.at + max(SHORT_S, min((self._cpu_s - used) / self.account.cores, self._wait_s - waited))
        return max(SHORT_S, self._look - time.monotonic())
