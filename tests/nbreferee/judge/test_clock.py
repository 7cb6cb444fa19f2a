"""The clock of a cell: what it counts, what it does not, and how seldom it asks."""

import pytest

from nbreferee.judge import clock
from nbreferee.judge.clock import Account, Clock
from nbreferee.judge.job import RunLimits

LIMITS = RunLimits(cell_s=2, total_s=5, patience=3)


class Machine:
    """A student's process on a machine whose time passes when it is told to."""

    def __init__(self, monkeypatch, limits=LIMITS):
        self.now = self.cpu = self.queued = 0.0
        self.asked, self.silent = 0, False
        monkeypatch.setattr(clock.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(clock, "_own", lambda: (0.0, 0.0))
        monkeypatch.setattr(clock, "processors", lambda: 2)
        self.account = Account(limits)
        self.account.open(self, 0.0)

    def used(self):
        self.asked += 1
        return None if self.silent else (self.cpu, self.queued)

    def runs(self, seconds, *, cpu=0.0, queued=0.0):
        """Seconds pass, in each of which the process computes and stands in the queue for so much."""
        for _ in range(round(seconds * 100)):
            self.now, self.cpu, self.queued = self.now + 0.01, self.cpu + cpu / 100, self.queued + queued / 100


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def lasts(machine, at, **how):
    """For how many seconds a cell runs until its time is over, at most 100."""
    began = machine.now
    while at.left() > 0 and machine.now - began < 100:
        machine.runs(0.01, **how)
    return round(machine.now - began, 1)


@pytest.mark.parametrize(
    ("how", "seconds", "word"),
    [
        ({"cpu": 1.0}, 2, "2 s of processor time were allowed"),
        ({"cpu": 2.0}, 1, "2 s of processor time were allowed"),  # two threads
        ({"cpu": 0.25, "queued": 0.75}, 8, "2 s of processor time were allowed"),  # three others beside it
        ({}, 6, "it computed little and waited"),
        ({"cpu": 0.1}, 6.7, "it computed little and waited"),
        ({"queued": 1.0}, 100, "the time was over"),  # it never gets a processor
    ],
)
def test_what_is_over_when(machine, how, seconds, word):
    at = Clock(machine.account)
    assert lasts(machine, at, **how) == pytest.approx(seconds, abs=0.11)
    assert word in at.over and machine.account.waited == ("waited" in word)


def test_from_silence_nothing_follows(machine):
    machine.silent = True
    assert lasts(machine, Clock(machine.account)) == 100 and not machine.account.waited


def test_a_submission_has_a_limit_too(machine):
    for _ in range(2):
        lasts(machine, Clock(machine.account), cpu=1.0)
    at = Clock(machine.account)
    assert lasts(machine, at, cpu=1.0) == pytest.approx(1, abs=0.2) and "5 s of processor time in all" in at.over
    assert "had used its 5 seconds" in machine.account.over() and Clock(machine.account).left() == 0


def test_time_of_an_earlier_process_counts(machine):
    machine.runs(3, cpu=1.0)
    machine.account.close()
    machine.cpu = 0.0
    machine.account.open(machine, machine.now)
    assert lasts(machine, Clock(machine.account), cpu=1.0) == pytest.approx(2, abs=0.11)
    assert machine.account.spent().cpu_s == pytest.approx(5, abs=0.2)


def test_short_cells_ask_seldom_and_a_long_one_not_often(monkeypatch):
    machine = Machine(monkeypatch, RunLimits())
    for _ in range(1000):
        Clock(machine.account).left()
        machine.runs(0.01, cpu=1.0)
    assert machine.asked <= 1000 * 0.01 / clock.COARSE_S + 1
    before = machine.asked
    assert lasts(machine, Clock(machine.account), cpu=1.0) == pytest.approx(20, abs=0.2)
    assert machine.asked - before < 60
