"""Every interactive figure in Firefox, from a disk: it says and shows what it does in Chromium, whatever is turned."""

import time

import numpy as np
import pytest

import tools
from tests.book.figures.conftest import KINDS, pages_with_figures
from tests.book.figures.firefox import Firefox

pytestmark = pytest.mark.book
ARROW_RIGHT = "\ue014"
STATE = """kind => {
    const { shown } = Interactive.figures[kind], root = document.querySelector(`.interactive[data-kind='${kind}']`);
    return { drawn: Number(root.dataset.drawn), said: root.querySelector('.said').textContent, shown };
}"""
# Turns the control with this number a little, as a hand would, and tells whether there is one.
TURN = """([kind, place]) => {
    const root = document.querySelector(`.interactive[data-kind='${kind}']`);
    const control = root.querySelectorAll("input, select, button, [role=slider][tabindex='0']")[place];
    if (!control) return false;
    const [at, by] = [Number(control.value), Number(control.step)]; // stepDown may move by a rounding error
    if (control.type === 'range') control.value = at - by >= Number(control.min) ? at - by : at + by;
    else if (control.tagName === 'SELECT') control.selectedIndex = (control.selectedIndex + 1) % control.length;
    else if (control.type === 'checkbox') control.checked = !control.checked;
    else if (control.type === 'text') control.value += 'a';
    else if (control.tagName === 'BUTTON') { control.click(); return true; }
    else { control.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true })); return true; }
    control.dispatchEvent(new Event('input', { bubbles: true }));
    return true;
}"""


def figure(firefox, kind, after=0):
    """What a figure says and shows once it has been drawn more than so many times."""
    for _ in range(100):
        if firefox.run("kind => Boolean(window.Interactive?.figures[kind]?.paint)", kind):
            found = firefox.run(STATE, kind)
            if found["drawn"] > after:
                return found
        time.sleep(0.1)
    raise AssertionError(f"Firefox drew {kind} no more than {after} times within ten seconds")


@pytest.fixture(scope="module")
def firefox():
    started = Firefox(tools.firefox())
    yield started
    started.quit()


def leaves(shown):
    """Names, numbers and words of all that is shown, in one order."""
    if isinstance(shown, dict):
        return [each for name in sorted(shown) for each in (name, *leaves(shown[name]))]
    return [each for one in shown for each in leaves(one)] if isinstance(shown, list) else [shown]


def assert_same(here, there):
    assert here["said"].strip() and here["said"] == there["said"]
    pair = leaves(here["shown"]), leaves(there["shown"])
    numbers = [[one for one in part if isinstance(one, int | float)] for part in pair]
    words = [[one for one in part if not isinstance(one, int | float)] for part in pair]
    assert words[0] == words[1] and numbers[0]
    np.testing.assert_allclose(*numbers, rtol=1e-9, atol=1e-12)  # the browsers' exponentials differ in the last digits


@pytest.mark.needs("browser", "firefox")
@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_the_same_in_firefox(kind, firefox, open_figure):
    chromium = open_figure(kind, files=True).page
    firefox.navigate(pages_with_figures()[kind][0].as_uri())
    there = figure(firefox, kind)
    here = chromium.evaluate(STATE, kind)
    assert_same(here, there)
    place = 0
    while firefox.run(TURN, [kind, place]):
        chromium.evaluate(TURN, [kind, place])
        chromium.wait_for_function(f"([kind, n]) => ({STATE})(kind).drawn > n", arg=[kind, here["drawn"]])
        here, there = chromium.evaluate(STATE, kind), figure(firefox, kind, there["drawn"])
        assert_same(here, there)
        place += 1
    assert place > 0


def test_a_figure_that_differs_is_seen():
    one = {"said": "Two.", "shown": {"weights": [[0.25, 0.75]], "name": "a"}}
    assert_same(one, {"said": "Two.", "shown": {"name": "a", "weights": [[0.25 + 1e-13, 0.75]]}})
    for other in (
        {"said": "Three.", "shown": one["shown"]},
        {"said": "Two.", "shown": {"weights": [[0.75, 0.25]], "name": "a"}},
        {"said": "Two.", "shown": {"weights": [[0.25, 0.75]], "name": "b"}},
        {"said": "Two.", "shown": {"weights": [[0.25]], "name": "a"}},
    ):
        with pytest.raises(AssertionError):
            assert_same(one, other)


@pytest.mark.needs("firefox")
def test_a_key_turns_a_knob_and_no_page(firefox):
    firefox.navigate(pages_with_figures()["temperature"][0].as_uri())
    before, address = figure(firefox, "temperature"), firefox.run("() => location.href")
    firefox.run("() => document.querySelector('.interactive[data-kind=temperature] input').focus()")
    firefox.press(ARROW_RIGHT)
    after = figure(firefox, "temperature", before["drawn"])
    assert after["said"] != before["said"] and firefox.run("() => location.href") == address
