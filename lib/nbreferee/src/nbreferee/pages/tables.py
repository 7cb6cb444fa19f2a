"""Tables of marks and names as CSV, in which no spreadsheet finds a formula."""

import csv
import io
import os
import tempfile
import unicodedata
from pathlib import Path

from ..errors import NbrefereeError
from ..intake.notebook import shown

__all__ = ["TableError", "defused", "number", "save", "write"]

FORMULA = set("=+-@\t\r\n|%") | {"\u2212"}  # U+2212 is the minus sign, which some programs read as a hyphen


class TableError(NbrefereeError):
    """A table cannot be written; the text names the file and the cure."""


def defused(text: str) -> str:
    """A text that no spreadsheet takes for a formula.

    Parameters
    ----------
    text : anything that a student or a file may have chosen.

    Returns
    -------
    The text, behind an apostrophe if it begins like a formula, in whatever width and behind whatever blanks or
    invisible characters. Line breaks become blanks.

    Examples
    --------
    >>> defused("=1+1"), defused(" ＝1"), defused("ada")
    ("'=1+1", "' ＝1", 'ada')
    """
    plain = unicodedata.normalize("NFKC", text)
    skipped = 0
    while skipped < len(plain) and unicodedata.category(plain[skipped])[0] in "ZC" and plain[skipped] not in FORMULA:
        skipped += 1
    risky = skipped < len(plain) and plain[skipped] in FORMULA
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    text = text.encode("utf-8", "replace").decode()
    return "'" + text if risky else text


def number(value: float | None) -> str:
    """Points in decimal figures: at most four behind the point, none that are not needed; None is empty.

    Examples
    --------
    >>> number(0.1 + 0.2), number(3.0), number(None)
    ('0.3', '3', '')
    """
    if value is None:
        return ""
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def write(path: Path | str, rows, *, bom: bool = False) -> None:
    """Write a table as CSV, whole or not at all.

    Every text is defused, and all stands in quotes, so that no program that splits at semicolons finds a formula
    inside one.

    Parameters
    ----------
    path : of the file; what was there is replaced.
    rows : lists of texts, numbers and None.
    bom : whether to begin with a byte order mark, by which Excel knows UTF-8.

    Raises
    ------
    TableError : if the file cannot be written.
    """
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for row in rows:
        writer.writerow([number(v) if v is None or _is_number(v) else defused(str(v)) for v in row])
    save(path, out.getvalue(), bom)


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def save(path: Path | str, text: str, bom: bool = False) -> None:
    """Write a text, whole or not at all; a byte order mark goes before it if asked for."""
    path = Path(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8-sig" if bom else "utf-8", newline="") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise TableError(f"{shown(path.name)} cannot be written ({error.strerror}); check the folder") from None
