"""The search page finds sections, statements, equations and functions, and shows plain words, also without a server.

Sphinx's search reads each page that it has found from the server to show a line of it, which a browser refuses to do on
a disk. Its index knows neither the numbers nor the names of equations, and it finds a word in the middle of another.
This book is small enough for a simpler way: what can be found is written to two scripts, the names to a small one and
the text to a large one, and searching.js looks through all of it. They are loaded by the search page alone, the text
after the first query.

The entries of a page are collected when it is written, and kept in _build, since the next build may not write it.
"""

import json
import re
from pathlib import Path
from shutil import copyfile

from docutils import nodes
from mathematics import TeXError
from sphinx import addnodes

PROGRAM = Path(__file__).with_suffix(".js")
DATA, TEXT = "searchdata.js", "searchtext.js"
STATEMENT = re.compile(r"(?!proof|solution)\w+_node$")
CODE = (nodes.literal_block, nodes.doctest_block, addnodes.desc_signature)  # a signature's name is an entry of its own
SILENT = (nodes.title, *CODE, nodes.raw, nodes.comment, nodes.Invisible, nodes.image)
CARD = "After this page"  # how the box begins that opens a page and says for whom it is
LONG = 30  # characters: a formula longer than this says little without its form
MOST = 3000  # characters of one part of a page: what is longer is a table
CONTEXT = 240  # characters before an equation, which say what it is about


class Page:
    """What can be found on a page: [kind, number, name, anchor, text, label] for each."""

    def __init__(self, doctree, numbers, formula):
        self.numbers, self.formula, self.entries = numbers, formula, []
        self._walk(doctree, None)

    def _add(self, kind, number, name, anchor, label=""):
        entry = [kind, ".".join(map(str, number)), " ".join(name.split()), anchor, "", label]
        self.entries.append(entry)
        return entry

    def _walk(self, node, entry):
        entry = self._begun_by(node, entry)
        if isinstance(node, nodes.Text | nodes.math) and entry:
            entry[4] += self._said(node)
        elif isinstance(node, nodes.math_block):
            self._equation(node, entry)
        elif not isinstance(node, SILENT) and not isinstance(node, nodes.math) and not _is_card(node):
            for child in node.children:
                self._walk(child, entry)
            if entry and not isinstance(node, nodes.Inline):
                entry[4] += " "

    def _said(self, node):
        """The words of a node. A reference holds the title that it leads to, and of a formula in it the bare TeX."""
        if isinstance(node, nodes.math):
            return self.formula(node.astext())
        if isinstance(node, nodes.Text):
            linked = isinstance(node.parent, nodes.inline) and isinstance(node.parent.parent, nodes.reference)
            return re.sub(r"\S*\\[A-Za-z]\S*", "…", node.astext()) if linked else node.astext()
        return "".join(map(self._said, node.children))

    def _begun_by(self, node, entry):
        """The entry that a section or a statement begins; within any other node, the one that it stands in."""
        if isinstance(node, nodes.section) and node.children and isinstance(node[0], nodes.title):
            label = next((name for name in node["ids"] if name.startswith("sec-")), "")
            return self._add("section", (), self._said(node[0]), node["ids"][0], label)
        if STATEMENT.match(node.tagname) and node.get("label"):
            kind = node.get("realtype") or node.tagname.partition("_")[0]
            counter, anchor = node.get("countertype") or kind, node["ids"][0]
            number = self.numbers.get(counter, {}).get(anchor, ())
            name = re.sub(r"\$([^$]+)\$", lambda found: self.formula(found[1]), str(node.get("title", "")).strip(" ()"))
            return self._add(kind, number, "" if name.lower() == kind else name, anchor, node["label"])
        return entry

    def _equation(self, node, entry):
        if node.get("number") and node["ids"]:
            number = self.numbers.get("displaymath", {}).get(node["ids"][0], (node["number"],))
            name = node["label"].partition(":")[2].replace("-", " ")
            found = self._add("equation", number, name, node["ids"][0], node["label"])
            found[4] = " ".join(entry[4].split())[-CONTEXT:] if entry else ""


def _is_card(node):
    return "sd-card" in getattr(node, "attributes", {}).get("classes", ()) and node.astext().startswith(CARD)


def plain(setter, tex):
    """A short formula in words' place; a dash for a long one."""
    try:
        said = re.search(r"<math.*</math>", setter(tex, False), re.S)[0]
    except TeXError:
        return "…"
    text = re.sub(r"<[^>]+>|[\u2061-\u2064]", "", said)
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&nbsp;", " ")
    return text if len(text) <= LONG else "…"


def _folder(app):
    return Path(app.outdir).parent / "searching"


def _collect(app, doctree, docname):
    if app.builder.format != "html":
        return
    page = Page(doctree, app.env.toc_fignumbers.get(docname, {}), lambda tex: plain(app.mathematics, tex))
    for entry in page.entries:
        entry[4] = " ".join(entry[4].split())[:MOST]
    file = _folder(app) / f"{docname}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(page.entries), encoding="utf-8")


def _numbered(app, docname):
    """The number and the title of a page."""
    number = app.env.toc_secnumbers.get(docname, {}).get("", ())
    return [docname, ".".join(map(str, number)), app.env.titles[docname].astext()]


def _gather(app):
    """The pages, and what can be found on them, each entry after the number of its page; then the library's names."""
    pages, entries = [], []
    for docname in sorted(app.env.found_docs):
        file = _folder(app) / f"{docname}.json"
        if file.exists():
            entries += [[len(pages), *entry] for entry in json.loads(file.read_text(encoding="utf-8"))]
            pages.append(_numbered(app, docname))
    place = {page[0]: index for index, page in enumerate(pages)}
    for name, found in app.env.get_domain("py").objects.items():
        if found.docname in place and not found.aliased:
            entries.append([place[found.docname], found.objtype, "", name, found.node_id, "", ""])
    return {"pages": pages, "entries": entries}


def _load(app, pagename, templatename, context, doctree):
    if pagename == "search":
        for name in (DATA, PROGRAM.name):
            app.add_js_file(name, loading_method="defer")


def _write(app, error):
    if not error and app.builder.format == "html":
        static, book = Path(app.outdir) / "_static", _gather(app)
        texts = [entry.pop(5) for entry in book["entries"]]
        for name, variable, value in ((DATA, "BOOK", book), (TEXT, "BOOK_TEXT", texts)):
            script = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            (static / name).write_text(f"window.{variable}={script};\n", encoding="utf-8")
        copyfile(PROGRAM, static / PROGRAM.name)


def setup(app):
    app.setup_extension("mathematics")
    app.connect("doctree-resolved", _collect)
    app.connect("html-page-context", _load)
    app.connect("build-finished", _write, priority=400)  # before mathematics.py lets go of Node
    return {"parallel_read_safe": True, "parallel_write_safe": True}
