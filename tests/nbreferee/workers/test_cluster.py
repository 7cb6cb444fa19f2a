"""A cluster of three workers on this machine, over TLS: right marks, also when a worker dies; no stranger gets in."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
pytest.importorskip("distributed", reason="dask.distributed is not installed")

from grading_class import small_set  # noqa: E402
from nbreferee.intake.answers import Answers  # noqa: E402
from nbreferee.judge.job import plan  # noqa: E402
from nbreferee.walls.supervisor import Zygote  # noqa: E402
from nbreferee.workers import cluster  # noqa: E402
from nbreferee.workers.cluster import Cluster  # noqa: E402
from nbreferee.workers.pool import GraderFailed, PoolError  # noqa: E402

pytestmark = pytest.mark.slow
WORKERS = 3
# A student who looks for the worker: what it has imported, what it was started with, who its relatives are.
SPY = """import os, sys
def line(x):
    if "distributed" in sys.modules or "dask" in sys.modules or "tls" in " ".join(sys.argv) or os.getpid() > 9:
        raise RuntimeError("this is no student's process")
    return 2 * x + 1
"""


def certificates(folder, *names):
    """An authority, and a certificate that it has signed for each name."""
    folder.mkdir()

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in names:
        openssl("req", *curve, "-keyout", f"{name}-key.pem", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


def files(folder, name):
    return {"tls_ca": folder / "ca.pem", "tls_cert": folder / f"{name}.pem", "tls_key": folder / f"{name}-key.pem"}


class Machines:
    """A scheduler and workers, each a process as on a machine of its own."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.keys = certificates(folder / "keys", "node", "instructor")
        tls = [
            f"--tls-{what}-file={path}" if what == "ca" else f"--tls-{what}={path}" for what, path in self.tls("node")
        ]
        board = folder / "scheduler.json"
        self.scheduler = self.start(
            "scheduler", "--host=127.0.0.1", "--protocol=tls", "--port=0", f"--scheduler-file={board}", *tls
        )
        end = time.monotonic() + 30
        while not (board.exists() and board.read_text().rstrip().endswith("}")):
            assert time.monotonic() < end and self.scheduler.poll() is None, self.said()
            time.sleep(0.05)
        import json

        self.address = json.loads(board.read_text())["address"]
        more = ["--no-nanny", "--nthreads=1", f"--local-directory={folder}", "--death-timeout=20"]
        self.workers = [self.start("worker", self.address, f"--name=w{n}", *more, *tls) for n in range(WORKERS)]

    def tls(self, name):
        return [(what.removeprefix("tls_"), path) for what, path in files(self.keys, name).items()]

    def start(self, role, *arguments):
        log = open(self.folder / f"{role}{len(self.processes)}.log", "w")
        command = [sys.executable, "-m", f"distributed.cli.dask_{role}", "--no-dashboard", *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment)
        log.close()
        self.processes.append(process)
        return process

    def said(self):
        return "\n".join(path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log")))

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl command to make certificates with")
    made = Machines(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


def jobs(count):
    assignment = small_set(0)
    template = assignment.source()
    for number in range(count):
        submission = assignment.submission(number)
        yield submission, plan(template, Answers(submission.answers, (), (), ()))


def marks(result):
    return {test.name: test.points for test in result.tests}


def family(process):
    return [process, *process.children(recursive=True)]


@pytest.mark.needs("walls")
def test_every_mark_is_right_though_a_worker_is_killed(machines):
    with Cluster(machines.address, Zygote, **files(machines.keys, "instructor")) as pool:
        pool._client.wait_for_workers(WORKERS, timeout=30)
        assert pool.workers == WORKERS
        asked = [(submission, pool.run(job)) for submission, job in jobs(45)]
        done = 0
        while done < 9:
            done = sum(future.done() for _, future in asked)
            time.sleep(0.01)
        assert done < len(asked), "all was done before a worker could be killed"
        families = [family(psutil.Process(worker.pid)) for worker in machines.workers]
        victim = max(range(WORKERS), key=lambda number: len(families[number]))
        relatives = families[victim]
        assert len(relatives) > 1, "no worker has started a zygote"
        os.kill(relatives[0].pid, signal.SIGKILL)
        machines.workers[victim].wait()
        wrong = {s.student: marks(f.result(60)) for s, f in asked if marks(f.result(60)) != s.expected}
        assert not wrong
        assert pool.workers == WORKERS - 1
        _, alive = psutil.wait_procs(relatives[1:], timeout=10)
        assert not alive, "the dead worker's processes live on"


@pytest.mark.needs("walls")
def test_no_code_of_a_student_runs_in_a_worker(machines):
    assignment = small_set(0)
    answers = {"line_answer": SPY, "top_answer": assignment.submission(1).answers["top_answer"]}
    job = plan(assignment.source(), Answers(answers, (), (), ()))
    with Cluster(machines.address, Zygote, **files(machines.keys, "instructor")) as pool:
        result = pool.run(job).result(60)
    assert [test.state for test in result.tests if test.name.startswith("line")] == ["passed", "passed"], result


@pytest.mark.needs("walls")
def test_what_is_no_answer_is_refused(machines, monkeypatch):
    def impostor(*arguments):
        return b"NBR?" * 5

    import types

    there = types.ModuleType("there")
    exec("def impostor(*arguments):\n    return b'NBR?' * 5\n", there.__dict__)
    there.impostor.__module__ = "__main__"  # so that its code is sent, not its name
    monkeypatch.setattr(cluster, "_on_worker", there.impostor)
    with Cluster(machines.address, Zygote, **files(machines.keys, "instructor")) as pool:
        (_, job), *_ = jobs(1)
        with pytest.raises(GraderFailed, match="no message"):
            pool.run(job).result(30)


@pytest.mark.needs("walls")
def test_nobody_gets_in_without_a_certificate_of_the_authority(machines, tmp_path):
    from distributed import Client

    plain = machines.address.replace("tls://", "tcp://")
    with pytest.raises(PoolError, match="not encrypted; give one that begins with tls://"):
        Cluster(plain, Zygote, **files(machines.keys, "instructor"))
    with pytest.raises(OSError):
        Client(plain, timeout=2, set_as_default=False)
    strangers = certificates(tmp_path / "strangers", "instructor")
    with pytest.raises(PoolError, match="certificates of the same authority"):
        Cluster(machines.address, Zygote, **files(strangers, "instructor"), start_s=2)


@pytest.mark.needs("walls")
def test_other_versions_are_named(machines, monkeypatch):
    here = cluster._versions(())
    monkeypatch.setattr(cluster, "_expect", lambda packages: here | {"Python": "2.7"})
    with pytest.raises(PoolError, match=r"the worker tls://.* has Python 3\.\d+, and not 2.7; install the same"):
        Cluster(machines.address, Zygote, **files(machines.keys, "instructor"))


def test_a_file_that_is_missing_is_named(tmp_path):
    made = {"tls_ca": tmp_path / "ca.pem", "tls_cert": tmp_path / "me.pem", "tls_key": tmp_path / "key.pem"}
    made["tls_ca"].write_text("")
    with pytest.raises(PoolError, match=r"there is no file .*me.pem with the certificate"):
        Cluster("tls://127.0.0.1:1", Zygote, **made)


@pytest.mark.needs("walls")
def test_a_scheduler_that_does_not_answer_is_named(machines):
    with pytest.raises(PoolError, match="start one with: dask scheduler") as caught:
        Cluster("tls://127.0.0.1:9", Zygote, **files(machines.keys, "instructor"), start_s=1)
    assert "\n" not in str(caught.value)
