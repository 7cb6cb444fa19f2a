"""Pages are written on all cores.

They are read on one: two of the extensions that Jupyter Book loads do not say whether several processes may read.
"""

import os


def _from_now_on(app, env):
    app.parallel = os.cpu_count() or 1


def setup(app):
    app.connect("env-updated", _from_now_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
