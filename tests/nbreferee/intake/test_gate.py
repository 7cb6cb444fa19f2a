"""The ingest gate: whatever strangers hand in becomes a clean notebook or a named refusal, and nothing else happens."""

import base64
import gc
import gzip
import json
import os
import re
import socket
import tempfile
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbreferee.course.template import Template
from nbreferee.intake import gate, notebook
from nbreferee.intake.answers import Answers, answers
from nbreferee.intake.gate import admit, collect
from nbreferee.intake.notebook import ReadLimits, Refused, read
from nbreferee.judge.job import bound, plan

SET2 = Path(__file__).parents[3] / "exercises" / "source" / "set2" / "set2.ipynb"
SOURCE = nbformat.read(SET2, 4)
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


def flags(name, solution=True, **more):
    return {"nbgrader": {"grade_id": name, "solution": solution, "grade": False, "locked": not solution, **more}}


def code(source, name=None, solution=True, **keys):
    metadata = flags(name, solution) if name else {}
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": [], "execution_count": 1, **keys}


def dump(*cells, minor=4, **keys):
    return json.dumps({"nbformat": 4, "nbformat_minor": minor, "metadata": {}, "cells": list(cells), **keys}).encode()


PLAIN = dump(code("x = 1", "x"))


def place(root, student="ada", file="set1.ipynb", data=PLAIN, assignment="set1"):
    path = root / student / assignment / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def refusal(call, *args, **keys):
    with pytest.raises(Refused) as caught:
        call(*args, **keys)
    sentence(caught.value.reason)
    return caught.value


def sentence(text):
    assert re.fullmatch(r"[^\n\r]+; [^\n\r]+\.", text) and text.isascii() and len(text) < 700, text


def well_formed(book):
    nbformat.validate(book)
    assert book.nbformat == 4 and book.nbformat_minor == 5 and book.metadata == {} and book.cells
    json.dumps(book, allow_nan=False).encode()  # no lone surrogate, no NaN
    for cell in book.cells:
        assert set(cell.metadata) <= {"nbgrader"}
        assert cell.cell_type != "code" or (cell.outputs == [] and cell.execution_count is None)
        assert set(cell) <= {"cell_type", "id", "metadata", "source", "outputs", "execution_count", "attachments"}
        known = {"grade_id", "solution", "grade", "locked", "task", "points", "schema_version"}
        assert set(cell.metadata.get("nbgrader", {})) <= known


def sources(data, **keys):
    book, notes = read(data, **keys)
    well_formed(book)
    for note in notes:
        sentence(note)
    return [cell.source for cell in book.cells], " ".join(notes)


# What is in the file


@pytest.mark.parametrize(
    ("data", "state", "word"),
    [
        (b"", "empty", "empty"),
        (b" \n\t\0\0", "empty", "empty"),
        (b"\xef\xbb\xbf", "empty", "empty"),
        (PLAIN[:-20], "not-json", "cut short"),
        (PLAIN[:60], "not-json", "cut short"),
        (PLAIN + b"x", "not-json", "not valid"),
        (PLAIN.replace(b":", b"=", 1), "not-json", "line 1"),
        (gzip.compress(PLAIN), "compressed", "gzip"),
        (b"PK\x03\x04" + bytes(30), "compressed", "zip"),
        (b"%PDF-1.7", "not-json", "PDF"),
        (b"<!doctype html>", "not-json", "web page"),
        (b"# %%\nx = 1", "not-json", "script"),
        (b"version https://git-lfs.github.com/spec/v1\n", "not-json", "LFS"),
        (b'{"cells": [\n<<<<<<< HEAD\n1]}', "not-json", "Git merge"),
        (b"[" * 100_000, "too-large", "nests"),
        (b'{"a":' * 100_000, "too-large", "nests"),
        (b"[" + b"{}," * 1_000_001 + b"{}]", "too-large", "values"),
        (b"[" + b'"",' * 2_100_000 + b"{}]", "too-large", "values"),
        (b"[]", "not-a-notebook", "no notebook"),
        (b"null", "not-a-notebook", "no notebook"),
        (b'"cells"', "not-a-notebook", "no notebook"),
        (b"{}", "not-a-notebook", "no notebook"),
        (b'{"cells": {"a": 1}}', "not-a-notebook", "no notebook"),
        (b'{"worksheets": 3}', "not-a-notebook", "no notebook"),
        (b'{"nbformat": 5, "cells": []}', "not-a-notebook", "newer"),
        (b'{"nbformat": 1, "worksheets": []}', "not-a-notebook", "format 1"),
        (dump(), "empty", "no cells"),
        (dump(1, None, "x"), "empty", "no cells"),
        (dump(*[code("")] * 2001), "too-large", "cells"),
        (b'{"nbformat": 3, "worksheets": [{"cells": [' + b"1," * 2001 + b"1]}]}", "too-large", "cells"),
        (b" " * 20_000_001, "too-large", "MB"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_cure(data, state, word):
    error = refusal(read, data, name="set1.ipynb")
    assert error.state == state and word in error.reason and error.reason.startswith("set1.ipynb")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"\xef\xbb\xbf" + PLAIN, "byte order mark"),
        (PLAIN.decode().encode("utf-16"), "UTF-16"),
        (PLAIN.decode().encode("utf-16-le"), "UTF-16"),
        (PLAIN.decode().encode("utf-32"), "UTF-32"),
        (PLAIN.replace(b'"metadata": {}, "cells"', b'"metadata": {"a": NaN, "b": -Infinity}, "cells"'), "NaN"),
        (PLAIN.replace(b'"execution_count": 1', b'"execution_count": 1' + b"0" * 100_000), "too large"),
        (PLAIN.replace(b'"execution_count": 1', b'"execution_count": 1e999'), "too large"),
        (PLAIN.replace(b'"cells"', b'"cells": [], "cells"'), "twice"),
        (dump(code("x = 1", "x"), minor=9), "newer minor"),
        (dump(code("x = 1", "x"), nbformat="4"), "does not say its format"),
        (dump(code("x = 1", "x"), nbformat_minor=True), "does not say its format"),
        (dump(code(["x =", " 1"], "x")), ""),
        (dump(code(["x =", 7, " 1", None], "x")), "no text"),
        (dump(code("x = 1", "x", metadata=[flags("x")])), "wrong shape"),
        (dump(code("x = 1", "x", metadata={"tags": ["skip-execution"]})), "tag"),
        (dump(code("x = 1", "x", metadata={"nbgrader": {"grade_id": ["x"]}})), "grade_id"),
        (dump(code("x = 1", "x", id="a b"), minor=5), "cell id"),
        (dump({"cell_type": "kode", "source": "x = 1", "outputs": []}), "unknown type"),
        (dump({"cell_type": ["code"], "source": "x = 1"}), "unknown type"),
        (dump({"source": "x = 1"}), "unknown type"),
    ],
)
def test_accidents_are_repaired_with_a_note(data, word):
    text, notes = sources(data)
    assert text == ["x = 1"] and word in notes and bool(notes) == bool(word)


@pytest.mark.parametrize(
    "odd", [7, None, [], "cell", {}, {"cell_type": {}}, code(7), code({"a": 1}), code("y" * 500_001)]
)
def test_an_odd_cell_never_costs_the_others(odd):
    text, notes = sources(dump(code("a = 1"), odd, code("b = 2")))
    assert text[0] == "a = 1" and text[-1] == "b = 2" and "cell 2" in notes and "".join(text) == "a = 1b = 2"


def test_characters_that_no_file_holds():
    text, notes = sources(dump(code("x = '\ud800\0'"), metadata={"\udfff": 1}))
    assert text == ["x = '?\ufffd'"] and "no program can read" in notes
    assert sources(PLAIN.replace(b"x = 1", b"x = '\xe9'"))[0] == ["x = '\ufffd'"]
    assert sources(PLAIN.replace(b"x = 1", b"x\t= \n1"))[0] == ["x\t= \n1"]


def test_ids_are_unique_and_given_anew_only_if_they_must():
    cells = [code(s, id=i) for s, i in (("1", "a"), ("2", "a"), ("3", "cell-1"), ("4", 5), ("5", "x" * 65))]
    book, notes = read(dump(*cells, minor=5))
    ids = [cell.id for cell in book.cells]
    assert ids[0] == "a" and ids[2] == "cell-1" and len(set(ids)) == 5 and "cells 2, 4, 5" in notes[0]


def test_only_the_flags_of_nbgrader_stay_and_have_the_right_types():
    odd = {"grade_id": "x", "solution": 1, "grade": True, "points": float("nan"), "locked": "yes", "evil": 1}
    cell = code("x", metadata={"nbgrader": odd, "trusted": True, "jupyter": {"source_hidden": True}})
    book, _ = read(dump(cell, metadata={"kernelspec": {"name": "evil"}}))
    expected = {"grade_id": "x", "solution": False, "grade": True, "locked": False, "task": False, "points": 0}
    assert book.cells[0].metadata == {"nbgrader": {**expected, "schema_version": 3}} and book.metadata == {}
    for points, kept in ((3, 3), (2.5, 2.5), (-1, 0), (True, 0), ("9", 0), (1e9, 0)):
        book, _ = read(dump(code("x", metadata=flags("x", grade=True, points=points))))
        assert book.cells[0].metadata.nbgrader.points == kept


def test_pictures_stay_and_other_attachments_go():
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(10)).decode()
    bundle = {
        "a.png": {"image/png": [picture[:8], picture[8:]]},
        "b.svg": {"image/svg+xml": "PHN2Zz4="},
        "d": {"image/png": "<svg>"},
        "page": {"image/png": base64.b64encode(b"<html><script>alert(1)</script>").decode()},
        "other": {"image/jpeg": picture},
        "short": {"image/png": picture[:8]},
        "c": 3,
    }
    book, notes = read(dump({"cell_type": "markdown", "source": "![](attachment:a.png)", "attachments": bundle}))
    well_formed(book)
    assert book.cells[0].attachments == {"a.png": {"image/png": picture}} and "no pictures" in notes[0]
    well_formed(read(dump({"cell_type": "markdown", "source": "", "attachments": [1]}))[0])


@pytest.mark.parametrize("major", [2, 3])
def test_old_formats_are_converted_and_odd_cells_do_not_stop_it(major):
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Task\n", "one"]},
        {"cell_type": "code", "input": ["x = ", "1"], "metadata": flags("x"), "outputs": [{"output_type": 5}]},
        {"cell_type": "code"},
        17,
        {"cell_type": "html", "source": "<b>"},
        {"cell_type": "plaintext", "source": "y"},
    ]
    tree = {"nbformat": major, "metadata": {"name": 3}, "worksheets": [{"cells": cells}, 4, {"cells": cells[1:2]}]}
    text, notes = sources(json.dumps(tree).encode())
    assert text == ["## Task one", "x = 1", "", "<b>", "y", "x = 1"] and "converted" in notes and "worksheet" in notes
    book, _ = read(json.dumps(tree).encode())
    assert book.cells[1].metadata.nbgrader.solution and book.cells[0].cell_type == "markdown"


def test_reading_the_same_bytes_gives_the_same_notebook():
    for data in (SET2.read_bytes(), dump(code("x"), code("y"))):
        assert read(data) == read(data)


def test_a_real_notebook_passes_unchanged():
    book, notes = read(SET2.read_bytes())
    well_formed(book)
    assert notes == ()
    assert [(c.source, c.id, c.cell_type) for c in book.cells] == [(c.source, c.id, c.cell_type) for c in SOURCE.cells]
    assert all(
        a.metadata.nbgrader == {**b.metadata.nbgrader, "task": False}
        for a, b in zip(book.cells, SOURCE.cells, strict=True)
    )


@pytest.mark.slow
def test_time_and_memory_are_bounded():
    bombs = (
        b'{"cells": [' + b'{"a":{"a":{"a":{"a":[]}}}},' * 740_000,
        b'{"cells": ["' + b'\\"' * 9_000_000,
        b'{"cells": ["' + b"\\ud800" * 3_000_000 + b'"]}',
        b'{"cells": [' + b"1" * 19_000_000 + b"]}",
        b'{"cells": [' + b"1" * 9_000_000 + b".5e9]}",
        b'{"cells": [' + b" " * 19_000_000 + b"]}",
    )
    for bomb in bombs:
        start = time.process_time()
        refusal(read, bomb)
        assert time.process_time() - start < 4
    cells = b'{"cells": [' + b"{}," * 990_000 + b"{}]}"
    tracemalloc.start()
    refusal(read, cells)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e8


# What is on the disk


def test_a_regular_file_is_admitted(tmp_path):
    path = place(tmp_path)
    found = collect(tmp_path, "set1")
    assert [(f.student, f.path, f.notes, f.refusal) for f in found] == [("ada", path, (), None)]
    for admitted in (admit(found[0]), admit(path, root=tmp_path), admit(str(path.resolve()))):
        well_formed(admitted.notebook)
        assert admitted.notes == () and len(admitted.digest) == 64


@posix
@pytest.mark.parametrize("what", ["file", "assignment", "student", "dangling", "loop", "outside"])
def test_no_symbolic_link_is_followed(tmp_path, what):
    root, secret = tmp_path / "submitted", place(tmp_path / "secret", "ada")
    path = place(root, "bob").parent.parent.parent / "ada" / "set1" / "set1.ipynb"
    links = {
        "file": (path, secret),
        "outside": (path, Path("/etc/passwd")),
        "dangling": (path, tmp_path / "nowhere"),
        "loop": (path, path),
        "assignment": (path.parent, secret.parent),
        "student": (path.parent.parent, secret.parent.parent),
    }
    link, target = links[what]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    assert refusal(admit, path, root=root).state == "not-a-file"
    assert refusal(admit, path.absolute()).state == "not-a-file"
    found = {f.student: f for f in collect(root, "set1")}
    assert found["ada"].refusal.state == "not-a-file" and "symbolic link" in found["ada"].refusal.reason
    assert refusal(admit, found["ada"]).state == "not-a-file"
    assert found["bob"].refusal is None and admit(found["bob"])


@posix
def test_the_root_itself_may_be_reached_over_a_link(tmp_path):
    place(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    [found] = collect(tmp_path / "link", "set1")
    assert admit(found).notebook.cells[0].source == "x = 1"
    assert refusal(admit, found.path).state == "not-a-file"


@posix
@pytest.mark.parametrize("what", ["fifo", "socket", "folder", "device", "fifo beside"])
def test_only_regular_files_are_opened(tmp_path, what, monkeypatch):
    path = tmp_path / "ada" / "set1" / "set1.ipynb"
    path.parent.mkdir(parents=True)
    if what == "device":
        for device in ("/dev/zero", "/dev/tty"):
            if os.path.exists(device):
                assert refusal(admit, device).state == "not-a-file"
        return
    monkeypatch.chdir(path.parent)  # the name of a socket must be short
    if what == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path if what == "fifo" else path.with_name("other.ipynb"))
    [found] = collect(tmp_path, "set1")
    assert refusal(admit, found).state == ("missing" if what == "fifo beside" else "not-a-file")
    if what != "fifo beside":
        assert refusal(admit, "set1.ipynb").state == "not-a-file"


@posix
def test_a_hard_link_is_noted(tmp_path):
    path = place(tmp_path)
    os.link(path, tmp_path / "other")
    [note] = admit(path, root=tmp_path).notes
    sentence(note)
    assert "hard link" in note


@posix
@pytest.mark.parametrize("trick", ["link", "link to it", "other file", "grows", "shrinks", "fifo", "gone"])
def test_what_changes_between_looking_and_reading_is_refused(tmp_path, monkeypatch, trick):
    path, secret, once = place(tmp_path), place(tmp_path, "secret"), []
    inner = gate._Folder._open

    def late(self, name, status, flags):
        if name == "set1.ipynb" and not once:
            once.append(name)
            if trick in ("grows", "shrinks"):
                path.write_bytes(PLAIN + b" " * 100 if trick == "grows" else PLAIN[:50])
            else:
                path.rename(tmp_path / "aside")
            if trick == "link":
                path.symlink_to(secret)
            elif trick == "link to it":
                path.symlink_to(tmp_path / "aside")
            elif trick == "other file":
                path.write_bytes(PLAIN)
                os.utime(path, ns=(0, status.st_mtime_ns))
            elif trick == "fifo":
                os.mkfifo(path)
        return inner(self, name, status, flags)

    monkeypatch.setattr(gate._Folder, "_open", late)
    assert refusal(admit, path, root=tmp_path).state == "unreadable"


@posix
@pytest.mark.parametrize("level", ["student", "assignment"])
def test_a_folder_that_is_exchanged_for_a_link_while_it_is_read(tmp_path, monkeypatch, level):
    root, secret = tmp_path / "submitted", place(tmp_path / "elsewhere", data=dump(code("stolen")))
    path = place(root)
    folder = path.parent if level == "assignment" else path.parent.parent
    inner = gate._Folder.read

    def late(self, name, limits):  # the folders are open by now: the exchange has no effect
        folder.rename(tmp_path / "aside")
        folder.symlink_to(secret.parent if level == "assignment" else secret.parent.parent)
        return inner(self, name, limits)

    monkeypatch.setattr(gate._Folder, "read", late)
    assert admit(path, root=root).notebook.cells[0].source == "x = 1"


def test_size_is_capped_before_reading(tmp_path, monkeypatch):
    path = place(tmp_path)
    with open(path, "r+b") as file:
        file.truncate(10**10)  # sparse: no disk is used
    monkeypatch.setattr(gate.os, "open", lambda *a, real=os.open, **k: _no_file(real, *a, **k))
    assert refusal(admit, path, root=tmp_path).state == "too-large"


def _no_file(real, name, *args, **keys):
    assert not str(name).endswith(".ipynb"), "a file that is too large was opened"
    return real(name, *args, **keys)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_size_is_capped_while_reading():
    state = refusal(admit, f"/proc/{os.getpid()}/maps", limits=ReadLimits(bytes=10)).state  # says that it is empty
    assert state == "too-large"


def test_without_permission(tmp_path, monkeypatch):
    path = place(tmp_path)
    [found] = collect(tmp_path, "set1")

    def forbidden(name, *args, real=os.open, **keys):
        if str(name).endswith("set1.ipynb"):
            raise PermissionError(13, "Permission denied")
        return real(name, *args, **keys)

    monkeypatch.setattr(gate.os, "open", forbidden)
    error = refusal(admit, found)
    assert error.state == "unreadable" and "permissions" in error.reason and found.path == path


def test_names_that_are_no_names(tmp_path):
    place(tmp_path)
    for name in ("a\0b", "a\nb", "\udcff", "../ada/set1/set1.ipynb", "", "a" * 5000, "ada/set1/set1.ipynb/x"):
        error = refusal(admit, tmp_path / name, root=tmp_path)
        assert error.state in ("unsafe-name", "unreadable", "not-a-file")
    assert refusal(admit, "/elsewhere/x.ipynb", root=tmp_path).state == "unsafe-name"
    assert refusal(collect, tmp_path / "nowhere", "set1").state == "missing"
    for name in ("..", "", "a/b", "a\nb", ".x", "*"):
        with pytest.raises(ValueError, match="no name"):
            collect(tmp_path, name)


BAD = [
    "a\nb",
    "=1+1",
    "-rf",
    ".ada",
    "аda",
    "ａda",
    "a" * 65,
    "a b",
    "ada\u202e",
    "a'b",
    "@x",
    "<b>",
    "é",
    "a;b",
    "a\udcff",
]


@pytest.mark.parametrize("name", [*BAD, "", "..", "../ada", "ada/", "ada\0", "ada\n"])
def test_ids_that_are_refused(name):
    error = refusal(gate.student_id, name)
    assert error.state == "unsafe-name" and error.reason.startswith(notebook.shown(name))


@pytest.mark.parametrize("name", ["ada", "A.b_c-9", "_x", "7", "a" * 64, "a..b"])
def test_ids_that_are_good(name):
    assert gate.student_id(name) == name


@posix
def test_one_odd_folder_does_not_stop_the_batch(tmp_path):
    for name in BAD:
        try:
            place(tmp_path, name)
        except OSError:  # a file system may refuse a name first
            continue
    place(tmp_path, "ada")
    (tmp_path / "stray.ipynb").write_bytes(PLAIN)
    (tmp_path / ".DS_Store").write_bytes(b"")
    (tmp_path / "idle").mkdir()
    found = collect(tmp_path, "set1")
    assert [f.student for f in found if f.refusal is None] == ["ada"]
    states = [f.refusal.state for f in found if f.refusal]
    assert states.count("unsafe-name") >= 10 and states.count("misplaced") == 1
    assert not any(f.student or f.path for f in found if f.refusal)
    assert "idle" not in {f.student for f in found}
    for f in found:
        if f.refusal:
            sentence(f.refusal.reason)


def one(tmp_path, *files, names=None):
    for file in files:
        place(tmp_path, file=file)
    return collect(tmp_path, "set1", names=names)


@pytest.mark.parametrize(
    "file",
    ["Set1.ipynb", "set1.IPYNB", "set1 (1).ipynb", "set1-Copy1.ipynb", "set1.ipynb.txt", "set1.json", "ｓet1.ipynb",
     "set1/set1.ipynb", "a/b/set1.ipynb", "homework.ipynb", "a/homework.ipynb"],
)  # fmt: skip
def test_a_wrong_name_is_taken_with_a_note(tmp_path, file):
    [found] = one(tmp_path, file)
    admitted = admit(found)
    if found.path.name == "set1.ipynb" and "/" not in file:
        pytest.skip("names here do not know case")
    assert admitted.notebook.cells and "rename" in found.notes[0]
    for note in (*found.notes, *admitted.notes):
        sentence(note)


def test_several_notebooks_for_one_name(tmp_path):
    [found] = one(tmp_path, "set1 (1).ipynb", "set1-Copy1.ipynb")
    assert found.refusal.state == "ambiguous" and found.path is None
    [found] = one(tmp_path, "set1.ipynb")
    assert found.path.name == "set1.ipynb" and "left aside" in found.notes[0]
    sentence(found.notes[0])


def test_a_folder_without_the_notebook(tmp_path):
    (tmp_path / "ada" / "set1" / ".ipynb_checkpoints").mkdir(parents=True)
    (tmp_path / "ada" / "set1" / ".ipynb_checkpoints" / "set1-checkpoint.ipynb").write_bytes(PLAIN)
    [found] = collect(tmp_path, "set1")
    assert found.refusal.state == "missing" and "nothing" in found.refusal.reason
    place(tmp_path, file="answers.docx")
    assert "answers.docx" in collect(tmp_path, "set1")[0].refusal.reason
    place(tmp_path, file="set1.zip", data=b"PK\x03\x04")
    assert refusal(admit, collect(tmp_path, "set1")[0]).state == "compressed"


def test_an_assignment_with_several_notebooks(tmp_path):
    first, second = one(tmp_path, "p1.ipynb", names=["p1", "p2"])
    assert first.name == "p1" and admit(first) and second.refusal.state == "missing"


def test_case_variants_of_folders(tmp_path):
    place(tmp_path, assignment="Set1")
    [found] = collect(tmp_path, "set1")
    assert admit(found)
    if not (tmp_path / "ADA").exists():
        assert "rename it set1" in found.notes[0]
        place(tmp_path, "Ada")
        assert all("only in case" in f.notes[0] for f in collect(tmp_path, "set1"))


def test_files_that_shadow_modules_are_listed_and_nothing_is_written(tmp_path):
    files = ["numpy.py", "torch/__init__.py", "data.csv", "x.so", "new\nline.py", "timestamp.txt", "set1.ipynb"]
    for file in files:
        place(tmp_path, file=file)
    before = sorted((str(p), p.lstat().st_mtime_ns) for p in tmp_path.rglob("*"))
    [found] = collect(tmp_path, "set1")
    admit(found)
    assert sorted((str(p), p.lstat().st_mtime_ns) for p in tmp_path.rglob("*")) == before
    shadows, others = found.notes
    sentence(shadows), sentence(others)
    assert "numpy.py" in shadows and "torch/'__init__.py'" in shadows and "x.so" in shadows and "\\n" in shadows
    assert "data.csv" in others and "timestamp" not in others


def test_a_folder_with_very_many_files(tmp_path):
    place(tmp_path)
    for n in range(30):
        place(tmp_path, file=f"{n}.dat")
    deep = tmp_path / "ada" / "set1" / "/".join("d" * 50)
    deep.mkdir(parents=True)
    [found] = collect(tmp_path, "set1", limits=ReadLimits(entries=20))
    assert admit(found) and "Only 20 files" in found.notes[-1]
    assert collect(tmp_path, "set1")[0].refusal is None


def test_no_descriptor_is_left_open(tmp_path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("needs /proc")
    place(tmp_path), place(tmp_path, "bob", data=b""), place(tmp_path, "=x")
    before = len(os.listdir("/proc/self/fd"))
    for found in collect(tmp_path, "set1") * 5:
        try:
            admit(found)
        except Refused:
            pass
    assert len(os.listdir("/proc/self/fd")) == before


@posix
def test_without_dir_fd_the_rules_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "BY_FOLDER", False)
    place(tmp_path)
    (tmp_path / "bob").symlink_to(tmp_path / "ada")
    ada, bob = collect(tmp_path, "set1")
    assert admit(ada) and bob.refusal.state == "not-a-file"
    assert refusal(admit, tmp_path / "bob" / "set1" / "set1.ipynb", root=tmp_path).state == "not-a-file"


# What the student answered

STUB = "def f(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()"
TEST = "assert f(1) == 2"


def cells(*many):
    return nbformat.from_dict({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": list(many)})


TEMPLATE = cells(
    code("import math", "setup", False),
    code("data = 3"),
    code("def f(x):\n    ### BEGIN SOLUTION\n    return x + 1\n    ### END SOLUTION", "f", id="id-f"),
    code(TEST + "\n### BEGIN HIDDEN TESTS\nassert f(2) == 3\n### END HIDDEN TESTS", "f-test", False),
    code("def g(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION", "g"),
    {"cell_type": "markdown", "source": "the proof", "metadata": flags("proof", grade=True, points=1)},
)
F, G = "def f(x):\n    return x + 1", "def g(x):\n    return x"
HEAD, GIVEN, TESTED = code("import math", "setup", False), code("data = 3"), code(TEST, "f-test", False)
PROOF = {"cell_type": "markdown", "source": "Because.", "metadata": flags("proof")}


def taken(*many):
    book, _ = read(dump(*many))
    got = answers(book, TEMPLATE)
    for note in got.notes:
        sentence(note)
    return got


def test_an_honest_notebook():
    got = taken(HEAD, GIVEN, code(F, "f"), TESTED, code("print(f(1))"), code(G, "g"), PROOF, code(" "))
    assert got.cells == {"f": F, "g": G, "proof": "Because."} and got.notes == () and got.unanswered == ()
    assert [(own.source, own.place, own.before) for own in got.own] == [("print(f(1))", "f-test", False)]


def test_stubs_are_unanswered():
    text = {**PROOF, "source": "YOUR ANSWER HERE"}
    got = taken(HEAD, code(STUB, "f"), TESTED, code(G, "g"), text)
    assert got.unanswered == ("f", "proof") and got.cells["f"] == STUB


@pytest.mark.parametrize("text", ["the proof", "the proof  \n", "def f(x):\n    return x + 1", "data = 3"])
def test_a_proof_that_equals_the_model_answer_is_an_answer(text):
    """nbgrader replaces a whole cell without marks by the stub, so that nobody was given this text."""
    got = taken(HEAD, code(F, "f"), TESTED, code(G, "g"), {**PROOF, "source": text})
    assert got.unanswered == () and got.cells["proof"] == text and got.notes == ()
    copied = [cell for cell in TEMPLATE.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    assert taken(HEAD, *copied).unanswered == ()


def test_the_stub_of_an_unmarked_cell_is_no_answer():
    source = cells(code("def h(x):\n    return x", "h"), {**PROOF, "source": "So it is."})
    for code_stub, text_stub in ((STUB, "YOUR ANSWER HERE"), ("...", "*Write here.*")):
        mine = cells(code(code_stub, "h"), {**PROOF, "source": text_stub + "\n"})
        assert answers(mine, source, code_stub=code_stub, text_stub=text_stub).unanswered == ("h", "proof")


def test_a_notebook_of_which_nothing_was_handed_out_refuses_nobody():
    assert answers(cells(code("x = 1")), cells(code("notes = 1"))).own_code[0].source == "x = 1"


def test_deleted_cells():
    got = taken(code(G, "g"), code("x = 1"), PROOF)
    assert got.cells["f"] is None and "Solution cell f is missing" in got.notes[0] and "f-test" in got.notes[-1]
    assert got.own[0].source == "x = 1"


def test_flipped_flags_and_tests_of_the_students_own_count_for_nothing():
    cheat = code("def f(x): return Equal()", "f-test", True)
    got = taken(HEAD, code(F, "f", False), cheat, code(G, "g"), PROOF)
    assert got.cells["f"] == F and got.own == () and "Given cell f-test was changed" in got.notes[0]


@pytest.mark.parametrize(
    ("copies", "answer", "earlier", "word"),
    [
        ([STUB, F], F, [], ""),
        ([F, STUB], F, [], ""),
        ([F, F + "  "], F, [], ""),
        ([F, ""], F, [], ""),
        (["def f(x): return 0", F], F, ["def f(x): return 0"], "more than once"),
        (["def f(x):", "    return x + 1"], "def f(x):\n    return x + 1", [], "was split"),
        ([F, G, F], G, [F], "more than once"),
        ([F, "    # more", F], F, [F + "\n    # more"], "was split"),
    ],
)
def test_duplicated_and_split_cells(copies, answer, earlier, word):
    got = taken(HEAD, *[code(text, "f") for text in copies], TESTED, code("after = 1"), code(G, "g"), PROOF)
    assert got.cells["f"] == answer and word in " ".join(got.notes) and bool(got.notes) == bool(word)
    assert [own.source for own in got.own] == [*earlier, "after = 1"]
    assert all(own.before and own.place == "f" for own in got.own[:-1])


def test_retyped_cells():
    text = {"cell_type": "markdown", "source": F, "metadata": flags("f")}
    got = taken(HEAD, text, TESTED, code(G, "g"), code("Because.", "proof"))
    assert got.cells["f"] == F and got.cells["proof"] == "Because." and "no longer code" in got.notes[0]
    got = taken(HEAD, text, code("def f(x): return 5", "f"), TESTED, code(G, "g"), PROOF)
    assert got.cells["f"] == "def f(x): return 5" and got.notes == ()


def test_merged_cells():
    got = taken(HEAD, code(F + "\n\n" + TEST, "f"), code(G, "g"), PROOF)
    assert got.cells["f"] == F and "merged into f" in got.notes[0]
    got = taken(HEAD, code(TEST + "\n\n" + G, "f-test", False), code(F, "f"), PROOF)
    assert got.cells == {"f": F, "g": G, "proof": "Because."} and "merged into f-test" in " ".join(got.notes)
    got = taken(HEAD, code(F + "\n\n" + G, "f"), TESTED, PROOF)
    assert got.cells["g"] is None and "merged into f, where it runs" in " ".join(got.notes)


def test_a_lost_grade_id_is_found_by_the_cell_id():
    got = taken(HEAD, {**code(F), "id": "id-f"}, TESTED, code(G, "g"), PROOF)
    assert got.cells["f"] == F and "lost its grade_id" in got.notes[0] and got.own == ()
    got = taken(HEAD, {**code("y = 1"), "id": "id-f"}, code(F, "f"), TESTED, code(G, "g"), PROOF)
    assert got.cells["f"] == F and got.own[0].source == "y = 1"


def test_another_notebook_is_refused():
    book, _ = read(dump(code(F), code(G, "other")))
    assert refusal(answers, book, TEMPLATE).state == "wrong-notebook"
    assert "another version" in taken(HEAD, code(G, "other"), PROOF).notes[0]


def words(source, name=None, **attachments):
    metadata = flags(name) if name else {}
    return {"cell_type": "markdown", "source": source, "metadata": metadata, "attachments": attachments}


RED, BLUE = ({"image/png": base64.b64encode(b"\x89PNG" + bytes([n] * 20)).decode()} for n in range(2))


def test_pictures_get_names_of_ours():
    """Two cells may use one name, and Markdown parsers differ about spaces, quotes and brackets in one."""
    odd = "![b](attachment:my%20proof.png) ![c](<attachment:my proof.png>) ![d](attachment:image.png 'title')"
    got = taken(
        words("![a](attachment:image.png)", **{"image.png": RED}),
        HEAD,
        code(F, "f"),
        TESTED,
        code(G, "g"),
        words(odd + " ![e](attachment:gone.png)", "proof", **{"my proof.png": RED, "image.png": BLUE}),
    )
    assert got.pictures == {"picture-1.png": RED, "picture-2.png": BLUE}
    assert got.own[0].source == "![a](attachment:picture-1.png)"
    one, two = "(attachment:picture-1.png)", "(attachment:picture-2.png)"
    assert got.cells["proof"] == f"![b]{one} ![c]{one} ![d]{two} ![e](attachment:gone.png)"


def test_texts_below_a_proof_belong_to_it():
    got = taken(HEAD, code(F, "f"), TESTED, code(G, "g"), PROOF, words("And so on."), code("x = 1"), words("End."))
    assert got.cells["proof"] == "Because.\n\nAnd so on.\n\nEnd." and "followed by texts" in got.notes[0]
    assert [own.source for own in got.own] == ["x = 1"]
    blank = {**PROOF, "source": "YOUR ANSWER HERE"}
    got = taken(HEAD, code(F, "f"), TESTED, code(G, "g"), blank, words("Because."))
    assert got.cells["proof"] == "Because." and got.unanswered == ()


def test_texts_elsewhere_stay_where_they_are_and_are_told_where_a_proof_is_missing():
    blank = {**PROOF, "source": "YOUR ANSWER HERE"}
    for proof, told in ((PROOF, 0), (blank, 1)):
        got = taken(HEAD, code(F, "f"), words("Because."), TESTED, code(G, "g"), proof)
        assert [(own.source, own.place, own.kind) for own in got.own] == [("Because.", "f", "markdown")]
        assert got.own_code == () and len(got.notes) == told and all("proof is not answered" in n for n in got.notes)


def test_the_source_of_the_course_answers_itself():
    book, _ = read(SET2.read_bytes())
    got = answers(book, SOURCE)
    assert len(got.cells) == 11 and got.own == () and None not in got.cells.values()


# Texts that would keep a careless reader busy for minutes or hours


def cpu(call, *args):
    """Seconds of this process, however busy the machine is, and whatever tests before have left in memory."""
    gc.collect()
    gc.freeze()
    try:
        began = time.process_time()
        call(*args)
        return time.process_time() - began
    finally:
        gc.unfreeze()


def test_many_copies_of_a_cell_are_not_compared_with_each_other():
    book, _ = read(dump(*[code("x\n" * 3000 + str(n), "f") for n in range(400)]))
    assert cpu(answers, book, TEMPLATE) < 2
    assert len(answers(book, TEMPLATE).own) == 399


def test_many_pictures_are_not_compared_with_each_other():
    pictures = {f"{n}.png": {"image/png": RED["image/png"][:20] + f"{n:08d}"} for n in range(10_000)}
    text = words("".join(f"![](attachment:{name})" for name in pictures), "proof", **pictures)
    book, _ = read(dump(text))
    assert cpu(answers, book, TEMPLATE) < 2
    assert len(answers(book, TEMPLATE).pictures) == 10_000


def test_a_written_answer_is_not_searched_for_each_of_many_pictures():
    names = [f"picture-{n}.png" for n in range(1, 40_001)]
    text = "".join(f"![](attachment:{name})" for name in names[1:])
    got = Answers({"proof": text}, (), (), (), dict.fromkeys(names, RED))
    assert cpu(Template.written, got, "proof") < 2
    first, last = (replace(got, pictures=got.pictures | {name: BLUE}) for name in (names[0], names[-1]))
    assert Template.written(first, "proof") == Template.written(got, "proof") != Template.written(last, "proof")


@pytest.mark.parametrize(
    "text",
    [
        "![a](attachment:a" + " " * 500_000,
        "![a](attachment:a" + "\n" * 500_000,
        "![" * 250_000,
        "![](attachment:" * 33_000,
        "![](attachment:a " * 30_000,
        "![](attachment:a \"![](attachment:b '" * 13_000,
        "![](attachment:" + "!" * 480_000,
        "![" + "a" * 490_000,
    ],
)
def test_references_without_an_end(text):
    book, _ = read(dump(words(text[:500_000], "proof", **{"a": RED})))
    assert cpu(answers, book, TEMPLATE) < 2


def test_blanks_after_a_picture():
    book, _ = read(dump(words("![](attachment:a)", "proof", a={"image/png": RED["image/png"] + "QQ==" + " " * 99})))
    assert answers(book, TEMPLATE).pictures
    endless = RED["image/png"].rstrip("=") + " " * 100_000 + "!"
    assert cpu(read, dump(words("", "proof", a={"image/png": endless}))) < 2


@pytest.mark.parametrize("source", ["x = " + "-" * 7000 + "1", "x = 1" + "+1" * 5000, "x = a" + ".b" * 100_000])
def test_source_on_which_the_parser_of_python_gives_up(source):
    assert set(bound(source)) <= {"x"}  # a later Python may read more
    cell = nbformat.v4.new_code_cell(source, metadata=flags("f"))
    assert set(plan(nbformat.v4.new_notebook(cells=[cell]), Answers({}, (), (), ())).steps[0].asks) <= {"x"}


# Whatever else


def admit_or_refuse(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set1.ipynb"
        path.write_bytes(data)
        try:
            admitted = admit(path, root=folder)
        except Refused as error:
            sentence(error.reason)
            return error.state
    book = admitted.notebook
    well_formed(book)
    for note in admitted.notes:
        sentence(note)
    try:
        got = answers(book, SOURCE)
    except Refused as error:
        assert error.state == "wrong-notebook"
        return error.state
    else:
        assert list(got.cells) == [c.metadata.nbgrader.grade_id for c in SOURCE.cells if c.metadata.nbgrader.solution]
        for note in got.notes:
            sentence(note)
        return "admitted"


def comes_to_the_same(data):
    """Whether the file is judged alike with blanks around it, which JSON does not mind."""
    return admit_or_refuse(data) == admit_or_refuse(b" " + data + b"\n")


KEYS = st.sampled_from(
    "cells worksheets nbformat nbformat_minor metadata cell_type source input outputs id nbgrader grade_id points tags "
    "grade solution attachments level execution_count image/png __proto__".split()
)
WORDS = st.sampled_from(
    ["code", "markdown", "raw", "heading", "html", "heads_answer", "skip-execution", "\ud800", "\0"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS
TREES = st.recursive(
    LEAVES,
    lambda x: st.lists(x, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), x, max_size=6),
    max_leaves=12,
)
CELLS = st.lists(
    st.fixed_dictionaries(
        {}, optional={key: TREES | WORDS for key in ("cell_type", "source", "metadata", "id", "level")}
    )
    | st.fixed_dictionaries(
        {"cell_type": WORDS, "source": st.text(max_size=5) | TREES},
        optional={"metadata": st.fixed_dictionaries({"nbgrader": TREES, "tags": TREES}), "attachments": TREES},
    )
    | TREES,
    max_size=6,
)
FORMATS = st.sampled_from([2, 3, 4, 5]) | TREES
BOOKS = st.fixed_dictionaries({"nbformat": FORMATS, "nbformat_minor": FORMATS, "cells": CELLS}) | st.fixed_dictionaries(
    {"nbformat": FORMATS, "worksheets": st.lists(st.fixed_dictionaries({"cells": CELLS}) | TREES, max_size=2)}
)


@settings(max_examples=100)
@given(st.binary(max_size=60) | st.builds(lambda tree: json.dumps(tree).encode(), TREES))
def test_random_bytes_and_trees(data):
    assert admit_or_refuse(data) != "admitted"  # none of them has a cell of the assignment


@pytest.mark.slow
@settings(max_examples=200)
@given(BOOKS)
def test_random_notebooks(tree):
    assert comes_to_the_same(json.dumps(tree).encode())


SMALL = dict(json.loads(SET2.read_bytes()))
SMALL["cells"] = [cell for cell in SMALL["cells"] if cell["id"].startswith(("setup", "heads", "proof"))]
RAW = json.dumps(SMALL).encode()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, len(RAW)), st.integers(0, 40), st.binary(max_size=6)), min_size=1, max_size=4))
def test_a_real_notebook_with_bytes_exchanged(edits):
    data = RAW
    for at, length, new in edits:
        data = data[:at] + new + data[at + length :]
    assert comes_to_the_same(data)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_a_real_notebook_with_values_exchanged(data):
    tree = json.loads(RAW)
    for _ in range(data.draw(st.integers(1, 4))):
        node, key = tree, None
        for _ in range(data.draw(st.integers(1, 5))):
            keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
            if not keys:
                break
            parent, key = node, data.draw(st.sampled_from(keys))
            node = parent[key]
        if key is None:
            continue
        what = data.draw(st.sampled_from(["replace", "delete", "double"]))
        if what == "replace":
            parent[key] = data.draw(TREES | WORDS)
        elif what == "delete":
            del parent[key]
        elif isinstance(parent, list):
            parent.insert(data.draw(st.integers(0, len(parent))), node)
    assert comes_to_the_same(json.dumps(tree).encode())
