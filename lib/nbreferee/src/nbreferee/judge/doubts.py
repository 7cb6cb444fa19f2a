"""What can be seen of an instructor's tests without running them, and would better be written otherwise."""

import ast

from .job import ANSWER, GIVEN, SPLIT, TEST, UNREADABLE, bound, plain

__all__ = ["doubts"]

VERDICTS = frozenset(
    "equals eq ne lt le gt ge equal allclose isclose is_close close_to compare identical array_equal same same_as "
    "almost_equal almost_equals __eq__ __ne__".split()
)
GATHERED = frozenset({"all", "any", "item"})
TRUTHS = frozenset({"bool", "all", "any", "assertTrue", "assertFalse"})
MESSAGE = {"numpy": "err_msg=", "np": "err_msg=", "torch": "msg=", "self": "msg=", "unittest": "msg="}


def doubts(job) -> list[str]:
    """Sentences about tests that show a student nothing, or let an answer give their verdict; each names the cure.

    Parameters
    ----------
    job : of a reference, as `nbreferee.judge.job.plan` makes it.

    Examples
    --------
    >>> from .job import Job, Step
    >>> answer = Step(ANSWER, "total", "", asks=("total",))
    >>> doubts(Job((answer, Step(TEST, "t", "assert total(df).equals(want)"))))[0].partition(". ")[0]
    't, line 1: `total(df).equals(want)` has what the answer returned give the verdict'
    """
    asked = {name for step in job.steps if step.kind == ANSWER for name in step.asks}
    ours = {name for step in job.steps if step.kind in (GIVEN, TEST) for name in bound(step.source, imports=False)}
    out = []
    for step in job.steps:
        if step.kind != TEST or step.run != SPLIT:
            continue
        try:
            tree = ast.parse(plain(step.source))
        except UNREADABLE:
            continue
        out += [f"{step.name}, line {line}: {text}" for line, text in _delegated(tree, asked)]
        out += [f"{step.name}, line {line}: {text}" for line, text in _mute(tree, ours) if step.hidden]
    return out


def _delegated(tree, asked):
    """The conditions that a method of an answer's own object decides: it could say yes to everything."""
    theirs = _Theirs(asked)
    theirs.visit(tree)
    for condition in _conditions(tree):
        call = condition
        while _method(call) in GATHERED and not call.args:
            call = call.func.value
        if _method(call) in VERDICTS and call.args and theirs.holds(call.func.value):
            turned = f"{ast.unparse(call.args[0])}.{call.func.attr}(…)"
            yield (
                call.lineno,
                f"`{ast.unparse(condition)}` has what the answer returned give the verdict. Turn it round, {turned}, "
                "so that a value of yours decides.",
            )


def _method(node):
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _conditions(tree):
    """The expressions of which only the truth counts."""
    waiting = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.If | ast.While | ast.IfExp):
            waiting.append(node.test)
        elif isinstance(node, ast.comprehension):
            waiting += node.ifs
        elif isinstance(node, ast.Call) and (_method(node) or getattr(node.func, "id", "")) in TRUTHS:
            waiting += [getattr(arg, "elt", arg) for arg in node.args[:1]]
    seen = set()
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.BoolOp):
            waiting += node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            waiting.append(node.operand)
        elif id(node) not in seen:
            seen.add(id(node))
            yield node


class _Theirs(ast.NodeVisitor):
    """The names of a test that hold what an answer returned, as far as that stands in its text."""

    def __init__(self, asked):
        self.names = set(asked)

    def holds(self, node):
        """Whether an expression is an object of the student's, or may be."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Call):
            return self.holds(node.func)
        return isinstance(node, ast.Attribute | ast.Subscript | ast.Starred) and self.holds(node.value)

    def bind(self, target, value):
        if self.holds(value):
            self.names |= {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}

    def visit_Assign(self, node):
        for target in node.targets:
            self.bind(target, node.value)

    def visit_NamedExpr(self, node):
        self.bind(node.target, node.value)

    def visit_For(self, node):
        self.bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node):
        self.bind(node.target, node.iter)

    def visit_withitem(self, node):
        if node.optional_vars is not None:
            self.bind(node.optional_vars, node.context_expr)


def _mute(tree, ours):
    """The assertions of libraries without a message of the author's: what they say themselves stays hidden."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _method(node) or getattr(node.func, "id", "")
        if not name.startswith("assert") or name in ours or name in TRUTHS:
            continue
        if any(word.arg in ("err_msg", "msg", None) for word in node.keywords):
            continue
        root = ast.unparse(node.func).partition(".")[0]
        word = MESSAGE.get(root, "msg=" if name[6:7].isupper() else "err_msg=")
        yield (
            node.lineno,
            f"of `{name}` in a hidden test a student reads only that it did not pass, since its own message holds the "
            f"hidden values. Say what is wrong in your words, {word}….",
        )
