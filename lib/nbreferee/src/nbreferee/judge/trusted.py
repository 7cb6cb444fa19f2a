"""The instructor's side of a notebook: one namespace, as in a kernel, in which given cells and tests run.

Names that an answer is asked for are the student's. They are lent to a cell of the instructor's while it runs, also
to the functions of given cells that it calls, and taken back afterwards. Every other name is the instructor's or is
missing: nothing that a test needs is ever taken from the student because it happens to be there.
"""

import ast
import builtins
import contextlib
import copy
import linecache
import re
import symtable
import sys
import types
from functools import lru_cache

import numpy as np

from ..rpc.plugins import torch_here
from ..rpc.proxies import is_instance, is_subclass
from .job import GIVEN, TEST, UNREADABLE, bound, plain

__all__ = ["Trusted", "compiled", "reads"]

_REBOUND = (type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set)


def compiled(step):
    """(code, code of the last expression or None) of a cell of the instructor's."""
    text, name = plain(step.source), f"<{step.name or step.kind}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    tree = ast.parse(text, name)
    last = None
    if step.kind == TEST and tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
        last = compile(ast.Expression(tree.body.pop().value), name, "eval")
    return compile(tree, name, "exec"), last


@lru_cache(maxsize=1024)
def reads(source: str) -> tuple:
    """The global names that a cell reads and does not bind itself, in the order in which they first stand.

    A cell that is no Python reads none.
    """
    text = plain(source)
    try:
        top = symtable.symtable(text, "cell", "exec")
    except UNREADABLE:
        return ()
    mine = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    read, scopes = set(), [top]
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        read |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (scope is top or s.is_global())}
    read -= mine
    return tuple(name for name in dict.fromkeys(re.findall(r"[^\W\d]\w*", text)) if name in read)


class _Shell:
    """What ``get_ipython()`` gives where there is none: whatever is asked of it, nothing happens."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Trusted:
    """The names of the instructor's side, and which of them are the student's.

    Parameters
    ----------
    steps : of the job.

    Attributes
    ----------
    names : the namespace, the one of a module ``__main__``.
    asked : {name: the answer that is asked for it}, as far as the notebook has come.
    """

    def __init__(self, steps):
        self._main = types.ModuleType("__main__")
        self.names = vars(self._main)
        self.names |= {"__builtins__": builtins, "display": lambda *args, **kwargs: None, "get_ipython": _Shell}
        self.names |= {"isinstance": is_instance, "issubclass": is_subclass}
        self.asked = {}
        self._through, self._read = {}, set()  # name: what the cells read that bind it; what any cell reads
        for step in steps:
            if step.kind in (GIVEN, TEST):
                self._read.update(reads(step.source))
                for name in bound(step.source):
                    self._through.setdefault(name, set()).update(reads(step.source))
        self._lent, self._hidden, self._before, self._copies = {}, {}, None, {}

    def reached(self, step) -> list:
        """The names that a cell reads, itself or by way of what other cells of the instructor's bind."""
        out = dict.fromkeys(reads(step.source))
        waiting = list(out)
        while waiting:
            for name in sorted(self._through.get(waiting.pop(), ())):
                if name not in out:
                    out[name] = None
                    waiting.append(name)
        return list(out)

    def wanted(self, step) -> list:
        """Those that are the student's."""
        return [name for name in self.reached(step) if name in self.asked]

    def lend(self, step, values, *, copies=False) -> None:
        """Make ready for a cell of the instructor's.

        Parameters
        ----------
        step : the cell.
        values : {name: value} of the student's.
        copies : give the cell copies of arrays, lists, …, because an answer may change what it is given.
        """
        wanted = self.wanted(step)
        self._hidden = {name: self.names.pop(name) for name in wanted if name in self.names}
        self._lent = dict(values)
        self._copies = {}
        if copies:
            for name in set(self.reached(step)) & self.names.keys():
                with contextlib.suppress(Exception):  # what cannot be copied: a view of the student's, a graph
                    if isinstance(self.names[name], _plain_kinds()):
                        self._copies[name] = self.names[name], copy.deepcopy(self.names[name])
            self.names.update({name: new for name, (_, new) in self._copies.items()})
        self.names.update(self._lent)
        self._before = dict(self.names)

    def plainly_lent(self) -> list:
        """The names of the student's numbers, strings and containers: a function of his may bind them anew."""
        return [name for name, value in self._lent.items() if isinstance(value, _REBOUND)]

    def refresh(self, values) -> None:
        """Take the student's names as they are now, where the cell has not bound them itself."""
        for name, value in values.items():
            if self.names.get(name) is self._lent.get(name):
                self.names[name] = self._lent[name] = self._before[name] = value

    def settle(self) -> None:
        """Take back what was lent; what the cell has bound is the instructor's from now on."""
        if self._before is None:  # nothing was lent: there was no process of the student's to be had
            return
        names, nothing = self.names, object()
        for name in list(names):
            value = names[name]
            if value is self._before.get(name, nothing):
                if name in self._lent:
                    del names[name]
                elif name in self._copies:
                    names[name] = self._copies[name][0]
            else:
                self.asked.pop(name, None)
        for name, value in self._hidden.items():
            names.setdefault(name, value)
        self._lent, self._hidden, self._before, self._copies = {}, {}, None, {}

    def imports(self, source: str) -> None:
        """Run the import statements of a solution that a test relies on: modules are never the student's."""
        for line in source.split("\n"):
            if line.endswith("*") or self._read & set(bound(line)):
                with contextlib.suppress(Exception):
                    exec(line, self.names)

    def snapshot(self):
        return dict(self.names), dict(self.asked)

    def restore(self, snapshot) -> None:
        """Go back to what there was; functions of given cells see it too, for the namespace stays the same."""
        names, asked = snapshot
        self.names.clear()
        self.names.update(names)
        self.asked = dict(asked)

    @contextlib.contextmanager
    def as_main(self):
        """Be the module ``__main__``, in which unittest and doctest look."""
        before = sys.modules.get("__main__")
        sys.modules["__main__"] = self._main
        try:
            yield
        finally:
            sys.modules["__main__"] = before


def _plain_kinds():
    kinds = (np.ndarray, list, dict, set, bytearray)
    return (*kinds, torch_here().Tensor) if torch_here() else kinds
