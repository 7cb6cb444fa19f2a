"""Everything a page needs lies beside it: MathJax is copied from an installed package, thebe is dropped.

By default Jupyter Book asks content-delivery networks for MathJax and for thebe. A book should read on a train, from a
stick, and in ten years. The package sphinx-mathjax-offline carries the whole of MathJax 3 (24 MB); the pages need one
script, its fonts and the TeX extensions that it loads on demand (2 MB), and those are copied after the build.
"""

import sysconfig
from pathlib import Path

from sphinx.util.fileutil import copy_asset

PARTS = ("tex-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions")
UNUSED = ("sphinx-thebe.js", "sphinx-thebe.css", "thebelab.css")


def mathjax() -> Path:
    """The folder of MathJax in the installed package (its name has hyphens, so it cannot be imported)."""
    folder = Path(sysconfig.get_path("purelib")) / "sphinx-mathjax-offline" / "static" / "mathjax"
    if not (folder / PARTS[0]).is_file():
        raise FileNotFoundError(f"MathJax is not in {folder}: is sphinx-mathjax-offline installed? (make setup)")
    return folder


def _drop_thebe(app, pagename, templatename, context, doctree):
    def kept(file):
        body = getattr(file, "attributes", {}).get("body") or ""
        return "thebe" not in str(getattr(file, "filename", file)) and "THEBE_JS_URL" not in body

    for key in ("script_files", "css_files"):
        context[key] = [file for file in context.get(key, []) if kept(file)]


def _copy_mathjax(app, error):
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    for part in PARTS:
        source, target = mathjax() / part, static / "mathjax" / part
        target = target if source.is_dir() else target.parent
        target.mkdir(parents=True, exist_ok=True)
        copy_asset(str(source), str(target))
    for name in UNUSED:
        (static / name).unlink(missing_ok=True)


def setup(app):
    app.connect("html-page-context", _drop_thebe, priority=900)
    app.connect("build-finished", _copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
