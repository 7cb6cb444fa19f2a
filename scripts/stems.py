"""From a file of the library to its twin, its pages, its rows of cases and its exercises, and from an exercise back.

Nothing is typed in. A line that computes an equation carries its label, the label stands on a page, and an exercise
says in its metadata which labels it practises (see coverage_index.py, which reads all that). So a label leads from any
of the places to the others. `problems()` says where it does not; a test wants it empty.
"""

import ast
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coverage_index import ROOT, Index, definitions

# Files of NumPy that export nothing, and files of PyTorch that export what NumPy has no use for.
INSIDE = {
    "blockwise": "cuts arrays into blocks for the activations",
    "half": "computes 16 bits in float32 for the components",
    "normal": "the normal distribution, for gelu",
    "types": "types of arrays, and what broadcasting undoes",
    "weighed": "makes a core of attention of any rule that turns scores into weights",
}
TORCH_ONLY = {
    "hf": "reads the models of others",
    "modules": "carries parameters from one world to the other",
}


@dataclass(frozen=True)
class Exercise:
    """An exercise of a problem set, and the pages on which its labels stand: first the page of most of them."""

    set: str
    number: int
    name: str
    labels: tuple[str, ...]
    pages: tuple[str, ...]

    def __str__(self):
        return f"exercises/{self.set}: {self.name}"


@dataclass(frozen=True)
class File:
    """A file of the library; its pages are those on which its labels stand, first the page of most of them."""

    name: str  # "softmax" for the two of a component, "attnmath.count" for a file that has no twin
    functions: tuple[str, ...]
    modules: tuple[str, ...]
    pages: tuple[str, ...]


class Stems:
    """Who leads to whom in the tree of an index."""

    def __init__(self, index: Index):
        self.index = index
        self.order = list(index.pages)

    @cached_property
    def twins(self) -> dict[str, list[str]]:
        """File of PyTorch -> the functions that it exports; modules hold parameters and have no twin."""
        return {stem: functions(names) for stem, names in self.index.components("torch").items()}

    @cached_property
    def carriers(self) -> dict[str, list[str]]:
        """Label -> names of the files whose lines carry it; a twin in PyTorch goes by the name of NumPy's file."""
        found = defaultdict(list)
        for label, path, _ in self.index.tagged:
            if (name := self._name(path)) not in found[label]:
                found[label].append(name)
        return dict(found)

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.index.root / "lib").with_suffix("").parts
        return parts[2] if parts[1] in ("numpy", "torch") and parts[2] in self.components else ".".join(parts)

    @cached_property
    def components(self) -> dict[str, File]:
        """The files of NumPy that export something. Their labels are those of NumPy's lines, gradients included."""
        torch, labels = self.index.components("torch"), defaultdict(list)
        for label, path, _ in self.index.tagged:
            if path.parent.name == "numpy":
                labels[path.stem].append(label)
        return {
            stem: File(
                stem,
                tuple(names),
                tuple(name for name in torch.get(stem, []) if name not in functions(torch[stem])),
                self.pages_of(labels[stem], stem),
            )
            for stem, names in self.index.components("numpy").items()
        }

    @cached_property
    def others(self) -> dict[str, File]:
        """The files that have no twin and yet compute what a page defines."""
        labels, names = defaultdict(list), defaultdict(list)
        for label, path, function in self.index.tagged:
            if (name := self._name(path)) not in self.components:
                labels[name].append(label)
                names[name].append(function)
        return {
            name: File(name, tuple(dict.fromkeys(names[name])), (), self.pages_of(labels[name], last(name)))
            for name in labels
        }

    @cached_property
    def files(self) -> dict[str, File]:
        return self.components | self.others

    def pages_of(self, labels, name: str = "") -> tuple[str, ...]:
        """The pages of labels, most labels first; of two equals the page of that name, then the earlier one."""
        count = Counter(self.index.places[label].page for label in dict.fromkeys(labels) if label in self.index.places)
        return tuple(sorted(count, key=lambda page: (-count[page], last(page) != name, self.order.index(page))))

    @cached_property
    def exercises(self) -> list[Exercise]:
        """The exercises of the problem sets, in their order."""
        labels = defaultdict(list)
        for cell in self.index.graded:
            labels[cell["set"], cell["exercise"]] += cell["labels"]
        number, found = Counter(), []
        for (of_set, name), own in labels.items():
            number[of_set] += 1
            found.append(Exercise(of_set, number[of_set], name, tuple(own), self.pages_of(own)))
        return found

    def files_of(self, exercise: Exercise) -> list[str]:
        """The files whose lines carry its labels; a label that no line carries leads to the file named as its page."""
        found = []
        for label in exercise.labels:
            page = last(self.index.places[label].page) if label in self.index.places else ""
            found += self.carriers.get(label) or [name for name in self.files if last(name) == page]
        return list(dict.fromkeys(found))

    @cached_property
    def practised(self) -> dict[str, list[Exercise]]:
        """File -> the exercises that lead to it."""
        found = defaultdict(list)
        for exercise in self.exercises:
            for name in self.files_of(exercise):
                found[name].append(exercise)
        return dict(found)

    @cached_property
    def helpers(self) -> set[str]:
        """The functions that need no row of cases: HELPERS of each file of cases, with its reason."""
        found = set()
        for path in sorted((self.index.root / "tests/attnmath/cases").glob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                if path.stem != "__init__" and any(getattr(target, "id", None) == "HELPERS" for target in targets):
                    found |= ast.literal_eval(node.value)
        return found

    def problems(self) -> list[str]:
        """Every name that does not lead on, one line each with its cure; empty when the table tells the truth."""
        return [*self._twins_wrong(), *self._pages_wrong(), *self._cases_wrong(), *self._exercises_wrong()]

    def _twins_wrong(self):
        for stem, file in self.components.items():
            for name in file.functions:
                if name not in self.twins.get(stem, []):
                    yield f"torch/{stem}.py exports no {name}, as numpy/{stem}.py does: give the twin that name"
        for stem, names in self.twins.items():
            for name in names:
                if stem not in TORCH_ONLY and name not in getattr(self.components.get(stem), "functions", ()):
                    yield f"numpy/{stem}.py exports no {name}, as torch/{stem}.py does: give the twin that name"
        written = {path.stem for path in (self.index.root / "lib/attnmath/numpy").glob("*.py") if definitions(path)}
        for stem in sorted((written - self.components.keys()) ^ INSIDE.keys()):
            yield f"numpy/{stem}.py exports nothing, or INSIDE says so and it does: export it, or correct INSIDE"

    def _pages_wrong(self):
        for name, file in self.files.items():
            if not file.pages:
                yield f"{name} leads to no page: tag the line of it that a page defines, with `# eq:` or `# alg-`"
            namesakes = [page for page in self.order if last(page) == last(name)]
            if namesakes and file.pages[:1] != (namesakes[0],):
                yield f"{name} leads to {file.pages[:1]} first, not to the page of its name: rename one of the two"

    def _cases_wrong(self):
        public = {name for file in self.components.values() for name in file.functions}
        for name in sorted(public - self.index.cases.keys() - self.helpers):
            yield f"{name} has no row in tests/attnmath/cases: write one, or make it one of HELPERS there"
        for name in sorted((self.helpers | self.index.cases.keys()) - public):
            yield f"tests/attnmath/cases names {name}, which no file of NumPy exports: correct the name"

    def _exercises_wrong(self):
        for exercise in self.exercises:
            if not exercise.pages:
                yield f"{exercise} leads to no page: name labels of the book in its metadata"
            if not self.files_of(exercise):
                yield f"{exercise} leads to no file: name a label that a line carries, or one of a page named as a file"


def functions(names) -> list[str]:
    """The names of functions; a module's begins with a capital."""
    return [name for name in names if not name[0].isupper()]


def last(name: str) -> str:
    """The name of a page without its folder, of a module without its package."""
    return name.replace("/", ".").rpartition(".")[2]


def main() -> int:
    found = Stems(Index(ROOT)).problems()
    print("\n".join(found) or "every name leads on")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
