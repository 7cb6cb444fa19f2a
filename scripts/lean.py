"""Leave out an import of more than a second that nothing here uses; as a script, be `jupyter-book` without idle work.

Reading a notebook imports jsonschema, which builds thirty-eight parsers for international addresses as soon as the
package rfc3987_syntax is there. It takes that package to be optional, and no schema of a notebook or of a book's
configuration asks for such an address. Each citation looks for the form of its text among the entry points of all
installed packages, which takes ten seconds of a build; here it is found once.
"""

import functools
import sys

sys.modules.setdefault("rfc3987_syntax", None)

if __name__ == "__main__":
    import pybtex.plugin

    pybtex.plugin.find_plugin = functools.cache(pybtex.plugin.find_plugin)
    from jupyter_book.cli.main import main

    main()
