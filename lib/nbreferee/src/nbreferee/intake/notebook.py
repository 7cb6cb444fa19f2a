"""From the bytes that a student sent to a clean notebook, and from that to the student's answers.

Nothing here opens a file, and nothing of the student's is compiled or run: what is odd is repaired with a note, what
cannot be read is refused with a reason. Notes and reasons are plain sentences about untrusted text: escape them before
they become HTML.
"""

import base64
import json
import math
import re
import warnings
from dataclasses import dataclass, field
from urllib.parse import unquote

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
# Each part ends where the next reference could begin and gives nothing back, so the time is linear in any text.
REFERENCE = re.compile(
    r"""!\[([^][\n]*+)\]\(<?attachment:((?:[^<>"'\n)!]|!(?!\[))++)>?+"""
    r"""(?:\s*+(?<=\s)(?:"[^"\n]*+"|'[^'\n]*+'))?\)"""
)
CODE_STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
TEXT_STUB = "YOUR ANSWER HERE"

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
class Limits:
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
    >>> Limits(cells=50).depth
    64
    """

    bytes: int = 20_000_000
    depth: int = 64
    values: int = 1_000_000
    cells: int = 2_000
    source: int = 500_000
    entries: int = 1_000


DEFAULT = Limits()


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


def read(data: bytes, *, name: str = "the file", limits: Limits = DEFAULT) -> tuple[nbformat.NotebookNode, tuple]:
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


@dataclass(frozen=True)
class Own:
    """A cell of the student's own.

    Parameters
    ----------
    source : its code or text.
    place : the given or solution cell beside which it stands, None at the top.
    before : whether it stands before that cell (an earlier copy of an answer) or after it.
    kind : code, which runs, or markdown.
    """

    source: str
    place: str | None
    before: bool = False
    kind: str = "code"


@dataclass(frozen=True)
class Answers:
    """What a student contributes to an assignment.

    Parameters
    ----------
    cells : for each solution cell of the template, in its order, the student's text, or None where there is none.
    own : the student's own cells in order.
    unanswered : the ids of solution cells that were left as they were handed out.
    notes : sentences about cells that were deleted, doubled, retyped, merged, split or changed.
    pictures : {name: {type: base64}} of the pictures that texts refer to, ``![…](attachment:name)``.
    """

    cells: dict
    own: tuple
    unanswered: tuple
    notes: tuple
    pictures: dict = field(default_factory=dict)

    @property
    def own_code(self):
        """The student's own cells that run."""
        return tuple(own for own in self.own if own.kind == "code")


class _Album:
    """The pictures of a notebook under names of ours, which every Markdown parser reads in the same way."""

    def __init__(self):
        self.pictures, self.names = {}, {}

    def text(self, cell):
        """A cell's text, with the new names; what refers to no picture becomes a link."""
        mine, names = cell.get("attachments") or {}, {}

        def rename(found):
            alt, old = found[1], found[2].strip()
            old = old if old in mine else unquote(old)
            if old not in mine:
                return found[0]
            name = names[old] = names.get(old) or self.name(mine[old])
            return f"![{alt}](attachment:{name})"

        return REFERENCE.sub(rename, cell.source) if mine else cell.source

    def name(self, bundle):
        """The name of a picture, which is a new one if no other is equal to it."""
        key = frozenset(bundle.items())
        if key not in self.names:
            self.names[key] = f"picture-{len(self.names) + 1}.{next(iter(bundle)).partition('/')[2]}"
            self.pictures[self.names[key]] = dict(bundle)
        return self.names[key]


def _normal(text):
    """What two texts have in common that differ only in blanks at the ends of lines, and in blank lines around them."""
    return "\n".join([line.rstrip() for line in text.strip().splitlines()])


def released_text(source, stub):
    """What `nbgrader generate_assignment` makes of a cell: solutions replaced by the stub, hidden tests gone."""
    out, skip = [], False
    for line in source.split("\n"):
        if "BEGIN SOLUTION" in line or "BEGIN HIDDEN TESTS" in line:
            skip = True
            if "BEGIN SOLUTION" in line:
                indent = line[: len(line) - len(line.lstrip())]
                out += [indent + text for text in stub.split("\n")]
        elif "END SOLUTION" in line or "END HIDDEN TESTS" in line:
            skip = False
        elif not skip:
            out.append(line)
    return "\n".join(out)


def _indented(source):
    line = next((line for line in source.split("\n") if line.strip()), "")
    return line[:1] in (" ", "\t")


def _take(copies, kind, stubs, album):
    """(earlier texts, the answer, how) of the cells that carry one id."""
    groups, distinct, stubs = [], {}, {"", *map(_normal, stubs)}
    for cell in (cell for cell in copies if cell.cell_type == kind and _normal(cell.source) not in stubs):
        if groups and kind == "code" and _indented(cell.source):
            groups[-1].append(cell.source)
        else:
            groups.append([album.text(cell)])
    for text in map("\n".join, groups):
        distinct.setdefault(_normal(text), text)
    pieces, split = list(distinct.values()), any(len(group) > 1 for group in groups)
    if pieces and kind != "code":
        return [], "\n\n".join(pieces), "joined" if len(pieces) > 1 else ""
    if pieces:
        return pieces[:-1], pieces[-1], "split" if split else "doubled" if len(pieces) > 1 else ""
    other = [cell.source for cell in copies if cell.cell_type != kind and cell.source.strip()]
    other = [text for text in other if _normal(text) not in stubs]
    if other:
        return [], other[-1], "retyped"
    return [], copies[0].source, "unanswered"


def answers(notebook, template, *, code_stub: str = CODE_STUB, text_stub: str = TEXT_STUB) -> Answers:
    """Take a student's answers out of a notebook, by the instructor's notebook alone.

    Which cells are solutions, and of which type, says the template; the student's flags count for nothing, only the
    ``grade_id`` says which cell is meant (failing that, the cell's own id). Text in a given cell, tests among them, is
    not taken, unless a missing answer was merged into it.

    If an id occurs more than once, empty cells, untouched stubs and cells of another type are set aside first. A cell
    whose first line is indented continues the copy before it (a split cell), equal copies count once, and of what
    remains the last is the answer, because the last definition is the one that held in the student's own notebook; the
    earlier ones run before it as the student's own cells. Copies of a text are joined. If nothing of the right type was
    worked on, the last worked-on cell of another type is the answer.

    Parameters
    ----------
    notebook : the student's, as `read` or `admit` returns it.
    template : the instructor's, source or release version, with nbgrader's metadata.
    code_stub, text_stub : what the course puts in place of solutions, if it is not nbgrader's default.

    Returns
    -------
    Answers. None stands for a cell that is missing: run nothing in its place, since a stub could undo what another cell
    defines.

    Raises
    ------
    Refused : with state wrong-notebook if no cell of the template can be found.

    Examples
    --------
    >>> def cell(text, name=None):
    ...     flags = {"nbgrader": {"grade_id": name, "solution": True}} if name else {}
    ...     return v4.new_code_cell(text, metadata=flags)
    >>> template = v4.new_notebook(cells=[cell("x = ...", "x"), cell("y = ...", "y")])
    >>> mine = v4.new_notebook(cells=[cell("x = 1", "x"), cell("print(x)")])
    >>> got = answers(mine, template)
    >>> got.cells
    {'x': 'x = 1', 'y': None}
    >>> got.own
    (Own(source='print(x)', place='x', before=False, kind='code'),)
    >>> print(*got.notes)
    Solution cell y is missing; put it back from the released version.
    """
    given, plain, album = {}, {""}, _Album()
    for cell in template.cells:
        flags = cell.get("metadata", {}).get("nbgrader", {})
        if flags.get("grade_id"):
            given[flags["grade_id"]] = cell
        else:
            plain.add(_normal(cell.source))
    solutions = [name for name, cell in given.items() if cell.metadata["nbgrader"].get("solution")]
    by_id = {cell.get("id"): name for name, cell in given.items() if cell.get("id")}
    claimed = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells}

    notes, copies, own, place, unknown = [], {name: [] for name in given}, [], None, 0
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name is None and by_id.get(cell.get("id")) not in claimed | {None}:
            name = by_id[cell["id"]]
            if cell.cell_type == given[name].cell_type:
                notes.append(f"Cell {name} has lost its grade_id and was known by its cell id; nothing needs doing.")
            else:
                name = None
        if name in given:
            place = name
            copies[name].append(cell)
            continue
        unknown += name is not None
        if cell.cell_type in ("code", "markdown") and _normal(cell.source) not in plain:
            own.append(Own(album.text(cell), place, kind=cell.cell_type))
    if not any(copies.values()):
        raise Refused(
            "wrong-notebook", "No cell carries an id of this assignment; submit the notebook that was handed out."
        )
    if unknown:
        notes.append(
            f"{unknown} cells carry ids of another version and count as the student's own; nothing needs doing."
        )

    def stub_of(name):
        return code_stub if given[name].cell_type == "code" else text_stub

    released = {name: released_text(cell.source, stub_of(name)).strip() for name, cell in given.items()}
    rest = {}  # what stands in copies of given cells besides what was handed out
    for name, cell in given.items():
        if name in solutions:
            continue
        handed = {_normal(released[name]), _normal(cell.source)}
        texts = [copy.source for copy in copies[name] if _normal(copy.source) not in handed]
        for text in texts:
            if released[name] and released[name] in text and cell.cell_type == "code":
                rest[name] = text.replace(released[name], "", 1).strip("\n")
        if texts:
            notes.append(f"Given cell {name} was changed, and the instructor's version counts; nothing needs doing.")

    order, out, unanswered, before = list(given), {}, [], []
    for name in solutions:
        kind, mine = given[name].cell_type, copies[name]
        if not mine:
            at = order.index(name)
            merged = next((order[n] for n in (at - 1, at + 1) if 0 <= n < len(order) and order[n] in rest), None)
            if merged:
                out[name] = rest.pop(merged)
                notes.append(f"Solution cell {name} was merged into {merged} and was cut out again; split them.")
            else:
                out[name] = None
                notes.append(f"Solution cell {name} is missing; put it back from the released version.")
            continue
        marked = released[name] != given[name].source.strip()
        stubs = [released[name], given[name].source, *([] if marked else [stub_of(name)])]
        earlier, text, how = _take(mine, kind, stubs, album)
        for other in order:  # a test that was merged into the answer
            if kind == "code" and other not in solutions and not copies[other] and given[other].cell_type == "code":
                if released[other] and released[other] in text:
                    text = text.replace(released[other], "", 1).rstrip()
                    notes.append(f"Given cell {other} was merged into {name} and was cut out again; split them.")
        before += [Own(piece, name, before=True) for piece in earlier]
        out[name] = text
        if how == "unanswered":
            unanswered.append(name)
        else:
            sentence = {
                "doubled": "occurs more than once, the last copy counts and the earlier ones run before it; keep one",
                "split": "was split, and its parts were joined; merge them",
                "joined": "occurs more than once, and all its texts count; merge them",
                "retyped": f"is no longer {kind} and was read as such; set its type again",
            }.get(how)
            if sentence:
                notes.append(f"Solution cell {name} {sentence}.")

    for name in solutions:  # an answer in words that goes on, or stands whole, in cells below its own
        more = [cell for cell in own if cell.kind == given[name].cell_type == "markdown" and cell.place == name]
        if more:
            answered = name not in unanswered and out[name] is not None
            out[name] = "\n\n".join([*([out[name]] if answered else []), *(cell.source for cell in more)])
            unanswered = [other for other in unanswered if other != name]
            own = [cell for cell in own if cell.kind != "markdown" or cell.place != name]
            notes.append(f"Solution cell {name} is followed by texts, which count with it; merge them.")
    silent = [name for name in unanswered if given[name].cell_type == "markdown"]
    if silent and not all(cell.kind == "code" for cell in own):
        notes.append(f"Texts stand elsewhere, while {', '.join(silent)} is not answered; see the autograded notebook.")

    definition = re.compile(r"^(?:def|class)\s+(\w+)", re.M)
    defined = {name: definition.search(released[name]) for name in solutions if out[name] is None}
    holders = {}
    for other in solutions if any(defined.values()) else ():
        for found in definition.finditer(out[other] or ""):
            holders.setdefault(found[1], other)
    for name, wanted in defined.items():
        if wanted:
            holder = holders.get(wanted[1])
            if holder:
                notes.append(f"Solution cell {name} seems to be merged into {holder}, where it runs; split them.")
    gone = [name for name in order if name not in solutions and not copies[name]]
    if gone:
        held = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
        notes.append(f"Given cells are missing and the instructor's count ({held}); nothing needs doing.")
    places = {name: n for n, name in enumerate(order)}
    everything = sorted(before + own, key=lambda cell: (places.get(cell.place, -1), not cell.before))
    return Answers(out, tuple(everything), tuple(unanswered), tuple(notes), album.pictures)
