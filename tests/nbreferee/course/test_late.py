"""Deadlines: every rule with its sentence, the clock's changes, and every malformed entry named with its cure."""

import datetime as dt
import os
import re
import textwrap
from zoneinfo import ZoneInfo

import pytest

from nbreferee.course import late
from nbreferee.course.late import DeadlinesError, load, submitted_at
from nbreferee.intake.notebook import Refused
from tests.nbreferee.toycourse import GOOD, by_student, grade, gradebook, mark, submit

ZURICH = ZoneInfo("Europe/Zurich")


def rules(tmp_path, text, head='zone = "Europe/Zurich"\n'):
    file = tmp_path / "deadlines.toml"
    file.write_text(head + textwrap.dedent(text), encoding="utf-8")
    return load(file)


def at(text, fold=0):
    return dt.datetime.fromisoformat(text).replace(tzinfo=ZURICH, fold=fold)


def faults(tmp_path, text, head='zone = "Europe/Zurich"\n'):
    with pytest.raises(DeadlinesError) as caught:
        rules(tmp_path, text, head)
    for line in caught.value.lines:
        assert re.fullmatch(r"deadlines\.toml: [^\n]+; [^\n]+[.?]", line), line
    return caught.value.lines


PLAIN = "[assignments.set1]\ndue = 2026-10-12T18:00:00\npercent = 10\n"


def taken(r, when, score=10, student="ada", worth=10):
    return r.penalty(student, "set1", at(when), score, worth)[0]


def test_the_documented_file_holds(tmp_path):
    text = re.search(r"example::\n\n(.*?)\nA day is", late.__doc__, re.S)[1]
    r = rules(tmp_path, text, head="")
    assert r.due("eve.smith", "set2") == dt.datetime(2026, 10, 25, 10, tzinfo=dt.UTC)
    assert r.due("ada", "set2") == at("2026-10-21T18:00:00")
    assert taken(r, "2026-10-12T23:59:59") == 0 and taken(r, "2026-10-13T00:15:00") == 0  # end of the day, grace
    assert taken(r, "2026-10-13T00:15:01") == 1.0
    assert taken(r, "2026-10-14T00:00:01") == 2.0
    assert taken(r, "2026-10-18T12:00:00") == 5.0  # the cap
    assert taken(r, "2026-10-20T00:00:00") == 5.0 and taken(r, "2026-10-20T00:00:01") == 10.0
    assert taken(r, "2026-10-20T00:00:01", student="bob") == 0
    set2 = lambda when: r.penalty("mia", "set2", at(when), 8, 10)[0]  # noqa: E731
    assert [set2(f"2026-10-{t}:00") for t in ("19T18:00", "19T18:16", "20T18:00", "20T18:01", "22T18:01")] == [
        0,
        0.8,
        0.8,
        2.0,
        4.8,
    ]
    assert set2("2026-10-23T12:00:01") == 8


def test_a_day_is_a_day_of_the_calendar(tmp_path):
    # the clocks go back in the night to the 25th: that day has 25 hours
    r = rules(tmp_path, "[assignments.set1]\ndue = 2026-10-24T18:00:00\npercent = 10\n")
    assert taken(r, "2026-10-25T18:00:00") == 1.0 and taken(r, "2026-10-25T18:00:01") == 2.0
    hours = rules(tmp_path, '[assignments.set1]\ndue = 2026-10-24T18:00:00\npercent = 1\nper = "hour"\n')
    assert taken(hours, "2026-10-25T18:00:00") == 2.5
    # and forward in the night to 29 March: 23 hours
    r = rules(tmp_path, "[assignments.set1]\ndue = 2026-03-28T18:00:00\npercent = 10\n")
    assert taken(r, "2026-03-29T18:00:00") == 1.0 and taken(r, "2026-03-29T18:00:01") == 2.0
    plus = rules(
        tmp_path, PLAIN.replace("2026-10-12", "2026-10-24") + '[assignments.set1.extensions]\nada = "+1 day"\n'
    )
    assert plus.due("ada", "set1") == dt.datetime(2026, 10, 25, 17, tzinfo=dt.UTC)
    assert plus.due("bob", "set1") == dt.datetime(2026, 10, 24, 16, tzinfo=dt.UTC)


def test_the_end_of_a_day_without_midnight_and_of_a_leap_day(tmp_path):
    r = rules(tmp_path, "[assignments.set1]\ndue = 2028-02-29\n")
    assert r.due("ada", "set1") == at("2028-03-01T00:00:00")
    beirut = rules(tmp_path, "[assignments.set1]\ndue = 2024-03-30\n", 'zone = "Asia/Beirut"\n')
    assert beirut.due("ada", "set1") == dt.datetime(2024, 3, 30, 22, tzinfo=dt.UTC)  # 0:00 does not exist on the 31st


def test_an_extension_moves_a_relative_end_and_is_never_behind_a_fixed_one(tmp_path):
    more = 'latest = "+1 day"\nextensions = { ada = "+5 days" }\n'
    r = rules(tmp_path, PLAIN + more)
    assert taken(r, "2026-10-18T17:00:00") == 1.0 and taken(r, "2026-10-18T18:00:01") == 10
    assert taken(r, "2026-10-14T17:00:00", student="bob") == 10
    r = rules(tmp_path, PLAIN + 'latest = 2026-10-13T18:00:00\nextensions = { ada = "+5 days" }\n')
    assert taken(r, "2026-10-17T18:00:00") == 0 and taken(r, "2026-10-17T18:00:01") == 10
    sentence = r.penalty("ada", "set1", at("2026-10-17T18:00:01"), 10, 10)[1]
    assert sentence.endswith("nothing counts after 2026-10-17 18:00 CEST: all 10 points.")


def test_penalties_are_decimal_rounded_in_favour_and_never_below_nothing_or_above_all(tmp_path):
    r = rules(tmp_path, PLAIN.replace("percent = 10", "percent = 30"))
    assert taken(r, "2026-10-13T12:00:00", score=7) == 2.1  # 7 * 0.3 is 2.0999999999999996
    half = rules(tmp_path, PLAIN.replace("percent = 10", "percent = 0.5"))
    assert taken(half, "2026-10-13T12:00:00", score=3) == 0.01  # 0.015
    assert taken(half, "2026-10-13T12:00:00", score=3.2) == 0.02  # 0.016
    full = rules(tmp_path, PLAIN.replace("percent = 10", "percent = 100"))
    assert taken(full, "2026-10-13T12:00:00", score=3.3333) == 3.3333
    possible = rules(tmp_path, PLAIN + 'of = "possible"\n')
    assert taken(possible, "2026-10-13T12:00:00", score=4, worth=20) == 2.0
    assert taken(possible, "2026-10-13T12:00:00", score=1.5, worth=20) == 1.5
    assert taken(full, "2026-10-13T12:00:00", score=-2) == 0
    for wrong in (float("nan"), float("inf"), None):
        with pytest.raises(ValueError, match="grade it again"):
            taken(r, "2026-10-13T12:00:00", score=wrong)


def test_every_answer_comes_with_a_sentence(tmp_path):
    r = rules(tmp_path, PLAIN + 'excused = ["bob"]\n')
    assert r.penalty("ada", "set9", at("2026-10-13T12:00:00"), 5, 9) == (
        0.0,
        "set9 has no entry in deadlines.toml: no penalty.",
    )
    assert "not known" in r.penalty("ada", "set1", None, 5, 9)[1]
    assert r.penalty("bob", "set1", None, 5, 9) == (0.0, "Excused: no penalty.")
    # a time without a zone is UTC, as in nbgrader's gradebook: 16:00 is 18:00 in Zurich
    assert r.penalty("ada", "set1", dt.datetime(2026, 10, 12, 16, 0), 5, 9)[0] == 0
    assert r.penalty("ada", "set1", at("2026-10-12T18:00:00"), 5, 9)[1] == "On time, due 2026-10-12 18:00 CEST."
    points, sentence = r.penalty("ada", "set1", dt.datetime(2026, 10, 12, 16, 0, 1), 5, 9)
    assert points == 0.5
    assert sentence == (
        "Submitted 1 min after 2026-10-12 18:00 CEST: 10 % of what was earned for 1 started day, 0.5 points."
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("zoen = 1\n" + PLAIN, "zoen: unknown key; did you mean 'zone'?"),
        (PLAIN + "pecent = 5\n", "assignments.set1.pecent: unknown key; did you mean 'percent'?"),
        (PLAIN.replace("10\n", "110\n"), "percent: 110 is no percentage; write a number from 0 to 100."),
        (PLAIN.replace("10\n", "true\n"), "percent: True is no percentage"),
        (PLAIN.replace("10\n", "nan\n"), "percent: nan is no percentage"),
        (PLAIN + 'per = "week"\n', "per: 'week' is unknown; write one of day, hour."),
        (PLAIN + 'grace = "a while"\n', "grace: 'a while' is no length of time"),
        (PLAIN + 'latest = "2 days"\n', "latest: '2 days' is no length of time; write \"+2 days\""),
        (PLAIN + "latest = 2026-10-01\n", "latest: is earlier than the due time"),
        (PLAIN + 'steps = [{ after = "1 day", percent = 3 }]\n', "steps: stands beside percent"),
        ("[assignments.set1]\ndue = 2026-10-12\nsteps = []\n", "steps: is no list of steps"),
        (
            '[assignments.a]\ndue = 2026-10-12\nsteps = [{after="2 days",percent=3},{after="1 day",percent=5}]\n',
            "steps[2]: does not begin later",
        ),
        ("[assignments.set1]\npercent = 10\n", "due: is missing"),
        ('[assignments.set1]\ndue = "2026-10-12"\n', "is no date and no time; write 2026-10-12"),
        ("[assignments.set1]\ndue = 2026-03-29T02:30:00\n", "does not exist in Europe/Zurich"),
        ("[assignments.set1]\ndue = 2026-10-25T02:30:00\n", "comes twice in Europe/Zurich"),
        ("[assignments.set1]\ndue = 9999-12-31\n", "is no year of a course"),
        (PLAIN + "excused = 'ada'\n", "excused: 'ada' is no list of students"),
        (PLAIN + "extensions = { ada.l = '+1 day' }\n", "extensions.ada: is a table, since a dot outside quotes"),
        (PLAIN + "extensions = { ada = 2026-10-01 }\n", "extensions.ada: is earlier than the due time"),
        (PLAIN + "extensions = { ada = '1 day' }\n", "extensions.ada: '1 day' is no length of time"),
        ("", "assignments: there are none"),
        ("assignments = 3\n", "assignments: there are none"),
        ("[assignments]\nset1 = 2026-10-12\n", "assignments.set1: 2026-10-12 is no table"),
        (PLAIN + "due = 2026-10-13\n", "is not TOML"),
    ],
)
def test_a_malformed_entry_is_one_line_that_names_the_cure(tmp_path, text, wanted):
    lines = faults(tmp_path, text)
    assert len(lines) == 1 and wanted in lines[0], lines


def test_all_faults_are_named_at_once_and_the_zone_is_needed(tmp_path):
    assert len(faults(tmp_path, PLAIN + "a = 1\nb = 2\ngrace = 3\n")) == 3
    for head in ("", 'zone = "Europa/Zürich"\n', "zone = 3\n", 'zone = "../etc"\n'):
        assert "zone: " in faults(tmp_path, PLAIN, head)[0]
    with pytest.raises(DeadlinesError, match="there is no such file; write it"):
        load(tmp_path / "nothing" / "deadlines.toml")


def test_names_that_fit_nothing_are_named(tmp_path):
    r = rules(tmp_path, PLAIN + 'excused = ["bop"]\nextensions = { adda = "+1 day" }\n')
    assert r.check(["ada", "bob"], ["set1"]) == [
        "deadlines.toml: assignments.set1.extensions: there is no student adda; did you mean 'ada'?",
        "deadlines.toml: assignments.set1.excused: there is no student bop; did you mean 'bob'?",
    ]
    assert "there is no such assignment" in r.check(["adda", "bop"], [])[0]
    assert r.check(["adda", "bop"], ["set1", "set2"]) == [
        "deadlines.toml: set2 has no deadline; add [assignments.set2]."
    ]


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "submitted" / "ada" / "set1"
    folder.mkdir(parents=True)
    book = folder / "set1.ipynb"
    book.write_text("{}")
    os.utime(book, (1_790_000_000, 1_790_000_000))  # 2026-09-21 14:13:20 UTC
    return folder


BOOK = dt.datetime.fromtimestamp(1_790_000_000, dt.UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-09-21 14:20:00.123456 UTC", "2026-09-21T14:20:00.123456+00:00"),
        ("2026-09-21 14:20:00 Europe/Zurich", "2026-09-21T12:20:00+00:00"),
        ("2026-09-21 14:20:00 CEST", "2026-09-21T12:20:00+00:00"),
        ("2026-01-21 14:20:00 CET\n", "2026-01-21T13:20:00+00:00"),
        ("2026-09-21 14:20:00 +0200", "2026-09-21T12:20:00+00:00"),
        ("2026-09-21T14:20:00Z", "2026-09-21T14:20:00+00:00"),
        ("2026-09-21 14:20", "2026-09-21T14:20:00+00:00"),
    ],
)
def test_the_claim_of_timestamp_txt_is_read(work, text, wanted, monkeypatch):
    monkeypatch.setattr(late, "NOW", lambda: dt.datetime(2026, 12, 1, tzinfo=dt.UTC))
    (work / "timestamp.txt").write_text(text)
    when, source = submitted_at(work, zone=ZURICH)
    assert when == dt.datetime.fromisoformat(wanted) and source.startswith("timestamp.txt, as the student's side")
    assert ("changed or copied later" in source) == (when < BOOK - dt.timedelta(minutes=5))


def test_nbgrader_reads_the_same_time(work, monkeypatch):
    from nbgrader.utils import parse_utc

    text = "2026-09-21 14:20:00.123456 UTC"
    (work / "timestamp.txt").write_text(text)
    monkeypatch.setattr(late, "NOW", lambda: dt.datetime(2026, 12, 1, tzinfo=dt.UTC))
    assert submitted_at(work)[0].replace(tzinfo=None) == parse_utc(text)


@pytest.mark.parametrize("text", ["", "soon", "=1+1", "2099-01-01 00:00:00 UTC", "2026-13-45 00:00", "x" * 1000, "12"])
def test_what_is_no_time_or_the_future_is_not_taken(work, text):
    (work / "timestamp.txt").write_text(text)
    when, source = submitted_at(work)
    assert when == BOOK and source.startswith("The time of the newest file, for timestamp.txt")
    assert source.isprintable() and len(source) < 200


@pytest.mark.parametrize("text", ["1970-01-01 00:00:00 UTC", "0001-01-01 00:00:00 UTC", "1999-12-31 23:59:59 UTC"])
def test_a_time_before_any_course_cancels_no_lateness(work, text):
    """A student can write the epoch into timestamp.txt; then the file's own time counts, and it is said."""
    (work / "timestamp.txt").write_text(text)
    moment, source = submitted_at(work)
    assert moment.year >= 2026 and not source.startswith(late.CLAIMED) and late.doubtful(source)
    assert (
        source
        == f"The time of the newest file, for timestamp.txt claims {text[:16]} UTC, long before the work was due."
    )
    assert late.timestamp(work) is None  # not in the gradebook either


def test_a_time_of_another_year_is_not_taken_if_it_is_known_when_the_work_is_due(work, monkeypatch):
    due = dt.datetime(2026, 10, 12, 16, tzinfo=dt.UTC)
    os.utime(work / "set1.ipynb", (due.timestamp() + 7200,) * 2)
    monkeypatch.setattr(late, "NOW", lambda: due + dt.timedelta(days=9))
    (work / "timestamp.txt").write_text("2024-10-12 10:00:00 UTC")
    moment, source = submitted_at(work, due=due)
    assert moment == due + dt.timedelta(hours=2) and "claims 2024-10-12 10:00 UTC, long before" in source
    (work / "timestamp.txt").write_text("2026-09-01 10:00:00 UTC")
    moment, source = submitted_at(work, due=due)
    assert moment.month == 9 and late.doubtful(source), (
        source
    )  # on time by the claim, and the file is newer: it is said
    os.utime(work / "set1.ipynb", (moment.timestamp(),) * 2)
    assert not late.doubtful(submitted_at(work, due=due)[1])
    (work / "timestamp.txt").unlink()
    assert not late.doubtful(submitted_at(work, due=due)[1])


def test_an_unknown_zone_is_said(work, monkeypatch):
    monkeypatch.setattr(late, "NOW", lambda: dt.datetime(2026, 12, 1, tzinfo=dt.UTC))
    (work / "timestamp.txt").write_text("2026-09-21 14:20:00 XYZT")
    assert "XYZT is unknown and was read as UTC" in submitted_at(work)[1]


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links and pipes")
def test_no_link_and_no_pipe_is_followed(work, tmp_path):
    (tmp_path / "other.txt").write_text("2020-01-01 00:00:00 UTC")
    (work / "timestamp.txt").symlink_to(tmp_path / "other.txt")
    assert submitted_at(work)[0] == BOOK
    (work / "timestamp.txt").unlink()
    os.mkfifo(work / "timestamp.txt")
    assert submitted_at(work)[0] == BOOK
    twin = work.parent / "set2"
    twin.symlink_to(work)
    with pytest.raises(Refused, match="symbolic link"):
        submitted_at(twin)


def test_a_claim_may_be_set_aside_and_an_empty_folder_is_refused(work):
    (work / "timestamp.txt").write_text("2020-01-01 00:00:00 UTC")
    assert submitted_at(work, claim=False)[0] == BOOK
    (work / "timestamp.txt").unlink()
    assert submitted_at(work) == (BOOK, "The time of the newest file, for there is no timestamp.txt.")
    (work / "set1.ipynb").unlink()
    with pytest.raises(Refused, match="collect it again"):
        submitted_at(work)


# In a whole assignment.


def test_a_penalty_is_entered_and_shown(root):
    class Rules:
        zone = None

        @staticmethod
        def due(student, assignment):
            return None

        @staticmethod
        def penalty(student, assignment, submitted_at, score, max_score):
            overdue = submitted_at > dt.datetime(2026, 1, 5)
            return (score * 0.25, "A day late.") if overdue else (0.0, "On time.")

    submit(root, "ada", stamp="2026-01-04 10:00:00 UTC")
    submit(root, "bob", stamp="2026-01-05 10:00:00 UTC")
    got = by_student(grade(root, rules=Rules))
    assert (got["ada"].total, got["ada"].penalty, got["bob"].total, got["bob"].penalty) == (4.0, 0.0, 3.0, 1.0)
    assert "A day late." in got["bob"].notes
    with gradebook(root) as book:
        assert book.find_submission_notebook("toy", "toy", "bob").late_submission_penalty == 1.0
        assert book.find_submission_notebook("toy", "toy", "ada").late_submission_penalty is None
    bobs, adas = ((root / f"feedback/{who}/toy/toy.html").read_text() for who in ("bob", "ada"))
    assert "A day late." in bobs and "Late:" in bobs and "Late:" not in adas and "On time." not in adas
    assert by_student(grade(root))["bob"].total == 4.0  # without rules, without penalty


OVERDUE = {"zone": "UTC", "assignments": {"toy": {"due": dt.date(2020, 1, 1), "percent": 100}}}


def test_what_waits_is_no_part_of_the_sum_of_which_a_penalty_is_taken(root):
    submit(root, "ada", GOOD | {"proof_text": "First."}, stamp="2020-01-05 10:00:00 UTC")
    grade(root)
    mark(root, "ada", "proof_text", 1.5)
    row = grade(root, rules=late.parse(OVERDUE))[0]
    assert (row.total, row.penalty) == (0.0, 5.5)
    submit(root, "ada", GOOD | {"proof_text": "Second."}, stamp="2020-01-05 10:00:00 UTC")
    row = grade(root, rules=late.parse(OVERDUE))[0]
    assert (row.total, row.penalty, row.to_mark) == (0.0, 4.0, 2.0)


def test_who_is_late_by_the_time_of_a_file_is_told_so(root):
    submit(root, "ada", stamp="2020-01-05 10:00:00 UTC")
    submit(root, "bob")
    submit(root, "eve", {}, stamp="soon")
    submit(root, "mia", stamp="soon")
    got = by_student(grade(root, rules=late.parse(OVERDUE)))
    assert {who: row.by_file for who, row in got.items()} == {"ada": False, "bob": True, "eve": False, "mia": True}
    assert "The time of the newest file, for there is no timestamp.txt." in got["bob"].notes
    assert sum("which is no time" in note for note in got["mia"].notes) == 1
    assert not any("newest file" in note for note in got["ada"].notes)


def test_an_early_claim_beside_a_later_file_is_for_the_instructors_eye(root):
    due = dt.datetime.now(dt.UTC).replace(tzinfo=None, microsecond=0) - dt.timedelta(days=9)
    rules = late.parse({"zone": "UTC", "assignments": {"toy": {"due": due, "percent": 10}}})
    for student, days in (("early", -1), ("late", 1), ("old", -9999)):
        submit(root, student, stamp=f"{due + dt.timedelta(days=days)} UTC")
    submit(root, "none")
    got = by_student(grade(root, rules=rules))
    assert {who: bool(row.penalty) for who, row in got.items()} == {"early": 0, "late": 1, "old": 1, "none": 1}
    noted = {who for who, row in got.items() if any(late.doubtful(note) for note in row.notes)}
    assert noted == {"early", "old"}
