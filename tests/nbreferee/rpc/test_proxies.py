"""A grader asks a process that it must not trust: what comes back is plain, what changes is seen, nothing hangs."""

import builtins
import contextlib
import faulthandler
import gc
import os
import socket
import struct
import threading
import time
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nbreferee.rpc import agent as student
from nbreferee.rpc import codec
from nbreferee.rpc.framing import Channel
from nbreferee.rpc.line import Until
from nbreferee.rpc.nodes import pickled
from nbreferee.rpc.plugins import CannotSend, Garbled
from nbreferee.rpc.proxies import CallableProxy, Proxy
from nbreferee.rpc.raised import StudentError, StudentLost
from nbreferee.rpc.student import Ran, Student

PLAIN = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), list, tuple, set, frozenset, dict, slice}
PLAIN |= {range, np.ndarray, torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device, type}
PLAIN |= {type(NotImplemented), np.str_, np.bytes_} | {np.dtype(c).type for c in "?bBhHiIlLqQefdFD"}


class Process:
    """A forked student without a sandbox."""

    def __init__(self, **options):
        student.prepare()
        here, there = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            try:
                here.close()
                warnings.resetwarnings()  # here every warning is an error, there none is
                warnings.simplefilter("default")
                faulthandler.disable()  # some die on purpose
                vars(builtins).pop("_", None)  # a docstring's example left it; IPython would keep off the name
                student.serve(Channel(there))
            finally:
                os._exit(0)
        there.close()
        self.student = Student(Channel(here), **options)
        self.student.may_change = True  # a test of ours says when it may not
        self.student.clock = Until(time.monotonic() + 30)

    def end(self):
        self.student.channel.close()
        try:
            os.kill(self.pid, 9)
        except ProcessLookupError:
            pass
        os.waitpid(self.pid, 0)


@pytest.fixture
def process():
    made = Process()
    yield made
    made.end()


@pytest.fixture
def there(process):
    """The student; ``there.run(code)`` runs a cell that must succeed, ``there.run(code, name)`` returns a value too."""
    there = process.student

    def run(source, name=None):
        ran = there.cell(source, "answer")
        assert ran.error is None, (ran.error, ran.trace)
        return None if name is None else there.value(name)

    there.run = run
    there.pid = process.pid
    return there


# ---- cells


def test_a_cell_is_ipython(there):
    ran = there.cell(
        "import asyncio, math\n"
        "%precision 3\n"
        "%time total = sum(range(5))\n"
        "found = !echo one; echo two\n"
        "!echo from a shell\n"
        "await asyncio.sleep(0)\n"
        "display(total)\n"
        "exit()\n"
        "late = math.pi\n",
        "answer",
    )
    assert ran.error is None and ran.ename is None, ran
    assert there.value("total") == 10 and there.value("late") > 3
    assert list(there.value("found")) == ["one", "two"]
    assert "from a shell\n" in ran.output and "10" in ran.output


def test_what_a_cell_raises_is_told_with_its_own_lines_and_without_colours(there):
    there.run("def inner(x):\n    y = 1\n    return y / x\n")
    ran = there.cell("import numpy as np\nnp.apply_along_axis(inner, 0, [0])\ninner(0)", "second")
    assert isinstance(ran, Ran) and ran.ename == "ZeroDivisionError"
    assert ran.error == "ZeroDivisionError: division by zero"
    assert "second, line 3:" in ran.trace and "→   3  inner(0)" in ran.trace
    assert "answer, line 3, in inner:" in ran.trace and "→   3      return y / x" in ran.trace
    assert "\x1b" not in ran.trace + ran.output and "site-packages" not in ran.trace + ran.output
    ran = there.cell("x = 1\ndef g(:\n    pass", "third")
    assert ran.ename == "SyntaxError" and "→   2  def g(:" in ran.trace
    assert there.cell("%nosuchmagic", "fourth").ename is not None or "nosuchmagic" in there.output


@pytest.mark.parametrize("how", ["raise SystemExit(3)", "import sys; sys.exit()", "raise KeyboardInterrupt", "quit()"])
def test_the_process_outlives_what_ends_a_program(there, how):
    there.cell(how, "answer")
    there.run(f"def f():\n    {how}\n    return 1")
    if how == "quit()":
        assert there.value("f")() == 1
    else:
        with pytest.raises(StudentError) as caught:
            there.value("f")()
        assert caught.value.ename in ("SystemExit", "KeyboardInterrupt")
    assert there.run("x = 5", "x") == 5


def test_the_student_namespace_is_main(there):
    there.run(
        "import dataclasses, inspect, pickle\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int = 2\n"
        "def f(x):\n    return x + 1\n"
        "again = pickle.loads(pickle.dumps(Point(7))).x\n"
        "source = inspect.getsource(f)\n"
        "where = (__name__, Point.__module__)\n"
    )
    assert there.value("again") == 7 and there.value("source") == "def f(x):\n    return x + 1\n"
    assert there.value("where") == ("__main__", "__main__")


def test_names_are_those_that_the_student_made(there):
    there.run("a, b = 1, None\ndef c(): pass")
    assert there.names({"a", "b", "c", "d", "exit", "get_ipython", "open", "len"}) == {"a", "b", "c"}
    with pytest.raises(NameError) as caught:
        there.value("d")
    assert isinstance(caught.value, StudentError) and "'d'" in str(caught.value)


def test_a_sandboxed_test_runs_in_the_students_namespace(there):
    there.run("x = 3")
    assert there.test("assert x == 3", "one").error is None
    ran = there.test("assert x == 4, 'no'", "two")
    assert ran.error == "AssertionError: no" and ran.ename == "AssertionError" and "two, line 1" in ran.trace


def test_what_exceeds_the_limit_is_not_even_kept():
    printed = student.Printed()
    printed.limit = 10
    printed.take()
    for _ in range(5):
        assert printed.write("abcd") == 4
    assert printed.take() == "abcdabcdab" and printed.take() == ""


@pytest.mark.slow
def test_output_is_caught_at_both_levels_and_capped():
    made = Process(output_limit=1000)
    try:
        there = made.student
        ran = there.cell("import os, sys\nprint('one'); print('two', file=sys.stderr); os.write(1, b'three\\n')", "a")
        assert ran.output == "one\ntwo\nthree\n" == there.output
        there.output = ""
        ran = there.cell("for i in range(10**5): print('y' * 100)\nos.system('yes | head -c 5000000')", "b")
        assert len(ran.output) == 1000 and set(ran.output) == {"y", "\n"}
        assert there.cell("print('z')", "c").output == "z\n"
        there.cell("os.close(1); os.close(2); sys.stdout.close(); sys.stdout = None", "d")
        assert there.cell("x = 1", "e").error is None and there.value("x") == 1
    finally:
        made.end()


def test_warnings_are_no_errors(there):
    f = there.run("import warnings\nimport numpy as np\ndef f(x):\n    warnings.warn('hm')\n    return np.log(x)", "f")
    assert f(np.zeros(2)).tolist() == [-np.inf, -np.inf]


# ---- values


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(10**40),
        0.1,
        2 + 3j,
        "grün\ud800",
        b"\x00",
        ...,
        [1, [2, (3, {"a": {4, 5}})]],
        frozenset({(1, 2)}),
        slice(1, None, 2),
        range(3, 9, 2),
        np.float32(0.5),
        np.arange(6.0).reshape(2, 3).T,
        np.array(["a", "bc"]),
        np.zeros((2, 0)),
        torch.arange(4).reshape(2, 2),
        torch.ones(2, dtype=torch.bfloat16),
        torch.float16,
        torch.Size([2, 3]),
        np.dtype("float32"),
        np.float64,
        int,
        {"x": (np.ones(2), [torch.zeros(1)])},
    ],
    ids=repr,
)
def test_values_go_there_and_back(there, value):
    same = there.run("def same(x): return (x, type(x).__name__)", "same")
    found, name = same(value)
    assert type(found) is type(value) and name == type(value).__name__
    assert found is value or not isinstance(value, list | dict | np.ndarray | torch.Tensor), (
        "the very object comes back"
    )
    there.run("import copy\ndef other(x): return copy.deepcopy(x)")
    found = there.value("other")(value)
    assert type(found) is type(value) and repr(found) == repr(value)


def test_kinds_of_dicts_and_tuples_come_back_plain(there):
    there.run(
        "from collections import *\nimport torch\nPair = namedtuple('Pair', 'a b')\n"
        "made = [OrderedDict(a=1), Counter('aab'), defaultdict(int, x=2), Pair(1, 2), torch.ones(2, 2).max(0)]\n"
    )
    made = there.value("made")
    assert made[:4] == [{"a": 1}, {"a": 2, "b": 1}, {"x": 2}, (1, 2)]
    assert [type(x) for x in made] == [dict, dict, dict, tuple, tuple] and torch.equal(made[4][0], torch.ones(2))


def test_one_object_in_two_places_stays_one(there):
    first, second, nested = there.run("import numpy as np\nx = np.ones(2)\ny = (x, x, {'x': x})", "y")
    assert first is second is nested["x"]


def test_a_value_that_cannot_be_sent_is_an_error_of_that_question_alone(there):
    there.run("loop = []\nloop.append(loop)\ndeep = []\nfor _ in range(500): deep = [deep]\nbig = list(range(300_000))")
    for name in ("loop", "deep", "big"):
        with pytest.raises(StudentError):
            there.value(name)
    assert there.run("x = 1", "x") == 1


# ---- proxies

EVIL = """
class Evil:
    log = []
    def __getattribute__(self, name):
        if name.startswith('__') and name not in ('__class__',): Evil.log.append(name)
        return object.__getattribute__(self, name)
    def __eq__(self, other): Evil.log.append('eq'); return True
    def __ne__(self, other): Evil.log.append('ne'); return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __bool__(self): Evil.log.append('bool'); return True
    def __hash__(self): Evil.log.append('hash'); return 1
    def __float__(self): Evil.log.append('float'); return 1.0
    __int__ = __index__ = __float__
    def __array__(self, *a, **k): Evil.log.append('array'); import numpy; return numpy.ones(2)
    __array_interface__ = {'shape': (1,), 'typestr': '<f8', 'data': (0, False), 'version': 3}
    def __repr__(self): Evil.log.append('repr'); return '1'
    def __reduce__(self): Evil.log.append('reduce'); return (print, ('pwned',))
    def __sub__(self, other): return 0.0
    __rsub__ = __mul__ = __rmul__ = __add__ = __radd__ = __abs__ = __sub__
    def __contains__(self, x): return True
evil = Evil()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "use",
    [
        lambda e: e == 1,
        lambda e: 1 == e,
        lambda e: e != 1,
        lambda e: e < 1,
        lambda e: 1 >= e,
        lambda e: bool(e),
        lambda e: not e,
        lambda e: hash(e),
        lambda e: {e},
        lambda e: float(e),
        lambda e: int(e),
        lambda e: range(e),
        lambda e: [1][e],
        lambda e: complex(e),
        lambda e: round(e),
        lambda e: 1 in e,
        lambda e: np.asarray(e),
        lambda e: np.array([e, e]) == 1,
        lambda e: np.allclose(e, 1),
        lambda e: np.testing.assert_array_equal(e, np.ones(2)),
        lambda e: np.ones(2) == e,
        lambda e: np.ones(2) - e,
        lambda e: np.add(e, 1),
        lambda e: e - 1,
        lambda e: 1 - e,
        lambda e: abs(e),
        lambda e: torch.tensor(e),
        lambda e: torch.ones(2) == e,
        lambda e: torch.allclose(e, torch.ones(2)),
        lambda e: __import__("copy").deepcopy(e),
        lambda e: __import__("pickle").dumps(e),
        lambda e: [1.0] == [e],
        lambda e: (1,) == (e,),
        lambda e: {"a": 1} == {"a": e},
        lambda e: sorted([e, e]),
        lambda e: max(e, 1),
        lambda e: sum([e]),
    ],
)
def test_an_object_is_equal_to_nothing_and_no_method_of_its_class_is_called(there, use):
    evil = there.run(EVIL, "evil")
    assert isinstance(evil, Proxy) and type(evil).__hash__ is not None
    with pytest.raises(TypeError):
        use(evil)
    assert there.value("Evil").log == []


def test_a_refusal_names_the_type_and_what_is_judged(there):
    evil = there.run(EVIL, "evil")
    for use in (lambda: evil == 1, lambda: bool(evil), lambda: np.asarray(evil), lambda: evil.__array_interface__):
        with pytest.raises(
            TypeError, match=r"the answer returned an object of type Evil; the tests judge plain values"
        ):
            use()
    assert repr(evil) == "<object of type Evil in the student's process>" and not isinstance(evil, np.ndarray | list)
    objects = there.run("import numpy as np\nx = np.empty(2, dtype=object)\nx[0] = evil", "x")
    with pytest.raises(TypeError, match=r"object of type ndarray\.object"):
        np.asarray(objects)


def test_objects_are_called_indexed_iterated_entered_and_asked(there):
    there.run(
        "class Thing:\n"
        "    size = 3\n"
        "    def __init__(self): self.data, self.log = {'a': 1}, []\n"
        "    def add(self, x, *, times=1): return self.size + times * x\n"
        "    def __getitem__(self, key): return self.data[key]\n"
        "    def __setitem__(self, key, value): self.data[key] = value\n"
        "    def __len__(self): return len(self.data)\n"
        "    def __iter__(self): return iter(self.data.items())\n"
        "    def __enter__(self): self.log.append('in'); return self\n"
        "    def __exit__(self, *a): self.log.append('out')\n"
        "thing = Thing()\n"
        "def count():\n    yield 1\n    yield [2]\n"
    )
    thing = there.value("thing")
    assert thing.size == 3 and thing.add(2, times=4) == 11
    thing.size = 5
    thing["b"] = np.ones(2)
    assert thing.add(1) == 6 and thing["b"].tolist() == [1, 1] and len(thing) == 2
    assert [key for key, _ in thing] == ["a", "b"]
    with thing as inside:
        assert inside is thing
    assert thing.log == ["in", "out"] and list(there.value("count")()) == [1, [2]]
    assert there.value("Thing")().size == 3 and there.value("count").__name__ == "count"
    with pytest.raises(AttributeError, match="nothing"):
        _ = thing.nothing
    with pytest.raises(KeyError):
        thing["c"]
    del thing.log
    assert not hasattr(thing, "log")


@pytest.mark.slow
def test_objects_are_dropped_when_the_test_forgets_them(there):
    make = there.run(
        "made = []\nimport weakref\ndef make():\n    f = lambda: 0\n    made.append(weakref.ref(f))\n    return f",
        "make",
    )
    for _ in range(20):
        make()
    gc.collect()
    there.run("import gc; gc.collect()\nalive = sum(r() is not None for r in made)")
    assert there.value("alive") <= 2
    kept = make()
    there.run("gc.collect(); alive = made[-1]() is not None")
    assert there.value("alive") is True and kept() == 0


def test_a_message_that_is_refused_keeps_no_object(there):
    there.run("loop = []\nloop.append(loop)\ndef f(): return [lambda: 0 for _ in range(900)], loop")
    there.run("def g(): return lambda: 5")
    for _ in range(12):
        with pytest.raises(StudentError, match="contains itself"):
            there.value("f")()
    assert there.value("g")()() == 5
    before = len(there.registry)
    with pytest.raises(TypeError, match="contains itself"):
        there.value("g")([lambda: 0, there.run("def h(): pass", "h")], mine := [], mine.append(mine))
    assert len(there.registry) == before
    there.run("def call(k): return k()")
    assert there.value("call")(lambda: 6) == 6


def test_a_message_that_is_too_long_changes_nothing(there):
    f = there.run("def f(*a): return a[0]", "f")
    there.channel.limit = 20_000
    x, before = [1], len(there.registry)
    with pytest.raises(TypeError, match="the limit is 20000"):
        f(x, lambda: 0, np.zeros(5000))
    assert len(there.registry) == before and f(x) is x
    there.run("def g(x): x.append(2)")
    there.value("g")(x)
    assert x == [1, 2]


def test_a_foreign_proxy_is_refused(there):
    other = Process()
    try:
        other.student.cell("def f(): return 1", "a")
        f = other.student.value("f")
        with pytest.raises(TypeError, match="process that has ended"):
            there.run("def g(x): return x", "g")(f)
    finally:
        other.end()


# ---- changes


def test_what_is_changed_in_place_is_changed_here_too(there):
    f = there.run(
        "def f(x, l, d, s, t, deep):\n"
        "    x *= 2\n    l.append([1]); d['new'] = x; s.add(9); t.add_(1); deep[0]['y'][1, 1] = -1\n",
        "f",
    )
    base = np.arange(12.0).reshape(3, 4)
    x, l, d, s, t, y = base[:, 1:3], [0], {"a": 1}, {8}, torch.zeros(2), np.zeros((2, 2), np.float32)
    f(x, l, d, s, t, deep=[{"y": y}])
    assert base.tolist() == [[0, 2, 4, 3], [4, 10, 12, 7], [8, 18, 20, 11]], "x was a view of base"
    assert l == [0, [1]] and d["new"] is x and list(d) == ["a", "new"] and s == {8, 9}
    assert t.tolist() == [1, 1] and y.tolist() == [[0, 0], [0, -1]]


def test_what_is_changed_here_is_changed_there(there):
    there.run(
        "kept = []\ndef keep(x):\n    kept.append(x)\n    return x\ndef total(): return [float(x.sum()) for x in kept]"
    )
    x, t = np.ones(3), torch.ones(3)
    assert there.value("keep")(x) is x and there.value("keep")(t) is t
    x[0], t[0] = 5, 7
    assert there.value("total")() == [7.0, 9.0]


def test_a_closure_that_changes_an_earlier_argument_is_seen(there):
    f = there.run("def f(x):\n    def later():\n        x[:] = 0\n    return later", "f")
    x = np.ones(3)
    later = f(x)
    assert x.sum() == 3
    later()
    assert x.sum() == 0


def test_a_changed_shape_is_refused(there):
    f = there.run("def f(x):\n    x.shape = (6,)\n    x[0] = 9\n    return 1", "f")
    x = np.zeros((2, 3))
    with pytest.raises(StudentError, match="changed the type or shape of its argument"):
        f(x)
    assert x.shape == (2, 3) and not x.any()


def test_an_array_is_read_only_there_if_it_is_here(there):
    f = there.run("def f(x): x[0] = 1", "f")
    x = np.zeros(2)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="destination is read-only"):
        f(x)
    g = there.run("def g(x):\n    x.flags.writeable = True\n    x[0] = 1", "g")
    with pytest.raises(StudentError, match="read-only"):
        g(x)
    assert not x.any()


def test_changes_can_be_forbidden(there):
    f = there.run("def f(x):\n    x[0] = 1\n    return x", "f")
    there.may_change = False
    with pytest.raises(StudentError, match="you changed your argument"):
        f(np.zeros(2))
    f(np.ones(2))
    there.may_change = True
    f(np.zeros(2))


def test_a_leaf_that_wants_a_gradient_is_seen(there):
    f = there.run("def f(x): x.requires_grad_()", "f")
    x = torch.ones(2)
    f(x)
    assert x.requires_grad


# ---- callbacks


def test_functions_of_the_test_are_called_from_there_and_back(there):
    f = there.run("def f(g, n): return n if n > 9 else g(f, n + 1)", "f")
    seen = []

    def g(again, n):
        seen.append(n)
        return again(g, n)

    assert f(g, 1) == 10 and seen == list(range(2, 11))
    with pytest.raises(RecursionError):
        f(g, -1000)
    assert f(g, 8) == 10, "the process is as good as before"


def test_a_function_of_the_test_shows_nothing_but_what_it_returns(there):
    secret = "secret"

    def g(x):
        """secret"""
        return x

    f = there.run(
        "def f(g):\n"
        "    seen = [repr(g), g.__name__, str(g.__doc__)]\n"
        "    for name in ('__code__', '__globals__', '__closure__', 'secret', '__wrapped__', '__self__'):\n"
        "        seen.append(hasattr(g, name))\n"
        "    return seen",
        "f",
    )
    g.secret = secret
    seen = f(g)
    assert not any(seen[3:]) and "secret" not in str(seen[:3])


def test_what_a_function_was_given_and_returned_is_the_same_object_on_both_sides(there):
    there.run("import numpy as np\ndef f(g):\n    z = np.ones(2)\n    y = g(z)\n    z[0] = 8\n    y[1] = 9\n    g(z)")
    f, seen = there.value("f"), []

    def g(z):
        y = np.zeros(2)
        seen.append((z, y))
        return y

    f(g)
    assert seen[0][0] is seen[1][0] and seen[0][0].tolist() == [8, 1] and seen[0][1].tolist() == [0, 9]


def test_an_error_of_the_test_comes_back_as_it_was(there):
    f = there.run("def f(g):\n    try:\n        g()\n    except LookupError: return 'caught'", "f")

    def wrong():
        raise KeyError("k")

    def worse():
        raise ZeroDivisionError("z")

    def verdict():
        raise AssertionError("you may not call this")

    assert f(wrong) == "caught"
    with pytest.raises(ZeroDivisionError) as caught:
        f(worse)
    assert not isinstance(caught.value, StudentError)
    swallow = there.run("def swallow(g):\n    try: g()\n    except BaseException: return 1", "swallow")
    with pytest.raises(AssertionError, match="may not call"):
        swallow(verdict)
    assert swallow(worse) == 1


def test_an_iterator_of_the_test_is_iterated_from_there(there):
    f = there.run("def f(batches): return [x for x in batches]", "f")
    assert f(np.full(2, i) for i in range(3))[2].tolist() == [2, 2]


def test_a_function_of_the_test_is_not_called_after_the_question_or_from_a_thread(there):
    there.run("kept = []\ndef keep(g): kept.append(g)")
    calls = []
    there.value("keep")(lambda: calls.append(1))
    assert there.cell("kept[0]()", "later").error is None, "a cell is a question too"
    f = there.run(
        "import threading, time\n"
        "def f(g):\n"
        "    out = []\n"
        "    def run():\n"
        "        try: g()\n"
        "        except RuntimeError as error: out.append(str(error))\n"
        "    t = threading.Thread(target=run); t.start(); t.join()\n"
        "    return out",
        "f",
    )
    assert "only while the test waits" in f(lambda: calls.append(2))[0] and calls == [1]


def test_library_objects_go_by_pickle_and_the_tests_own_do_not(there):
    f = there.run("def f(x, *a): return x(*a) if callable(x) else [type(x).__name__, str(x)[:20]]", "f")
    from fractions import Fraction
    from functools import partial

    assert f(np.exp, 0.0) == 1 and f(np)[0] == "module"
    assert f(Fraction(1, 3)) == ["Fraction", "1/3"] and f(torch.nn.functional.relu, torch.tensor([-1.0])).item() == 0
    assert f(np.random.default_rng(3))[0] == "Generator" and f(torch.nn.Linear(2, 3), torch.ones(2)).shape == (3,)
    assert f(partial(max, 3), 2) == 3
    namespace = {"__name__": "__main__"}
    exec("class Own:\n    key = 1\ndef own(): return 5\nfrom functools import partial\nbound = partial(own)", namespace)
    assert pickled(namespace["own"]) is pickled(namespace["bound"]) is pickled(namespace["Own"]()) is None
    assert f(namespace["own"]) == 5 == f(namespace["bound"]), "as callbacks"
    with pytest.raises(TypeError, match="the test defines it"):
        f(namespace["Own"]())
    with pytest.raises(TypeError, match="the test defines it"):
        f([{"a": namespace["Own"]()}])
    assert f(np.exp, 0.0) == 1, "nothing was sent, so nothing is out of step"


def test_what_is_in_main_is_the_tests_own(monkeypatch):
    import __main__

    namespace = {"__name__": "__main__"}
    exec("def own(): return 5", namespace)
    monkeypatch.setattr(__main__, "own", namespace["own"], raising=False)
    monkeypatch.setattr(__main__, "__spec__", np.__spec__)  # as under python -m
    assert pickled(namespace["own"]) is None and pickled(max) is not None


def test_a_question_that_is_refused_here_loses_no_change(there):
    there.run("kept = []\ndef keep(x, *a): kept.append(x)\ndef total(): return float(kept[0].sum())")
    keep, total, x = there.value("keep"), there.value("total"), np.ones(2)
    keep(x)
    x[0] = 8
    with pytest.raises(TypeError, match="the test defines it"):
        keep(np.zeros(1), type("Own", (), {"__module__": "__main__"})())
    assert total() == 9


# ---- PyTorch

NET = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    def forward(self, x):
        return torch.tanh(self.layer(x))
net = Net()
def f(x, y): return x * y, (x + y).sum()
"""


def test_gradients_of_arguments(there):
    f = there.run(NET, "f")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.tensor([3.0, 4.0], requires_grad=True)
    a, b = f(x, y)
    assert a.requires_grad and not a.is_leaf and b.item() == 10
    (a.sum() * 2 + b).backward()
    assert x.grad.tolist() == [7, 9] and y.grad.tolist() == [3, 5]
    a, b = f(2 * x, y)
    first = torch.autograd.grad(a.sum(), [x, y], retain_graph=True)
    again = torch.autograd.grad(a.sum(), [x, y], retain_graph=True)
    assert first[0].tolist() == again[0].tolist() == [6, 8] and first[1].tolist() == [2, 4]
    assert f(x.detach(), y.detach())[0].requires_grad is False
    c = f(*f(x, y))[0]  # a result goes back as an argument: nothing is counted twice
    wanted = x * y * (x + y).sum()
    for got, right in zip(torch.autograd.grad(c.sum(), [x, y]), torch.autograd.grad(wanted.sum(), [x, y]), strict=True):
        assert torch.allclose(got, right)


def test_gradients_of_the_students_own_parameters(there):
    net = there.run(NET, "net")
    x = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.grad(net(x).sum(), x)
    for name in ("weight", "bias"):
        assert getattr(net.layer, name).grad is None, "autograd.grad adds to no leaf"
    loss = net(x).square().sum()
    loss.backward()
    weight, bias = net.layer.weight, net.layer.bias
    assert type(weight) is torch.nn.Parameter and net.layer.weight is weight
    mine = x.detach().clone().requires_grad_()
    w, b = (p.detach().clone().requires_grad_() for p in (weight, bias))
    torch.tanh(mine @ w.T + b).square().sum().backward()
    for got, right in ((weight.grad, w.grad), (bias.grad, b.grad), (x.grad, mine.grad)):
        assert torch.allclose(got, right)
    net(x).square().sum().backward()
    assert torch.allclose(net.layer.weight.grad, 2 * w.grad), "accumulated"
    net.zero_grad()
    assert net.layer.weight.grad is None
    found = torch.autograd.grad(net(x).square().sum(), weight)
    assert torch.allclose(found[0], w.grad), "with respect to a parameter that was asked for"
    with torch.no_grad():
        weight.zero_()
    assert not there.run("w = net.layer.weight.detach()", "w").any(), "changed here, changed there"


def test_gradients_through_functions_of_the_test(there):
    f = there.run(
        "import torch\ndef f(g, x):\n    return torch.autograd.functional.jacobian(g, x.clone())",
        "f",
    )
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert torch.equal(f(lambda x: w @ x, torch.ones(2)), w)
    assert w.grad is None
    there.run("def train(g):\n    x = torch.ones(2, requires_grad=True)\n    g(x).sum().backward()\n    return x.grad")
    assert there.value("train")(lambda x: w @ x).tolist() == [4, 6]
    assert w.grad.tolist() == [[1, 1], [1, 1]], "backward() there adds to the leaves here"


def test_a_function_with_a_gradient_of_its_own(there):
    square = there.run(
        "import torch\n"
        "class Square(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * x\n"
        "    @staticmethod\n    def backward(ctx, d):\n        return 2 * ctx.saved_tensors[0] * d\n",
        "Square",
    )
    x = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    y = square.apply(x)
    assert square.backward(y.grad_fn, torch.ones(2, dtype=torch.float64)).tolist() == [2, 6]
    assert torch.autograd.gradcheck(square.apply, [x])
    with pytest.raises(RuntimeError, match=r"second derivatives .* sandboxed"):
        (g,) = torch.autograd.grad(square.apply(x).sum(), x, create_graph=True)
        g.sum().backward()


def test_an_error_in_a_backward_pass_is_the_students(there):
    there.run(
        "import torch\nclass Bad(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x): return x * 2\n"
        "    @staticmethod\n    def backward(ctx, d):\n        raise NotImplementedError('later')\n"
    )
    y = there.value("Bad").apply(torch.ones(2, requires_grad=True))
    with pytest.raises(NotImplementedError, match="later") as caught:
        y.sum().backward()
    assert isinstance(caught.value, StudentError) and "raise NotImplementedError" in caught.value.trace


def test_modes_of_the_test_hold_there(there):
    there.run(
        "import torch, numpy as np\n"
        "def modes():\n"
        "    flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled()\n"
        "    return *flags, torch.ones(1).dtype, np.geterr()['over']"
    )
    modes = there.value("modes")
    usual = (True, False, torch.float32, "warn")
    assert modes() == usual
    with torch.no_grad():
        assert modes() == (False, False, torch.float32, "warn")
    with torch.inference_mode():
        assert modes() == (False, True, torch.float32, "warn")
    torch.set_default_dtype(torch.float64)
    try:
        assert modes()[2] is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with np.errstate(over="raise"):
        assert modes()[3] == "raise"
    assert modes() == usual
    there.run("def under(g):\n    with torch.no_grad(): return g()")
    assert there.value("under")(lambda: torch.is_grad_enabled()) is False


# ---- errors, time, death


@pytest.mark.parametrize(
    "code, kind, words",
    [
        ("raise ValueError('so')", ValueError, "so"),
        ("raise NotImplementedError()", NotImplementedError, ""),
        ("{}['k']", KeyError, "'k'"),
        ("open('/nowhere/x')", FileNotFoundError, "nowhere"),
        ("b'\\xff'.decode()", ValueError, "invalid start byte"),
        ("raise ExceptionGroup('all', [ValueError(1)])", Exception, "all"),
        ("f()", RecursionError, "recursion"),
        ("raise MemoryError('no more')", MemoryError, "no more"),
        ("bytearray(1 << 60)", MemoryError, ""),
        ("import numpy as np; np.linalg.inv(np.zeros((2, 2)))", np.linalg.LinAlgError, "Singular"),
        ("class Own(TypeError): pass\n    raise Own('x' * 10**6)", TypeError, "xxx"),
        ("raise type('Bad', (Exception,), {'__str__': lambda s: 1 / 0})()", Exception, ""),
        ("assert False, 'hm'", AssertionError, "hm"),
    ],
)
def test_what_the_students_code_raises(there, code, kind, words):
    f = there.run(f"def f():\n    {code}", "f")
    with pytest.raises(StudentError) as caught:
        f()
    error = caught.value
    assert isinstance(error, kind) and words in str(error) and len(str(error)) <= 2000
    assert ", in f:\n" in error.trace and "→" in error.trace and error.ename.isidentifier()
    assert there.run("x = 1", "x") == 1


def test_an_endless_loop_ends_with_the_deadline(there):
    f = there.run("def f():\n    while True: pass", "f")
    there.clock = Until(time.monotonic() + 0.3)
    start = time.monotonic()
    with pytest.raises(StudentLost) as caught:
        f()
    assert caught.value.state == "timeout" and time.monotonic() - start < 2
    there.clock = Until(time.monotonic() + 30)
    with pytest.raises(StudentLost):
        there.value("f")


def test_a_flood_of_questions_ends_with_the_deadline(there):
    f = there.run("def f(g):\n    while True: g([0] * 1000)", "f")
    there.clock = Until(time.monotonic() + 0.5)
    with pytest.raises(StudentLost) as caught:
        f(lambda x: None)
    assert caught.value.state == "timeout"


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.closerange(3, 300)", "os.abort()"])
def test_a_dead_process_is_lost(there, how):
    f = there.run(f"import os\ndef f(): {how}", "f")
    with pytest.raises(StudentLost) as caught:
        f()
    assert caught.value.state == "crashed" and caught.value.reason
    with pytest.raises(StudentLost):
        there.cell("x = 1", "again")


def test_a_test_that_swallows_everything_does_not_revive_a_lost_student(there):
    f = there.run("import os\ndef f(g): g()\ndef die(): os._exit(1)", "f")

    def g():
        try:
            there.value("die")()
        except BaseException:
            pass

    with pytest.raises(StudentLost):
        f(g)


def test_the_agent_is_not_confused_by_accidents(there):
    there.run(
        "import builtins, os, sys, json, threading, numpy as np, time, signal\n"
        "threading.Thread(target=lambda: time.sleep(60), daemon=True).start()\n"
        "np.sum = None; json.dumps = None; json = 3; print = None; type = len = 7; id = list = dict = None\n"
        "for name in ('len', 'print', 'id', 'zip', 'map', 'sorted', 'min'): setattr(builtins, name, None)\n"
        "os.chdir('/'); sys.setrecursionlimit(250); sys.argv = None; sys.path.clear(); os.environ.clear()\n"
        "np.seterr(all='raise')\n"
        "def agent(): return 4\n"
    )
    assert there.value("agent")() == 4 and there.value("np") is not None
    f = there.run("def f(g, x): return [builtins.len, g(x)]", "f")
    assert f(lambda x: x + 1, np.ones(1))[1].tolist() == [2], "and what it has rebound stays rebound for it"
    assert f(lambda x: x + 1, 1)[0] is None


def test_a_forked_child_does_not_speak(there):
    there.run("import os\ndef f():\n    return os.fork()")
    assert there.value("f")() > 0
    assert there.run("x = 2", "x") == 2
    ran = there.cell(
        "import multiprocessing\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n    y = pool.map(abs, [-1, -2])",
        "p",
    )
    assert ran.error is None and there.value("y") == [1, 2]


# ---- what was called


def test_calls_are_told_in_few_words(there):
    there.run("def f(x, k=1):\n    if k < 0: raise ValueError('k is negative')\n    return x * k, lambda y: y")
    f = there.value("f")
    there.calls.clear()
    _, inner = f(np.ones((2, 3, 5)), k=2)
    inner([1.5, None, "a"])
    with pytest.raises(ValueError):
        f(torch.ones(2), -1)
    f("x" * 10_000)
    what = [call.what for call in there.calls]
    came = [call.came for call in there.calls]
    assert what[0] == "f(array (2, 3, 5) float64, k=2)" and what[1] == "f(…)[1]([1.5, None, 'a'])"
    assert came[0].startswith("(array (2, 3, 5) float64") and came[1] == "[1.5, None, 'a']"
    assert what[2] == "f(tensor (2,) float32: [1, 1], -1)" and came[2] == "ValueError: k is negative"
    assert all(len(text) <= 200 for text in what + came)
    for _ in range(50):
        f(1)
    assert len(there.calls) == 20


# ---- nonsense


@contextlib.contextmanager
def fake(answers):
    """A student's process that sends these bytes, whatever it is asked."""
    here, there = socket.socketpair()
    made = Student(Channel(here))
    made.clock = Until(time.monotonic() + 2)

    def run():
        try:
            there.sendall(b"".join(answers))
            there.shutdown(socket.SHUT_WR)
            while there.recv(65536):
                pass
        except OSError:
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        here.close()
        thread.join(5)
        there.close()
    assert not thread.is_alive()


def frame(message):
    data = message if isinstance(message, bytes) else codec.encode(message)
    return struct.pack(">4sI", b"NBR1", len(data)) + data


def only_plain(value, depth=0):
    if isinstance(value, Proxy):
        return True
    if type(value) in (list, tuple, set, frozenset):
        return all(map(only_plain, value))
    if type(value) is dict:
        return all(only_plain(k) and only_plain(v) for k, v in value.items())
    if type(value) is slice:
        return all(map(only_plain, (value.start, value.stop, value.step)))
    return type(value) in PLAIN or isinstance(value, np.dtype)


numbers = st.one_of(st.integers(-3, 12), st.integers(-(2**70), 2**70))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["float32", "<f8", "int", "cpu", "|S5"]),
)
letters = st.sampled_from(["t", "z", ":", "o", "h", "r", "n", "g", "p", "m", "x", "", "l"])
arrays = st.sampled_from([np.ones(2), np.zeros((0, 3)), torch.ones(2), torch.zeros((), dtype=torch.int64)])
nodes = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.builds(lambda letter, rest: (letter, *rest), letters, st.lists(inner, max_size=4)),
        st.tuples(st.just("h"), st.sampled_from(["Evil", "f", "bad name", ""]), numbers, numbers),
        st.tuples(
            st.just("n"), st.sampled_from(["dtype", "type", "torch", "size", "range", "device", "const", "x"]), inner
        ),
        st.tuples(st.sampled_from("org"), numbers),
        st.tuples(st.just("t"), inner, inner, inner),
        st.lists(inner, max_size=3),
        st.just(("p", b"cos\nsystem\n(S'false'\ntR.")),
    ),
    max_leaves=8,
)
contents = st.one_of(
    nodes,
    st.lists(nodes, max_size=4),
    st.tuples(arrays, st.booleans()),
    st.tuples(arrays, st.sampled_from(["leaf", "graph", "data"]), st.booleans()),
    st.tuples(arrays, st.just("leaf"), *[st.booleans()] * 3, st.one_of(st.none(), arrays)),
    st.tuples(arrays, st.just("graph"), st.lists(numbers, max_size=3), st.booleans()),
)
entries = st.one_of(nodes, st.tuples(numbers, st.sampled_from("ldsaxq"), contents))
messages = st.one_of(
    nodes,
    st.tuples(
        st.sampled_from(["?", "=", "!", "x"]),
        st.sampled_from(["", "call", "next", "vjp", "accumulate", "attribute"]),
        st.one_of(st.none(), nodes),
        st.one_of(
            nodes,
            st.tuples(st.just("t"), st.sampled_from(["ValueError", "Evil"]), nodes, nodes, nodes, numbers),
            st.tuples(st.just("t"), st.tuples(st.just("r"), numbers), st.just(("t", 1)), nodes),
        ),
        st.lists(entries, max_size=3),
        st.lists(entries, max_size=3),
        st.lists(st.one_of(nodes, st.tuples(numbers, st.booleans())), max_size=2),
        st.text(max_size=3),
    ),
)
GOOD = frame(("=", "", None, None, [], [], [], ""))


def ask_all(made):
    """Every kind of question; what it gives is plain, and the errors are those that are promised."""
    proxy = Proxy(made, "thing", 3, "thing")
    array, tensor = np.ones(2), torch.ones(2, requires_grad=True)
    questions = [
        lambda: made.value("x"),
        lambda: proxy(array, [array, tensor], lambda *a: a, x=tensor),
        lambda: made.names({"a", "b"}),
        lambda: made.cell("1", "a"),
        lambda: proxy.attr,
        lambda: len(proxy),
        lambda: next(proxy),
        lambda: proxy(tensor),
    ]
    got = 0
    for question in questions:
        try:
            found = question()
        except (StudentError, TypeError, StopIteration):
            continue
        except StudentLost:
            return got
        got += 1
        assert isinstance(found, Ran) or only_plain(found), type(found)
        if type(found) is torch.Tensor and found.requires_grad:
            try:
                found.sum().backward()
            except (StudentError, StudentLost, TypeError, RuntimeError):
                pass
    assert type(array) is np.ndarray and array.shape == (2,) and tensor.shape == (2,)
    return got


def judge(answers):
    start = time.monotonic()
    with fake(answers) as made:
        got = ask_all(made)
    assert time.monotonic() - start < 6
    return got


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(messages, max_size=8))
def test_whatever_is_answered_nothing_but_plain_values_comes_out(answers):
    frames = []
    for message in answers:
        try:
            frames.append(frame(message))
        except codec.CodecError:
            frames.append(frame(b"R1N"))
    assert judge([GOOD, *frames]) <= len(frames)  # no answer without a message


@settings(max_examples=60)
@given(st.lists(st.one_of(st.binary(max_size=40), st.binary(max_size=40).map(frame)), max_size=4))
def test_whatever_bytes_arrive_the_grader_stands(answers):
    assert judge([GOOD, *answers]) <= len(answers)


def test_the_fake_student_is_heard_at_all():
    """Guards the two tests above: well-formed answers do come through."""
    tensor = ("=", "", None, ("o", 9), [(9, "x", (torch.ones(2), "graph", [], True))], [], [], "")
    values = [
        ("=", "", None, ("t", 1, ("h", "Evil", 5, 1)), [], [], [], "said"),
        ("=", "", None, ("n", "torch", "float32"), [], [], [], ""),
    ]
    with fake([GOOD, *map(frame, [*values, tensor])]) as made:
        one, evil = made.value("x")
        assert one == 1 and isinstance(evil, Proxy) and made.output == "said"
        assert made.value("y") is torch.float32
        assert made.value("z").requires_grad


@pytest.mark.parametrize(
    "message",
    [
        ("?", "attribute", None, ("t", ("r", 1), "__globals__"), [], [], [], ""),
        ("?", "call", None, ("t", ("r", 77), ("t",), ("t",)), [], [], [], ""),
        ("?", "call", None, ("t", ("n", "type", "list"), ("t",), ("t",)), [], [], [], ""),
        ("=", "", None, ("p", b"cos\nsystem\n(S'true'\ntR."), [], [], [], ""),
        ("=", "", None, ("m", "os"), [], [], [], ""),
        ("=", "", None, ("o", 5), [], [], [], ""),
        ("=", "", None, ("o", 5), [(5, "l", [("o", 5)])], [], [], ""),
        ("=", "", None, ("o", 5), [(5, "s", [("o", 5)])], [], [], ""),
        ("=", "", None, np.ones(2), [], [], [], ""),
        ("=", "", None, [1], [], [], [], ""),
        ("=", "", None, ("n", "type", "os.system"), [], [], [], ""),
        ("=", "", None, ("n", "torch", "load"), [], [], [], ""),
        ("=", "", None, ("n", "dtype", "O"), [], [], [], ""),
        ("=", "", None, ("h", "a b\n", 5, 0), [], [], [], ""),
        ("!", "", None, 3, [], [], [], ""),
        3,
    ],
)
def test_what_may_not_be_said_ends_the_conversation(message):
    with fake([GOOD, frame(message)]) as made, pytest.raises(StudentLost) as caught:
        made.value("x")
    assert caught.value.state == "crashed" and caught.value.reason == "the student's process spoke out of turn"


@pytest.mark.parametrize(
    "state",
    [
        5,
        "grad",
        ("t", 1),
        ("o", 9),
        ("o", 11),
        ("o", 13),
        ("o", 15),
        ("o", 17),
    ],
)
def test_modes_that_are_none_end_the_conversation(state):
    table = [
        (9, "a", (np.ones(2), True)),
        (11, "d", ["grad", ("o", 9)]),
        (13, "d", ["dtype", ("o", 9)]),
        (15, "d", ["surprise", True]),
        (17, "d", [1, 2]),
    ]
    call = frame(("?", "call", state, ("t", ("r", 1), ("t",), ("t",)), table, [], [], ""))
    with fake([GOOD, call, frame(("=", "", None, 5, [], [], [], ""))]) as made, pytest.raises(StudentLost) as caught:
        CallableProxy(made, "thing", 3, "thing")(lambda: 1)
    assert caught.value.reason == "the student's process spoke out of turn"


def test_nonsense_inside_a_callback_that_swallows_it_is_not_forgiven():
    call = frame(("?", "call", None, ("t", ("r", 1), ("t",), ("t",)), [], [], [], ""))
    with fake([GOOD, call, frame(3), frame(("=", "", None, 5, [], [], [], ""))]) as made:
        proxy = CallableProxy(made, "thing", 3, "thing")

        def swallow():
            with contextlib.suppress(BaseException):
                made.value("x")

        with pytest.raises(StudentLost):
            proxy(swallow)


@pytest.mark.parametrize("gradient", [torch.ones(3), torch.ones(2, dtype=torch.float64), 1.0])
def test_a_gradient_of_another_kind_ends_the_conversation(gradient):
    result = frame(("=", "", None, ("o", 9), [(9, "x", (torch.ones(2), "graph", [2], False))], [], [], ""))
    node, table = ("o", 11), []
    if type(gradient) is torch.Tensor:
        table.append((13, "x", (gradient, "leaf", True, False, False, None)))
        gradient = ("o", 13)
    answer = frame(("=", "", None, node, [*table, (11, "l", [gradient])], [], [], ""))
    with fake([GOOD, result, answer]) as made, pytest.raises(StudentLost):
        x = torch.ones(2, requires_grad=True)
        CallableProxy(made, "thing", 3, "thing")(x).sum().backward()


def test_too_much_for_one_question_is_refused(monkeypatch):
    monkeypatch.setattr("nbreferee.rpc.exchange.RECEIVED", 10_000)
    with fake([GOOD, frame(("=", "", None, "x" * 20_000, [], [], [], ""))]) as made, pytest.raises(StudentLost):
        made.value("x")


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        "range(10**15)",
        "[range(0, -10**9, -1)] * 3",
        "{'one': range(10**7), 'two': (range(10**7),)}",
        "shared(45)",
        "{1: slice(shared(20), 0), 2: (shared(20),)}",
        "[np.zeros(10**6)] * 10**4",
        "[torch.zeros(10**6)] * 10**4",
    ],
)
def test_a_small_message_that_stands_for_an_endless_value_is_an_error_of_that_question_alone(there, value):
    """Sums and comparisons of it would run in C, where no alarm interrupts them."""
    there.run("import numpy as np, torch\ndef shared(n):\n    v = [0]\n    for _ in range(n): v = [v, v]\n    return v")
    there.run(f"def f():\n    return {value}")
    with pytest.raises(StudentError, match="more than 200000 values"):
        there.value("f")()
    there.run("def g():\n    return [range(10**6), shared(12), [np.zeros(10**6)] * 9, list(range(10**5))]")
    assert there.value("g")()[1] == there.value("g")()[1]


def test_a_callback_is_not_given_an_endless_value(there):
    there.run(
        "def f(g):\n    try:\n        g(range(10**15))\n    except ValueError as error:\n        return str(error)"
    )
    seen = []
    assert "more than 200000 values" in there.value("f")(seen.append) and not seen


def test_no_argument_becomes_endless_bit_by_bit(there):
    """Each change is small, and so is the list that it changes, as long as one looks at no other."""
    there.run(
        "def f(lists, told):\n"
        "    told(lists)\n"
        "    for one, other in zip(lists, lists[1:]):\n"
        "        one[:] = [other, other]\n"
        "        told(0)\n"
    )
    with pytest.raises(StudentError, match="more than 200000 values"):
        there.value("f")([[] for _ in range(45)], lambda x: None)


def test_the_errors_of_this_module_are_what_they_say():
    assert issubclass(CannotSend, TypeError) and not issubclass(StudentLost, Exception)
    assert not issubclass(Garbled, StudentError)
