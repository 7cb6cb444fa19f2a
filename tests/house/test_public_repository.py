"""What students and readers get is the whole book and no answer, and each release continues the history of the last."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import public_repository
import run_tests
from coverage_index import Index
from grading.leaks import Secrets, secret_regions
from public_repository import INSTRUCTORS, message, present
from tests.nbreferee import toyset

ROOT = Path(__file__).resolve().parents[2]
URL = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]
NOW_SECRET = "assert numbers_of_a_hidden_test == [271828, 182845, 904523], 'this line is long'"
SHOWN_TOO = "assert [double(number) for number in range(3)] == [0, 2, 4], 'small numbers'"


def git(folder, *arguments, **more):
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True, **more)
    return done.stdout.decode(errors="replace")


# What is a secret


@pytest.fixture
def toy(tmp_path):
    """A tree with one set, one battery, one student's version."""
    book = toyset.notebook()
    book.cells[3].source = book.cells[3].source.replace("secret_sum", "secret_sum_of_two")
    book.cells[5].source += f"\n### BEGIN HIDDEN TESTS\n{NOW_SECRET}\n{SHOWN_TOO}\n### END HIDDEN TESTS"
    toyset.write(tmp_path / "exercises", made=book)
    text = "    S = scores(queries, keys)\n    P = softmax(S, axis=-2)\n"
    (tmp_path / "exercises/batteries").mkdir()
    (tmp_path / "exercises/batteries/toy.py").write_text(f'WRONG = """\n{text}"""\n')
    released = toyset.notebook()
    released.cells[3].source = "def double(x):\n    raise NotImplementedError"
    released.cells[4].source += f"\n{SHOWN_TOO}"
    released.cells[5].source = "# Hidden tests"
    released.cells[7].source = "def square(x):\n    raise NotImplementedError"
    released.cells[10].source = "*Your answer here.*"
    toyset.write(tmp_path / "made", made=released)
    shutil.move(tmp_path / "made/source", tmp_path / "exercises/release")
    return tmp_path


def test_each_kind_of_secret_is_found_in_each_kind_of_file(toy):
    secrets = Secrets(toy)
    told = {
        "a.py": f"x = 1\n        {NOW_SECRET}\n",
        "b.md": "    secret_sum_of_two = x + x\n    return secret_sum_of_two\n",
        "c.ipynb": json.dumps(
            {"cells": [{"source": ["S = scores(queries, keys)\n", "\n", "P = softmax(S, axis=-2)"]}]}
        ),
        "d.json": json.dumps({"outputs": [{"traceback": ["---> 1", NOW_SECRET]}]}),
    }
    for name, text in told.items():
        (toy / name).write_text(text)
    found = {name: secrets.told_by_file(toy / name) for name in told}
    assert [len(lines) for lines in found.values()] == [1, 1, 1, 1], found
    assert "toy: double_test-hidden" in found["a.py"][0] and "toy: double_answer" in found["b.md"][0]
    assert "batteries/toy.py" in found["c.ipynb"][0]


def test_what_is_told_anyway_is_no_secret(toy):
    secrets = Secrets(toy)
    assert secrets.told_by("assert double(3) == 6, 'double(3) should be 6'\ndef double(x):\n") == []
    assert secrets.told_by(f"x = 1\n{SHOWN_TOO}\n") == [], "a shown test says it"
    assert secrets.told_by("S = scores(queries, keys)\nsomething between\nP = softmax(S, axis=-2)\n") == []
    (toy / "lib/attnmath").mkdir(parents=True)
    (toy / "lib/attnmath/plain.py").write_text(NOW_SECRET)
    assert Secrets(toy).told_by(NOW_SECRET) == [], "the library says it in the open"


# What the message says and the table of contents holds

OLD = "# Changes\n\n## 0.1\n\n- One thing.\n"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("", OLD, "Release 0.1\n\n- One thing.\n"),
        (OLD, "# C\n\n## Unreleased\n\n- Two, on\n  two lines.\n- Three.\n\n## 0.1\n\n- One thing.\n",
         "Release of 3 May 2027\n\n- Two, on\n  two lines.\n- Three.\n"),
        (OLD, OLD, "Release 0.1\n\nCorrections too small for the changelog.\n"),
    ],
)  # fmt: skip
def test_the_message_is_what_the_changelog_gained(before, after, text):
    assert message(before, after, "3 May 2027") == text


def test_pages_that_stay_here_leave_the_table_of_contents():
    toc = "root: intro\nparts:\n  - chapters:\n      - file: a/one\n      - file: a/two\n"
    assert present(toc, {"intro.md", "a/one.ipynb"}) == toc.replace("      - file: a/two\n", "")


def test_a_password_is_not_repeated():
    assert public_repository.hide_password("no https://x:key@host/a.git") == "no https://host/a.git"


# What the pages say


@pytest.mark.parametrize("path", ["README.md", "chapters/problems/index.md", "lib/nbreferee/README.md"])
def test_every_address_is_that_of_the_public_repository(path):
    """`_config.yml` names it once; what pages say besides is the same."""
    owner = URL.removeprefix("https://github.com/")
    text = (ROOT / path).read_text("utf-8")
    hosts = r"github\.com(?!/actions)|raw\.githubusercontent\.com|colab\.research\.google\.com/github"
    named = re.findall(rf"(?:{hosts})/([\w.-]+/[\w.-]+?)(?=[/@#`\s]|\.git)", text)
    assert named and set(named) == {owner}


def test_the_page_of_problems_tells_how_to_begin():
    page = (ROOT / "chapters/problems/index.md").read_text("utf-8")
    first = page.split("(sec-problems-set2)=")[0]
    (command,) = re.findall(r"^\$ pip install .+", first, re.M)
    assert f'"attnmath[torch] @ {URL}/archive/refs/heads/main.zip"' in command
    raw = URL.replace("github.com", "raw.githubusercontent.com")
    assert command.endswith(f"&& curl -O {raw}/main/exercises/release/set3/set3.ipynb")
    for name in sorted(path.parent.name for path in (ROOT / "exercises/source").glob("*/*.ipynb")):
        section = page.split(f"(sec-problems-{name})=")[1].split("(sec-")[0]
        assert f"/blob/main/exercises/release/{name}/{name}.ipynb" in section, name


def test_workflows_publish_no_page_of_wrong_answers():
    """Pages of a repository that has the sources would show them; no token stands in a command."""
    steps = {path.stem: steps_of(path) for path in (ROOT / ".github/workflows").glob("*.yml")}
    (publishing,) = (step for step in steps["book"] if "gh-pages" in step.get("run", ""))
    assert publishing["if"] == "hashFiles('exercises/source/**') == ''"
    (released,) = (step for step in steps["release"] if "gh release" in step.get("run", ""))
    assert released["if"].endswith("hashFiles('exercises/source/**') == ''") and "ref_type == 'tag'" in released["if"]
    (releasing,) = (step for step in steps["public"] if "make public" in step.get("run", ""))
    assert "secrets." not in releasing["run"] and "PUSH=" in releasing["run"]


def steps_of(workflow):
    """The steps of its only job."""
    (job,) = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return job["steps"]


@pytest.mark.parametrize(
    "name",
    ["marks.csv", "import.csv", "worksheet.csv", "exercises/marks.csv", "exercises/deadlines.toml",
     "exercises/submitted/ada/set2/set2.ipynb", "exercises/gradebook.db", "exercises/downloaded/set2/archive/a.zip"],
)  # fmt: skip
def test_what_is_about_people_is_ignored_by_git(name):
    assert subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT).returncode == 0


def test_data_of_a_set_is_not_ignored():
    assert subprocess.run(["git", "check-ignore", "-q", "exercises/source/set2/data.csv"], cwd=ROOT).returncode == 1


def test_no_other_test_reads_the_sources():
    """One that does is named in INSTRUCTORS, and stays."""
    reads = re.compile(r"""exercises"?\s*/\s*"?source""")
    invents = {"tests/house/test_build.py"}
    tests = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("*.py"))]
    found = {name for name in tests if reads.search((ROOT / name).read_text("utf-8"))} - invents
    assert {name for name in found if not name.startswith(tuple(INSTRUCTORS))} == set()


def test_what_stays_exists():
    """A name that was moved would go out unseen."""
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").split()
    assert [name for name in INSTRUCTORS if not any(path.startswith(name) for path in listed)] == []


# The whole thing


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The instructor's repository as it is committed."""
    clone = tmp_path_factory.mktemp("instructor") / "course"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}", str(clone)], check=True)
    return clone


def publish(source, into, *more):
    command = [sys.executable, str(ROOT / "scripts/public_repository.py"), "--source", str(source)]
    path = os.pathsep.join(filter(None, [str(ROOT / "exercises"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [*command, "--into", str(into), *more], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )


@pytest.fixture(scope="module")
def public(source, tmp_path_factory):
    into = tmp_path_factory.mktemp("public") / "book"
    done = publish(source, into)
    assert done.returncode == 0, done.stderr
    return into


def objects(repository):
    """(name, text) of every object that git keeps; the text of a tree is the names in it."""
    stream = subprocess.run(
        ["git", "-C", str(repository), "cat-file", "--batch-all-objects", "--batch"], capture_output=True, check=True
    ).stdout
    at = 0
    while at < len(stream):
        end = stream.index(b"\n", at)
        name, kind, size = stream[at:end].decode().split()
        held = stream[end + 1 : end + 1 + int(size)]
        if kind == "tree":
            held = b"\n".join(re.findall(rb"\d+ ([^\0]+)\0.{20}", held, re.S))
        yield name, held.decode(errors="replace")
        at = end + int(size) + 2


@pytest.mark.slow
def test_no_object_of_git_holds_a_secret(source, public, tmp_path):
    shutil.copytree(source / "exercises", tmp_path / "exercises")
    shutil.copytree(public / "exercises/release", tmp_path / "exercises/release")
    for top in ("lib/attnmath", "chapters"):
        shutil.copytree(public / top, tmp_path / top)
    secrets = Secrets(tmp_path)
    assert len(secrets.lines) > 300 and len(secrets.pairs) > 1000
    assert {where.split(":")[0] for where in secrets.lines.values()} > {"set2", "set3", "set4", "set5", "set6"}
    seen = 0
    for name, text in objects(public):
        (tmp_path / "blob.ipynb").write_text(text)
        told = secrets.told_by_file(tmp_path / "blob.ipynb")
        assert told == [], (name, told[:3])
        seen += 1
    assert seen > 300
    for where, hidden in list(secret_regions(tmp_path))[:3]:
        assert secrets.told_by("\n".join(hidden)), f"{where} would not be seen if it were there"


@pytest.mark.slow
def test_the_instructors_side_is_not_there(source, public):
    listed = git(public, "ls-files").splitlines()
    assert [name for name in listed if name.startswith(tuple(INSTRUCTORS))] == []
    sets = sorted(path.parent.name for path in (source / "exercises/source").glob("*/*.ipynb"))
    assert [name for name in listed if name.startswith("exercises/release/")] == [
        f"exercises/release/{name}/{name}.ipynb" for name in sets
    ]
    made = {name for name in listed if not (source / name).exists()}
    assert made == {name for name in listed if name.startswith("exercises/release/")}
    changed = {name for name in set(listed) - made if (source / name).read_bytes() != (public / name).read_bytes()}
    assert changed == {"_toc.yml"}
    assert git(public, "status", "--porcelain") == "", "a clone and the folder are the same"


def test_a_run_of_the_tests_says_what_is_left_out(tmp_path):
    files = [name for name in INSTRUCTORS if Path(name).name.startswith("test_")]
    assert sorted(run_tests.INSTRUCTORS) == sorted(files)
    assert run_tests.left_out(ROOT) == ""
    said = run_tests.left_out(tmp_path)
    assert said.startswith("This is the public repository.") and "\n" not in said
    assert all(name in said for name in files)


@pytest.mark.slow
def test_every_page_that_is_named_is_there(public):
    pages = re.findall(r"- file: (\S+)", (public / "_toc.yml").read_text("utf-8"))
    assert len(pages) > 50 and "chapters/instructors/wrong_answers" not in pages
    for page in pages:
        (path,) = (path for end in (".md", ".ipynb") if (path := public / f"{page}{end}").exists())
        for target in re.findall(r"\{doc\}`(?:[^`<]*<)?([\w/.]+)>?`", path.read_text("utf-8")):
            at = public / target[1:] if target.startswith("/") else path.parent / target
            assert at.with_suffix(".md").exists() or at.with_suffix(".ipynb").exists(), f"{page} links to {target}"


@pytest.mark.slow
def test_the_exercises_lead_to_the_same_pages(source, public):
    assert Index(public).graded == Index(source).graded
    assert Index(public).problems() == []


@pytest.mark.slow
def test_the_zips_of_the_book_are_made_of_what_is_there(public, tmp_path):
    command = [sys.executable, "exercises/course.py", "zip", "--downloads", str(tmp_path)]
    subprocess.run(command, cwd=public, check=True)
    assert {path.stem for path in tmp_path.glob("*.zip")} == {path.name for path in public.glob("exercises/release/*")}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["release", "grade", "public"])
def test_what_is_the_instructors_says_where_it_lives(public, target, tmp_path):
    shutil.copy(public / "Makefile", tmp_path)
    (tmp_path / ".venv").mkdir()
    for name in ("requirements.txt", "pyproject.toml", "scripts/setup_env.py", ".venv/.ready"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    done = subprocess.run(["make", target], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and f"`make {target}` works in the instructor's" in done.stderr


def run_there(public, *arguments):
    """What pytest says in the public tree, with the instructor's environment."""
    # The library is the instructor's, byte for byte, so the checks of its shapes and the rewriting of assertions would
    # find no more here.
    plugins = ["--assert=plain", "-p", "no:nbval", "-p", "no:cacheprovider"]
    paths = os.pathsep.join(map(str, (public / "lib", public / "lib/nbreferee/src")))
    # What this machine must have is asked of the tests that use it; and the run below is no worker of this one, for
    # which pytest-benchmark would end it with a warning, which is an error here.
    mine = {name: value for name, value in os.environ.items() if name != "REQUIRE" and "XDIST" not in name}
    more = {**mine, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "JAXTYPING_DISABLE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *arguments]
    done = subprocess.run(command, cwd=public, capture_output=True, text=True, env=more)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_tests_that_are_left_can_be_collected(public):
    """What is collected shows which files are missing."""
    said = run_there(public, "--collect-only", "tests")
    assert int(re.search(r"(\d+) tests collected", said)[1]) > 2000


@pytest.mark.slow
def test_the_public_layout_is_what_it_is_said_to_be(public):
    assert " passed" in run_there(public, "tests/house/test_layout.py")


@pytest.fixture
def small(toy, tmp_path_factory, monkeypatch):
    """An instructor's repository of a few files, and an empty public one; the students' version is made beforehand."""
    made = tmp_path_factory.mktemp("made") / "release"
    shutil.move(toy / "exercises/release", made)

    def release(tree, downloads):
        shutil.copytree(made, tree / "exercises/release")
        return ["exercises/release/toy/toy.ipynb"]

    monkeypatch.setattr(public_repository, "release", release)
    there = tmp_path_factory.mktemp("there") / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(there)], check=True)
    (toy / "_config.yml").write_text("author: The authors\nrepository:\n  branch: main\n")
    (toy / "_toc.yml").write_text("root: intro\n")
    (toy / "CHANGELOG.md").write_text(OLD)
    (toy / "intro.md").write_text("# A book\n")
    git(toy, "init", "-q")
    git(toy, "add", "-A")
    git(toy, *ADA, "commit", "-qm", "The course")
    return toy, there


ADA = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def test_releases_follow_one_another_and_a_change_by_hand_is_named(small, tmp_path_factory):
    mine, there = small

    def release():  # on a machine that has not seen the last one
        said = public_repository.publish(mine, tmp_path_factory.mktemp("into") / "public", f"file://{there}")
        return said, int(git(there, "rev-list", "--count", "main"))

    said, commits = release()
    assert "\nRelease 0.1\n" in said and commits == 1
    assert git(there, "ls-tree", "-r", "--name-only", "main").split() == [
        "CHANGELOG.md", "_config.yml", "_toc.yml", "exercises/release/toy/toy.ipynb", "intro.md",
    ]  # fmt: skip
    said, commits = release()
    assert "Nothing has changed" in said and commits == 1

    (mine / "CHANGELOG.md").write_text(OLD + "- Something for readers.\n")
    (mine / "intro.md").rename(mine / "preface.md")
    said, commits = release()
    assert "are changed or new and not committed" in said and commits == 1
    git(mine, "add", "-A")
    git(mine, *ADA, "commit", "-qm", "For readers")
    assert release()[1] == 2
    assert git(there, "log", "-1", "--format=%an: %B", "main").startswith(
        "The authors: Release 0.1\n\n- Something for readers.\n\nMade by `make public` from "
    )
    assert "intro.md" not in git(there, "ls-tree", "--name-only", "main").split()

    clone = tmp_path_factory.mktemp("clone") / "public"
    subprocess.run(["git", "clone", "-q", str(there), str(clone)], check=True)
    (clone / "preface.md").write_text("Mine.\n")
    git(clone, *ADA, "commit", "-aqm", "By hand")
    git(clone, "push", "-q")
    said, commits = release()
    assert "Ada wrote 'By hand' to the public repository" in said and commits == 4, "nothing is forced"
    assert git(there, "show", "main:preface.md") == "# A book\n"


def test_a_release_that_tells_a_secret_is_not_made(small, tmp_path):
    mine, there = small
    (mine / "intro.md").write_text(f"# A book\n\n    {NOW_SECRET}\n")
    git(mine, *ADA, "commit", "-aqm", "A leak")
    with pytest.raises(public_repository.NotPublished, match=r"intro\.md holds a line of toy: double_test-hidden"):
        public_repository.publish(mine, tmp_path / "into", f"file://{there}")
    assert not (tmp_path / "into").exists() and git(there, "branch") == ""


def test_a_second_release_keeps_what_was_built_and_drops_what_has_gone(small, tmp_path):
    mine, _ = small
    public_repository.publish(mine, tmp_path / "into")
    (tmp_path / "into/_build").mkdir()
    (tmp_path / "into/_build/page.html").touch()
    git(mine, "mv", "intro.md", "preface.md")
    git(mine, *ADA, "commit", "-qm", "Another name")
    public_repository.publish(mine, tmp_path / "into")
    assert "Corrections too small for the changelog." in git(tmp_path / "into", "log", "-1", "--format=%B")
    assert (tmp_path / "into/_build/page.html").exists() and not (tmp_path / "into/intro.md").exists()
    assert (tmp_path / "into/preface.md").exists() and git(tmp_path / "into", "rev-list", "--count", "main") == "2\n"
