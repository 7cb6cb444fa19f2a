"""Pages written by the build: an extension hands over a function, its text follows what the page's own file says.

`add_page(app, docname, write)` registers `write(root) -> markdown`. A page that goes on after its text has the comment
`% generated` where the text belongs. The text is computed at the start of every build;
the page is read again only if it differs from last time, so that a build with nothing changed takes seconds.
"""

import hashlib
from pathlib import Path

MARK = "\n% generated\n"


def add_page(app, docname, write):
    app.setup_extension("generated")
    app.generated_pages[docname] = write


def _outdated(app, env, added, changed, removed):
    known = getattr(env, "generated_digests", {})
    app.generated_texts = {name: write(Path(app.srcdir)) for name, write in app.generated_pages.items()}
    env.generated_digests = {name: digest(text) for name, text in app.generated_texts.items()}
    return [
        name for name, value in env.generated_digests.items() if known.get(name) != value and name in env.found_docs
    ]


def _append(app, docname, source):
    if docname in app.generated_pages:
        source[0] = insert(source[0], app.generated_texts[docname])


def insert(page: str, text: str) -> str:
    """The page with the text in place of its mark, or at its end."""
    before, mark, after = page.partition(MARK)
    return f"{before}\n{text}\n{after}" if mark else f"{page}\n\n{text}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def setup(app):
    if not hasattr(app, "generated_pages"):
        app.generated_pages, app.generated_texts = {}, {}
        app.connect("env-get-outdated", _outdated)
        app.connect("source-read", _append)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
