"""The examples in the docstrings of a package, found in its source, so that no decorator can hide one."""

import ast
import doctest
import importlib
from pathlib import Path

PARSER = doctest.DocTestParser()


def files(package):
    """Module name -> file, of a whole package; without `__main__`, which would run at its import."""
    top = Path(package.__file__).parent
    found = {}
    for path in sorted(top.rglob("*.py")):
        parts = [package.__name__, *path.relative_to(top).with_suffix("").parts]
        found[".".join(parts).removesuffix(".__init__")] = path
    return {name: path for name, path in found.items() if not name.endswith(".__main__")}


def examples(name, path, names):
    """The docstrings of a file that hold examples, each as a test with the given global names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            whose = f"{name}.{node.name}" if hasattr(node, "name") else name
            line = node.body[0].lineno - 1
            test = PARSER.get_doctest(text, dict(names), whose, str(path), line)
            if test.examples:
                yield test


def count(package):
    """How many examples a package's docstrings hold."""
    return sum(len(test.examples) for name, path in files(package).items() for test in examples(name, path, {}))


def failures(name, path):
    """What goes wrong with a module's examples, as doctest tells it; nothing if all print what they promise."""
    told = []
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples(name, path, vars(importlib.import_module(name))):
        runner.run(test, out=told.append)
    return "".join(told)
