"""`make zip`: the built pages in _build/the-mathematics-of-attention.zip, to be read without a server or a network.

Left out are the notebooks for Colab, which are opened from the web, and what Sphinx notes for its next build. The same
pages give the same file, bit for bit.
"""

import argparse
import os
import sys
import zipfile
from pathlib import Path

from fingerprint import ROOT

BUILD = ROOT / "_build"
ZIP = BUILD / "the-mathematics-of-attention.zip"
LEFT_OUT = ("colab/", ".buildinfo", ".doctrees/", "404.html")
README = """{title}

Unpack this file and open index.html in a browser. Nothing is loaded from the network.
"""


class NotPacked(Exception):
    """Why there is no file, and the cure."""


def pack(root: Path, target: Path, title: str) -> int:
    """Write the pages below `root` to `target`; return how many files they are."""
    if not (root / "index.html").exists():
        raise NotPacked("there are no built pages: run `make book` first")
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    names = [name for name in names if not name.startswith(LEFT_OUT)]
    unfinished = target.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            archive.writestr(_entry(target.stem, name), (root / name).read_bytes(), zipfile.ZIP_DEFLATED)
        archive.writestr(_entry(target.stem, "README.txt"), README.format(title=title), zipfile.ZIP_DEFLATED)
    os.replace(unfinished, target)
    return len(names)


def _entry(folder, name):
    """A file in the archive: of one date, as the date of a build says nothing about it, and readable."""
    entry = zipfile.ZipInfo(f"{folder}/{name}", (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    return entry


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("Packing the pages.", flush=True)
    try:
        files = pack(BUILD / "html", ZIP, "The Mathematics of Attention")
    except NotPacked as reason:
        print(f"The book was not packed: {reason}", file=sys.stderr)
        return 1
    print(f"The book: {ZIP}  ({files} files, {ZIP.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
