"""Between a reader and the first words stand one style sheet and no script, and nothing of the look is lost by it."""

import doctest
import gzip
import re

import pytest

from tests.book.axe import settled
from tests.book.test_pages import HTML, PAGES, Parsed, name, parsed

pytestmark = pytest.mark.book
WRITTEN = [path for path in PAGES if path not in (HTML / "index.html", HTML / "404.html")]
LARGEST = 60_000  # bytes of the one sheet, compressed


@pytest.fixture
def first_paint(extension):
    return extension("first_paint")


def test_examples(first_paint):
    done = doctest.testmod(first_paint)
    assert done.attempted >= 5 and done.failed == 0


def blocking(page):
    """What a browser waits for before it paints: style sheets, and scripts with an address that do not wait."""
    sheets = [node.attributes["href"] for node in page.css("link[rel=stylesheet]")]
    scripts = [node.attributes for node in page.css("head script[src]")]
    return sheets + [one["src"] for one in scripts if not {"defer", "async"} & one.keys()]


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_a_page_waits_for_one_sheet_alone(path):
    sheet, *scripts = blocking(parsed(path))
    assert scripts == [] or path.name == "prf-prf.html"  # a list of theorems, to which one link leads
    assert sheet.endswith("_static/pages.css") and (path.parent / sheet).exists()


def test_a_planted_script_is_seen():
    text = WRITTEN[0].read_text(encoding="utf-8").replace("</head>", '<script src="x.js"></script></head>')
    assert len(blocking(Parsed(text))) == 2


def test_the_sheet_is_small_and_names_only_files_that_are_there():
    text = (HTML / "_static/pages.css").read_text(encoding="utf-8")
    assert len(gzip.compress(text.encode())) < LARGEST
    addresses = {each.partition("?")[0].partition("#")[0] for each in re.findall(r"""url\(["']?([^)"']+)""", text)}
    files = {each for each in addresses if not each.startswith("data:")}
    assert len(files) > 5 and [each for each in files if not (HTML / "_static" / each).exists()] == []


def test_sheets_in_two_orders_are_an_error(first_paint):
    with pytest.raises(ValueError, match="another order"):
        first_paint.merged([["a", "b"], ["b", "a"]])


def test_a_sheet_that_cannot_be_read_is_an_error(first_paint):
    import tinycss2

    with pytest.raises(ValueError, match="cannot be read, line 1"):
        first_paint.used(tinycss2.parse_stylesheet("p { color: red } } q"), set())


# Of elements with the same classes in the same place one is enough; there are thousands. The names of the properties
# are the same for all, and to list them takes longer than to read them.
LOOK = """() => {
    const names = [...getComputedStyle(document.body)].filter(each => !each.startsWith('--'));
    const place = e => e && e.tagName !== 'BODY' ? place(e.parentElement) + '>' + e.tagName + '.' + e.className : '';
    const kinds = new Map();
    document.querySelectorAll('body *').forEach(e => { if (!e.closest('mjx-math *')) kinds.set(place(e), e); });
    return [...kinds].flatMap(([kind, e]) => [null, '::before', '::after'].map(part => {
        const look = getComputedStyle(e, part);
        return part && look.content === 'none' ? '' : kind + part + names.map(each => look[each]).join('|');
    }));
}"""
WHOLE = """async parts => {
    const link = document.querySelector('link[href*="pages.css"]');
    const own = link.href.replace('pages.css', '');
    await Promise.all(parts.map(part => new Promise(done => {
        const sheet = document.createElement('link');
        link.before(Object.assign(sheet, {rel: 'stylesheet', href: own + part, onload: done}));
    })));
    link.remove();
}"""


@pytest.mark.needs("browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "page_name",
    ["intro", "chapters/explorer", "chapters/02_foundations/scaling", "chapters/appendix/api/attention"],
)
def test_every_element_looks_as_with_all_sheets_whole(page_name, scheme, browser, first_paint):
    """The computed style of each element, once with the one sheet and once with the sheets of which it was made."""
    text = (HTML / "_static/pages.css").read_text(encoding="utf-8")
    parts = first_paint.PARTS.match(text)[1].split()
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.goto((HTML / f"{page_name}.html").as_uri(), wait_until="load")
    page.add_style_tag(content="*, ::before, ::after { transition: none !important; animation: none !important; }")
    settled(page)
    one = page.evaluate(LOOK)
    page.evaluate(WHOLE, parts)
    settled(page)
    all_of_them = page.evaluate(LOOK)
    assert len(one) > 300 and one == all_of_them
    page.add_style_tag(content="article p { letter-spacing: 0.5px; }")
    assert page.evaluate(LOOK) != one, "a change would not be seen"
    context.close()
