"""From the bytes that a student sent to a clean notebook.

Nothing here opens a file, and nothing of the student's is compiled or run: what is odd is repaired with a note, what
cannot be read is refused with a reason. Notes and reasons are plain sentences about untrusted text: escape them before
they become HTML.
"""

import base64
import json
import math
import re
import warnings
from dataclasses import dataclass

import nbformat
from nbformat import v3, v4

from ..errors import NbrefereeError

GRADE_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.: -]{0,254}")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
KINDS = {"code": "code", "markdown": "markdown", "raw": "raw", "heading": "markdown", "html": "markdown"}
PICTURES = {  # how a picture of each type begins
    "image/png": rb"\x89PNG",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8",
    "image/webp": rb"RIFF.{4}WEBP",
}

COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf": "7z",
    b"Rar!": "rar",
    b"\x28\xb5\x2f\xfd": "zstd",
}
FOREIGN = (
    (rb"%PDF", "a PDF document"),
    (rb"\x89PNG|\xff\xd8\xff", "a picture"),
    (rb"\xd0\xcf\x11\xe0|\{\\rtf", "a document of a word processor"),
    (rb"<<<<<<< ", "left in the middle of a Git merge"),
    (rb"version https://git-lfs", "a Git LFS pointer, not what it points at"),
    (rb"\s*<", "a web page, saved in place of the notebook"),
    (rb"#!|# ?%%|import |from |---\s", "a script or a text"),
)


@dataclass(frozen=True)
class ReadLimits:
    """How much of a stranger's file is read.

    Parameters
    ----------
    bytes : size of the file.
    depth : how deeply JSON's lists and objects nest.
    values : how many values the JSON holds; it bounds the memory.
    cells : number of cells.
    source : characters in one cell; a longer cell is emptied and the others stay.
    entries : files that are looked at beside a notebook.

    Examples
    --------
    >>> ReadLimits(cells=50).depth
    64
    """

    bytes: int = 20_000_000
    depth: int = 64
    values: int = 1_000_000
    cells: int = 2_000
    source: int = 500_000
    entries: int = 1_000


DEFAULT = ReadLimits()


class Refused(NbrefereeError):
    """Nothing here can be graded: a state for programs and a sentence, which names the cure, for people.

    Parameters
    ----------
    state : one of missing, ambiguous, unsafe-name, misplaced, not-a-file, unreadable, too-large, empty, compressed,
        not-json, not-a-notebook, wrong-notebook.
    reason : the sentence.

    Examples
    --------
    >>> try:
    ...     raise Refused("empty", "set1.ipynb is empty; submit it again.")
    ... except Refused as refusal:
    ...     refusal.state, str(refusal)
    ('empty', 'set1.ipynb is empty; submit it again.')
    """

    def __init__(self, state, reason):
        super().__init__(state, reason)
        self.state, self.reason = state, reason

    def __str__(self):
        return self.reason


class _Log:
    """What was noticed, each kind once, with the cells that it befell."""

    def __init__(self):
        self.kinds = {}

    def __call__(self, sentence, cell=None):
        self.kinds.setdefault(sentence, []).append(cell)

    def sentences(self):
        out = []
        for sentence, cells in self.kinds.items():
            numbers = [str(n) for n in dict.fromkeys(cells) if n is not None]
            more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
            where = f" (cell{'s' * (len(numbers) > 1)} {', '.join(numbers[:5])}{more})" if numbers else ""
            out.append(f"{sentence}{where}.")
        return tuple(out)


def shown(name: str) -> str:
    """A stranger's name in characters that cannot break a line, a terminal or a look-alike's disguise.

    Parameters
    ----------
    name : any text.

    Returns
    -------
    ASCII, at most 80 characters.

    Examples
    --------
    >>> print(shown("аda\\n"))
    '\\u0430da\\n'
    >>> shown("set1.ipynb")
    'set1.ipynb'
    """
    text = name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._()-]*", name) else ascii(name)
    return text if len(text) <= 80 else text[:77] + "..."


def _decode(data, log):
    encoding = json.detect_encoding(data)
    if encoding == "utf-8-sig":
        log("The file begins with a byte order mark, which was dropped; save it as plain UTF-8")
    elif encoding != "utf-8":
        log(f"The file is encoded as {encoding.upper()} and was converted; save it as UTF-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        log("Some bytes are not UTF-8 and were replaced by a question mark; save the file as UTF-8")
        return data.decode(encoding, "replace")


def _measure(text, name, limits):
    """Refuse by depth and number of values before anything is built of them."""
    plain = text.encode("utf-8", "replace").replace(rb"\\", b"").replace(rb"\"", b"")
    many = Refused(
        "too-large", f"{name} holds more than {limits.values} values; clear all outputs, save and submit again."
    )
    if plain.count(b'"') > 4 * limits.values:
        raise many
    plain = re.sub(rb'"[^"]*"', b"", plain)
    if sum(map(plain.count, (b",", b"[", b"{"))) > limits.values:
        raise many
    depth = 0
    for mark in re.sub(rb"[^][{}]+", b"", plain):
        depth += 1 if mark in b"[{" else -1
        if depth > limits.depth:
            raise Refused(
                "too-large",
                f"{name} nests deeper than {limits.depth} levels; clear all outputs, save and submit again.",
            )


def _parse(text, name, log):
    def constant(word):
        log("NaN or Infinity stood in place of a number and was dropped; nothing needs doing")

    def whole(digits):
        return int(digits) if len(digits) < 19 else huge()

    def real(digits):
        value = float(digits) if len(digits) < 400 else math.inf
        return value if math.isfinite(value) else huge()

    def huge():
        log("A number too large for a notebook was dropped; nothing needs doing")

    def unique(pairs):
        tree = dict(pairs)
        if len(tree) < len(pairs):
            log("A key occurred twice in one object and its last value was taken; save the notebook from Jupyter")
        return tree

    hooks = {"parse_constant": constant, "parse_int": whole, "parse_float": real, "object_pairs_hook": unique}
    try:
        try:
            return json.loads(text, **hooks)
        except json.JSONDecodeError as error:
            if not error.msg.startswith("Invalid control character"):
                raise
            tree = json.loads(text, strict=False, **hooks)
            log("A text holds raw line breaks or control characters; save the notebook from Jupyter")
            return tree
    except RecursionError:
        raise Refused("too-large", f"{name} nests too deeply; clear all outputs, save and submit again.") from None
    except ValueError as error:
        at = getattr(error, "pos", 0)
        cut = at >= len(text.rstrip()) or str(error).startswith("Unterminated string")
        what = "is cut short" if cut else f"is not valid JSON at line {getattr(error, 'lineno', 1)}"
        what = "holds the marks of a Git merge" if "\n<<<<<<< " in text else what
        raise Refused("not-json", f"{name} {what}; open it in Jupyter, save it and submit it again.") from None


def _is_whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _clean(text):
    """Without lone surrogates and NULs, which no file and no interpreter takes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _text(value, number, limits, log):
    if isinstance(value, list):
        parts = [part for part in value if isinstance(part, str)]
        if len(parts) < len(value):
            log("Lines that are no text were dropped; check what remains", number)
        value = "".join(parts)
    elif value is None:
        log("A source is missing and counts as empty; type it again if there was one", number)
        return ""
    elif not isinstance(value, str):
        log("A source is no text and counts as empty; type it again", number)
        return ""
    if len(value) > limits.source:
        log(f"More than {limits.source} characters were left out; move long data out of the cell", number)
        return ""
    clean = _clean(value)
    if clean != value:
        log("Characters that no program can read were replaced; type them again", number)
    return clean


def _flags(meta, number, log):
    """nbgrader's own flags, of the right types; everything else goes."""
    if not isinstance(meta, dict):
        if meta is not None:
            log("Metadata of the wrong shape were dropped; nothing needs doing", number)
        return {}
    tags = meta.get("tags")
    if isinstance(tags, list) and any(tag in ("skip-execution", "raises-exception") for tag in tags if tag):
        log("A tag that changes how a cell runs was dropped; nothing needs doing", number)
    given = meta.get("nbgrader")
    if given is None:
        return {}
    name = given.get("grade_id") if isinstance(given, dict) else None
    if not isinstance(name, str) or not GRADE_ID.fullmatch(name):
        if not isinstance(given, dict) or name is not None or given.get("solution") or given.get("grade"):
            log("nbgrader's flags without a usable grade_id were dropped; compare with the released version", number)
        return {}
    flags = {"grade_id": name, "schema_version": 3}
    for key in ("solution", "grade", "locked", "task"):
        flags[key] = given.get(key) is True
    if flags["grade"]:
        points = given.get("points")
        usable = (_is_whole(points) or isinstance(points, float)) and 0 <= points <= 1e6
        flags["points"] = points if usable else 0
    return {"nbgrader": flags}


def _is_picture(mime, data):
    if not re.fullmatch(r"[A-Za-z0-9+/\s]*+=?=?", data.rstrip()):
        return False
    head = re.sub(r"\s", "", data[:100])[:24]
    return len(head) == 24 and bool(re.match(PICTURES[mime], base64.b64decode(head), re.S))


def _pictures(value, number, log):
    kept = {}
    for name, bundle in value.items() if isinstance(value, dict) else ():
        for mime, data in bundle.items() if isinstance(bundle, dict) else ():
            if isinstance(data, list) and all(isinstance(part, str) for part in data):
                data = "".join(data)
            if mime in PICTURES and isinstance(data, str) and _is_picture(mime, data):
                kept.setdefault(_clean(name)[:255], {})[mime] = data
    if value and len(kept) < (len(value) if isinstance(value, dict) else 1):
        log("Attachments that are no pictures were dropped; attach PNG or JPEG", number)
    return kept


def _cell(raw, number, ids, wants_id, limits, log):
    if not isinstance(raw, dict):
        log("What is no cell was dropped; nothing needs doing", number)
        return None
    kind = raw.get("cell_type")
    if not isinstance(kind, str) or kind not in KINDS:
        runs = any(key in raw for key in ("outputs", "execution_count", "input", "prompt_number"))
        log("A cell of unknown type was read as " + ("code" if runs else "raw text") + "; set its type again", number)
        kind = "code" if runs else "raw"
    body = raw.get("source", raw.get("input") if kind == "code" else None)
    body = _text(body, number, limits, log)
    if kind == "heading":
        level = raw.get("level")
        body = "#" * (level if _is_whole(level) and 1 <= level <= 6 else 1) + " " + " ".join(body.split("\n"))
    kind = KINDS[kind]
    # Not by v4.new_code_cell, which holds each cell against the schema: the whole notebook is, once, in the end.
    cell = nbformat.from_dict({"cell_type": kind, "metadata": _flags(raw.get("metadata"), number, log), "source": body})
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    if kind != "code" and raw.get("attachments"):
        pictures = _pictures(raw["attachments"], number, log)
        if pictures:
            cell["attachments"] = nbformat.from_dict(pictures)
    name = raw.get("id")
    if not isinstance(name, str) or not CELL_ID.fullmatch(name) or name in ids:
        if wants_id:
            log("A cell id is missing, odd or used twice and was given anew; nothing needs doing", number)
        name = None
    else:
        ids.add(name)
    cell["id"] = name
    return cell


def _upgrade(tree, name, limits, log):
    """The cells of format 2 or 3, by way of nbformat, which is handed nothing that it could trip over."""
    sheets, number = [], 0
    for sheet in tree["worksheets"]:
        cells = sheet.get("cells") if isinstance(sheet, dict) else None
        if not isinstance(cells, list):
            log("A worksheet of the wrong shape was dropped; compare with the released version")
            continue
        for raw in cells[: limits.cells + 1 - number]:
            number += 1
            cell = _cell(raw, number, set(), False, limits, log)
            if cell is None:
                continue
            if cell.cell_type == "code":
                old = v3.new_code_cell(input=cell.source, metadata=cell.metadata)
            else:
                old = v3.new_text_cell(cell.cell_type, source=cell.source, metadata=cell.metadata)
            sheets.append(old)
    _count(number, name, limits)
    log("The notebook was of an old format and was converted; save it from a present Jupyter")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            new = nbformat.convert(v3.new_notebook(worksheets=[v3.new_worksheet(cells=sheets)]), 4)
    except Exception:
        raise Refused("not-a-notebook", f"{name} is of an old format; save it from a present Jupyter.") from None
    return [{key: cell[key] for key in ("cell_type", "source", "metadata")} for cell in new.cells]


def _count(number, name, limits):
    if number > limits.cells:
        raise Refused("too-large", f"{name} has more than {limits.cells} cells; delete what is not needed.")


def read(data: bytes, *, name: str = "the file", limits: ReadLimits = DEFAULT) -> tuple[nbformat.NotebookNode, tuple]:
    """Make a clean notebook of untrusted bytes.

    Of the student's metadata only nbgrader's flags stay, and these too are only what the student says. Outputs and
    counts go.

    Parameters
    ----------
    data : the file's content.
    name : how notes call the file.
    limits : how much is read.

    Returns
    -------
    the notebook, in nbformat 4.5, and the notes, sentences about what was repaired.

    Raises
    ------
    Refused : with state empty, compressed, too-large, not-json or not-a-notebook; the reason names the cure.

    Examples
    --------
    >>> notebook, notes = read(b'{"nbformat": 4, "nbformat_minor": 5, "cells": [{"cell_type": "code", "id": "a"}]}')
    >>> print(*notes)
    A source is missing and counts as empty; type it again if there was one (cell 1).
    >>> read(b'{"nbformat": 4, "cells"', name="set1.ipynb")
    Traceback (most recent call last):
    nbreferee.intake.notebook.Refused: set1.ipynb is cut short; open it in Jupyter, save it and submit it again.
    """
    name, log = shown(name), _Log()
    if len(data) > limits.bytes:
        raise Refused(
            "too-large", f"{name} is larger than {limits.bytes / 1e6:g} MB; clear all outputs, save and submit again."
        )
    if not data.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        raise Refused("empty", f"{name} is empty; save the notebook and submit it again.")
    for magic, form in COMPRESSED.items():
        if data.startswith(magic):
            raise Refused("compressed", f"{name} is compressed ({form}); unpack it and submit the notebook itself.")
    for pattern, what in FOREIGN:
        if re.match(pattern, data):
            raise Refused("not-json", f"{name} is {what}; submit the notebook itself, as Jupyter saves it.")
    text = _decode(data, log)
    _measure(text, name, limits)
    tree = _parse(text, name, log)
    if not isinstance(tree, dict) or not isinstance(tree.get("cells", tree.get("worksheets")), list):
        raise Refused("not-a-notebook", f"{name} is JSON but no notebook; submit the file that Jupyter saves.")
    if _is_whole(tree.get("nbformat")) and tree["nbformat"] > 4:
        raise Refused("not-a-notebook", f"{name} is of a newer format; save it in notebook format 4.")
    if _is_whole(tree.get("nbformat")) and tree["nbformat"] < 2:
        raise Refused("not-a-notebook", f"{name} is of format 1; save it from a present Jupyter.")

    minor = tree.get("nbformat_minor")
    if "cells" in tree:
        raws, wants_id = tree["cells"], _is_whole(minor) and minor >= 5
        if not (_is_whole(tree.get("nbformat")) and _is_whole(minor)):
            log("The notebook does not say its format and was read as format 4; save it from Jupyter")
        elif minor > 5:
            log("The notebook is of a newer minor format and was read as 4.5; nothing needs doing")
    else:
        raws, wants_id = _upgrade(tree, name, limits, log), False
    _count(len(raws), name, limits)
    ids = set()
    cells = [_cell(raw, number, ids, wants_id, limits, log) for number, raw in enumerate(raws, 1)]
    cells = [cell for cell in cells if cell is not None]
    if not cells:
        raise Refused("empty", f"{name} has no cells; submit the notebook that was worked on.")
    free = (f"cell-{n}" for n in range(1, 2 * len(cells) + 1) if f"cell-{n}" not in ids)
    for cell in cells:
        cell["id"] = cell["id"] or next(free)
    notebook = v4.new_notebook()
    notebook.cells, notebook.nbformat, notebook.nbformat_minor = cells, 4, 5
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError:
        raise Refused(
            "not-a-notebook", f"{name} cannot be made a valid notebook; save it from Jupyter and submit again."
        ) from None
    return notebook, log.sentences()
