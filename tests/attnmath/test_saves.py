"""Checkpoints: what is saved comes back, what is damaged is refused, and a killed process leaves a complete one."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from attnmath import saves

TENSORS = {
    "w": np.arange(6.0).reshape(2, 3),
    "half": np.ones(3, np.float16),
    "bytes": np.arange(256, dtype=np.uint8),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4)),
}
META = {"config": {"d": 2, "rate": 1e-3}, "step": 7, "exact": 0.1 + 0.2, "history": [{"loss": 1 / 3}]}


def test_what_is_saved_comes_back(tmp_path):
    path = tmp_path / "folder" / "x.safetensors"
    saves.save(path, TENSORS, META)
    tensors, meta = saves.load(path, expect=META["config"])
    assert meta == META and tensors.keys() == TENSORS.keys()
    for name, X in TENSORS.items():
        np.testing.assert_array_equal(tensors[name], X, strict=True)
    assert [file.name for file in path.parent.iterdir()] == ["x.safetensors"]  # and nothing else is left


def test_columns_first_and_slices_are_saved_by_value(tmp_path):
    X = np.arange(12.0).reshape(3, 4)
    saves.save(tmp_path / "x.safetensors", {"T": X.T, "slice": X[:, 1]}, {})
    tensors, _ = saves.load(tmp_path / "x.safetensors")
    np.testing.assert_array_equal(tensors["T"], X.T)
    np.testing.assert_array_equal(tensors["slice"], X[:, 1])


def test_other_tools_can_read_it(tmp_path):
    from safetensors.numpy import load_file

    saves.save(tmp_path / "x.safetensors", TENSORS, META)
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["w"], TENSORS["w"])


def test_the_last_two_are_kept(tmp_path):
    (tmp_path / ".checkpoint-000000001.safetensors.99.part").write_bytes(b"left by a crash")
    (tmp_path / "log.jsonl").write_text("mine")
    for step in (5, 10, 15):
        saves.save_step(tmp_path, step, TENSORS, META | {"step": step})
    names = [f"checkpoint-{step:09d}.safetensors" for step in (10, 15)]
    assert [path.name for path in saves.checkpoints(tmp_path)] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "log.jsonl"]
    assert saves.load_latest(tmp_path)[1]["step"] == 15
    assert saves.load_latest(tmp_path / "nowhere") is None and saves.checkpoints(tmp_path / "nowhere") == []


def two(folder):
    return [saves.save_step(folder, step, TENSORS, META | {"step": step}) for step in (5, 10)]


def test_every_truncation_is_seen(tmp_path):
    _, newest = two(tmp_path)
    data = newest.read_bytes()
    for cut in (0, 7, 8, 100, len(data) // 2, len(data) - 1):
        newest.write_bytes(data[:cut])
        with pytest.raises(
            ValueError, match=r"no complete checkpoint .*delete it; the previous one is checkpoint-000000005"
        ):
            saves.load_latest(tmp_path)
    newest.unlink()  # the cure
    assert saves.load_latest(tmp_path)[1]["step"] == 5


def test_every_changed_byte_is_seen(tmp_path):
    path = two(tmp_path)[0]
    data = path.read_bytes()
    for place in random.Random(0).sample(range(len(data)), 200):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ValueError, match=r"there is no previous one, so begin again|no checkpoint of attnmath"):
            saves.load(path)


def test_it_must_be_a_checkpoint(tmp_path):
    from safetensors.numpy import save_file

    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        saves.load(tmp_path / "checkpoint-000000001.safetensors")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        saves.load(tmp_path)
    save_file(TENSORS, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"is a safetensors file, but no checkpoint of attnmath\.saves"):
        saves.load(tmp_path / "other.safetensors")


def test_another_configuration_is_named(tmp_path):
    two(tmp_path)
    with pytest.raises(
        ValueError, match=r"another configuration: d is 2 there and 4 here, f is None there and 1 here; ask"
    ):
        saves.load_latest(tmp_path, expect={"d": 4, "rate": 1e-3, "f": 1})
    assert saves.load_latest(tmp_path, expect={"rate": 0.001, "d": 2})[1]["step"] == 10


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    saves.save(path, TENSORS, META)

    def full(*_):
        raise OSError("no space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(saves.os, name, full)
            with pytest.raises(OSError, match="no space"):
                saves.save(path, TENSORS, META | {"step": 8})
        assert saves.load(path)[1] == META and [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(saves.os, name, lambda *args, f=original, name=name: (order.append(name), f(*args))[1])
    saves.save(tmp_path / "x.safetensors", TENSORS, META)
    assert order == ["fsync", "replace", "fsync"]  # the content, the name, the folder


WRITER = """
import sys, numpy as np
from attnmath import saves
found = saves.load_latest(sys.argv[1])
step = found[1]["step"] if found else 0
while True:
    step += 1
    saves.save_step(sys.argv[1], step, {"x": np.full(300_000, float(step))}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.slow
def test_killed_at_any_moment_a_complete_one_is_there(tmp_path):
    """Nine processes write without a pause and are killed; what was announced as saved is there, and it is whole."""
    rng, announced = random.Random(1), 0
    for _ in range(9):
        command = [sys.executable, "-c", WRITER, tmp_path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            first = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            said = [first, *map(int, process.stdout.read().split())]
        assert first == announced + 1 and said == list(range(first, first + len(said)))
        announced = said[-1]
        tensors, meta = saves.load_latest(tmp_path)
        assert meta["step"] - announced in (0, 1) and (tensors["x"] == meta["step"]).all()
        announced = meta["step"]
        for path in saves.checkpoints(tmp_path):
            saves.load(path)
        assert 1 <= len(saves.checkpoints(tmp_path)) <= 3
