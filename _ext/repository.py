"""One address, `repository.url` in _config.yml, from which follow the site's own address and the Colab notebooks.

A Colab machine has neither this repository nor the package. So the build writes, under colab/, a copy of each notebook
with one more cell at the top that installs the package from the repository; the pages are published to the branch
`gh-pages`, and the Colab button opens the copy there. The notebooks of the book themselves stay free of it. What the
workflow `release` publishes, a PDF and a zip, pages name by `{{ the_pdf }}` and `{{ the_zip }}`.
"""

import json
from pathlib import Path
from urllib.parse import urlparse

BRANCH = "gh-pages"
RELEASED = "{}/releases/latest/download/the-mathematics-of-attention.{}"
FILES = {"pdf": "one PDF", "zip": "a zip of all pages"}
INSTALL = """\
# On Colab only: the course's library, from its repository.
%pip install -q "attnmath[minilm] @ git+{url}@{branch}"{more}"""

EMPTY = {"cell_type": "code", "id": "colab", "metadata": {}, "execution_count": None, "outputs": []}


def _addresses(app, config):
    theme = config.html_theme_options
    owner, name = urlparse(theme["repository_url"]).path.strip("/").split("/")
    config.html_baseurl = config.html_baseurl or f"https://{owner}.github.io/{name}/"
    config.ogp_site_url = config.html_baseurl
    links = {f"the_{end}": f"[{text}]({RELEASED.format(theme['repository_url'], end)})" for end, text in FILES.items()}
    config.myst_substitutions = {**config.myst_substitutions, **links}


def _colab_button(app, pagename, templatename, context, doctree):
    theme = app.config.html_theme_options
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", []) if isinstance(group, dict) else []:
            if button.get("text") == "Colab":
                branch = theme.get("repository_branch", "main")
                button["url"] = button["url"].replace(f"/blob/{branch}/", f"/blob/{BRANCH}/colab/")


def _colab_notebooks(app, error):
    if error or app.builder.format != "html":
        return
    theme = app.config.html_theme_options
    address = {"url": theme["repository_url"], "branch": theme.get("repository_branch", "main")}
    for docname in app.env.found_docs:
        source = Path(app.env.doc2path(docname))
        if source.suffix == ".ipynb":
            text = source.read_text(encoding="utf-8")
            install = INSTALL.format(**address, more=" myst-nb" if "myst_nb" in text else "")
            notebook = json.loads(text)
            notebook["cells"].insert(0, {**EMPTY, "source": install})
            target = Path(app.outdir) / "colab" / f"{docname}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False), encoding="utf-8")


def setup(app):
    app.connect("config-inited", _addresses, priority=100)
    app.connect("html-page-context", _colab_button, priority=950)
    app.connect("build-finished", _colab_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
