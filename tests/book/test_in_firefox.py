"""The search page, a preview, a fold and the explorer in Firefox, from a disk."""

import time

import pytest

import tools
from tests.book.figures.firefox import Firefox
from tests.book.test_pages import HTML

pytestmark = [pytest.mark.book, pytest.mark.needs("firefox")]
SCALING = HTML / "chapters/02_foundations/scaling.html"


@pytest.fixture(scope="module")
def firefox():
    started = Firefox(tools.firefox())
    yield started
    started.quit()


def soon(firefox, function, *values, seconds=20):
    """What the function says on the page once that is true."""
    end = time.monotonic() + seconds
    while not (found := firefox.run(function, *values)):
        assert time.monotonic() < end, f"not within {seconds} seconds: {function}"
        time.sleep(0.1)
    return found


def test_the_search_page_finds_a_page_by_another_name(firefox):
    firefox.navigate((HTML / "search.html").as_uri() + "?q=flash+attention")
    soon(firefox, "() => Boolean(document.querySelector('.search-summary:not(.waiting)'))")
    first = firefox.run("() => document.querySelector('ul.search a').getAttribute('href')")
    assert first == "chapters/07_outlook/tiled.html"
    assert firefox.run("() => document.querySelector('ul.search .context mark') !== null")


def test_a_preview_is_shown_and_goes_again(firefox):
    firefox.navigate(SCALING.as_uri())
    firefox.run("""() => { const links = [...document.querySelectorAll('article a.internal')];
        const link = links.find((one) => /#(thm|prop|lem|def)-/.test(one.href) && one.checkVisibility());
        link.scrollIntoView({ block: 'center' });
        link.dispatchEvent(new PointerEvent('pointerover', { bubbles: true, pointerType: 'mouse' })); }""")
    box = soon(
        firefox,
        """() => { const box = document.querySelector('.preview'), words = box?.textContent.length;
            return box?.checkVisibility() && { words, inside: box.getBoundingClientRect().right <= innerWidth }; }""",
    )
    assert box["words"] > 40 and box["inside"]
    firefox.press("\ue00c")  # Escape
    soon(firefox, "() => !document.querySelector('.preview')")


def test_a_fold_opens_by_its_summary_and_for_a_link_into_it(firefox):
    firefox.navigate(SCALING.as_uri())
    opened = "() => document.querySelector('article details.sd-dropdown').open"
    assert not firefox.run(opened)
    firefox.run("() => document.querySelector('article details.sd-dropdown > summary').click()")
    assert firefox.run(opened)
    inside = "document.querySelector('details.deeper section, details.deeper [id]')"
    assert not firefox.run("() => document.querySelector('details.deeper').open")
    firefox.run(f"() => {{ location.hash = {inside}.id; }}")
    soon(firefox, "() => document.querySelector('details.deeper').open")


@pytest.mark.slow
def test_the_explorer_s_model_answers(firefox):
    firefox.navigate((HTML / "chapters/explorer.html").as_uri())
    answer = firefox.run("""async () => {
        const worker = await Explorer.load(() => {}), found = await worker.run('Cats sleep.');
        const { tokens, layers } = found, row = layers[0].P.slice(0, tokens.length);
        return { tokens, row: row.reduce((a, b) => a + b, 0), layers: layers.length };
    }""")
    assert answer["tokens"] == ["[CLS]", "cats", "sleep", ".", "[SEP]"] and answer["layers"] == 6
    assert abs(answer["row"] - 1) < 1e-5
