"""Pages that no file of the tree stands for: an extension hands over a function, each text of which becomes a page.

`add_pages(app, parent, write)` registers `write(root) -> {docname: markdown}`. The texts are laid below _build/pages at
the start of every build, and only those that differ from last time are touched, so that Sphinx reads again what has
changed and nothing else. The pages stand in no table of contents: one more is found without being named, and the side
bar of all other pages does not grow. Each leads back to its parent and on to its neighbours.
"""

from pathlib import Path

from sphinx.project import Project

FOLDER = "_build/pages"
HEAD = "---\norphan: true\n---\n\n"
OF_A_FILE = ("source-file-button", "source-edit-button")


class BookProject(Project):
    """The files of the tree, and the pages that lie below FOLDER."""

    def discover(self, *args, **kwargs):
        super().discover(*args, **kwargs)
        for path in sorted(Path(self.srcdir, FOLDER).rglob("*.md")):
            name = path.relative_to(Path(self.srcdir, FOLDER)).as_posix().removesuffix(".md")
            file = path.relative_to(self.srcdir).as_posix()
            self.docnames.add(name)
            self._path_to_docname[file], self._docname_to_path[name] = name, file
        return self.docnames


def add_pages(app, parent, write):
    app.setup_extension("virtual_pages")
    app.virtual_pages.append((parent, write))


def _lay(app):
    """Write what has changed, remove what is gone, and have Sphinx find the rest."""
    root = Path(app.srcdir)
    app.virtual_neighbours, laid = {}, set()
    for parent, write in app.virtual_pages:
        texts = write(root)
        names = list(texts)
        for before, name, after in zip([None, *names], names, [*names[1:], None], strict=False):
            app.virtual_neighbours[name] = (parent, before, after)
            laid.add(put(root / FOLDER / f"{name}.md", HEAD + texts[name]))
    for path in (root / FOLDER).rglob("*.md"):
        if path not in laid:
            path.unlink()
    app.project.__class__ = BookProject


def put(path: Path, text: str) -> Path:
    """The file with this text; its time tells when the text last changed."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def _lead_on(app, pagename, templatename, context, doctree):
    """Parent and neighbours for the page's foot; no button that would edit a file that is not there."""
    if pagename not in app.virtual_neighbours:
        return

    def link(name):
        title = app.builder.render_partial(app.env.titles[name])["title"]
        return {"link": app.builder.get_relative_uri(pagename, name), "title": title}

    parent, before, after = app.virtual_neighbours[pagename]
    context["parents"] = [link(parent)]
    context["prev"] = link(before or parent)
    context["next"] = link(after) if after else None
    for group in context.get("header_buttons", []):
        if isinstance(group, dict) and "buttons" in group:
            group["buttons"] = [one for one in group["buttons"] if one.get("label") not in OF_A_FILE]


def setup(app):
    if not hasattr(app, "virtual_pages"):
        app.virtual_pages = []
        app.connect("builder-inited", _lay, priority=900)  # after those that read what the texts are written from
        app.connect("html-page-context", _lead_on, priority=960)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
