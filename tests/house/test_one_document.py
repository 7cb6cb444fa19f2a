"""The pages of a toy book become chapters: in order, with ids of their own, and with links that lead on."""

import doctest
import re

import pytest

import one_document

SIDE_BAR = """<nav class="bd-links bd-docs-nav" aria-label="Main">
<ul><li class="toctree-l1"><a class="reference internal" href="{up}intro.html">Toy</a></li></ul>
<p class="caption"><span class="caption-text">The course</span></p>
<ul class="nav"><li class="toctree-l1 has-children"><a class="reference internal" href="{up}one/index.html">1. One</a>
<ul><li class="toctree-l2"><a href="{up}one/masks.html">1.1. Who sees <em>whom</em>?</a></li></ul></li></ul>
<p class="caption"><span class="caption-text">Appendices</span></p>
<ul><li class="toctree-l1"><a href="{up}words.html">Words &amp; &quot;signs&quot;</a></li></ul></nav>"""
PAGES = {
    "intro.html": """<section id="toy"><h1>Toy<a class="headerlink" href="#toy">#</a></h1><p>Welcome.
<a href="one/masks.html#causal">causal</a> <a href="one/masks.html">masks</a> <a href="_modules/x.html#f">source</a>
<a href="https://example.org/#here">elsewhere</a></p></section>""",
    "one/index.html": """<section id="one"><h1>1. One<a class="headerlink" href="#one">#</a></h1>
<p>The first chapter.</p></section>""",
    "one/masks.html": """<section id="masks">
<h1>1.1. Who sees <em>whom</em>?<a class="headerlink" href="#masks">#</a></h1>
<p>Nobody. <img loading="lazy" alt="a dot" src="../_images/dot.png" /></p>
<section id="causal">
<span id="sec-causal"></span><span id="old"></span><h2>Causal<a class="headerlink" href="#causal">#</a></h2>
<p><a href="#masks">up</a> <a href="../intro.html">start</a> <a href="#knob">the knob</a></p>
<details class="admonition hide above-input"><summary>The code of this figure</summary><p>DRAWS</p></details>
<details class="sd-dropdown sd-card"><summary class="sd-summary-title">How many?</summary><p>THREE</p></details>
<section class="interactive" hidden><p id="knob">KNOB</p></section>
<details class="deeper"><summary>A lemma</summary><section id="lemma"><h3>A lemma</h3><p>DEEP</p></section></details>
<pre>y = LONG</pre></section><script>SCRIPT</script><noscript>WITHOUT</noscript></section>""",
    "words.html": """<section id="words"><h1>Words &amp; "signs"</h1>LINES
<p><a href="one/index.html">LAST</a></p></section>""",
}  # fmt: skip
LONG = " + ".join(f"x{n}" for n in range(60))
LINES = "".join(f"<p>Line {n}.</p>" for n in range(90))
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)
WEB = "https://example.org/book/"


def toy(root):
    """The built pages of a book of four."""
    for name, text in PAGES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text, up = text.replace("LONG", LONG).replace("LINES", LINES), "../" * name.count("/")
        style = f'<link rel="stylesheet" type="text/css" href="{up}_static/toy.css?v=1" />'
        path.write_text(
            f"<html><head>{style}</head><body>{SIDE_BAR.replace('{up}', up)}"
            f'<article class="bd-article">{text}</article></body></html>'
        )
    for name, data in {"_static/toy.css": b"p { margin: 1em }", "_images/dot.png": DOT, "index.html": b"<p>"}.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def root(tmp_path):
    return toy(tmp_path)


def text(root):
    book = one_document.pages(root)
    return "".join(one_document.joined(root, one, book, "up/", WEB) for one in one_document.chapters(book))


def test_the_pages_are_those_of_the_side_bar_in_its_order(root):
    book = one_document.pages(root)
    assert [(page.address, page.depth, page.part) for page in book] == [
        ("intro.html", 1, ""),
        ("one/index.html", 1, "The course"),
        ("one/masks.html", 2, "The course"),
        ("words.html", 1, "Appendices"),
    ]
    assert [one_document.plain(page.title) for page in book] == [
        "Toy",
        "1. One",
        "1.1. Who sees whom?",
        'Words & "signs"',
    ]
    assert [[page.id for page in one] for one in one_document.chapters(book)] == [
        ["intro"],
        ["one-index", "one-masks"],
        ["words"],
    ]
    assert one_document.styles(root, book) == ["_static/toy.css"]


def test_links_lead_to_the_same_place_as_on_the_pages(root):
    links = re.findall(r'<a href="([^"]*)">(.*?)</a>', text(root))
    assert {said: link for link, said in links} == {
        "causal": "#one-masks..causal",
        "masks": "#one-masks",
        "source": WEB + "_modules/x.html#f",
        "elsewhere": "https://example.org/#here",
        "up": "#one-masks..masks",
        "start": "#intro",
        "the knob": "#one-masks..knob",
        "LAST": "#one-index",
    }
    ids = re.findall(r' id="([^"]*)"', text(root))
    assert len(ids) == len(set(ids)) and {"one-masks..causal", "one-masks", "intro"} <= set(ids)


def test_what_does_nothing_on_paper_is_left_out_and_what_teaches_is_kept(root):
    whole = text(root)
    assert [word for word in ("DRAWS", "KNOB", "SCRIPT", "WITHOUT", "headerlink", "loading=") if word in whole] == []
    assert [word for word in ("THREE", "DEEP", "x59", "up/_images/dot.png") if word not in whole] == []


def test_headings_stand_as_deep_as_their_page(root):
    assert one_document.headings(text(root)) == [
        (1, "intro.1", "Toy"),
        (1, "one-index.1", "1. One"),
        (2, "one-masks.1", "1.1. Who sees whom?"),
        (3, "one-masks.2", "Causal"),
        (4, "one-masks.3", "A lemma"),
        (1, "words.1", 'Words & "signs"'),
    ]


def test_no_page_can_end_between_a_label_and_its_heading(root):
    labels = '<span id="one-masks..sec-causal"></span><span id="one-masks..old"></span>'
    assert f'<h3 id="one-masks.2">{labels}Causal</h3>' in text(root)


def test_the_examples_of_the_docstrings():
    assert doctest.testmod(one_document).failed == 0 < doctest.testmod(one_document).attempted
