"""Checkpoints that are complete or not there: written beside their place, verified when they are read.

A checkpoint is one safetensors file. Its metadata holds a JSON object, in which ``"config"`` says what was being
computed, and a SHA-256 of everything.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialise

NAME = re.compile(r"checkpoint-(\d{9})\.safetensors")


def _digest(tensors, meta):
    h = hashlib.sha256(meta.encode())
    for name in sorted(tensors):
        X = tensors[name]
        h.update(f"{name}{X.dtype.str}{X.shape}".encode())
        h.update(X.tobytes())
    return h.hexdigest()


def write(path: Path, data: bytes) -> None:
    """Put ``data`` into a file that is, at every moment, the old one or the new one, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)  # the new name too has to be on the disk
        finally:
            os.close(folder)


def save(path: Path, tensors: Mapping[str, np.ndarray], meta: Mapping) -> None:
    """Write a checkpoint.

    Parameters
    ----------
    path : the file; its folder is made if needed.
    tensors : arrays by name.
    meta : anything that JSON holds; floats come back exactly.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder) / "x.safetensors", {"w": np.ones(2)}, {"config": {"d": 2}, "step": 7})
    ...     tensors, meta = load(Path(folder) / "x.safetensors", expect={"d": 2})
    >>> tensors["w"], meta["step"]
    (array([1., 1.]), 7)
    """
    text = json.dumps(dict(meta), sort_keys=True)
    arrays = {name: np.asarray(X, order="C") for name, X in tensors.items()}
    write(Path(path), serialise(arrays, {"meta": text, "sha256": _digest(arrays, text)}))


def load(path: Path, expect: Mapping | None = None) -> tuple[dict[str, np.ndarray], dict]:
    """Read and verify a checkpoint.

    Parameters
    ----------
    path : the file.
    expect : the configuration that the checkpoint must have been made with; None accepts any.

    Returns
    -------
    tensors, meta : what was saved.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is no complete checkpoint, or one of another configuration.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}; train one, or name another file")
    try:
        with safe_open(path, "np") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is no complete checkpoint ({error}); {_cure(path)}") from None
    if not {"meta", "sha256"} <= header.keys():
        raise ValueError(f"{path} is a safetensors file, but no checkpoint of attnmath.saves; name another file")
    if _digest(tensors, header["meta"]) != header["sha256"]:
        raise ValueError(f"{path} was changed after it was written; {_cure(path)}")
    meta = json.loads(header["meta"])
    if expect is not None:
        _same(path, meta.get("config", {}), json.loads(json.dumps(dict(expect))))
    return tensors, meta


def _same(path, found, wanted):
    differences = [
        f"{key} is {found.get(key)!r} there and {wanted.get(key)!r} here"
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    ]
    if differences:
        raise ValueError(
            f"{path} belongs to another configuration: {', '.join(differences)}; "
            "ask for that one, or choose another folder"
        )


def _cure(path):
    others = [other for other in checkpoints(path.parent) if other < path]
    previous = f"the previous one is {others[-1].name}" if others else "there is no previous one, so begin again"
    return f"delete it; {previous}"


def checkpoints(folder: Path) -> list[Path]:
    """The numbered checkpoints of a folder, the oldest first."""
    folder = Path(folder)
    return sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name)) if folder.is_dir() else []


def save_step(folder: Path, step: int, tensors: Mapping[str, np.ndarray], meta: Mapping, keep: int = 2) -> Path:
    """`save` under the number of a step, then delete all but the last ``keep`` ones and what a crash left over."""
    path = Path(folder) / f"checkpoint-{step:09d}.safetensors"
    save(path, tensors, meta)
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    for rest in Path(folder).glob(".checkpoint-*.part"):
        rest.unlink()
    return path


def load_latest(folder: Path, expect: Mapping | None = None) -> tuple[dict[str, np.ndarray], dict] | None:
    """`load` of the newest checkpoint of a folder; None if it has none."""
    paths = checkpoints(folder)
    return load(paths[-1], expect) if paths else None
