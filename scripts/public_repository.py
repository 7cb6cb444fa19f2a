"""`make public`: write the repository that students and readers get to _build/public, and push it if told where.

It holds what is committed here, less the instructor's side (INSTRUCTORS), plus the students' versions of the problem
sets. Each run that changes something adds one commit, whose message is what CHANGELOG.md has gained. Nothing is written
if a line of a solution, of a hidden test or of a wrong answer would go out.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import yaml

import lean  # noqa: F401  (first, for it makes the next ones lighter)
from grading.leaks import Secrets

ROOT = Path(__file__).resolve().parents[1]
RELEASE = "exercises/release"
# What begins so stays with the instructor.
INSTRUCTORS = {
    "exercises/source/": "solutions and hidden tests",
    "exercises/batteries/": "wrong answers",
    "chapters/instructors/wrong_answers.md": "what catches them",
    "tests/course/battery.py": "it grades them",
    "tests/course/test_exercises.py": "it reads the sources of all sets",
    "tests/course/test_grading.py": "it uses the battery",
    "tests/course/test_release.py": "it reads the sources of all sets",
    "tests/nbreferee/intake/test_gate.py": "it reads the source of set 2",
    "tests/nbreferee/pages/test_feedback.py": "it reads the source of set 2",
    "tests/house/test_public_repository.py": "it tests this file",
    "scripts/public_repository.py": "this file",
    ".github/workflows/public.yml": "it calls this file",
}


class NotPublished(Exception):
    """Why nothing was written."""


def export(source: Path, tree: Path) -> list[str]:
    """Write what is committed in `source` to `tree`; the names of the files."""
    with tarfile.open(fileobj=io.BytesIO(git(source, "archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(tree, filter="data")
        return [member.name for member in archive if member.isfile()]


def release(tree: Path, downloads: Path) -> list[str]:
    """Make the students' versions in `tree`; the names of their files."""
    command = [sys.executable, str(tree / "exercises/course.py"), "release", "--quick", "--downloads", str(downloads)]
    path = os.pathsep.join(map(str, (tree / "lib", tree / "lib/nbreferee/src")))  # the packages of the same commit
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    if done.returncode:
        raise NotPublished(f"the problem sets cannot be released:\n{done.stdout}{done.stderr}")
    made = [path for path in sorted((tree / RELEASE).glob("*/**/*")) if path.is_file()]
    return [path.relative_to(tree).as_posix() for path in made]


def present(toc: str, names: set[str]) -> str:
    """The table of contents without the pages that are not there."""
    there = {Path(name).with_suffix("").as_posix() for name in names}
    return re.sub(r"^ *- file: (\S+)\n", lambda line: line[0] if line[1] in there else "", toc, flags=re.M)


def message(before: str, after: str, date: str) -> str:
    """A commit's, from the changelog of the last release and the present one."""

    def entries(text):
        return re.findall(r"^- .*(?:\n  .*)*", text, re.M)

    heading = re.search(r"^## (.+)", after, re.M)
    version = heading[1] if heading and heading[1] != "Unreleased" else f"of {date}"
    news = [entry for entry in entries(after) if entry not in entries(before)]
    return f"Release {version}\n\n" + ("\n".join(news) or "Corrections too small for the changelog.") + "\n"


def git(folder: Path, *arguments: str, **more) -> bytes:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, **more)
    if done.returncode:
        said = hide_password(done.stderr.decode(errors="replace").strip())
        raise NotPublished(f"git {arguments[0]} failed: {said}")
    return done.stdout


def hide_password(text: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)


class Repository:
    """The public repository in `folder`; `author` makes all its commits."""

    def __init__(self, folder: Path, branch: str, author: str):
        self.folder, self.branch, self.author = folder, branch, author
        if not (folder / ".git").exists():
            folder.mkdir(parents=True, exist_ok=True)
            git(folder, "init", "-q", "-b", branch)

    def continue_from(self, url: str) -> str:
        """Take up the history that the public repository has; a note if somebody else wrote to it."""
        if not git(self.folder, "ls-remote", "--heads", url, self.branch):
            return ""
        git(self.folder, "fetch", "-q", url, f"refs/heads/{self.branch}")
        git(self.folder, "update-ref", f"refs/heads/{self.branch}", "FETCH_HEAD")
        who, subject = git(self.folder, "log", "-1", "--format=%an%n%s").decode().strip().split("\n")
        if who == self.author:
            return ""
        return f"{who} wrote {subject!r} to the public repository; unless the same stands here, this release undoes it."

    def read(self, name: str) -> str:
        """A file of the last release; empty if there is none."""
        try:
            return git(self.folder, "show", f"{self.branch}:{name}").decode()
        except NotPublished:
            return ""

    def fill(self, tree: Path, names: set[str]) -> None:
        """Make the folder and the index hold these files of `tree`, and no others that an earlier release held."""
        for name in set(git(self.folder, "ls-files", "-z").decode().split("\0")) - names - {""}:
            (self.folder / name).unlink(missing_ok=True)
        for name in names:
            source, target = tree / name, self.folder / name
            if not target.is_file() or target.read_bytes() != source.read_bytes():  # else its time stays
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
            target.chmod(source.stat().st_mode & 0o777)
        git(self.folder, "read-tree", "--empty")
        listed = "\0".join(sorted(names)).encode()
        git(self.folder, "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", input=listed)

    def commit(self, text: str) -> bool:
        """Whether there was something to commit."""
        if git(self.folder, "write-tree").decode().strip() == self._tree():
            return False
        who = ["-c", f"user.name={self.author}", "-c", "user.email=public@users.noreply.github.com"]
        plain = ["-c", "commit.gpgSign=false", "-c", "core.hooksPath=/dev/null"]
        git(self.folder, *who, *plain, "commit", "-q", "-F", "-", input=text.encode())
        return True

    def _tree(self) -> str:
        try:
            return git(self.folder, "rev-parse", f"{self.branch}^{{tree}}").decode().strip()
        except NotPublished:  # no commit yet
            return ""

    def push(self, url: str) -> None:
        git(self.folder, "push", "-q", url, f"{self.branch}:refs/heads/{self.branch}")


def lay_out(source: Path, scratch: Path) -> tuple[Path, set[str]]:
    """The tree of the public repository below `scratch`, with the names of its files; more files lie there too."""
    tree = scratch / "tree"
    kept = [name for name in export(source, tree) if not name.startswith(tuple(INSTRUCTORS))]
    names = {*kept, *release(tree, scratch / "zips")}
    toc = tree / "_toc.yml"
    toc.write_text(present(toc.read_text("utf-8"), names), "utf-8")
    secrets = Secrets(tree)
    told = [f"{name} holds {line}" for name in sorted(names) for line in secrets.told_by_file(tree / name)]
    if told:
        raise NotPublished("\n".join(["it would give away what students are asked for:", *told]))
    return tree, names


def publish(source: Path, into: Path, push: str = "") -> str:
    """Make the next release of `source` in `into`; what was done, in a few lines."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="public-") as scratch:
        tree, names = lay_out(source, Path(scratch))
        config = yaml.safe_load((tree / "_config.yml").read_text("utf-8"))
        repository = Repository(into, config["repository"]["branch"], config["author"])
        note = repository.continue_from(push) if push else ""
        date, commit = git(source, "log", "-1", "--date=format:%d %B %Y", "--format=%ad%n%h").decode().split("\n")[:2]
        text = message(repository.read("CHANGELOG.md"), (tree / "CHANGELOG.md").read_text("utf-8"), date.lstrip("0"))
        repository.fill(tree, names)
        size = sum((tree / name).stat().st_size for name in names) / 1e6
    new = repository.commit(f"{text}\nMade by `make public` from {commit}.\n")
    if push:
        repository.push(push)
    pending = len(git(source, "status", "--porcelain").splitlines())
    report = [
        note,
        f"{pending} files here are changed or new and not committed: the release is without that." if pending else "",
        f"{into}: {len(names)} files, {size:.1f} MB, {time.monotonic() - began:.0f} s",
        text.partition("\n")[0] if new else "Nothing has changed since the last release.",
        f"Pushed to {hide_password(push)}." if push else "",
    ]
    return "\n".join(filter(None, report))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=ROOT, help="the instructor's repository (default: this one)")
    parser.add_argument("--into", type=Path, default=ROOT / "_build" / "public", help="default: _build/public")
    parser.add_argument("--push", default="", metavar="URL", help="where the public repository is; its history goes on")
    options = parser.parse_args()
    try:
        print(publish(options.source.resolve(), options.into.resolve(), options.push))
    except NotPublished as reason:
        print(f"Not released: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
