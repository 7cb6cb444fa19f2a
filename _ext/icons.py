"""The icons that the pages show, in a font of their own: a few kilobytes instead of the 275 of FontAwesome's fonts.

The theme's style sheet names the whole fonts. A second declaration of the same family, which says for which characters
it is meant, goes before them. So a page loads a whole font only if it shows an icon that was not found here. The space
is always among them, although nothing draws it: it is by the space that a browser chooses the font of an element.
"""

import re
from pathlib import Path

from fonts import write_part

FOLDER = "vendor/fontawesome/webfonts"
FONTS = {  # file: family and weight, as the theme's style sheet declares them
    "fa-solid-900": ("Font Awesome 6 Free", 900),
    "fa-regular-400": ("Font Awesome 6 Free", 400),
    "fa-brands-400": ("Font Awesome 6 Brands", 400),
}
SHEET = "icons.css"
FACE = """@font-face {{
  font-family: "{family}"; font-weight: {weight}; font-style: normal; font-display: block;
  src: url({folder}/{name}.used.woff) format("woff"); unicode-range: {ranges};
}}
"""


def named_in(texts):
    """The names of icons in the text of pages and scripts."""
    return {name for text in texts for name in re.findall(r"\bfa-[a-z0-9-]+", text)}


def characters(sheets, names):
    """The characters that style sheets draw: those of the named icons, and of every rule that is not an icon's own."""
    found = set()
    for sheet in sheets:
        for selectors, body in re.findall(r"([^{}]*)\{([^{}]*)\}", sheet):
            icons = re.findall(r"\.(fa-[a-z0-9-]+)", selectors)
            if not icons or names & set(icons):
                found |= {int(code, 16) for code in re.findall(r'"\\([0-9a-fA-F]{2,5})"', body)}
                found |= {ord(one) for one in re.findall("[\ue000-\uf8ff]", body)}  # written as itself
    return found


def _write(app, error):
    if error or app.builder.format != "html":
        return
    out, static = Path(app.outdir), Path(app.outdir) / "_static"
    pages = [path for path in out.rglob("*.html") if "_static" not in path.parts]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in [*pages, *static.rglob("*.js")]]
    sheets = [path.read_text(encoding="utf-8", errors="replace") for path in static.rglob("*.css")]
    wanted, faces = characters(sheets, named_in(texts)), []
    for name, (family, weight) in FONTS.items():
        file = static / FOLDER / name
        there = write_part(file.with_suffix(".ttf"), file.with_suffix(".used.woff"), wanted)
        if there:
            ranges = ", ".join(f"U+{code:X}" for code in sorted({0x20, *there}))
            faces.append(FACE.format(family=family, weight=weight, folder=FOLDER, name=name, ranges=ranges))
    (static / SHEET).write_text("".join(faces), encoding="utf-8")


def setup(app):
    app.add_css_file(SHEET)
    app.connect("build-finished", _write, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
