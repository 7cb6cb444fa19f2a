"""The problem sets that the book offers for download: _build/problem-sets/<set>.zip, made at the start of a build.

A page links to one with {download}`set2.zip </_build/problem-sets/set2.zip>`. It is made again when its source, or what
makes it, is newer. In the public repository the students' version is its source.
"""

import subprocess
import sys
from pathlib import Path

from sphinx.errors import ExtensionError


def make_zips(app):
    from coverage_index import problem_sets

    root = Path(app.srcdir)
    course = root / "exercises" / "course.py"
    makers = [course, course.with_name("nbgrader_config.py"), *course.parent.glob("grading/*.py")]
    for notebook in sorted(problem_sets(root).glob("*/*.ipynb")):
        name = notebook.stem
        if name != notebook.parent.name:
            continue
        target = root / "_build" / "problem-sets" / f"{name}.zip"
        inputs = [path for path in notebook.parent.rglob("*") if path.is_file()] + makers
        if target.exists() and target.stat().st_mtime >= max(path.stat().st_mtime for path in inputs):
            continue
        done = subprocess.run([sys.executable, str(course), "zip", name], capture_output=True, text=True)
        if done.returncode:
            raise ExtensionError(f"Problem set {name} cannot be released:\n{done.stdout}{done.stderr}")


def setup(app):
    app.connect("builder-inited", make_zips)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
