"""Everything a page needs lies beside it, and a page loads nothing that it does not use.

By default Jupyter Book asks content-delivery networks for MathJax and for thebe. A book should read on a train, from a
stick, and in ten years. Thebe is dropped here, and mathematics.py sets the formulas when the book is built.

The theme writes the tags of some scripts into its templates, where no event can take them out. So the templates are
changed as they are read. FontAwesome's script (543 kB compressed) draws icons that the web font draws without it. The
search tools and the index of all words (228 kB) serve a search in a box that opens on every page, which this book does
not have: its field leads to the search page, which has a search of its own (searching.py).
"""

import re
from pathlib import Path

from jinja2 import BaseLoader, TemplateNotFound

UNUSED = (
    "sphinx-thebe.js",
    "sphinx-thebe.css",
    "thebelab.css",
    "scripts/fontawesome.js",
    "scripts/fontawesome.js.map",
    "scripts/fontawesome.js.LICENSE.txt",
)
SEARCH = (
    r'<script src="[^\n]*_static/searchtools\.js[^\n]*</script>\n',
    r'<script src="[^\n]*_static/language_data\.js[^\n]*</script>\n',
    r'<script src="[^\n]*searchindex\.js[^\n]*</script>\n',
)
# A template: what is taken out of it.
TAKEN_OUT = {
    "static/webpack-macros.html": (r'<script defer src="[^\n]*scripts/fontawesome\.js[^\n]*</script>\n',),
    "pydata_sphinx_theme/layout.html": SEARCH,
    "search.html": SEARCH,
}


class Lighter(BaseLoader):
    """Reads a template where the theme has it, and takes out what no page needs."""

    def __init__(self, loaders):
        self.loaders = loaders

    def get_source(self, environment, template):
        if template not in TAKEN_OUT:
            raise TemplateNotFound(template)
        for loader in self.loaders:
            try:
                text, *rest = loader.get_source(environment, template)
            except TemplateNotFound:
                continue
            return (without(text, template), *rest)
        raise TemplateNotFound(template)


def without(text, template):
    """The text of a template less what is taken out of it; a theme that writes it differently is an error."""
    for pattern in TAKEN_OUT[template]:
        text, times = re.subn(pattern, "", text)
        if times != 1:
            raise LookupError(f"{template} has {pattern!r} {times} times, not once: has the theme changed?")
    return text


def _lighten_templates(app):
    templates = getattr(app.builder, "templates", None)
    if app.builder.format == "html" and templates:
        templates.loaders.insert(0, Lighter(list(templates.loaders)))


def _forget_old_sources(app):
    """Have the pages of the library's source written anew if they ask for what is removed: Sphinx would keep them."""
    for page in (Path(app.outdir) / "_modules").rglob("*.html"):
        if "scripts/fontawesome.js" in page.read_text(encoding="utf-8"):
            page.unlink()


def _drop_thebe(app, pagename, templatename, context, doctree):
    def kept(file):
        body = getattr(file, "attributes", {}).get("body") or ""
        return "thebe" not in str(getattr(file, "filename", file)) and "THEBE_JS_URL" not in body

    for key in ("script_files", "css_files"):
        context[key] = [file for file in context.get(key, []) if kept(file)]


def _remove_unused(app, error):
    if not error and app.builder.format == "html":
        for name in UNUSED:
            (Path(app.outdir) / "_static" / name).unlink(missing_ok=True)


def setup(app):
    app.connect("builder-inited", _lighten_templates, priority=900)
    app.connect("builder-inited", _forget_old_sources)
    app.connect("html-page-context", _drop_thebe, priority=900)
    app.connect("build-finished", _remove_unused)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
