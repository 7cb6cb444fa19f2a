"""The page that answers for one that is not there.

A server hands it out for any address, however deep, so nothing on it may be relative; and it is opened from a disk too,
so nothing may be absolute. It therefore needs nothing: its style is inside, and its links and its search lead to the
book's own address. If the reader has chosen light or dark on the book's pages, it follows.
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
:root {{ color-scheme: light dark; --link: light-dark(#1f5f8b, #7db7e0); --edge: light-dark(#6b7280, #9aa3ad); }}
body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 2rem; padding: 0 1.2rem;
  background: light-dark(#fff, #14181e); color: light-dark(#222832, #ced6dd); }}
h1 {{ line-height: 1.2; }}
a {{ color: var(--link); }}
form {{ display: flex; flex-wrap: wrap; gap: .5rem; margin: 1.5rem 0; }}
label {{ flex: 0 0 100%; }}
input {{ flex: 1 1 12rem; min-width: 0; }}
input, button {{ font: inherit; color: inherit; background: none;
  padding: .35rem .7rem; border: 1px solid var(--edge); border-radius: .3rem; }}
button {{ border-color: var(--link); color: var(--link); }}
:focus-visible {{ outline: .15rem solid var(--link); outline-offset: .1rem; }}
</style>
<script>
try {{
  const mode = localStorage.getItem("mode");
  if (/^(light|dark)$/.test(mode)) document.documentElement.style.colorScheme = mode;
}} catch {{ /* the system's choice stands */ }}
</script>
<main>
<h1>There is no such page</h1>
<p>The address may be mistyped, or the page may have moved. The way back leads to the title page of
<a href="{home}">{title}</a>, which has a list of all chapters.</p>
<form action="{home}search.html" role="search">
<label for="q">Or look for a word, a name or a number, such as <em>Theorem 2.3</em>:</label>
<input id="q" name="q" type="search" required>
<button>Search</button>
</form>
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
