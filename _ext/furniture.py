"""The page that answers for one that is not there.

A server hands it out for any address, however deep, so nothing on it may be relative; and it is opened from a disk too,
so nothing may be absolute. It therefore needs nothing: its style is inside, and its one link is the book's own address.
"""

from pathlib import Path

NOT_FOUND = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>No such page: {title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0; padding: 0 1.2rem; }}
a {{ color: light-dark(#1f5f8b, #7db7e0); }}
</style>
<main>
<h1>There is no such page</h1>
<p>The address may be mistyped, or the page may have moved.
<a href="{home}">{title}</a> has a list of all its pages, and a search
field that finds words in them.</p>
</main>
</html>
"""


def _write(app, error):
    if not error and app.builder.format == "html":
        page = NOT_FOUND.format(title=app.config.html_title, home=app.config.html_baseurl)
        (Path(app.outdir) / "404.html").write_text(page, encoding="utf-8")


def setup(app):
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
