"""Whose words a failed test speaks, and which of them a student may read when the test is hidden.

The author's words are what the author wrote: the message of an ``assert``, of a ``raise``, or of an ``err_msg`` or
``msg`` that is given to somebody else's assertion (NumPy's, PyTorch's, unittest's, pandas'). What such a library says
itself, ``ACTUAL: … DESIRED: …``, holds the values that a hidden test hides. So it is dropped there.

Of an author's own message the holes remain, ``f"{name} has shape {got.shape}"``: the answer decides what stands in
them. In a hidden test the literal parts pass, and in the holes a few short numbers and known names.

A shape is shown whole if it has no more axes than the shape that the same message expects, and in fixed words if it
has more; the expected one is the author's.

Limits. A message of a hidden test has room for six numbers of three digits (some 20 bits each), four known names (8)
and 40 marks (4): up to about 350 bits, of which the answer decides where it returns a text that the message prints, and
some 20 for each number otherwise. So a determined student learns a few digits of a hidden input in each round of
grading. The choice among the author's own messages tells something, too, and so do the kind of an error that an answer
raises, the line that raised it, the time it took, the dtype and shape of what it returned, and the verdict's state.
Nothing longer comes out.
"""

import ast
import builtins
import dis
import linecache
import os
import re
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path

__all__ = ["Authors", "bounded", "forms", "unpacked", "veiled"]

ROOM = {"number": 6, "name": 4, "mark": 40}  # what the holes of one message may show in all
DIGITS = 3
MESSAGES = ("err_msg", "msg", "message", "reason")  # how assertions of libraries call the author's message
OURS = str(Path(__file__).parents[1])
INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
NUMBER = r"[-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?"
TOKEN = re.compile(
    rf"(?P<many>[\[(]\s*(?:{NUMBER}(?:\s*,\s*|\s+)){{4,}}{NUMBER}\s*,?\s*[\])]?)|(?P<number>{NUMBER})|(?P<name>[^\W\d]\w*(?:\.\w+)*)"
    r"|(?P<space>\s)\s*|(?P<mark>[][(){},.:;=<>'\"-])|(?P<other>.)",
    re.DOTALL,
)
AXES = 8  # of a shape that an author may expect
SHAPE = re.compile(r"(?:torch\.Size\()?(?:\(\)|\[\]|[\[(]\s*\d+(?:\s*,\s*\d+)*\s*,?\s*[\])])(?:(?<=\])\))?")
EXPECTED = re.compile(r"\b(?:expected|should|must|wanted|instead of)\b")
BEFORE = re.compile(r"\b(?:expected|(?:should|must) (?:be|have)|wanted|instead of)(?: (?:a |the )?shape)?[ :]*\Z")
DEEPER = "(more axes than expected)"
KNOWN = frozenset(dir(builtins)) | {
    *"array ndarray tensor Tensor dtype shape float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8".split(),
    *"complex64 complex128 nan inf DID NOT RAISE LinAlgError DataFrame Series Index".split(),
}  # fmt: skip


class Authors:
    """Who wrote the code that a test runs: the instructor, or somebody else.

    Parameters
    ----------
    cells : the file names of the instructor's cells.
    packages : packages of the course that are installed like others. Modules outside Python's own folders are the
        course's anyway.
    """

    def __init__(self, cells, packages=()):
        self.cells, self.packages = frozenset(cells), frozenset(packages)

    def wrote(self, frame) -> bool:
        """Whether a frame runs the instructor's code."""
        name = frame.f_code.co_filename
        if name in self.cells:
            return True
        if name.startswith((OURS, "<")):
            return False
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        return package in self.packages or not _installed(name)

    def words(self, error: BaseException) -> str | None:
        """What the author says by an error, or None if he did not raise it himself and gave no message."""
        frames, step = [], error.__traceback__
        while step is not None:
            frames.append((step.tb_frame, step.tb_lasti))
            step = step.tb_next
        last = max((n for n, (frame, _) in enumerate(frames) if self.wrote(frame)), default=None)
        if last is None:
            return None
        frame, at = frames[last]
        if last == len(frames) - 1:
            raises = dis.opname[frame.f_code.co_code[at]] == "RAISE_VARARGS"  # of an assert too
            return _text(error) if raises else None
        given = (_given(frame) for frame, _ in frames[last + 1 :])
        said = next((said for said in given if said is not None), None)
        return said if type(said) is str and said else None

    def sources(self, error: BaseException) -> tuple:
        """The instructor's modules that led to an error, as text; his cells are not among them."""
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        files = dict.fromkeys(f.f_code.co_filename for f in frames if self.wrote(f))
        return tuple("".join(linecache.getlines(name)) for name in files if name not in self.cells)


@lru_cache(maxsize=256)
def _installed(name):
    """Whether a file belongs to Python or to an installed package."""
    if INSTALLED.search(name):
        return True
    return os.path.realpath(name).startswith(os.path.realpath(sysconfig.get_path("stdlib")) + os.sep)


def _given(frame):
    """The author's message among the arguments of a library's function; None if it takes none."""
    names = dict(frame.f_locals)
    for each in ("kwds", "kwargs"):
        names |= names[each] if isinstance(names.get(each), dict) else {}
    return next((names[name] or "" for name in MESSAGES if name in names), None)


def _text(error):
    try:
        return str(error).strip()
    except Exception:  # a number of five thousand digits, for example
        return "a text that cannot be shown"


@lru_cache(maxsize=64)
def _vocabulary(source):
    """(the literal texts of a source, its names)."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(), frozenset()
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return frozenset(text for text in texts if re.search(r"[^\W\d]", text) and len(text) < 1000), frozenset(names)


def veiled(text: str, sources, room: dict = ROOM) -> str:
    """A message of a hidden test: the author's literal words, and little of what stands in their holes.

    Parameters
    ----------
    text : the message.
    sources : the author's code, in which the literal words stand.
    room : how many numbers, known names and marks the holes may show.

    Examples
    --------
    >>> code = 'assert ok, f"{name} has shape {got.shape}; expected {want}, {got}"'
    >>> veiled("W has shape (7, 3, 5, 1, 9, 2, 6, 4); expected 0.73519264, kestrel", (code,))
    '… has shape …; expected 0.735, …'
    >>> veiled("W has shape (128, 64); expected (64, 128)", (code,))
    '… has shape (128, 64); expected (64, 128)'
    >>> veiled("W has shape (7, 3, 5); expected (64, 128)", (code,))
    '… has shape (more axes than expected); expected (64, 128)'
    """
    texts, names = set(), set(KNOWN)
    for source in sources:
        more, others = _vocabulary(source)
        texts |= more
        names |= others
    spans = sorted(_literals(text, texts))
    expected = _expected(text, spans) if room is ROOM else None  # in another process the answer could write it
    sizes, room = (_axes(expected[0]) if expected else None), dict(room)
    if expected:
        spans = sorted([*spans, expected.span()])
    out, at = [], 0
    for start, end in spans:
        out += [bounded(text[at:start], names, room, sizes), text[start:end]]
        at = end
    return _joined([*out, bounded(text[at:], names, room, sizes)])


def _expected(text, spans):
    """The shape that stands where the author says what is expected; None if that is not plain."""
    if len(EXPECTED.findall(text)) != 1:  # an answer's own text may say it, too
        return None
    ends = [end for start, end in spans if BEFORE.search(text[start:end])]
    found = SHAPE.match(text, ends[0]) if ends else None
    return found if found and len(_axes(found[0])) <= AXES else None


def _axes(shape):
    return re.findall(r"\d+", shape)


def _literals(text, texts):
    """Where the author's texts stand as whole words: the longest first, so that none takes a part of a longer one.

    Each stands once: their order could tell something, too.
    """
    taken = []
    for literal in sorted(texts, key=lambda literal: (-len(literal), literal)):
        for match in _whole(literal).finditer(text):
            start, end = match.span()
            if all(end <= first or last <= start for first, last in taken):
                taken.append((start, end))
                break
    return taken


@lru_cache(maxsize=4096)
def _whole(text):
    before, after = r"(?<!\w)" * bool(re.match(r"\w", text)), r"(?!\w)" * bool(re.search(r"\w\Z", text))
    return re.compile(before + re.escape(text) + after)


def bounded(text: str, names=KNOWN, room: dict | None = None, sizes=None) -> str:
    """What an answer may have put into a message: short numbers and known names, as long as there is room.

    Parameters
    ----------
    text : what stands in a hole.
    names : those that are known.
    room : how many numbers, names and marks it may show; what it shows is taken off.
    sizes : of the shape that the message expects, as texts: a shape is shown if it has no more axes. None: it expects
        none.

    Examples
    --------
    >>> bounded("0.7351926408 and 12 in float64")
    '0.735 … 12 … float64'
    """
    room = dict(ROOM) if room is None else room  # that of a whole message is used up hole by hole
    out, at = [], 0
    if sizes is not None:
        for shape in SHAPE.finditer(text):
            out += [bounded(text[at : shape.start()], names, room), _shown(shape[0], room, sizes)]
            at = shape.end()
    for match in TOKEN.finditer(text, at):
        kind, token = match.lastgroup, match[0]
        known = kind in ("number", "mark") or (kind == "name" and names.issuperset(token.split(".")))
        if kind == "space":
            out.append(" ")
        elif known and room[kind] > 0:
            room[kind] -= 1
            out.append(_short(token) if kind == "number" else token)
        else:
            out.append("…")
    return _joined(out)


def _shown(shape, room, sizes):
    """A shape, or in fixed words that it has more axes than were expected; a long axis as a number is shown."""
    n = len(_axes(shape))
    if n > len(sizes):
        return DEEPER
    if n > room["number"]:
        return "…"
    room["number"] -= n
    return re.sub(r"\d+", lambda axis: axis[0] if axis[0] in sizes else _short(axis[0]), shape)


def _short(number):
    digits = number.lstrip("+-").replace(".", "").lstrip("0")
    return number if len(digits) <= DIGITS and len(number) <= 8 else f"{float(number.replace('_', '')):.{DIGITS}g}"


def _joined(parts):
    return re.sub(r"…(?:\s*…)+", "…", "".join(parts))


@lru_cache(maxsize=64)
def forms(source: str) -> tuple:
    """Regular expressions of the messages that a test's own text can give: its strings, with numbers in the holes."""
    out = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [
                re.escape(part.value) if isinstance(part, ast.Constant) else r"[-+0-9.,e() ]{0,40}"
                for part in node.values
            ]
            out.append(re.compile("".join(parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) >= 12:
            out.append(re.compile(re.escape(node.value)))
    return tuple(out)


def unpacked(text: str) -> str:
    """In plain words what Python says when a test takes apart what an answer returned; nothing if it says other things.

    Examples
    --------
    >>> unpacked("too many values to unpack (expected 2)")
    'your code returned more than the 2 values that the test takes'
    """
    found = re.match(r"(too many|not enough) values to unpack \(expected (?:at least )?(\d+)", text)
    if found:
        values = f"the {found[2]} values" if found[2] != "1" else "the one value"
        return f"your code returned {'more' if found[1] == 'too many' else 'fewer'} than {values} that the test takes"
    if text.startswith("cannot unpack non-iterable"):
        return "your code returned one thing where the test takes several values; return a tuple"
    return ""
