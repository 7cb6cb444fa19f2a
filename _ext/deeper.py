"""What stands under "Going deeper" is closed when a page is opened, and complete in the notebook.

The heading and its sections stay in the list of contents; a script opens the fold for a link that leads into it.
"""

from html import escape
from typing import ClassVar

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

HEADING = "Going deeper"


class Fold(SphinxPostTransform):
    default_priority = 900
    formats: ClassVar = ("html",)

    def run(self, **kwargs):
        for section in list(self.document.findall(nodes.section)):
            if section.children and section[0].astext() == HEADING and len(section) > 1:
                titles = [one[0].astext() for one in section.children if isinstance(one, nodes.section)]
                said = "; ".join(titles) or "Open"
                opening = f'<details class="deeper"><summary>{escape(said)}</summary>'
                section.insert(1, nodes.raw("", opening, format="html"))
                section.append(nodes.raw("", "</details>", format="html"))


def setup(app):
    app.add_post_transform(Fold)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
