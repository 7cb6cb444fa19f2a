"""Numbers of a page for its interactive figure: written by the page's own cell, so that both show the same ones."""

import json

import numpy as np


class Shared:
    """What `share` hands to the notebook: invisible in the book, a line of words in a terminal."""

    def __init__(self, kind: str, values: dict):
        self.kind, self.values = kind, values

    def _repr_mimebundle_(self, include=None, exclude=None):
        text = json.dumps(self.values, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
        script = f'<script type="application/json" class="figure-data" data-kind="{self.kind}">{text}</script>'
        return {"text/html": script, "text/plain": repr(self)}

    def __repr__(self):
        return f"numbers for the interactive figure {self.kind!r}: {', '.join(self.values)}"


def _plain(value, digits):
    if isinstance(value, dict):
        return {str(key): _plain(one, digits) for key, one in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    if array.dtype == bool or array.dtype.kind in "iuU":
        return array.tolist()
    if array.dtype.kind != "f":
        return [_plain(one, digits) for one in value]
    if not np.isfinite(array).all():
        raise ValueError("an interactive figure takes finite numbers only: JSON has no nan and no infinity")
    return np.vectorize(lambda x: float(f"{x:.{digits}g}"), otypes=[float])(array).tolist()


def share(kind: str, *, digits: int = 5, **values) -> Shared:
    """Write numbers where the interactive figure of this page finds them; the last line of a cell.

    Parameters
    ----------
    kind : the figure, a script in _ext/static/interactive.
    digits : significant digits that are kept of each number, enough for a picture and equal on every machine.
    values : what the figure needs, by name: numbers, words, arrays, tensors, or lists and dicts of these.

    Returns
    -------
    An object that the notebook shows as data of the page.

    Raises
    ------
    ValueError
        If a number is nan or infinite.

    Examples
    --------
    >>> share("temperature", scores=[2.0, 1.0], words=["a", "b"])
    numbers for the interactive figure 'temperature': scores, words
    """
    return Shared(kind, {name: _plain(value, digits) for name, value in values.items()})
