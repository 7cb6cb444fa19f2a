"""Many submissions at a time: each gets a grading process of its own, under a wall limit, and leaves nothing behind."""

import itertools
import queue
import threading
import time
from concurrent.futures import Future, InvalidStateError

from ..errors import NbrefereeError
from ..judge.job import Job
from ..rpc.framing import TimedOut, WireError
from .message import MessageError, Request, once_more, one_line, read_note, read_reply, write_request

__all__ = ["GraderFailed", "Local", "PoolError"]

GRACE_S = 15.0  # beyond the job's own limit: start of the student's process, rendering
START_S = 30.0
TRIES = 10
LOOK_S = 0.05  # between two looks at a step that is late
UNMEASURED = 5  # so many times its processor time a step may last where no processor time can be measured
NO_STEP = -1  # what a grading process says when a step is done


class PoolError(NbrefereeError):
    """No grading process can be started; the text is one line that names the cure."""


class GraderFailed(NbrefereeError):
    """The grading process gave no answer to this job; the text is one line. The student is not to blame for sure."""


class Pool:
    """What every pool can do besides ``submit`` and ``close``."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def run(self, job: Job) -> Future:
        """Grade a job and render nothing.

        Parameters
        ----------
        job : what is to be run.

        Returns
        -------
        Future of a Result.
        """
        out = Future()
        inner = self.submit(write_request(Request(job)), job.limits.far_s)

        def done(future):
            try:
                result = read_reply(future.result(), job).result
            except MessageError as error:
                settle(out, error=GraderFailed(str(error)))
            except BaseException as error:
                settle(out, error=error)
            else:
                settle(out, result)

        inner.add_done_callback(done)
        return out


def settle(future, result=None, *, error=None):
    try:
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
    except InvalidStateError:
        pass  # it was cancelled meanwhile


class _Shared:
    """The zygote that all workers use, and its successor when it has died."""

    def __init__(self, make):
        self.make, self.lock, self.zygote, self.closed = make, threading.Lock(), None, False

    def current(self):
        with self.lock:
            if self.closed:
                raise PoolError("the pool is closed")
            if self.zygote is None:
                self.zygote = self.make().__enter__()
            return self.zygote

    def replace(self, dead):
        """Start anew, unless another worker has done so."""
        with self.lock:
            if self.zygote is not dead:
                return
            self.zygote = None
        quietly(dead.close)

    def close(self):
        with self.lock:
            self.closed, zygote, self.zygote = True, self.zygote, None
        if zygote is not None:
            quietly(zygote.close)


def quietly(function):
    try:
        function()
    except Exception:
        pass


class Local(Pool):
    """Grading processes on this machine.

    A job whose grading process ends without an answer is tried once more, in a zygote of its own, so that what kills
    its zygote costs no other submission anything. A job that takes too long is not tried again; but one that does not
    come out of a single test in its time, as C code does that no alarm interrupts, is begun anew without that test.

    Parameters
    ----------
    make_zygote : makes a `nbreferee.walls.supervisor.Zygote`; called again when one has died.
    workers : how many submissions at a time.
    grace_s : seconds beyond a job's own limit.

    Raises
    ------
    PoolError : by ``submit``'s future, if no grading process can be started at all.

    Examples
    --------
    with Local(Zygote, workers=2) as pool:
        reply = pool.submit(message, timeout_s=120).result()
    """

    def __init__(self, make_zygote, workers: int = 2, *, grace_s: float = GRACE_S):
        if workers < 1:
            raise PoolError(f"{workers} workers; at least 1 is needed")
        self.workers = workers
        self._make, self._grace_s = make_zygote, grace_s
        self._shared = _Shared(make_zygote)
        self._queue, self._lock, self._lines, self._closing = queue.SimpleQueue(), threading.Lock(), set(), False
        self._threads = [threading.Thread(target=self._work, name=f"grading-{n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, message: bytes, timeout_s: float) -> Future:
        """Hand a message to the next free grading process.

        Parameters
        ----------
        message : see `nbreferee.workers.message.write_request`.
        timeout_s : what the job may take by its own limits.

        Returns
        -------
        Future of the answer's bytes. It raises GraderFailed if there was none, PoolError if none could be asked.
        """
        future = Future()
        if self._closing:
            raise PoolError("the pool is closed")
        self._queue.put((future, message, timeout_s))
        return future

    def close(self) -> None:
        """End all that runs, cancel all that waits. No process is left."""
        with self._lock:
            self._closing = True
            lines = list(self._lines)
        for line in lines:
            quietly(line.kill)
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                job[0].cancel()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout=START_S)
        self._shared.close()

    def _work(self):
        for future, message, timeout_s in iter(self._queue.get, None):
            if not future.set_running_or_notify_cancel():
                continue
            try:
                settle(future, self._grade(message, timeout_s))
            except BaseException as error:
                settle(future, error=error)

    def _grade(self, message, timeout_s):
        began = time.monotonic()
        while True:
            try:
                return self._try(message, began + timeout_s + self._grace_s)
            except _Stuck as stuck:
                message = once_more(message, stuck.step, stuck.spent_s)

    def _try(self, message, end):
        """Grade, and if the grading process ends without an answer grade once more, in a zygote of its own."""
        try:
            return self._ask(self._line(), message, end)
        except _Lost:
            if self._closing:
                raise GraderFailed("the grading was stopped; give the command again") from None
        try:
            with self._make() as alone:
                return self._ask(alone.grader(START_S), message, end)
        except _Lost as lost:
            how = "the grading was stopped; give the command again" if self._closing else str(lost)
        except (GraderFailed, _Stuck):
            raise
        except Exception as error:
            how = f"it could not be started again ({one_line(error)})"
        raise GraderFailed(how)

    def _line(self):
        """A fresh grading process of the shared zygote."""
        for attempt in itertools.count():
            zygote = None
            try:
                zygote = self._shared.current()
                return zygote.grader(START_S)
            except PoolError:
                raise
            except Exception as error:
                if self._closing:
                    raise _Lost from None
                if zygote is None or attempt >= TRIES:
                    raise PoolError(f"no grading process can be started: {one_line(error)}") from None
                if isinstance(error, RuntimeError):  # ZygoteError: it has died, perhaps of another worker's job
                    self._shared.replace(zygote)
                else:  # SandboxError: the machine is short of something for the moment
                    time.sleep(0.2)

    def _ask(self, line, message, end):
        limit = end - time.monotonic()
        with self._lock:
            self._lines.add(line)
            closing = self._closing
        try:
            if closing:
                raise _Lost
            line.channel.send(message, max(0.0, limit))
            return _listen(line, end)
        except TimedOut:
            raise GraderFailed(f"the grading process gave no answer in {limit:.3g} s and was ended") from None
        except WireError as error:
            raise _Lost(f"the grading process ended without an answer, twice ({_how(line) or error})") from None
        finally:
            with self._lock:
                self._lines.discard(line)
            quietly(line.close)


def _listen(line, end):
    """Wait for the answer, and watch over the steps of which the grading process tells before it."""
    note, began, due = None, 0.0, end
    while True:
        try:
            heard = line.channel.receive(max(0.0, min(due, end) - time.monotonic()))
        except TimedOut:
            if note is None or time.monotonic() >= end:
                raise
            left = _left(line, note, began)
            if left <= 0:
                raise _Stuck(note) from None
            due = time.monotonic() + left
            continue
        note = read_note(heard)
        if note is None:
            return heard
        began = time.monotonic()
        due, note = (end, None) if note.step == NO_STEP else (began + note.within_s, note)


def _left(line, note, began):
    """Seconds of processor time that a grading process has left for its step."""
    used = line.used()
    if used is None:  # it cannot be measured here
        return began + UNMEASURED * note.within_s - time.monotonic()
    left = note.within_s - (used[0] - note.own_s)
    return max(left, LOOK_S) if left > 0 else 0.0


class _Lost(NbrefereeError):
    """The grading process is gone."""


class _Stuck(NbrefereeError):
    """The grading process does not come out of a step of its job."""

    def __init__(self, note):
        super().__init__(f"step {note.step} does not end")
        self.step, self.spent_s = note.step, note.spent_s + note.within_s


def _how(line):
    try:
        return line.ended(1.0)
    except Exception:
        return None
