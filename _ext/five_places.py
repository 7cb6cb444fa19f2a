"""The table of the architecture page: from each file to its pages, its functions, their rows of cases, its exercises.

Everything is read by scripts/stems.py; here it only becomes a table.
"""

from itertools import groupby

from generated import add_page


def write(root) -> str:
    from coverage_index import Index
    from stems import Stems

    stems = Stems(Index(root))
    twins = [
        (pages(file), f"`{file.name}`", names(file, stems.index.cases), exercises(stems, file))
        for file in in_reading_order(stems, stems.components)
    ]
    alone = [
        (pages(file), f"`{file.name}`", names(file, {}), exercises(stems, file))
        for file in in_reading_order(stems, stems.others)
    ]
    return "\n\n".join(
        [
            table(("Pages", "File in both worlds", "Functions, their rows of cases; modules", "Exercises"), twins),
            "The files without a twin compute what a page defines, too:",
            table(("Pages", "File", "Functions", "Exercises"), alone),
        ]
    )


def in_reading_order(stems, files):
    """A file stands where its first page stands."""
    return sorted(files.values(), key=lambda file: stems.order.index(file.pages[0]) if file.pages else -1)


def pages(file) -> str:
    return ", ".join(f"{{doc}}`/{page}`" for page in file.pages)


def names(file, cases) -> str:
    """Links to the API; a number is that of the function's rows."""
    home, modules = ("attnmath.numpy", "attnmath.torch") if "." not in file.name else (file.name, "")
    linked = [f"{link(home, name)} {cases.get(name, '')}".strip() for name in file.functions]
    return ", ".join(linked + [link(modules, name) for name in file.modules])


def link(home: str, name: str) -> str:
    # The API page lists what the two worlds export and what belongs to both, not the other files of a world.
    return f"`{name}`" if home.count(".") == 2 else f"{{py:obj}}`{name} <{home}.{name}>`"


def exercises(stems, file) -> str:
    """The numbers in each problem set, with a link to the set."""
    return "; ".join(
        f"{{ref}}`set {name.removeprefix('set')} <sec-problems-{name}>`: " + ", ".join(str(one.number) for one in group)
        for name, group in groupby(stems.practised.get(file.name, []), key=lambda one: one.set)
    )


def table(head, rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def setup(app):
    add_page(app, "chapters/appendix/architecture", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
