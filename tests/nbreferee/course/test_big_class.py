"""A class that is graded in spite of three kills, as `make grade-big-class` does with a thousand students."""

import pytest

import grade_big_class

pytestmark = pytest.mark.slow


@pytest.mark.needs("walls")
def test_a_run_that_is_killed_again_and_again_comes_to_the_right_marks(tmp_path):
    report = grade_big_class.run(tmp_path / "course", students=40, sets=2, kills=3, seed=3, say=lambda text: None)
    assert report["faults"] == []
    assert report["stored"] >= 80 - 3
    assert len(report["kills"]) == 3
    assert all(0 < each["after"] < 80 for each in report["kills"]), report["kills"]
    assert any(each["processes"] > 2 for each in report["kills"]), "no kill fell into the grading"
