"""What a hostile student's process tries, one function each; run by test_sandbox.py behind the walls.

`main` is a grader that passes questions on, `serve` a student that answers them. Neither knows the package's student.
"""

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)


def main(channel, start):
    """Start students when told (``start``), pass on what is for them (by number), kill them (``kill``)."""
    lines = []
    while True:
        what, *rest = json.loads(channel.receive(600))
        try:
            if what == "start":
                lines.append(start())
                answer = len(lines) - 1
            elif what == "ask":
                number, *question = rest
                lines[number].channel.send(json.dumps(question).encode(), 5)
                answer = json.loads(lines[number].channel.receive(60))
            elif what == "tell":
                number, *question = rest
                lines[number].channel.send(json.dumps(question).encode(), 5)
                answer = None
            elif what == "kill":
                lines[rest[0]].kill()
                answer = lines[rest[0]].ended(0)
            elif what == "ended":
                answer = lines[rest[0]].ended(rest[1])
            elif what == "cycles":
                answer = cycles(start, rest[0])
            else:
                answer = ALL[what](*rest)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.send(json.dumps(answer).encode(), 5)


def converse(channel, start):
    """A grader that has cells run by the agent, and lines of its own beside them; it answers with the first error."""
    from nbreferee.rpc.files import Shared
    from nbreferee.rpc.student import Student

    line = start()
    student = Student(line.channel, folder=Shared(os.getcwd()))
    for where, source in json.loads(channel.receive(60)):
        try:
            error = student.cell(source, "cell").error if where == "answer" else exec(source, {"student": student})
        except Exception as raised:
            error = repr(raised)
        if error:
            break
    channel.send(json.dumps([where, source, error]).encode(), 10)


def cycles(start, count):
    """Start and kill; the number of descriptors before and after."""
    start().close()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(count):
        line = start()
        if number % 3:
            line.channel.send(json.dumps(["identity"]).encode(), 5)
            line.channel.receive(30)
        line.close()
    return [before, len(os.listdir("/proc/self/fd"))]


def serve(channel):
    while True:
        name, *rest = json.loads(channel.receive(600))
        try:
            answer = ALL[name](*rest)
        except OSError as error:
            answer = {"errno": errno.errorcode.get(error.errno, str(error))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.send(json.dumps(answer).encode(), 5)


def connect(family, address):
    with socket.socket(getattr(socket, family), socket.SOCK_STREAM) as line:
        line.settimeout(3)
        line.connect(tuple(address) if isinstance(address, list) else "\0" + address)
    return "connected"


listening = []


def listen(name):
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.bind("\0" + name)
    line.listen()
    listening.append(line)
    return "listening"


def read(path):
    with open(path, "rb") as file:
        return f"{len(file.read())} bytes"


def folder(path):
    return sorted(os.listdir(path))


def visible():
    """Every process that /proc shows: its number and name."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            found[name] = open(f"/proc/{name}/comm").read().strip()
    return found


def signal_all():
    """kill -1, 0, the parent, and every number up to 300; the names of the errors."""
    out = {}
    for number in (-1, 0, os.getppid(), *range(2, 300)):
        try:
            os.kill(number, signal.SIGKILL)
            out[str(number)] = "sent"
        except OSError as error:
            out[str(number)] = errno.errorcode[error.errno]
    return [out["-1"], out["0"], sorted({word for number, word in out.items() if int(number) > 1})]


def fork_bomb(most):
    """Fork sleeping children until it fails."""
    count = 0
    try:
        while count < most:
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
            count += 1
    except OSError as error:
        return [count, errno.errorcode[error.errno]]
    return [count, None]


def memory_bomb(most):
    """Take memory, a MiB at a time, until it fails; how many."""
    kept = []
    try:
        while len(kept) < most:
            kept.append(b"x" * (1 << 20))
    except MemoryError:
        pass
    count = len(kept)
    return count


def memory_by_processes(count, each, hide):
    """Children that together hold more than one may."""
    for _ in range(count):
        if os.fork() == 0:
            if hide:
                LIBC.prctl(4, 0, 0, 0, 0)
            kept = b"x" * (each << 20)
            time.sleep(600)
            os._exit(len(kept) & 1)
    time.sleep(30)
    return "still here"


def file_bomb(folder, each, most):
    """Fill files until it fails; the bytes written and the error."""
    total, number = 0, 0
    try:
        while total < most:
            with open(f"{folder}/bomb{number}", "wb", buffering=0) as file:
                for _ in range(each >> 20):
                    total += file.write(b"x" * (1 << 20))
            number += 1
    except OSError as error:
        return [total, errno.errorcode[error.errno]]
    return [total, None]


def many_files(folder, most):
    count = 0
    try:
        while count < most:
            open(f"{folder}/f{count}", "w").close()
            count += 1
    except OSError as error:
        return [count, errno.errorcode[error.errno]]
    return [count, None]


def hidden_memory():
    """Memory that no limit of a process counts."""
    out = {}
    for name, try_it in {
        "memfd": lambda: os.memfd_create("x"),
        "shmget": lambda: _call(LIBC.shmget(0, ctypes.c_size_t(1 << 20), 0o1600)),
        "mount": lambda: _call(LIBC.mount(b"tmpfs", b"/tmp/home", b"tmpfs", 0, None)),
    }.items():
        out[name] = _word(try_it)
    return out


def _call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result


def _word(call):
    try:
        call()
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]


def open_files(most):
    kept = []
    try:
        while len(kept) < most:
            kept.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        for each in kept:
            os.close(each)
        return [len(kept), errno.errorcode[error.errno]]
    return [len(kept), None]


def write_anywhere():
    """Every folder and special file that lets itself be written to, outside the scratch space."""
    found = []
    for top, folders, files in os.walk("/"):
        if top.startswith(("/tmp", "/dev/shm", "/proc/")) or top.count("/") > 5:
            folders.clear()
            continue
        try:
            os.close(os.open(f"{top}/written", os.O_CREAT | os.O_WRONLY))
            found.append(top)
        except OSError:
            pass
        if top == "/dev":
            found += [f"/dev/{name}" for name in [*files, "ptmx", "tty", "kmsg", "mem"] if _writable(f"/dev/{name}")]
    for top, _, files in os.walk("/proc/sys"):
        found += [f"{top}/{name}" for name in files if _settable(f"{top}/{name}")]
    found += [path for path in (f"/proc/{name}" for name in os.listdir("/proc")) if _writable(path)]
    for path in (__file__, sys.executable, os.__file__):
        found += [path] if _writable(path) else []
    return sorted(found)


def _writable(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return True
    except OSError:
        return False


def _settable(path):
    """A few of these files can be opened and refuse what is written; what is written here is what they say."""
    try:
        with open(path, "rb", buffering=0) as file:
            said = file.read()
        with open(path, "wb", buffering=0) as file:
            file.write(said)
        return True
    except OSError:
        return False


def mounts():
    """mount, remount, umount, pivot_root, chroot: the errors."""
    root = b"/"
    return {
        "tmpfs": _word(lambda: _call(LIBC.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None))),
        "remount": _word(lambda: _call(LIBC.mount(None, root, None, 32 | 4096, None))),
        "umount /proc": _word(lambda: _call(LIBC.umount2(b"/proc", 2))),
        "umount /tmp": _word(lambda: _call(LIBC.umount2(b"/tmp", 2))),
        "chroot": _word(lambda: os.chroot("/tmp")),
    }


def namespaces():
    """Ways to a new user namespace, in which one would have capabilities."""
    out = {}
    out["unshare"] = _word(lambda: _call(LIBC.unshare(0x10000000)))
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]

    def cloned():
        number = _call(LIBC.syscall(clone, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))
        if number == 0:
            os._exit(0)
        os.waitpid(number, 0)

    out["clone"] = _word(cloned)
    out["limit"] = open("/proc/sys/user/max_user_namespaces").read().strip()
    return out


def trace():
    """ptrace, process_vm_readv and /proc/PID/mem, on a child and on the parent."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
    out = {"child": _word(lambda: _call(LIBC.ptrace(16, child, 0, 0)))}
    out["parent"] = _word(lambda: _call(LIBC.ptrace(16, os.getppid(), 0, 0)))
    local = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    out["vm"] = _word(lambda: _call(LIBC.process_vm_readv(child, local, 1, local, 1, 0)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return out


def daemon():
    """Leave a process behind, out of the session, with no parent but process 1, deaf to signals."""
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(1, 32):
                if number not in (signal.SIGKILL, signal.SIGSTOP):
                    signal.signal(number, signal.SIG_IGN)
            os.write(theirs, b"+")
            while True:
                time.sleep(600)
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(ours, 1).decode()


def outlive():
    """Clear the signal at the parent's death."""
    return LIBC.prctl(1, 0, 0, 0, 0)


def descriptors():
    found = {}
    for name in os.listdir("/proc/self/fd"):
        if os.path.lexists(f"/proc/self/fd/{name}"):  # the one that listed them is gone
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def environment():
    return dict(os.environ)


def identity():
    lines = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    wanted = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    core = resource.getrlimit(resource.RLIMIT_CORE)
    here = {"cwd": os.getcwd(), "pid": os.getpid(), "host": os.uname().nodename, "core": list(core)}
    return {name: lines[name].strip() for name in wanted} | here


def draw():
    import random

    import numpy

    return [random.random(), float(numpy.random.rand())]  # noqa: NPY002 (the old generator is what a fork copies)


def run(*command):
    """An ordinary program."""
    return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout


def useful():
    """What honest code does: files in the scratch space and in /tmp, a subprocess, shared memory, threads."""
    import tempfile
    import threading

    import numpy

    with open("here.txt", "w") as file:
        file.write("x")
    open("/tmp/there.txt", "w").close()
    with tempfile.TemporaryDirectory() as folder:
        numpy.save(f"{folder}/a.npy", numpy.arange(3))
        total = int(numpy.load(f"{folder}/a.npy").sum())
    with open("/dev/shm/page", "wb") as file:
        file.write(b"x")
    done = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join()
    return [total, run("/bin/echo", "hello"), done, os.path.expanduser("~")]


def beside(module):
    """What lies in the working folder: {path: content}, what a module of it says, and what each tried change gives."""
    import importlib

    found = {}
    for here, _, names in os.walk("."):
        for name in names:
            with open(os.path.join(here, name)) as file:
                found[os.path.normpath(os.path.join(here, name))] = file.read()
    tried = {}
    for path in list(found):
        for way in ("w", "a", "r+"):
            try:
                open(path, way).close()
                tried[path] = way
            except OSError as error:
                tried.setdefault(path, errno.errorcode[error.errno])
    with open("data/new.txt", "w") as file:  # beside them there is room
        file.write("x")
    return [os.getcwd(), found, tried, module and importlib.import_module(module).VALUE]


def search_path():
    return sys.path


def leave(code):
    os._exit(code)


def crash():
    ctypes.string_at(0)


def descendants():
    """In a grader: nothing but itself."""
    return visible()


ALL = {name: value for name, value in list(globals().items()) if callable(value) and not name.startswith("_")}
