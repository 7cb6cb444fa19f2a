"""The search page finds what it should, from a file on a disk, and shows plain words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote_plus

import pytest

ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build" / "html"
DONE = ".search-summary:not(.waiting)"  # the text has come too
PAGE = """Rotary positions
================

The rotary encoding turns :math:`q_i`. A property.

.. math:: a = \\frac{b}{c}
   :label: eq:turned-query

Another part
------------

The normalization of layers.
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory, browser):
    """Ask the search page of a small book, opened from the disk: what it lists for a query."""
    folder = tmp_path_factory.mktemp("book")
    (folder / "index.rst").write_text(PAGE, encoding="utf-8")
    (folder / "conf.py").write_text("extensions = ['searching']\nhtml_theme = 'basic'\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", str(folder), str(folder / "out/html")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "_ext")}, timeout=120)
    page = folder / "out/html/find.html"
    scripts = "".join(f'<script defer src="_static/{name}.js"></script>' for name in ("searchdata", "searching"))
    page.write_text(f'<!DOCTYPE html><meta charset=utf-8><div id="search-results"></div>{scripts}')
    tab = browser.new_page()

    def ask(query):
        tab.goto(f"{page.as_uri()}?q={query}")
        tab.wait_for_selector(DONE)
        return tab.locator("ul.search li").all_inner_texts()

    yield ask
    tab.close()


@pytest.mark.slow
@pytest.mark.needs("browser")
def test_names_numbers_and_both_spellings_are_found(found):
    assert found("RoPE")[0].startswith("Rotary positions")
    assert found("normalisation")[0].startswith("Rotary positions › Another part")
    assert found("eq:turned-query")[0].startswith("Equation 1 (turned query)")
    assert found("oper") == [], "no word is found in the middle of another"
    assert found("nowhere") == []


@pytest.mark.slow
@pytest.mark.needs("browser")
def test_excerpts_are_plain(found):
    texts = found("property")
    assert any("turns qi" in text for text in texts)
    assert not any("\\" in text for text in texts)


# What a reader asks, and what the first hit is, in the book as it is built.
ASKED = {
    "layer normalisation": "05_transformer/normalisation.html",
    "LayerNorm": "05_transformer/normalisation.html",
    "softmax": "02_foundations/softmax_numerics.html",
    "linear attention": "07_outlook/linear_attention.html",
    "mixed precision": "06_training/mixed_precision.html",
    "mixture of experts": "07_outlook/experts.html",
    "cross attention": "08_at_work/gated_cross_attention.html",
    "flash attention": "07_outlook/tiled.html",
    "FlashAttention": "07_outlook/tiled.html",
    "KV cache": "07_outlook/key_value_caches.html",
    "speculative decoding": "07_outlook/speculative.html",
    "self-attention": "03_self_attention/index.html",
    "RoPE": "05_transformer/relative_positions.html#a-rotation",
    "positional encoding": "05_transformer/positions.html#def-sinusoidal",
    "beam search": "06_training/decoding.html#alg-beam-search",
    "thm-dot-variance": "02_foundations/scaling.html#thm-dot-variance",
    "eq:attention": "02_foundations/vectorised.html#equation-eq-attention",
    "theorem 2.3": "02_foundations/scaling.html#thm-dot-variance",
    "attnmath.numpy.softmax": "appendix/api/softmax.html#attnmath.numpy.softmax",
}


@pytest.mark.book
@pytest.mark.needs("browser")
def test_the_built_search_page_leads_to_the_course(browser):
    tab, first = browser.new_page(), {}
    for query in ASKED:
        tab.goto(f"{(HTML / 'search.html').as_uri()}?q={quote_plus(query)}")
        tab.wait_for_selector(DONE)
        first[query] = tab.locator("ul.search a").first.get_attribute("href", timeout=2000)
    tab.close()
    assert first == {query: f"chapters/{place}" for query, place in ASKED.items()}


@pytest.mark.book
@pytest.mark.needs("browser")
def test_names_are_shown_before_the_text_has_come(browser):
    tab = browser.new_page()
    tab.route("**/searchtext.js", lambda route: None)  # it never comes
    tab.goto(f"{(HTML / 'search.html').as_uri()}?q=dropout", wait_until="domcontentloaded")
    assert tab.locator("ul.search a").first.get_attribute("href") == "chapters/06_training/dropout.html"
    assert tab.locator(".search-summary.waiting").is_visible()
    tab.goto((HTML / "search.html").as_uri())
    assert tab.locator("script[src*=searchtext]").count() == 0, "the text is not loaded before something is asked"
    tab.close()


def written(name):
    """What the build has written to a script of the search page."""
    script = (HTML / "_static" / name).read_text(encoding="utf-8")
    return json.loads(script.partition("=")[2].rstrip().rstrip(";"))


@pytest.mark.book
def test_the_texts_of_the_built_book_are_plain():
    texts = written("searchtext.js")
    assert len(texts) == len(written("searchdata.js")["entries"]) and sum(map(bool, texts)) > 2000
    furniture = [text for text in texts if text.startswith("After this page") or "[source]" in text]
    assert furniture == []
    names = [entry[3] for entry in written("searchdata.js")["entries"]]
    tex = re.compile(r"\\(top|frac|tfrac|sum|math\w+|cdot|sqrt|left|begin|sigma|in)\b|\$[^$]+\$")
    assert [each for each in [*texts, *names] if tex.search(each)] == []


@pytest.mark.book
def test_the_names_are_small():
    assert (HTML / "_static" / "searchdata.js").stat().st_size < 500_000
