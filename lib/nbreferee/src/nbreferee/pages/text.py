"""A stranger's text as HTML: nothing of it becomes markup, and what cannot be seen is spelled out."""

import html
import math
import re
from functools import lru_cache

from markdown_it import MarkdownIt
from markupsafe import Markup
from mdit_py_plugins.dollarmath import dollarmath_plugin

__all__ = ["capped", "code", "finite", "points", "visible", "written"]

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,500}(?:\x07|\x1b\\)?)")
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    r"""Text in which nothing is hidden: control, bidirectional and zero-width characters become their escapes.

    Colours of a terminal are dropped; line breaks and tabs stay.

    Examples
    --------
    >>> print(visible("a\u202eb\x00 \ud800 \x1b[31mred\x1b[0m"))
    a\u202eb\x00 \ud800 red
    """
    text = text.encode("utf-8", "backslashreplace").decode()
    if not UNSEEN.search(text):
        return text
    return UNSEEN.sub(_escape, ANSI.sub("", text.replace("\r\n", "\n")))


def _escape(match):
    return match[0].encode("unicode_escape").decode()


def capped(text: str, limit: int) -> str:
    """The text, cut if it is longer."""
    return text if len(text) <= limit else text[:limit] + " […]"


def finite(value) -> float | None:
    """A finite number, or None."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def points(value: float) -> str:
    """A number of points, as people write it."""
    return f"{round(value, 2):.10g}"


CODE = re.compile(
    r'''(?P<c>\#[^\n]*)
    |(?P<s>\b(?:[rRbBfFuU]|[rR][bBfF]|[bBfF][rR])?(?:
        """(?:[^\\"]|\\.|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^\\']|\\.|'(?!''))*+(?:\'\'\'|\Z)
        |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?)
      |(?:"""(?:[^\\"]|\\.|"(?!""))*+(?:"""|\Z)|\'\'\'(?:[^\\']|\\.|'(?!''))*+(?:\'\'\'|\Z)
        |"(?:[^"\\\n]|\\.)*+"?|'(?:[^'\\\n]|\\.)*+'?))
    |(?P<d>(?<=def\s)\w+|(?<=class\s)\w+|(?<![\w.)\]])@\w[\w.]*)
    |\b(?:(?P<k>False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from
        |global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)
      |(?P<m>\d[\w.]*))\b
    |[^\W\d]\w*''',
    re.VERBOSE | re.DOTALL,
)


def code(source: str) -> Markup:
    """Python with colours.

    One regular expression in place of Pygments, whose Python lexer takes 40 ms for the answers of one set: as long as
    all the rest of grading it. It never fails, whatever the text.
    """
    out, at = [], 0
    for match in CODE.finditer(source):
        kind = match.lastgroup
        if kind:
            out.append(html.escape(source[at : match.start()]))
            out.append(f'<span class="{kind}">{html.escape(match[0])}</span>')
            at = match.end()
    out.append(html.escape(source[at:]))
    return Markup("".join(out))


def _markdown():
    """Markdown without HTML, pictures and headings of its own; a formula stays the source that it is."""
    md = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable(["html_block"])
    dollarmath_plugin(md, allow_labels=False, double_inline=True)
    renderer = md.renderer

    def formula(self, tokens, index, options, env):
        return f'<code class="math">{html.escape(tokens[index].content.strip())}</code>'

    def display(self, tokens, index, options, env):
        return f'<pre class="math">{html.escape(tokens[index].content.strip())}</pre>\n'

    def picture(self, tokens, index, options, env):
        return f"[picture: {html.escape(tokens[index].content or 'without a description')}]"

    md.add_render_rule("math_inline", formula)
    md.add_render_rule("math_inline_double", formula)
    md.add_render_rule("math_block", display)
    md.add_render_rule("image", picture)
    md.add_render_rule("heading_open", lambda self, *rest: '<p class="heading">')
    md.add_render_rule("heading_close", lambda self, *rest: "</p>\n")
    md.add_render_rule("hr", lambda self, *rest: "<hr>\n")
    md.validateLink = lambda url: bool(re.match(r"(?i)(https?://|mailto:)", url))

    def link(self, tokens, index, options, env):
        tokens[index].attrSet("rel", "nofollow noopener noreferrer")
        return renderer.renderToken(tokens, index, options, env)

    md.add_render_rule("link_open", link)
    return md


MARKDOWN = _markdown()


@lru_cache(maxsize=4)
def written(text: str) -> Markup:
    """A written answer as HTML."""
    lines = text.split("\n")
    wide = max(line.count("|") for line in lines) + 1
    try:
        with MARKDOWN.reset_rules():
            if wide * len(lines) > 5_000:  # a short row is filled up to the width of the head: a few kB make millions
                MARKDOWN.disable("table")
            return Markup(MARKDOWN.render(text))
    except Exception:  # a stranger's text must not cost a page: as it was typed, then
        return Markup(f"<pre>{html.escape(text)}</pre>")
