"""The status page: what is covered and what was measured, from scripts/facts.py, the figures of `make facts`."""

from generated import add_page

NEVER = "not measured yet"


def write(root) -> str:
    from facts import gather

    facts = gather(root)
    items, books, sets = facts["items"], facts["notebooks"], facts["exercises"]["sets"]
    wrong, rows = facts["wrong_answers"], facts["components"]
    untried = NEVER if (root / "exercises" / "batteries").is_dir() else "tried in the instructor's repository"
    seen = [row["witnesses"] for row in rows if row["witnesses"] is not None]
    graded = sum(len(one["exercises"]) for one in sets.values())
    parts = sum(one["parts"] for one in sets.values())
    summary = [
        ("Items of the sources", items["items"]),
        ("… of them covered", items["covered"]),
        ("Labels in the book", facts["labels"]),
        ("Equations that stand in the library", facts["equations_in_library"]),
        ("Components with a row of test cases", len(rows)),
        ("… fewest and most witnesses of one", f"{min(seen)} to {max(seen)}" if seen else NEVER),
        ("Notebooks", len(books)),
        ("Code cells", sum(row["cells"] for row in books)),
        ("… compared with their stored outputs", sum(row["compared"] for row in books)),
        ("… of these, cells that print something", sum(row["compared_with_output"] for row in books)),
        ("Exercises in the pages", facts["exercises"]["in_pages"]),
        ("… with a solution", facts["exercises"]["solved"]),
        ("Graded exercises of the problem sets", f"{graded} in {len(sets)} set(s), in {parts} graded parts"),
        ("Wrong answers tried on the grader", wrong["all"] if wrong else untried),
        ("… caught", wrong["caught"] if wrong else untried),
        ("Tests of the last run", told(facts["tests"]["test"])),
        ("Notebook cells run against their outputs", told(facts["tests"]["notebooks"])),
    ]
    parts = [
        table(("Figure", "Now"), summary),
        "## Notebooks\n\nSeconds are those of the last execution for this book.",
        table(
            ("Notebook", "Code cells", "Compared", "Seconds"),
            [(f"{{doc}}`/{r['page']}`", r["cells"], r["compared"], shown(r["seconds"])) for r in books],
        ),
        "## Components\n\nA witness is a different test that the component passed in the last run.",
        table(("Component", "Rows", "Witnesses"), [(f"`{r['name']}`", r["rows"], shown(r["witnesses"])) for r in rows])
        if rows
        else "None yet.",
        "## Where the time went",
        clock(facts["times"]),
        "## Versions",
        table(("Package", "Version"), [(name, value or "not installed") for name, value in facts["versions"].items()]),
    ]
    return "\n\n".join(parts) + "\n"


def clock(times) -> str:
    """The stages of the last `make test`, in seconds."""
    if times is None:
        return "`make test` has not been run yet."
    stages = [(one["title"], round(one["seconds"]), one["result"]) for one in times["stages"]]
    stages.append(("**all of these**", round(sum(one["seconds"] for one in times["stages"])), ""))
    return f"The last `make test`, on {times['cores']} cores, {times['date']}.\n\n" + table(
        ("Stage", "Seconds", "Result"), stages
    )


def shown(value) -> str:
    return NEVER if value is None else str(value)


def told(run) -> str:
    if run is None:
        return NEVER
    return f"{run['passed']} passed, {run['failed']} failed, {run['skipped']} skipped, {run['seconds']} s"


def table(head, rows) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, rule, *rows))


def setup(app):
    add_page(app, "chapters/appendix/status", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
