"""Every problem set, graded as students are: what is right earns all, what is wrong loses points and is told why.

The wrong answers are in exercises/batteries/<set>.py; the table of what is caught goes to _build/wrong-answers.json.
"""

import importlib.util
import json
import re

import nbformat
import pytest

from grading.course_root import course_at, exercise_of, grade_id, points_by_exercise
from nbreferee.judge.job import bound
from tests.course.battery import EXERCISES, catch, grade, one_pool, points_of_tests

pytestmark = pytest.mark.uses("walls")
LARGE = {"set7", "set8", "set9"}  # these promise at least ten wrong answers to each exercise
ONE_PROCESS = re.compile(
    r"\b(tracemalloc|\w*DispatchMode|inspect|gc|weakref|_getframe|grad_fn|saved_tensors|monkeypatch|setflags|globals)\b"
)


@pytest.fixture(scope="module", autouse=True)
def grading():
    with one_pool():
        yield


@pytest.fixture(scope="module", params=course_at().assignments())
def name(request):
    return request.param


@pytest.fixture(scope="module")
def path(name):
    return EXERCISES / "source" / name / f"{name}.ipynb"


@pytest.fixture(scope="module")
def source(path):
    return nbformat.read(path, 4)


@pytest.fixture(scope="module")
def battery(name):
    spec = importlib.util.spec_from_file_location(f"wrong_answers_to_{name}", EXERCISES / "batteries" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections(notebook):
    """{exercise: its cells}, in order."""
    found = {}
    for cell in notebook.cells:
        exercise = cell.metadata.get("attnmath", {}).get("exercise")
        if exercise:
            found.setdefault(exercise, []).append(cell)
    return found


def test_the_source_is_canonical(path, source):
    """Stored without outputs and counts; the tests below are what executes it."""
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    code = [cell for cell in source.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert source.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in source.cells}) == len(source.cells)


def test_the_set_is_worth_100_points(source):
    points = points_by_exercise(source)
    assert sum(points.values()) == 100
    assert len(points_of_tests(source)) >= 8, "at least eight exercises are graded automatically"
    assert len(points) > len(points_of_tests(source)), "one is a written proof"


def test_every_exercise_says_what_it_asks(source):
    for exercise, cells in sections(source).items():
        heading, text = cells[0], "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        ours = heading.metadata["attnmath"]
        assert re.match(r"## Exercise \d+\. .+ \(\d+ points\)\n", heading.source), exercise
        assert ours["difficulty"] in range(1, 6) and ours["minutes"] >= 5 and ours["labels"], exercise
        assert f"Difficulty {ours['difficulty']} of 5, {ours['minutes']} minutes." in text, exercise
        assert text.count("<details><summary>Hint") == text.count("</details>") >= 2, exercise
        kinds = [cell.metadata["nbgrader"] for cell in cells if "nbgrader" in cell.metadata]
        assert any(kind["solution"] for kind in kinds) and all(exercise_of(k["grade_id"]) == exercise for k in kinds)


def test_the_book_states_the_same_figures(name, source):
    whole = (EXERCISES.parent / "chapters" / "problems" / "index.md").read_text(encoding="utf-8")
    page = whole.split(f"(sec-problems-{name})=")[1].split("\n(sec-problems-")[0]
    stated = re.findall(r"^\| (\d+) \| (.+?) \| .+ \| (\d+) \| (\d) \| (\d+) \|$", page, re.M)
    found = []
    for cells in sections(source).values():
        number, title, points = re.match(r"## Exercise (\d+)\. (.+) \((\d+) points\)", cells[0].source).groups()
        ours = cells[0].metadata["attnmath"]
        found.append((number, title, points, str(ours["difficulty"]), str(ours["minutes"])))
    assert stated == found
    assert f"/_build/problem-sets/{name}.zip" in page


def test_both_worlds_are_asked_for(source):
    worlds = {cells[0].source.split("*")[1] for cells in sections(source).values()}
    for world in ("NumPy", "PyTorch"):
        assert sum(world in words for words in worlds) >= 2, world


def test_marks_depend_on_no_random_generator(source):
    for cell in source.cells:
        if cell.cell_type == "code":
            assert "random" not in cell.source and "seed" not in cell.source, cell.source[:60]


@pytest.mark.slow
def test_a_student_gets_questions_stubs_and_shown_tests(name, path, source, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / name).symlink_to(path.parent, target_is_directory=True)
    released = {
        grade_id(cell): cell for cell in nbformat.read(course_at(tmp_path).prepare(name) / f"{name}.ipynb", 4).cells
    }
    for cell in source.cells:
        part = grade_id(cell)
        if part is None:
            continue
        text = released[part].source
        assert "SOLUTION" not in text and "HIDDEN" not in text
        if cell.metadata.nbgrader.solution:
            stub = "raise NotImplementedError" if cell.cell_type == "code" else "*Your answer here.*"
            kept = re.sub(r"[ \t]*### BEGIN SOLUTION.*?### END SOLUTION", "", cell.source, flags=re.S)
            left = [line for line in text.split("\n") if stub not in line and line.strip()]
            assert stub in text and left == [line for line in kept.split("\n") if line.strip()], part
        elif "_test-hidden" in part:
            assert all(line.startswith("#") for line in text.strip().split("\n")), part
        else:
            assert text.strip() == cell.source.strip(), part


def graded_tests(notebook):
    """{grade id: test cell}, the automatically graded ones."""
    found = {}
    for cell in notebook.cells:
        flags = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and flags.get("grade") and not flags.get("solution"):
            found[flags.grade_id] = cell
    return found


def undeclared(notebook):
    """[what a test cell lacks that says how it is run]."""
    tests, wrong = graded_tests(notebook), []
    ways = {test: cell.metadata.get("nbreferee", {}).get("run") for test, cell in tests.items()}
    answers = {}
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("solution"):
            answers.setdefault(exercise_of(grade_id(cell)), set()).update(bound(cell.source))
    for number, (test, cell) in enumerate(tests.items()):
        ours, asked = cell.metadata.get("nbreferee", {}), answers[exercise_of(test)]
        if ways[test] == "split":
            if set(ours) != {"run"}:
                wrong.append(f"{test}: a split test says no more than that")
            if alone := ONE_PROCESS.search(cell.source):
                wrong.append(f"{test}: {alone.group()} makes sense in one process only")
        elif ways[test] == "sandboxed":
            used = {name for name in asked if re.search(rf"\b{name}\b", cell.source)}
            same = [
                other
                for other in list(tests)[:number]
                if exercise_of(other) == exercise_of(test)
                and ways[other] == "split"
                and any(re.search(rf"\b{name}\b", tests[other].source) for name in used)
            ]
            if not re.fullmatch(r"[A-Z].{20,}\.", ours.get("reason", "")):
                wrong.append(f"{test}: the reason is no sentence")
            if not used or not same or ours.get("needs") != same:
                wrong.append(f"{test} needs {ours.get('needs')}; the split tests of {sorted(used)} are {same}")
        else:
            wrong.append(f"{test} does not say how it is run")
    return wrong


def test_every_test_cell_declares_how_it_is_run(source):
    assert undeclared(source) == []
    tests = graded_tests(source)
    sandboxed = [test for test, cell in tests.items() if cell.metadata.nbreferee.run == "sandboxed"]
    points = sum(tests[test].metadata.nbgrader.points for test in sandboxed)
    assert points <= 10, f"{', '.join(sandboxed)} give {points} points for a verdict that can be forged"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda cell: cell.metadata.pop("nbreferee"), "does not say how it is run"),
        (lambda cell: cell.metadata.nbreferee.update(run="anywhere"), "does not say how it is run"),
        (lambda cell: cell.metadata.nbreferee.update(reason="because"), "the reason is no sentence"),
        (lambda cell: cell.metadata.nbreferee.pop("needs"), "the split tests of"),
        (lambda cell: cell.metadata.nbreferee.needs.pop(), "the split tests of"),
        (lambda cell: cell.metadata.nbreferee.needs.append("distance_test-shown"), "the split tests of"),
        (lambda cell: cell.metadata.update(nbreferee={"run": "split"}), "tracemalloc makes sense in one process only"),
    ],
)
def test_a_test_cell_that_declares_it_wrongly_is_found(change, said):
    notebook = nbformat.read(EXERCISES / "source" / "set2" / "set2.ipynb", 4)
    change(graded_tests(notebook)["repair_test-hidden-memory"])
    assert [said in problem for problem in undeclared(notebook)] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "gc.collect()",
        "with TorchDispatchMode():",
        "inspect.getsource(f)",
        "sys._getframe(1)",
        "S.grad_fn",
        "ctx.saved_tensors",
        "monkeypatch.setattr",
        "weakref.ref(x)",
        "F.setflags(write=False)",
        "globals()['f']",
    ],
)
def test_a_split_test_may_not_look_inside(line):
    notebook = nbformat.read(EXERCISES / "source" / "set2" / "set2.ipynb", 4)
    graded_tests(notebook)["heads_test-hidden"].source += f"\n{line}"
    problems = undeclared(notebook)
    assert len(problems) == 1 and "heads_test-hidden" in problems[0] and "in one process only" in problems[0]


def proofs(notebook):
    """(question, answer) of each exercise that a person marks."""
    answers = [cell for cell in notebook.cells if "Rubric.**" in cell.source]
    return [(sections(notebook)[cell.metadata.attnmath["exercise"]][0].source, cell) for cell in answers]


def test_the_points_of_a_proof_are_those_of_its_parts_and_of_its_rubric(source):
    for question, answer in proofs(source):
        parts = [int(n) for n in re.findall(r"^\*\*[a-z]\*\* \((\d+) points?\)", question, re.M)]
        rubric = [int(n) for n in re.findall(r", (\d+)(?=[;.])", answer.source.split("Rubric.**")[1])]
        assert sum(parts) == sum(rubric) == answer.metadata.nbgrader.points, grade_id(answer)


@pytest.mark.slow
def test_the_battery_is_large_enough(name, source, battery):
    least = 10 if name in LARGE else 6
    for exercise in points_of_tests(source):
        assert len(battery.WRONG[exercise]) >= least, exercise
        assert set(battery.MESSAGE[exercise]) <= set(battery.WRONG[exercise]), exercise
        descriptions = [description for description, _ in battery.WRONG[exercise].values()]
        codes = [json.dumps(cells, sort_keys=True) for _, cells in battery.WRONG[exercise].values()]
        assert len(set(descriptions)) == len(descriptions) and len(set(codes)) == len(codes), exercise


@pytest.mark.slow
def test_every_wrong_answer_loses_points_and_is_told_why(name, source, battery):
    table = catch(name)
    full = {exercise: sum(cells.values()) for exercise, cells in points_of_tests(source).items()}
    assert table["reference"] == full, "the reference earns all points"
    assert set(table["stub"].values()) == {0}, "the released version earns none"
    assert table["disturbed"] == [], "a wrong answer costs its own exercise only"
    survivors = [
        f"{exercise}: {case['name']}"
        for exercise, entry in table["exercises"].items()
        for case in entry["wrong"]
        if not case["caught"]
    ]
    assert survivors == [], "wrong answers that lose no point"
    assert table["caught"] == table["total"] == sum(map(len, battery.WRONG.values()))
    for exercise, words in battery.MESSAGE.items():
        said = {case["name"]: case for case in table["exercises"][exercise]["wrong"]}
        for case, fragment in words.items():
            assert fragment in said[case]["message"], f"{exercise}, {case}: {said[case]['message']!r}"
        shown = [case for case in words if "_test-shown" in said[case]["failed"][0]]
        assert len(shown) >= 5, f"{exercise}: the shown tests name {shown} only"


@pytest.mark.slow
def test_another_right_answer_earns_all(name, source, battery):
    """The tests judge what an answer does, not how it is written."""
    earned = grade(name, {"another": battery.RIGHT})["another"]
    for cells in points_of_tests(source).values():
        for test, points in cells.items():
            assert earned[test] == points, test
