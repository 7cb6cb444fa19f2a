"""`make notebooks`: run notebooks top to bottom and store their outputs in canonical form.

Canonical: a fresh python3 kernel, counts 1..n, cell ids cell-00, cell-01, …, no timings, no stderr, the same metadata
in every file. What is stored is what nbval compares and what a reader of the repository sees. Text notebooks (.md,
jupytext's MyST form) are accepted too: `python scripts/notebooks.py draft.md chapters/02_foundations/scaling.ipynb`.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cores import share_cores

ROOT = Path(__file__).resolve().parents[1]
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def canonical(source: Path, target: Path) -> tuple[str, float, list[str]]:
    """Execute `source` in the folder of `target` and write it there; return name, seconds, complaints."""
    import jupytext
    import nbformat
    from nbclient.exceptions import CellExecutionError
    from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor

    from execution import run

    notebook = jupytext.read(source, fmt="md:myst") if source.suffix == ".md" else nbformat.read(source, 4)
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
    start = time.perf_counter()
    name = os.path.relpath(target, ROOT)
    try:
        run(notebook, target.parent)
    except CellExecutionError as error:
        return name, time.perf_counter() - start, [str(error)]
    CoalesceStreamsPreprocessor().preprocess(notebook, {})  # a busy machine may send one print in two pieces
    complaints = []
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                complaints.append(f"{cell.id} writes to stderr: {output['text'].strip()[:200]}")
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    if not complaints:
        nbformat.write(notebook, target)
    return name, time.perf_counter() - start, complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "paths", nargs="*", type=Path, help="notebooks (all of chapters/ if none), or draft.md target.ipynb"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    paths = [path.resolve() for path in options.paths] or sorted((ROOT / "chapters").rglob("*.ipynb"))
    if paths and paths[0].suffix == ".md":
        pairs = [(paths[0], paths[1])]
    else:
        pairs = [(path, path) for path in paths if ".ipynb_checkpoints" not in path.parts]
    bad = 0
    share_cores(options.jobs)
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, seconds, complaints in pool.map(canonical, *zip(*pairs, strict=True)):
            print(
                f"{seconds:6.1f} s  {name}" + ("" if not complaints else "  NOT STORED\n" + "\n".join(complaints)),
                flush=True,
            )
            bad += bool(complaints)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
