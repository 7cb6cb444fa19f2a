"""Honest work with something odd about it, which must not cost a point."""

from nbformat.v4 import new_code_cell, new_markdown_cell

from ..assignment import RIGHT, SETUP, TESTS, without
from . import ACCIDENT, submission


@submission(ACCIDENT)
def good(s):
    """Answers everything rightly."""


@submission(ACCIDENT, dict.fromkeys(TESTS, 0), tests={"softmax_shown": ("unanswered", "failed")})
def untouched(s):
    """Hands in the notebook as it was handed out."""
    from ..assignment import release

    s.book = release()


@submission(ACCIDENT)
def warns(s):
    """Warns on stderr, in an answer that is right."""
    s.put(
        "softmax",
        """import sys, warnings, logging
def softmax(x):
    warnings.warn("softmax is slow", stacklevel=2)
    logging.warning("working")
    print("half-way", file=sys.stderr)
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)""",
    )


@submission(ACCIDENT)
def prints(s):
    """Prints in every call, with signs that are not ASCII."""
    s.put("softmax", RIGHT["softmax"].replace("    e = ", "    print('∑ 🎉 größer', x, flush=True)\n    e = "))
    s.own("print('a line of my own')\nx = 3\nx")


@submission(ACCIDENT)
def uses_magics(s):
    """Uses magics and a shell command, as notebooks do."""
    s.own("%matplotlib inline\n!ls\n%timeit -n 1 -r 1 sum([1])\n%precision 3\n?sum")
    s.put("softmax", "%%time\n" + RIGHT["softmax"])


@submission(ACCIDENT)
def plots(s):
    """Plots in a cell of its own."""
    s.own("import matplotlib.pyplot as plt\nplt.plot(softmax(np.arange(3.0)))\nplt.show()", after="softmax")


@submission(ACCIDENT)
def awaits_at_top_level(s):
    """Uses await outside a function, which notebooks allow."""
    s.own("import asyncio\nawait asyncio.sleep(0.01)\nprint('done')")


@submission(ACCIDENT)
def calls_exit(s):
    """Ends an answer with exit(), as in a script."""
    s.add("softmax", "\nexit()")
    s.own("quit()", after="affine")


@submission(ACCIDENT)
def raises_system_exit(s):
    """Ends a cell with sys.exit, and with raise SystemExit."""
    s.own("import sys\nsys.exit('the end')")
    s.add("softmax", "\nraise SystemExit(3)")


@submission(ACCIDENT)
def asks_for_input(s):
    """Asks the reader a question, where nobody can answer."""
    s.own("name = input('Your name? ')")
    s.own("import getpass\ngetpass.getpass()")


@submission(ACCIDENT)
def crashes_before_the_answers(s):
    """Begins with a cell of its own that raises an error."""
    s.own("plot_of_last_week.show()", after=None)
    s.own("1 / 0")


@submission(ACCIDENT)
def answers_in_another_cell(s):
    """Writes an answer into a cell of its own below the untouched stub."""
    s.put("softmax", "def softmax(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()")
    s.own(RIGHT["softmax"], after="softmax")


@submission(ACCIDENT, without("mean"))
def imports_what_is_not_there(s):
    """Imports packages that are not installed, once beside and once above an answer."""
    s.own("import seaborn_which_is_not_there as sns")
    s.put("mean", "import pandas_which_is_not_there\n\n" + RIGHT["mean"])


@submission(ACCIDENT)
def imports_after_the_answer(s):
    """Imports a package that is not installed below a right answer."""
    s.add("softmax", "\nimport a_package_that_is_not_there")


@submission(ACCIDENT)
def changes_the_directory(s):
    """Changes into a folder and removes it."""
    s.own("import os\nos.makedirs('mine')\nos.chdir('mine')\nos.rmdir('../mine')")


@submission(ACCIDENT)
def sets_seeds(s):
    """Sets every seed and NumPy's and PyTorch's ways to print."""
    s.own("import random\nrandom.seed(0)\nnp.random.seed(0)\ntorch.manual_seed(0)\nnp.set_printoptions(precision=1)")


@submission(ACCIDENT)
def overwrites_np_random(s):
    """Assigns to np.random by a slip, so that np.random.default_rng is gone for every test after it."""
    s.own("np.random = None")


@submission(ACCIDENT)
def rebinds_np(s):
    """Calls a number np, having imported what it needs by name."""
    s.put(
        "softmax",
        """from numpy import asarray, exp as _exp
def softmax(x):
    e = _exp(asarray(x) - asarray(x).max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
np = 3""",
    )


@submission(ACCIDENT)
def shadows_builtins(s):
    """Calls its own variables list, sum, all, len and abs."""
    s.own("list = [1, 2]\nsum = 3\nall = abs = len = zip = 'mine'\ncallable = None", after="mean")


@submission(ACCIDENT)
def uses_the_tests_names(s):
    """Has variables of its own with the names that tests use."""
    s.own("x = want = got = mean = value = 'mine'\nassert_allclose = rng = g = 5", after="softmax")


@submission(ACCIDENT)
def raises_the_recursion_limit(s):
    """Sets the recursion limit to a million, as the first answer on the web says."""
    s.own("import sys\nsys.setrecursionlimit(10**6)")


@submission(ACCIDENT, without("mean"), tests={"mean_test": ("failed", "crashed", "memory", "timeout")})
def recurses_without_end(s):
    """Recurses without end after it has raised the limit to a thousand million."""
    s.put(
        "mean",
        """import sys
class RunningMean:
    count = 0
    def update(self, x):
        sys.setrecursionlimit(10**9)
        self.update(x)""",
    )


@submission(ACCIDENT)
def sets_torch_defaults(s):
    """Makes float64 the default of PyTorch, and turns gradients off and on again for itself."""
    s.own("torch.set_default_dtype(torch.float64)")


@submission(ACCIDENT)
def makes_warnings_errors(s):
    """Turns warnings into errors in a cell of its own."""
    s.own("import warnings\nwarnings.simplefilter('error')")


@submission(ACCIDENT)
def doubles_an_answer(s):
    """Has a first draft of an answer, wrong, in a copy of the cell above the right one."""
    draft = new_code_cell("def softmax(x):\n    return x", metadata=s.cell("softmax").metadata)
    s.book.cells.insert(s.book.cells.index(s.cell("softmax")), draft)


@submission(ACCIDENT)
def splits_an_answer(s):
    """Has split the answer's cell in two, and both carry its id."""
    half = new_code_cell("def _scale(e):\n    return e / e.sum(-1, keepdims=True)", metadata=s.cell("softmax").metadata)
    at = s.book.cells.index(s.cell("softmax"))
    s.put("softmax", "def softmax(x):\n    return _scale(np.exp(x - np.max(x, -1, keepdims=True)))")
    s.book.cells.insert(at, half)


@submission(ACCIDENT)
def merges_answer_and_test(s):
    """Has merged an answer with the test below it."""
    test = s.cell("mean_test")
    s.add("mean", "\n" + test.source)
    s.book.cells.remove(test)


@submission(ACCIDENT)
def deletes_the_tests(s):
    """Has deleted all tests and the set-up, by mistake or not."""
    s.book.cells = [c for c in s.book.cells if c.metadata.get("nbgrader", {}).get("grade_id") not in (*TESTS, "setup")]


@submission(ACCIDENT, without("gate"))
def deletes_an_answer(s):
    """Has deleted the cell of one answer."""
    s.book.cells.remove(s.cell("gate"))


@submission(ACCIDENT)
def retypes_an_answer(s):
    """Has turned the cell of an answer into Markdown."""
    cell = s.cell("mean")
    at = s.book.cells.index(cell)
    s.book.cells[at] = new_markdown_cell(cell.source, metadata=cell.metadata)


@submission(ACCIDENT)
def reorders_the_cells(s):
    """Has all its cells in reverse order."""
    s.book.cells.reverse()


@submission(ACCIDENT)
def loses_the_ids(s):
    """Comes from a tool that drops nbgrader's metadata and leaves the cells' own ids."""
    for cell in s.book.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") != "setup":
            cell.metadata = {}
    s.cell("setup").source = SETUP.rstrip("\n")


@submission(ACCIDENT)
def comes_with_another_kernel(s):
    """Names a kernel and a language that nobody has installed."""
    s.book.metadata = {"kernelspec": {"name": "conda-env-mine-py", "display_name": "mine", "language": "R"}}


@submission(ACCIDENT)
def returns_lists(s):
    """Returns lists and tuples where arrays are compared."""
    s.put(
        "softmax",
        RIGHT["softmax"].replace("return e / e.sum(-1, keepdims=True)", "return (e / e.sum(-1)[..., None]).tolist()"),
    )
    s.put("affine", RIGHT["affine"].replace("return x @ w + b, vjp", "return [x @ w + b, vjp]"))


@submission(ACCIDENT)
def answers_with_objects(s):
    """Answers with a lambda, a partial and an instance that can be called."""
    s.put(
        "softmax",
        "_exp = lambda x: np.exp(x - np.max(x, -1, keepdims=True))\n"
        "softmax = lambda x: _exp(x) / _exp(x).sum(-1, keepdims=True)",
    )
    s.put(
        "gate",
        "import functools\ndef _gate(x, k): return x * torch.sigmoid(k * x)\ngate = functools.partial(_gate, k=1)",
    )
    s.put(
        "affine",
        RIGHT["affine"].replace("def affine", "def _affine")
        + "class Affine:\n    def __call__(self, *args): return _affine(*args)\naffine = Affine()",
    )


@submission(ACCIDENT)
def answers_with_a_dataclass(s):
    """Writes the class as a dataclass with properties, annotations and slots, and pickles it."""
    s.put(
        "mean",
        """from __future__ import annotations
import copy, pickle
from dataclasses import dataclass, field

@dataclass
class RunningMean:
    seen: list[float] = field(default_factory=list)

    def update(self, x: float) -> None:
        self.seen.append(x)

    @property
    def value(self) -> float:
        return float(np.mean(self.seen))

    @property
    def count(self) -> int:
        return len(self.seen)

pickle.loads(pickle.dumps(copy.deepcopy(RunningMean())))
if __name__ == "__main__":
    print(RunningMean.__module__)""",
    )


@submission(ACCIDENT)
def reads_its_own_source(s):
    """Looks at its own source with inspect, and at its own frame."""
    s.own(
        "import inspect\nassert 'keepdims' in inspect.getsource(softmax)\nsource = inspect.getsource(softmax)",
        after="softmax",
    )


@submission(ACCIDENT)
def uses_threads(s):
    """Computes with threads and a pool."""
    s.put(
        "softmax",
        """from concurrent.futures import ThreadPoolExecutor
def softmax(x):
    with ThreadPoolExecutor(4) as pool:
        e = pool.submit(lambda: np.exp(x - np.max(x, -1, keepdims=True))).result()
    return e / e.sum(-1, keepdims=True)""",
    )


@submission(ACCIDENT)
def writes_files(s):
    """Keeps tables in files in the working directory, in a temporary one and at home."""
    s.put(
        "softmax",
        """import os, tempfile
def softmax(x):
    x = np.asarray(x, dtype=float)
    np.save("table.npy", x)
    with tempfile.NamedTemporaryFile() as file:
        np.save(file, x)
    open(os.path.expanduser("~/notes.txt"), "w").write("mine")
    e = np.exp(np.load("table.npy") - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)""",
    )


@submission(ACCIDENT)
def is_slow(s):
    """Takes most of a second for each call."""
    s.put(
        "mean",
        "import time\n"
        + RIGHT["mean"].replace("        self.count += 1", "        time.sleep(0.4)\n        self.count += 1"),
    )


@submission(ACCIDENT)
def changes_its_argument(s):
    """Works in place on the array it is given."""
    s.put(
        "softmax",
        "def softmax(x):\n    x -= x.max(-1, keepdims=True)\n    np.exp(x, out=x)\n"
        "    x /= x.sum(-1, keepdims=True)\n    return x",
    )


@submission(ACCIDENT)
def returns_minus_zero(s):
    """Returns -0.0 for 0, and a tensor that carries a gradient of its own."""
    s.put("affine", RIGHT["affine"].replace("x @ w + b, vjp", "(x @ w + b) * 1.0 - 0.0 + np.copysign(0.0, -1.0), vjp"))
    s.put("gate", "scale = torch.nn.Parameter(torch.ones(()))\ndef gate(x):\n    return scale * x * torch.sigmoid(x)")


@submission(ACCIDENT, without("softmax", softmax_shown=1))
def is_imprecise(s):
    """Computes in single precision, which the hidden test's tolerance does not allow."""
    s.put("softmax", RIGHT["softmax"].replace("dtype=float", "dtype=np.float32"))


@submission(ACCIDENT, without("softmax", softmax_shown=1))
def overflows(s):
    """Forgets to subtract the largest score, so that large scores give nan and a warning."""
    s.put("softmax", "def softmax(x):\n    e = np.exp(x)\n    return e / e.sum(-1, keepdims=True)")


@submission(ACCIDENT, without("gate", gate_shown=1))
def loses_the_gradient(s):
    """Detaches its result, which the values do not show."""
    s.put("gate", "def gate(x):\n    return (x * torch.sigmoid(x)).detach()")


@submission(ACCIDENT, without("affine"))
def forgets_a_bracket(s):
    """Has a syntax error in one answer."""
    s.put("affine", "def affine(x, w, b:\n    return x @ w + b")


@submission(ACCIDENT, without("softmax"))
def forgets_to_return(s):
    """Computes the right thing and returns nothing."""
    s.put("softmax", RIGHT["softmax"].replace("return ", ""))


@submission(ACCIDENT, without("softmax"))
def prints_instead_of_returning(s):
    """Prints its result instead of returning it."""
    s.put(
        "softmax",
        RIGHT["softmax"].replace("return e / e.sum(-1, keepdims=True)", "print(e / e.sum(-1, keepdims=True))"),
    )


@submission(ACCIDENT)
def calls_an_answer_from_another(s):
    """Uses the answer of one exercise in another one, across cells."""
    s.put("mean", RIGHT["mean"] + "    weights = lambda self: softmax(np.zeros(self.count))\n")
    s.put("centre", "def centre(x):\n    x -= (softmax(np.zeros(len(x))) * x).sum()\n    return x")


@submission(ACCIDENT)
def turns_on_autoreload(s):
    """Loads an extension of IPython and changes how it shows results."""
    s.own("%load_ext autoreload\n%autoreload 2\n%config InteractiveShell.ast_node_interactivity = 'all'\n1\n2")


@submission(ACCIDENT)
def runs_another_language(s):
    """Runs a cell of bash and one of HTML."""
    s.own("%%bash\necho from bash >&2\nexit 3")
    s.own("%%html\n<b>bold</b>")


@submission(ACCIDENT)
def redirects_its_output(s):
    """Sends sys.stdout into a buffer of its own and never gives it back."""
    s.own("import io, sys\nsys.stdout = sys.stderr = io.StringIO()\nsys.stdin = None")


@submission(ACCIDENT)
def deletes_everything(s):
    """Clears its own namespace with %reset, then answers again."""
    s.own("%reset -f\nimport numpy as np\nimport torch", after="setup")


# What nbclient runs in the first lines of many notebooks; the answers depend on what follows in the same cell.


def _head(s, line):
    s.own(f"{line}\nepsilon = 0.0\n")
    s.put("softmax", RIGHT["softmax"].replace("e / e.sum", "epsilon + e / e.sum"))


@submission(ACCIDENT)
def begins_with_matplotlib_inline(s):
    """Begins with %matplotlib inline, as many notebooks do, and defines in that cell what an answer needs."""
    _head(s, "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")


@submission(ACCIDENT)
def begins_with_matplotlib_alone(s):
    """Begins with a bare %matplotlib, which chooses a backend."""
    _head(s, "%matplotlib")


@submission(ACCIDENT)
def asks_for_matplotlib_by_a_call(s):
    """Calls run_line_magic of the shell that IPython's own get_ipython gives."""
    _head(s, "from IPython import get_ipython\nget_ipython().run_line_magic('matplotlib', 'inline')")


@submission(ACCIDENT)
def configures_the_figures(s):
    """Sets the format of figures with %config, and reloads modules automatically."""
    _head(s, "%config InlineBackend.figure_format = 'retina'\n%load_ext autoreload\n%autoreload 2")


@submission(ACCIDENT)
def goes_to_another_folder(s):
    """Goes to another folder with %cd before it answers."""
    _head(s, "%cd /tmp")


@submission(ACCIDENT)
def displays_under_an_id(s):
    """Displays a value with an id and updates it, as progress bars do."""
    _head(s, "from IPython.display import display\nhandle = display('0 %', display_id=True)\nhandle.update('100 %')")


@submission(ACCIDENT)
def returns_masked_arrays(s):
    """Returns a masked array in which nothing is masked."""
    s.put("softmax", RIGHT["softmax"].replace("return e / e.sum(-1, keepdims=True)",
                                              "return np.ma.masked_invalid(e / e.sum(-1, keepdims=True))"))  # fmt: skip


@submission(ACCIDENT)
def counts_in_long_doubles(s):
    """Keeps its running mean as np.longdouble, whose values here are those of doubles."""
    s.put(
        "mean", RIGHT["mean"].replace("self.value, self.count = 0.0, 0", "self.value, self.count = np.longdouble(0), 0")
    )


@submission(ACCIDENT)
def perturbs_and_restores_its_argument(s):
    """Moves an entry of its argument and puts it back, as a numerical gradient does."""
    moves = "    old = x[0, 0]\n    x[0, 0] = old + 1\n    x[0, 0] = old\n"
    s.put("affine", RIGHT["affine"].replace("    return x @ w", f"{moves}    return x @ w"))


@submission(ACCIDENT)
def asks_for_a_gradient_of_its_argument(s):
    """Calls requires_grad_ on its argument, whose values stay what they are."""
    s.put("gate", "def gate(x):\n    x.requires_grad_(True)\n    return x * torch.sigmoid(x)\n")


@submission(ACCIDENT)
def leaves_the_stub_below_its_answer(s):
    """Writes its answer above the stub's last line, which is never reached."""
    s.put("centre", RIGHT["centre"] + "    raise NotImplementedError()\n")


@submission(ACCIDENT)
def catches_a_stub_of_its_own(s):
    """Raises and catches NotImplementedError inside a right answer."""
    stub = "    try:\n        raise NotImplementedError()\n    except NotImplementedError:\n        pass\n"
    s.put("softmax", RIGHT["softmax"].replace("def softmax(x):\n", "def softmax(x):\n" + stub))


@submission(ACCIDENT, without("affine"), tests={"affine_shown": "failed", "affine_hidden": "failed"})
def returns_a_value_too_many(s):
    """Returns three values where two were asked for, so that the test cannot take them apart."""
    s.put("affine", RIGHT["affine"].replace("x @ w + b, vjp", "x @ w + b, vjp, x"))


@submission(ACCIDENT)
def answers_with_torch_where_numpy_is_meant(s):
    """Computes a softmax in PyTorch and returns a tensor; the numbers are right."""
    s.put(
        "softmax",
        "def softmax(x):\n    x = np.asarray(x, dtype=float)\n"
        "    if not x.size:\n        raise ValueError('no scores')\n"
        "    return torch.softmax(torch.tensor(x), -1)\n",
    )


@submission(ACCIDENT)
def writes_the_mean_as_a_dataclass(s):
    """Writes its class as a dataclass with a property."""
    s.put(
        "mean",
        "from dataclasses import dataclass\n@dataclass\nclass RunningMean:\n"
        "    total: float = 0.0\n    count: int = 0\n"
        "    @property\n    def value(self):\n        return self.total / self.count\n"
        "    def update(self, x):\n        self.total += x\n        self.count += 1\n",
    )


@submission(ACCIDENT)
def returns_an_object_that_can_be_called(s):
    """Returns as vjp an instance of a class with __call__."""
    s.put(
        "affine",
        "class Vjp:\n    def __init__(self, x, w):\n        self.x, self.w = x, w\n"
        "    def __call__(self, g):\n        return g @ self.w.T, self.x.T @ g, g.sum(0)\n"
        "def affine(x, w, b):\n    return x @ w + b, Vjp(x, w)\n",
    )


@submission(ACCIDENT)
def returns_a_partial(s):
    """Returns as vjp a functools.partial of a function at the top level."""
    s.put(
        "affine",
        "from functools import partial\ndef back(x, w, g):\n    return g @ w.T, x.T @ g, g.sum(0)\n"
        "def affine(x, w, b):\n    return x @ w + b, partial(back, x, w)\n",
    )


@submission(ACCIDENT)
def turns_warnings_into_errors(s):
    """Has every warning raise, in NumPy too, while it develops."""
    s.own("import warnings\nwarnings.simplefilter('error')\nnp.seterr(all='raise')")


@submission(ACCIDENT)
def sets_defaults_of_the_libraries(s):
    """Sets PyTorch's default dtype, seeds and print options, which are its own business."""
    s.own("torch.set_default_dtype(torch.float64)\ntorch.manual_seed(0)\nnp.random.seed(0)\n"
          "np.set_printoptions(precision=2)\ntorch.set_printoptions(precision=2)")  # fmt: skip


@submission(ACCIDENT)
def keeps_numbers_in_a_file(s):
    """Writes an array to a file in its folder and reads it back in the answer."""
    s.own("np.save('one.npy', np.ones(1))")
    s.put("softmax", RIGHT["softmax"].replace("return e", "return np.load('one.npy') * e"))


@submission(ACCIDENT)
def says_it_was_handed_in_in_1970(s):
    """Brings a timestamp.txt of the epoch, as a broken clock writes it: the marks are those of the work."""
    s.beside["timestamp.txt"] = "1970-01-01 00:00:00 UTC"


@submission(ACCIDENT)
def sets_an_alarm(s):
    """Gives its own loop a second by an alarm, which it takes off again."""
    alarm = """
import signal
def out_of_time(*_): raise TimeoutError("my loop takes too long")
signal.signal(signal.SIGALRM, out_of_time)
signal.alarm(1)
try:
    total = sum(range(1000))
finally:
    signal.alarm(0)
"""
    s.add("mean", alarm)


@submission(ACCIDENT)
def works_in_pylab(s):
    """Begins with %pylab inline, which binds some thousand names."""
    _head(s, "%pylab inline")


@submission(ACCIDENT)
def returns_a_matrix(s):
    """Returns an np.matrix where an array is meant."""
    s.put("affine", RIGHT["affine"].replace("return x @ w + b, vjp", "return np.asmatrix(x @ w + b), vjp"))


@submission(ACCIDENT)
def returns_integers_of_dtype_object(s):
    """Returns an array of dtype object that holds Python's integers."""
    body = "    x -= x.mean()\n    return np.array([int(v) for v in x], dtype=object)\n"
    s.put("centre", f"def centre(x):\n{body}")


@submission(ACCIDENT)
def differentiates_by_differences(s):
    """Computes its whole vjp by differences: every entry of every argument is moved and put back."""
    s.put(
        "affine",
        """def affine(x, w, b):
    def vjp(g):
        slopes = []
        for a in (x, w, b):
            slope = np.zeros(a.shape)
            for at in np.ndindex(a.shape):
                old = a[at]
                a[at] = old + 1
                above = ((x @ w + b) * g).sum()
                a[at] = old - 1
                slope[at] = (above - ((x @ w + b) * g).sum()) / 2
                a[at] = old
            slopes.append(slope)
        return tuple(slopes)

    return x @ w + b, vjp
""",
    )
