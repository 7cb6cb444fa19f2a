"""What holds of every interactive figure: small, at home everywhere, and held against NumPy by a test of its own."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.book.figures.conftest import HTML, KINDS, ROOT, pages_with_figures

pytestmark = pytest.mark.book
SCRIPTS = ROOT / "_ext" / "static" / "interactive"


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_small_and_has_a_test_of_its_own(kind):
    assert (SCRIPTS / f"{kind}.js").stat().st_size < 12_000, "a few kilobytes of plain script"
    test = ROOT / "tests" / "book" / "figures" / f"test_{kind.replace('-', '_')}.py"
    assert test.exists(), f"{test.name} turns the knobs of this figure and compares with NumPy"
    text = test.read_text(encoding="utf-8")
    assert ".turn(" in text and ".shown(" in text and "attnmath" in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_on_a_page_and_hidden_until_a_script_shows_it(kind):
    assert len(pages_with_figures()[kind]) == 1, "one page each: a page's own cell writes its numbers"
    text = pages_with_figures()[kind][0].read_text(encoding="utf-8")
    frame = re.search(rf'<section class="interactive" data-kind="{kind}"[^>]*>', text)[0]
    assert frame.endswith("hidden>") and 'aria-label="' in frame
    assert f"interactive/{kind}.js" in text
    others = [one for one in KINDS if f'data-kind="{one}"' not in text]
    assert not any(f"interactive/{one}.js" in text for one in others), "a page loads its own figures only"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_page_has_a_still_picture_of_it(kind):
    """With alternative text and a caption, for paper and for readers without scripts; the directive names it."""
    (source,) = [
        path for path in (ROOT / "chapters").rglob("*.ipynb") if f"{{interactive}} {kind}\\n" in path.read_text("utf-8")
    ]
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    still = re.search(rf"\{{interactive\}} {kind}\n:title: .+\n:still: (fig-[\w-]+)\n", text)[1]
    figures = [cell["metadata"].get("mystnb", {}) for cell in cells]
    (found,) = [each for each in figures if each.get("figure", {}).get("name") == still]
    assert len(found["figure"]["caption"]) > 40 and len(found["image"]["alt"]) > 40
    page = pages_with_figures()[kind][0].read_text(encoding="utf-8")
    assert re.search(rf'<figure[^>]* id="{still}"', page), "it is in the built page"


BOOK = """A page
======

.. _fig-of-this-page:

.. figure:: {picture}

   A picture.

{directive}
"""


@pytest.mark.parametrize(
    ("directive", "complaint"),
    [
        (".. interactive:: hull\n   :title: A", "needs a :still:"),
        (".. interactive:: hull\n   :title: A\n   :still: fig-nowhere", "'fig-nowhere' is not on this page"),
        (".. interactive:: hull\n   :title: A\n   :still: fig-of-this-page", ""),
    ],
)
def test_a_figure_without_a_still_picture_is_an_error(directive, complaint, tmp_path):
    (tmp_path / "index.rst").write_text(BOOK.format(picture="a.svg", directive=directive), encoding="utf-8")
    (tmp_path / "a.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>", encoding="utf-8")
    (tmp_path / "conf.py").write_text("extensions = ['interactive']\nhtml_theme = 'basic'\n", encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(tmp_path), str(tmp_path / "out")]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "_ext")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert (done.returncode != 0) == bool(complaint) and complaint in done.stderr, done.stderr


def test_a_page_without_a_figure_loads_nothing_of_them():
    assert "interactive/" not in HTML.joinpath("chapters/appendix/glossary.html").read_text(encoding="utf-8")


@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_fits_a_phone_and_every_knob_has_a_name(kind, scheme, open_figure):
    figure = open_figure(kind, width=390, scheme=scheme)
    page = figure.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = figure.root.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    named = "one => Boolean(one.labels?.length || one.textContent.trim() || one.getAttribute('aria-label'))"
    controls = figure.root.locator("input, select, button, [tabindex='0']")
    assert controls.count() and all(controls.nth(i).evaluate(named) for i in range(controls.count()))
    assert figure.said().strip(), "the figure says in words what it shows"
    ink = figure.root.evaluate("one => [getComputedStyle(one).getPropertyValue('--ink')].join()").strip()
    assert (ink == "#4d4d4d") == (scheme == "light")


@pytest.mark.needs("browser")
@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_works_from_a_file_by_keyboard_alone(kind, open_figure):
    figure = open_figure(kind, files=True)
    controls = figure.root.locator("input, select, button, [tabindex='0']")
    assert controls.count() >= 1
    before, address = figure.root.get_attribute("data-drawn"), figure.page.url
    controls.first.focus()
    figure.page.keyboard.press("ArrowRight" if controls.first.get_attribute("type") != "checkbox" else "Space")
    if controls.first.evaluate("one => one.tagName") == "BUTTON":
        figure.page.keyboard.press("Enter")
    if controls.first.get_attribute("type") == "text":
        figure.page.keyboard.type("a")
    figure.page.wait_for_function(
        "([kind, n]) => document.querySelector(`.interactive[data-kind='${kind}']`).dataset.drawn > n",
        arg=[kind, int(before)],
    )
    assert figure.page.url == address, "an arrow key in a figure turns no page"


@pytest.fixture(scope="module")
def silent(browser):
    """A tab in which no script runs."""
    context = browser.new_context(java_script_enabled=False)
    yield context.new_page()
    context.close()


@pytest.mark.needs("browser")
@pytest.mark.parametrize("kind", KINDS)
def test_without_scripts_nothing_of_a_figure_is_seen(kind, silent):
    silent.goto(pages_with_figures()[kind][0].as_uri())
    assert not silent.locator(f'.interactive[data-kind="{kind}"]').is_visible()
