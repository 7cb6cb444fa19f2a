"""Figures that answer: a directive that puts an interactive figure on a page, and loads what this figure needs.

    ```{interactive} temperature
    :title: Turn the temperature
    :still: fig-temperature

    At which temperature has the best key half of the weight?
    ```

The kind is the name of a script in _ext/static/interactive. Its numbers come from a cell of the page that calls
`attnmath.interactive.share`. The frame is hidden until a script shows it, and print leaves it out: a reader on paper or
without JavaScript sees the page's own picture of the same thing, which `:still:` names. A figure that names none, or
one of another page, is an error. A new kind is one script, one cell and one test: nothing else changes.
"""

from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

SHARED = "shared"
STATIC = Path(__file__).with_name("static")  # Jupyter Book loads all of _static on every page, and nothing of this
SCRIPTS = STATIC / "interactive"
CLOSING = '<div class="knobs"></div><div class="stage"></div><p class="said" aria-live="polite"></p></section>'


def kinds() -> list[str]:
    """The kinds of figures that there are: the scripts beside shared.js."""
    return sorted(path.stem for path in SCRIPTS.glob("*.js") if path.stem != SHARED)


class Interactive(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {"title": directives.unchanged_required, "still": directives.unchanged_required}  # noqa: RUF012

    def run(self):
        kind, title = self.arguments[0], escape(self.options.get("title", ""))
        if kind not in kinds():
            raise self.error(f"no _ext/static/interactive/{kind}.js; there are: {', '.join(kinds())}")
        if not title:
            raise self.error(f"the interactive figure {kind!r} needs a :title:, which names it to a screen reader")
        if not self.options.get("still"):
            raise self.error(f"the interactive figure {kind!r} needs a :still:, the name of its picture on paper")
        opening = (
            f'<section class="interactive" data-kind="{kind}" aria-label="{title}" hidden><p class="title">{title}</p>'
        )
        metadata = self.env.metadata[self.env.docname]
        metadata.setdefault("interactive", []).append(kind)
        metadata.setdefault("stills", []).append(self.options["still"])
        return [
            nodes.raw("", opening, format="html"),
            *self.parse_content_to_nodes(),
            nodes.raw("", CLOSING, format="html"),
        ]


def _offer(app, config):
    config.html_static_path.append(str(STATIC))


def _missing(env, docname) -> list[str]:
    """The still pictures that a page names and does not hold."""
    anywhere = env.get_domain("std").anonlabels
    stills = env.metadata.get(docname, {}).get("stills", [])
    return [name for name in stills if anywhere.get(name, (None,))[0] != docname]


def _compare(app, env):
    for docname in sorted(env.found_docs):
        for name in _missing(env, docname):
            logging.getLogger(__name__).warning("the still picture %r is not on this page", name, location=docname)


def _load(app, page, template, context, doctree):
    used = app.env.metadata.get(page, {}).get("interactive", [])
    if used:
        app.add_css_file("interactive/shared.css")
        for name in (SHARED, *dict.fromkeys(used)):
            app.add_js_file(f"interactive/{name}.js", 500 if name == SHARED else 600, loading_method="defer")


def setup(app):
    app.add_directive("interactive", Interactive)
    app.connect("config-inited", _offer)
    app.connect("env-check-consistency", _compare)
    app.connect("html-page-context", _load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
