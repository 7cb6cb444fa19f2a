"""What an answer writes into its working folder a test reads, and the other way round; contents cross, nothing else."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nbreferee.rpc import files
from nbreferee.rpc.files import MOST_BYTES, Folder, Shared
from nbreferee.rpc.plugins import Garbled
from nbreferee.rpc.raised import StudentLost
from tests.nbreferee.rpc.test_proxies import Process


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder of this side; the student's is another one."""
    folder = tmp_path / "tests"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def shared(here, monkeypatch):
    monkeypatch.setattr(files, "_guard_pickles", lambda: None)  # it would hold for all tests that follow
    return Shared(str(here))


@pytest.fixture
def there(here, shared, tmp_path, monkeypatch):
    """A student's process whose working folder has a given file, and that shares it."""
    (tmp_path / "given.csv").write_text("given")
    made = start(tmp_path, shared)
    (here / "given.csv").symlink_to(tmp_path / "given.csv")
    made.student.cell("import os\ndef write(name, text):\n    with open(name, 'w') as f: f.write(text)", "a")
    made.student.cell("def read(name):\n    with open(name) as f: return f.read()", "b")
    yield made.student
    made.end()


def start(tmp_path, shared, name="answers"):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "given.csv").symlink_to(tmp_path / "given.csv")
    before = os.getcwd()
    os.chdir(folder)
    try:
        return Process(folder=shared)
    finally:
        os.chdir(before)


def ok(ran):
    assert ran.error is None, (ran.error, ran.trace)


def test_a_test_sees_what_a_cell_has_written(there, here):
    ok(there.cell("write('out.txt', 'one')\nos.makedirs('deep/er')\nwrite('deep/er/x.bin', 'two')", "answer"))
    assert (here / "out.txt").read_text() == "one" and Path("deep/er/x.bin").read_text() == "two"
    ok(there.cell("write('out.txt', 'uno')\nos.remove('deep/er/x.bin')", "answer"))
    assert (here / "out.txt").read_text() == "uno" and not os.path.exists("deep/er/x.bin")


def test_a_test_sees_what_a_function_has_written_even_one_that_fails(there):
    write = there.value("write")
    write("a.txt", "first")
    assert Path("a.txt").read_text() == "first"
    ok(there.cell("def fail():\n    write('b.txt', 'left')\n    raise ValueError('no')", "answer"))
    with pytest.raises(ValueError, match="no"):
        there.value("fail")()
    assert Path("b.txt").read_text() == "left"


def test_every_change_crosses_however_fast_they_follow(there):
    """Two contents of one size within one tick of the file system's clock."""
    read, write = there.value("read"), there.value("write")
    there.forget()
    for n in range(100):
        with open("in.txt", "w") as file:
            file.write(f"{n:3}")
        assert read("in.txt") == f"{n:3}"
        write("out.txt", f"{n:3}")
        assert Path("out.txt").read_text() == f"{n:3}"


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path):
    """A file system's clock goes in steps of some milliseconds: two writers may leave one time, and one size."""
    path, folder = tmp_path / "x.txt", Folder(str(tmp_path))
    path.write_text("one")
    now, past = time.time_ns(), time.time_ns() - 10**9

    def look(file, root):
        """What is seen, if the times are these."""
        os.utime(path, ns=(file, file))
        os.utime(tmp_path, ns=(root, root))
        return folder.stirred() and folder.changes()

    assert look(now, past) == {"x.txt": b"one"}
    path.write_text("two")
    assert look(now, past) == {"x.txt": b"two"}
    look(past, now)
    (tmp_path / "y.txt").write_text("new")
    assert look(past, now) == {"y.txt": b"new"}
    os.unlink(tmp_path / "y.txt")
    assert look(past, now) == {"y.txt": None}


def test_a_file_that_crossed_has_a_time_that_no_writers_clock_gives(shared, here, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1_234_567_890_123_456_789)
    shared.take({"x.txt": b"x"})
    assert (here / "x.txt").stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_what_a_test_writes_is_the_answers_to_read_and_to_change(there):
    ok(there.cell("def shout(name):\n    write(name, read(name).upper())", "answer"))
    there.forget()
    with open("words.txt", "w") as file:
        file.write("quiet")
    there.value("shout")("words.txt")
    assert Path("words.txt").read_text() == "QUIET"
    os.remove("words.txt")
    with pytest.raises(FileNotFoundError):
        there.value("read")("words.txt")


def test_what_a_test_writes_goes_with_it(there, here):
    """Another test, or what a later process says, must not tell what it was."""
    there.forget()
    (here / "hidden.txt").write_text("secret")
    assert there.value("read")("hidden.txt") == "secret"
    there.retire()
    assert not (here / "hidden.txt").exists()


def test_given_files_and_those_of_given_cells_stay_as_they_are(there, here, tmp_path):
    (here / "expected.csv").write_text("right")  # by a given cell, on this side
    ok(there.cell("assert read('expected.csv') == 'right'", "answer"))
    ok(there.cell("write('expected.csv', 'mine')\nos.remove('given.csv')\nwrite('given.csv', 'mine')", "answer"))
    there.forget()
    assert there.value("read")("expected.csv") == "mine"
    assert (here / "expected.csv").read_text() == "right" and (here / "given.csv").read_text() == "given"
    assert (tmp_path / "given.csv").read_text() == "given"


def test_a_file_that_a_given_cell_writes_on_both_sides_is_the_instructors(there, here, shared):
    ok(there.cell("write('both.csv', 'same')", "given"))
    assert (here / "both.csv").read_text() == "same"
    (here / "both.csv").write_text("same")  # the same cell, here
    ok(there.cell("write('both.csv', 'forged')", "answer"))
    assert (here / "both.csv").read_text() == "same"
    assert shared.renew() == {"both.csv": b"same"} and (here / "both.csv").exists()


def test_a_new_process_begins_with_what_given_cells_wrote_and_nothing_else(there, here, shared, tmp_path):
    (here / "ours.csv").write_text("ours")
    ok(there.cell("write('theirs.txt', 'x')", "answer"))
    there.forget()
    (here / "tests.txt").write_text("secret")
    there.value("read")("tests.txt")
    there.retire()
    new = start(tmp_path, shared, "again")
    try:
        ok(new.student.cell("import os\nassert sorted(os.listdir()) == ['given.csv', 'ours.csv'], os.listdir()", "a"))
        assert not (here / "theirs.txt").exists()
        ok(new.student.cell("open('theirs.txt', 'w').write('y')", "answer"))
        assert (here / "theirs.txt").read_text() == "y"
    finally:
        new.end()


def test_only_regular_files_cross(there, here):
    ok(
        there.cell(
            "os.symlink('/etc/hostname', 'link.txt')\nos.mkfifo('pipe.txt')\nos.symlink('/', 'root')\n"
            "write('.hidden', 'x')\nwrite('plain.txt', 'x')\nos.mkdir('.dir')\nwrite('.dir/x', 'x')",
            "answer",
        )
    )
    assert sorted(os.listdir(here)) == ["given.csv", "plain.txt"]


def test_what_could_run_here_does_not_cross(there, here):
    names = ("numpy.py", "x.PYC", "y.so", "matplotlibrc", "z.pth", "kept.txt")
    ok(there.cell(f"for name in {names}: write(name, '1 / 0')", "answer"))
    assert sorted(os.listdir(here)) == ["given.csv", "kept.txt"]


def test_what_is_too_large_is_left_out_and_said(there, here):
    ran = there.cell(f"write('big.bin', 'x' * {MOST_BYTES + 1})\nwrite('small.txt', 'x')", "answer")
    ok(ran)
    assert sorted(os.listdir(here)) == ["given.csv", "small.txt"]
    assert "big.bin is not seen by tests" in there.output
    ok(there.cell("for n in range(500): write(f'{n}.txt', 'x')", "answer"))
    assert len(os.listdir(here)) <= 250


def test_arrays_and_tables_that_an_answer_saves_can_be_loaded(there):
    ok(there.cell("import numpy as np\nnp.save('a.npy', np.arange(3.0))\nnp.savetxt('a.csv', np.eye(2))", "answer"))
    assert np.load("a.npy").tolist() == [0, 1, 2] and np.loadtxt("a.csv").tolist() == [[1, 0], [0, 1]]


PICKLES = """
import os, pickle, sys
import numpy as np
from nbreferee.rpc.files import Shared
here = Shared(os.getcwd())
plain = pickle.dumps([{"a": (1, 2.5, {3}, b"x", np.arange(3), np.float64(2))}], protocol=int(sys.argv[1]))
here.take({"plain.pkl": plain, "evil.pkl": b"cos\\nsystem\\n(S'touch ran'\\ntR."})
assert pickle.load(open("plain.pkl", "rb"))[0]["a"][4].tolist() == [0, 1, 2]
for load in (pickle.load, pickle._load, lambda file: np.load(file, allow_pickle=True)):
    try:
        load(open("evil.pkl", "rb"))
    except Exception as error:
        assert "does not read pickles" in str(error) + str(error.__cause__), repr(error)
    else:
        raise AssertionError("it was read")
assert not os.path.exists("ran")
"""


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_of_the_answers_runs_nothing_here(tmp_path, protocol):
    """In a Python of its own, which keeps the watch on pickles until it ends."""
    command = [sys.executable, "-c", PICKLES, str(protocol)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize(
    "changes",
    [
        [("a", b"")],
        {1: b"x"},
        {"a": "text"},
        {"../a": b"x"},
        {"/tmp/a": b"x"},
        {"a/../../b": b"x"},
        {"": b"x"},
        {".bashrc": b"x"},
        {"a/.x/b": b"x"},
        {"a\0b": b"x"},
        {"x" * 600: b"x"},
        {f"{n}": b"" for n in range(3000)},
    ],
)
def test_a_forged_list_of_files_is_nonsense(shared, changes):
    with pytest.raises(Garbled):
        shared.take(changes)


def test_an_agent_that_lies_about_files_loses_its_process(there):
    ok(there.cell("import sys\nagent = sys.modules['nbreferee.rpc.agent']", "answer"))
    with pytest.raises(StudentLost):  # in the first cell, where the folder was written to a moment ago
        there.cell("agent._VERBS['files'] = lambda *args: {'../../out.txt': b'x'}", "answer")
        there.cell("write('a.txt', 'x')", "answer")


def test_a_file_cannot_be_put_in_the_place_of_a_folder_or_beyond_a_link(shared, here, tmp_path):
    (tmp_path / "outside").mkdir()
    (here / "link").symlink_to(tmp_path / "outside")
    (here / "folder").mkdir()
    shared.take({"link": b"x", "link/file.txt": b"x", "folder": b"x", "fine.txt": b"x"})
    assert os.listdir(tmp_path / "outside") == [] and (here / "folder").is_dir() and (here / "fine.txt").exists()


def test_a_look_at_a_folder_asks_nothing_that_a_student_can_replace(tmp_path, monkeypatch):
    """Those of ``os.path`` take a path for bytes if ``isinstance`` is always true."""
    folder = Folder(str(tmp_path))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/one.txt").write_text("x")
    with monkeypatch.context() as patched:
        patched.setattr("builtins.isinstance", lambda *args: True)
        found = folder.changes(), folder.stirred()
    assert found == ({"deep/one.txt": b"x"}, True)


def test_a_look_at_an_unchanged_folder_is_quick(tmp_path):
    for n in range(300):
        (tmp_path / f"{n}").symlink_to("/usr")
    (tmp_path / "one.txt").write_text("x")
    folder = Folder(str(tmp_path))
    assert folder.changes() == {"one.txt": b"x"}
    time.sleep(0.06)
    folder.changes()
    began = time.perf_counter()
    for _ in range(100):
        assert not folder.stirred()
    assert time.perf_counter() - began < 0.05


def test_without_a_folder_nothing_is_shared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Process()
    try:
        ok(made.student.cell("open('a.txt', 'w').write('x')", "answer"))
        made.student.forget()
        ok(made.student.cell("pass", "answer"))
    finally:
        made.end()
    assert os.listdir(tmp_path) == ["a.txt"]  # the student's own doing: the two have one folder here
