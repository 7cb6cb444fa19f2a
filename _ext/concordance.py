"""The concordance: each item of the sources, its place in the book, its functions, its tests, its exercises.

Everything is read by scripts/coverage_index.py; here it only becomes tables.
"""

from generated import add_page
from wrong_answers import plain

HEAD = "| Item | In the book | NumPy | PyTorch | Tests | Exercises |\n|---|---|---|---|---|---|"


def write(root) -> str:
    from coverage_index import Index

    index = Index(root)
    counts = index.counts()
    lines = [
        f"**{counts['covered']} of {counts['items']} items are covered.** The others are listed all the same.",
        "",
        "| Part of the sources | Items | Covered |",
        "|---|---:|---:|",
    ]
    for chapter in index.chapters:
        per = counts["chapters"][str(chapter["chapter"])]
        lines.append(f"| {heading(chapter)} | {per['items']} | {per['covered']} |")
    for chapter in index.chapters:
        lines += ["", f"## {heading(chapter)}", "", "{.concordance}", HEAD]
        lines += [row(index, item) for item in index.items if item.chapter == str(chapter["chapter"])]
    return "\n".join(lines) + "\n"


def heading(chapter) -> str:
    name = str(chapter["chapter"])
    return (
        f"{'Appendix' if name == 'A' else 'Chapter'} {name}: {chapter['title']}" if len(name) == 1 else chapter["title"]
    )


def row(index, item) -> str:
    places = [index.places[label] for label in item.labels if label in index.places]
    labels = [place.label for place in places]
    columns = [
        f"**{item.name}** {item.title}",
        ", ".join(place.markdown for place in places) or "*not yet covered*",
        several(function(index, name) for label in labels for name in index.world(label, "numpy")),
        several(function(index, name) for label in labels for name in index.world(label, "torch")),
        folded([name for label in labels for name in index.tests(label)]),
        several(exercise(index, name) for label in labels for name in index.exercises.get(label, [])),
    ]
    return "| " + " | ".join(columns) + " |"


def function(index, name: str) -> str:
    short = name.rsplit(".", 1)[1]
    in_a_world = name.startswith(("attnmath.numpy.", "attnmath.torch."))
    documented = short in index.public if in_a_world else name.count(".") == 2
    return f"{{py:obj}}`{short} <{name}>`" if documented else f"`{short}`"


def exercise(index, name: str) -> str:
    return index.places[name].markdown if name in index.places else name


def folded(tests) -> str:
    """Their number, and behind it their names: on a phone a row would be longer than the screen."""
    names = list(dict.fromkeys(tests))
    if not names:
        return ""
    told = ", ".join(f"<code>{plain(name)}</code>" for name in names)
    return f"<details><summary>{len(names)} test{'s' * (len(names) > 1)}</summary>{told}</details>"


def several(found) -> str:
    return ", ".join(dict.fromkeys(found))


def setup(app):
    add_page(app, "chapters/appendix/concordance", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
