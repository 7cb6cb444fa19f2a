"""What a hidden test asked, and what came back, without values: names and shapes of the author's, and little else.

Limits. Of what an answer returned, a shape is shown if its numbers are those of the arguments, and otherwise that it is
another one. The kind of an error, the number of values and their dtypes are shown: a few bits of each question.
"""

import builtins
import re

__all__ = ["answered", "veiled_call"]

AXES = 4  # of a shape that is shown

SHAPE = re.compile(
    r"(?P<text>(?:\w{1,40} ?= ?)?(?:an? )?(?:np\.|torch\.|numpy\.)?"
    r"(?P<type>(?:(?:bool|u?int|b?float|complex)\d*)? ?(?:ndarray|array|[tT]ensor)|(?:bool|u?int|b?float|complex)\d*)?"
    r",? ?(?:of )?(?:shape ?=? ?)?(?:\((?:\d+,(?: ?\d+,)*(?: ?\d+)?)?\)|\[\d+(?:, ?\d+)*\])"
    r"(?:,? ?(?:dtype ?= ?)?(?:torch\.)?(?P<dtype>(?:bool|u?int|b?float|complex)\d*))?)(?:: .*)?",
    re.DOTALL,
)
CALLED = re.compile(
    r"([A-Za-z_]\w{0,60}(?:\.[A-Za-z_]\w{0,60}|\(…\)|\[\d{1,3}\]){0,6})\((.*)\)$",
    re.DOTALL,
)


def veiled_call(text: str) -> str:
    """A call of a hidden test, or what came back, without values: names and shapes stay, the rest becomes an ellipsis.

    Parameters
    ----------
    text : such as a `Call` has.

    Examples
    --------
    >>> veiled_call("attend(array (2, 3) float64: [[1, 2, 3], [4, 5, 6]], 0.25, mask=None)")
    'attend(array (2, 3) float64, …, mask=…)'
    >>> veiled_call("array([[0.5, 0.5]])")
    'array(…)'
    >>> veiled_call("ValueError: the key is 42")
    'ValueError'
    >>> veiled_call("TheKeyIs42Error")
    'an error'
    >>> veiled_call("7")
    '…'
    """
    text = text.strip()
    raised = re.match(r"[A-Za-z_]\w{0,60}(?:Error|Exception|Warning|Exit|Interrupt|Iteration)\b(?=:|$)", text)
    if raised:  # a name that the answer has made up could say anything
        return raised[0] if hasattr(builtins, raised[0]) or raised[0] == "LinAlgError" else "an error"
    if shape := _shape(text):
        return shape
    if len(text) > 2 and text[0] + text[-1] in ("()", "[]"):  # several values came back
        parts = [_shape(part.strip()) or "…" for part in _split(text[1:-1][:1000])]
        return f"{text[0]}{', '.join(parts[:12])}{text[-1]}" if any(part != "…" for part in parts) else "…"
    called = CALLED.match(text)
    if not called:
        return "…"
    if called[1] in ("array", "tensor", "ndarray", "Tensor") or len(text) > 1000:
        return f"{called[1]}(…)"
    parts = [_argument(part.strip()) for part in _split(called[2])]
    return f"{called[1]}({', '.join(parts[:12]) + (', …' if len(parts) > 12 else '')})"


def _shape(text):
    """Type and shape, if the text begins with them. ``(2, 3)`` and ``tensor(5)`` are values."""
    found = SHAPE.fullmatch(text)
    named = found and (found["type"] or found["dtype"] or "shape" in found["text"])
    return found["text"] if named and len(found["text"]) < 200 else ""


def _argument(text):
    keyword = re.match(r"[A-Za-z_]\w{0,40} ?= ?", text)
    return _shape(text) or (f"{keyword[0]}…" if keyword else "…" if text else "")


def _split(text):
    """The parts between the outer commas."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r"""[][(){},]|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", text, re.DOTALL):
        mark = match[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


NUMBERS = re.compile(r"\((?:\d+,(?: ?\d+,)*(?: ?\d+)?)?\)|\[\d+(?:, ?\d+)*\]")


def answered(came: str, what: str) -> str:
    """What came back, `veiled_call`, and without shapes that are not made of the numbers of the arguments' shapes.

    Parameters
    ----------
    came : what a call of a hidden test brought.
    what : the call.

    Examples
    --------
    >>> answered("array (3, 2) float64", "f(array (2, 3) float64)")
    'array (3, 2) float64'
    >>> answered("array (7351, 926) float64", "f(array (2, 3) float64)")
    'array of another shape float64'
    """
    known = {"0", "1", *(n for shape in NUMBERS.findall(veiled_call(what)) for n in re.findall(r"\d+", shape))}

    def kept(shape):
        axes = re.findall(r"\d+", shape[0])
        return shape[0] if len(axes) <= AXES and known.issuperset(axes) else "of another shape"

    return NUMBERS.sub(kept, veiled_call(came))
