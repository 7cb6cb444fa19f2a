"""A cell runs here as in a notebook: what nbclient runs without an error runs, and leaves the same behind."""

import os
import subprocess
import sys
import time

import nbformat
import pytest
from nbclient import NotebookClient

from nbreferee.rpc.line import Until
from nbreferee.rpc.raised import StudentError
from tests.nbreferee.rpc.test_proxies import Process

OPENINGS = [
    "%matplotlib inline",
    "%pylab inline",
    "get_ipython().run_line_magic('matplotlib', 'inline')",
    "%matplotlib",
    "%matplotlib agg\n%matplotlib inline",
    "%config InlineBackend.figure_format = 'retina'",
    "%config InlineBackend.rc = {'figure.dpi': 50}\n%config Completer.use_jedi = False",
    "import matplotlib_inline\nmatplotlib_inline.backend_inline.set_matplotlib_formats('svg')",
    "from IPython import get_ipython\nip = get_ipython()\nip.run_line_magic('matplotlib', 'inline')\nip.system('true')",
    "import IPython\nassert IPython.get_ipython().user_ns is globals()",
    "assert get_ipython().__class__.__name__ == 'ZMQInteractiveShell'",
    "handle = display('x', display_id=True)\nhandle.update('y')\nassert handle.display_id",
    "from IPython.display import update_display\ndisplay(1, display_id='a')\nupdate_display(2, display_id='a')",
    "from IPython.display import HTML, Markdown, clear_output\ndisplay(HTML('<b>'), Markdown('*x*'))\nclear_output()",
    "%load_ext autoreload\n%autoreload 2\n%reload_ext autoreload",
    "before = %pwd\n%cd /\nassert before != '/' == __import__('os').getcwd()\n%cd -q $before\n%dhist",
    "%%time\ntimed = 1",
    "assert timed == 1",
    "%time later = 2\nassert later == 2",
    "took = %timeit -o -q -n 2 -r 1 sum(range(3))\nassert took.best >= 0",
    "%%timeit -n 2 -r 1\nsum(range(3))",
    "%%capture caught\nprint('seen')",
    "assert caught.stdout == 'seen\\n', caught.stdout",
    "from IPython.utils.capture import capture_output\nwith capture_output() as got: display(1)\nassert got.outputs",
    "!pip --version\n%pip --version",
    "%env NAME=value\nimport os\nassert os.environ['NAME'] == 'value'",
    "%%writefile mine.py\nvalue = 3",
    "import mine\nassert mine.value == 3",
    "%run mine.py\nassert value == 3",
    "%who\n%whos\n%lsmagic\n%precision 3\n%xmode Minimal\n%pdb off",
    "%store value",
    "6 * 7",
    "assert _ == 42 and 42 in Out.values() and In[-2] == '6 * 7'",
    "from IPython.core.interactiveshell import InteractiveShell\nInteractiveShell.ast_node_interactivity = 'all'\n1\n2",
    "assert InteractiveShell.instance() is get_ipython()",
    "get_ipython().run_cell('inner = 4')\nassert inner == 4",
    "from IPython.core.magic import register_cell_magic\n@register_cell_magic\ndef skip(line, cell): pass",
    "%%skip\n1 / 0",
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot([1])\nplt.show()\ndisplay(fig)\nplt.plot([3])",
    "assert plt.get_fignums() == []",
    "%config InlineBackend.close_figures = False\nplt.plot([3])",
    "assert plt.get_fignums() == [1]\n%config InlineBackend.close_figures = True\nplt.close('all')",
    "from tqdm.notebook import tqdm\nassert [x for x in tqdm(range(3))] == [0, 1, 2]",
    "from tqdm.auto import trange\nassert list(trange(3)) == [0, 1, 2]",
    "import ipywidgets as widgets\nslider = widgets.IntSlider(3)\ndisplay(slider)\nassert slider.value == 3",
    "from ipywidgets import interact\n@interact(x=(0, 5))\ndef show(x=2): assert x == 2",
    "import asyncio\nsoon = asyncio.create_task(asyncio.sleep(0, 5))",
    "assert await soon == 5",
    "import sys\nassert sys.stdout.name == 'stdout'",
    "import pickle, __main__\nclass Mine: pass\nassert type(pickle.loads(pickle.dumps(Mine()))) is __main__.Mine",
    "import inspect\ndef seen(x):\n    return x\nassert 'return x' in inspect.getsource(seen)",
    "x = 5\nx?\n?x",
    "%unknown_magic\nnever = 1",
    "never",
    "1 / 0",
    "%%unknown_cell_magic\nx",
]


@pytest.fixture
def process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Process()
    yield made
    made.end()


@pytest.fixture
def there(process):
    return process.student


def ran(there, *cells):
    """What each cell raised, or None."""
    there.clock = Until(time.monotonic() + 60)
    return [there.cell(cell, f"cell{n}").error for n, cell in enumerate(cells)]


def test_the_usual_openings_run(there):
    told = dict(zip(OPENINGS, ran(there, *OPENINGS), strict=True))
    wrong = {cell: error for cell, error in told.items() if error}
    assert [error.split(":")[0] for error in wrong.values()] == [
        "UsageError",
        "NameError",
        "ZeroDivisionError",
        "UsageError",
    ]
    assert list(wrong) == OPENINGS[-4:]


@pytest.mark.slow
def test_what_nbclient_runs_is_what_runs_here(there, tmp_path):
    cells = [nbformat.v4.new_code_cell(source) for source in OPENINGS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, allow_errors=True, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    errors = [[out.ename for out in cell.outputs if out.output_type == "error"] for cell in notebook.cells]
    theirs = [cell for cell, names in zip(OPENINGS, errors, strict=True) if names]
    theirs += [cell for cell in OPENINGS if "unknown" in cell]  # a message, no error, but the cell goes no further
    ours = [cell for cell, error in zip(OPENINGS, ran(there, *OPENINGS), strict=True) if error]
    assert sorted(ours) == sorted(theirs)


def test_a_figure_is_closed_when_its_cell_ends_and_before_a_test(there):
    cells = "import matplotlib.pyplot as plt\nplt.plot([1, 2])", "open = plt.get_fignums()\nnew = plt.gca().lines[:]"
    assert ran(there, *cells, "def draw():\n    plt.plot([1])\n    return len(plt.gca().lines)") == [None] * 3
    assert there.value("open") == [] and list(there.value("new")) == []
    for _ in range(2):
        there.forget()
        draw = there.value("draw")
        assert draw() == 1 and draw() == 2  # within a test it stays
        there.retire()


def test_a_figure_that_a_student_keeps_is_still_there(there):
    cells = (
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()",
        "ax.plot([1, 2])\nlines = len(fig.axes[0].lines)",
    )
    assert ran(there, *cells) == [None, None] and there.value("lines") == 1


def test_figures_are_closed_too_where_pyplot_was_imported_before_the_fork(tmp_path):
    """As with ``preload = ["matplotlib.pyplot"]``; in a Python of its own, since this one must not import it."""
    source = (
        "import matplotlib.pyplot, sys\n"
        "from tests.nbreferee.rpc.test_proxies import Process\n"
        "there = Process().student\n"
        "there.cell('import matplotlib.pyplot as plt; plt.plot([1])', 'a')\n"
        "print(there.cell('assert plt.get_fignums() == []', 'b').error, matplotlib.get_backend())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, env=os.environ | {"MPLBACKEND": "agg"}
    )
    assert done.stdout == "None agg\n", done.stderr


def test_a_sandboxed_test_is_not_in_the_list_of_cells(there):
    assert there.cell("x = 1", "one").error is None
    assert there.test("assert x == 1  # secret", "two").error is None
    assert ran(there, "assert not any('sec' 'ret' in cell for cell in In), In") == [None]


SLEEP = (
    "import time\ndef nap(s=0.6):\n    end = time.monotonic() + s\n    while time.monotonic() < end: pass\n    return 3"
)
RAISE = "import signal\ndef late(*_): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\n"
ALARMS = {
    "an alarm": f"{RAISE}signal.alarm(1)\n",
    "an alarm that kills": "import signal; signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "one that comes again": f"{RAISE}signal.setitimer(signal.ITIMER_REAL, 0.2, 0.1)\n",
    "one of the processor's time": "import signal; signal.setitimer(signal.ITIMER_VIRTUAL, 0.2)",
    "a profiler's": "import signal; signal.setitimer(signal.ITIMER_PROF, 0.2)",
    "a thread that interrupts": "import threading, _thread; threading.Timer(0.2, _thread.interrupt_main).start()",
    "a thread that sends": f"{RAISE}import os, threading\n"
    "threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGALRM)).start()",
    "a thread that ends it all": "import os, threading; threading.Timer(0.2, os._exit, [3]).start()",
}


@pytest.mark.parametrize("how", ALARMS)
def test_a_timer_of_one_cell_strikes_no_other(there, how):
    cells = (ALARMS[how], SLEEP, "assert nap(1.2 if 'alarm(1)' in In[1] else 0.6) == 3")
    assert ran(there, *cells) == [None] * 3
    assert there.value("nap")() == 3


@pytest.mark.parametrize("how", list(ALARMS)[:3])
def test_a_timer_of_one_question_strikes_no_other(there, how):
    start = "def start():\n" + "".join(f"    {line}\n" for line in ALARMS[how].splitlines())
    assert ran(there, start, SLEEP) == [None, None]
    there.value("start")()
    assert there.value("nap")(1.2 if how == "an alarm" else 0.6) == 3


def test_a_timer_holds_within_its_own_question(there):
    guarded = "def guarded():\n    signal.setitimer(signal.ITIMER_REAL, 0.1)\n    nap(5)"
    assert ran(there, RAISE, SLEEP, guarded) == [None] * 3
    with pytest.raises(StudentError, match="late"):
        there.value("guarded")()
    [error] = ran(there, "signal.setitimer(signal.ITIMER_REAL, 0.1)\nnap(5)")
    assert error == "TimeoutError: late"


def test_a_thread_that_only_computes_goes_on(there):
    cells = "import threading, time\nfound = []\nthreading.Timer(0.2, found.append, [1]).start()", "time.sleep(0.5)"
    assert ran(there, *cells, "assert found == [1]") == [None] * 3


def test_input_is_what_the_test_says_it_is(there, monkeypatch):
    assert ran(there, "def twice():\n    return 2 * int(input('how many? '))") == [None]
    twice = there.value("twice")
    with monkeypatch.context() as patched:
        asked = []
        patched.setattr("builtins.input", lambda prompt: asked.append(prompt) or "21")
        assert twice() == 42 and asked == ["how many? "]
    with pytest.raises(StudentError) as error:
        twice()
    assert error.value.ename == "EOFError"


def test_input_that_is_mocked_comes_to_its_end(there):
    from unittest.mock import patch

    assert ran(there, "def total():\n    return int(input()) + int(input())") == [None]
    total = there.value("total")
    with patch("builtins.input", side_effect=["1", "2", "3"]) as mocked:
        assert total() == 3 and mocked.call_count == 2
        with pytest.raises(EOFError, match="the test gives no more input"):
            total()


def test_input_reads_what_a_test_puts_into_standard_input(there, monkeypatch):
    import io

    assert ran(there, "def total():\n    return int(input()) + int(input())") == [None]
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdin", io.StringIO("4\n5\n"))
        assert there.value("total")() == 9


def test_an_input_of_the_students_own_stays(there):
    assert ran(there, "import builtins\nbuiltins.input = lambda *_: '7'\ndef read():\n    return input()") == [None]
    from unittest.mock import patch

    read = there.value("read")
    with patch("builtins.input", side_effect=["1"]):
        assert read() == "7"
    assert read() == "7"


def test_a_sandboxed_test_may_mock_input(there):
    assert ran(there, "def read():\n    return input()") == [None]
    source = (
        "from unittest.mock import patch\nwith patch('builtins.input', return_value='8'):\n    assert read() == '8'"
    )
    assert there.test(source, "test").error is None
