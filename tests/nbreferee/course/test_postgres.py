"""The gradebook in PostgreSQL: the same rows as in SQLite, while somebody reads."""

import threading

import pytest
import sqlalchemy as sa

import local_postgres
from grading_class import differences, marks, small_set, write
from nbreferee.course.gradebook import Entry, GradebookError, Writer
from nbreferee.course.run import CourseFolder, grade_assignment

pytestmark = pytest.mark.slow
STUDENTS = 12
ROWS = """
    SELECT submitted_assignment.student_id, base_cell.name, {columns}
    FROM {table}
    JOIN base_cell ON base_cell.id = {table}.cell_id
    JOIN submitted_notebook ON submitted_notebook.id = {table}.notebook_id
    JOIN submitted_assignment ON submitted_assignment.id = submitted_notebook.assignment_id
    ORDER BY submitted_assignment.student_id, base_cell.name"""
COLUMNS = {
    "grade": "auto_score, manual_score, extra_credit, needs_manual_grade",
    "comment": "auto_comment, manual_comment",
}


@pytest.fixture(scope="module")
def create():
    """Makes a database on a PostgreSQL that listens on a socket in a temporary folder only; returns its address."""
    pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    with local_postgres.server() as made:
        yield made


def rows(url, table):
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        query = ROWS.format(table=table, columns=COLUMNS[table])
        found = [tuple(row) for row in connection.execute(sa.text(query))]
    engine.dispose()
    return [(*row[:-1], bool(row[-1])) if table == "grade" else row for row in found]


class Reader(threading.Thread):
    """Reads all grades again and again while others write; what it saw, and what went wrong."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.engine, self.enough, self.seen, self.failures = sa.create_engine(url), threading.Event(), [], []

    def run(self):
        query = sa.text("SELECT notebook_id, count(*), count(auto_score) FROM grade GROUP BY notebook_id")
        while not self.enough.wait(0.02):
            try:
                with self.engine.connect() as connection:
                    self.seen.append({tuple(row[1:]) for row in connection.execute(query)})
            except sa.exc.ProgrammingError:
                continue  # the tables are not there yet
            except Exception as error:
                self.failures.append(error)

    def end(self):
        self.enough.set()
        self.join()
        self.engine.dispose()


@pytest.mark.needs("postgres", "walls")
def test_postgresql_and_sqlite_get_the_same_rows_while_somebody_reads(create, tmp_path):
    url, assignment = create("class"), small_set(0)
    expected = write(tmp_path / "postgres", [assignment], range(STUDENTS))[assignment.name]
    write(tmp_path / "sqlite", [assignment], range(STUDENTS))
    reader = Reader(url)
    reader.start()
    graded = grade_assignment(CourseFolder.load(tmp_path / "postgres", db_url=url), assignment.name)
    reader.end()
    assert not reader.failures
    tests = len(assignment.points)
    assert set().union(*reader.seen) <= {(tests, tests)}, "a reader saw half of a submission"
    assert len(graded) == STUDENTS and all(row.state == "graded" for row in graded), graded
    assert differences(expected, marks(url, assignment.name)) == {}

    grade_assignment(CourseFolder.load(tmp_path / "sqlite"), assignment.name)
    other = f"sqlite:///{tmp_path / 'sqlite' / 'gradebook.db'}"
    for table, least in (("grade", STUDENTS * tests), ("comment", STUDENTS * len(assignment.exercises))):
        mine = rows(url, table)
        assert len(mine) == least
        assert mine == rows(other, table), table

    from nbgrader.api import Gradebook

    with Gradebook(url) as gradebook:
        for student, submission in expected.items():
            assert gradebook.find_submission(assignment.name, student).score == submission.total


@pytest.mark.needs("postgres")
def test_a_mark_given_by_hand_stands_in_postgresql_too(create, tmp_path):
    url, assignment = create("by_hand"), small_set(1)
    write(tmp_path, [assignment], range(0))
    CourseFolder.load(tmp_path, db_url=url).prepare(assignment.name)
    test = next(iter(assignment.points))
    entry = Entry("ada", assignment.name, assignment.name, dict.fromkeys(assignment.points, 1.0))
    with Writer(url) as writer:
        writer.write(entry)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        change = "UPDATE grade SET manual_score = 0.5 FROM base_cell WHERE base_cell.id = cell_id AND name = :name"
        assert connection.execute(sa.text(change), {"name": test}).rowcount == 1
    engine.dispose()
    with Writer(url) as writer:
        writer.write(Entry("ada", assignment.name, assignment.name, dict.fromkeys(assignment.points, 0.0)))
        (written,) = writer.flush()
    assert written.scores[test] == 0.5
    assert {score for name, score in written.scores.items() if name != test} == {0.0}
    assert {row[1]: row[3] for row in rows(url, "grade")}[test] == 0.5


def test_a_server_that_is_not_there_is_named():
    pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    with pytest.raises(GradebookError, match="check the database's address and that it runs"):
        Writer("postgresql+psycopg2://grader@127.0.0.1:9/nothing?connect_timeout=2")
