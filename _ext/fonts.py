"""The part of a font that the book uses, by far the smaller one."""

import logging

from fontTools import subset

logging.getLogger("fontTools").setLevel(logging.ERROR)


def write_part(source, target, characters):
    """Write the glyphs of these characters to `target`, as WOFF; return the characters that the font has.

    WOFF rather than WOFF2, whose compression would need one more package: for a few glyphs it makes no difference.
    """
    options = subset.Options(flavor="woff", notdef_outline=True, layout_features=["*"], recalc_timestamp=False)
    font = subset.load_font(str(source), options)
    there = set(font.getBestCmap() or ()) & set(characters)
    target.parent.mkdir(parents=True, exist_ok=True)
    if there:
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=there)
        cutter.subset(font)
        subset.save_font(font, str(target), options)
    return there
