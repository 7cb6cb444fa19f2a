"""Studies: what was found is not found again, a study that stops loses nothing, and a foreign file stays as it is."""

import json

import pytest

from attnmath.study import Study


class Stopped(Exception):
    pass


def study(calls, stop=None, names=("b", "a", "c")):
    """Counts what it is asked for; stops before one result."""

    def find(name):
        if name == stop:
            raise Stopped
        calls.append(name)
        return {"length": len(calls), "of": name}

    def plan():
        return {"plain": lambda: find("plain"), "runs": {name: lambda name=name: find(name) for name in names}}

    return Study("tests.study", "somewhere/study.json", ("plain", "runs"), plan, lambda found: found["of"])


def test_a_study_that_stopped_goes_on_and_loses_nothing(tmp_path):
    out, calls = tmp_path / "out.json", []
    with pytest.raises(Stopped):
        study(calls, stop="c").main([str(out)])
    stopped = json.loads(out.read_text(encoding="utf-8"))
    assert calls == ["plain", "b", "a"] and list(stopped["runs"]) == ["b", "a"]
    assert study(calls).main([str(out)]) == 0
    done = json.loads(out.read_text(encoding="utf-8"))
    assert calls == ["plain", "b", "a", "c"], "each was found once"
    assert done["plain"] == stopped["plain"] and {name: done["runs"][name] for name in ("b", "a")} == stopped["runs"]
    assert study(calls).main([str(out)]) == 0 and len(calls) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"], "nothing lies beside the file"


def test_results_stand_in_the_order_of_the_plan(tmp_path):
    out, calls = tmp_path / "out.json", []
    study(calls, names=("c", "a")).main([str(out)])
    study(calls).main([str(out)])
    assert list(json.loads(out.read_text(encoding="utf-8"))["runs"]) == ["b", "a", "c"]


def test_a_record_names_its_command_and_is_checked_as_a_whole():
    one = study([])
    record = one.record({"x": 1}, {"a": 2})
    assert record["command"] == "python -m tests.study somewhere/study.json"
    assert (record["plain"], record["runs"]) == ({"x": 1}, {"a": 2}) and len(record["sha256"]) == 64
    for other in (one.record({"x": 1}, {"a": 3}), one.record({"x": 2}, {"a": 2})):
        assert other["sha256"] != record["sha256"]
    with pytest.raises(ValueError, match="argument"):
        one.record({"x": 1})


def test_the_file_of_another_study_is_refused_in_one_line_and_kept(tmp_path, capsys):
    out, calls = tmp_path / "out.json", []
    text = json.dumps({"command": "python -m tests.other somewhere/study.json", "runs": {"a": 1}})
    out.write_text(text, encoding="utf-8")
    assert study(calls).main([str(out)]) == 1 and calls == [] and out.read_text(encoding="utf-8") == text
    said = capsys.readouterr().err
    assert said == f"error: {out} is no record of tests.study; name another file\n"


def test_a_part_that_is_found_at_once_is_kept_at_once(tmp_path):
    """Even if what comes after it stops at its first result."""
    out, calls = tmp_path / "out.json", []
    with pytest.raises(Stopped):
        study(calls, stop="b").main([str(out)])
    assert json.loads(out.read_text(encoding="utf-8"))["plain"] == {"length": 1, "of": "plain"}
