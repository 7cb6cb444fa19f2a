"""What covers what: sources -> labels of the book -> functions, tests, exercises. Counted from the tree, not typed in.

`concordance.yml` says where each item of the sources stands in the book, by label. All else is read off: labels from
the chapters, functions from the tags `# eq:label` and `# alg-label` in the library, tests from
`@pytest.mark.claim("label")` and from the rows of tests/attnmath/cases, exercises from their cells. `problems()`
lists every entry that points nowhere; a test wants it empty.
"""

import ast
import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]

EQUATION = re.compile(r"\$\$\s*\(((?:eq|pf):[\w:.-]+)\)|\\label\{((?:eq|pf):[\w:.-]+)\}")
TARGET = re.compile(r"^\(([\w:.-]+)\)=\s*$", re.M)
DIRECTIVE = re.compile(r"^\s*[`:]{3,}\{([\w:-]+)\}[^\n]*\n((?:\s*:[\w-]+:[^\n]*\n)*)", re.M)
OPTION = re.compile(r":(?:label|name):\s*([\w:.-]+)")
FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})(.*)$")
REFERENCE = re.compile(r"\{(?:eq|ref|numref|prf:ref|math:numref)\}`(?:[^`<]*<)?([\w:.-]+)>?`")
TAGGED = ("eq:", "alg-")  # equations and algorithms stand in the library too, in a line whose comment names them
COMMENT = re.compile(r"#[^#\n]*")
TAG = re.compile(r"\b(?:eq:|alg-)[\w:.-]*\w")


def problem_sets(root: Path) -> Path:
    """Where the notebooks of the problem sets lie: the sources, or what students get, where there is nothing else."""
    sources = root / "exercises" / "source"
    return sources if sources.is_dir() else root / "exercises" / "release"


@dataclass(frozen=True)
class Place:
    """Where a label stands: page (docname) and what it labels (equation, theorem, section, figure, exercise, …)."""

    label: str
    page: str
    kind: str

    @property
    def markdown(self) -> str:
        """A link to it, in MyST."""
        if self.kind == "equation":
            return f"{{eq}}`{self.label}`"
        if self.kind.startswith("prf:"):
            return f"{{prf:ref}}`{self.label}`"
        if self.kind == "figure":
            return f"{{numref}}`{self.label}`"
        return f"{{ref}}`{self.label}`"


@dataclass
class Item:
    """One thing that the sources contain."""

    name: str
    title: str
    chapter: str
    labels: list[str] = field(default_factory=list)


class Index:
    """Everything read off the tree below `root`, each part when it is first asked for."""

    def __init__(self, root: Path = ROOT):
        self.root = Path(root)

    @cached_property
    def chapters(self) -> list[dict]:
        return yaml.safe_load((self.root / "concordance.yml").read_text(encoding="utf-8"))["chapters"]

    @cached_property
    def items(self) -> list[Item]:
        return [
            Item(entry["item"], entry["title"], str(chapter["chapter"]), list(entry.get("labels") or []))
            for chapter in self.chapters
            for entry in chapter["items"]
        ]

    @cached_property
    def pages(self) -> dict[str, list[str]]:
        """The markdown of every page of the table of contents, cell by cell."""
        toc = yaml.safe_load((self.root / "_toc.yml").read_text(encoding="utf-8"))
        return {name: text for name in files_of(toc) if (text := self._markdown(name)) is not None}

    def _markdown(self, name: str) -> list[str] | None:
        notebook, page = self.root / f"{name}.ipynb", self.root / f"{name}.md"
        if notebook.exists():
            cells = read_notebook(notebook)["cells"]
            return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        return [page.read_text(encoding="utf-8")] if page.exists() else None

    @cached_property
    def all_places(self) -> list[Place]:
        places = []
        for page, cells in self.pages.items():
            for text in cells:
                text = without_code(text)
                places += [Place(found[0] or found[1], page, "equation") for found in EQUATION.findall(text)]
                places += [Place(label, page, "section") for label in TARGET.findall(text)]
                for name, options in DIRECTIVE.findall(text):
                    places += [Place(label, page, kind_of(name, label)) for label in OPTION.findall(options)]
            places += [Place(label, page, "figure") for label in self._figures(page)]
        return places

    def _figures(self, page: str) -> list[str]:
        path = self.root / f"{page}.ipynb"
        if not path.exists():
            return []
        metadata = [cell["metadata"].get("mystnb", {}) for cell in read_notebook(path)["cells"]]
        return [name for found in metadata if (name := found.get("figure", {}).get("name"))]

    @cached_property
    def places(self) -> dict[str, Place]:
        return {place.label: place for place in self.all_places}

    @cached_property
    def tagged(self) -> list[tuple[str, Path, str]]:
        """Label, file and public function of every line of the library that carries a tag."""
        found = {}
        for path in sorted((self.root / "lib" / "attnmath").rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not any(prefix in text for prefix in TAGGED):
                continue
            spans = definitions(path)
            for number, line in enumerate(text.splitlines(), 1):
                for label in TAG.findall(" ".join(COMMENT.findall(line))):
                    for node in spans:
                        if node.lineno <= number <= node.end_lineno:
                            found[label, path, node.name] = None
        return list(found)

    @cached_property
    def functions(self) -> dict[str, list[str]]:
        """Label -> dotted names of the public functions whose lines carry its tag."""
        found = defaultdict(list)
        for label, path, name in self.tagged:
            parts = path.relative_to(self.root / "lib").with_suffix("").parts
            home = ".".join(parts[:2]) if parts[1] in ("numpy", "torch") else ".".join(parts)
            found[label].append(f"{home}.{name}")
        return dict(found)

    def world(self, label: str, world: str) -> list[str]:
        """The functions of one world that carry the label; plain Python (attnmath.count) counts as NumPy's."""
        names = self.functions.get(label, [])
        is_torch = [name.startswith("attnmath.torch.") for name in names]
        return [name for name, torch in zip(names, is_torch, strict=True) if torch == (world == "torch")]

    @cached_property
    def cases(self) -> dict[str, int]:
        """Component -> number of its rows in tests/attnmath/cases, `Case("softmax", "with a mask", …)`."""
        rows = defaultdict(int)
        for path in sorted((self.root / "tests/attnmath/cases").glob("*.py")):
            for component in components_of_rows(path.read_text(encoding="utf-8")):
                rows[component] += 1
        return dict(sorted(rows.items()))

    @cached_property
    def public(self) -> set[str]:
        """The public functions of the two worlds."""
        return {name for world in ("numpy", "torch") for names in self.components(world).values() for name in names}

    def components(self, world: str) -> dict[str, list[str]]:
        """File -> functions and classes that one world exports, in the order in which they stand."""
        folder = self.root / "lib" / "attnmath" / world
        exported = set(exports(folder / "__init__.py"))
        listed = {}
        for path in sorted(folder.glob("*.py")):
            names = [n.name for n in definitions(path) if n.name in exported]
            if names and path.stem != "__init__":
                listed[path.stem] = names
        return listed

    @cached_property
    def claims(self) -> dict[str, list[str]]:
        """Label -> tests that carry it as `claim`."""
        found = defaultdict(list)
        for path in sorted((self.root / "tests").rglob("*.py")):
            for test, label in claimed(path.read_text(encoding="utf-8")):
                if (name := "::".join([path.name, *test])) not in found[label]:
                    found[label].append(name)
        return dict(found)

    def tests(self, label: str) -> list[str]:
        """Tests that claim the label, and the row of cases of each function that carries its tag."""
        rows = {name.rsplit(".", 1)[1] for name in self.functions.get(label, [])} & self.cases.keys()
        return [*self.claims.get(label, []), *(f"cases: {name}" for name in sorted(rows))]

    @cached_property
    def graded(self) -> list[dict]:
        """The graded cells of the problem sets: set, exercise, points, labels."""
        found = []
        for path in sorted(problem_sets(self.root).glob("*/*.ipynb")):
            for cell in read_notebook(path)["cells"]:
                grading, ours = cell["metadata"].get("nbgrader", {}), cell["metadata"].get("attnmath", {})
                if grading.get("grade") or ours.get("labels"):
                    found.append(
                        {
                            "set": path.parent.name,
                            "exercise": ours.get("exercise") or grading.get("grade_id", ""),
                            "graded": bool(grading.get("grade")),
                            "points": grading.get("points", 0) or 0,
                            "labels": list(ours.get("labels", [])),
                        }
                    )
        return found

    @cached_property
    def exercises(self) -> dict[str, list[str]]:
        """Label -> exercises: those of the problem sets that declare it, those of the pages that refer to it."""
        found = defaultdict(list)
        for cell in self.graded:
            for label in cell["labels"]:
                name = f"{cell['set']}: {cell['exercise']}"
                if name not in found[label]:
                    found[label].append(name)
        for cells in self.pages.values():
            for text in cells:
                for block in re.finditer(r"^(`{3,}|:{3,})\{exercise\}.*?^\1", text, re.M | re.S):
                    own = OPTION.search(block.group())
                    for label in REFERENCE.findall(block.group()) if own else ():
                        if own.group(1) not in found[label]:
                            found[label].append(own.group(1))
        return dict(found)

    def problems(self) -> list[str]:
        """Every entry that points nowhere, one line each; empty when the concordance tells the truth."""
        said = []
        names = [item.name for item in self.items]
        said += [
            f"concordance.yml: {name} stands there twice" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        labels = [place.label for place in self.all_places]
        for label in sorted({label for label in labels if labels.count(label) > 1}):
            said.append(f"{label} is defined twice: {', '.join(p.page for p in self.all_places if p.label == label)}")
        for item in self.items:
            for label in item.labels:
                if label not in self.places:
                    said.append(f"concordance.yml: {item.name} points to {label}, which no page defines")
        for label, tests in sorted(self.claims.items()):
            if label not in self.places:
                said.append(f"{tests[0]} claims {label}, which no page defines")
        for label in sorted(self.functions):
            if label not in self.places:
                said.append(f"{self.functions[label][0]} carries the tag {label}, which no page defines")
        for label, place in sorted(self.places.items()):
            if label.startswith(TAGGED) and label not in self.functions:
                said.append(f"{place.page} defines {label}, which no line of the library carries")
        for cell in self.graded:
            for label in cell["labels"]:
                if label not in self.places:
                    said.append(f"exercises/{cell['set']}: {cell['exercise']} names {label}, which no page defines")
        return said

    def is_covered(self, item: Item) -> bool:
        """An item is covered by labels that stand in the book, not by labels that are promised."""
        return bool(item.labels) and all(label in self.places for label in item.labels)

    def counts(self) -> dict:
        """Items in all and covered, by chapter."""
        per = {str(chapter["chapter"]): {"items": 0, "covered": 0} for chapter in self.chapters}
        for item in self.items:
            per[item.chapter]["items"] += 1
            per[item.chapter]["covered"] += self.is_covered(item)
        total = {key: sum(one[key] for one in per.values()) for key in ("items", "covered")}
        return total | {"chapters": per}


def files_of(toc) -> list[str]:
    """Every page of a jb-book table of contents, in reading order."""
    if isinstance(toc, list):
        return [name for part in toc for name in files_of(part)]
    own = [toc[key] for key in ("root", "file") if key in toc]
    return own + [
        n for key in ("parts", "chapters", "sections", "subtrees", "entries") for n in files_of(toc.get(key, []))
    ]


def definitions(path: Path) -> list[ast.FunctionDef | ast.ClassDef]:
    """The public functions and classes at the top level of a file."""
    return _definitions(path.read_text(encoding="utf-8"))


# Who plants a fault reads the whole tree again, of which one file has changed: what a text says is found once.
@cache
def _definitions(text: str) -> list[ast.FunctionDef | ast.ClassDef]:
    body = ast.parse(text).body
    return [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]


@cache
def claimed(text: str) -> list[tuple[tuple[str, ...], str]]:
    """The claims of a file of tests: the function or class in which each stands, if any, and its label."""
    if "claim" not in text:
        return []
    found, tree = [], ast.parse(text)
    spans = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    starts = [min([n.lineno, *(d.lineno for d in n.decorator_list)]) for n in spans]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "claim":
            inside = [n.name for n, at in zip(spans, starts, strict=True) if at <= node.lineno <= n.end_lineno]
            found += [(tuple(inside[:1]), value.value) for value in node.args if isinstance(value, ast.Constant)]
    return found


@cache
def components_of_rows(text: str) -> list[str]:
    """The component of each row of a file of cases."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args]
    first = [node.args[0] for node in calls if ast.unparse(node.func) == "Case"]
    return [name.value for name in first if isinstance(name, ast.Constant)]


def exports(path: Path) -> list[str]:
    """What `__all__` of a file says."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def read_notebook(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def without_code(text: str) -> str:
    """Markdown less its code blocks; directives stay, whose fences look much the same."""
    kept, fences, code = [], [], ""
    for line in text.splitlines():
        mark, info = found.groups() if (found := FENCE.match(line)) else ("", "")
        if code:
            code = "" if mark[:1] == code[0] and len(mark) >= len(code) and not info.strip() else code
            continue
        if mark and not info.strip() and fences and mark[0] == fences[-1][0] and len(mark) >= len(fences[-1]):
            fences.pop()
        elif mark and info.lstrip().startswith("{") and not info.lstrip().startswith("{code"):
            fences.append(mark)
        elif mark and mark[0] != ":":
            code = mark
            continue
        kept.append(line)
    return "\n".join(kept) + "\n"


def kind_of(directive: str, label: str) -> str:
    if directive.startswith("prf:"):
        return directive
    if directive == "math":
        return "equation"
    return "figure" if directive in ("figure", "glue:figure") or label.startswith("fig-") else directive


def problems(root: Path = ROOT) -> list[str]:
    return Index(root).problems()


def main() -> int:
    index = Index()
    counted, found = index.counts(), index.problems()
    print(f"{counted['covered']} of {counted['items']} items of the sources are covered")
    print("\n".join(found) or "every entry points somewhere")
    return int(bool(found) and "--strict" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
