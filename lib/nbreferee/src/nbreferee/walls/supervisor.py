"""The supervisor's side of the zygote: start it, ask it for graders, notice when one of them ends.

The zygote is a process behind the outer wall that has imported what is slow to import and forks in milliseconds. See
`nbreferee.walls.sandbox` for the walls and `nbreferee.walls.fork_server` for what happens behind them.
"""

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref

from ..errors import NbrefereeError
from ..rpc.framing import Channel
from .namespaces import ASK, STARTED, USED
from .sandbox import HOME, SCRATCH, Policy, SandboxError, abilities, ordinary_user, outer_wall, visible_paths

__all__ = ["Forked", "Starter", "Zygote", "ZygoteError"]

BOOT = """
import json, sys
order = json.loads(sys.stdin.readline())
sys.path[:0] = order["front"]
from nbreferee.walls.fork_server import main
main(order)
"""
THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "BLIS")
DYING_S = 2.0  # how long the successor of a killed process waits for its end
ASKED_S = 2.0  # how long to wait for the answer how much time was used
KEPT = 8000  # characters of what the zygote and its graders write to stderr


class ZygoteError(NbrefereeError, RuntimeError):
    """The zygote cannot be started, or has died; the text says what it said last."""


class Forked:
    """One end of the line to a process that the zygote forked; the owner's.

    Parameters
    ----------
    channel : for messages; what a student's process sends over it is a stranger's.
    leash : a socket to the warder of the process; closing it kills, and it tells how much time is used.
    dying : a set that takes this line when it was killed and the end was not seen.

    Attributes
    ----------
    channel : the `nbreferee.rpc.framing.Channel`.
    number : the process's number in the zygote's namespace; for messages only.
    """

    def __init__(self, channel: Channel, leash: socket.socket, dying: set):
        self.channel = channel
        self.number = 0
        self._leash = leash
        self._dying = dying
        self._lock = threading.Lock()
        self._heard = bytearray()
        self._end = self._used = None
        self._measured = 0
        leash.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self.channel.close()
            self._leash.close()
        except AttributeError:
            pass  # it was never made

    def _listen(self, end, enough):
        """Read what the warder says, until there is enough, or all, or the time is over."""
        while self._end is None and not enough():
            try:
                data = self._leash.recv(4096)
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._leash, select.POLLIN)
                left = end - time.monotonic()
                if left <= 0 or not poll.poll(int(left * 1000) + 1):
                    return
                continue
            except OSError:
                data = b""
            self._heard += data
            if not data:
                self._end = bytes(self._heard).decode(errors="replace") or "signal 9"  # the warder was killed too
            while self._heard[:1] in (b"+", b"=") and self._understood():
                pass

    def _understood(self):
        """Whether there was a whole answer of the warder's at the beginning of what was heard; it is taken away."""
        form = STARTED if self._heard[:1] == b"+" else USED
        if len(self._heard) < form.size:
            return False
        _, *found = form.unpack_from(self._heard)
        del self._heard[: form.size]
        if form is STARTED:
            self.number = found[0]
        else:
            self._used, self._measured = tuple(found), self._measured + 1
        return True

    def started(self, timeout_s: float) -> None:
        """Wait until the walls are closed.

        Raises
        ------
        SandboxError : one did not close, or not in time; the process is dead.
        """
        with self._lock:
            self._listen(time.monotonic() + timeout_s, lambda: self.number)
            if self.number:
                return
            end = self._end
        self.close()
        raise SandboxError(end or f"no process was ready within {timeout_s:g} s; run fewer at a time")

    def ended(self, timeout_s: float = 0) -> str | None:
        """How the process ended.

        Parameters
        ----------
        timeout_s : how long to wait for it.

        Returns
        -------
        ``exit 0``, ``signal 9``, ``memory: …``; None while it runs.
        """
        with self._lock:
            self._listen(time.monotonic() + timeout_s, lambda: False)
            return self._end

    def used(self) -> tuple[float, float] | None:
        """Seconds of processor time that the process and all that it started have used, and waited for a processor.

        Returns
        -------
        The two numbers, those of the end if it has ended; None if no answer came, as on a very busy machine.
        """
        with self._lock:
            before = self._measured
            try:
                self._leash.send(ASK)
            except OSError:
                pass  # it has ended, and has told what it used
            self._listen(time.monotonic() + ASKED_S, lambda: self._measured > before)
            if self._measured > before or self._end is not None:
                return self._used or (0.0, 0.0)
            return None

    def kill(self, timeout_s: float = 5) -> None:
        """End the process and all that it started; returns when they are gone. A second call does nothing.

        The channel stays open, so that another thread that waits for it sees its end; `close` closes it.

        Parameters
        ----------
        timeout_s : how long to wait for the end at most.
        """
        try:
            self._leash.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        if self.ended(timeout_s) is None:
            self._dying.add(self)

    def close(self) -> None:
        """Kill and close both descriptors."""
        self.kill()
        with self._lock:
            self._end = self._end or "signal 9"
            self._leash.close()
        self.channel.close()


class Starter:
    """Asks the zygote for processes, over a socket of its own; safe to use from several threads.

    Parameters
    ----------
    control : the socket.
    """

    def __init__(self, control: socket.socket):
        self._control = control
        self._lock = threading.Lock()
        self._broken = None
        self._dying = set()  # killed, and perhaps not gone yet

    def __call__(self, timeout_s: float = 10) -> Forked:
        """Start a process and wait until its walls are closed, and until those are gone that were killed before.

        Parameters
        ----------
        timeout_s : for all of it.

        Raises
        ------
        ZygoteError : there is no zygote any more.
        SandboxError : the process could not be started, or not be walled in.
        """
        end = time.monotonic() + timeout_s
        with self._lock:
            if self._broken:
                raise ZygoteError(self._broken)
            word, numbers = self._ask(timeout_s)
        if word[:1] != b"+":
            raise SandboxError(f"no process could be started: {os.strerror(word[1])}; run fewer at a time")
        channel, leash = (socket.socket(fileno=number) for number in numbers)
        line = Forked(Channel(channel), leash, self._dying)
        line.started(max(0.001, end - time.monotonic()))
        self._see_off()
        return line

    def _see_off(self):
        """Wait for the end of what was killed before; else it could tell its successor what it was asked.

        The walls of the successor have been built meanwhile, so there is seldom anything left to wait for.
        """
        end = time.monotonic() + DYING_S
        dying = list(self._dying)
        self._dying.difference_update(dying)
        for line in dying:
            line.ended(max(0.0, end - time.monotonic()))

    def _ask(self, timeout_s):
        try:
            self._control.settimeout(timeout_s)
            self._control.sendall(b"!")
            flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            word, extra, _, _ = self._control.recvmsg(2, socket.CMSG_SPACE(8), flags)
        except TimeoutError:
            self._broken = f"the zygote did not answer within {timeout_s:g} s; make a new one"
            raise ZygoteError(self._broken) from None
        except OSError:
            word = b""
        if len(word) < 2:
            self._broken = "the zygote has died; make a new one"
            raise ZygoteError(self._broken)
        numbers = array.array("i")
        for _, _, data in extra:
            numbers.frombytes(data)
        for number in numbers:
            os.set_inheritable(number, False)
        return word, numbers

    def close(self, why: str) -> None:
        """Give the socket back; later calls raise ``why``."""
        self._broken = self._broken or why
        self._control.close()


_open = weakref.WeakSet()


def _let_go():
    """A forked worker of the supervisor must not keep the zygote alive after the supervisor's death."""
    for starter in _open:
        starter.close("this zygote belongs to another process; make a new one")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _surroundings():
    """The zygote's environment, which every student sees: nothing of the instructor's but the time zone."""
    names = {"PATH": os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin", "/bin"]), "LANG": "C.UTF-8"}
    names |= {"HOME": HOME, "TMPDIR": SCRATCH, "LOGNAME": "student", "USER": "student", "MPLBACKEND": "Agg"}
    names |= {"IPYTHONDIR": f"{HOME}/.ipython", "MPLCONFIGDIR": f"{HOME}/.matplotlib", "HF_HUB_OFFLINE": "1"}
    names |= {"PIP_RETRIES": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}  # there is no network to wait for
    names |= {f"{library}_NUM_THREADS": "1" for library in THREADS}
    return names | ({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {})


class Zygote:
    """A zygote, as a context manager; safe to use from several threads.

    Parameters
    ----------
    preload : modules to import before the first fork. None may start threads.
    policy : what a student's process may use.
    unsafe : without any walls. A student's code can then do all that you can.
    grader : ``module:function``, called as ``function(channel, start)`` in a grader's process.
    student : ``module:function``, called as ``function(channel)`` in a student's process, behind the inner wall.
    timeout_s : how long the imports may take.

    Raises
    ------
    SandboxError : this machine cannot build the walls; the text names the cure.
    ZygoteError : it did not start, for instance because a module cannot be imported.

    Examples
    --------
    >>> with Zygote(grader="course.work:main", student="course.agent:serve") as zygote:  # doctest: +SKIP
    ...     with zygote.grader() as line:
    ...         line.channel.send(b"a question", timeout_s=1)
    ...         answer = line.channel.receive(timeout_s=60)
    """

    def __init__(
        self,
        *,
        preload=("numpy",),
        policy: Policy | None = None,
        unsafe: bool = False,
        grader: str = "nbreferee.workers.process:main",
        student: str = "nbreferee.rpc.agent:serve",
        timeout_s: float = 120,
    ):
        self._said, self._process, self._lock = "", None, threading.Lock()
        self._closed = False
        if os.name != "posix":
            raise SandboxError("this system cannot fork; run it on Linux, in a virtual machine or in WSL")
        policy = policy or Policy()
        paths, front = visible_paths(policy, (grader, student, *preload))
        user = None if unsafe else ordinary_user()
        if not unsafe and (sys.platform != "linux" or not (outer := outer_wall(paths, user, policy.beside))):
            raise SandboxError(abilities().lacks)
        ours, theirs = socket.socketpair()
        order = {"control": theirs.fileno(), "front": front, "preload": list(preload), "grader": grader}
        order |= {"student": student, "policy": _fields(policy), "user": user, "unsafe": unsafe}
        command = [] if unsafe else outer
        command += [os.path.abspath(sys.executable), "-I", "-B", "-c", BOOT]
        started = threading.Event()
        # The kernel kills the zygote when the *thread* that started it ends, so one is kept for that.
        self._keeper = threading.Thread(target=self._keep, args=(command, order, theirs, started), daemon=True)
        self._keeper.start()
        started.wait()
        theirs.close()
        self._start = Starter(ours)
        _open.add(self._start)
        try:
            self._first_word(ours, timeout_s, unsafe)
        except BaseException:
            self.close()
            raise

    def _keep(self, command, order, control, started):
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[control.fileno()],
                env=_surroundings(),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self._said = str(error)
            return
        finally:
            started.set()
        try:  # not as an argument: every student could read the zygote's command line
            with self._process.stdin as file:
                file.write(json.dumps(order).encode() + b"\n")
        except OSError:
            pass  # it has died, and says why
        with self._process.stderr as file:
            while text := os.read(file.fileno(), 65536):
                self._said = (self._said + text.decode(errors="replace"))[-KEPT:]
        self._process.wait()

    def _first_word(self, control, timeout_s, unsafe):
        control.settimeout(timeout_s)
        try:
            word = control.recv(2000).decode(errors="replace")
        except TimeoutError:
            raise ZygoteError(f"the zygote was not ready within {timeout_s:g} s; preload less") from None
        except OSError:
            word = ""
        if word == "+":
            return
        self.close()
        if word.startswith("sandbox: ") or (not word and not unsafe and not (able := abilities())):
            text = word.removeprefix("sandbox: ") or able.lacks
            raise SandboxError(f"{text}{f' (it said: {self.said})' if self.said else ''}")
        raise ZygoteError(f"the zygote did not start: {word or self.said or 'it said nothing'}")

    @property
    def said(self) -> str:
        """The end of what the zygote and its graders wrote to stderr."""
        return self._said.strip()

    @property
    def pid(self) -> int:
        """Of the process that the supervisor started, which is bubblewrap, or without walls the zygote itself."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the zygote runs."""
        return not self._closed and self._process is not None and self._process.poll() is None

    def grader(self, timeout_s: float = 10) -> Forked:
        """Start a grader's process.

        Parameters
        ----------
        timeout_s : how long that may take.

        Raises
        ------
        ZygoteError : the zygote has died or was closed; make a new one.
        SandboxError : the process could not be started, or not be walled in.
        """
        try:
            return self._start(timeout_s)
        except ZygoteError as error:
            said = self.said.splitlines()
            raise ZygoteError(f"{error}{f' (it said: {said[-1]})' if said else ''}") from None

    def close(self) -> None:
        """End the zygote and all that it started; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._start.close("this zygote was closed; make a new one")
        self._keeper.join(5)
        if self._keeper.is_alive() and self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._keeper.join(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _fields(policy):
    return {name: getattr(policy, name) for name in policy.__dataclass_fields__}
