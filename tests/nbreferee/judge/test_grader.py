"""Tests run on the trusted side: whose names count, what each test comes to, what a lost process costs."""

import subprocess
import sys
from dataclasses import replace
from functools import partial

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from nbreferee.intake.answers import Answers, Own
from nbreferee.judge.job import JobError, RunLimits, plan
from nbreferee.walls.sandbox import Policy, abilities
from nbreferee.walls.supervisor import Zygote
from nbreferee.workers.pool import GraderFailed, Local

pytestmark = [pytest.mark.uses("walls"), pytest.mark.slow]
LIMITS = RunLimits(cell_s=2, total_s=30, patience=1, output=500, restarts=4)
PATIENT = replace(LIMITS, cell_s=20)  # to import pandas takes more than two seconds where much else runs


@pytest.fixture(scope="module", autouse=True)
def referee():
    """The path that grades students; without walls where the machine has none, since these tests are about marks."""
    global run
    policy = Policy(memory_bytes=256 << 20)
    with Local(partial(Zygote, policy=policy, unsafe=not abilities()), workers=1) as pool:
        run = pool.run
        yield


def meta(name, points=None, solution=False, **ours):
    flags = {"grade_id": name, "grade": points is not None, "solution": solution, "locked": not solution}
    flags |= {"schema_version": 3, "task": False} | ({} if points is None else {"points": points})
    return {"nbgrader": flags} | ({"nbreferee": ours} if ours else {})


def given(source):
    return new_code_cell(source, metadata=meta("given"))


def asked(name, reference, **ours):
    return new_code_cell(reference, metadata=meta(name, solution=True, **ours))


def check(name, source, points=1, **ours):
    return new_code_cell(source, metadata=meta(name, points, **ours))


def marks(cells, answers, own=(), limits=LIMITS):
    """The Result of these answers to a notebook of these cells."""
    job = plan(new_notebook(cells=cells), Answers(answers, tuple(own), (), ()), limits)
    return run(job).result()


def states(result):
    return {test.name: test.state for test in result.tests}


DOUBLE = [
    given("import math\nFACTOR = 2"),
    asked("answer", "def double(x):\n    return FACTOR * x"),
    check("shown", "assert double(3) == 6, 'double(3) should be 6'"),
    check("hidden", "### BEGIN HIDDEN TESTS\nassert double(-7) == -14\n### END HIDDEN TESTS", 2),
]


def test_a_right_answer_earns_all():
    result = marks(DOUBLE, {"answer": "def double(x):\n    return x + x"})
    assert states(result) == {"shown": "passed", "hidden": "passed"} and result.points == 3


def test_a_wrong_answer_is_told_what_was_called_and_what_came_back():
    result = marks(DOUBLE, {"answer": "def double(x):\n    return x + 3"}).by_test
    assert result["shown"].state == "passed" and result["hidden"].points == 0
    failed = result["hidden"]
    assert failed.state == "failed" and "-7" not in failed.message
    assert "double(-7)" in failed.calls[-1].what and "-4" in failed.calls[-1].came


def test_the_message_of_an_assertion_without_one_is_the_assertion_where_it_is_shown():
    cells = [*DOUBLE[:2], check("bare", "y = double(1)\nassert y == 2")]
    assert marks(cells, {"answer": "def double(x):\n    return 0"}).tests[0].message == "y == 2 does not hold"


def test_an_error_in_the_answer_comes_with_the_students_own_lines():
    result = marks(DOUBLE, {"answer": "def double(x):\n    half = x / 0\n    return half"}).tests[0]
    assert result.state == "failed" and "ZeroDivisionError" in result.message and "half = x / 0" in result.trace


@pytest.mark.parametrize("answer", [None, "def double(x):\n    raise NotImplementedError()"])
def test_nothing_written_is_nothing_earned(answer):
    result = marks(DOUBLE, {"answer": answer})
    assert result.points == 0
    assert set(states(result).values()) == ({"unanswered"} if answer else {"failed"})
    assert answer or "double is not defined" in result.tests[0].message


def test_a_known_mistake_is_named():
    cells = [
        given("class Known(AssertionError):\n    mistake = 'you forgot the factor'"),
        DOUBLE[1],
        check("shown", "if double(3) == 3:\n    raise Known('double(3) is 3')"),
    ]
    result = marks(cells, {"answer": "def double(x):\n    return x"}).tests[0]
    assert (result.message, result.mistake) == ("double(3) is 3", "you forgot the factor")


def test_tests_take_the_instructors_names_from_the_instructor():
    """The student rebinds a helper of the tests, and a module; neither is an answer that was asked for."""
    cells = [
        given("import math\ndef close(a, b):\n    return abs(a - b) < 1e-9"),
        asked("answer", "def root(x):\n    return x**0.5"),
        check("shown", "assert close(root(4), math.sqrt(4))"),
    ]
    cheat = "def close(a, b): return True\nclass math:\n    sqrt = staticmethod(lambda x: 7)\ndef root(x): return 7"
    assert marks(cells, {"answer": cheat}).points == 0
    assert marks(cells, {"answer": "def root(x):\n    return x**0.5"}).points == 1


def test_tests_take_from_the_student_what_the_answer_is_asked_for():
    """Even where a given cell has bound the name first, or it is a builtin's."""
    cells = [
        given("data = [3, 1, 2]"),
        asked("answer", "data = sorted(data)\nsum = 6"),
        check("shown", "assert data == [1, 2, 3] and sum == 6"),
    ]
    assert marks(cells, {"answer": "data.sort()\ndata = list(data)\nsum = 6"}).points == 1
    assert marks(cells, {"answer": "sum = 6"}).points == 0


def test_an_author_says_what_is_asked_for_where_the_solution_does_not_bind_it():
    cells = [given("data = [3, 1, 2]"), asked("answer", "data.sort()"), check("shown", "assert data == [1, 2, 3]")]
    assert marks(cells, {"answer": "data.sort()"}).points == 0
    cells[1] = asked("answer", "data.sort()", asks=["data"])
    assert marks(cells, {"answer": "data.sort()"}).points == 1
    assert marks(cells, {"answer": "pass"}).points == 0


def test_a_name_that_a_test_binds_belongs_to_the_tests_from_then_on():
    cells = [
        DOUBLE[1],
        check("first", "def equal(a, b):\n    return a == b\nassert equal(1, 1)"),
        asked("second_answer", "def half(x):\n    return x / 2"),
        check("second", "assert equal(half(4), 2)"),
    ]
    mine = {
        "answer": "def double(x): return 2 * x",
        "second_answer": "def half(x): return 0\ndef equal(a, b): return 1",
    }
    assert states(marks(cells, mine)) == {"first": "passed", "second": "failed"}


def test_an_answer_may_change_its_arguments_only_where_the_test_says_so():
    """Or it would make the numbers from which the test computes what it wants."""
    sums = "data = [3, 1, 2]\ngot = total(data)\nassert got == sum(data)"
    cells = [asked("answer", "def total(x):\n    return sum(x)"), check("plain", sums)]
    result = marks(cells, {"answer": "def total(x):\n    x.clear()\n    return 0"}).tests[0]
    assert result.points == 0 and result.message == "you changed your argument; work on a copy"
    assert marks(cells, {"answer": "def total(x):\n    return x[0] + x[1] + x[2]"}).points == 1
    in_place = "data = [3, 1, 2]\norder(data)\nassert data == [1, 2, 3]"
    cells = [asked("answer", "def order(x):\n    x.sort()"), check("sorts", in_place, changes=True)]
    assert marks(cells, {"answer": "def order(x):\n    x.sort()"}).points == 1
    assert marks(cells, {"answer": "def order(x):\n    return sorted(x)"}).points == 0


def test_given_cells_run_on_both_sides():
    cells = [
        given("BASE = 10"),
        asked("answer", "def shift(x):\n    return BASE + x"),
        check("shown", "assert shift(1) == BASE + 1 == 11"),
    ]
    assert marks(cells, {"answer": "def shift(x):\n    return x + BASE"}).points == 1


def test_own_cells_run_where_they_stand():
    own = [Own("OFFSET = 1", "given"), Own("OFFSET = 0", "shown")]
    result = marks(DOUBLE, {"answer": "def double(x):\n    return 2 * x + OFFSET - 1"}, own)
    assert states(result) == {"shown": "passed", "hidden": "failed"}


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("import os; os._exit(0)", "crashed"),
        ("import ctypes; ctypes.string_at(0)", "crashed"),
        ("while True: pass", "timeout"),
        ("import time; time.sleep(100)", "timeout"),
        ("import mmap; mmap.mmap(-1, 3 << 30)", "failed"),
        ("held = [bytearray(16 << 20) for _ in range(100)]", "memory"),
    ],
)
def test_what_costs_a_process_costs_its_own_test_only(body, state):
    cells = [*DOUBLE, asked("other", "def half(x):\n    return x / 2"), check("half", "assert half(4) == 2", 4)]
    bad = f"def double(x):\n    if x < 0:\n        {body}\n    return 2 * x"
    result = marks(cells, {"answer": bad, "other": "def half(x):\n    return x / 2"})
    assert states(result) == {"shown": "passed", "hidden": state, "half": "passed"}
    assert result.by_test["hidden"].points == 0 and result.by_test["hidden"].message


def test_a_cell_that_costs_a_process_is_not_run_again():
    cells = [*DOUBLE, asked("other", "def half(x):\n    return x / 2"), check("half", "assert half(4) == 2")]
    result = marks(cells, {"answer": "import os\nos._exit(1)", "other": "def half(x):\n    return x / 2"})
    assert states(result) == {"shown": "failed", "hidden": "failed", "half": "passed"}
    assert [cell.state for cell in result.cells] == ["crashed", "ran"]
    assert "double is not defined" in result.tests[0].message and "answer stopped with" in result.tests[0].message


def test_a_submission_that_loses_process_after_process_comes_to_an_end():
    cells = [DOUBLE[1], *(check(f"t{n}", "assert double(1) == 2") for n in range(10))]
    result = marks(cells, {"answer": "def double(x):\n    import os\n    os._exit(0)"})
    assert len(result.tests) == 10 and set(states(result).values()) == {"crashed"}
    assert sum("had been lost 5 times" in test.message for test in result.tests) == 5


def test_the_total_time_ends_a_submission():
    cells = [DOUBLE[1], *(check(f"t{n}", "assert double(1) == 2") for n in range(6))]
    slow = {"answer": "def double(x):\n    import time\n    time.sleep(0.8)\n    return 2 * x"}
    result = marks(cells, slow, limits=RunLimits(cell_s=2, total_s=2, patience=1))
    assert states(result)["t0"] == "passed" and states(result)["t5"] == "timeout" and result.waited
    assert "the submission had waited" in result.by_test["t5"].message


BURN = """def burn(seconds):
    import time
    while time.process_time() < seconds: pass
"""


def test_what_a_busy_machine_takes_is_no_loss():
    """Eight busy processes make the answer's second last for several; a limit of two seconds does not notice."""
    cells = [DOUBLE[1], check("t", "assert double(1) == 2")]
    slow = {"answer": BURN + "def double(x):\n    burn(1)\n    return 2 * x"}
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        result = marks(cells, slow)
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert states(result) == {"t": "passed"}
    assert states(marks(cells, {"answer": slow["answer"].replace("burn(1)", "burn(3)")})) == {"t": "timeout"}


COSTLY = {
    "threads": """
    import threading
    threads = [threading.Thread(target=burn, args=(3,)) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
""",
    "a child": """
    import os
    if os.fork() == 0:
        burn(3)
        os._exit(0)
    os.wait()
""",
    "late children": """
    import os
    for _ in range(6):
        if os.fork() == 0:
            burn(0.6)
            os._exit(0)
        os.wait()
""",
    "an orphan": """
    import os, time
    if os.fork() == 0:
        if os.fork() == 0: burn(3)
        os._exit(0)
    time.sleep(9)
""",
}
WAITS = {
    "a sleep": "import time; time.sleep(99)",
    "a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=99)",
}


@pytest.mark.parametrize("how", COSTLY.values(), ids=COSTLY)
def test_threads_and_children_count(how):
    cells = [DOUBLE[1], check("t", "assert double(1) == 2"), check("next", "assert double(2) == 4")]
    answer = BURN + f"def double(x):\n    if x == 2: return 4{how}    return 2 * x"
    result = marks(cells, {"answer": answer}, limits=replace(LIMITS, patience=5))
    assert states(result) == {"t": "timeout", "next": "passed"} and not result.waited
    assert "processor time" in result.by_test["t"].message


@pytest.mark.parametrize("how", WAITS.values(), ids=WAITS)
def test_a_wait_ends_and_is_told_from_a_computation(how):
    cells = [DOUBLE[1], check("t", "assert double(1) == 2"), check("next", "assert double(2) == 4")]
    answer = f"def double(x):\n    if x == 2: return 4\n    {how}\n    return 2 * x"
    result = marks(cells, {"answer": answer})
    assert states(result) == {"t": "timeout", "next": "passed"} and result.waited
    assert "it computed little and waited" in result.by_test["t"].message


def test_the_time_of_a_test_counts_the_instructors_code_too():
    cells = [DOUBLE[1], check("loop", "n = double(1)\nwhile n: pass"), check("next", "assert double(1) == 2")]
    result = marks(cells, {"answer": "def double(x): return 2 * x"}, limits=RunLimits(cell_s=1, total_s=20, patience=1))
    assert states(result) == {"loop": "timeout", "next": "passed"}


@pytest.mark.parametrize(
    ("last", "points", "state"),
    [
        ("1.5", 1.5, "passed"),
        ("7", 2, "passed"),
        ("-3", 0, "passed"),
        ("float('nan')", 0, "invalid"),
        ("True", 2, "passed"),
    ],
)
def test_the_last_line_of_a_test_can_give_part_of_its_points(last, points, state):
    result = marks([check("partial", f"import math\n{last}", 2)], {}).tests[0]
    assert (result.points, result.state) == (points, state)


def test_a_test_that_is_at_fault_itself_is_broken():
    cells = [given("import no_such_module\nREADY = 1"), DOUBLE[1]]
    cells += [check("syntax", "assert ("), check("module", "import no_such_module"), check("name", "assert READY")]
    result = marks(cells, {"answer": "def double(x): return 2 * x"})
    assert set(states(result).values()) == {"broken"} and result.points == 0


def test_what_a_test_cannot_use_is_invalid_and_earns_nothing():
    cells = [DOUBLE[1], check("sum", "assert double(1) + 1 == 3")]
    result = marks(cells, {"answer": "def double(x):\n    return None"}).tests[0]
    assert result.state == "invalid" and "NoneType" in result.message and result.points == 0


@pytest.mark.parametrize("body", ["class Any:\n        def __eq__(self, other): return True\n        __ne__ = __eq__",
                                  "class Any(int):\n        def __eq__(self, other): return True",
                                  "class Any(float):\n        def __eq__(self, other): return True"])  # fmt: skip
def test_an_object_that_equals_everything_equals_nothing(body):
    result = marks(DOUBLE, {"answer": f"def double(x):\n    {body}\n    return Any()"})
    assert result.points == 0


HIDDEN = "### BEGIN HIDDEN TESTS\nassert double(4711) == 9422\n### END HIDDEN TESTS"


@pytest.mark.parametrize(
    "answer",
    [
        "def double(x):\n    raise ValueError(f'{x}')",
        "def double(x):\n    exec(compile(f'raise ValueError(  {x})', '<answer>', 'exec'))",
        "seen = []\ndef double(x):\n    seen.append(x)\n    if x == 3: raise ValueError(f'{seen}')\n    return 0",
    ],
)
def test_an_answer_cannot_tell_what_a_hidden_test_asked(answer):
    """Not in the hidden test's error, and not later: shown tests have all been run before it."""
    cells = [DOUBLE[1], check("hidden", HIDDEN), check("shown", "double(1)\nassert double(3) == 6")]
    result = marks(cells, {"answer": answer})
    assert result.points == 0
    told = "".join(test.message + test.trace + test.output for test in result.tests)
    assert "4711" not in told and result.by_test["hidden"].message
    assert result.by_test["shown"].state == "failed"


def test_a_hidden_error_is_told_by_kind_and_line():
    cells = [DOUBLE[1], check("hidden", HIDDEN)]
    test = marks(cells, {"answer": "def double(x):\n    # twice\n    return x + [x]"}).tests[0]
    assert test.message == "your code raised TypeError" and "return x + [x]" in test.trace


def test_a_hidden_test_that_later_cells_need_runs_in_its_place():
    cells = [
        DOUBLE[1],
        check("first", "### BEGIN HIDDEN TESTS\ndef same(a, b):\n    assert a == b\n### END HIDDEN TESTS"),
        check("second", "same(double(1), 2)"),
    ]
    assert marks(cells, {"answer": DOUBLE[1].source.replace("FACTOR", "2")}).points == 2


def test_a_hidden_test_sees_what_stood_at_its_place():
    cells = [
        asked("answer", "x = 1"),
        check("hidden", "### BEGIN HIDDEN TESTS\nassert x == 1\n### END HIDDEN TESTS"),
        asked("second", "x = 2"),
        check("shown", "assert x == 2"),
    ]
    assert marks(cells, {"answer": "x = 1", "second": "x = 2"}).points == 2


@pytest.mark.parametrize("harm", ["os._exit(1)", "raise OSError", "bytearray(1 << 40)", "while True: pass"])
def test_a_cell_is_not_blamed_for_a_process_that_a_test_has_spoilt(harm):
    cells = [*DOUBLE, asked("other", "def half(x):\n    return x / 2"), check("half", "assert half(4) == 2", 4)]
    spoils = "import os, sys\nasked = []\ndef double(x):\n    asked.append(x)\n    return 2 * x"
    other = f"if asked:\n    {harm}\ndef half(x):\n    return x / 2"
    result = marks(cells, {"answer": spoils, "other": other})
    assert result.points == 7 and [cell.state for cell in result.cells] == ["ran", "ran"]


HALF = [asked("other", "def half(x):\n    return x / 2"), check("half", "assert half(4) == 2", 4)]


LEAVES = {
    "a thread": "threading.Timer(0.3, os._exit, (1,)).start()\n    time.sleep(0.2)",
    "an agent that ends": "sys.modules['nbreferee.rpc.agent']._VERBS['names'] = lambda *args: os._exit(1)",
    "an agent that is silent": "sys.modules['nbreferee.rpc.agent']._VERBS['names'] = lambda *args: time.sleep(100)",
    "a full memory": "hoard.extend(bytearray(1 << 20) for _ in range(230))",
}


@pytest.mark.parametrize("leaves", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("hidden", [False, True])
def test_what_an_answer_leaves_behind_costs_no_other_answer(leaves, hidden):
    """Each answer is lost in a process that a test of another one has used."""
    bad = f"import os, sys, threading, time\nhoard = []\ndef double(x):\n    {leaves}\n    return 2 * x"
    needs = "import time\ndef half(x):\n    time.sleep(0.3)\n    return len(bytearray(50 << 20)) // (50 << 20) * x / 2"
    last = "### BEGIN HIDDEN TESTS\nassert half(4) == 2\n### END HIDDEN TESTS" if hidden else "assert half(4) == 2"
    cells = [*DOUBLE[:3], HALF[0], check("half", last, 4)]
    assert states(marks(cells, {"answer": bad, "other": needs})) == {"shown": "passed", "half": "passed"}


def test_a_loop_without_end_takes_no_time_from_other_answers():
    tests = [check(f"t{n}", f"assert double({n}) == {2 * n}") for n in range(4)]
    inside = check("inside", "assert half(8) == 4", 1, run="sandboxed", needs=["half"])
    cells = [DOUBLE[1], *tests, *HALF, inside]
    loops = {"answer": "def double(x):\n    while True: pass", "other": "def half(x):\n    return x / 2"}
    result = marks(cells, loops, limits=RunLimits(cell_s=1.5, total_s=4))
    assert states(result) == dict.fromkeys(["t0", "t1", "t2", "t3"], "timeout") | {"half": "passed", "inside": "passed"}
    assert "not run" in result.by_test["t3"].message


def test_an_answer_that_ends_its_process_takes_no_process_from_other_answers():
    tests = [check(f"t{n}", f"assert double({n}) == {2 * n}") for n in range(7)]
    ends = {"answer": "import os\ndef double(x):\n    os._exit(1)", "other": "def half(x):\n    return x / 2"}
    result = marks([DOUBLE[1], *tests, *HALF], ends)
    assert states(result) == {f"t{n}": "crashed" for n in range(7)} | {"half": "passed"}


def test_a_sandboxed_test_waits_for_one_that_is_judged_again():
    spoils = f"import os, sys\ndef double(x):\n    {LEAVES['an agent that ends']}\n    return 2 * x"
    inside = check("inside", "assert half(8) == 4", 1, run="sandboxed", needs=["half"])
    result = marks([*DOUBLE[:3], *HALF, inside], {"answer": spoils, "other": "def half(x):\n    return x / 2"})
    assert states(result) == {"shown": "passed", "half": "passed", "inside": "passed"}


def test_a_hidden_test_finds_the_names_of_a_hidden_test_above():
    first = check("first", "### BEGIN HIDDEN TESTS\nnumber = 21\n### END HIDDEN TESTS")
    then = check("then", "### BEGIN HIDDEN TESTS\nassert double(number) == 42\n### END HIDDEN TESTS")
    result = marks([*DOUBLE[:2], first, then], {"answer": "def double(x):\n    return 2 * x"})
    assert states(result) == {"first": "passed", "then": "passed"}


def test_an_answer_that_says_the_loop_is_over_ends_no_test():
    cells = [DOUBLE[1], check("all", "for a, b in zip(map(double, [1, 2]), [2, 4]):\n    assert a == b")]
    assert marks(cells, {"answer": "def double(x):\n    raise StopIteration"}).points == 0


def test_a_fault_of_the_grader_is_no_mark():
    """A student's process that ends before it has run anything: nobody gets a 0 for that."""
    with Local(partial(Zygote, student="os:getpid", unsafe=not abilities()), workers=1) as pool:
        job = plan(new_notebook(cells=DOUBLE), Answers({"answer": "def double(x): return 2 * x"}, (), (), ()), LIMITS)
        with pytest.raises(GraderFailed):
            pool.run(job).result()


MEMORY = check(
    "memory", "### BEGIN HIDDEN TESTS\nassert double(5) == 10, 'the memory is too large'\n### END HIDDEN TESTS", 3,
    run="sandboxed", reason="it measures", needs=["shown"],
)  # fmt: skip


def test_a_sandboxed_test_counts_after_those_that_it_needs():
    right = marks([*DOUBLE, MEMORY], {"answer": "def double(x): return 2 * x"}).by_test["memory"]
    assert right.state == "passed" and right.points == 3 and right.sandboxed
    wrong = marks([*DOUBLE, MEMORY], {"answer": "def double(x): return 10"}).by_test["memory"]
    assert wrong.state == "withheld" and wrong.points == 0 and "shown" in wrong.message


def test_a_hidden_sandboxed_test_says_only_what_its_text_could_say():
    """Its process is the student's, who could put the test itself into an error."""
    said = marks([*DOUBLE, MEMORY], {"answer": "def double(x): return 2 * x if x == 3 else 0"}).by_test["memory"]
    assert said.state == "failed" and said.message == "the memory is too large"
    leak = "def double(x):\n    if x != 5: return 2 * x\n    raise AssertionError(globals().get('In', ['SECRET'])[-1])"
    said = marks([*DOUBLE, MEMORY], {"answer": leak}).by_test["memory"]
    assert said.state == "failed" and said.message == "the test did not pass"


def test_a_sandboxed_test_begins_with_a_fresh_process():
    """What an answer remembers of the split tests is gone."""
    count = "calls = []\ndef double(x):\n    calls.append(x)\n    return 2 * x if len(calls) < 3 else 0"
    result = marks([*DOUBLE, MEMORY], {"answer": count})
    assert states(result) == {"shown": "passed", "hidden": "passed", "memory": "passed"}


def test_output_is_capped():
    result = marks(DOUBLE, {"answer": "print('x' * 10**6)\ndef double(x):\n    print('y' * 10**6)\n    return 2 * x"})
    assert result.points == 3
    assert 100 < len(result.cells[0].output) <= 600 and 100 < len(result.tests[0].output) <= 600


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (check("t", "pass", float("nan")), "worth nan"),
        (check("t", "pass", run="somehow"), "say split or sandboxed"),
        (check("t", "pass", needs=["s"]), "only a sandboxed test"),
        (check("", "pass"), "no grade_id"),
    ],
)
def test_a_notebook_that_cannot_be_graded_is_refused_with_the_cure(cell, words):
    with pytest.raises(JobError, match=words):
        plan(new_notebook(cells=[nbformat.from_dict(cell)]), Answers({}, (), (), ()))


def test_a_helper_of_one_name_in_two_answers_is_that_of_its_place():
    """Hidden tests run late, but see their function with its own helper, as in the notebook."""
    cells = [
        asked("one", "def twice(x):\n    return 2 * x"),
        check("first", "### BEGIN HIDDEN TESTS\nassert twice(4) == 8\n### END HIDDEN TESTS"),
        asked("two", "def thrice(x):\n    return 3 * x"),
        check("second", "### BEGIN HIDDEN TESTS\nassert thrice(4) == 12\n### END HIDDEN TESTS"),
    ]
    one = "def helper(x):\n    return 2 * x\ndef twice(x):\n    return helper(x)"
    two = "def helper(x):\n    return 3 * x\ndef thrice(x):\n    return helper(x)"
    assert states(marks(cells, {"one": one, "two": two})) == {"first": "passed", "second": "passed"}


# Whose names, whose data


def hidden(name, source, points=1, **ours):
    return check(name, f"### BEGIN HIDDEN TESTS\n{source}\n### END HIDDEN TESTS", points, **ours)


ROOT = asked("answer", "def root(x):\n    return x**0.5")
CHEAT = {
    "answer": "def root(x): return 0\nclose = allclose = assert_allclose = lambda *a, **k: True\n"
    "class np:\n    isclose = close"
}
HELPERS = {
    "a star import": [given("from numpy.testing import *"), ROOT, check("t", "assert_allclose(root(4.0), 2.0)")],
    "a global statement": [
        given("def setup():\n    global close\n    def close(a, b):\n        return abs(a - b) < 1e-9\nsetup()"),
        ROOT,
        check("t", "assert close(root(4.0), 2.0)"),
    ],
    "a cell that shows something": [
        given(
            "display('hello')\nget_ipython().run_line_magic('time', '1')\n"
            "def close(a, b):\n    return abs(a - b) < 1e-9"
        ),
        ROOT,
        check("t", "assert close(root(4.0), 2.0)"),
    ],
    "an import of the solution": [
        asked("answer", "import numpy as np\ndef root(x):\n    return np.sqrt(x)"),
        check("t", "assert np.isclose(root(4.0), 2.0)"),
    ],
    "a test that fails before it binds": [
        ROOT,
        check("first", "assert root(1.0) == 1.0\ndef close(a, b):\n    return abs(a - b) < 1e-9", 0),
        check("t", "assert close(root(4.0), 2.0)"),
    ],
}


@pytest.mark.parametrize("cells", HELPERS.values(), ids=HELPERS)
def test_the_helpers_of_tests_are_never_the_students(cells):
    assert marks(cells, {"answer": "import numpy as np\ndef root(x): return np.sqrt(x)"}).by_test["t"].state == "passed"
    assert marks(cells, CHEAT).by_test["t"].state == "failed"


@pytest.mark.parametrize("first", ["%pylab inline", "files = !ls", "1 / 0"])
def test_a_name_that_nobody_defines_is_not_looked_for_at_the_students(first):
    cells = [
        given(f"{first}\ndef allclose(a, b):\n    return abs(a - b) < 1e-9"),
        ROOT,
        check("t", "assert allclose(root(4.0), 2.0)"),
    ]
    cells[0].source = first if first == "%pylab inline" else cells[0].source
    result = marks(cells, CHEAT).tests[0]
    assert result.state == "broken" and "allclose" in result.message


def test_a_given_cell_that_stops_for_the_students_error_is_not_the_tests_fault():
    cells = [DOUBLE[1], given("four = double(2)"), check("t", "assert four == 4")]
    result = marks(cells, {"answer": "def double(x):\n    raise ValueError('no')"}).tests[0]
    assert result.state == "failed" and "four is not defined" in result.message and "ValueError: no" in result.message


def test_given_data_stay_what_they_are():
    """An answer zeroes them and takes the loss; the next test would compute what it wants from zeros."""
    cells = [
        given("import numpy as np\nX = np.arange(6.0)\nL = [1, 2, 3]"),
        asked("answer", "def total(x):\n    return sum(x)"),
        check("array", "assert total(X) == 15"),
        check("list", "assert total(L) == sum(L)"),
        check("sorts", "assert total(X) == 15", changes=True),
        check("again", "assert total(X) == X.sum()", 5),
        check("list again", "assert total(L) == sum(L)", 5),
    ]
    zero = "def total(x):\n    if isinstance(x, list):\n        x.clear()\n    else:\n        x[...] = 0\n    return 0"
    assert marks(cells, {"answer": zero}).points == 0
    held = "kept = []\ndef total(x):\n    for k in kept:\n        k[...] = 0\n    kept.append(x)\n    return sum(x)"
    assert states(marks(cells[:2] + cells[4:6], {"answer": held}))["again"] == "passed"
    assert marks(cells, {"answer": "def total(x):\n    return sum(x)"}).points == 13


def test_given_helpers_and_objects_outlive_a_students_process():
    cells = [
        DOUBLE[1],
        given("def four(x):\n    return double(double(x))\npairs = {'double': double}\nsame = double"),
        check("crash", "double(13)"),
        check("helper", "assert four(1) == 4"),
        check("pairs", "assert pairs['double'](2) == 4 and same(2) == 4"),
    ]
    ends = "import os\ndef double(x):\n    if x == 13:\n        os._exit(1)\n    return 2 * x"
    assert states(marks(cells, {"answer": ends})) == {"crash": "crashed", "helper": "passed", "pairs": "passed"}


def test_given_cells_hold_objects_of_one_process():
    """The second one runs in a new process, and the first one has to as well."""
    cells = [
        DOUBLE[1],
        given("pairs = {'double': double}"),
        asked("other", "def end():\n    pass"),
        check("crash", "end()"),
    ]
    cells += [given("more = [double]"), check("t", "assert pairs['double'](2) == more[0](2) == 4")]
    mine = {"answer": "def double(x):\n    return 2 * x", "other": "import os\ndef end():\n    os._exit(1)"}
    assert states(marks(cells, mine)) == {"crash": "crashed", "t": "passed"}


def test_a_given_cell_may_make_an_object_of_the_students():
    cells = [asked("answer", "class M:\n    def f(self): return 7"), given("m = M()"), check("t", "assert m.f() == 7")]
    assert marks(cells, {"answer": "class M:\n    def f(self): return 7"}).points == 1


def test_a_function_of_the_students_may_bind_a_global_name_anew():
    cells = [
        asked("answer", "counter = 0\ndef inc():\n    global counter\n    counter += 1"),
        check("t", "inc()\ninc()\nassert counter == 2"),
    ]
    assert marks(cells, {"answer": "counter = 0\ndef inc():\n    global counter\n    counter += 1"}).points == 1
    assert marks(cells, {"answer": "counter = 2\ndef inc():\n    global counter\n    counter += 1"}).points == 0


def test_unittest_finds_the_tests_of_a_cell():
    source = (
        "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(double(2), 4)\n"
    )
    source += "assert unittest.main(argv=['x'], exit=False).result.wasSuccessful()"
    assert marks([DOUBLE[1], check("t", source)], {"answer": "def double(x): return 2 * x"}).points == 1
    assert marks([DOUBLE[1], check("t", source)], {"answer": "def double(x): return 3 * x"}).points == 0


# What counts


@pytest.mark.parametrize(
    ("last", "points", "state"),
    [("np.int64(0)", 0, "passed"), ("np.mean([1.0, 2.0])", 1.5, "passed"), ("np.array(1)", 1, "passed"),
     ("1j", 0, "invalid"),
     ("np.arange(3)", 2, "passed")],
)  # fmt: skip
def test_a_number_of_numpy_is_a_number_of_points(last, points, state):
    result = marks([check("partial", f"import numpy as np\n{last}", 2)], {}).tests[0]
    assert (result.points, result.state) == (points, state)


def test_a_sandboxed_test_needs_all_points_of_the_others():
    inside = check("inside", "assert double(2) == 4", 3, run="sandboxed", needs=["part"])
    cells = [DOUBLE[1], check("part", "4 * (double(1) == 2)", 4), inside]
    assert marks(cells, {"answer": "def double(x): return 0"}).by_test["inside"].state == "withheld"


def test_a_sandboxed_test_waits_also_for_one_that_waits():
    spoils = f"import os, sys\ndef double(x):\n    {LEAVES['an agent that ends']}\n    return 2 * x"
    chain = [check("inside", "assert half(8) == 4", run="sandboxed", needs=["half"])]
    chain += [check("inside2", "assert half(6) == 3", run="sandboxed", needs=["inside"])]
    result = marks([*DOUBLE[:3], *HALF, *chain], {"answer": spoils, "other": "def half(x):\n    return x / 2"})
    assert set(states(result).values()) == {"passed"}


def test_the_tests_of_an_answer_that_cost_most_come_last():
    both = check("both", "assert half(double(3)) == 3")
    tests = [check(f"t{n}", f"assert double({n}) == {2 * n}") for n in range(7)]
    ends = {"answer": "import os\ndef double(x):\n    os._exit(1)", "other": "def half(x):\n    return x / 2"}
    assert marks([DOUBLE[1], HALF[0], both, *tests, HALF[1]], ends).by_test["half"].state == "passed"


def test_a_lost_process_is_no_error_that_a_test_may_catch():
    cells = [DOUBLE[1], check("t", "try:\n    double(None)\nexcept:\n    good = True\nassert good")]
    assert marks(cells, {"answer": "import os\ndef double(x): os._exit(1)"}).tests[0].state == "crashed"


def test_what_is_never_answered_is_no_error_that_a_test_may_expect():
    cells = [
        asked("answer", "class V:\n    def __add__(self, other):\n        raise TypeError"),
        check("t", "import pytest\nwith pytest.raises(TypeError):\n    V() + 5"),
        check("own", "import pytest\nclass Mine: pass\nwith pytest.raises(TypeError):\n    V().take(Mine())"),
    ]
    assert states(marks(cells, {"answer": "class V:\n    def take(self, other): return 1"})) == {
        "t": "invalid",
        "own": "invalid",
    }


def test_an_assertion_of_pytest_is_one():
    cells = [DOUBLE[1], check("t", "import pytest\nwith pytest.raises(ValueError):\n    double(1)")]
    result = marks(cells, {"answer": "def double(x): return 2"}).tests[0]
    assert (result.state, result.message) == ("failed", "DID NOT RAISE ValueError")


def test_whether_an_object_can_be_called_is_seen():
    cells = [asked("answer", "def make():\n    return len"), check("t", "assert callable(make()), 'return a function'")]
    assert marks(cells, {"answer": "def make():\n    return len"}).points == 1
    assert marks(cells, {"answer": "def make():\n    return object()"}).tests[0].message == "return a function"


@pytest.mark.parametrize(
    "tampers",
    ["sys.modules['nbreferee.rpc.agent']._VERBS['test'] = lambda *args: 1 / 0", "sys.set_int_max_str_digits(0)"],
)
def test_no_answer_stops_the_grader(tampers):
    inside = check("inside", "assert big(1)", run="sandboxed", needs=["next"])
    cells = [
        asked("answer", "def big(n):\n    return n"),
        check("t", "assert big(1) == 12, 20 * big(1)"),
        check("next", "assert big(0)"),
        inside,
    ]
    result = marks(cells, {"answer": f"import sys\n{tampers}\ndef big(n):\n    return 10**4299 if n else 1"})
    assert states(result)["t"] == "failed" and states(result)["next"] == "passed"


# What an answer may do, and what a test sees of it


MODEL = """class M:
    def __init__(self):
        self.w, self.l = np.ones(2), []
    def fit(self):
        self.w -= 0.5
    def total(self):
        return self.w.sum() + len(self.l)"""


@pytest.mark.parametrize(
    "test",
    [
        "m = M()\nw = m.w\nm.fit()\nassert m.w.tolist() == [0.5, 0.5]",
        "m = M()\nm.w[0] = 5\nm.l.append(1)\nassert m.total() == 7",
    ],
    ids=["while the test holds them", "and so may the test"],
)
def test_a_model_may_change_its_own_weights(test):
    cells = [given("import numpy as np"), asked("answer", MODEL), check("t", test)]
    assert marks(cells, {"answer": MODEL}).points == 1


def test_what_an_answer_prints_a_test_can_read():
    read = "import contextlib, io\n"
    read += "with contextlib.redirect_stdout(io.StringIO()) as out:\n    say()\nassert out.getvalue() == 'hello\\n'"
    cells = [asked("answer", "def say():\n    print('hello')"), check("t", read)]
    assert marks(cells, {"answer": "def say():\n    print('hello')"}).points == 1
    assert marks(cells, {"answer": "def say():\n    return 'hello'"}).points == 0
    cells = [DOUBLE[1], check("t", "print('mine')\nassert double(2) == 4")]
    told = marks(cells, {"answer": "def double(x):\n    print('yours')\n    return 2 * x"}).tests[0]
    assert told.output == "mine\nyours\n"


def test_a_context_manager_of_the_students_swallows_nothing():
    """No failed assertion, no error of the test's, none of the answer's: the asserts below would be left out."""
    body = "class Quiet:\n    def __enter__(self): return self\n    def __exit__(self, *error): return True\n"
    body += "def f(x): raise KeyError(x)"
    blocks = ["assert 1 == 2", "raise KeyError('x')", "assert f(1) == 7", "import nowhere", "Quiet().nothing"]
    cells = [check(f"t{i}", f"with Quiet():\n    {block}\n    assert False") for i, block in enumerate(blocks)]
    found = marks([asked("answer", body), *cells, check("ok", "with Quiet() as q:\n    pass")], {"answer": body})
    assert found.points == 1 and states(found)["ok"] == "passed"
    told = body.replace("return True", "seen.append(error[0].__name__)") + "\nseen = []"
    block = "import contextlib\nwith contextlib.suppress(ValueError), Quiet():\n    int('x')\n"
    ok = check("t", block + "assert seen == ['ValueError']")
    assert marks([asked("answer", told), ok], {"answer": told}).points == 1


FORGER = "class Forged:\n    def equals(self, other): return True\n    def eq(self, other): return self\n"
FORGER += "    def all(self): return True\n    def tolist(self): return [True]\n"
FORGER += "    empty = same = True\n    flags = [True, True]\n    def compare(self, other): return self\n"
FORGER += "    def ones(self, other):\n        import numpy\n        return numpy.ones(3, bool)\n"


@pytest.mark.parametrize(
    "verdict",
    [
        "total(df).equals(df)",
        "total(df).eq(df).all()",
        "all(total(df).eq(df).tolist())",
        "total(df).ones(df).all()",
        "table.equals(df)",
        "not (total(df).equals(df) is False)",
        "total(df).compare(df).empty",
        "total(df).same is True",
        "all(total(df).flags)",
        "table.empty",
    ],
)
def test_an_object_of_the_students_gives_no_verdict_on_itself(verdict):
    honest = "import pandas\ndef total(df): return df\ntable = pandas.DataFrame({'a': [1, 2]})"
    forged = FORGER + "class total(Forged):\n    def __init__(self, df): pass\ntable = Forged()"
    test = f"import pandas\ndf = pandas.DataFrame({{'a': [1, 2]}})\nassert {verdict}"
    cells = [asked("answer", honest), check("shown", test)]
    told = marks(cells, {"answer": forged}, limits=PATIENT).tests[0]
    assert told.points == 0 and told.state == "invalid", told
    assert "verdict" in told.message and "sandboxed" in told.message
    if "equals" in verdict or "compare" in verdict:
        assert marks(cells, {"answer": honest}, limits=PATIENT).points == 1


def test_a_method_of_a_class_that_was_asked_for_says_true_or_false():
    body = "class Stack:\n    def __init__(self): self.x = []\n    def push(self, x): self.x.append(x)\n"
    body += "    def is_empty(self): return not self.x\n    full = property(lambda self: len(self.x) > 0)\n"
    body += "stack = Stack()\ndef even(n): return n % 2 == 0"
    test = "s = Stack()\nassert s.is_empty() and stack.is_empty() and not stack.full\n"
    test += "s.push(1)\nassert not s.is_empty() and s.full\n"
    test += "assert even(2) and not even(3)"
    assert marks([asked("answer", body), check("t", test)], {"answer": body}).points == 1


CLAIMED = {  # a test of an object's class: what it says besides the cure
    "assert isinstance(queue(), deque)": "deque",
    "assert isinstance(queue(), (int, deque | str)), 'a deque'": "int or deque or str",
    "try:\n    ok = isinstance(queue(), Sequence)\nexcept TypeError:\n    ok = True\nassert ok": "Sequence",
    "assert not isinstance(queue(), Counted)": "Counted",
    "assert isinstance(Box(), Box)": "Box",
    "assert issubclass(Box, deque)": "deque",
}


@pytest.mark.parametrize("test", CLAIMED)
def test_the_class_that_an_object_of_the_students_claims_is_not_believed(test):
    """Whoever hands it in: an honest answer's object is the same to this side as one that only claims to be it."""
    start = given("from collections import deque\nfrom collections.abc import Sequence\nclass Counted: pass")
    honest = "class Box(deque): pass\ndef queue(): return deque([1])"
    forged = "class Forged:\n    def __init__(self, of): self.of = of\n"
    forged += "    __class__ = property(lambda self: self.of)\n"
    forged += "def queue(): return Forged(deque)\nclass Box: pass\nBox.__bases__ = Box.__mro__ = (deque,)"
    cells = [start, asked("answer", honest), check("t", test)]
    for answer in (honest, forged):
        told = marks(cells, {"answer": answer}).tests[0]
        assert (told.points, told.state) == (0, "invalid"), told
        assert f"is of class {CLAIMED[test]}, which only" in told.message and "sandboxed" in told.message
    cells[2] = check("t", "assert list(queue()) == [1] and len(queue()) == 1")
    assert states(marks(cells, {"answer": honest})) == {"t": "passed"}


def test_what_comes_as_a_value_has_a_known_class():
    """And what does not come as one is none of these."""
    body = "import numpy as np\ndef same(x): return x\nclass Box: pass\n"
    body += "def odd(): return np.ma.array([1, 2], mask=[True, False])"
    test = "from collections.abc import Callable\nfrom numbers import Real\nimport numpy as np\nclass Mine: pass\n"
    test += "assert isinstance(same(2), int) and isinstance(same(2.5), (str, Real)) and isinstance(Mine(), Mine)\n"
    test += "assert isinstance(same(np.eye(2)), np.ndarray | list) and issubclass(bool, int)\n"
    test += "assert isinstance(same, Callable) and not isinstance(Box(), Callable | int)\n"
    test += "assert not isinstance(same, (int, list, np.ndarray, Real, None.__class__))\n"
    assert states(marks([asked("answer", body), check("t", test)], {"answer": body})) == {"t": "passed"}
    told = marks([asked("answer", body), check("t", "assert isinstance(odd(), np.ndarray)")], {"answer": body}).tests[0]
    assert told.state == "invalid" and "its entries are masked" in told.message


def test_a_decorator_of_the_students_may_wrap_a_recursive_function_of_the_test():
    body = "import functools\ndef memo(f):\n    known = {}\n    @functools.wraps(f)\n"
    body += (
        "    def g(n):\n        if n not in known:\n            known[n] = f(n)\n        return known[n]\n    return g"
    )
    fib = "@memo\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
    fib += "assert fib(60) == 1548008755920 and fib.__name__ == 'fib'"
    assert marks([asked("answer", body), check("t", fib)], {"answer": body}).points == 1


# What a hidden test asked stays hidden


TELLS = {
    "the exit code": ("import os\ndef f(x):\n    os._exit(int(x))", "f(77)"),
    "an error's text": (
        "def f(x):\n    return f'it was {x}'",
        "import numpy as np\nassert np.asarray(f(77), dtype=float) == 1",
    ),
    "an error's trace": (
        "get_ipython().agent.trace = lambda e: '→ 77  pass'\ndef f(x):\n    pass\n    raise ValueError",
        "f(77)",
    ),
}


@pytest.mark.parametrize(("body", "test"), TELLS.values(), ids=TELLS)
def test_no_word_of_a_hidden_test_comes_out_by(body, test):
    result = marks([asked("answer", "def f(x):\n    return 1"), hidden("h", test)], {"answer": body}).tests[0]
    assert result.points == 0 and "77" not in result.message + result.trace


def test_a_cell_does_not_print_what_a_hidden_test_asked():
    """One name that is bound twice has hidden tests run in their places, and cells below them after them."""
    cells = [DOUBLE[1], hidden("h", "assert double(4711) == 9422"), *HALF, hidden("h2", "assert half(2) == 1")]
    mine = {
        "answer": "def helper(x):\n    seen.append(x)\n    return 2 * x\n"
        "seen = []\ndef double(x):\n    return helper(x)",
        "other": "print(seen)\ndef helper(x):\n    return x / 2\ndef half(x):\n    return helper(x)",
    }
    result = marks(cells, mine)
    assert set(states(result).values()) == {"passed"} and "4711" not in "".join(cell.output for cell in result.cells)


def test_a_function_of_a_test_that_has_ended_answers_no_more():
    cells = [
        asked("answer", "def f(g, x):\n    return g(x)"),
        check("shown", "assert f(lambda x: 2 * x, 1) == 2"),
        hidden("h", "assert f(None, 21) == 42"),
    ]
    keeps = "kept = []\ndef f(g, x):\n    kept.append(g)\n    return kept[0](x)"
    assert states(marks(cells, {"answer": keeps})) == {"shown": "passed", "h": "invalid"}


# Code that no alarm interrupts

STUCK = "assert sum(range(double(1))) >= 0"  # C code, which looks for no signal


def test_a_test_that_no_alarm_interrupts_costs_its_own_points_only():
    """The singular values of a large matrix of the student's take a minute, in a library that hears no signal."""
    cells = [*DOUBLE[:2], check("stuck", STUCK), *DOUBLE[2:], *HALF, hidden("again", STUCK)]
    loops = {
        "answer": "def double(x):\n    return 10**13 if x == 1 else 2 * x",
        "other": "def half(x):\n    return x / 2",
    }
    result = marks(cells, loops)
    lost = {"stuck": "timeout", "again": "timeout"}
    assert states(result) == dict.fromkeys(result.by_test, "passed") | lost
    assert "not done after 2 s of processor time" in result.by_test["stuck"].message and not result.waited


def test_a_submission_whose_tests_are_all_stuck_comes_to_an_end():
    cells = [DOUBLE[1], *(check(f"t{n}", STUCK) for n in range(9))]
    result = marks(cells, {"answer": "def double(x):\n    return 10**13"}, limits=RunLimits(cell_s=1, total_s=8))
    assert set(states(result).values()) == {"timeout"}


# Files

WRITES = "def save(x):\n    import numpy as np\n    np.savetxt('out.csv', [x])\n    return 'out.csv'"


def test_a_test_reads_the_files_that_an_answer_has_written():
    """As in nbgrader, where both run in one folder; what a test writes is gone with it."""
    cells = [asked("answer", WRITES), check("t", "import numpy as np\nassert np.loadtxt(save(7.5)) == 7.5")]
    cells += [check("gives", "open('in.txt', 'w').write('3')\nimport os\nassert 'in.txt' in os.listdir()")]
    cells += [check("again", "import os\nassert 'in.txt' not in os.listdir()")]
    right = marks(cells, {"answer": WRITES + "\nsave(1.0)\nimport os\nos.remove('out.csv')"})
    assert states(right) == {"t": "passed", "gives": "passed", "again": "passed"}
    wrong = marks(cells, {"answer": WRITES.replace("[x]", "[0 * x]")})
    assert states(wrong)["t"] == "failed"


# Refusals name the cure

NOWHERE = "../common-data/d.csv"


def test_a_file_that_is_not_there_is_told_with_the_setting_that_shows_it():
    read = "def read(path):\n    return open(path).read()"
    test = f"assert open({NOWHERE!r}).read() == ''"
    cells = [asked("answer", read), check("t", test), hidden("h", test), check("a", f"assert read({NOWHERE!r}) == ''")]
    told = marks(cells, {"answer": read}).by_test
    assert {test.state for test in told.values()} == {"invalid", "failed"}
    assert all("in a folder that readable names in nbreferee.toml" in test.message for test in told.values()), told
    assert NOWHERE in told["t"].message and NOWHERE in told["a"].message and NOWHERE not in told["h"].message
    start = given(f"text = open({NOWHERE!r}).read()")
    told = marks([start, asked("answer", read), check("t", "assert text == ''")], {"answer": read}).tests[0]
    assert told.state == "broken" and "readable" in told.message


def test_an_object_that_a_test_cannot_judge_is_refused_with_the_cures():
    body = "class Box:\n    def __init__(self): self.x = 7\ndef box(): return Box()"
    told = marks([asked("answer", body), check("t", "assert box() == 7")], {"answer": body}).tests[0]
    assert told.state == "invalid" and "object of type Box" in told.message
    assert all(cure in told.message for cure in ("methods return", "listed under asks", "this test sandboxed"))


def test_an_sqlite_connection_is_made_where_the_answer_is():
    count = "def count(db):\n    return db.execute('select count(*) from t').fetchone()[0]"
    make = "db = sqlite3.connect(':memory:')\ndb.execute('create table t (a)')\ndb.execute('insert into t values (7)')"
    start, test = given("import sqlite3"), "assert count(db) == 1"
    told = marks([start, asked("answer", count), check("t", f"{make}\n{test}")], {"answer": count}).tests[0]
    assert told.state == "invalid" and "SQLite connection" in told.message
    assert "given cell" in told.message and "under asks" in told.message and "sandboxed" in told.message
    cells = [given(f"import sqlite3\n{make}"), asked("answer", count, asks=["db"]), check("t", test)]
    assert marks(cells, {"answer": count}).points == 1
    assert marks(cells, {"answer": count.replace("[0]", "[0] + 1")}).points == 0
    rows = "assert db.execute('select a from t').fetchall() == [(7,)]"
    assert marks([*cells[:2], check("t", rows)], {"answer": count}).points == 1
