"""`make facts`: count and measure what the status page says, from the tree, the execution cache and the last test run.

Nothing is typed in. What has not been measured yet is None, and the page says so.
"""

import json
import platform
import re
import sys
from collections import defaultdict
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

from coverage_index import ROOT, Index, read_notebook

PACKAGES = (
    "numpy",
    "scipy",
    "torch",
    "matplotlib",
    "jupyter-book",
    "Sphinx",
    "nbval",
    "nbgrader",
    "sentence-transformers",
)
NOT_COMPARED = {"nbval-ignore-output", "nbval-skip", "nbval-raises-exception"}


def gather(root: Path = ROOT) -> dict:
    index = Index(root)
    return {
        "items": index.counts(),
        "labels": len(index.places),
        "equations_in_library": sum(label.startswith("eq:") for label in index.functions),
        "components": components(index),
        "notebooks": notebooks(index),
        "exercises": exercises(index),
        "wrong_answers": wrong_answers(root),
        "tests": {name: report(root / "_build" / f"{name}-report.xml") for name in ("notebooks", "test")},
        "times": times(root),
        "versions": {"Python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


# Which witnesses of a component agree when a test of tests/attnmath/test_twins.py passes.
WITNESSES = {
    "test_twin_and_torch_agree_forward_and_backward": {"by hand", "the twin's autograd", "torch's own"},
    "test_finite_difference": {"by hand", "finite difference"},
}


def components(index: Index) -> list[dict]:
    """Each component of tests/attnmath/cases, its rows, and how many witnesses agreed in the last run."""
    path = index.root / "_build" / "test-report.xml"
    witnesses = defaultdict(set)
    if path.exists():
        for case in ElementTree.parse(path).iter("testcase"):
            test, _, parameters = case.get("name", "").partition("[")
            if test in WITNESSES and not len(case):
                witnesses[parameters.split("-")[0]] |= WITNESSES[test]
    return [
        {"name": name, "rows": rows, "witnesses": len(witnesses[name]) if path.exists() else None}
        for name, rows in index.cases.items()
    ]


def notebooks(index: Index) -> list[dict]:
    """Each notebook's code cells, those whose outputs are compared, and the seconds that it took to run."""
    seconds = run_times(index.root)
    rows = []
    for page in index.pages:
        path = index.root / f"{page}.ipynb"
        if path.exists():
            cells = [cell for cell in read_notebook(path)["cells"] if cell["cell_type"] == "code"]
            compared = [cell for cell in cells if is_compared(cell)]
            rows.append(
                {
                    "page": page,
                    "cells": len(cells),
                    "compared": len(compared),
                    "compared_with_output": sum(any(map(is_text, cell["outputs"])) for cell in compared),
                    "seconds": seconds.get(page),
                }
            )
    return rows


def is_compared(cell: dict) -> bool:
    """A cell that a tag excuses is passed over; one without a count was never run, and fails."""
    return cell.get("execution_count") is not None and not NOT_COMPARED & set(cell["metadata"].get("tags", []))


def is_text(output: dict) -> bool:
    return output["output_type"] == "stream" or any(kind != "image/png" for kind in output.get("data", {}))


def run_times(root: Path) -> dict[str, float]:
    """Seconds of each notebook's last execution for the book, from the execution cache."""
    folder = root / "_build" / ".jupyter_cache"
    if not (folder / "global.db").exists():
        return {}
    from jupyter_cache import get_cache

    found = {}
    for record in sorted(get_cache(folder).list_cache_records(), key=lambda record: record.created):
        page = Path(record.uri).with_suffix("")
        if page.is_relative_to(root) and "execution_seconds" in record.data:
            found[page.relative_to(root).as_posix()] = round(record.data["execution_seconds"], 1)
    return found


def exercises(index: Index) -> dict:
    """Exercises of the pages (folded solutions) and graded cells of the problem sets with their points."""
    in_pages = [place for place in index.places.values() if place.kind == "exercise"]
    solved = {
        label
        for cells in index.pages.values()
        for text in cells
        for label in re.findall(r"^[`:]{3,}\{solution(?:-start)?\}\s+(\S+)", text, re.M)
    }
    sets = {}
    for cell in index.graded:
        if cell["graded"]:
            one = sets.setdefault(cell["set"], {"exercises": [], "parts": 0, "points": 0})
            one["exercises"] = sorted({*one["exercises"], cell["exercise"]})
            one["parts"] += 1
            one["points"] += cell["points"]
    return {"in_pages": len(in_pages), "solved": sum(place.label in solved for place in in_pages), "sets": sets}


def wrong_answers(root: Path) -> dict | None:
    """Deliberately wrong answers and how many lost points, as the exercise tests wrote them down."""
    path = root / "_build" / "wrong-answers.json"
    if not path.exists():
        return None
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {"all": len(rows), "caught": sum(bool(row["caught"]) for row in rows)}


def times(root: Path) -> dict | None:
    """Where the time of the last whole run went, as scripts/run_tests.py stored it."""
    path = root / "_build" / "times.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def report(path: Path) -> dict | None:
    """What a JUnit report counts."""
    return counted(path) if path.exists() else None


def counted(path: Path) -> dict:
    """Passed, failed and skipped of all suites of a JUnit report, and their seconds."""
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    count = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return {
        "passed": count["tests"] - failed - count["skipped"],
        "failed": failed,
        "skipped": count["skipped"],
        "seconds": round(sum(float(suite.get("time", 0)) for suite in suites)),
    }


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    facts = gather()
    target = ROOT / "_build" / "facts.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if "-q" not in sys.argv:
        print(target.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
