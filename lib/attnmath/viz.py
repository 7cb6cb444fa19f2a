"""Figures that read on light and dark pages and for colour-blind readers, and the library's source as a cell output."""

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
import textwrap

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

# Okabe and Ito's hues, dark enough to be read as text: at least 4.5 : 1 on white. A dark page inverts a figure and
# turns its hues back (_static/book.css), and there too the contrast is at least 4.5 : 1.
COLORS = {
    "blue": "#1f77b4",
    "orange": "#a86200",
    "green": "#0b7d5c",
    "red": "#c23b22",
    "purple": "#8e4ba0",
    "sky": "#0a7d99",
}
INK = "#4d4d4d"  # text and axes
WIDTH = 88  # characters of a line of code on a page
WEIGHTS = LinearSegmentedColormap.from_list("weights", [(0.12, 0.47, 0.71, 0.0), (0.12, 0.47, 0.71, 1.0)])


def style() -> None:
    """Set Matplotlib's defaults for the book: transparent figures, dark grey ink, one palette; sharp in a notebook."""
    plt.rcdefaults()
    plt.rcParams.update(
        {
            "figure.figsize": (7.0, 3.6),
            "figure.dpi": 110,
            "figure.facecolor": "none",
            "figure.constrained_layout.use": True,
            "savefig.facecolor": "none",
            "savefig.transparent": True,
            "axes.facecolor": "none",
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "axes.titlesize": "medium",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": plt.cycler(color=list(COLORS.values())),
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "grid.color": INK,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "lines.linewidth": 2.0,
            "font.size": 11,
        }
    )
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()) is not None:
        shell.run_line_magic("config", "InlineBackend.figure_formats = ['retina']")  # twice the pixels, the same size


def attention_map(P, rows, cols, ax=None, *, numbers: bool = False):
    """Draw weights as a map: queries down, keys across, tokens on both axes, 0 clear and 1 full blue.

    Parameters
    ----------
    P : (n, m) weights in [0, 1].
    rows, cols : n and m labels.
    ax : axes to draw into; new ones if None.
    numbers : write each weight into its square, to two digits.

    Returns
    -------
    The axes.
    """
    P = np.asarray(P)
    if P.shape != (len(rows), len(cols)):
        raise ValueError(f"P has shape {P.shape}; expected ({len(rows)}, {len(cols)}), one row per query label")
    if ax is None:
        _, ax = plt.subplots(figsize=(0.42 * len(cols) + 1.4, 0.42 * len(rows) + 1.2))
    ax.imshow(P, cmap=WEIGHTS, vmin=0, vmax=1, aspect="equal")
    ax.set_xticks(range(len(cols)), cols, rotation=90 if max(map(len, map(str, cols))) > 2 else 0)
    ax.set_yticks(range(len(rows)), rows)
    ax.set(xlabel="key", ylabel="query")
    ax.xaxis.set_label_position("top")
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(True)
    if numbers:
        for (i, j), p in np.ndenumerate(P):
            ax.text(j, i, f"{p:.2f}", ha="center", va="center", fontsize="small", color="white" if p > 0.6 else INK)
    return ax


def show_source(f):
    """The source of a library function as a page shows it, highlighted, as a cell's output.

    Decorators, the docstring and the checks of the input are left out (the lines that only call ``_require`` or
    ``wiring``); where ruff is installed, lines are laid out anew to fit a page.

    Parameters
    ----------
    f : a function or class of the library.
    """
    from IPython.display import Code

    lines = inspect.getsource(inspect.unwrap(f)).splitlines(keepends=True)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    for start, end in sorted(_unshown(tree), reverse=True):
        del lines[start - 1 : end]
    return Code(_laid_out("".join(lines[tree.lineno - 1 :])), language="python")


def _unshown(tree):
    """First and last lines of the docstring and of checks; a condition under which there are only checks goes too."""
    if isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant):
        yield tree.body[0].lineno, tree.body[0].end_lineno
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if _checks(statement) and not _checks(node):
                yield statement.lineno, statement.end_lineno


def _checks(node):
    """Whether a statement checks the input and does nothing else."""
    if isinstance(node, ast.If):
        return not node.orelse and all(map(_checks, node.body))
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith(("_require.", "wiring."))


def _laid_out(source):
    """Lines of at most `WIDTH`; a comment that makes its line too long stands above it."""
    far = re.compile(rf"^(?=.{{{WIDTH + 1}}})( *)(.*\S)  (# .*)$", re.M)
    source = far.sub(r"\1\3\n\1\2", source)
    if importlib.util.find_spec("ruff") is None:
        return source
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(WIDTH), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    return done.stdout or source
