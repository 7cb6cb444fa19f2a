"""The agent in the student's process: it runs cells there, and answers the grader's questions about what they define.

Nothing that it says is believed. It only has to be hard to confuse by accident: the student's code may rebind built-in
names, close standard output, start threads, change the working directory, raise SystemExit anywhere.
"""

import builtins
import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings

import numpy as np

from . import codec, framing, plain
from .exchange import Exchange, flat, unflat
from .files import MOST_BYTES, MOST_FILES, Folder
from .plugins import CannotSend, Garbled, torch_here
from .printed import Descriptors, Printed

__all__ = ["prepare", "serve"]

_MESSAGE = 2000
_FOREVER = 1e9
_shell = None


class _Closed(BaseException):
    """The grader is gone."""


def prepare() -> None:
    """Do before the fork what every student's process needs: import IPython, and build its shell.

    The module ``__main__`` and the hooks of this process stay as they are.

    Raises
    ------
    ImportError : IPython is not installed.
    """
    global _shell
    if _shell is not None:
        return
    if torch_here():  # torch.autograd.grad imports it when first called: half a second, and a stranger's `builtins`
        with contextlib.suppress(ImportError):
            importlib.import_module("torch.fx.experimental.symbolic_shapes")
    from . import shell

    _shell = shell.make()


def serve(channel: framing.Channel) -> None:
    """Answer questions until the channel closes.

    Parameters
    ----------
    channel : to a `nbreferee.rpc.student.Student` in another process.
    """
    prepare()
    agent = _Agent(channel)
    os.register_at_fork(after_in_child=agent.orphan)
    with contextlib.suppress(_Closed):
        agent.run()
    agent.closed = True


class _Callback:
    """A function of the test. It can be called, with plain values and with what belongs to this process."""

    def __init__(self, agent, number, name):
        self.__agent, self.__number = agent, number
        self.__name__ = self.__qualname__ = name
        self.__doc__ = None

    def __call__(self, *args, **kwargs):
        return self.__agent.ask("call", (self, args, flat(kwargs)))

    def __repr__(self):
        return "<function of the test>"

    def __reduce_ex__(self, protocol):
        raise TypeError("a function of the test cannot be copied or pickled")


class _Iterator(_Callback):
    """An iterator of the test."""

    def __iter__(self):
        return self

    def __next__(self):
        found = self._Callback__agent.ask("next", (self, (), ()))
        if not found:
            raise StopIteration
        return found[0]


class _Agent(Exchange):
    def __init__(self, channel):
        super().__init__(channel, trusted=False)
        self.pid, self.thread, self.closed = os.getpid(), threading.get_ident(), False
        self.shell = _shell
        self.shell.move_in(self)
        self.first = dict(self.shell.user_ns)
        warnings.filterwarnings("ignore", message="To exit: use")
        self.printed, self.descriptors = Printed(), Descriptors()
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = self.printed
        with contextlib.suppress(OSError):
            sys.stdin = open(os.devnull, encoding="utf-8")
        self.cells = {}  # the source of each cell, by the name of its code
        self.errors = []  # errors of the test's functions that this process knows: (error, number)
        self.space, self.theirs, self.theirs_hold = vars(builtins), {}, False
        self.ours, self.input = dict(self.space), self.space["input"]
        self.folder = None  # the working folder, if the grader shares its own
        self.timers = _Timers()
        # Kept here, since the student's code may rebind any of them.
        self.exit, self.getpid, self.ident = os._exit, os.getpid, threading.get_ident
        self.depth, self.get_depth, self.set_depth = (
            sys.getrecursionlimit(),
            sys.getrecursionlimit,
            sys.setrecursionlimit,
        )

    def orphan(self):
        """In a process that the student's code has forked: it has no part in the conversation."""
        self.closed = True
        self.channel.close()

    # ---- the line

    def post(self, data):
        try:
            self.channel.send(data, _FOREVER)
        except framing.TooLong as error:
            raise CannotSend(str(error)) from None
        except framing.WireError:
            raise _Closed from None

    def collect(self):
        while True:
            try:
                return self.channel.receive(_FOREVER)
            except framing.TimedOut:
                continue
            except framing.WireError:
                raise _Closed from None

    def ask(self, verb, payload, label=""):
        if self.ident() != self.thread or self.getpid() != self.pid or not self.level or self.closed:
            raise RuntimeError("a function of the test can be called only while the test waits, and in its thread")
        if self.get_depth() < self.depth:
            self.set_depth(self.depth)
        self.put_aside()
        try:
            return super().ask(verb, payload, label)
        finally:
            self.put_back()

    def broke(self, error):
        self.closed = True
        self.channel.close()
        raise _Closed from None

    def put_aside(self):
        """Built-in names that the student's code has rebound are as they were while this module is at work."""
        if not self.theirs_hold:
            return
        space, ours = self.space, self.ours
        self.theirs = {name: value for name, value in space.items() if name not in ours or ours[name] is not value}
        space.update(ours)
        self.theirs_hold = False

    def put_back(self):
        self.space.update(self.theirs)
        self.theirs_hold = True

    def run(self):
        while True:
            try:
                _, verb, state, node, unpack = self.hear()
            except (Garbled, _Closed):
                raise _Closed from None
            except BaseException:  # a signal handler of the student's raised
                if self.closed:
                    raise _Closed from None
                continue
            self.level = 1
            self.errors = []
            try:
                self.serve(verb, node, state, unpack)
            finally:
                self.over()

    def serve(self, verb, node, state, unpack):
        try:
            payload = unpack(node)
            if verb == "call":
                payload = *payload[:2], unflat(payload[2])
            with self.applied(unpack(state) or {}):
                if verb not in ("cell", "test"):  # of these only the student's own code, not IPython's
                    self.put_back()
                try:
                    found = _VERBS[verb](self, *payload) if verb in _VERBS else self.by_plugin(verb)(*payload)
                finally:
                    if self.level == 1:
                        self.timers.stop()
                    if self.get_depth() < self.depth:
                        self.set_depth(self.depth)
                    self.put_aside()
        except _Closed:
            raise
        except BaseException as error:
            self.check()
            told = self.told(error)
            self.say("!", self.stirred(), told, self.output())
            return
        self.check()
        try:
            self.say("=", self.stirred(), found, self.output())
        except _Closed:
            raise
        except BaseException as error:
            self.say("!", "", self.told(error))

    @contextlib.contextmanager
    def applied(self, modes):
        """The modes of the grader's side, as long as a question takes."""
        with contextlib.ExitStack() as stack:
            if "errors" in modes:
                stack.enter_context(np.errstate(**modes["errors"]))
            if set(modes) - {"errors"}:
                self.plugins.of("torch")
            for plugin in self.plugins:
                plugin.applied(modes, stack)
            yield

    def by_plugin(self, verb):
        return next(plugin.verbs[verb] for plugin in self.plugins if verb in plugin.verbs)

    def check(self):
        """A process that the student's code forked, and forgot to end, ends here."""
        if self.getpid() != self.pid:
            self.exit(0)

    def stirred(self):
        """The verb of a reply: whether the grader should ask for files."""
        return "files" if self.level == 1 and self.folder is not None and self.folder.stirred() else ""

    def output(self):
        return (self.printed.take() + self.descriptors.take(self.printed.limit))[: self.printed.limit]

    def told(self, error):
        """An exception in words: type's name, names of the built-in types that it is, text, own lines, number."""
        number = next((n for known, n in self.errors if known is error), 0)
        kind = type(error)
        names = [base.__name__ for base in kind.__mro__ if base.__module__ in ("builtins", "numpy.linalg")]
        names = tuple(name for name in names if len(name) <= 80)[:50]
        return codec.kind_name(error), names, _text(error), self.trace(error), number

    def failure(self, told):
        ename, names, message, _, number = told
        kind = next((k for k in (getattr(builtins, n, None) for n in names) if k is not None), Exception)
        try:
            error = kind(message)
        except Exception:
            error = RuntimeError(f"{ename}: {message}")
        self.errors.append((error, number))
        return error

    def trace(self, error):
        """The student's own lines that led to the error, the last line of each marked."""
        out = []
        try:
            if isinstance(error, SyntaxError) and error.filename and error.lineno:
                lines = self.cells.get(error.filename)
                if lines is not None:
                    out.append(_excerpt(error.filename, lines, error.lineno, ""))
            step = error.__traceback__
            while step is not None and len(out) < 200:
                code = step.tb_frame.f_code
                lines = self.cells.get(code.co_filename)
                if lines is not None and step.tb_lineno:
                    out.append(_excerpt(code.co_filename, lines, step.tb_lineno, code.co_name))
                step = step.tb_next
        except Exception:
            pass
        if len(out) > 6:
            out[3:-3] = [f"… {len(out) - 6} more …"]
        return "\n".join(out)[: 4 * _MESSAGE]

    # ---- what crosses

    def known(self, kind, number, flags, label):
        return self.one_proxy(number, lambda: (_Iterator if flags == 2 else _Callback)(self, number, kind))

    def number_of(self, value):
        if type(value) in (_Callback, _Iterator):
            return value._Callback__number
        return None

    def outward(self, packer, value):
        handle = packer.keep(value)
        return ("h", plain.kind(value) or handle.kind, handle.number, int(callable(value)))

    # ---- the questions

    def begin(self, limit):
        """A conversation begins, or a test: what the cell before it has left open is closed."""
        self.shell.leave_cell()
        self.printed.limit = limit
        self.printed.take()

    def files(self, changes):
        """Write what the grader's side has written; tell what was written here."""
        if self.folder is None:
            self.folder = Folder(os.getcwd())
        found = self.folder.changes()
        for path in self.folder.left_out:
            print(f"{path} is not seen by tests: at most {MOST_FILES} files and {MOST_BYTES >> 20} MB are, at a time")
        self.folder.write(changes)
        return found

    def lend_input(self, function):
        """``input`` reads what the test gives, or nothing again."""
        self.ours["input"] = function or self.input
        if "input" not in self.theirs:
            self.space["input"] = self.ours["input"]

    def cell(self, source, name, remember=True):
        sys.stdout, sys.stderr = sys.stdout or self.printed, sys.stderr or self.printed
        self.cells[f"<{name}>"] = source.splitlines()
        error = self.shell.run(source, name, remember)
        if isinstance(error, _Closed):
            raise error
        if error is None:
            return "", "", ""
        told = self.told(error)
        return told[0], told[2], told[3]

    def test(self, source, name):
        """A sandboxed test, which is a cell that ``In`` does not hold."""
        return self.cell(source, name, remember=False)

    def names(self, wanted):
        space, missing = self.shell.user_ns, object()
        return [n for n in wanted if n in space and space[n] is not self.first.get(n, missing)]

    def named(self, name):
        space = self.shell.user_ns
        if name not in space:
            raise NameError(f"name {name!r} is not defined")
        return space[name]

    def call(self, target, args, kwargs):
        return target(*args, **kwargs)

    def attribute(self, target, args, kwargs):
        return getattr(target, args[0])

    def set_attribute(self, target, args, kwargs):
        setattr(target, *args)

    def delete_attribute(self, target, args, kwargs):
        delattr(target, *args)

    def item(self, target, args, kwargs):
        return target[args[0]]

    def set_item(self, target, args, kwargs):
        target[args[0]] = args[1]

    def length(self, target, args, kwargs):
        return len(target)

    def iterate(self, target, args, kwargs):
        return _Iterating(iter(target))

    def next(self, target, args, kwargs):
        try:
            return (next(target),)
        except StopIteration:
            return ()

    def enter(self, target, args, kwargs):
        return type(target).__enter__(target)

    def leave(self, target, args, kwargs):
        if not args:
            return bool(type(target).__exit__(target, None, None, None))
        name, bases, text = args
        base = next((getattr(builtins, each) for each in bases if hasattr(builtins, each)), Exception)
        error = type(name, (base,), {"__init__": lambda self, *text: None, "__str__": lambda self: text})(text)
        kind = base if base.__name__ == name else type(error)
        return bool(type(target).__exit__(target, kind, error, None))


_VERBS = {
    "begin": _Agent.begin,
    "files": _Agent.files,
    "input": _Agent.lend_input,
    "cell": _Agent.cell,
    "test": _Agent.test,
    "names": _Agent.names,
    "value": _Agent.named,
    "call": _Agent.call,
    "attribute": _Agent.attribute,
    "set attribute": _Agent.set_attribute,
    "delete attribute": _Agent.delete_attribute,
    "item": _Agent.item,
    "set item": _Agent.set_item,
    "length": _Agent.length,
    "iterate": _Agent.iterate,
    "next": _Agent.next,
    "enter": _Agent.enter,
    "leave": _Agent.leave,
}


class _Timers:
    """Alarms that the student's code has set: what is to go off after its question would strike another answer."""

    kinds = signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF
    strikes = frozenset({"_exit", "alarm", "interrupt_main", "kill", "killpg", "pthread_kill", "raise_signal"})

    def __init__(self):
        self.set, self.threads = signal.setitimer, threading.enumerate

    def stop(self):
        """Stop them all; of the threads only those that are to strike the whole process later."""
        for kind in self.kinds:
            self.set(kind, 0)
        for thread in self.threads():
            if isinstance(thread, threading.Timer) and self.strikes & set(_words(getattr(thread, "function", None))):
                thread.cancel()


def _words(function):
    """The names of a function and of what it mentions."""
    code = getattr(function, "__code__", None)
    return (getattr(function, "__name__", ""), *getattr(code, "co_names", ()))


class _Iterating:
    """An iterator, so that it is sent as a handle even if it is a list's."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __next__(self):
        return next(self.iterator)


def _text(error):
    try:
        text = str(error)
        return text[:_MESSAGE] if type(text) is str else ""
    except BaseException:
        return ""


def _excerpt(filename, lines, number, function):
    where = f"{filename[1:-1]}, line {number}" + (f", in {function}" if function and function != "<module>" else "")
    out = [f"{where}:"]
    for n in range(max(1, number - 1), min(len(lines), number + 1) + 1):
        out.append(f"{'→' if n == number else ' '} {n:3d}  {lines[n - 1]}")
    return "\n".join(out)
