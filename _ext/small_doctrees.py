"""Stored pages that do not hold the whole book.

Sphinx stores each page that it has read. What stands in a fence of reStructuredText is parsed as a document of its own,
and its nodes keep that document and with it all that Sphinx knows of the book. So each page of the library was stored
with 13 MB that nobody reads, and storing took most of the time of a build. Here every node belongs to its page.
"""


def _belong(app, doctree):
    for node in doctree.findall():
        node.document = doctree


def setup(app):
    app.connect("doctree-read", _belong, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
