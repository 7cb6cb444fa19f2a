"""Collect the ratios of a run, print them under the machine's description, and write _build/bench.json."""

import json
from pathlib import Path

import pytest
import torch
from machine import describe
from threadpoolctl import threadpool_limits

RATIOS = pytest.StashKey[list]()


def pytest_configure(config):
    config.stash[RATIOS] = []


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(before)


@pytest.fixture
def ratios(request):
    """The list to which a benchmark adds ``{"name", "ratio", "goal", "repeats", "sizes"}``."""
    return request.config.stash[RATIOS]


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash[RATIOS]
    if not rows:
        return
    target = Path(config.rootpath) / "_build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    machine = describe()
    target.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    write = terminalreporter.write_line
    terminalreporter.section(f"ratios of time, also in {target.relative_to(config.rootpath)}")
    for what, text in machine.items():
        write(f"{what:10} {text}")
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        sizes = ", ".join(f"{key} {value}" for key, value in row["sizes"].items())
        goal = "        " if row["goal"] is None else f"≤ {row['goal']:.2f}  "
        repeated = f"  repeated {row['repeats']}x" if row["repeats"] else ""
        missed = "" if row["goal"] is None or row["ratio"] <= row["goal"] else "  MISSED"
        write(f"{row['name']:{width}}  {row['ratio']:5.2f}  {goal}  {sizes}{repeated}{missed}")
