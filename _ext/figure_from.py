"""`{figure-from} notebook`: a figure that another page's notebook made, with caption and alternative text.

myst-nb can glue an output into another page, but its figure directive works within one page only, and a glued image has
no alternative text and no size. This is a figure around such a glued output; both are put on the image once it is
there. With its size, the image has its place on the page before it has come, and nothing moves when it comes.
"""

from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from myst_nb.ext.glue.utils import create_pending_glue_ref
from PIL import Image
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
        "height": directives.positive_int,  # in pixels, if there is room for it
    }

    def run(self):
        source, line = self.get_source_info()
        page = "/" + self.arguments[0].strip("/") + ".ipynb"
        glued = create_pending_glue_ref(self.state.document, source, line, page, self.options["key"])
        figure = nodes.figure(
            "", glued, alt=self.options["alt"], classes=["align-default", *self.options.get("figclass", [])]
        )
        figure["tall"] = self.options.get("height")
        self.set_source_info(figure)
        caption = nodes.Element()
        self.state.nested_parse(self.content, self.content_offset, caption)
        if caption.children:
            figure += nodes.caption("", "", *caption[0].children)
        self.add_name(figure)
        return [figure]


class TextAndSize(SphinxPostTransform):
    default_priority = 6  # myst-nb puts the glued image in at 5

    def run(self, **kwargs):
        for figure in self.document.findall(nodes.figure):
            if "alt" in figure:
                for image in figure.findall(nodes.image):
                    image["alt"] = figure["alt"]
                    width, height = self._size(image["uri"])
                    tall = figure["tall"] or height
                    image["width"], image["height"] = f"{round(width * tall / height)}px", f"{tall}px"

    def _size(self, uri):
        """Pixels of an image that is called by the name that it has among the pages."""
        paths = {name: path for path, (_, name) in self.env.images.items()}
        with Image.open(Path(self.env.srcdir) / paths[Path(uri).name]) as picture:
            return picture.size


def setup(app):
    app.add_directive("figure-from", FigureFrom)
    app.add_post_transform(TextAndSize)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
