"""Marks leave the gradebook as they are: nothing is written to it, nothing guessed, and no formula gets out."""

import csv
import hashlib
import warnings

import pytest

from nbreferee.export import marks as gradebooks
from nbreferee.export.canvas import canvas as fill_canvas
from nbreferee.export.marks import Exercise, ExportError, Mark, Marks, Person
from nbreferee.export.moodle import moodle as fill_moodle
from nbreferee.export.moodle import moodle_import
from nbreferee.export.tables import long, wide
from nbreferee.export.worksheet import mapping
from nbreferee.pages.tables import TableError, write

STUDENTS = (
    Person("ada", "Lovelace", "Ada", "Ada@x.org"),
    Person("bob", "=cmd()", "Bob", "bob@x.org"),
    Person("eve", "", "", ""),
    Person("mia", "", "", "mia@x.org"),
)
MARKS = Marks(
    STUDENTS,
    {"set1": 10.0},
    {
        ("ada", "set1"): Mark("marked", 7.5, 10.0, 0.5, (Exercise("set1", "t1", "code", 8.0, 10.0),)),
        ("bob", "set1"): Mark("needs manual grading", 3.0, 10.0),
        ("eve", "set1"): Mark("not submitted", None, 10.0),
        ("mia", "set1"): Mark("marked", 0.1 + 0.2, 10.0),
    },
)
DONE = Mark("marked", 1.0, 1.0)


def table(path, delimiter=","):
    return list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines(), delimiter=delimiter))


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory):
    pytest.importorskip("nbgrader", reason="needs nbgrader")
    from nbgrader.api import Gradebook

    file = tmp_path_factory.mktemp("a folder #1") / "grade book.db"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbgrader's own
        with Gradebook(f"sqlite:///{file}") as book:
            book.add_assignment("set1")
            book.add_notebook("p1", "set1")
            book.add_grade_cell("t1", "p1", "set1", max_score=4, cell_type="code")
            book.add_grade_cell("t2", "p1", "set1", max_score=6, cell_type="markdown")
            book.add_task_cell("k", "p1", "set1", max_score=2, cell_type="markdown")
            for name in ("ada", "bob", "eve"):
                book.add_student(name, email=f"{name}@x.org")
            for name in ("ada", "bob"):
                (sheet,) = book.add_submission("set1", name).notebooks
                sheet.late_submission_penalty = 1.5 if name == "ada" else 50.0
                for grade in sheet.grades:
                    grade.auto_score, grade.needs_manual_grade = 2.0, False
                    if grade.name == "t2":
                        grade.manual_score, grade.extra_credit = 5.0, 0.5
                        grade.needs_manual_grade = name == "bob"
            book.db.commit()
    return file


@pytest.mark.slow
def test_the_gradebook_is_read_and_not_written(gradebook):
    before = hashlib.sha256(gradebook.read_bytes()).digest()
    marks = gradebooks.read_marks(f"sqlite:///{gradebook}")
    assert [s.id for s in marks.students] == ["ada", "bob", "eve"] and marks.possible == {"set1": 12.0}
    ada = marks.marks["ada", "set1"]
    assert (ada.state, ada.points, ada.penalty) == ("marked", 8.0, 1.5)  # 2 + 2 + 5.5 - 1.5
    assert [(e.name, e.points, e.possible, e.extra) for e in ada.exercises] == [
        ("k", 2.0, 2.0, 0.0),
        ("t1", 2.0, 4.0, 0.0),
        ("t2", 5.5, 6.0, 0.5),
    ]
    bob = marks.marks["bob", "set1"]
    assert (bob.state, bob.points) == ("needs manual grading", 0.0)  # never below 0
    assert marks.marks["eve", "set1"].state == "not submitted"
    assert hashlib.sha256(gradebook.read_bytes()).digest() == before
    from sqlalchemy import text

    with pytest.raises(ExportError, match="readonly"), gradebooks._session(f"sqlite:///{gradebook}") as session:
        session.execute(text("delete from student"))


def test_the_roster_and_who_has_handed_in(gradebook):
    url = f"sqlite:///{gradebook}"
    assert gradebooks.roster(url) == ["ada", "bob", "eve"] and gradebooks.handed_in(url, "set1") == ["ada", "bob"]
    assert gradebooks.handed_in(url, "set9") == []
    with pytest.raises(ExportError, match="there is no gradebook"):
        gradebooks.roster(url.replace("grade", "no"))


def test_a_mark_that_is_no_number_stops_the_export(gradebook, tmp_path):
    import sqlite3

    copy = tmp_path / "g.db"
    copy.write_bytes(gradebook.read_bytes())
    with sqlite3.connect(copy) as db:
        db.execute("update grade set auto_score = 9e999, manual_score = null")
    db.close()
    with pytest.raises(ExportError, match="is inf, which is no number; grade it again"):
        gradebooks.read_marks(f"sqlite:///{copy}")


@pytest.mark.parametrize("url", ["sqlite:///nowhere.db", "what", "sqlite:///{no_db}"])
def test_what_is_no_gradebook_is_said(tmp_path, url):
    (tmp_path / "x.db").write_text("no database, but long enough to be looked at" * 99)
    with pytest.raises(ExportError, match=r"; (check|write)"):
        gradebooks.read_marks(url.format(no_db=tmp_path / "x.db"))
    assert not (tmp_path / "nowhere.db").exists()


def test_wide_and_long_tables(tmp_path):
    rows = wide(MARKS)
    assert [row[4:] for row in rows[1:]] == [
        [7.5, 10.0, 0.5, "marked"],
        [None, 10.0, 0.0, "needs manual grading"],
        [None, 10.0, None, "not submitted"],
        [0.1 + 0.2, 10.0, 0.0, "marked"],
    ]
    assert [row[4] for row in wide(MARKS, missing="zero", waiting="points")[1:]] == [7.5, 3.0, 0.0, 0.1 + 0.2]
    write(tmp_path / "wide.csv", rows, bom=True)
    assert (tmp_path / "wide.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert table(tmp_path / "wide.csv")[1:3] == [
        ["ada", "Lovelace", "Ada", "Ada@x.org", "7.5", "10", "0.5", "marked"],
        ["bob", "'=cmd()", "Bob", "bob@x.org", "", "10", "0", "needs manual grading"],
    ]
    assert table(tmp_path / "wide.csv")[4][4] == "0.3"
    assert [row[:6] for row in long(MARKS)[1:3]] == [
        ["ada", "set1", "set1", "t1", "code", 8.0],
        ["bob", "set1", "", "", "", None],
    ]
    with pytest.raises(ExportError, match="missing is 'nought'"):
        wide(MARKS, missing="nought")


def test_who_waits_for_a_mark_by_hand_is_named(tmp_path):
    marks = Marks(STUDENTS, {"set1": 10.0, "set2": 1.0}, MARKS.marks | {(s.id, "set2"): DONE for s in STUDENTS})
    (said,) = marks.unmarked()
    assert said.startswith("set1: 1 wait for marks by hand: bob; mark them in formgrader") and "no mark for now" in said
    (said,) = marks.unmarked(["set1"], waiting="points")
    assert "the points that they have without it were given out" in said
    assert not marks.unmarked(["set2"])


PLAIN = ["=1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", " =1", "\u200b=1", "\ufeff=1", "\u2212", "\x00=1"]
WIDE = ["\uff1d1", "\uff0b1", "\uff0d1", "\uff20a", "\ufe631", "\u3000\uff1d1"]


@pytest.mark.parametrize("text", PLAIN + WIDE)
def test_formulas_are_defused(tmp_path, text):
    write(tmp_path / "t.csv", [[text, "a;=1", -2.5]])
    raw = (tmp_path / "t.csv").read_text()
    assert raw.startswith("\"'") and raw.endswith(',"a;=1","-2.5"\n') and raw.count("\n") == 1


def test_a_failed_write_leaves_the_old_file(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(TableError, match="cannot be written"):
        write(tmp_path / "folder", [["a"]])
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


HEAD = "Student,ID,SIS User ID,SIS Login ID,Section,Set 1 (77),set1 (78),Final Score\r\n"
CANVAS = (
    HEAD
    + ",,,,,Manual Posting,,\r\n"
    + "    Points Possible,,,,,5,10,(read only)\r\n"
    + '"Lovelace, Ada",11,u1,ada,A,3,,1\r\n'
    + '"=B, Bob",12,u2,bob@x.org,A,4,,2\r\n'
    + '"Test, Student",13,,,A,,,\r\n'
    + '"M, Mia",14,u4,mia,A,,9,3\r\n'
)


def canvas(tmp_path, text=CANVAS, **options):
    (tmp_path / "in.csv").write_bytes(text.encode())
    filled = fill_canvas(tmp_path / "in.csv", MARKS, "set1", **options)
    filled.write(tmp_path / "out.csv")
    return filled, table(tmp_path / "in.csv"), table(tmp_path / "out.csv")


def changed(old, new):
    assert [len(row) for row in old] == [len(row) for row in new]
    return {(r, c): new[r][c] for r, row in enumerate(old) for c, _ in enumerate(row) if old[r][c] != new[r][c]}


def test_canvas_gets_one_column_and_nothing_else(tmp_path):
    filled, old, new = canvas(tmp_path)
    assert changed(old, new) == {(3, 6): "7.5"}
    assert filled.filled == ["ada"] and filled.kept == {"mia": ("9", "0.3")}
    assert filled.empty == {"bob": "needs manual grading"} and filled.unplaced == ["eve"]
    assert filled.unknown == ["Test, Student"]
    text = " ".join(filled.sentences())
    for wanted in ("1 marks were filled", "left as they are: mia 9 (new: 0.3)", "not in in.csv: eve", "Test, Student"):
        assert wanted in text
    assert (tmp_path / "out.csv").read_bytes().startswith(HEAD.encode())


def test_canvas_overwrites_only_when_asked_and_counts_it(tmp_path):
    filled, old, new = canvas(tmp_path, overwrite=True, waiting="points", missing="zero", ids={"eve": "13"})
    assert changed(old, new) == {(3, 6): "7.5", (4, 6): "3", (5, 6): "0", (6, 6): "0.3"}
    assert filled.replaced == {"mia": ("9", "0.3")} and not filled.unknown and not filled.unplaced


def test_canvas_columns(tmp_path):
    filled, old, new = canvas(tmp_path, column="Set 1", overwrite=True)
    assert set(changed(old, new)) == {(3, 5), (6, 5)}
    assert any("worth 5 in Canvas and 10 here" in note for note in filled.notes)
    for wrong in ("Set 9", "Final Score"):
        with pytest.raises(ExportError, match=r"has no assignment|is read only"):
            canvas(tmp_path, column=wrong)
    with pytest.raises(ExportError, match="more than one assignment"):
        canvas(tmp_path, CANVAS.replace("Set 1 (77)", "set1 (77)"))
    with pytest.raises(ExportError, match="no gradebook of Canvas"):
        canvas(tmp_path, "a,b,c,d\n1,2,3,4\n")
    with pytest.raises(ExportError, match=r"row 4 of in\.csv has 9 fields"):
        canvas(tmp_path, CANVAS.replace("A,3,,1", "A,3,,,1"))


def test_who_fits_two_rows_or_shares_one_is_placed_nowhere(tmp_path):
    filled, old, new = canvas(tmp_path, CANVAS.replace("14,u4,mia", "ada,u4,mia"))
    assert not changed(old, new) and "ada" in filled.unplaced and any("fit several rows" in n for n in filled.notes)
    filled, old, new = canvas(tmp_path, ids={"eve": "ada"}, missing="zero")
    assert (3, 6) not in changed(old, new) and {"ada", "eve"} <= set(filled.unplaced)


def test_semicolons_line_ends_and_the_byte_order_mark_stay(tmp_path):
    text = "\ufeff" + CANVAS.replace('"Lovelace, Ada"', "Ada").replace(",", ";").replace("\r\n", "\n")
    text = text.replace('"=B; Bob"', '"=B, Bob"')
    canvas(tmp_path, text)
    raw = (tmp_path / "out.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbfStudent;ID") and b"\r" not in raw and b"Ada;11;u1;ada;A;3;7.5;1\n" in raw


MOODLE = (
    "Identifier,Full name,Email address,Status,Grade,Maximum grade,Grade can be changed,"
    "Last modified (submission),Last modified (grade),Feedback comments\n"
    "Participant 101,Ada L,ada@X.org,Submitted,,10.00,Yes,-,-,\n"
    "Participant 102,Bob,bob@x.org,Submitted,2.00,10.00,Yes,-,-,good\n"
    "Participant 103,Eve,eve@y.org,No submission,,10.00,Yes,-,-,\n"
    "Participant 104,Mia,mia@x.org,Submitted,,10.00,No,-,-,\n"
)


def moodle(tmp_path, text=MOODLE, **options):
    (tmp_path / "in.csv").write_text(text)
    filled = fill_moodle(tmp_path / "in.csv", MARKS, "set1", **options)
    filled.write(tmp_path / "out.csv")
    return filled, table(tmp_path / "in.csv"), table(tmp_path / "out.csv")


def test_moodle_gets_grades_by_mail_or_mapping(tmp_path):
    filled, old, new = moodle(tmp_path)
    assert changed(old, new) == {(1, 4): "7.5"}
    assert filled.kept == {"mia": ("locked in Moodle", "0.3")} and filled.unknown == ["Participant 103"]
    (tmp_path / "ids.csv").write_text("student,lms_id\neve,103\n")
    filled, old, new = moodle(tmp_path, ids=mapping(tmp_path / "ids.csv"), missing="zero", waiting="points")
    assert changed(old, new) == {(1, 4): "7.5", (3, 4): "0"} and filled.kept["bob"] == ("2.00", "3")
    blind = "Identifier,Status,Grade,Last modified (grade)\nParticipant 101,x,,-\n"
    filled, old, new = moodle(tmp_path, blind, ids={"ada": "Participant 101"})
    assert changed(old, new) == {(1, 2): "7.5"}


def test_moodle_would_leave_out_what_is_above_the_maximum(tmp_path):
    filled, old, new = moodle(tmp_path, MOODLE.replace("10.00", "5.00"))
    assert not changed(old, new) and filled.kept["ada"] == ("above the maximum of 5", "7.5")
    assert any("worth 5.00 in Moodle and 10 here" in note for note in filled.notes)


def test_a_worksheet_in_another_language(tmp_path):
    text = MOODLE.replace("Identifier", "ID").replace(",Grade,", ",Bewertung,")
    with pytest.raises(ExportError, match="has no column Identifier"):
        moodle(tmp_path, text)
    filled, *_ = moodle(tmp_path, text, columns={"Identifier": "ID", "Grade": "Bewertung"})
    assert filled.filled == ["ada"]


def test_the_simple_import_leaves_out_who_has_no_mark():
    rows, notes = moodle_import(MARKS)
    assert rows == [["Email address", "set1"], ["Ada@x.org", 7.5], ["mia@x.org", 0.1 + 0.2]]
    assert any("2 students have no mark" in note for note in notes)
    rows, notes = moodle_import(MARKS, missing="zero")
    assert len(rows) == 3 and any("no e-mail address: eve" in note for note in notes)
    assert ["eve", 0.0] in moodle_import(MARKS, by="id", missing="zero")[0]


def test_a_mapping_is_checked(tmp_path):
    for text, wanted in (
        ("student,lms_id\na,1\na,2\n", "row 3 of ids.csv repeats"),
        ("student,lms_id\na,1\nb,1\n", "row 3 of ids.csv repeats"),
        ("student,lms_id\na,\n", "row 2 of ids.csv is not complete"),
        ("student,id\na,1\n", "has no column lms_id; begin it"),
    ):
        (tmp_path / "ids.csv").write_text(text)
        with pytest.raises(ExportError, match=wanted):
            mapping(tmp_path / "ids.csv")
