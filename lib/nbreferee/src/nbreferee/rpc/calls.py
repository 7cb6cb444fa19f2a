"""A question to the student's code, and what came back, in few words."""

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["TEXT", "Call", "described", "question"]

TEXT = 200  # characters of one description
_ARGUMENT = 60
_DEPTH = 8  # of containers inside one another


@dataclass(frozen=True, slots=True)
class Call:
    """A question to the student's code: what was called (``double(3)``), what came back (``7``, ``ValueError: …``)."""

    what: str
    came: str


def question(label, verb, args, kwargs, plugins=()):
    """A question in words: ``double(3)``."""
    if verb == "call":
        room = max(TEXT - len(label), 40)
        parts = [described(x, _ARGUMENT, plugins) for x in args]
        parts += [f"{key}={described(x, _ARGUMENT, plugins)}" for key, x in kwargs.items()]
        text = ", ".join(parts)
        return f"{label}({text if len(text) < room else text[: room - 3] + '…'})"
    if verb == "attribute":
        return f"{label}.{args[0]}"
    if verb == "length":
        return f"len({label})"
    told = [described(x, _ARGUMENT, plugins) for x in args]
    if verb == "set attribute":
        return f"{label}.{args[0]} = {told[1]}"
    if verb in ("item", "set item"):
        return f"{label}[{told[0]}]" + (f" = {told[1]}" if verb == "set item" else "")
    return f"{label}: {verb}"


def described(value, limit=TEXT, plugins=()):
    """A plain value in few words."""
    text = _words(value, limit, plugins)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _words(value, limit, plugins, depth=0):
    kind = type(value)
    if depth > _DEPTH:
        return "…"
    if kind is np.ndarray:
        few = 0 < math.prod(value.shape) <= 12 and limit > 40
        return _elements(f"array {tuple(value.shape)} {value.dtype}", value.tolist() if few else None)
    if (label := getattr(kind, "_nb_words", None)) is not None:
        return label(value)
    if kind in (list, tuple, set, frozenset, dict):
        return _members(value, limit, plugins, depth + 1)
    if isinstance(value, str | bytes):
        value = value.item() if isinstance(value, np.generic) else value
        return repr(value[:limit]) + ("…" if len(value) > limit else "")
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if kind is int:
        return str(value) if value.bit_length() < 200 else "a large int"
    if value is None or kind is bool or isinstance(value, np.generic | complex):
        return str(value)
    if kind.__module__ in ("datetime", "decimal", "fractions"):
        return str(value)
    for plugin in plugins:
        if (told := plugin.words(value, limit)) is not None:
            return _elements(*told)
    if callable(value):
        name = getattr(value, "__name__", "")
        return name if type(name) is str and name and name != "<lambda>" else "a function"
    return f"a {kind.__name__}"


def _members(value, limit, plugins, depth):
    kind = type(value)
    if kind in (set, frozenset) and not value:
        return repr(value)
    first, last = {list: "[]", tuple: "()"}.get(kind, "{}")
    out = ""
    for i, x in enumerate(value):
        if len(out) > limit:
            return f"{first}{out}, …{last}"
        out += ", " if i else ""
        if kind is dict:
            out += f"{_words(x, 20, plugins, depth)}: "
            x = value[x]
        out += _words(x, max(limit // 2, 20), plugins, depth)
    return f"{first}{out}{',' if kind is tuple and len(value) == 1 else ''}{last}"


def _elements(text, elements):
    return text if elements is None else f"{text}: {_rounded(elements)}"


def _rounded(x):
    if isinstance(x, list):
        return "[" + ", ".join(map(_rounded, x)) + "]"
    return f"{x:.6g}" if isinstance(x, float) else str(x)
