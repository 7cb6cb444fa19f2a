"""What tests of the built pages share."""

import importlib
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


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=tools.browser(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def address():
    with serving(HTML) as started:
        yield started
