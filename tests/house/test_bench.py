"""The benchmarks' own machinery: a ratio above its goal fails, and _build/bench.json holds what was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bench_grading

ROOT = Path(__file__).parents[2]
SLOW = """
import time
from timing import ratio_of_times

def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_slow(benchmark, ratios):
    assert ratio_of_times(benchmark, ratios, "slow", lambda: work(0.02), lambda: work(0.01), 1.5, {"n": 3}, 3) <= 1.5

def test_fast(benchmark, ratios):
    assert ratio_of_times(benchmark, ratios, "fast", lambda: work(0.01), lambda: work(0.02), 1.5, {"n": 3}, 3) <= 1.5

CALLS = []

def disturbed():
    CALLS.append(1)
    work(0.03 if len(CALLS) <= 4 else 0.01)  # the warm-up and the first three rounds

def test_disturbed(benchmark, ratios):
    assert ratio_of_times(benchmark, ratios, "disturbed", disturbed, lambda: work(0.01), 1.5, {"n": 3}, 3) <= 1.5

def test_no_goal(benchmark, ratios):
    assert ratio_of_times(benchmark, ratios, "no goal", lambda: work(0.02), lambda: work(0.01), None, {"n": 3}, 3) > 1.5
"""


@pytest.mark.slow
def test_a_slow_version_fails_and_is_reported(tmp_path):
    for name in ("conftest.py", "timing.py", "machine.py"):
        (tmp_path / name).write_text((ROOT / "tests/bench" / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test_two.py").write_text(SLOW, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_two.py"]
    command += ["--benchmark-timer=time.process_time"]
    alone = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}  # no worker of ours
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "1 failed, 3 passed" in done.stdout, done.stdout
    written = json.loads((tmp_path / "_build/bench.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in written["rows"]}
    assert rows["slow"]["ratio"] > rows["slow"]["goal"] == 1.5 > rows["fast"]["ratio"]
    assert rows["slow"]["sizes"] == {"n": 3}
    assert {name: row["repeats"] for name, row in rows.items()} == {"slow": 2, "fast": 0, "disturbed": 1, "no goal": 0}
    assert done.stdout.count("MISSED") == 1
    assert all(f"{what:10} {text}" in done.stdout for what, text in written["machine"].items())
    assert written["machine"]["NumPy"].startswith(np.__version__) and written["machine"]["processor"]


def graded(rates, in_all):
    rows = [{"per minute": a, "per minute with start-up": b} for a, b in zip(rates, in_all, strict=True)]
    return {"rounds": [row | {"wrong marks": 0, "start-up s": 1.0} for row in rows]}


def test_each_goal_of_grading_is_told_by_itself(capsys):
    rows = []
    for name, ours, in_all in (("arrays", 170, [110, 125, 130]), ("tensors", 290, [119, 140, 100])):
        row = {"assignment": name, "stages ms": {}, "nbgrader": graded([10, 10, 10], [10, 10, 10])}
        row["nbreferee"] = graded([ours, ours + 1, ours + 20], in_all)
        rows.append(row | bench_grading.ratios(row))
    assert rows[0]["ratio"] == {"least": 17.0, "median": 17.1, "most": 19.0}
    assert rows[0]["ratio with start-up"] == {"least": 11.0, "median": 12.5, "most": 13.0}
    told = list(bench_grading.missed(rows))
    assert told == [
        "tensors: the ratio is 29.1; the goal is 30",
        "tensors: the ratio with start-up is 11.9; the goal is 12",
    ]
    bench_grading.show({"assignments": rows, "writer": {}})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["arrays", "10", "171", "17.1", "17.0", "19.0", "16", "1.0", "1.0", "0", "0"] in lines
    assert ["in", "all", "10", "119", "11.9", "10.0", "14.0", "12"] in lines
    assert bench_grading.GOALS.keys() == bench_grading.SETTINGS.keys()
