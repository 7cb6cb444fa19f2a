"""The plain file `nbreferee.toml` beside source/: what is imported beforehand, seconds for a cell, memory.

preload = ["numpy", "torch"]       # imported once, before anything is graded
packages = ["mycourse"]            # another version of these modules grades everything again
code_stub = 'raise NotImplementedError("Your answer here.")'
text_stub = "*Your answer here.*"

[limits]                           # see nbreferee.judge.job.RunLimits
cell_s = 20
total_s = 120

[sandbox]                          # see nbreferee.walls.sandbox.Policy
memory_mb = 2048
scratch_mb = 64
processes = 64
readable = ["data"]                # folders that answers may read, relative to this file; a change grades again
"""

import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from ..errors import NbrefereeError
from ..judge.job import JobError, RunLimits
from ..walls.sandbox import Policy

__all__ = ["Settings", "SettingsError", "load"]

NAME = "nbreferee.toml"
_STUBS = {"code_stub": "# YOUR CODE HERE\nraise NotImplementedError()", "text_stub": "YOUR ANSWER HERE"}  # nbgrader's


class SettingsError(NbrefereeError, ValueError):
    """The file cannot be used; the text is one line with the file, the key and the cure."""


@dataclass(frozen=True)
class Settings:
    """What a course wants of its grader. See the module for the file that says it."""

    preload: tuple = ("numpy",)
    packages: tuple = ()
    code_stub: str = _STUBS["code_stub"]
    text_stub: str = _STUBS["text_stub"]
    limits: RunLimits = field(default_factory=RunLimits)
    policy: Policy = field(default_factory=Policy)


def load(path: Path | str) -> Settings:
    """Read a course's settings.

    Parameters
    ----------
    path : the file, or the folder in which it lies. If there is none, the defaults hold.

    Raises
    ------
    SettingsError : with the file, the key and the cure.
    """
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    try:
        tree = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read: {error}") from None

    known = {each.name for each in fields(Settings)} - {"policy"} | {"sandbox"}
    _refuse_unknown(path.name, "", tree, known)
    found = {}
    for key in ("preload", "packages"):
        if key in tree:
            found[key] = _texts(path.name, key, tree[key])
    for key in _STUBS:
        if key in tree:
            if not isinstance(tree[key], str):
                raise SettingsError(f"{path.name}: {key} must be a text")
            found[key] = tree[key]
    try:
        limits = _table(path.name, "limits", tree)
        _refuse_unknown(path.name, "limits.", limits, {each.name for each in fields(RunLimits)})
        found["limits"] = replace(RunLimits(), **limits)
    except JobError as error:
        raise SettingsError(f"{path.name}: {error}") from None
    found["policy"] = _policy(path, _table(path.name, "sandbox", tree))
    return Settings(**found)


def _policy(path, table):
    sizes = {"memory_mb": "memory_bytes", "scratch_mb": "scratch_bytes", "file_mb": "file_bytes"}
    _refuse_unknown(path.name, "sandbox.", table, {*sizes, "processes", "open_files", "readable"})
    found = {}
    for key, value in table.items():
        if key == "readable":
            folders = [path.parent / folder for folder in _texts(path.name, "sandbox.readable", value)]
            if missing := [folder.name for folder in folders if not folder.is_dir()]:
                raise SettingsError(f"{path.name}: sandbox.readable names {missing[0]!r}, and there is no such folder")
            found[key] = tuple(str(folder.resolve()) for folder in folders)
        elif type(value) is not int or value <= 0:
            raise SettingsError(f"{path.name}: sandbox.{key} is {value!r}; it must be a positive whole number")
        else:
            found[sizes.get(key, key)] = value << 20 if key in sizes else value
    return replace(Policy(), **found)


def _table(name, key, tree):
    table = tree.get(key, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{name}: {key} must be a table, [{key}]")
    return table


def _texts(name, key, value):
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise SettingsError(f'{name}: {key} must be a list of texts, such as ["numpy"]')
    return tuple(value)


def _refuse_unknown(name, where, table, known):
    for key in table:
        if key not in known:
            raise SettingsError(f"{name}: there is no setting {where}{key}; there are {', '.join(sorted(known))}")
