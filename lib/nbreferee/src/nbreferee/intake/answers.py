"""What a student contributes to an assignment, taken out of a clean notebook by the instructor's notebook alone."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote

from .notebook import Refused

__all__ = ["CODE_STUB", "TEXT_STUB", "Answers", "Own", "answers", "released_text"]

# Each part ends where the next reference could begin and gives nothing back, so the time is linear in any text.
REFERENCE = re.compile(
    r"""!\[([^][\n]*+)\]\(<?attachment:((?:[^<>"'\n)!]|!(?!\[))++)>?+"""
    r"""(?:\s*+(?<=\s)(?:"[^"\n]*+"|'[^'\n]*+'))?\)"""
)
CODE_STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
TEXT_STUB = "YOUR ANSWER HERE"
DEFINITION = re.compile(r"^(?:def|class)\s+(\w+)", re.M)
HOW = {  # an answer came to be one
    "doubled": "occurs more than once, the last copy counts and the earlier ones run before it; keep one",
    "split": "was split, and its parts were joined; merge them",
    "joined": "occurs more than once, and all its texts count; merge them",
    "retyped": "is no longer {kind} and was read as such; set its type again",
}


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

    cells: dict[str, str | None]
    own: tuple[Own, ...]
    unanswered: tuple[str, ...]
    notes: tuple[str, ...]
    pictures: dict[str, dict[str, str]] = field(default_factory=dict)

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
    groups, distinct = [], {}
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


class _Handed:
    """What was handed out: the given and solution cells of the instructor's notebook, as students find them."""

    def __init__(self, template, code_stub, text_stub):
        self.stubs = {"code": code_stub, "markdown": text_stub}
        self.cells, self.plain = {}, {""}
        for cell in template.cells:
            name = cell.get("metadata", {}).get("nbgrader", {}).get("grade_id")
            if name:
                self.cells[name] = cell
            else:
                self.plain.add(_normal(cell.source))
        self.solutions = [name for name, cell in self.cells.items() if cell.metadata["nbgrader"].get("solution")]
        self.given = [name for name in self.cells if name not in self.solutions]
        self.by_id = {cell.get("id"): name for name, cell in self.cells.items() if cell.get("id")}
        self.texts = {name: self._text(name).strip() for name in self.cells}

    def _text(self, name):
        source, stub = self.cells[name].source, self.stubs.get(self.kind(name), self.stubs["markdown"])
        if name in self.solutions and "BEGIN SOLUTION" not in source:
            return stub
        return released_text(source, stub)

    def kind(self, name):
        return self.cells[name].cell_type

    @cached_property
    def neighbours(self):
        """{name: the cells that stand before and behind it}."""
        order = list(self.cells)
        return {name: order[max(n - 1, 0) : n] + order[n + 1 : n + 2] for n, name in enumerate(order)}


class _Taking:
    """The answers of one notebook, as far as they are taken out of it; a step after the other, in this order."""

    def __init__(self, notebook, handed):
        self.handed, self.album = handed, _Album()
        self.notes, self.own, self.earlier, self.cells, self.unanswered = [], [], [], {}, []
        self.copies = {name: [] for name in handed.cells}
        self.sort(notebook)
        self.rest = self.changes()
        for name in handed.solutions:
            self.cells[name] = self.answer(name) if self.copies[name] else self.missing(name)
        self.texts_below()
        self.tell()

    def note(self, sentence):
        self.notes.append(sentence)

    def sort(self, notebook):
        """Copies of the cells that were handed out, and the student's own."""
        claimed = {_name(cell) for cell in notebook.cells} | {None}
        place, unknown = None, 0
        for cell in notebook.cells:
            name = _name(cell)
            if name is None and (lost := self.handed.by_id.get(cell.get("id"))) not in claimed:
                if cell.cell_type == self.handed.kind(lost):
                    self.note(f"Cell {lost} has lost its grade_id and was known by its cell id; nothing needs doing.")
                    name = lost
            if name in self.copies:
                place = name
                self.copies[name].append(cell)
                continue
            unknown += name is not None
            if cell.cell_type in ("code", "markdown") and _normal(cell.source) not in self.handed.plain:
                self.own.append(Own(self.album.text(cell), place, kind=cell.cell_type))
        if self.copies and not any(self.copies.values()):
            reason = "No cell carries an id of this assignment; submit the notebook that was handed out."
            raise Refused("wrong-notebook", reason)
        if unknown:
            what = "cells carry ids of another version and count as the student's own; nothing needs doing."
            self.note(f"{unknown} {what}")

    def changes(self):
        """{given cell: what stands in its copy besides what was handed out}."""
        rest = {}
        for name in self.handed.given:
            given, source = self.handed.texts[name], self.handed.cells[name].source
            known = {_normal(given), _normal(source)}
            texts = [copy.source for copy in self.copies[name] if _normal(copy.source) not in known]
            for text in texts:
                if given and given in text and self.handed.kind(name) == "code":
                    rest[name] = text.replace(given, "", 1).strip("\n")
            if texts:
                self.note(f"Given cell {name} was changed, and the instructor's version counts; nothing needs doing.")
        return rest

    def missing(self, name):
        """The answer that stands in a given cell beside its own place, which is gone; or None."""
        if merged := next((other for other in self.handed.neighbours[name] if other in self.rest), None):
            self.note(f"Solution cell {name} was merged into {merged} and was cut out again; split them.")
            return self.rest.pop(merged)
        self.note(f"Solution cell {name} is missing; put it back from the released version.")
        return None

    def answer(self, name):
        """The answer among the copies of its cell."""
        kind = self.handed.kind(name)
        earlier, text, how = _take(self.copies[name], kind, {"", _normal(self.handed.texts[name])}, self.album)
        for other in self.handed.given if kind == "code" else ():  # a test that was merged into the answer
            given = self.handed.texts[other]
            if not self.copies[other] and self.handed.kind(other) == "code" and given and given in text:
                text = text.replace(given, "", 1).rstrip()
                self.note(f"Given cell {other} was merged into {name} and was cut out again; split them.")
        self.earlier += [Own(piece, name, before=True) for piece in earlier]
        if how == "unanswered":
            self.unanswered.append(name)
        elif how:
            self.note(f"Solution cell {name} {HOW[how].format(kind=kind)}.")
        return text

    def texts_below(self):
        """An answer in words that goes on, or stands whole, in cells below its own."""
        for name in self.handed.solutions:
            if self.handed.kind(name) != "markdown":
                continue
            if more := [cell for cell in self.own if cell.kind == "markdown" and cell.place == name]:
                answered = name not in self.unanswered and self.cells[name] is not None
                texts = [*([self.cells[name]] if answered else []), *(cell.source for cell in more)]
                self.cells[name] = "\n\n".join(texts)
                self.unanswered = [other for other in self.unanswered if other != name]
                self.own = [cell for cell in self.own if (cell.kind, cell.place) != ("markdown", name)]
                self.note(f"Solution cell {name} is followed by texts, which count with it; merge them.")

    def tell(self):
        """What is worth a note without changing an answer."""
        silent = [name for name in self.unanswered if self.handed.kind(name) == "markdown"]
        if silent and any(cell.kind != "code" for cell in self.own):
            where = f"while {', '.join(silent)} is not answered; see the autograded notebook."
            self.note(f"Texts stand elsewhere, {where}")
        defines = {
            name: DEFINITION.search(self.handed.texts[name]) for name, text in self.cells.items() if text is None
        }
        holders = {}
        for other, text in self.cells.items() if any(defines.values()) else ():
            for found in DEFINITION.finditer(text or ""):
                holders.setdefault(found[1], other)
        for name, found in defines.items():
            if found and found[1] in holders:
                where = f"merged into {holders[found[1]]}, where it runs; split them."
                self.note(f"Solution cell {name} seems to be {where}")
        if gone := [name for name in self.handed.given if not self.copies[name]]:
            held = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
            self.note(f"Given cells are missing and the instructor's count ({held}); nothing needs doing.")

    def result(self):
        places = {name: n for n, name in enumerate(self.handed.cells)}
        own = sorted(self.earlier + self.own, key=lambda cell: (places.get(cell.place, -1), not cell.before))
        return Answers(self.cells, tuple(own), tuple(self.unanswered), tuple(self.notes), self.album.pictures)


def _name(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


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
    notebook : the student's, as `nbreferee.intake.notebook.read` or `nbreferee.intake.gate.admit` returns it.
    template : the instructor's source, with nbgrader's metadata. What nbgrader releases of it is what counts as
        untouched: a text that equals the model answer is an answer.
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
    >>> from nbformat import v4
    >>> def cell(text, name=None):
    ...     flags = {"nbgrader": {"grade_id": name, "solution": True}} if name else {}
    ...     return v4.new_code_cell(text, metadata=flags)
    >>> template = v4.new_notebook(cells=[cell("x = 2", "x"), cell("y = 3", "y")])
    >>> mine = v4.new_notebook(cells=[cell("x = 1", "x"), cell("print(x)")])
    >>> got = answers(mine, template)
    >>> got.cells
    {'x': 'x = 1', 'y': None}
    >>> got.own
    (Own(source='print(x)', place='x', before=False, kind='code'),)
    >>> print(*got.notes)
    Solution cell y is missing; put it back from the released version.
    """
    return _Taking(notebook, _Handed(template, code_stub, text_stub)).result()
