"""What stands between a reader and the first words of a page: one style sheet, and no script.

A browser paints nothing until all style sheets and scripts in the head of a page have come, each of them a request. The
theme and its companions write 16 sheets and 11 scripts there. The sheets become one, less the rules for classes that no
page and no script names: the theme's sheet alone holds all of Bootstrap. The scripts wait until the page has been read.
"""

import itertools
import re
from pathlib import Path, PurePosixPath

import tinycss2
from sphinx.builders.html._assets import _JavaScript

SHEET = "pages.css"
LINK = re.compile(
    r'[ \t]*<link (?:href="(?P<a>[^"]+)" rel="stylesheet"|rel="stylesheet"[^>]*? href="(?P<b>[^"]+)")[^>]*>\n?'
)
PARTS = re.compile(r"/\* (\S+(?: \S+)*) \*/\n")
DATA = 200_000  # bytes: what is larger holds text and numbers, and so does all in the folder of previews
CLASS = re.compile(r'\bclass="([^"]*)"')
WORD = re.compile(r"[A-Za-z_][\w-]*")


def named_in(pages, scripts):
    """The classes that pages have, and the words of scripts, any of which may be a class.

    >>> sorted(named_in(['<p class="a b-c">d</p>'], ['e.classList.add("is-read")']))
    ['a', 'add', 'b-c', 'classList', 'e', 'is-read']
    """
    return {name for text in pages for found in CLASS.findall(text) for name in found.split()} | {
        word for text in scripts for word in WORD.findall(text)
    }


def used(rules, names):
    """The rules of a sheet that can apply: less the selectors with a class that nothing has.

    >>> sheet = ".a, .b > p { color: red } @media print { .b { margin: 0 } } p:not(.b) { top: 0 } @page { margin: 0 }"
    >>> print(used(tinycss2.parse_stylesheet(sheet), {"a"}))
    .a{ color: red }p:not(.b){ top: 0 }@page{ margin: 0 }
    """
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [one for one in _selectors(rule.prelude) if _classes(one) <= names]
            if selectors:
                prelude = ",".join(tinycss2.serialize(one).strip() for one in selectors)
                kept.append(f"{prelude}{{{tinycss2.serialize(rule.content)}}}")
        elif rule.type == "at-rule" and rule.at_keyword in ("media", "supports"):
            inner = used(tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True), names)
            if inner:
                kept.append(f"@{rule.at_keyword} {tinycss2.serialize(rule.prelude).strip()}{{{inner}}}")
        elif rule.type == "at-rule":
            body = "" if rule.content is None else f"{{{tinycss2.serialize(rule.content)}}}"
            name = f"@{rule.at_keyword} {tinycss2.serialize(rule.prelude).strip()}".strip()
            kept.append(name + (body or ";"))
        elif rule.type == "error":
            raise ValueError(f"a style sheet cannot be read, line {rule.source_line}: {rule.message}")
    return "".join(kept)


def _selectors(prelude):
    found = [[]]
    for token in prelude:
        if token == ",":
            found.append([])
        elif token.type != "comment":
            found[-1].append(token)
    return found


def _classes(selector):
    """The classes that an element must have; what stands in :not(…) and its like is left alone."""
    return {after.value for token, after in itertools.pairwise(selector) if token == "." and after.type == "ident"}


def whole(static, part):
    """A sheet's text with the sheets that it imports, addresses counted from the folder of all."""
    folder = PurePosixPath(part).parent

    def moved(found):
        address = found[2]
        outside = re.match(r"[a-z]+:|/|#", address)
        return f"url({found[1]}{address if outside else _plain(folder / address)}{found[1]})"

    text = (static / part).read_text(encoding="utf-8")
    text = re.sub(r"/\*#.*?\*/", "", text)  # the address of a map for developers
    text = re.sub(r"""url\((["']?)([^)"']+)\1\)""", moved, text)
    return re.sub(r'@import "([^"]+)";', lambda found: whole(static, _plain(folder / found[1])), text)


def _plain(path):
    """A path without its way up.

    >>> _plain(PurePosixPath("styles/../basic.css"))
    'basic.css'
    """
    parts = []
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def linked(text):
    """The sheets that a page asks for, in order, counted from _static."""
    addresses = [(found["a"] or found["b"]).partition("?")[0] for found in LINK.finditer(text)]
    return [address.rpartition("_static/")[2] for address in addresses if "_static/" in address]


def merged(lists):
    """One order for sheets of which no page has all.

    >>> merged([["a", "b", "d"], ["a", "c", "b", "d"], ["a", "b", "d", "e"]])
    ['a', 'c', 'b', 'd', 'e']
    """
    order = []
    for one in sorted(lists, key=len, reverse=True):
        place = 0
        for part in one:
            if part not in order:
                order.insert(place, part)
            place = order.index(part) + 1
    if clash := [one for one in lists if [part for part in order if part in one] != one]:
        raise ValueError(f"style sheets stand in another order on some pages: {clash[0]}, not {order}")
    return order


def with_one(text):
    """A page with one link in the place of the first."""
    first = LINK.search(text)
    root = (first["a"] or first["b"]).rpartition("_static/")[0]
    link = f'  <link rel="stylesheet" href="{root}_static/{SHEET}">\n'
    start = first.start()
    return text[:start] + link + LINK.sub("", text[start:])


def _join(app, error):
    """Write the one sheet, and have all pages that were written now ask for it alone."""
    if error or app.builder.format != "html":
        return
    out, static = Path(app.outdir), Path(app.outdir) / "_static"
    pages = {path: path.read_text(encoding="utf-8") for path in out.rglob("*.html") if static not in path.parents}
    fresh = {path: parts for path, text in pages.items() if (parts := linked(text)) and parts != [SHEET]}
    known = PARTS.match((static / SHEET).read_text(encoding="utf-8")) if (static / SHEET).exists() else None
    before = known[1].split() if known else []  # a page that is not written again needs what it needed
    parts = merged([list(one) for one in {tuple(before), *map(tuple, fresh.values())}])
    for path in fresh:
        path.write_text(with_one(pages[path]), encoding="utf-8")
    scripts = [path for path in static.rglob("*.js") if path.stat().st_size < DATA and "previews" not in path.parts]
    names = named_in(pages.values(), (path.read_text(encoding="utf-8", errors="replace") for path in scripts))
    text = "".join(whole(static, part) for part in parts)
    rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
    (static / SHEET).write_text(f"/* {' '.join(parts)} */\n{used(rules, names)}\n", encoding="utf-8")


def _defer(app, pagename, templatename, context, doctree):
    """Let every script wait for the page; what stands in the page and speaks of a script waits with it, as a module."""
    if templatename == "domainindex.html":  # a script within its template speaks of another one
        return
    files = []
    for file in context.get("script_files", []):
        more = dict(file.attributes)
        if file.filename:
            more.setdefault("defer", "defer")
        elif more.get("body", "").startswith("DOCUMENTATION_OPTIONS."):
            more["type"] = "module"
        files.append(_JavaScript(file.filename, priority=file.priority, **more))
    context["script_files"] = files


def setup(app):
    app.connect("html-page-context", _defer, priority=950)
    app.connect("build-finished", _join, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
