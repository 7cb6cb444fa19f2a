"""Run in a process of its own: every file of chapters/take_along without attnmath, plainly and under torch.compile.

`python -m tests.take_along.alone NAME ...` prints a line of JSON for each name: what went wrong, or null.
"""

import importlib
import importlib.util
import json
import sys
import traceback
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "chapters" / "take_along"


def own(name):
    """The file as a module, under a name that no other module has; the compiler looks it up by that name."""
    spec = importlib.util.spec_from_file_location(f"taken_along_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def flat(found):
    """The tensors and arrays of a result, in order."""
    if isinstance(found, dict):
        return [x for one in found.values() for x in flat(one)]
    return [x for one in found for x in flat(one)] if isinstance(found, tuple | list) else [found]


def compiled_equals_plain(module, case):
    import torch

    if "torch" not in vars(module):
        return
    outcomes = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend="aot_eager")):
        torch.manual_seed(0)
        function, arguments = case.example(module)
        outcomes.append(flat(wrap(function)(*arguments)))
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-4, atol=1e-5)


def wrong(name):
    """What goes wrong with one file, or None."""
    try:
        module, case = own(name), importlib.import_module(f"tests.take_along.cases.{name}")
        function, arguments = case.example(module)
        if not flat(function(*arguments)):
            return "its example returns nothing"
        compiled_equals_plain(module, case)
    except Exception:
        return traceback.format_exc(limit=-3)
    return None


if __name__ == "__main__":
    sys.modules["attnmath"] = None  # an import of it fails
    for name in sys.argv[1:]:
        print(json.dumps([name, wrong(name)]), flush=True)
