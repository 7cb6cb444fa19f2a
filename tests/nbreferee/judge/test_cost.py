"""What calls cost: in proportion to their number and size, and within the clock of a test that measures them.

The figures are printed: ``pytest -s tests/nbreferee/judge/test_cost.py``.
"""

import re
from functools import partial

import pytest

from nbreferee.judge.job import RunLimits
from nbreferee.walls.sandbox import Policy, abilities
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import Local
from tests.nbreferee.judge import test_grader
from tests.nbreferee.judge.test_grader import asked, check, given, marks

pytestmark = [pytest.mark.uses("walls"), pytest.mark.slow]
LONG = RunLimits(cell_s=120, total_s=240)


@pytest.fixture(scope="module", autouse=True)
def referee():
    with Local(partial(Zygote, policy=Policy(), unsafe=not abilities()), workers=1) as pool:
        test_grader.run = pool.run
        yield


START = given("import time\nimport numpy as np")
SQUARES = "def squares(x):\n    return x * x\ndef loss(W):\n    return float(np.sum(np.tanh(W) ** 2))\n"
SQUARES += "def there():\n    return time.process_time()"
BOTH = "\ndef clocks():\n    return np.array([time.perf_counter(), time.process_time() + there()])\n"
SMALL = """
seconds = []
for part in range(4):
    began = clocks()
    for n in range(2_500):
        y = squares(np.array([n, 1.0, 2.0]))
        assert y[0] == n * n
    seconds.append(clocks() - began)
print("SECONDS", *np.ravel(seconds))
"""
LARGE = """
began = clocks()
for n in range(100):
    y = squares(np.full(1_000_000, float(n)))
    assert y[-1] == n * n
print("SECONDS", *(clocks() - began))
"""
GRADIENT = """
W, eps = np.random.default_rng(7).standard_normal((64, 64)), 1e-5
slope = np.zeros_like(W)
began = clocks()
for at in np.ndindex(W.shape):
    old = W[at]
    W[at] = old + eps
    above = loss(W)
    W[at] = old - eps
    slope[at] = (above - loss(W)) / (2 * eps)
    W[at] = old
print("SECONDS", *(clocks() - began))
assert np.allclose(slope, 2 * np.tanh(W) / np.cosh(W) ** 2, atol=1e-6)
"""
COSTS = {  # calls: the test, and the seconds of processor time on both sides that it may take
    "10,000 with small arrays": (SMALL, 20),
    "100 with 8 MB there and back": (LARGE, 20),
    "8,192 of a numerical gradient of a 64 x 64 matrix": (GRADIENT, 30),
}


@pytest.mark.parametrize("calls", COSTS)
def test_calls_cost_in_proportion(calls, record_property):
    """The goal for ten thousand small ones is five seconds on a quiet machine.

    Bounded is the time of the processor, which a machine that does other things as well tells almost as truly.
    """
    test, bound = COSTS[calls]
    cells = [START, asked("answer", SQUARES), check("t", BOTH + test)]
    found = marks(cells, {"answer": SQUARES}, limits=LONG).tests[0]
    assert found.state == "passed", (found.state, found.message)
    numbers = [float(text) for text in re.search("SECONDS (.*)", found.output)[1].split()]
    clock, parts = sum(numbers[::2]), numbers[1::2]
    record_property("seconds", f"{clock:.2f}")
    print(f"\n{calls}: {clock:.2f} s, {sum(parts):.2f} s of the processor", *(f"{part:.2f}" for part in parts))
    assert sum(parts) < bound
    if len(parts) > 1:  # the last quarters cost what the first did, however many came before
        assert min(parts[2:]) < 2 * min(parts[:2]), parts


# Time: what is computed after the clock was stopped does not count

LATE = """
import threading

def f(x):
    out = np.zeros(len(x))

    def fill():
        time.sleep(0.5)
        out[:] = 2 * x

    threading.Thread(target=fill).start()
    return out
"""
WAITS = """
class Later:
    def __init__(self, x): self.x = x
    def __getitem__(self, at):
        time.sleep(0.5)
        return 2 * self.x[at]
    def numbers(self):
        time.sleep(0.5)
        return 2 * self.x

def f(x): return Later(np.array(x))
"""
HONEST = "def f(x):\n    return 2 * x"
JUDGED = """
time.sleep(1)
f(x[:1])  # a question more: what has changed over there is seen here
assert (found == 2 * x).all(), "wrong"
assert took < 0.3, "slow"
"""
TIMED = "x = np.arange(1.0, 5.0)\nbegan = time.perf_counter()\n{}\ntook = time.perf_counter() - began" + JUDGED
READS = {
    "a copy": "found = np.array(f(x))",
    "no copy": "found = f(x)",
    "items": "found = np.array([f(x)[n] for n in range(4)])",
}


@pytest.mark.parametrize(
    ("answer", "reads", "message"),
    [
        (HONEST, "a copy", ""),
        (HONEST, "items", ""),
        (LATE, "a copy", "wrong"),
        (LATE, "items", "wrong"),
        (LATE, "no copy", ""),  # why the documentation wants a copy
        (WAITS, "items", "slow"),
        (WAITS + "\nlater = f\ndef f(x): return later(x).numbers()", "a copy", "slow"),
    ],
)
def test_a_timed_test_judges_what_was_there_when_its_clock_stopped(answer, reads, message):
    """An array that a thread fills later, or an object that computes when it is read, does not win."""
    cells = [START, asked("answer", HONEST), check("t", TIMED.format(READS[reads]))]
    found = marks(cells, {"answer": answer}, limits=RunLimits(cell_s=10)).tests[0]
    assert (found.state, found.message) == (("failed", message) if message else ("passed", "")), found
