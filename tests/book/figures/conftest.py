"""The built page of an interactive figure in a browser: its knobs are turned, and what it shows is read back."""

import functools
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
HTML = ROOT / "_build" / "html"
KINDS = sorted(path.stem for path in (ROOT / "_ext" / "static" / "interactive").glob("*.js") if path.stem != "shared")


@functools.cache
def pages_with_figures() -> dict[str, list[Path]]:
    """{kind: the built pages that show it}."""
    found = {kind: [] for kind in KINDS}
    for path in sorted((HTML / "chapters").rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        if 'class="interactive"' in text:
            for kind in KINDS:
                if f'class="interactive" data-kind="{kind}"' in text:
                    found[kind].append(path)
    return found


class Figure:
    """One interactive figure on its page."""

    def __init__(self, page, kind):
        self.page, self.kind = page, kind
        self.root = page.locator(f'.interactive[data-kind="{kind}"]')
        self.root.wait_for(state="visible", timeout=20_000)

    def _after_drawing(self, act):
        drawn = int(self.root.get_attribute("data-drawn"))
        act()
        self.page.wait_for_function(
            "([kind, n]) => Number(document.querySelector(`.interactive[data-kind='${kind}']`).dataset.drawn) > n",
            arg=[self.kind, drawn],
        )

    def turn(self, **knobs):
        """Set knobs by name, as a hand on the control would, and wait for the drawing."""
        for name, value in knobs.items():
            self._after_drawing(
                lambda name=name, value=value: self.page.evaluate(
                    "([kind, name, value]) => Interactive.figures[kind].knobs[name].set(value)",
                    [self.kind, name, value],
                )
            )

    def press(self, label):
        """Press the button with this text."""
        self._after_drawing(self.root.get_by_role("button", name=label, exact=True).click)

    def knob(self, name):
        return self.page.evaluate("([kind, name]) => Interactive.figures[kind].knobs[name].value", [self.kind, name])

    def shown(self, name):
        """What the figure shows under this name, as an array in full precision."""
        value = self.page.evaluate("([kind, name]) => Interactive.figures[kind].shown[name]", [self.kind, name])
        assert value is not None, f"{self.kind} shows nothing called {name!r}"
        return value if isinstance(value, str) else np.array(value)

    def data(self, name):
        """The page's own number, as its cell has written it."""
        value = self.page.evaluate("([kind, name]) => Interactive.figures[kind].data[name]", [self.kind, name])
        return value if isinstance(value, str | dict) else np.array(value)

    def said(self):
        """The words below the drawing."""
        return self.root.locator(".said").inner_text()


@pytest.fixture
def open_figure(tab, address):
    """open_figure(kind, width=1280, scheme="light", files=False): the figure on its page; errors of a script fail."""

    def opened(kind, *, width=1280, scheme="light", files=False, **options):
        where = pages_with_figures()[kind]
        assert where, f"no built page shows the interactive figure {kind!r}"
        size = {"width": width, "height": 900}
        page = tab(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        page.goto(where[0].as_uri() if files else address + str(where[0].relative_to(HTML)))
        return Figure(page, kind)

    return opened
