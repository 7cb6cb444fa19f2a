"""The set-up says in one line what is wrong with a machine, and what to do."""

import ast
import builtins
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "setup_env.py"


@pytest.fixture
def setup_env(tmp_path, monkeypatch):
    """The script as a module that writes below tmp_path only."""
    spec = importlib.util.spec_from_file_location("setup_env", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "_build").mkdir()
    for name, path in {"ROOT": "", "VENV": ".venv", "LOG": "_build/setup.log"}.items():
        monkeypatch.setattr(module, name, str(tmp_path / path))
    monkeypatch.setattr(module, "MARK", str(tmp_path / ".venv/.installing"))
    monkeypatch.setattr(module, "READY", str(tmp_path / ".venv/.ready"))
    return module


def said(capsys):
    text = capsys.readouterr().err
    assert text.count("\n") == 1, "one line"
    return text


def test_an_old_python_can_read_the_script_as_far_as_its_message():
    assert ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 5))


def test_an_old_python_is_told_which_to_use(setup_env, monkeypatch, capsys):
    monkeypatch.setattr(setup_env.sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit, match="1"):
        setup_env.check_python()
    assert "Python 3.9 is too old, the book needs 3.11 or newer" in (text := said(capsys))
    assert "make PYTHON=python3" in text


def test_a_missing_venv_module_is_named(setup_env, monkeypatch, capsys):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name in ("ensurepip", "venv"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SystemExit, match="1"):
        setup_env.check_python()
    assert "has no venv module: install it" in said(capsys)


def test_a_failed_install_names_its_error_and_is_not_taken_for_done(setup_env, monkeypatch, capsys, tmp_path):
    def call(command, stdout=None, **options):
        if "pip" in command:
            stdout.write("ERROR: No space left on device\n")
            return 1
        return 0

    monkeypatch.setattr(setup_env.subprocess, "call", call)
    with pytest.raises(SystemExit, match="1"):
        setup_env.main()
    assert "Installing requirements.txt failed (ERROR: No space left on device)" in said(capsys)
    assert not (tmp_path / ".venv/.ready").exists() and (tmp_path / ".venv/.installing").exists()


def test_an_interrupted_set_up_starts_anew(setup_env, monkeypatch, tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installing").touch()
    (tmp_path / ".venv/half-installed").touch()
    monkeypatch.setattr(setup_env.subprocess, "call", lambda *args, **options: 0)
    setup_env.main()
    assert not (tmp_path / ".venv/half-installed").exists()
    assert (tmp_path / ".venv/.ready").exists() and not (tmp_path / ".venv/.installing").exists()


def test_what_was_installed_is_compiled_also_beside_a_file_that_no_python_compiles(setup_env, monkeypatch, tmp_path):
    packages = tmp_path / ".venv/lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    real = setup_env.subprocess.call

    def call(command, **options):
        if "pip" in command:
            assert "--no-compile" in command
            (packages / "good.py").write_text("x = 1\n")
            (packages / "template.py").write_text("x = {{ what }} 1\n")
            return 0
        return real([sys.executable, *command[1:]], **options)

    monkeypatch.setattr(setup_env, "runs", lambda name: True)
    monkeypatch.setattr(setup_env, "announce", lambda python: None)
    monkeypatch.setattr(setup_env.subprocess, "call", call)
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").touch()
    setup_env.main()
    assert [path.name.split(".")[0] for path in packages.glob("__pycache__/*.pyc")] == ["good"]
    assert (tmp_path / ".venv/.ready").exists()


def test_the_sizes_are_those_of_the_locked_pytorch_and_the_readme_says_the_same(setup_env):
    """They are measured for one version: with another, sum the wheels anew."""
    root = SCRIPT.parents[1]
    assert f"torch=={setup_env.TORCH}" in (root / "requirements.txt").read_text(encoding="utf-8").splitlines()
    text = (root / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| for ")]
    for row, sizes in zip(rows, (setup_env.SMALL, setup_env.LARGE), strict=True):
        assert row.endswith("| {:g} GB | {:g} GB |".format(*sizes))
    assert "**The small PyTorch.**" in text and setup_env.SMALL < (2, 0) < setup_env.LARGE


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("2.14.0, 2.13.0+cpu, 2.13.0, 2.12.1", ["0.8 GB to download"]),
        ("2.14.0+cpu, 2.13.0, 2.12.1+cpu", ["3.3 GB to download", "it is 0.8 GB", '"The small PyTorch" in README.md']),
        ("2.14.0, 2.13.0", ["3.3 GB to download", "it is 0.8 GB"]),
        ("2.14.0, 2.12.1", ["0.8 GB to download", "accelerators 3.3 GB"]),
        (None, ["0.8 GB to download", "accelerators 3.3 GB"]),
    ],
)
def test_what_is_large_is_told_before_it_is_downloaded(setup_env, monkeypatch, capsys, told, words):
    said = []

    def call(command, **options):
        if "install" in command:
            said.append(capsys.readouterr().out)
        return 0

    def ask(command, **options):
        assert options["timeout"] <= 30
        if told is None:
            raise setup_env.subprocess.TimeoutExpired(command, 30)
        return f"torch (2.14.0)\nAvailable versions: {told}\n".encode()

    monkeypatch.setattr(setup_env.sys, "platform", "linux")
    monkeypatch.setattr(setup_env.subprocess, "call", call)
    monkeypatch.setattr(setup_env.subprocess, "check_output", ask)
    setup_env.main()
    (before,) = said
    assert all(word in before for word in words), before
    assert ("accelerators" in before) == (len(words) > 1)


def test_nothing_is_said_about_sizes_when_pytorch_is_there(setup_env, monkeypatch, capsys, tmp_path):
    (tmp_path / f".venv/lib/python3.11/site-packages/torch-{setup_env.TORCH}+cpu.dist-info").mkdir(parents=True)
    monkeypatch.setattr(setup_env, "runs", lambda name: True)
    monkeypatch.setattr(setup_env.subprocess, "call", lambda *args, **options: 0)
    setup_env.main()
    assert "GB" not in capsys.readouterr().out


def test_whoever_has_the_tools_installs_and_requires_them():
    """The continuous integration: with sudo where it is not root, and without a skip for want of a tool."""
    root = SCRIPT.parents[1]
    run = (root / ".ci/run").read_text(encoding="utf-8")
    assert "export REQUIRE=walls,browser,postgres\n" in run and "sudo -n" in run
    for name in ("book", "tests"):
        text = (root / f".github/workflows/{name}.yml").read_text(encoding="utf-8")
        assert "REQUIRE: walls,browser,postgres " in text and "- run: .ci/run" in text
        assert "sudo apt-get install -y -qq bubblewrap postgresql" in text and "chromium" in text
    assert '"3.11", "3.12", "3.13"' in text
