"""Work that takes time, memory, processes, disk or attention without end; what else it answers must count."""

from ..assignment import RIGHT, without
from . import RESOURCE, submission

LOST = ("crashed", "timeout", "memory", "failed", "invalid")
NO_MEAN = without("mean")
VALUE = "class RunningMean:\n    count = 3\n    def update(self, x): pass\n    @property\n    def value(self):\n"


def _mean(s, body, head=""):
    s.put("mean", f"{head}class RunningMean:\n    value, count = 0.0, 0\n    def update(self, x):\n{body}")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": "timeout"})
def loops(s):
    """Loops without end."""
    _mean(s, "        while True: pass")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": "timeout"})
def loops_deaf(s):
    """Loops without end and catches every interruption."""
    _mean(
        s,
        """        while True:
            try:
                while True: pass
            except BaseException: pass""",
        "import signal\nfor n in range(1, 32):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n    except Exception: pass\n",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": "timeout"})
def loops_in_c(s):
    """Computes in C for hours, where no Python signal is heard: a regular expression that backtracks."""
    _mean(s, "        import re\n        re.match('(a+)+b', 'a' * 60)")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": "timeout"})
def sleeps(s):
    """Sleeps for an hour."""
    _mean(s, "        import time\n        time.sleep(3600)")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def loops_in_a_cell(s):
    """Loops without end in the cell of an answer, before the answer stands."""
    s.put("mean", "while True: pass\n" + RIGHT["mean"])


@submission(RESOURCE)
def loops_in_its_own_cell(s):
    """Loops without end in a cell of its own."""
    s.own("while True: pass", after="affine")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def forks(s):
    """Starts processes until it cannot any more, two thousand at most."""
    _mean(
        s,
        """        import os, time
        for _ in range(2000):
            if os.fork() == 0:
                time.sleep(300)
                os._exit(0)""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def forks_in_depth(s):
    """Starts processes that start processes, eleven deep."""
    _mean(
        s,
        """        import os, time
        for _ in range(11):
            try: os.fork()
            except OSError: pass
        time.sleep(300)""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def starts_threads(s):
    """Starts threads until it cannot any more, three thousand at most."""
    _mean(
        s,
        """        import threading, time
        for _ in range(3000):
            try: threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
            except RuntimeError: break
        __import__("os")._exit(1)""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def takes_memory(s):
    """Takes six gigabytes of memory."""
    _mean(s, "        keep = [np.ones(16_000_000) for _ in range(48)]\n        raise ValueError(str(len(keep)))")


@submission(RESOURCE)
def fills_a_cache(s):
    """Answers right, and keeps what it computes in a list that grows until the memory is full."""
    s.add(
        "mean",
        """
kept, right = [], RunningMean.update
def update(self, x):
    right(self, x)
    for size in (4_000_000, 40_000, 400):
        try:
            while True: kept.append(np.ones(size))
        except MemoryError: pass
RunningMean.update = update""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def takes_memory_in_children(s):
    """Takes half a gigabyte in each of eight child processes, each within the limit of one."""
    _mean(
        s,
        """        import os, time
        for _ in range(8):
            if os.fork() == 0:
                keep = np.ones(64_000_000)
                time.sleep(2)
                os._exit(0)
        for _ in range(8): os.wait()
        raise ValueError""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def fills_the_disk(s):
    """Writes three hundred megabytes into each place where it may write."""
    _mean(
        s,
        """        import os
        for place in (".", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~")):
            try:
                for n in range(6):
                    with open(f"{place}/ESCAPED-{n}.bin", "wb") as file:
                        file.write(bytes(50_000_000))
            except OSError as error:
                print(place, error)
        raise ValueError""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def makes_many_files(s):
    """Makes twenty thousand empty files and ten thousand folders in one another."""
    _mean(
        s,
        """        import os
        for n in range(20_000):
            open(f"f{n}", "w").close()
        for n in range(10_000):
            os.mkdir("d")
            os.chdir("d")
        raise ValueError""",
    )


@submission(RESOURCE)
def prints_without_end_in_a_cell(s):
    """Prints two hundred megabytes in a cell, through Python, the descriptor and a child process."""
    s.own(
        """import os, subprocess, sys
for _ in range(60):
    print("a" * 1_000_000)
os.write(1, b"b" * 1_000_000)
subprocess.run([sys.executable, "-c", "print('c' * 20_000_000)"])
for _ in range(60):
    sys.stderr.write("d" * 1_000_000)
for _ in range(60):
    os.write(2, b"e" * 1_000_000)""",
    )


@submission(RESOURCE)
def prints_without_end_in_a_call(s):
    """Prints a hundred megabytes in a call that is answered rightly."""
    s.put(
        "gate",
        "def gate(x):\n    for _ in range(100):\n        print('a' * 1_000_000)\n    return x * torch.sigmoid(x)",
    )


@submission(RESOURCE)
def prints_many_lines(s):
    """Prints a million short lines and displays a thousand objects."""
    s.own(
        "for n in range(1_000_000):\n    print(n)\n"
        "from IPython.display import display\nfor n in range(1000):\n    display(n)"
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def returns_much(s):
    """Returns an array of two hundred megabytes where a number is wanted."""
    s.put(
        "mean",
        VALUE + "        return np.ones(25_000_000)",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def returns_nested_lists(s):
    """Returns a list in a list, a hundred thousand levels deep, and one that holds itself."""
    s.put(
        "mean",
        """class RunningMean:
    count = 3
    def update(self, x): pass
    @property
    def value(self):
        deep = []
        deep.append(deep)
        for _ in range(100_000):
            deep = [deep]
        return deep""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def returns_colliding_keys(s):
    """Returns a set of three thousand numbers that have all one hash, so that the time to build it is quadratic."""
    s.put(
        "mean",
        VALUE + "        return {(2**61 - 1) * n for n in range(3000)}",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def raises_a_long_error(s):
    """Raises an error with a text of two hundred megabytes and a chain of ten thousand causes."""
    _mean(
        s,
        """        error = ValueError("first")
        for n in range(10_000):
            new = ValueError(n)
            new.__cause__ = error
            error = new
        raise ValueError("x" * 200_000_000) from error""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def opens_many_files(s):
    """Opens files until there are no numbers left, and closes all that it did not open."""
    _mean(
        s,
        """        import os
        try:
            for _ in range(100_000):
                os.open("/dev/null", os.O_RDONLY)
        except OSError:
            os._exit(1)""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def exits_in_a_call(s):
    """Ends its process when it is called."""
    _mean(s, "        import os\n        os._exit(0)")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def exits_in_a_cell(s):
    """Ends its process in the cell of an answer."""
    s.put("mean", "import os\nos._exit(1)\n" + RIGHT["mean"])


@submission(RESOURCE)
def exits_in_its_own_cell(s):
    """Ends its process in a cell of its own, each time it is run."""
    s.own("import os\nos._exit(1)", after="affine")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": "crashed"})
def reads_address_zero(s):
    """Reads from address 0, a segmentation fault."""
    _mean(s, "        import ctypes\n        ctypes.string_at(0)")


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def aborts(s):
    """Calls abort, and asks for a core file of any size."""
    _mean(
        s,
        """        import os, resource
        try: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))
        except Exception: pass
        os.abort()""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": LOST})
def stops_itself(s):
    """Stops itself with SIGSTOP, and its parent with it: neither dead nor alive."""
    _mean(
        s,
        "        import os, signal\n        os.kill(os.getppid(), signal.SIGSTOP)\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)",
    )


@submission(RESOURCE)
def finalises_for_ever(s):
    """Returns right values in objects whose finaliser never returns."""
    s.put(
        "affine",
        RIGHT["affine"]
        + """
class Vjp:
    def __init__(self, f): self.f = f
    def __call__(self, g): return self.f(g)
    def __del__(self):
        while True: pass
keep = []
_affine = affine
def affine(x, w, b):
    y, f = _affine(x, w, b)
    keep.append(Vjp(f))
    return y, keep[-1]""",
    )


@submission(RESOURCE, NO_MEAN, tests={"mean_test": "timeout"})
def answers_slowly(s):
    """Answers each question just before its time is over, for ever: the sum counts, not the single question."""
    s.put(
        "mean",
        """import time
class RunningMean:
    count = 3
    def update(self, x): time.sleep(1.5)
    @property
    def value(self):
        time.sleep(1.5)
        return 3.0""",
    )


@submission(RESOURCE)
def changes_its_limits(s):
    """Raises all its limits, its priority and the alarm clock, and turns off the garbage collector."""
    s.own(
        """import gc, os, resource, signal
gc.disable()
for name in dir(resource):
    if name.startswith("RLIMIT_"):
        try: resource.setrlimit(getattr(resource, name), (-1, -1))
        except Exception: pass
try: os.nice(-20)
except OSError: pass
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)""",
    )
