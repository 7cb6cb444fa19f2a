"""What goes wrong with the machine: kills, Ctrl-C, locks, a full disk; nothing that is finished is lost."""

import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from nbreferee.course import gradebook, run
from nbreferee.course.gradebook import Entry, GradebookError, Writer
from nbreferee.course.run import BatchError, Stopped, grade_assignment
from nbreferee.course.store import Store, StoreError
from nbreferee.judge.results import Result, TestResult
from nbreferee.workers.message import Reply
from nbreferee.workers.pool import Local
from tests.nbreferee.fake_zygote import FakeZygote
from tests.nbreferee.toycourse import DOUBLE, GOOD, contents, folder, grade, left_over, runs, submit

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.usefixtures("one_environment"), pytest.mark.slow]


SCRIPT = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without
from nbreferee.course import submission
from tests.nbreferee.toycourse import grade
submission.fingerprint = lambda packages: "this machine"
rows = grade(Path(sys.argv[1]), log=Path(sys.argv[2]), grace_s=60)  # nothing is given up while this machine is busy
print(*(f"{row.student} {row.state} {row.total}" for row in rows), sep="\\n")
"""


def start(root, log):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(root), str(log)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_killed_at_any_moment_the_next_run_goes_on(root, prepared, tmp_path, tmp_path_factory):
    """Kill the whole run with signal 9, some milliseconds after some submission; finish it; compare."""
    calm = tmp_path_factory.mktemp("calm")
    subprocess.run(["cp", "-r", f"{prepared}/.", str(calm)], check=True)
    students = [f"s{number:02d}" for number in range(24)]
    for place in (root, calm):
        for number, student in enumerate(students):
            proof = {} if number % 3 else {"proof_text": f"Proof {number}."}
            submit(place, student, (GOOD if number % 4 else {"double_answer": DOUBLE}) | proof, words="# SLOW")
    expected = [(row.student, row.state, row.total, row.waits) for row in grade(calm)]
    log, dice, killed = tmp_path / "runs", random.Random(7), 0
    for target in (3, 12, 24):
        before = runs(log)
        stored = stored_students(root)
        process = start(root, log)
        end = time.monotonic() + 60
        while len(set(runs(log))) < target and process.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(dice.random() * 0.3)
        killed += process.poll() is None
        process.kill()
        process.communicate()
        again = [student for student in runs(log) if runs(log).count(student) > before.count(student)]
        assert not set(again) & stored, "what was stored is not run again"
    assert killed >= 2
    time.sleep(0.3)
    stored, before = stored_students(root), runs(log)
    assert stored, "nothing was kept of the runs that were killed"
    rows = grade(root, log=log)
    assert [(row.student, row.state, row.total, row.waits) for row in rows] == expected
    assert contents(root) == contents(calm)
    for file in calm.glob("*/*/toy/toy.*"):
        if file.parts[-4] in ("autograded", "feedback"):
            assert (root / file.relative_to(calm)).read_text() == file.read_text()
    assert sorted(set(runs(log))) == students
    assert {student for student in students if runs(log).count(student) > before.count(student)} == set(
        students
    ) - stored


def stored_students(root):
    if not (root / ".nbreferee/results.db").exists():
        return set()
    db = sqlite3.connect(root / ".nbreferee/results.db")
    try:
        return {student for (student,) in db.execute("SELECT student FROM result")}
    except sqlite3.OperationalError:
        return set()
    finally:
        db.close()


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(root, tmp_path):
    for number in range(12):
        submit(root, f"s{number:02d}", words="# SLOW")
    submit(root, "zz", words="# HANG")
    log = tmp_path / "runs"
    process = start(root, log)
    end = time.monotonic() + 60
    while len(runs(log)) < 8 and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        _, told = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT or process.returncode == 1, told
    assert "give the command again to go on" in told.splitlines()[-1]
    kept = stored_students(root)
    assert len(kept) >= 6
    assert {student for student, *_ in contents(root)["grades"]} == kept
    submit(root, "zz")
    assert len(grade(root, log=log)) == 13
    assert all(runs(log).count(student) == 1 for student in kept)


def test_a_keyboard_interrupt_leaves_no_process(root):
    for number in range(6):
        submit(root, f"s{number}", words="# HANG" if number else "")

    def progress(done, total, row):
        raise KeyboardInterrupt

    with pytest.raises(Stopped, match="give the command again"):
        grade(root, progress=progress)
    assert not left_over()


def test_a_locked_gradebook_loses_nothing(root, tmp_path, monkeypatch):
    log = tmp_path / "runs"
    submit(root, "ada")
    monkeypatch.setattr(gradebook, "Writer", partial(Writer, timeout_s=0.5))
    other = sqlite3.connect(root / "gradebook.db", isolation_level=None)

    class Locking(Local):
        def submit(self, *job):
            other.execute("BEGIN IMMEDIATE")  # somebody begins to write while submissions are graded
            return super().submit(*job)

    try:
        with (
            Locking(partial(FakeZygote, log), 1) as pool,
            pytest.raises(GradebookError, match="another program has held the gradebook") as told,
        ):
            grade_assignment(folder(root), "toy", pool=pool)
        assert "\n" not in str(told.value)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert stored_students(root) == {"ada"}
    assert grade(root, log=log)[0].total == 4.0 and runs(log) == ["ada"]


def test_a_gradebook_that_is_locked_for_a_while_is_waited_for(root):
    submit(root, "ada")
    other = sqlite3.connect(root / "gradebook.db", isolation_level=None, check_same_thread=False)
    with Writer(f"sqlite:///{root / 'gradebook.db'}", timeout_s=20) as writer:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.0, lambda: other.execute("ROLLBACK"))
        timer.start()
        writer.write(Entry("ada", "toy", "toy", {"square_test": 1.0}))
        began = time.monotonic()
        assert writer.flush()[0].scores["square_test"] == 1.0
        assert time.monotonic() - began > 0.8
        timer.join()
    other.close()


def test_a_second_run_in_the_same_course_waits_or_says_so(root, monkeypatch):
    submit(root, "ada")
    only_one = run.only_one
    monkeypatch.setattr(run, "only_one", partial(only_one, wait_s=0.3))
    with only_one(root / ".nbreferee"), pytest.raises(BatchError, match="another run grades this course"):
        grade(root)
    assert grade(root)[0].total == 4.0


def test_a_folder_that_cannot_be_written_is_one_line(root, tmp_path):
    log = tmp_path / "runs"
    submit(root, "ada")
    (root / "autograded").write_text("in the way")  # refuses root too, whom permissions do not stop
    with pytest.raises(BatchError, match=r"toy\.ipynb cannot be written .*give the command again") as told:
        grade(root, log=log)
    assert "\n" not in str(told.value)
    (root / "autograded").unlink()
    assert grade(root, log=log)[0].total == 4.0 and runs(log) == ["ada"]


@contextmanager
def file_limit(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, or a skip."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("this machine does not let us mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_one_line_and_nothing_is_lost(prepared, small_disk, tmp_path):
    subprocess.run(["cp", "-r", f"{prepared}/.", str(small_disk)], check=True)
    for number in range(30):
        submit(small_disk, f"s{number:02d}")
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 600_000))
    log = tmp_path / "runs"
    with pytest.raises((BatchError, StoreError, GradebookError)) as told:
        grade(small_disk, log=log)
    assert "\n" not in str(told.value) and "make room and give the command again" in str(told.value)
    kept = stored_students(small_disk)
    filler.unlink()
    rows = grade(small_disk, log=log)
    assert [row.total for row in rows] == [4.0] * 30
    assert kept and all(runs(log).count(student) == 1 for student in kept)
    assert {score for *_, score, _, _, _ in contents(small_disk)["grades"]} <= {0.0, 1.0, 2.0}


def test_a_store_that_reached_a_limit_says_so(tmp_path):
    result = Result((TestResult("t", "passed", 1.0, 1.0),))
    large = "".join(map(chr, random.Random(1).choices(range(33, 126), k=300_000)))
    with Store(tmp_path / "results.db") as store:
        with file_limit(200_000), pytest.raises(StoreError, match="make room and give the command again"):
            for number in range(9):
                store.put(f"k{number}", "ada", "toy", Reply(result, large, ""))
        store.put("after", "ada", "toy", Reply(result, large, ""))
        assert store.get("after").notebook == large
