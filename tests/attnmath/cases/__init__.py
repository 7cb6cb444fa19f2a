"""One row per component and circumstance: how to call it in either world, and what torch's own function says.

Every file of this folder but `case` holds rows, `CASES`, and may name functions that need none, `HELPERS`, each with
its reason beside it. A file that is added is found.
"""

from importlib import import_module
from pkgutil import iter_modules

FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__) if file.name != "case"]
CASES = [case for file in FILES for case in file.CASES]
HELPERS = {name for file in FILES for name in getattr(file, "HELPERS", ())}
