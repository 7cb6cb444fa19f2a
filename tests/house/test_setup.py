"""The set-up says in one line what is wrong with a machine, and what to do."""

import ast
import builtins
import importlib.util
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
