"""What tests of the built pages share."""

import importlib
import json
from pathlib import Path

import pytest

import tools
from tests.book.server import serving

ROOT = Path(__file__).parents[2]
EXTENSIONS, HTML = ROOT / "_ext", ROOT / "_build" / "html"


@pytest.fixture
def extension(monkeypatch):
    """extension(name): a local extension of the book, imported as Sphinx does."""
    monkeypatch.syspath_prepend(str(EXTENSIONS))
    return importlib.import_module


@pytest.fixture(scope="package")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=tools.browser(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield started
        started.close()


@pytest.fixture(scope="package")
def address():
    with serving(HTML) as started:
        yield started


@pytest.fixture(scope="package")
def kept_tabs(browser):
    tabs = {}
    yield tabs
    for page in tabs.values():
        page.context.close()


@pytest.fixture
def tab(browser, kept_tabs):
    """tab(**options): a tab of such a context, and the errors of its scripts, which fail the test.

    The same options get the same tab, with nothing remembered: to make a new one takes Chromium as long as a page does.
    """
    used, errors = [], []

    def told(error):
        errors.append(error.stack or str(error))

    def of_kind(**options):
        kind = json.dumps(options, sort_keys=True)
        if kind not in kept_tabs:
            kept_tabs[kind] = browser.new_context(**options).new_page()
        page = kept_tabs[kind]
        if page not in used:
            used.append(page)
            page.on("pageerror", told)
        page.set_viewport_size(options["viewport"])
        page.mouse.move(0, 0)
        return page

    yield of_kind
    for page in used:
        page.remove_listener("pageerror", told)
        page.context.clear_cookies()
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    assert errors == []
