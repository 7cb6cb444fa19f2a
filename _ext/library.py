"""Read the pages again when the library has changed.

Sphinx reads a page again when its file changes. The outputs of a notebook, and the docstrings of the API page, change
with the library too: its fingerprint is therefore a configuration value on which every page depends.
"""

from pathlib import Path


def _fingerprint(app, config):
    from fingerprint import fingerprint

    config.library_fingerprint = fingerprint(Path(app.srcdir))


def setup(app):
    app.add_config_value("library_fingerprint", "", "env")
    app.connect("config-inited", _fingerprint)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
