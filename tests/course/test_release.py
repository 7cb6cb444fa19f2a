"""Released sets: nothing given away, points that add up, marks that the reference earns and the stub does not."""

import subprocess
import sys
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

from grading import release
from grading.course_root import course_at, grade_id
from grading.release import check_marks, check_source, release_set, secrets
from tests.course.battery import EXERCISES, catch, compose, grade, points_of_tests
from tests.nbreferee import toyset

SETS = course_at().assignments()


@pytest.fixture
def toy(tmp_path):
    toyset.write(tmp_path)
    return course_at(tmp_path)


def zips(course):
    return [course.root / "release/toy.zip", course.root / "downloads/toy.zip"]


@pytest.mark.slow
def test_a_release_holds_the_stub_and_nothing_else(toy):
    (toy.root / "source/toy/table.csv").write_text("1,2\n")
    wrong, points = release_set(toy, "toy", zips=zips(toy), try_marks=False)
    assert wrong == [] and points == {"double": 3, "square": 1, "proof": 2}
    text = (toy.root / "release/toy/toy.ipynb").read_text()
    assert "NotImplementedError" in text and "*Your answer here.*" in text and "double(3) should be 6" in text
    for secret in ("secret_sum", "hidden_inputs", "distributivity", "SOLUTION", "HIDDEN"):
        assert secret not in text
    first, second = (path.read_bytes() for path in zips(toy))
    assert first == second
    with zipfile.ZipFile(zips(toy)[0]) as archive:
        assert archive.namelist() == ["toy/table.csv", "toy/toy.ipynb"]
    release_set(toy, "toy", zips=zips(toy), try_marks=False)
    assert zips(toy)[0].read_bytes() == first


def leak(notebook, kind):
    cells = {grade_id(cell): cell for cell in notebook.cells}
    if kind == "solution in the text":
        notebook.cells.append(new_markdown_cell("A hint:\n\n    secret_sum = x + x\n    return secret_sum", id="leak"))
    elif kind == "hidden test in a visible one":
        cells["double_test-shown"].source += "\n" + "\n".join(toyset.HIDDEN.split("\n")[2:4])
    elif kind == "open region":
        cells["square_answer"].source = cells["square_answer"].source.replace("    ### END SOLUTION\n", "")
    elif kind == "twice the same id":
        cells["square_test"].metadata.nbgrader["grade_id"] = "double_test-shown"
    elif kind == "an id without its exercise":
        cells["square_test"].metadata.nbgrader["grade_id"] = "cell-a81"
    elif kind == "no points":
        cells["square_test"].metadata.nbgrader["points"] = 0
    elif kind == "points that do not add up":
        cells["square_test"].metadata.nbgrader["points"] = 4
    elif kind == "an exercise taken out":
        notebook.cells[0].source += "\n\nThree exercises, 6 points: two that a program marks, one proof."
        del notebook.cells[6:9]
    elif kind == "ungraded code":
        notebook.cells.append(new_code_cell("x = 1", id="plain"))
    elif kind == "a test that is run somehow":
        del cells["square_test"].metadata["nbreferee"]
    elif kind == "an unknown way":
        cells["square_test"].metadata["nbreferee"] = {"run": "anywhere"}
    elif kind == "no reason":
        cells["double_test-hidden"].metadata["nbreferee"] = {"run": "sandboxed", "needs": ["double_test-shown"]}
    elif kind == "needs nothing":
        cells["square_test"].metadata["nbreferee"] = {"run": "sandboxed", "reason": "It counts bytes.", "needs": []}
    elif kind == "needs itself":
        ours = {"run": "sandboxed", "reason": "It counts bytes.", "needs": ["double_test-shown", "square_test"]}
        cells["square_test"].metadata["nbreferee"] = ours
    return notebook


CAUGHT_BY = {
    "open region": "could not make",
    "solution in the text": "double_answer: every line",
    "hidden test in a visible one": "double_test-hidden: every line",
    "twice the same id": "occurs twice",
    "an id without its exercise": "cell-a81",
    "no points": "worth nothing",
    "points that do not add up": "states 1, its cells give 4",
    "an exercise taken out": "one proof'; there are 2 exercises with 5 points, 1 that a program marks and 1 that a",
    "ungraded code": "neither an answer",
    "a test that is run somehow": "square_test does not say how it is run",
    "an unknown way": "square_test does not say how it is run",
    "no reason": "double_test-hidden is sandboxed without a reason",
    "needs nothing": "square_test is sandboxed: name under needs",
    "needs itself": "square_test is sandboxed: name under needs",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_faulty_source_is_not_released(tmp_path, kind):
    notebook = leak(toyset.notebook(), kind)
    toyset.write(tmp_path, made=notebook)
    course = course_at(tmp_path)
    try:
        wrong, _ = release_set(course, "toy", zips=zips(course), try_marks=False)
    except SystemExit as stopped:
        wrong = [str(stopped)]
    assert any(CAUGHT_BY[kind] in problem for problem in wrong), wrong
    assert not (tmp_path / "release").exists()


@pytest.mark.slow
def test_a_support_file_may_not_carry_a_solution(toy):
    (toy.root / "source/toy/helper.py").write_text("def double(x):\n    secret_sum = x + x\n")
    wrong, _ = release_set(toy, "toy", zips=zips(toy), try_marks=False)
    assert wrong == ["helper.py holds a line of a solution or a hidden test: 'secret_sum = x + x'"]
    assert not zips(toy)[0].exists()


@pytest.mark.slow
def test_a_reference_that_fails_and_a_stub_that_passes_are_found():
    notebook = toyset.notebook()
    cells = {grade_id(cell): cell for cell in notebook.cells}
    cells["double_answer"].source = "def double(x):\n    ### BEGIN SOLUTION\n    return x * 3\n    ### END SOLUTION"
    cells["square_test"].source = "square"
    wrong = check_marks(notebook)
    assert [problem.split(" gives")[0] for problem in wrong] == [
        "reference: double_test-shown",
        "reference: double_test-hidden",
        "stub: square_test",
    ]


MEAN = """import numpy as np
class Mean:
    ### BEGIN SOLUTION
    def __init__(self):
        self.seen = 0
    def of(self, x):
        self.seen += len(x)
        return np.mean(x)
    @staticmethod
    def zero():
        return 0.0
    ### END SOLUTION
"""
ALL = "None, or None for each value, or the number 0, or zeros of the right shape, or NaN of the right shape"
LOOKS_AT = {  # test: what passes it
    "assert np.all(np.abs(square(np.array([1.0, 3.0])) - [1.0, 9.0]) < 1e-9)": "arrays without entries",
    "assert np.sum(square(np.zeros(2))) == 0": "the number 0, or zeros of the right shape, or arrays without entries",
    "got = square(np.array([1.0, 3.0]))": f"{ALL}, or arrays without entries",
    "assert not (np.abs(square(np.ones(1)) - 1.0) > 1e-9).any()": "NaN of the right shape, or arrays without entries",
    "x = np.array([2.0])\nsquare(x)\nassert x[0] == 2.0": f"{ALL}, or arrays without entries",
    "got = square(np.array([1.0, 3.0]))\nassert got.shape == (2,) and np.allclose(got, [1.0, 9.0])": None,
    "try:\n    square(None)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError('raise')": None,
    "assert np.all(np.abs(Mean().of([1.0, 3.0]) - 2.0) < 1e-9)": "arrays without entries",
    "m = Mean()\nm.of([1.0, 3.0])\nassert m.seen == 2": None,
    "assert Mean.zero() == 0.0": "the number 0, or zeros of the right shape",
}


@pytest.mark.slow
def test_a_test_that_empty_answers_pass_is_not_released():
    """An array without entries differs nowhere from what it should be."""
    notebook = toyset.notebook()
    notebook.cells = [*notebook.cells[:-2], toyset.answer("mean_answer", MEAN)]
    for n, source in enumerate(LOOKS_AT):
        notebook.cells.append(toyset.test(f"t{n}", 1, f"import numpy as np\n{source}"))
    wrong = check_marks(notebook)
    for n, (source, kinds) in enumerate(LOOKS_AT.items()):
        said = [sentence for sentence in wrong if sentence.startswith((f"t{n} ", f"stub: t{n} "))]
        assert len(said) == bool(kinds), (source, said)
        assert not kinds or f"t{n} gives 1 to answers that return {kinds}. " in said[0], (source, said)
    assert len(wrong) == sum(map(bool, LOOKS_AT.values()))


WRONG = {
    "double": {
        "plus-one": ("adds one", {"double_answer": "def double(x):\n    return x + 1"}),
        "truncates": ("truncates", {"double_answer": "def double(x):\n    return 2 * int(x)"}),
        "right": ("not wrong at all", {"double_answer": "def double(x):\n    return 2 * x"}),
    },
    "square": {"dies": ("kills the kernel", {"square_answer": "import os\ndef square(x):\n    os._exit(3)"})},
}


@pytest.mark.slow
def test_the_battery_tells_what_is_caught(tmp_path):
    folder = toyset.write(tmp_path)
    table = catch(folder, WRONG, report=tmp_path / "wrong-answers.json")
    assert table["reference"] == {"double": 3, "square": 1} and table["stub"] == {"double": 0, "square": 0}
    found = {case["name"]: (case["points"], case["caught"]) for e in table["exercises"].values() for case in e["wrong"]}
    assert found == {"plus-one": (0, True), "truncates": (1, True), "right": (3, False), "dies": (0, True)}
    assert (table["caught"], table["total"], table["disturbed"]) == (3, 4, [])
    assert table["exercises"]["double"]["wrong"][0]["message"] == "double(3) should be 6"


@pytest.mark.slow
def test_an_answer_that_disturbs_another_exercise_is_named(tmp_path):
    meddles = {"square": {"meddles": ("breaks math", {"square_answer": "import math\nmath.fsum = square = None"})}}
    notebook = toyset.notebook()
    notebook.cells = notebook.cells[:2] + notebook.cells[6:] + notebook.cells[2:6]
    double = next(c for c in notebook.cells if grade_id(c) == "double_answer")
    double.source = double.source.replace("x + x", "math.fsum([x, x])")
    table = catch(toyset.write(tmp_path, made=notebook), meddles | {"double": {}}, report=None)
    assert table["disturbed"] == ["double, by the wrong answers number 1 of the others"]


def test_a_wrong_answer_must_be_about_its_own_exercise():
    with pytest.raises(KeyError, match="square_answer"):
        compose({"double": {"x": ("", {"square_answer": ""})}}, {"double_answer": "", "square_answer": ""})


@pytest.mark.slow
def test_given_answers_give_points(tmp_path):
    folder = toyset.write(tmp_path)
    assert grade(folder, {"mine": {"square_answer": "square = lambda x: x * x"}})["mine"] == {
        "double_test-shown": 0,
        "double_test-hidden": 0,
        "square_test": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("walls", [False, pytest.param(True, marks=pytest.mark.needs("walls"))])
def test_the_command_line_releases(toy, walls):
    """The instructor's own code needs no walls: they are used where there are any."""
    command = [sys.executable, str(EXERCISES / "course.py"), "--root", str(toy.root), "release"]
    done = subprocess.run([*command, "--downloads", str(toy.root / "downloads"), "toy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 exercises, 6 points; the reference gets all points, the student version none" in done.stdout
    assert ("tried without walls: this machine cannot build them" in done.stdout) != walls
    assert (toy.root / "downloads/toy.zip").exists()
    done = subprocess.run([*command, "toi"], capture_output=True, text=True)
    assert done.returncode == 1 and "There is no set 'toi'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_sets_of_this_course_can_be_released(name, tmp_path):
    source = nbformat.read(EXERCISES / "source" / name / f"{name}.ipynb", 4)
    assert check_source(name, source) == []
    course = course_at(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / name).symlink_to(EXERCISES / "source" / name, target_is_directory=True)
    wrong, _ = release_set(course, name, zips=[tmp_path / "set.zip"], try_marks=False)
    assert wrong == []
    assert secrets(source) and points_of_tests(source), "this set hides nothing, or tests nothing"


def test_headings_state_points():
    assert release.HEADING.findall("# Set\n\n## Exercise 1. A (3 points)\n### B (1 point)\ntext (5 points)") == [
        "3",
        "1",
    ]
