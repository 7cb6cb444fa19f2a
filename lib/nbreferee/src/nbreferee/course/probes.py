"""Answers that are right but for what they return, to find tests that look at nothing.

Each is the instructor's own solution, of which every value is replaced, and every change of an argument is lost: by
nothing, zero, zeros, NaN, or an array without entries. An empty array passes whatever ``(abs(got - want) < tol).all()``
asks, and one of zeros whatever is compared with zeros.
"""

import nbformat

from ..judge.job import bound

__all__ = ["KINDS", "probe"]

KINDS = {
    "nothing": "None",
    "none": "None for each value",
    "zero": "the number 0",
    "zeros": "zeros of the right shape",
    "nan": "NaN of the right shape",
    "empty": "arrays without entries",
}

SOURCE = """

def _nbreferee_probe(kind, names, space):
    import contextlib, copy, functools, sys, types
    import numpy as np

    torch = sys.modules.get("torch")
    whole = {}  # what an object of a class was before its values were replaced

    def blank(x):
        if isinstance(x, tuple | list) and type(x) in (tuple, list):
            return type(x)(map(blank, x))
        if isinstance(x, dict):
            return {key: blank(value) for key, value in x.items()}
        if isinstance(x, types.FunctionType | types.MethodType | functools.partial):
            return hollow(x)
        if kind == "none":
            return None
        if kind == "zero":
            return 0.0
        if torch and isinstance(x, torch.Tensor):
            x = x.detach()
            if kind == "nan" and x.is_floating_point():
                return torch.full_like(x, float("nan"))
            return torch.zeros_like(x) if kind != "empty" else x.new_zeros((0, *x.shape))
        if isinstance(x, np.ndarray | np.generic | int | float | complex):
            x = np.asarray(x)
            if kind == "nan":
                return np.full(x.shape, np.nan)[()]
            return np.zeros_like(x)[()] if kind == "zeros" else np.zeros((0, *x.shape), x.dtype)
        return None

    def copied(x):
        try:
            return copy.deepcopy(x)
        except Exception:
            return x

    def hollow(function):
        @functools.wraps(function)
        def probe(*args, **kwargs):
            args = [whole[id(arg)][1] if id(arg) in whole else copied(arg) for arg in args]
            try:
                result = function(*args, **{key: copied(value) for key, value in kwargs.items()})
            except Exception:
                return blank(0.0)
            return None if kind == "nothing" else blank(result)

        return probe

    def begun(init):
        @functools.wraps(init)
        def probe(self, *args, **kwargs):
            init(self, *args, **kwargs)
            whole[id(self)] = self, copied(self)
            for name, value in list(vars(self).items()):
                with contextlib.suppress(Exception):
                    if not name.startswith("_"):
                        object.__setattr__(self, name, blank(value))
            for value in getattr(self, "_parameters", {}).values():
                with contextlib.suppress(Exception):
                    value.data = blank(value.data)

        return probe

    for name in names:
        value = space.get(name)
        if isinstance(value, type):
            for key, function in list(vars(value).items()):
                if isinstance(function, types.FunctionType):
                    setattr(value, key, begun(function) if key == "__init__" else hollow(function))
                elif isinstance(function, staticmethod | classmethod):
                    setattr(value, key, type(function)(hollow(function.__func__)))
        elif callable(value):
            space[name] = hollow(value)
        elif name in space:
            space[name] = None if kind == "nothing" else blank(value)


"""


def probe(cell: nbformat.NotebookNode, answer: str, kind: str) -> str:
    """An answer whose values are replaced.

    Parameters
    ----------
    cell : the answer's cell in the instructor's notebook.
    answer : the instructor's own.
    kind : a key of `KINDS`.

    Returns
    -------
    Code; of a written answer the answer as it is.
    """
    if cell.cell_type != "code":
        return answer
    names = bound(answer, imports=False)
    return f"{answer}\n{SOURCE}_nbreferee_probe({kind!r}, {list(names)!r}, globals())\n"
