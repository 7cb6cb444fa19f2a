"""The plain file `nbreferee.toml` beside source/: what is imported beforehand, seconds for a cell, memory.

preload = ["numpy", "torch"]       # imported once, before anything is graded
packages = ["mycourse"]            # another version of these modules grades everything again
code_stub = 'raise NotImplementedError("Your answer here.")'
text_stub = "*Your answer here.*"

[limits]                           # see nbreferee.judge.job.RunLimits
cell_s = 20                        # of processor time, which a busy machine does not change
total_s = 120
patience = 5                       # so many times these seconds may pass in waiting

[sandbox]                          # see nbreferee.walls.sandbox.Policy
memory_mb = 2048
scratch_mb = 64
processes = 64
readable = ["data"]                # folders that answers may read, relative to this file; a change grades again
"""

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import msgspec

from ..errors import NbrefereeError
from ..intake.answers import CODE_STUB, TEXT_STUB
from ..judge.job import RunLimits
from ..walls.sandbox import Policy

__all__ = ["Settings", "SettingsError", "load"]

NAME, DEFAULT = "nbreferee.toml", Policy()
Whole = Annotated[int, msgspec.Meta(ge=1)]
KINDS = {"int": "a whole number", "float": "a number", "str": "a text", "array": "a list", "object": "a table"}


class SettingsError(NbrefereeError, ValueError):
    """The file cannot be used; the text is one line with the file, the key and the cure."""


@dataclass(frozen=True)
class Settings:
    """What a course wants of its grader. See the module for the file that says it."""

    preload: tuple = ("numpy",)
    packages: tuple = ()
    code_stub: str = CODE_STUB
    text_stub: str = TEXT_STUB
    limits: RunLimits = field(default_factory=RunLimits)
    policy: Policy = field(default_factory=Policy)


class _Sandbox(msgspec.Struct, forbid_unknown_fields=True):
    """Of a Policy, what a course may say, in the units in which people say it."""

    memory_mb: Whole = DEFAULT.memory_bytes >> 20
    scratch_mb: Whole = DEFAULT.scratch_bytes >> 20
    file_mb: Whole = DEFAULT.file_bytes >> 20
    processes: Whole = DEFAULT.processes
    open_files: Whole = DEFAULT.open_files
    readable: tuple[str, ...] = ()


_Limits = msgspec.defstruct(
    "_Limits", [(each.name, each.type, each.default) for each in fields(RunLimits)], forbid_unknown_fields=True
)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    preload: tuple[str, ...] = Settings().preload
    packages: tuple[str, ...] = ()
    code_stub: str = CODE_STUB
    text_stub: str = TEXT_STUB
    limits: _Limits = msgspec.field(default_factory=_Limits)
    sandbox: _Sandbox = msgspec.field(default_factory=_Sandbox)


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
        said = msgspec.convert(tree, _File)
        limits = RunLimits(**msgspec.structs.asdict(said.limits))
        stubs = said.code_stub, said.text_stub
        return Settings(said.preload, said.packages, *stubs, limits, _policy(path.parent, said.sandbox))
    except FileNotFoundError:
        return Settings()
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path.name}: {_cure(str(error), tree)}") from None
    except NbrefereeError as error:
        raise SettingsError(f"{path.name}: {error}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read: {error}; correct it") from None


def _policy(root, said):
    for name in said.readable:
        if not (root / name).is_dir():
            what = f"sandbox.readable names {name!r}, and there is no such folder"
            raise SettingsError(f"{what}; make it or strike it out")
    return Policy(
        memory_bytes=said.memory_mb << 20,
        scratch_bytes=said.scratch_mb << 20,
        file_bytes=said.file_mb << 20,
        processes=said.processes,
        open_files=said.open_files,
        readable=tuple(str((root / name).resolve()) for name in said.readable),
    )


def _cure(text, tree):
    """A sentence of msgspec's in our words: the key as it stands in the file, what it is, and what it must be."""
    text, _, place = text.partition(" - at `$")
    keys = re.findall(r"\w+", place)
    if unknown := re.search(r"unknown field `(.*)`", text):
        kind = {"limits": _Limits, "sandbox": _Sandbox}.get("".join(keys), _File)
        known = ", ".join(sorted(kind.__struct_fields__))
        return f"there is no setting {'.'.join([*keys, unknown[1]])}; there are {known}"
    value = tree
    for key in keys:
        value = value[int(key) if isinstance(value, list) else key]
    wanted = text.removeprefix("Expected ").partition(", got")[0]
    wanted = re.sub(r"`(\w+)`", lambda word: KINDS.get(word[1], word[1]), wanted)
    return f"{'.'.join(keys)} is {value!r}; it must be {wanted}"
