"""A pool of graders: jobs, zygotes that die, none that starts."""

import time

import pytest

from nbreferee.course.run import grade_assignment
from nbreferee.judge.job import Job, Step
from nbreferee.workers.message import Request, read_reply, write_request
from nbreferee.workers.pool import GraderFailed, Local, PoolError
from tests.nbreferee.fake_zygote import FakeZygote
from tests.nbreferee.toycourse import folder, grade, job, left_over, submit


@pytest.mark.slow
def test_what_kills_its_zygote_again_and_again_harms_nobody():
    def submit(pool, words):
        return pool.submit(write_request(Request(Job((Step("answer", "a", words),)))), 5)

    with Local(FakeZygote, 3, grace_s=5) as pool:
        good = submit(pool, "# LONG")
        while not good.running():
            time.sleep(0.01)
        time.sleep(0.3)
        bad = [submit(pool, "# KILL ZYGOTE") for _ in range(8)]
        assert read_reply(good.result(timeout=60), Job(())).result.tests == ()
        for future in bad:
            with pytest.raises(GraderFailed, match="ended without an answer, twice"):
                future.result(timeout=60)
    assert not left_over()


def test_a_pool_runs_jobs_and_leaves_nothing():
    with Local(FakeZygote, 2, grace_s=1) as pool:
        futures = [pool.run(job()) for _ in range(6)]
        assert [future.result(timeout=20).points for future in futures] == [2.0] * 6
        hanging = pool.submit(write_request(Request(Job((Step("answer", "a", "# HANG"),)))), 60)
        waiting = [pool.submit(write_request(Request(job())), 1) for _ in range(3)]
        while not hanging.running():
            time.sleep(0.01)
        time.sleep(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    with pytest.raises(GraderFailed, match="stopped"):
        hanging.result(timeout=5)
    assert all(future.done() for future in waiting) and not left_over()
    with pytest.raises(PoolError):
        pool.submit(b"", 1)


def test_a_pool_without_a_zygote_says_so():
    def make():
        raise OSError("bubblewrap is not installed; run: apt install bubblewrap")

    with Local(make, 1) as pool, pytest.raises(PoolError, match="bubblewrap is not installed"):
        pool.submit(b"", 1).result(timeout=10)


def test_a_run_without_a_zygote_ends_with_one_line(root):
    submit(root, "ada")

    def make():
        raise OSError("no namespaces; run with --unsafe")

    with Local(make, 1) as pool, pytest.raises(PoolError, match="no namespaces"):
        grade_assignment(folder(root), "toy", pool=pool)
    assert grade(root)[0].total == 4.0
