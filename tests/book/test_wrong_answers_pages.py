"""The pages of wrong answers: one for each problem set, none too large, each wrong answer on one of them."""

import doctest
import json

import pytest


@pytest.fixture
def wrong_answers(extension):
    return extension("wrong_answers")


def rows(sets=2, each=3):
    return [
        {"set": f"set{s}", "exercise": e, "name": f"{e}-{i}", "description": "a | b", "caught": i > 0, "points": 0.5}
        | {"of": 2.0, "message": "AssertionError: it is *not* so\nmore"}
        for s in range(1, sets + 1)
        for e in ("first", "second")
        for i in range(each)
    ]


def test_examples(wrong_answers):
    done = doctest.testmod(wrong_answers)
    assert done.attempted >= 1 and done.failed == 0


def test_before_the_batteries_have_run_there_is_a_sentence_and_no_page(wrong_answers, tmp_path):
    assert "not been tried yet" in wrong_answers.write(tmp_path) and wrong_answers.pages(tmp_path) == {}


def test_each_set_has_its_page_and_each_wrong_answer_its_row(wrong_answers, tmp_path):
    (tmp_path / "_build").mkdir()
    (tmp_path / "_build/wrong-answers.json").write_text(json.dumps(rows()), encoding="utf-8")
    assert wrong_answers.write(tmp_path).count("{doc}`Problem set") == 2
    assert "**8 of 12 wrong answers lose points.**" in wrong_answers.write(tmp_path)
    found = wrong_answers.pages(tmp_path)
    assert list(found) == [f"chapters/instructors/wrong_answers/set{s}" for s in (1, 2)]
    for text in found.values():
        assert text.count("| `first-") == text.count("| `second-") == 3 and "4 of 6" in text
        assert text.count("not caught") == 2 and "it is \\*not\\* so |" in text and "more" not in text
