"""Formulas are set when the book is built: as a browser would set them, once, and not at all where TeX has a fault."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup
from docutils import nodes

ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build" / "html"


@pytest.fixture
def mathematics(monkeypatch):
    """The extension, imported as Sphinx does."""
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    return import_module("mathematics")


@pytest.fixture
def setter(mathematics, tmp_path):
    started = mathematics.Setter(tmp_path)
    yield started
    started.close()


def test_a_formula_is_set_and_said(setter):
    page = BeautifulSoup(setter(r"\sqrt{d_k}", False), "html.parser")
    assert [glyph["class"][0] for glyph in page.select("mjx-c")] == ["mjx-c221A", "mjx-c1D451", "mjx-c1D458"]
    assert page.select_one("mjx-assistive-mml math msqrt msub").get_text() == "dk"
    assert page.select_one("mjx-container[display]") is None
    assert "display=" in setter("x", True)


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"\frac{a", "Missing close brace"),
        (r"\nosuch x", r"Undefined control sequence \nosuch"),
        ("a^b^c", "Double exponent"),
    ],
)
def test_a_fault_in_tex_is_an_error(setter, mathematics, tex, said):
    """Also an unknown command, which a browser would only show in red; and it is no answer for the next build."""
    with pytest.raises(mathematics.TeXError, match=re.escape(said)):
        setter(tex, False)
    assert setter("x", False) and len(setter.known) == 1


def test_equal_formulas_are_set_once(setter, mathematics, tmp_path, monkeypatch):
    first = setter("x+y", False)
    with setter.file.open("a") as file:
        file.write('["half a li')  # of a build that was killed
    again = mathematics.Setter(tmp_path)
    monkeypatch.setattr(again, "node", lambda: pytest.fail("Node was started"))
    assert again("x+y", False) == first
    with pytest.raises(pytest.fail.Exception):
        again("x+y", True)


def test_what_other_versions_have_set_is_forgotten(setter, mathematics, tmp_path, monkeypatch):
    setter("x", False)
    monkeypatch.setattr(mathematics, "made_with", lambda: "another")
    assert mathematics.Setter(tmp_path).known == {}
    assert list(tmp_path.glob("*.jsonl")) == []


def test_another_process_has_its_own_node(setter, mathematics, monkeypatch):
    own = setter.node()
    with monkeypatch.context() as patched:
        patched.setattr(mathematics.os, "getpid", lambda: -1)
        other = setter.node()
        assert other is not own
        setter.close()
    assert setter.node() is own


def test_the_style_sheet_has_what_is_used_and_no_more(setter, mathematics):
    css = setter.style()
    used = mathematics.characters([setter(r"\mathbb{R}^{d}", False)])
    assert used == {("211D", ".TEX-A"), ("1D451", ".TEX-I")}
    short = mathematics.only(css, used)
    assert set(mathematics.CHARACTER.findall(short)) == used
    for kept in ("mjx-assistive-mml", "mjx-msqrt", "@font-face", ".TEX-A"):
        assert kept in short
    assert len(short) < len(css) / 5
    assert {ord("R"), 0x1D451} & mathematics.drawn(short)


@pytest.mark.parametrize("tex", ["x", "x\n", "a &= b \\\\\nc &= d", "a\n\nb", "a\\\\b\n\nc\n\n"])
def test_lines_are_aligned_as_sphinx_does(mathematics, tex):
    from sphinx.ext.mathjax import html_visit_displaymath

    config = SimpleNamespace(mathjax_display=["[", "]"])
    sphinx = SimpleNamespace(
        body=[], builder=SimpleNamespace(config=config), encode=str, starttag=lambda *args, **kwargs: ""
    )
    with pytest.raises(nodes.SkipNode):
        html_visit_displaymath(sphinx, nodes.math_block(tex, tex, number=None, nowrap=False))
    ours = mathematics.aligned(tex)
    assert re.sub(r"\s", "", "".join(sphinx.body)) == re.sub(r"\s", "", f"[{ours}]</div>")


def build(folder, text, *options):
    """Build a page with this text; what Sphinx says, its code, and the page."""
    (folder / "index.rst").write_text(text, encoding="utf-8")
    (folder / "more.rst").write_text(":orphan:\n\nMore\n====\n\n:math:`x` and :math:`y`\n", encoding="utf-8")
    (folder / "conf.py").write_text("extensions = ['mathematics']\nhtml_theme = 'basic'\n")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-n",
        "-W",
        "--keep-going",
        *options,
        str(folder),
        str(folder / "out/html"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "_ext")},
        timeout=120,
    )
    page = folder / "out/html/index.html"
    return done.stderr, done.returncode, page.read_text(encoding="utf-8") if page.exists() else ""


PAGE = "Title\n=====\n\nInline :math:`a<b` and\n\n.. math:: {tex}\n   :label: one\n\nSee :eq:`one`.\n"


@pytest.mark.slow
def test_a_fault_ends_the_build_and_names_page_and_formula(tmp_path):
    said, code, _ = build(tmp_path, PAGE.format(tex=r"\nosuch{x}"))
    assert code != 0
    assert re.search(
        r"index\.rst:\d+: WARNING: TeX: Undefined control sequence \\nosuch, in the formula \\nosuch\{x\}", said
    )


@pytest.mark.slow
def test_a_page_has_formulas_numbers_and_no_tex(tmp_path):
    said, code, text = build(tmp_path, PAGE.format(tex=r"a &= b \\ c &= d"))
    assert (said, code) == ("", 0)
    page = BeautifulSoup(text, "html.parser")
    assert page.select_one("div.math#equation-one > span.eqno").get_text().startswith("(1)")
    assert len(page.select(".math mjx-container math")) == 2
    assert r"\(" not in text and "&lt;" in text and "MathJax.js" not in text
    assert [each["src"] for each in page.select("script[src]") if "mathjax" in each["src"].lower()] == []
    static = tmp_path / "out/html/_static"
    assert "mjx-c1D44E" in (static / "mathematics.css").read_text()
    assert (static / "mathjax/MathJax_Math-Italic.woff").stat().st_size > 1000


@pytest.mark.slow
def test_processes_side_by_side_write_the_same(tmp_path):
    written = []
    for jobs in ("1", "2"):
        folder = tmp_path / jobs
        folder.mkdir()
        said, code, text = build(folder, PAGE.format(tex="a = b"), "-j", jobs)
        assert (said, code) == ("", 0)
        (file,) = (folder / "out/mathematics").glob("*.jsonl")
        formulas = {tuple(json.loads(line)) for line in file.read_text().splitlines()}
        written.append((text, formulas, (folder / "out/html/_static/mathematics.css").read_text()))
    assert written[0] == written[1]


@pytest.mark.book
def test_no_page_runs_mathjax_or_shows_tex():
    formulas = 0
    for path in HTML.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script[^>]*mathjax|window\.MathJax", text, re.I), path
        opened = re.findall(
            r'class="math notranslate nohighlight"[^>]*>\s*(?:<span class="eqno">.*?</a></span>)?(.{14})', text
        )
        assert set(opened) <= {"<mjx-container"}, path
        formulas += len(opened)
    assert formulas > 10_000


@pytest.mark.book
def test_the_style_sheet_knows_every_character_of_the_book(mathematics):
    known = mathematics.characters([re.sub(r"\.TEX", " TEX", (HTML / "_static/mathematics.css").read_text())])
    pages = [path.read_text(encoding="utf-8") for path in HTML.rglob("*.html")]
    used = mathematics.characters(re.findall(r'<mjx-c class="[^"]*"', "".join(pages)))
    assert len(used) > 100 and used <= known


@pytest.fixture(scope="module")
def page(browser):
    tab = browser.new_page()
    yield tab
    tab.close()


WIDTHS = "() => [...document.querySelectorAll('mjx-container')].map(one => one.getBoundingClientRect())"
SAMPLES = [
    r"\sqrt{d_k}",
    r"\mathbb{R}^{n\times d}",
    r"\sum_{i=1}^n\frac{e^{s_i}}{Z}",
    r"\begin{pmatrix}a&b\\c&d\end{pmatrix}",
]


@pytest.mark.slow
@pytest.mark.needs("browser")
@pytest.mark.parametrize("font", ["1rem sans-serif", "23px serif"])
def test_formulas_are_as_large_as_a_browser_would_make_them(page, setter, mathematics, tmp_path, font):
    """The boxes of four formulas, in two fonts of the text around, beside those of MathJax in the browser: 1 %."""
    form = "<!DOCTYPE html><meta charset=utf-8><style>body {{ font: {} }} {}</style>{}<p>{}</p>"
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    css = setter.style().replace(
        f'url("{mathematics.FONTS}/', f'url("{mathematics.MATHJAX.as_uri()}/output/chtml/fonts/woff-v2/'
    )
    ours.write_text(form.format(font, css + mathematics.SIZE, "", " ".join(setter(tex, False) for tex in SAMPLES)))
    script = f'<script src="{(mathematics.MATHJAX / "tex-chtml.js").as_uri()}"></script>'
    theirs.write_text(form.format(font, "", script, " ".join(rf"\({tex}\)" for tex in SAMPLES)))
    boxes = []
    for path in (ours, theirs):
        page.goto(path.as_uri())
        page.evaluate("async () => { if (window.MathJax) await MathJax.startup.promise; await document.fonts.ready; }")
        boxes.append([(round(box["width"], 2), round(box["height"], 2)) for box in page.evaluate(WIDTHS)])
    assert len(boxes[0]) == len(SAMPLES)
    assert [value for box in boxes[0] for value in box] == pytest.approx([v for box in boxes[1] for v in box], rel=0.01)
