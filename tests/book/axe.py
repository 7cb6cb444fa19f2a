"""What axe is asked about a page, and what it is asked about of each page only once."""

import contextlib

# The page looks for what scrolls a moment after the last letter has come, and again when its size has changed.
SCROLLERS = "mjx-container[display=true], .pst-scrollable-table-container, pre"
REACHED = f"""() => [...document.querySelectorAll('{SCROLLERS}')].every(
    e => e.scrollWidth <= e.clientWidth || getComputedStyle(e).overflowX !== 'auto' || e.tabIndex >= 0)"""


def settled(page):
    """Wait until all that scrolls is reached; what is not by then is for a test to find."""
    from playwright.sync_api import TimeoutError as TooLong

    page.evaluate("async () => { await document.fonts.ready; }")
    with contextlib.suppress(TooLong):
        page.wait_for_function(REACHED, timeout=5000)


# What is folded away is asked as well.
UNFOLD = """() => {
    document.querySelectorAll('details').forEach(fold => { fold.open = true; });
    document.querySelectorAll('.sd-tab-content').forEach(tab => { tab.style.display = 'block'; });
}"""

# Of pieces that are built alike and stand in a place of the same kind, one is enough: axe judges tags, attributes,
# roles and colours, and a page has thousands of such pieces. What a name is made of counts: whether there is any text,
# and any description. The order of titles counts too, and all of them stay. One style sheet serves all pages, so a
# piece that another page has is known as well, unless the page has styles of its own. Pieces that say a name stay
# whole for the rules about names; for those about colours, which take most of the time, one of each is enough as well.
ONE_OF_EACH = """({known, whole}) => {
    const seen = new Set(known), fresh = [], forms = new Map(), places = new Map();
    const told = /^(class|style|role|type|scope|rowspan|colspan|tabindex)$/;
    const styles = [...document.querySelectorAll('style')].map(one => one.textContent).sort().join('');
    const number = text => {  // 53 bits of a text, by two sums that are mixed
        let a = 0xdeadbeef, b = 0x41c6ce57;
        for (let i = 0; i < text.length; i++) {
            a = Math.imul(a ^ text.charCodeAt(i), 2654435761);
            b = Math.imul(b ^ text.charCodeAt(i), 1597334677);
        }
        a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
        b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
        return 4294967296 * (2097151 & b) + (a >>> 0);
    };
    const once = (map, e, make) => { if (!map.has(e)) map.set(e, make(e)); return map.get(e); };
    const own = e => e.tagName + [...e.attributes].filter(a => a.name !== 'id').map(a =>
        a.name + (told.test(a.name) ? a.value : !!a.value)).sort();
    const form = e => e.tagName === 'MJX-CONTAINER' ? 'formula' : once(forms, e, e => own(e) + [...e.childNodes].map(
        one => one.nodeType === 1 ? form(one) : one.nodeType === 3 && one.data.trim() ? 't' : '').join('') + '/');
    const place = e => e && e.tagName !== 'BODY' ? once(places, e, e => place(e.parentElement) + own(e)) : styles;
    document.querySelectorAll('p, li, tr, a, span, code, em, strong, .highlight, .math, dl').forEach(piece => {
        if (!piece.isConnected || piece.parentElement.closest(whole) || piece.querySelector('h1, h2, h3, h4')) return;
        const kind = number(place(piece.parentElement) + '>' + form(piece));
        if (seen.has(kind)) return piece.remove();
        seen.add(kind);
        fresh.push(kind);
    });
    return fresh;
}"""

NAMES = "mjx-container, a, button, summary, label, th, dt, h1, h2, h3, h4, h5, h6, caption, figcaption"
FORMULAS = "mjx-container"

# A formula's glyphs are hidden from screen readers and have the colour of the text around them. What a screen reader
# gets, MathML out of sight, axe does not count as text of a head; that no head is empty is asked of the page itself.
RUN = """async rules => {
    const found = await axe.run({exclude: [['mjx-math']]}, {resultTypes: ['violations'], ...rules});
    return found.violations.map(
        v => `${v.id}: ${v.nodes.length} times, as ${v.nodes[0].target} ${v.nodes[0].html.slice(0, 100)}`);
}"""
OF_COLOURS = ["color-contrast", "link-in-text-block"]
COLOURS = {"runOnly": OF_COLOURS}
ALL_ELSE = {"rules": {name: {"enabled": False} for name in ("empty-table-header", *OF_COLOURS)}}

# What scrolls on a phone and can't be reached by a keyboard. axe's rule for it blames a wide formula now and then.
UNREACHED = """() => [...document.querySelectorAll('body *')].filter(e =>
    (e.scrollWidth > e.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(e).overflowX) ||
     e.scrollHeight > e.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(e).overflowY)) && e.clientWidth > 0 &&
    e.checkVisibility() && e.tabIndex < 0 && !e.querySelector('a[href], button, input, summary, [tabindex="0"]')
    ).map(e => 'unreached: ' + e.outerHTML.slice(0, 100))"""


class Known:
    """The kinds of pieces that axe has been shown: to the rules about colours, and to all others."""

    def __init__(self, *others):
        self.to_colours = set().union(*(other.to_colours for other in others))
        self.to_others = set().union(*(other.to_others for other in others))


def with_axe(context):
    """Every page of this context brings axe along. A script of its own would be compiled anew for each page."""
    from axe_playwright_python.base import AXE_FILE_PATH

    context.add_init_script(path=AXE_FILE_PATH)
    return context


def axe(page, known=None):
    """What axe finds on a page, by all its rules, but for pieces that are `known`; those of this page join them."""
    known = Known() if known is None else known
    page.evaluate(UNFOLD)
    settled(page)
    known.to_others.update(page.evaluate(ONE_OF_EACH, {"known": list(known.to_others), "whole": NAMES}))
    found = page.evaluate(RUN, ALL_ELSE)
    known.to_colours.update(page.evaluate(ONE_OF_EACH, {"known": list(known.to_colours), "whole": FORMULAS}))
    return found + colours(page)


def colours(page):
    """What axe finds on a page by its rules about colours."""
    return page.evaluate(RUN, COLOURS)


def at_rest(page):
    """No colour is on its way to another one."""
    page.add_style_tag(content="*, ::before, ::after { transition: none !important; animation: none !important; }")


def darken(page):
    page.evaluate("() => Object.assign(document.documentElement.dataset, {mode: 'dark', theme: 'dark'})")
