"""What a result depends on besides the submission: the code that grades, and the files that answers read."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from ..errors import NbrefereeError

__all__ = ["FingerprintError", "contents", "fingerprint"]


class FingerprintError(NbrefereeError):
    """A file or a package that counts is not there; the text names the cure."""


def _files(digest, place):
    """Take in a file, or all files of a folder."""
    place = Path(place)
    for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
        if file.suffix not in (".pyc", ".so") and "__pycache__" not in file.parts and file.is_file():
            _file(digest, file.relative_to(place), file)


def _file(digest, name, path):
    digest.update(f"{name}\0".encode("utf-8", "surrogateescape"))
    with path.open("rb") as data:
        digest.update(hashlib.file_digest(data, "sha256").digest())


def contents(folders: Iterable, files: Iterable = ()) -> str:
    """What answers read decides what they are worth: all of it, as a digest.

    Parameters
    ----------
    folders : with all files in them.
    files : (name, path) of single ones; see `nbreferee.walls.sandbox.files_beside`.

    Raises
    ------
    FingerprintError : a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for folder in folders:
            _files(digest, folder)
        for name, path in files:
            _file(digest, name, Path(path))
    except OSError as error:
        raise FingerprintError(f"{error.filename} cannot be read ({error.strerror}); check its permissions") from None
    return digest.hexdigest()


def _is_installed(place):
    return any(part in ("site-packages", "dist-packages") for part in Path(place).parts)


@lru_cache
def fingerprint(packages: tuple = ()) -> str:
    """The environment in which results are computed, as a digest.

    Parameters
    ----------
    packages : names of modules besides NumPy and PyTorch whose version matters. Of one that no installed distribution
        brings, or that lies elsewhere, all files count.

    Raises
    ------
    FingerprintError : there is no such package.
    """
    digest = hashlib.sha256(f"{sys.version_info[:3]} {platform.machine()} {os.name}".encode())
    _files(digest, Path(__file__).parents[1])
    for package in sorted({"numpy", "torch", *packages}):
        spec = _spec(package) if package in packages else None
        versions = _versions(package, spec)
        if not versions and spec is None and package in packages:
            raise FingerprintError(
                f"the course names the package {package}, and there is none; install it or strike it out"
            )
        digest.update(f"\n{package}=={' '.join(versions) or None}".encode())
        for place in _places(spec):
            if not versions or not _is_installed(place):
                _files(digest, place)
    return digest.hexdigest()


def _spec(package):
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):  # no parent, no name, no package
        return None


def _versions(package, spec):
    """Of the distribution of that name, or of those that bring the module: yaml comes with PyYAML."""
    try:
        return [importlib.metadata.version(package)]
    except (importlib.metadata.PackageNotFoundError, ValueError):
        if spec is None:
            return []
    names = importlib.metadata.packages_distributions().get(package.partition(".")[0], ())
    return [f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names))]


def _places(spec):
    if spec is None:
        return ()
    return spec.submodule_search_locations or ([spec.origin] if spec.has_location else ())
