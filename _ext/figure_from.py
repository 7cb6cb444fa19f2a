"""`{figure-from} notebook`: a figure that another page's notebook made, with caption and alternative text.

myst-nb can glue an output into another page, but its figure directive works within one page only, and a glued image has
no alternative text. This is a figure around such a glued output; the text is put on the image once it is there.
"""

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from myst_nb.ext.glue.utils import create_pending_glue_ref
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective


class FigureFrom(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {
        "key": directives.unchanged_required,
        "alt": directives.unchanged_required,
        "name": directives.unchanged,
        "figclass": directives.class_option,
    }

    def run(self):
        source, line = self.get_source_info()
        page = "/" + self.arguments[0].strip("/") + ".ipynb"
        glued = create_pending_glue_ref(self.state.document, source, line, page, self.options["key"])
        figure = nodes.figure(
            "", glued, alt=self.options["alt"], classes=["align-default", *self.options.get("figclass", [])]
        )
        self.set_source_info(figure)
        caption = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, caption)
        if caption.children:
            figure += nodes.caption("", "", *caption[0].children)
        self.add_name(figure)
        return [figure]


class AlternativeText(SphinxPostTransform):
    default_priority = 6  # myst-nb puts the glued image in at 5

    def run(self, **kwargs):
        for figure in self.document.findall(nodes.figure):
            if "alt" in figure:
                for image in figure.findall(nodes.image):
                    image["alt"] = figure["alt"]


def setup(app):
    app.add_directive("figure-from", FigureFrom)
    app.add_post_transform(AlternativeText)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
