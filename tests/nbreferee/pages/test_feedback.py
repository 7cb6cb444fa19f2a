"""What comes out of a verdict: the autograded notebook that nbgrader reads, and the page that a student receives."""

import base64
import copy
import html
import logging
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.preprocessors import ClearSolutions, ComputeChecksums
from nbgrader.utils import determine_grade, is_grade, is_solution

import nbreferee.pages.autograded
import nbreferee.pages.feedback
from nbreferee.intake.answers import Answers, Own, answers
from nbreferee.judge.results import TEST_STATES, Call, CellResult, Result, ResultError, TestResult
from nbreferee.pages.autograded import autograded, tamed
from nbreferee.pages.feedback import SIZE, feedback, refused
from nbreferee.pages.text import visible, written
from nbreferee.pages.veil import answered, veiled_call

SET2 = nbformat.read(Path(__file__).parents[3] / "exercises" / "source" / "set2" / "set2.ipynb", 4)
SCRIPT = "<script>alert(1)</script>"
HOSTILE = {
    "script": SCRIPT,
    "quoted": f's = "{SCRIPT}"  # {SCRIPT}',
    "style": "</style></pre></details></main><style>body{display:none}</style>",
    "attribute": '" onmouseover="alert(1)" \' onfocus=alert(1) autofocus x="',
    "link": "[x](javascript:alert(1)) <javascript:alert(1)> [y](java&#115;cript:alert(1)) [z]: javascript:alert(1)",
    "picture": "![x](http://192.0.2.1/x.png) <img src=http://192.0.2.1/y.png onerror=alert(1)> ![x](data:text/html,x)",
    "template": "{{ 7*7 }}{% raw %}{# x #}",
    "nul": "a\x00b\x1b[2Jc\x07",
    "bidi": "x = 1 \u202e# \u2066 evil \u200b",
    "surrogate": "a\ud800b\udfff",
    "long": "<&\u202e" * 3_400_000,
    "lines": "x\n" * 3_000_000,
}


def flagged(new, source, name, **flags):
    flags = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3} | flags
    return new(source, metadata={"nbgrader": flags | {"grade_id": name}})


HIDDEN_LINES = ["secret_matrix = [[3.25, 4.75]]", "assert double(secret_matrix) == 'the hidden answer'"]


def small():
    """Two exercises: one with a shown, a hidden and a sandboxed test, one that a person marks."""
    solution = "def double(x):\n    ### BEGIN SOLUTION\n    return x + x_the_solution\n    ### END SOLUTION"
    hidden = "# Hidden: lists.\n### BEGIN HIDDEN TESTS\n" + "\n".join(HIDDEN_LINES) + "\n### END HIDDEN TESTS"
    cells = [
        flagged(new_markdown_cell, "# A set\n\n## Twice (10 points)\n\nText.", "text", locked=True),
        flagged(new_code_cell, "import numpy", "tools", locked=True),
        flagged(new_code_cell, solution, "twice_answer", solution=True),
        flagged(new_code_cell, "assert double(1) == 2", "twice_test-shown", grade=True, locked=True, points=2),
        flagged(new_code_cell, hidden, "twice_test-hidden", grade=True, locked=True, points=3),
        flagged(new_code_cell, "double.__doc__", "twice_test-inside", grade=True, locked=True, points=1),
        flagged(new_markdown_cell, "## Why (4 points)", "why_text", locked=True),
        flagged(
            new_markdown_cell,
            "### BEGIN SOLUTION\nthe model proof\n### END SOLUTION",
            "why_answer",
            grade=True,
            solution=True,
            points=4,
        ),
    ]
    return new_notebook(cells=cells)


MINE = Answers({"twice_answer": "def double(x):\n    return 3 * x", "why_answer": "Because $a<b$."}, (), (), ())


def verdicts(*states, **more):
    names = (("twice_test-shown", 2.0), ("twice_test-hidden", 3.0), ("twice_test-inside", 1.0))
    return Result(
        tuple(
            TestResult(name, state, worth if state == "passed" else 0.0, worth, **more.get(name.split("-")[1], {}))
            for (name, worth), state in zip(names, states, strict=True)
        )
    )


class Page(HTMLParser):
    """Elements, ids, addresses, text and headings of a page; dies if elements do not nest."""

    VOID = {"meta", "br", "hr", "img", "link", "input"}  # noqa: RUF012

    def __init__(self, page):
        super().__init__()
        self.tags, self.ids, self.links, self.attributes = [], [], [], set()
        self.open, self.headings, self.texts = [], [], []
        self.feed(page)
        self.close()
        assert not self.open, self.open
        self.text = "".join(self.texts)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open += [tag] * (tag not in self.VOID)
        self.headings += [int(n) for n in re.findall("^h([1-6])$", tag)]
        for name, value in attributes:
            self.attributes.add(name)
            self.ids += [value] * (name == "id")
            self.links += [value] * (name in ("href", "src", "action", "data"))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        self.texts.append("" if self.open[-1:] == ["style"] else data)


KNOWN_TAGS = set(
    "html head meta title style body main h1 h2 h3 p strong em div span ul ol li table caption thead tbody tr th td a "
    "section header dl dt dd pre code details summary hr br blockquote".split()
)
KNOWN_ATTRIBUTES = set(
    "lang charset http-equiv content name class id href rel title scope role start style aria-labelledby".split()
)


def sound(page):
    """The page as a `Page`, after what must hold of every page, whatever the student did."""
    assert len(page.encode()) <= SIZE
    seen = Page(page)
    assert set(seen.tags) <= KNOWN_TAGS, set(seen.tags) - KNOWN_TAGS
    assert seen.attributes <= KNOWN_ATTRIBUTES, seen.attributes - KNOWN_ATTRIBUTES
    assert all(re.match(r"#|https?://|mailto:", link) for link in seen.links), seen.links
    inside = [link[1:] for link in seen.links if link.startswith("#")]
    assert set(inside) <= set(seen.ids) and len(set(seen.ids)) == len(seen.ids)
    assert seen.tags.count("style") == seen.tags.count("main") == seen.tags.count("h1") == 1
    assert seen.headings[0] == 1
    steps = [b - a for a, b in zip(seen.headings, seen.headings[1:], strict=False)]
    assert max(steps, default=0) <= 1, seen.headings
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u200b]", page)
    assert "@import" not in page and "url(" not in page
    assert "x_the_solution" not in page and "model proof" not in page
    return seen


# the autograded notebook --------------------------------------------------------------------------------------------


def every_verdict():
    """One test in each state with no, some and all points: whatever a result can hold."""
    for state in TEST_STATES:
        for points in (0.0, 0.1, 1.7, 3.0):
            yield state, points


@pytest.mark.parametrize(("state", "points"), list(every_verdict()))
def test_nbgrader_reads_the_points_of_the_verdict(state, points):
    result = verdicts("passed", "passed", "passed")
    hard = TestResult("twice_test-hidden", state, points, 3.0, "no\nValueError: nan", "known", "line 1", (), "7\n0\n")
    notebook = autograded(small(), MINE, replace(result, tests=(result.tests[0], hard, result.tests[2])))
    nbformat.validate(notebook)
    read = {cell.metadata.nbgrader.grade_id: determine_grade(cell) for cell in notebook.cells if is_grade(cell)}
    assert read == {
        "twice_test-shown": (2.0, 2.0),
        "twice_test-hidden": (points, 3.0),
        "twice_test-inside": (1.0, 1.0),
        "why_answer": (None, 4.0),
    }
    cell = next(c for c in notebook.cells if c.metadata.nbgrader.grade_id == "twice_test-hidden")
    assert any(o.output_type == "error" for o in cell.outputs) == (state != "passed")
    assert HIDDEN_LINES[1] in cell.source


def checked(template):
    """The template as nbgrader itself prepares it, before it takes the hidden tests out: what its gradebook knows."""
    notebook, resources = copy.deepcopy(template), {}
    for step in (ClearSolutions(), ComputeChecksums()):
        notebook, resources = step.preprocess(notebook, resources)
    return notebook


@pytest.mark.parametrize("template", [small(), SET2], ids=["small", "set2"])
def test_metadata_and_checksums_are_nbgraders(template):
    notebook = autograded(template, answers(template, template), all_passed(template))
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    nbformat.validate(notebook)
    known = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader for c in checked(template).cells}
    found = {c.metadata.nbgrader.grade_id: c.metadata.nbgrader for c in notebook.cells}
    assert found == known and len(found) == len(template.cells)
    for cell in notebook.cells:
        MetadataValidator().validate_cell(cell)
    counts = [c.execution_count for c in notebook.cells if c.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


def all_passed(template, **changes):
    tests = []
    for cell in template.cells:
        flags = cell.metadata.get("nbgrader", {})
        if flags.get("grade") and not flags.get("solution"):
            worth = float(flags["points"])
            tests.append(TestResult(flags["grade_id"], "passed", worth, worth))
    return replace(Result(tuple(tests)), **changes)


def test_unanswered_and_missing_answers_are_nbgraders_stub_and_earn_nothing():
    for mine in (
        Answers({"twice_answer": None, "why_answer": None}, (), (), ()),
        Answers({"twice_answer": "", "why_answer": " "}, (), ("twice_answer", "why_answer"), ()),
    ):
        notebook = autograded(small(), mine, verdicts("unanswered", "unanswered", "unanswered"))
        prepared = {c.metadata.nbgrader.grade_id: c for c in checked(small()).cells}
        got = {c.metadata.nbgrader.grade_id: c for c in notebook.cells}
        for name in ("twice_answer", "why_answer"):
            assert got[name].source == prepared[name].source
        assert "NotImplementedError" in got["twice_answer"].source
        assert determine_grade(got["why_answer"]) == (0, 4.0)
        assert "the model proof" not in nbformat.writes(notebook)


def test_own_cells_stand_where_they_ran_with_their_outputs():
    own = (Own("top()", None), Own("early()", "twice_answer", before=True), Own("late()", "twice_answer"))
    ran = (
        CellResult("", "own", "ran", output="1\n"),
        CellResult("twice_answer", "own", "failed", "ValueError: no", "line 1"),
        CellResult("twice_answer", "answer", "ran", output="2\n"),
        CellResult("twice_answer", "own", "skipped"),
    )
    notebook = autograded(small(), replace(MINE, own=own), replace(verdicts(*["passed"] * 3), cells=ran))
    nbformat.validate(notebook)
    sources = [cell.source for cell in notebook.cells]
    assert sources[0] == "top()" and notebook.cells[0].outputs[0].text == "1\n"
    at = sources.index("early()")
    assert sources[at + 1].startswith("def double(x):\n    return 3 * x") and sources[at + 2] == "late()"
    assert notebook.cells[at].outputs[0].ename == "ValueError" and notebook.cells[at].outputs[0].evalue == "no"
    assert notebook.cells[at + 1].outputs[0].text == "2\n"
    assert notebook.cells[at + 2].execution_count is None and not notebook.cells[at + 2].outputs
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


PHOTO = {"image/png": base64.b64encode(b"\x89PNG" + bytes(20)).decode()}


def test_pictures_of_the_student_replace_the_instructors():
    template = small()
    template.cells[-1].attachments = {"solution.png": {"image/png": "AAAA"}}
    result = verdicts(*["passed"] * 3)
    assert "attachments" not in autograded(template, MINE, result).cells[-1]
    assert "attachments" not in autograded(template, replace(MINE, unanswered=("why_answer",)), result).cells[-1]
    text = "![my proof](attachment:picture-2.png)"
    photos = replace(
        MINE, cells=MINE.cells | {"why_answer": text}, pictures={"picture-1.png": {}, "picture-2.png": PHOTO}
    )
    cell = autograded(template, photos, result).cells[-1]
    assert cell.source == text and cell.attachments == {"picture-2.png": PHOTO}


def test_texts_of_the_students_own_stand_where_they_stood():
    own = (Own("x = 1", "twice_answer"), Own("A <b>note</b>", "twice_answer", kind="markdown"))
    book = autograded(small(), replace(MINE, own=own), verdicts(*["passed"] * 3))
    at = next(n for n, cell in enumerate(book.cells) if cell.source == "x = 1")
    note = book.cells[at + 1]
    assert (note.cell_type, note.source) == ("markdown", "A < b>note< /b>")
    nbformat.validate(book)


def test_taming_ends_whatever_the_text():
    begin = time.monotonic()
    for text in (
        "!" * 200_000,
        "&#" + "1" * 5_000 + ";",
        "&#x" + "f" * 5_000,
        "![" * 100_000,
        "![a](attachment:" * 20_000,
    ):
        tamed(text)
    assert time.monotonic() - begin < 3
    assert "javascript:" not in html.unescape(tamed(f"&#{'9' * 5_000}; [a](&#106;avascript&colon;alert(1))"))


def test_formgrader_shows_photographs_and_stops_at_no_text():
    """Its exporter stops at a picture that it cannot find."""
    texts = [
        "![proof](attachment:picture-1.png)",
        "![proof](attachment:gone.png) !![proof](attachment:gone.png) ![p][r]\n\n[r]: attachment:gone.png",
        "![a [b]](attachment:gone.png) ![p](<attachment:gone.png>) ![](attachment:)",
        "!![p](http://example.org/p.png)",
    ]
    for text in texts:
        answers = replace(MINE, cells=MINE.cells | {"why_answer": text}, pictures={"picture-1.png": PHOTO})
        page, _ = HTMLExporter().from_notebook_node(autograded(small(), answers, verdicts(*["passed"] * 3)))
        assert (f"data:image/png;base64,{PHOTO['image/png']}" in page) == ("picture-1" in text)
        assert "<img" not in page or "picture-1" in text


def test_a_result_of_another_notebook_is_refused():
    short = Result(verdicts("passed", "passed", "passed").tests[:2])
    other = replace(short, tests=(*short.tests, TestResult("twice_test-inside", "passed", 2.0, 2.0)))
    for result in (short, other):
        with pytest.raises(ResultError, match=r"twice_test-inside .*; grade the submission again"):
            autograded(small(), MINE, result)
    with pytest.raises(ResultError, match=r"twice_test-inside has no verdict; grade"):
        feedback(small(), MINE, short, title="x")


@pytest.mark.slow
@pytest.mark.parametrize("text", [v for k, v in HOSTILE.items() if k not in ("long", "lines")])
def test_formgrader_opens_it_and_runs_nothing_of_the_student(text):
    nbgrader = pytest.importorskip("nbgrader")
    from nbconvert.exporters import HTMLExporter

    own = (Own(text, "twice_answer"),)
    mine = replace(MINE, cells={"twice_answer": text, "why_answer": text}, own=own)
    more = {"message": text, "mistake": text, "trace": text, "output": text}
    notebook = autograded(small(), mine, verdicts("failed", "crashed", "passed", shown=more, hidden=more))
    written = nbformat.writes(notebook).encode()  # a lone surrogate would end it here
    notebook = nbformat.reads(written.decode(), 4)
    nbformat.validate(notebook)
    folder = Path(nbgrader.__file__).parent / "server_extensions" / "formgrader" / "templates"
    exporter = HTMLExporter(template_name="formgrade", extra_template_basedirs=[str(folder)])
    exporter.log.setLevel(logging.CRITICAL)
    resources = dict.fromkeys(
        "assignment_id notebook_id submission_id student last_name first_name notebook_path base_url".split(), "x"
    )
    page, _ = exporter.from_notebook_node(notebook, resources=resources | {"index": 0, "total": 1})
    assert "twice_test-hidden" in page
    body = page[page.index("<body") :]
    assert SCRIPT not in body and "onerror=alert(1)>" not in body.replace("&gt;", "")
    assert not re.search(r'(?i)(href|src)="(javascript|vbscript|data:text)', body)
    assert "192.0.2.1" not in "".join(re.findall(r"<img[^>]*>", body))


def test_taming_keeps_formulas_and_own_pictures():
    text = "If $a<1$ and $\\alpha$: ![plot](attachment:plot.png) & [book](https://example.org)"
    assert tamed(text, {"plot.png"}) == text and "!" not in tamed(text)
    assert "javascript:" not in html.unescape(tamed("[a](&#106;avascript&colon;alert(1)) [b](javascript\\:x)"))
    assert tamed("![a[b](attachment:x)](http://x)", {"x"}) == "[a[b](attachment:x)](http://x)"


# the page -------------------------------------------------------------------------------------------------------------


def test_the_page_says_what_happened():
    calls = (Call("double(1)", "3"),)
    shown = {"message": "double(1): you triple; double", "mistake": "you triple; double", "calls": calls}
    result = verdicts("failed", "timeout", "passed", shown=shown | {"trace": "line 2: 3 * x", "output": "printed"})
    mine = replace(MINE, notes=("Cell a was split; merge it.",))
    page = feedback(small(), mine, result, title="Set 1")
    seen = sound(page)
    for words in (
        "1 of 6 points so far; 4 more wait for a person's mark",
        "This cost no points",
        "Cell a was split; merge it.",
        "Twice 1 of 6 points",
        "1 of 3 tests passed",
        "def double(x):\n    return 3 * x",
        "double(1): you triple; double",
        "A known mistake",
        "line 2: 3 * x",
        "printed",
        "✗ failed",
        "! out of time",
        "still running when the time was over",
        "Hidden: lists.",
        "0 of 3",
        "a person marks this, 4 points",
    ):
        assert words in seen.text, words
    assert seen.text.count("you triple") == 2  # in the table and on the card, once each
    assert "<code>double(1)</code>" in page and "<code>3</code>" in page
    assert '<span class="k">return</span>' in page
    assert 'lang="en"' in page and "prefers-color-scheme:dark" in page and 'scope="row"' in page


@pytest.mark.parametrize("state", TEST_STATES)
def test_each_state_has_words_and_a_symbol(state):
    seen = sound(feedback(small(), MINE, verdicts(state, "passed", "passed"), title="x"))
    assert nbreferee.pages.feedback.LABEL[state] in seen.text
    advice = nbreferee.pages.feedback.ADVICE.get(state, "")
    assert (advice in seen.text) and (advice or state in ("passed", "failed", "unanswered"))
    assert re.fullmatch(r"[^\w\s] .*", nbreferee.pages.feedback.LABEL[state])


def test_points_add_up_with_marks_by_hand_and_lateness():
    result = verdicts("failed", "passed", "passed")
    extra = {
        "why_answer": {"score": 2.75, "comment": f"nice {SCRIPT}"},
        "twice_test-shown": {"score": 0.5},
        "twice_answer": {"comment": "look again"},
        "late_penalty": 1.5,
        "late_sentence": "Two days late.",
    }
    seen = sound(feedback(small(), MINE, result, title="x", extra=extra))
    assert "5.75 of 10 points" in seen.text and "so far" not in seen.text
    assert "Late: 1.5 points were taken off 7.25." in seen.text and "Two days late." in seen.text
    assert f"nice {SCRIPT}" in seen.text and "look again" in seen.text
    assert "A person set these points; the test gave 0." in seen.text
    for n, result in enumerate((verdicts("passed", "passed", "failed"), all_passed(SET2))):
        template = (small(), SET2)[n]
        seen = sound(feedback(template, MINE if not n else answers(SET2, SET2), result, title="x"))
        rows = re.findall(r"([\d.]+) of ([\d.]+) points", seen.text)
        assert float(rows[0][0]) == result.points == sum(float(a) for a, _ in rows[1:])
        assert len(rows) > 2


def test_unanswered_is_said_kindly_and_costs_no_wait():
    mine = Answers({"twice_answer": None, "why_answer": "YOUR ANSWER HERE"}, (), ("why_answer",), ())
    seen = sound(feedback(small(), mine, verdicts(*["unanswered"] * 3), title="x"))
    assert "0 of 10 points" in seen.text and "so far" not in seen.text
    assert "missing from your notebook" in seen.text and "hand in what you have" in seen.text
    assert "YOUR ANSWER HERE" not in seen.text


def test_sandboxed_tests_say_so():
    inside = {"sandboxed": True}
    for state in ("passed", "failed"):
        seen = sound(feedback(small(), MINE, verdicts("passed", "passed", state, inside=inside), title="x"))
        assert seen.text.lower().count("this test ran in the same process as your code (lower assurance)") == 1
    assert "lower assurance" not in feedback(small(), MINE, verdicts("passed", "passed", "failed"), title="x")


def test_a_partly_passed_test_says_so():
    result = verdicts("passed", "passed", "passed")
    part = replace(result, tests=(replace(result.tests[0], points=0.5), *result.tests[1:]))
    seen = sound(feedback(small(), MINE, part, title="x"))
    assert "passed in part" in seen.text and "0.5 of 2" in seen.text


def everywhere(text, template=None):
    """A submission and a verdict with one text in every field that a student can reach."""
    calls = tuple(Call(text, text) for _ in range(9))
    more = {"message": text, "mistake": text, "trace": text, "output": text, "calls": calls}
    more = dict.fromkeys(("shown", "hidden", "inside"), more)
    ran = tuple(
        CellResult(name, kind, "failed", text, text, text) for name, kind in (("twice_answer", "answer"), (text, "own"))
    )
    result = replace(verdicts("failed", "crashed", "invalid", **more), cells=ran)
    own = (Own(text, "twice_answer", before=True), Own(text, "twice_answer"))
    mine = Answers({"twice_answer": text, "why_answer": text}, own, (), (text,) * 40)
    extra = {"why_answer": {"comment": text}, "twice_test-shown": {"comment": text}, "late_sentence": text}
    return mine, result, extra


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_of_the_students_becomes_markup(kind):
    text = HOSTILE[kind]
    mine, result, extra = everywhere(text)
    began = time.process_time()
    page = feedback(small(), mine, result, title=text, extra=extra)
    assert time.process_time() - began < 5
    seen = sound(page)
    assert "2 of 2" not in seen.text and "0 of 6 points so far" in seen.text
    if kind == "template":
        assert "{{ 7*7 }}" in seen.text
    if kind == "script":
        assert seen.text.count(SCRIPT) > 20
    if kind == "surrogate":
        assert r"a\ud800b\udfff" in seen.text
    if kind == "bidi":
        assert r"x = 1 \u202e# \u2066 evil \u200b" in seen.text
    if kind == "nul":
        assert r"a\x00bc\x07" in seen.text
    if kind in ("long", "lines"):
        assert "2 of 6 points" not in seen.text and "more stand in your notebook" in seen.text
    assert not any("192.0.2.1" in link for link in seen.links) or kind == "picture"
    sound(refused(text, text))


def test_a_page_keeps_its_size_whatever_expands_most():
    for text in (
        "|a" * 1_000 + "\n" + "|-" * 1_000 + "\n" + "|\n" * 3_000,
        '"a"' * 100_000,
        "$a$ " * 100_000,
        "\u202e" * 100_000,
    ):
        mine, result, extra = everywhere(text)
        began = time.process_time()
        sound(feedback(small(), mine, result, title="x", extra=extra))
        assert time.process_time() - began < 5


LEAKS = {
    "as it is": "\n".join(HIDDEN_LINES),
    "in a line": f"x = 1; {HIDDEN_LINES[0]}; y",
    "as a repr": repr("\n".join(HIDDEN_LINES)),
    "indented": "\n".join(f"\t\t{line.replace(' ', '  ')}" for line in HIDDEN_LINES),
    "over a line's end": HIDDEN_LINES[0].replace(" = ", " =\n"),
    "coloured": "\x1b[0m".join(HIDDEN_LINES[0]),
    "late": "x" * 3_990 + HIDDEN_LINES[0],
}


@pytest.mark.parametrize("how", LEAKS)
def test_no_line_of_a_hidden_test_is_shown(how):
    mine, result, extra = everywhere(LEAKS[how])
    mine = replace(mine, cells={"twice_answer": "pass", "why_answer": "x"}, own=())  # what a student wrote is no leak
    page = feedback(small(), mine, result, title="x", extra=extra)
    text = " ".join(sound(page).text.split())
    for line in HIDDEN_LINES:
        assert line not in text and line.replace(" ", "") not in text.replace(" ", "")
    assert "[line of a hidden test]" in text


def test_only_hidden_lines_are_redacted():
    given = "assert double(1) == 2"
    template = small()
    template.cells[4].source = template.cells[4].source.replace("secret_matrix = ", given + "\nsecret_matrix = ")
    result = verdicts("failed", "passed", "passed", shown={"output": f"first\n{given}\n{HIDDEN_LINES[0]}\nlast"})
    text = sound(feedback(template, MINE, result, title="x")).text
    assert f"first\n{given}\n[line of a hidden test]\nlast" in text


def test_a_hidden_test_shows_names_and_shapes_but_no_values_and_no_prints():
    calls = (Call("double([0.125, 0.375], array (1, 2) float64: [[0.125, 0.375]])", "array([[0.25, 0.75]])"),)
    hidden = {"calls": calls, "output": "0.125 0.375", "message": "wrong for lists"}
    page = feedback(small(), MINE, verdicts("passed", "failed", "passed", hidden=hidden), title="x")
    text = sound(page).text
    assert "double(…, array (1, 2) float64)" in text and "array(…)" in text and "wrong for lists" in text
    assert not re.search(r"0\.(125|375|25|75)", text)
    for line in HIDDEN_LINES:
        assert line not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f(1, x=2.5)", "f(…, x=…)"),
        ("f()", "f()"),
        ("f(array of shape (2, 3), [1, 2], (3, 4), 'a, b')", "f(array of shape (2, 3), …, …, …)"),
        ("f(float64[2, 3], float32 (5,), shape (4,))", "f(float64[2, 3], float32 (5,), shape (4,))"),
        ("f(tensor(5), np.int64(7), np.float64(3))", "f(…, …, …)"),
        (
            "f(float64 array of shape (2, 3), tensor (2,) int64: [4, 5])",
            "f(float64 array of shape (2, 3), tensor (2,) int64)",
        ),
        ("(array (2, 3) float64, tensor () float32: 7)", "(array (2, 3) float64, tensor () float32)"),
        ("(1, 2.5)", "…"),
        ("f(…)[1](array (5,) float64, 7)", "f(…)[1](array (5,) float64, …)"),
        ("f(x)[0]", "…"),
        ("vjp.forward(array(5))", "vjp.forward(…)"),
        ("tensor(5)", "tensor(…)"),
        ("(2, 3)", "…"),
        ("[2, 3]", "…"),
        ("3.5", "…"),
        ("'secret'", "…"),
        ("KeyError: 42", "KeyError"),
        ("42 KeyError: 42", "…"),
        ("ValueError", "ValueError"),
        ("", "…"),
        ("f(" + "1, " * 5000 + ")", "f(…)"),
        ("f(secret", "…"),
        ('f("' + '\\"' * 400 + ")", "f(…)"),
    ],
)
def test_veiled(text, shown):
    assert veiled_call(text) == shown


@pytest.mark.parametrize(
    ("came", "shown"),
    [
        ("array (3, 2) float64", "array (3, 2) float64"),  # transposed: the numbers are those of the arguments
        ("array (2, 3) float64", "array (2, 3) float64"),
        ("array (2, 1) float64", "array (2, 1) float64"),
        ("tensor () float32: 7", "tensor () float32"),
        ("array (8, 4, 6, 2, 1, 3, 7) bool", "array of another shape bool"),
        ("array (735,) float64", "array of another shape float64"),
        ("array (2, 3, 2, 3, 3, 2, 2) float64", "array of another shape float64"),  # so many axes spell in two letters
        (
            "(array (2, 3) float64, array (7351, 9264) float64)",
            "(array (2, 3) float64, array of another shape float64)",
        ),
        ("ValueError: 0.7351", "ValueError"),
    ],
)
def test_a_shape_that_an_answer_makes_up_is_not_shown(came, shown):
    """An answer may return ``np.zeros(…)`` of as many rows as the digits of a hidden input say."""
    assert answered(came, "f(array (2, 3) float64: [[1, 2, 3], [4, 5, 6]], 7351)") == shown
    calls = (Call("f(array (2, 3) float64, 7351)", came),)
    page = feedback(small(), MINE, verdicts("passed", "failed", "passed", hidden={"calls": calls}), title="x")
    assert shown in html.unescape(page) and "735" not in page


def test_an_answer_whose_tests_pass_is_no_unanswered_one():
    """Whoever hands in the instructor's own solution, or a stub that is right, has answered."""
    mine = replace(MINE, unanswered=("twice_answer",))
    text = sound(feedback(small(), mine, verdicts(*["passed"] * 3), title="x")).text
    assert "nanswered" not in text and "Nothing was written" not in text and "return 3 * x" in text
    text = sound(feedback(small(), mine, verdicts("passed", "unanswered", "passed"), title="x")).text
    assert "unanswered in part" in text and "Nothing was written" in text


def test_notes_about_the_time_come_with_what_a_person_decided():
    """They can change without anything being graded again, so they are no part of the answers."""
    extra = {"notes": ["The time of the newest file, for timestamp.txt claims 1970."]}
    text = sound(feedback(small(), MINE, verdicts(*["passed"] * 3), title="x", extra=extra)).text
    assert "timestamp.txt claims 1970" in text
    assert "timestamp.txt" not in sound(feedback(small(), MINE, verdicts(*["passed"] * 3), title="x", extra={})).text
    odd = {"notes": 7, "late_penalty": 0}
    assert sound(feedback(small(), MINE, verdicts(*["passed"] * 3), title="x", extra=odd)).text


def test_visible():
    assert visible("a\tb\nc é ∑ 中") == "a\tb\nc é ∑ 中"
    assert visible("a\r\nb\rc") == "a\nb\\rc"
    assert visible("\x1b[31;1mred\x1b[0m\x1b]8;;http://x\x07y\x85\u2029\ufeff") == r"redy\x85\u2029\ufeff"


def test_written_answers_are_rendered_and_formulas_kept():
    text = "# Title\n\nIf *so*, $a_1<b_2*c*d$ and\n\n$$\\sum_i x_i$$\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[ok](https://example.org)"
    page = feedback(
        small(), replace(MINE, cells=MINE.cells | {"why_answer": text}), verdicts(*["passed"] * 3), title="x"
    )
    seen = sound(page)
    assert '<code class="math">a_1&lt;b_2*c*d</code>' in page and '<pre class="math">\\sum_i x_i</pre>' in page
    assert "<em>so</em>" in page and "<th>a</th>" in page and '<p class="heading">Title</p>' in page
    assert 'href="https://example.org" rel="nofollow noopener noreferrer"' in page
    assert seen.headings == [1, 2, *[3] * 4, 2, 3]


def test_a_failed_cell_of_ones_own_stands_near_the_top():
    ran = (CellResult("twice_answer", "own", "failed", "NameError: x", "line 9"),)
    page = feedback(small(), MINE, replace(verdicts(*["passed"] * 3), cells=ran), title="x")
    assert page.index("NameError: x") < page.index("<table") and "line 9" in page


def test_a_refusal_says_what_to_do():
    seen = sound(refused("Set 1", f"set1.ipynb is cut short; save it again {SCRIPT}"))
    assert "set1.ipynb is cut short; save it again" in seen.text and "Nothing that you handed in is lost" in seen.text
    assert SCRIPT in seen.text


def test_a_course_without_headings_or_prefixes():
    cells = [
        flagged(new_code_cell, "squares = ...", "squares", solution=True),
        flagged(new_code_cell, "assert squares", "test_squares", grade=True, points=1),
        new_markdown_cell("plain"),
        flagged(new_markdown_cell, "do", "task", task=True, points=3),
    ]
    del cells[1].metadata.nbgrader["task"]
    mine = Answers({"squares": "squares = 1"}, (), (), ())
    result = Result((TestResult("test_squares", "passed", 1.0, 1.0),))
    seen = sound(feedback(new_notebook(cells=cells), mine, result, title="x"))
    assert "1 of 1 points so far; 3 more wait" in seen.text and "Test: squares" in seen.text
    nbformat.validate(autograded(new_notebook(cells=cells), mine, result))


def test_a_page_of_a_set_is_fast_and_small():
    text = "def f(x):\n    return [x + 1 for x in range(10)]  # a comment\n" * 8
    mine = answers(SET2, SET2)
    mine = replace(mine, unanswered=(), cells={name: text for name in mine.cells})
    more = {
        "message": "m" * 100,
        "trace": "line 1\n" * 9,
        "output": "1.0 2.0\n" * 50,
        "calls": (Call("f(1)", "2"),) * 5,
    }
    result = all_passed(SET2)
    tests = [replace(t, state="failed", points=0.0, **more) if n % 2 else t for n, t in enumerate(result.tests)]
    result, times = Result(tuple(tests)), []
    for _ in range(7):
        written.cache_clear()
        began = time.process_time()
        page = feedback(SET2, mine, result, title="x")
        times.append(time.process_time() - began)
    assert len(result.tests) >= 28 and page.count("✗ failed") >= 14
    assert len(page.encode()) < 150_000
    assert min(times) < 0.025, times


def test_solutions_are_never_shown_even_if_nothing_was_handed_in():
    lines = {
        line.strip()
        for cell in SET2.cells
        if is_solution(cell) and cell.cell_type == "code"
        for line in cell.source.split("\n")
        if len(line.strip()) > 25 and not line.startswith(("def ", "class ", "    ###"))
    }
    assert len(lines) > 20
    mine = Answers({c.metadata.nbgrader.grade_id: None for c in SET2.cells if is_solution(c)}, (), (), ())
    text = sound(feedback(SET2, mine, all_passed(SET2), title="x")).text
    assert not [line for line in lines if line in text]
