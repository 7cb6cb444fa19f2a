"""Beside every figure that a notebook shows, the same figure as vectors, so that `make pdf` can print it sharp.

A page shows pixels. When the build executes a notebook, its kernel also writes each figure as SVG, named by the SHA-256
of the pixels. So the vectors belong to the very picture of the page, also where another run would measure other times.
"""

import base64
import hashlib
from pathlib import Path

LARGEST = 1_000_000  # bytes; a map of many thousand squares is smaller as pixels, and no less sharp


def arguments(folder: Path) -> list[str]:
    """Tell a kernel that starts to keep the vectors of its figures in `folder`, and leave no name in the notebook."""
    return [f"--IPKernelApp.exec_lines=__import__('runpy').run_path({__file__!r})['keep']({str(folder)!r})"]


def keep(folder: str) -> None:
    """From now on write each figure that this kernel shows to `folder` too."""
    from IPython.core import pylabtools

    pixels = pylabtools.retina_figure

    def both(figure, **options):
        shown = pixels(figure, **options)
        if shown is not None:  # an empty figure is not shown
            name = hashlib.sha256(base64.b64decode(shown[0])).hexdigest()
            _write(figure, Path(folder) / f"{name}.svg")
        return shown

    pylabtools.retina_figure = both


def _write(figure, target: Path) -> None:
    """The figure as it was just drawn: laid out anew for SVG, it would look different when it is shown once more."""
    from IPython.core.pylabtools import print_figure
    from matplotlib import rc_context

    layout = figure.get_layout_engine()
    if layout is not None:
        figure.set_layout_engine("none")
    with rc_context({"svg.fonttype": "path"}):  # letters as outlines: a browser may have no such font
        drawn = print_figure(figure, "svg", dpi=2 * figure.dpi).encode()  # dots of what stays pixels, such as a map
    if layout is not None:
        figure.set_layout_engine(layout)
    if len(drawn) <= LARGEST:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(drawn)
