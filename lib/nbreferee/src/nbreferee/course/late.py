"""Deadlines and what a late submission costs, from a plain file ``deadlines.toml`` beside ``source/``.

A complete example::

    zone = "Europe/Zurich"           # of every time that names no offset

    [default]                        # the rule of every assignment that has none of its own
    percent = 10                     # per started day; of what was earned
    per = "day"                      # or "hour"
    of = "earned"                    # or "possible"
    cap = 50                         # percent, at most
    grace = "15 minutes"             # up to here nothing is taken off; after it, lateness counts from the due time
    latest = "+7 days"               # after this nothing counts; a date, a time, or so long after the due time

    [assignments.set1]
    due = 2026-10-12                 # the end of that day
    excused = ["bob"]                # never late

    [assignments.set2]
    due = 2026-10-19T18:00:00
    latest = 2026-10-23T12:00:00     # the solutions come out
    steps = [                        # in place of percent, per and cap: the last step that has begun counts
        { after = "0 minutes", percent = 10 },
        { after = "1 day", percent = 25 },
        { after = "3 days", percent = 60 },
    ]

    [assignments.set2.extensions]    # a new due time, or so long after the old one
    ada = "+2 days"
    "eve.smith" = 2026-10-25T12:00:00+02:00

A day is a day of the calendar: from 18:00 to 18:00, even if the clocks change in between. Hours and minutes are real
time. Whoever submits at the due time to the microsecond is on time. An extension moves the due time, and a relative
`latest` with it; a fixed `latest` holds for all, but never comes before a student's own due time.

The penalty is computed in decimal numbers and rounded to a hundredth of a point, a half in the student's favour. It is
never below 0 and never more than what was earned, and a penalty of 100 percent takes exactly what was earned.
"""

import datetime as dt
import difflib
import math
import re
import stat
import tomllib
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_DOWN, Decimal
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from ..errors import NbrefereeError
from ..intake.gate import folder_at
from ..intake.notebook import ReadLimits, Refused, shown

__all__ = ["Deadline", "DeadlinesError", "Rule", "Rules", "doubtful", "load", "submitted_at", "timestamp"]

SPAN = re.compile(r"(\d{1,5}) (minute|hour|day|week)s?")
RULE_KEYS = ("percent", "per", "of", "cap", "grace", "latest", "steps")
TOP_KEYS = ("zone", "default", "assignments")
ASSIGNMENT_KEYS = ("due", "excused", "extensions", *RULE_KEYS)
CLAIM = re.compile(
    r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?) ?"
    r"(Z|[+-]\d{2}:?\d{2}|[A-Za-z][A-Za-z_]*(?:/[A-Za-z][A-Za-z_+-]*)*)?"
)
CLAIM_BYTES = 200
CLAIMED = "timestamp.txt, as the student's side wrote it"
LATER = "; the newest file was changed or copied later"
EARLIEST = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
NOW = partial(dt.datetime.now, dt.UTC)


class DeadlinesError(NbrefereeError, ValueError):
    """The file of deadlines cannot be used; one line for each fault, with the file, the key and the cure.

    Parameters
    ----------
    lines : the faults.
    """

    def __init__(self, lines):
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)


@dataclass(frozen=True, slots=True)
class Span:
    """A length of time: calendar days, and real minutes."""

    days: int = 0
    minutes: int = 0

    def after(self, moment: dt.datetime, zone: ZoneInfo) -> dt.datetime:
        """The moment that is so much later, days by the wall clock."""
        if self.days:
            # in a gap of the clock fold=0 names the time after it; in a doubled hour the first one
            moment = (moment.astimezone(zone) + dt.timedelta(days=self.days)).replace(fold=0)
        return moment.astimezone(dt.UTC) + dt.timedelta(minutes=self.minutes)

    def __str__(self):
        days = f"{self.days} day{'s' * (self.days != 1)}" if self.days else ""
        return days or f"{self.minutes} minute{'s' * (self.minutes != 1)}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What lateness costs; see the module for the meaning of each.

    `steps` are pairs (Span, percent), and if there are any, `percent`, `per` and `cap` do not count.
    """

    percent: Decimal = Decimal(0)
    per: str = "day"
    of: str = "earned"
    cap: Decimal = Decimal(100)
    grace: Span = Span()
    latest: Span | dt.datetime | None = None
    steps: tuple = ()


@dataclass(frozen=True, slots=True)
class Deadline:
    """One assignment: when it is due (UTC), the rule, extensions (UTC, by student), and who is never late."""

    due: dt.datetime
    rule: Rule
    extensions: dict
    excused: frozenset


@dataclass(frozen=True, slots=True)
class Rules:
    """All deadlines of a course.

    Parameters
    ----------
    zone : of the times that sentences speak of.
    assignments : {name: Deadline}.
    path : the file they were read from.
    """

    zone: ZoneInfo
    assignments: dict
    path: str = "deadlines.toml"

    def due(self, student: str, assignment: str) -> dt.datetime | None:
        """When a student's work is due, in UTC; None if the file does not say."""
        deadline = self.assignments.get(assignment)
        return None if deadline is None else deadline.extensions.get(student, deadline.due)

    def penalty(
        self,
        student: str,
        assignment: str,
        submitted_at: dt.datetime | None,
        score: float,
        max_score: float,
    ) -> tuple[float, str]:
        """Say what a submission loses for being late, and why.

        Parameters
        ----------
        student, assignment : the ids.
        submitted_at : when it came; a time without a zone is UTC, as in nbgrader's gradebook; None: not known.
        score, max_score : points earned and possible.

        Returns
        -------
        points to take off, between 0 and `score`, and one sentence.

        Raises
        ------
        ValueError : if the points are not finite numbers; grade the submission again.

        Examples
        --------
        >>> rules = parse({"zone": "UTC", "assignments": {"set1": {"due": dt.date(2026, 10, 12), "percent": 10}}})
        >>> rules.penalty("ada", "set1", dt.datetime(2026, 10, 13, 8, 0), 7, 10)
        (0.7, 'Submitted 8 h after 2026-10-13 00:00 UTC: 10 % of what was earned for 1 started day, 0.7 points.')
        """
        for value in (score, max_score):
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{value!r} of {shown(student)} in {shown(assignment)} is no number; grade it again")
        if max_score < 0:
            raise ValueError(f"{shown(assignment)} is worth {max_score!r} points; correct the points of its cells")
        deadline = self.assignments.get(assignment)
        if deadline is None:
            return 0.0, f"{shown(assignment)} has no entry in {shown(Path(self.path).name)}: no penalty."
        if student in deadline.excused:
            return 0.0, "Excused: no penalty."
        if submitted_at is None:
            return 0.0, "It is not known when this was submitted: no penalty; set it by hand if it was late."
        moment = submitted_at.replace(tzinfo=dt.UTC) if submitted_at.tzinfo is None else submitted_at
        moment = moment.astimezone(dt.UTC)
        due, rule = self.due(student, assignment), deadline.rule
        extended = " (extended)" if student in deadline.extensions else ""
        when = self._shown(due) + extended
        if moment <= due:
            return 0.0, f"On time, due {when}."
        if moment <= rule.grace.after(due, self.zone):
            return 0.0, f"Submitted {_ago(moment - due)} after {when}, within the grace of {rule.grace}: no penalty."
        last = rule.latest.after(due, self.zone) if isinstance(rule.latest, Span) else rule.latest
        last = last and max(last, due)
        earned = max(Decimal(0), Decimal(str(score)))
        late = f"Submitted {_ago(moment - due)} after {when}"
        if last and moment > last:
            return float(earned), f"{late}, and nothing counts after {self._shown(last)}: all {earned:f} points."
        percent, how = self._percent(rule, due, moment)
        base = earned if rule.of == "earned" else Decimal(str(max_score))
        taken = (base * percent / 100).quantize(Decimal("0.01"), ROUND_HALF_DOWN)
        taken = earned if percent >= 100 or taken > earned else taken
        basis = "of what was earned" if rule.of == "earned" else "of what was possible"
        taken = float(taken)
        return taken, f"{late}: {percent:f} % {basis}{how}, {taken:g} points."

    def _percent(self, rule, due, moment):
        if rule.steps:
            begun = [percent for after, percent in rule.steps if moment > after.after(due, self.zone)]
            return (begun[-1] if begun else Decimal(0)), ""
        if rule.per == "hour":
            started = -((due - moment) // dt.timedelta(hours=1))
        else:
            started = max(1, (moment - due) // dt.timedelta(days=1) - 1)  # a change of the clocks is no day
            while moment > Span(days=started).after(due, self.zone):
                started += 1
        percent = rule.percent * started
        capped = f", at most {rule.cap:f} %" if percent > rule.cap else ""
        return _tidy(min(percent, rule.cap)), f" for {started} started {rule.per}{'s' * (started > 1)}{capped}"

    def _shown(self, moment):
        return moment.astimezone(self.zone).strftime("%Y-%m-%d %H:%M %Z")

    def check(self, students, assignments, graded=None) -> list[str]:
        """Compare the names in the file with those of the course.

        Parameters
        ----------
        students, assignments : the ids that there are.
        graded : the assignments that want a deadline; all of them if it is None.

        Returns
        -------
        One sentence for each name that fits nothing, and for each assignment that wants a deadline and has none.

        Examples
        --------
        >>> rules = parse({"zone": "UTC", "assignments": {"set1": {"due": dt.date(2026, 10, 12), "excused": ["bop"]}}})
        >>> rules.check(["ada", "bob"], ["set1"])
        ["deadlines.toml: assignments.set1.excused: there is no student bop; did you mean 'bob'?"]
        """
        students, assignments, out = set(students), set(assignments), []
        for name, deadline in self.assignments.items():
            where = f"{shown(Path(self.path).name)}: assignments.{shown(name)}"
            if name not in assignments:
                out.append(f"{where}: there is no such assignment{_meant(name, assignments)}")
            for key, ids in (("extensions", deadline.extensions), ("excused", deadline.excused)):
                for student in sorted(set(ids) - students):
                    out.append(f"{where}.{key}: there is no student {shown(student)}{_meant(student, students)}")
        file = shown(Path(self.path).name)
        for name in map(shown, sorted(set(assignments if graded is None else graded) - set(self.assignments))):
            out.append(f"{file}: {name} has no deadline; add [assignments.{name}].")
        return out


def _ago(gap):
    minutes = max(1, -(-gap // dt.timedelta(minutes=1)))
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if count]
    return " ".join(parts)


def _tidy(number):
    """Without zeros behind the point, and never as 1E+1."""
    return number.quantize(Decimal(1)) if number == number.to_integral_value() else number.normalize()


def _meant(name, there):
    close = difflib.get_close_matches(name, sorted(there), n=1)
    return f"; did you mean {close[0]!r}?" if close else "; correct or remove it."


class _Reader:
    """Reads one file; notes every fault and goes on, so that all are reported at once."""

    def __init__(self, path):
        self.file, self.faults, self.zone = Path(path).name, [], ZoneInfo("UTC")

    def fault(self, key, what, cure):
        self.faults.append(f"{self.file}: {key}: {what}; {cure}.")

    def keys(self, table, key, known):
        """Whether it is a table; says which keys it should not have."""
        if not isinstance(table, dict):
            self.fault(key or "the file", f"{_brief(table)} is no table", f"write it as [{key}] with keys below")
            return False
        for name in table:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                cure = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}."
                at = shown(f"{key}.{name}" if key else name)
                self.faults.append(f"{self.file}: {at}: unknown key; {cure}")
        return True

    def percent(self, value, key):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 100:
            return self.fault(key, f"{_brief(value)} is no percentage", "write a number from 0 to 100")
        return _tidy(Decimal(str(value)))

    def span(self, value, key, sign=""):
        match = SPAN.fullmatch(value.removeprefix("+").strip()) if isinstance(value, str) else None
        if not match or (sign and not value.startswith("+")):
            return self.fault(
                key, f"{_brief(value)} is no length of time", f'write "{sign}2 days", "{sign}36 hours" or the like'
            )
        count, unit = int(match[1]), match[2]
        if unit in ("day", "week"):
            return Span(days=count * (7 if unit == "week" else 1))
        return Span(minutes=count * (60 if unit == "hour" else 1))

    def moment(self, value, key):
        """A date or a time as a moment in UTC."""
        if isinstance(value, dt.date) and not 1990 <= value.year <= 2500:
            return self.fault(key, f"{value} is no year of a course", "correct the date")
        if isinstance(value, dt.datetime):
            if value.tzinfo is None:
                first, second = (value.replace(tzinfo=self.zone, fold=fold) for fold in (0, 1))
                if first.utcoffset() != second.utcoffset():
                    gap = first.astimezone(dt.UTC).astimezone(self.zone).replace(tzinfo=None) != value
                    what = "does not exist" if gap else "comes twice"
                    return self.fault(
                        key,
                        f"{value} {what} in {self.zone.key}, where the clocks change",
                        f"take another time or add the offset, as in {first.isoformat()}",
                    )
                value = first
            return value.astimezone(dt.UTC)
        if isinstance(value, dt.date):
            # the first moment of the next day: where midnight is skipped, fold=0 names the moment of the change
            day = value + dt.timedelta(days=1)
            return dt.datetime(day.year, day.month, day.day, tzinfo=self.zone).astimezone(dt.UTC)
        cure = "write 2026-10-12 or 2026-10-12T18:00:00, without quotes"
        return self.fault(key, f"{_brief(value)} is no date and no time", cure)

    def rule(self, table, key, base):
        """The rule of a table, where what it does not say is as in `base`."""
        out = {}
        if "steps" in table and {"percent", "per", "cap"} & set(table):
            self.fault(f"{key}.steps", "stands beside percent, per or cap", "keep steps, or the other three")
        elif {"percent", "per", "cap"} & set(table):
            out["steps"] = ()
        for name in ("percent", "cap"):
            if name in table:
                out[name] = self.percent(table[name], f"{key}.{name}")
        for name, known in (("per", ("day", "hour")), ("of", ("earned", "possible"))):
            if name in table:
                if table[name] not in known:
                    self.fault(f"{key}.{name}", f"{_brief(table[name])} is unknown", f"write one of {', '.join(known)}")
                out[name] = table[name]
        if "grace" in table:
            out["grace"] = self.span(table["grace"], f"{key}.grace")
        if "latest" in table:
            value = table["latest"]
            read = self.moment if not isinstance(value, str) else lambda v, k: self.span(v, k, "+")
            out["latest"] = read(value, f"{key}.latest")
        if "steps" in table:
            out["steps"] = self.steps(table["steps"], f"{key}.steps")
        return replace(base, **out)

    def steps(self, value, key):
        if not isinstance(value, list) or not value:
            return self.fault(key, "is no list of steps", 'write [{ after = "1 day", percent = 25 }]') or ()
        out, epoch = [], dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
        for number, step in enumerate(value, 1):
            at = f"{key}[{number}]"
            if not self.keys(step, at, ("after", "percent")):
                continue
            if set(step) < {"after", "percent"}:
                self.fault(at, "says not both after and percent", "add what is missing")
                continue
            pair = self.span(step["after"], f"{at}.after"), self.percent(step["percent"], f"{at}.percent")
            if None in pair:
                continue
            begin = pair[0].after(epoch, ZoneInfo("UTC"))
            if out and (begin <= out[-1][0].after(epoch, ZoneInfo("UTC")) or pair[1] < out[-1][1]):
                self.fault(at, "does not begin later and cost more than the step before", "put the steps in order")
                continue
            out.append(pair)
        return tuple(out)

    def deadline(self, table, key, base):
        if not self.keys(table, key, ASSIGNMENT_KEYS):
            return None
        rule = self.rule(table, key, base)
        due = None
        if "due" not in table:
            self.fault(f"{key}.due", "is missing", "write due = 2026-10-12")
        else:
            due = self.moment(table["due"], f"{key}.due")
        excused = table.get("excused", [])
        if not isinstance(excused, list) or not all(isinstance(name, str) for name in excused):
            self.fault(f"{key}.excused", f"{_brief(excused)} is no list of students", 'write ["ada", "bob"]')
            excused = []
        extensions = {}
        if due is None:
            return None
        given = table.get("extensions", {})
        if not isinstance(given, dict):
            self.fault(f"{key}.extensions", f"{_brief(given)} is no table", 'write { ada = "+2 days" }')
            given = {}
        for student, value in given.items():
            at = f"{key}.extensions.{student}"
            if isinstance(value, dict):
                self.fault(at, "is a table, since a dot outside quotes divides names", 'write "ada.lovelace" in quotes')
                continue
            if isinstance(value, str):
                span = self.span(value, at, "+")
                moment = span and span.after(due, self.zone)
            else:
                moment = self.moment(value, at)
            if moment is None:
                continue
            if moment < due:
                self.fault(at, "is earlier than the due time", "correct the date or remove it")
                continue
            extensions[student] = moment
        if isinstance(rule.latest, dt.datetime) and rule.latest < due:
            self.fault(f"{key}.latest", "is earlier than the due time", "correct one of the two")
        return Deadline(due, rule, extensions, frozenset(excused))


def _brief(value):
    text = str(value) if isinstance(value, dt.date) else repr(value)
    return shown(text) if len(text) > 40 or not text.isprintable() else text


def parse(tree: dict, path: Path | str = "deadlines.toml") -> Rules:
    """Make rules of the content of the file.

    Parameters
    ----------
    tree : as `tomllib` returns it.
    path : how errors call the file.

    Returns
    -------
    Rules.

    Raises
    ------
    DeadlinesError : with one line for each fault.
    """
    reader = _Reader(path)
    reader.keys(tree, "", TOP_KEYS)
    zone = tree.get("zone")
    try:
        reader.zone = ZoneInfo(zone)
    except (TypeError, ValueError, OSError, AttributeError, KeyError):
        what = "is missing" if zone is None else f"{_brief(zone)} is no time zone"
        reader.fault("zone", what, 'write zone = "Europe/Zurich" or another name of the IANA list at the top')
        raise DeadlinesError(reader.faults) from None
    default, tables = tree.get("default", {}), tree.get("assignments", {})
    base = Rule()
    if reader.keys(default, "default", RULE_KEYS):
        base = reader.rule(default, "default", base)
    assignments = {}
    if not isinstance(tables, dict) or not tables:
        reader.fault("assignments", "there are none", "write [assignments.set1] and below it due = 2026-10-12")
        tables = {}
    for name, table in tables.items():
        # a rule of an assignment's own leaves nothing of the default's steps
        assignments[name] = reader.deadline(table, f"assignments.{name}", base)
    if reader.faults:
        raise DeadlinesError(reader.faults)
    return Rules(reader.zone, assignments, str(path))


def load(path: Path | str) -> Rules:
    """Read the file of deadlines.

    Parameters
    ----------
    path : of ``deadlines.toml``.

    Returns
    -------
    Rules.

    Raises
    ------
    DeadlinesError : with one line for each fault: the file, the key, the cure.
    """
    path = Path(path)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DeadlinesError([f"{path.name}: there is no such file; write it beside source/."]) from None
    except UnicodeDecodeError:
        raise DeadlinesError([f"{path.name}: is not UTF-8; save it as UTF-8."]) from None
    except OSError as error:
        raise DeadlinesError([f"{path.name}: cannot be read ({error.strerror}); check its permissions."]) from None
    except tomllib.TOMLDecodeError as error:
        why = " ".join(str(error).split())
        raise DeadlinesError([f"{path.name}: is not TOML: {why}; texts want quotes, dates want none."]) from None
    return parse(tree, path)


def submitted_at(
    folder: Path | str, *, zone: ZoneInfo | None = None, claim: bool = True, due: dt.datetime | None = None
) -> tuple[dt.datetime, str]:
    """Say when a submission came, and how that is known.

    nbgrader's ``timestamp.txt`` is written on the student's side of the exchange: it is a claim, and so is the time of
    a file, which a student can set too. Only the time at which something was received by a machine that the student
    does not rule would be proof. The claim is taken, as nbgrader takes it, but for one of the future or of long before
    the work was due, such as 1970; the source says if the notebook was changed after it, see `doubtful`.

    The text is read as nbgrader reads it, with two differences: ``+0200`` means two hours (nbgrader 0.9.6 reads 200
    seconds), and an abbreviation such as CEST is understood if `zone` uses it (nbgrader takes it for UTC).

    Parameters
    ----------
    folder : ``submitted/<student>/<assignment>``; neither of the last two may be a symbolic link.
    zone : the course's time zone, for abbreviations.
    claim : whether ``timestamp.txt`` counts; False: the time of the newest notebook.
    due : when the work is due: a claim of more than a year before is not taken. If it is not known: one before 2000.

    Returns
    -------
    the time in UTC, and a sentence about the source.

    Raises
    ------
    Refused : if the folder cannot be read or holds no file; collect it again.
    """
    folder = Path(folder).absolute()
    above, mine = folder.parent.parent, folder.parent.name
    with folder_at(above) as root, root.inner(mine) as student, student.inner(folder.name) as work:
        times = {}
        for name, status in work.entries():
            if status is not None and stat.S_ISREG(status.st_mode) and name != "timestamp.txt":
                times.setdefault(name.lower().endswith(".ipynb"), []).append(status.st_mtime)
        newest = max(times.get(True) or times.get(False) or [math.nan])
        try:
            data, _ = work.read("timestamp.txt", ReadLimits(bytes=CLAIM_BYTES))
            text = data.decode("utf-8", "replace").strip()
        except Refused as refusal:
            text = None
            why = "there is no timestamp.txt" if refusal.state == "missing" else "timestamp.txt cannot be read"
    file = None
    if not math.isnan(newest) and abs(newest) < 2**40:
        file = dt.datetime.fromtimestamp(newest, dt.UTC)
    if text is not None:
        moment, note = _claimed(text, zone)
        if moment is None:
            why = f"timestamp.txt holds {shown(text)}, which is no time"
        elif moment > NOW() + dt.timedelta(minutes=10):
            why = f"timestamp.txt claims the future ({_minute(moment)})"
        elif moment < (EARLIEST if due is None else due - dt.timedelta(days=366)):
            why = f"timestamp.txt claims {_minute(moment)}, long before the work was due"
        elif claim:
            if file and file > moment + dt.timedelta(minutes=5):
                note += f"{LATER}, {_minute(file)}"
            return moment, f"{CLAIMED}{note}."
        else:
            why = "timestamp.txt is not asked for"
    if file is None:
        raise Refused("missing", f"{shown(folder.name)} holds no file with a time; collect it again.")
    return file, f"The time of the newest file, for {why}."


def doubtful(source: str) -> bool:
    """Whether a source, as `submitted_at` says it, is for the instructor's eye, late or not."""
    return LATER in source or "timestamp.txt claims" in source


def _minute(moment):
    return f"{moment.isoformat(' ', 'minutes')[:16]} UTC"


def timestamp(folder: Path | str) -> dt.datetime | None:
    """What timestamp.txt says, in UTC, as nbgrader's gradebook keeps it: without a zone; None if it says no time.

    Parameters
    ----------
    folder : ``submitted/<student>/<assignment>``.
    """
    try:
        moment, source = submitted_at(folder)
    except Refused:
        return None
    return moment.replace(tzinfo=None) if source.startswith(CLAIMED) else None


def _claimed(text, zone):
    """(moment in UTC or None, note) of what timestamp.txt says."""
    match = CLAIM.fullmatch(text)
    if not match:
        return None, ""
    try:
        moment = dt.datetime.fromisoformat(match[1])
        name = match[2] or "UTC"
        if name == "Z" or not name[0].isalpha():
            return dt.datetime.fromisoformat(match[1] + name).astimezone(dt.UTC), ""
        if name in ("UTC", "GMT"):
            return moment.replace(tzinfo=dt.UTC), ""
        for fold in (0, 1) if zone else ():
            local = moment.replace(tzinfo=zone, fold=fold)
            if local.tzname() == name:
                return local.astimezone(dt.UTC), ""
        try:
            return moment.replace(tzinfo=ZoneInfo(name)).astimezone(dt.UTC), ""
        except (ValueError, OSError, KeyError):
            return moment.replace(tzinfo=dt.UTC), f"; its zone {name} is unknown and was read as UTC"
    except (ValueError, OverflowError):
        return None, ""
