"""What runs behind the outer wall: import, fork when told to, bury the dead. It parses nothing that a student wrote.

Every owner (the supervisor, each grader) has a control socket. One byte on it means "start one": the supervisor's
starts graders, a grader's starts students. The answer is two bytes, with two descriptors: the channel, and the leash.
"""

import gc
import importlib
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback

from ..rpc.framing import Channel
from . import syscalls
from .namespaces import STARTED, USED, close_others, ended, enter, heard, lay_out, limit, say
from .sandbox import GIVEN_AT, HOME, Policy, SandboxError, files_beside
from .supervisor import Starter

__all__ = ["main"]


def main(order: dict) -> None:
    """The zygote's whole life.

    Parameters
    ----------
    order : what `nbreferee.walls.supervisor.Zygote` wrote: control, preload, grader, student, policy, user, unsafe.
    """
    control = order["control"]
    try:
        moved = {} if order["unsafe"] else {"readable": (), "beside": ""}  # behind the wall they lie elsewhere
        policy = Policy(**order["policy"] | moved)
        if not order["unsafe"]:
            _become(order["user"])
        _raise_files()
        for name in order["preload"]:
            _import(name)
        tasks = {role: _function(order[role]) for role in ("grader", "student")}
        _prepare(order)
        if threading.active_count() > 1 or (sys.platform == "linux" and len(os.listdir("/proc/self/task")) > 1):
            raise SandboxError("a preloaded module has started threads, and a fork would lose them; do not preload it")
        forker = Forker(control, tasks, policy, order["unsafe"])
        _reseed()  # imports what it needs
        gc.collect()
        gc.freeze()
        forker.rehearse()
    except SandboxError as error:
        os.write(control, f"sandbox: {error}"[:1900].encode())
        os._exit(1)
    except Exception as error:
        os.write(control, f"{type(error).__name__}: {error}"[:1900].encode())
        traceback.print_exc()
        os._exit(1)
    os.write(control, b"+")
    forker.run()


def _become(user):
    """Be the ordinary user from here on, and closed to others of that name."""
    if user is not None:
        syscalls.mount("proc", "/proc", "proc", syscalls.NOSUID | syscalls.NODEV | syscalls.NOEXEC)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    if os.geteuid() == 0 and user is not None:
        raise SandboxError("the zygote is still root; this is a fault of nbreferee")
    syscalls.prctl(syscalls.DUMPABLE, 0)
    syscalls.prctl(syscalls.SUBREAPER, 1)  # students whose warder was killed come to us
    syscalls.die_with_parent()
    os.makedirs(HOME, exist_ok=True)


def _raise_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want), hard))


def _import(name):
    try:
        return importlib.import_module(name)
    except Exception as error:
        text = (
            f"{name} cannot be imported behind the wall ({type(error).__name__}: {error}); install it or leave it out"
        )
        raise ImportError(text) from error


def _prepare(order):
    """Call ``prepare`` of the two modules where there is one: what is slow and the same for all."""
    for role in ("grader", "student"):
        prepare = getattr(_import(order[role].partition(":")[0]), "prepare", None)
        if prepare is not None:
            prepare()


def _function(name):
    module, _, function = name.partition(":")
    found = getattr(_import(module), function, None)
    if not callable(found):
        raise ImportError(f"{module} has no function {function!r}; write module:function")
    return found


class Forker:
    """The zygote's loop.

    Parameters
    ----------
    control : the supervisor's socket.
    tasks : {"grader": function(channel, start), "student": function(channel)}.
    policy : for students.
    unsafe : without walls.
    """

    def __init__(self, control: int, tasks: dict, policy: Policy, unsafe: bool):
        self._control, self._tasks, self._policy, self._unsafe = control, tasks, policy, unsafe
        self._modules = policy.beside if unsafe else GIVEN_AT
        self._files = files_beside(self._modules)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._children = set()
        self._deaths, signals = os.pipe()
        os.set_blocking(self._deaths, False)
        os.set_blocking(signals, False)
        self._poll.register(self._deaths, select.POLLIN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the supervisor is gone."""
        while True:
            ready = self._poll.poll()
            for number, events in sorted(ready, key=lambda each: each[0] == self._control):  # who left makes room first
                if number == self._deaths:
                    os.read(number, 4096)
                    self._bury()
                elif events & select.POLLIN and _hears(number):
                    self._serve(number)
                elif number == self._control:
                    os._exit(0)  # bubblewrap's process 1 follows, and the kernel kills the rest
                else:
                    self._forget(number)

    def _forget(self, number):
        self._poll.unregister(number)
        os.close(number)

    def _bury(self):
        """Reap. If a warder was killed, its student is ours now and must follow."""
        try:
            while True:
                number, status = os.waitpid(-1, os.WNOHANG)
                if not number:
                    return
                known = number in self._children
                self._children.discard(number)
                if known and os.WIFSIGNALED(status):
                    self._kill_orphans()
        except ChildProcessError:
            pass

    def _kill_orphans(self):
        for name in os.listdir("/proc") if sys.platform == "linux" else ():
            if name.isdecimal() and int(name) not in {os.getpid(), *self._children}:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                if parent == os.getpid():
                    os.kill(int(name), signal.SIGKILL)

    def _serve(self, number):
        """Fork one process and send its owner the two descriptors."""
        role = "grader" if number == self._control else "student"
        try:
            ours, control = self.fork(role)
        except OSError as error:
            self._answer(number, bytes([ord("-"), error.errno & 255]), [])
            return
        self._answer(number, b"+.", ours)
        for each in ours:
            os.close(each)
        if control is not None:
            self._poll.register(control, select.POLLIN)

    def _answer(self, number, word, numbers):
        with socket.socket(fileno=os.dup(number)) as to:
            try:
                socket.send_fds(to, [word], numbers, socket.MSG_DONTWAIT)
            except OSError:
                pass  # the owner is gone; closing the descriptors kills the process

    def fork(self, role: str) -> tuple:
        """Fork a process.

        Returns
        -------
        the owner's channel and leash, and the control socket of a grader.
        """
        pairs = []
        try:
            for _ in range(3 if role == "grader" else 2):
                pairs.append([end.detach() for end in socket.socketpair()])
            number = os.fork()
        except OSError:
            for each in pairs:
                os.close(each[0])
                os.close(each[1])
            raise
        if number == 0:
            self._child(role, *[theirs for _, theirs in pairs])
        self._children.add(number)
        for _, theirs in pairs:
            os.close(theirs)
        ours = [ours for ours, _ in pairs]
        return ours[:2], (ours[2] if role == "grader" else None)

    def _child(self, role, channel, leash, control=None):
        """The life of a new process; it never returns."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            keep = {channel, leash} | ({control} if control is not None else set())
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            close_others({0, 1, 2, *keep})
            policy = self._policy if role == "student" else None
            if self._unsafe:
                _enter_unsafe(policy, leash, self._files)
            else:
                enter(policy, leash, self._files)
            if role == "student":
                os.dup2(1, 2)
            _reseed()
            line = Channel(socket.socket(fileno=channel))
            if role == "student":
                self._tasks["student"](line)
            else:
                if self._modules:  # where they are given, not the working folder, in which answers may write
                    sys.path.insert(0, self._modules)
                self._tasks["grader"](line, Starter(socket.socket(fileno=control)))
            code = 0
        except SandboxError as error:
            say(leash, f"sandbox: {error}".encode())
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code & 255)

    def rehearse(self) -> None:
        """Wall in a process that does nothing, to see at the start whether it can be done.

        Raises
        ------
        SandboxError : it cannot.
        """
        tasks, self._tasks = self._tasks, {"student": lambda channel: None}
        (channel, leash), _ = self.fork("student")
        self._tasks = tasks
        told, end = b"", time.monotonic() + 20
        with socket.socket(fileno=leash) as line:
            line.settimeout(20)
            while time.monotonic() < end and (data := line.recv(4096)):
                told += data
        os.close(channel)
        if not told.startswith(b"+"):
            raise SandboxError(told.decode(errors="replace").removeprefix("sandbox: ") or "no wall closed")
        how = told[STARTED.size + USED.size :].decode(errors="replace")
        if how != "exit 0":
            raise SandboxError(f"a process behind the walls ended with {how}")


def _hears(number):
    try:
        return os.read(number, 1)
    except OSError:  # the owner died before it read an answer
        return b""


def _reseed():
    """Two forks of one process would draw the same numbers: a student could know a test's."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.manual_seed(int.from_bytes(os.urandom(7), "little"))


def _enter_unsafe(policy, leash, files):
    """As `enter`, without walls: own session, own scratch folder, limits; what escapes from the session lives on."""
    scratch = tempfile.mkdtemp(prefix="nbreferee-")
    child = os.fork()
    if child:
        try:
            close_others({leash, 2})
            say(leash, STARTED.pack(b"+", child))
            say(leash, _watch(child, leash).encode())
            shutil.rmtree(scratch, ignore_errors=True)
        finally:
            os._exit(0)
    os.setsid()
    os.close(leash)
    lay_out(files, f"{scratch}/work")
    os.environ |= {name: scratch for name in ("HOME", "TMPDIR")}
    os.environ |= {"IPYTHONDIR": f"{scratch}/.ipython", "MPLCONFIGDIR": f"{scratch}/.matplotlib"}
    tempfile.tempdir = None
    limit(policy)


def _session(child):
    """The processes of the session of a child, which it began; none where there is no /proc."""
    found = []
    for name in os.listdir("/proc") if sys.platform == "linux" else ():
        try:
            with open(f"/proc/{name}/stat") as file:
                if file.read().rpartition(")")[2].split()[3] == str(child):
                    found.append(name)
        except (OSError, IndexError):
            pass  # no process, or one that has ended meanwhile
    return found


def _watch(child, leash):
    poll = select.poll()
    poll.register(leash, select.POLLIN)
    while True:
        if poll.poll(20) and not heard(leash, _session(child)):
            try:
                os.killpg(child, signal.SIGKILL)
            except OSError:
                os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
            say(leash, USED.pack(b"=", usage.ru_utime + usage.ru_stime, 0.0))
            return ended(status)
        number, status, usage = os.wait4(child, os.WNOHANG)
        if number:
            try:
                os.killpg(child, signal.SIGKILL)  # what it left behind
            except OSError:
                pass
            say(leash, USED.pack(b"=", usage.ru_utime + usage.ru_stime, 0.0))
            return ended(status)
