"""The inner wall, around every process that the zygote forks: namespaces of its own. See `nbreferee.walls.sandbox`."""

import math
import os
import resource
import select
import signal
import struct
import sys

from . import syscalls
from .sandbox import HOME, SCRATCH, WORK, Policy, SandboxError

__all__ = ["ASK", "STARTED", "USED", "close_others", "ended", "enter", "heard", "lay_out", "limit", "say", "used"]

LOOK_S = 0.1  # between two looks at the memory
STARTED = struct.Struct("!cI")  # what the warder says first; a sentence follows when all is over
ASK, USED = b"?", struct.Struct("!cdd")  # the question how much time the processes have used, and the answer
TICKS = os.sysconf("SC_CLK_TCK")


def enter(policy: Policy | None, leash: int, files: list = ()) -> None:
    """Go behind the inner wall; for a freshly forked process with one thread.

    The process forks. The caller becomes the warder and never returns; its child, process 1 of a new pid namespace,
    returns when all is closed. The warder kills the child when the other end of the leash is closed, or when the memory
    is used up, and writes to it: first `STARTED`, then to each `ASK` how much time has been used, as `USED`,
    at last that once more and how the child ended.

    Parameters
    ----------
    policy : the limits; None for a process that runs no student's code, which gets the namespaces alone.
    leash : a descriptor of a stream socket.
    files : the given files, as `given` lists them, that the working folder is to have.

    Raises
    ------
    SandboxError : a wall did not close; the process must end.
    """
    if not os.statvfs("/").f_flag & os.ST_RDONLY:
        raise SandboxError("the outer wall is missing; start this process by nbreferee.walls.supervisor.Zygote")
    user, group = os.getuid(), os.getgid()
    try:
        syscalls.prctl(syscalls.DUMPABLE, 1)  # or the files below would belong to root
        syscalls.unshare("user", "mount", "pid", "net", "ipc")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            _write(f"/proc/self/{name}", text)
        _write("/proc/sys/user/max_user_namespaces", "0")
        syscalls.prctl(syscalls.DUMPABLE, 0)
    except OSError as error:
        raise SandboxError(f"{error.strerror}; run `nbreferee doctor`") from None
    ours, theirs = os.pipe()
    child = os.fork()
    if child:
        os.close(theirs)
        _ward(child, leash, ours, policy)
    os.close(ours)
    os.close(leash)
    try:
        _settle(policy, files)
    except OSError as error:
        os.write(theirs, f"sandbox: {error.strerror or error}; run `nbreferee doctor`".encode())
        os._exit(1)
    os.write(theirs, b"+")
    os.close(theirs)


def _write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {os.strerror(error.errno)}") from None


def _settle(policy, files):
    """Everything that the child does before it may run a stranger's code."""
    os.setsid()  # or kill(0, 9) would reach the warder, which is in the same group
    syscalls.die_with_parent()
    syscalls.mount("none", "/", None, syscalls.REC | syscalls.PRIVATE)
    _scratch(policy.scratch_bytes if policy else 1 << 30, len(files))
    syscalls.mount("proc", "/proc", "proc", syscalls.NOSUID | syscalls.NODEV | syscalls.NOEXEC)
    lay_out(files, WORK)
    syscalls.prctl(syscalls.DUMPABLE, 1)  # for a student it stays so: the warder reads how much memory it holds
    _write("/proc/self/oom_score_adj", "1000" if policy else "500")
    if policy is None:
        syscalls.prctl(syscalls.DUMPABLE, 0)
    syscalls.capabilities_away()
    limit(policy)
    if syscalls.FILTERED:
        syscalls.filter_calls()


def _scratch(size, links):
    """A file system in memory over /tmp; what the policy shows below /tmp is laid on top of it again."""
    with open("/proc/self/mountinfo") as file:
        below = [line.split()[4] for line in file]
    below = [(path, os.open(path, os.O_PATH)) for path in below if path.startswith(f"{SCRATCH}/") and "\\" not in path]
    data = f"size={size},nr_inodes={min(size >> 12, 1 << 14) + 16 + 2 * links},mode=700"
    syscalls.mount("tmpfs", SCRATCH, "tmpfs", syscalls.NOSUID | syscalls.NODEV, data)
    for path, handle in below:
        source = f"/proc/self/fd/{handle}"
        if os.path.isdir(source):
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "a").close()
        syscalls.mount(source, path, None, syscalls.BIND | syscalls.REC)
        os.close(handle)
    os.makedirs(HOME, exist_ok=True)
    shared = f"{SCRATCH}/.shm"
    os.mkdir(shared)
    syscalls.mount(shared, "/dev/shm", None, syscalls.BIND)


def limit(policy: Policy | None) -> None:
    """Set the limits of this process and all that it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if policy is None:
        return
    limits = {"FSIZE": policy.file_bytes, "NOFILE": policy.open_files, "CPU": policy.cpu_s}
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        limits |= {"AS": mapped + policy.memory_bytes, "NPROC": policy.processes + 1, "MSGQUEUE": 0}  # 1: the warder
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def _ward(child, leash, told, policy):
    """The warder's whole life."""
    try:
        own = {leash, told, 2}
        close_others(own)
        handle = os.pidfd_open(child)
        word = os.read(told, 500)
        if word != b"+":
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            say(leash, word or b"sandbox: the process ended before it was ready; the machine may be out of memory")
            return
        os.close(told)
        say(leash, STARTED.pack(b"+", child))
        say(leash, _watch(child, leash, handle, policy).encode())
    except BaseException as error:  # whatever it is: nobody is above to catch it
        os.kill(child, signal.SIGKILL)
        say(leash, f"sandbox: the warder failed ({type(error).__name__}: {error})".encode())
    finally:
        os._exit(0)


def _watch(child, leash, handle, policy):
    """Wait for a child's end, or bring it about; say how it ended."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(leash, select.POLLIN)
    most = policy.memory_bytes + _held(math.inf) if policy else None
    reason = None
    while True:
        ready = {number for number, _ in poll.poll(None if most is None else int(LOOK_S * 1000))}
        if leash in ready and heard(leash, _processes()):
            ready.remove(leash)
        if most is not None and not ready and (held := _held(most)) > most:
            reason = f"memory: its processes held {held >> 20} MiB together, and {most >> 20} were allowed"
        if leash in ready or reason:
            os.kill(child, signal.SIGKILL)
            break
        if handle in ready:
            break
    _, status, usage = os.wait4(child, 0)  # returns when the whole pid namespace is empty
    say(leash, USED.pack(b"=", usage.ru_utime + usage.ru_stime, 0.0))
    return reason or ended(status)


def _processes():
    """The processes of the namespace."""
    return [name for name in os.listdir("/proc") if name.isdecimal()]


def heard(leash: int, processes) -> bool:
    """Answer what the owner of a leash has asked; False if that was its farewell.

    Parameters
    ----------
    leash : at which there is something to be read.
    processes : the numbers of those whose time counts.
    """
    try:
        words = os.read(leash, 64)
    except OSError:
        return False
    if words.strip(ASK) or not words:
        return False
    say(leash, USED.pack(b"=", *used(processes)) * len(words))
    return True


def used(processes) -> tuple[float, float]:
    """Seconds of processor time that processes and their late children have used, and that they had to wait for it.

    Of threads that have ended only the first counts.
    """
    cpu = queued = 0
    for number in processes:
        try:
            with open(f"/proc/{number}/stat") as file:
                cpu += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
            for thread in os.listdir(f"/proc/{number}/task"):
                with open(f"/proc/{number}/task/{thread}/schedstat") as file:
                    queued += int(file.read().split()[1])
        except (OSError, ValueError, IndexError):
            pass  # it has ended meanwhile, or this kernel does not say how long it waits
    return cpu / TICKS, queued / 1e9


def ended(status: int) -> str:
    """A wait status in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"exit {code}" if code >= 0 else f"signal {-code}"


def _held(enough):
    """Bytes of memory that all processes of the namespace hold. Not exact while it is below ``enough``."""
    numbers = _processes()
    resident = {name: _resident(name) for name in numbers}
    if sum(resident.values()) <= enough:
        return sum(resident.values())
    return sum(_share(name, resident[name]) for name in numbers)


def _resident(name):
    try:
        with open(f"/proc/{name}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _share(name, otherwise):
    """The process's memory, pages that n processes share counted as 1/n."""
    try:
        with open(f"/proc/{name}/smaps_rollup") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return otherwise


def say(leash: int, text: bytes) -> None:
    """Write to the owner of a leash."""
    try:
        os.write(leash, text)
    except OSError:
        pass  # nobody listens any more


def close_others(keep) -> None:
    """Close all descriptors but these."""
    low = 0
    for number in sorted(keep):
        if low < number:  # closerange(0, 0) closes everything
            os.closerange(low, number)
        low = number + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def lay_out(files: list, target: str) -> None:
    """Make a working folder, in which the given files are links, and enter it."""
    os.mkdir(target)
    for folder in {os.path.dirname(name) for name, _ in files}:
        os.makedirs(f"{target}/{folder}", exist_ok=True)
    for name, path in files:
        os.symlink(path, f"{target}/{name}")
    os.chdir(target)
