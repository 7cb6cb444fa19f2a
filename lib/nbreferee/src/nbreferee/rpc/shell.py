"""The notebook's shell in the student's process: IPython as a Jupyter kernel has it, without a kernel.

Magics, ``display``, pyplot's figures, ``_``, ``In`` and ``Out`` are as in a notebook that nbclient runs. Of what is
displayed only the text is made, and the value of a cell's last line is kept, not shown.
"""

import builtins
import fnmatch
import importlib
import os
import subprocess
import sys

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display
from IPython.utils.text import SList
from traitlets.config import Config

__all__ = ["Shell", "make"]

INLINE = "module://matplotlib_inline.backend_inline"
TASKS = ("create_task", "ensure_future", "get_running_loop")  # what needs a running loop without an ``await``


class _Compiler(CachingCompiler):
    name = "cell"

    def get_code_name(self, raw_code, transformed_code, number):
        return f"<{self.name}>"


class _Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, *, update=False, **_):
        self._validate_data(data, metadata)
        if "text/plain" in data and not update:
            print(data["text/plain"])

    def clear_output(self, wait=False):
        """What was printed stays."""


class _Hook(DisplayHook):
    """The value of a cell's last line becomes ``_`` and ``Out``; its text, which may be long to make, is not wanted."""

    def __call__(self, result=None):
        self.check_for_underscore()
        if result is not None and not self.quiet():
            self.update_user_ns(result)
            self.fill_exec_result(result)


class _Memory(dict):
    """What ``%store``, ``%cd`` and ``%bookmark`` keep."""

    def keys(self, pattern="*"):
        return fnmatch.filter(dict.keys(self), pattern)

    def __delitem__(self, key):
        self.pop(key, None)


class Shell(InteractiveShell):
    """IPython's shell without files, threads or colours. Its ``agent`` is told before and after each piece of code."""

    compiler_class, display_pub_class, displayhook_class = _Compiler, _Publisher, _Hook

    def init_ipython_dir(self, ipython_dir):
        self.db = _Memory()

    def init_profile_dir(self, profile_dir):
        pass

    def init_virtualenv(self):
        pass

    def move_in(self, agent) -> None:
        """Become the shell of this process, which ``get_ipython`` gives everywhere.

        Parameters
        ----------
        agent : has ``put_back`` and ``put_aside``.
        """
        object.__setattr__(self, "agent", agent)
        for kind in type(self)._walk_mro():
            kind._instance = self
        builtins.display, builtins.__IPYTHON__ = display, True
        sys.path.insert(0, "")  # modules beside the notebook, and those that a cell writes
        os.environ["MPLBACKEND"] = INLINE
        if "matplotlib.pyplot" in sys.modules:  # it was imported before the fork, with another backend
            self.enable_matplotlib("inline")
        elif "matplotlib" in sys.modules:
            sys.modules["matplotlib"].use(INLINE)

    def run(self, source: str, name: str, remember: bool = True):
        """Run a cell.

        Parameters
        ----------
        source, name : its code, and what its lines are called in traces.
        remember : whether it is put into ``In``.

        Returns
        -------
        what it raised, or None.
        """
        sys.modules["__main__"] = self.user_module
        self.compile.name = name
        if remember:
            self.history_manager.store_inputs(self.execution_count, source)
            self.execution_count += 1
        ran = self.run_cell(source, store_history=False)  # which would put the traceback of an error into words
        return ran.error_before_exec or ran.error_in_exec

    def leave_cell(self) -> None:
        """Do what is done at the end of a cell: pyplot's figures are closed."""
        self.events.trigger("post_execute")

    async def run_code(self, code_obj, result=None, *, async_=False):
        self.agent.put_back()
        try:
            return await super().run_code(code_obj, result, async_=async_)
        finally:
            self.agent.put_aside()

    def should_run_async(self, raw_cell, **how):
        tasks = any(word in raw_cell for word in TASKS) and "asyncio.run" not in raw_cell
        return tasks or super().should_run_async(raw_cell, **how)

    def enable_gui(self, gui=None):
        """There are no windows."""

    def ask_exit(self):
        """``exit()`` in a cell does nothing: the cells after it are run too."""

    def showtraceback(self, *args, **kwargs):
        """The agent tells what was raised."""

    showsyntaxerror = showtraceback

    def system(self, command):
        sys.stdout.write(self._output(command, 2))

    system_raw = system_piped = system

    def getoutput(self, command, split=True, depth=0):
        text = self._output(command, depth + 2)
        return SList(text.splitlines()) if split else text

    def _output(self, command, depth):
        done = subprocess.run(
            self.var_expand(command, depth=depth),
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.user_ns["_exit_code"] = done.returncode
        return done.stdout.decode("utf-8", "backslashreplace")


Shell.__name__ = "ZMQInteractiveShell"  # by which programs tell a notebook from a terminal


def make() -> Shell:
    """Build a shell before the fork; ``__main__``, the hooks and built-in names of this process stay as they are."""
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.enable_tip = False
    config.DisplayFormatter.active_types = ["text/plain"]
    main, hook, display = sys.modules["__main__"], sys.excepthook, sys.displayhook
    names = set(vars(builtins))
    try:
        shell = Shell(config=config)
        shell.extension_manager.load_extension("storemagic")
        if "matplotlib.pyplot" in sys.modules:
            importlib.import_module("matplotlib_inline.backend_inline")
        return shell
    finally:
        sys.modules["__main__"] = main
        sys.excepthook, sys.displayhook = hook, display
        for name in set(vars(builtins)) - names:
            delattr(builtins, name)
