"""The menu of the book is made once for all pages of source code, and not once for each.

They stand in no table of contents, so their menus differ only by how far they have to climb to the top. To make one
takes longer than all the rest of such a page, and nothing of it is done on a second core.
"""


def _same_menu(app, pagename, templatename, context, doctree):
    make = context["toctree"]
    depth = pagename.count("/")

    def menu(**options):
        key = (depth, *sorted(options.items()))
        if key not in app.source_menus:
            app.source_menus[key] = make(**options)
        return app.source_menus[key]

    if pagename.startswith("_modules/"):
        context["toctree"] = menu


def setup(app):
    app.source_menus = {}
    app.connect("html-page-context", _same_menu, priority=400)  # before the theme calls it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
