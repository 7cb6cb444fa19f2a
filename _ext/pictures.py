"""Pictures keep their shape on every screen, and their place before they have come.

A picture's size is written as a style, which a style sheet cannot make smaller in proportion. As attributes the same
numbers tell the browser the shape, and the style sheet the width. A page's first picture comes with the page, and each
of the others when a reader comes near it.
"""

import re
from itertools import count

PICTURE = re.compile(r"<img\b(?![^>]*\bloading=)")
STYLED = re.compile(r'(<img\b[^>]*?) style="width: (\d+)px; height: (\d+)px;"')


def as_attributes(html: str) -> str:
    """The same page with sizes of pictures as attributes.

    Examples
    --------
    >>> as_attributes('<img alt="a" src="a.png" style="width: 837px; height: 309px;" />')
    '<img alt="a" src="a.png" width="837" height="309" />'
    """
    return STYLED.sub(r'\1 width="\2" height="\3"', html)


def in_their_time(html: str) -> str:
    """The same page, on which only the first picture is asked for at once.

    Examples
    --------
    >>> in_their_time('<img src="a.png"><img src="b.png"><img loading="eager" src="c.png">')
    '<img src="a.png"><img loading="lazy" src="b.png"><img loading="eager" src="c.png">'
    """
    pictures = (' loading="lazy"' if later else "" for later in count())
    return PICTURE.sub(lambda found: found[0] + next(pictures), html)


def _write(app, page, template, context, doctree):
    if "body" in context:
        context["body"] = in_their_time(as_attributes(context["body"]))


def setup(app):
    app.connect("html-page-context", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
