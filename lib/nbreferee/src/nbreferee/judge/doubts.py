"""What can be seen of an instructor's tests without running them, and would better be written otherwise."""

import ast
import builtins

from .job import ANSWER, GIVEN, SPLIT, TEST, UNREADABLE, bound, plain

__all__ = ["doubts"]

VERDICTS = frozenset(
    "equals eq ne lt le gt ge equal allclose isclose is_close close_to compare identical array_equal same same_as "
    "almost_equal almost_equals __eq__ __ne__".split()
)
GATHERED = frozenset({"all", "any", "item"})
COMPARISONS = frozenset(  # of unittest
    "assertEqual assertNotEqual assertIs assertIsNot assertAlmostEqual assertLess assertLessEqual assertGreater "
    "assertGreaterEqual".split()
)
COMPUTED = frozenset(  # to look up, to rearrange or to compute is the task itself, not a comparison with what was given
    "get count index find rfind pop item take reshape view transpose permute astype to predict predict_proba transform "
    "inverse_transform forward backward encode decode apply split strip".split()
)
OPTIONS = frozenset("axis axes dim dims dtype keepdims keepdim out ddof order device".split())
PASSES_ON = frozenset("len abs float int bool sum max min round list tuple set sorted any all str".split())
LARGE = 1.0  # a bound below which a difference is small, and above which a score is none
TRUTHS = frozenset({"bool", "all", "any", "assertTrue", "assertFalse"})
CLASSED = frozenset({"isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance"})
KINDS = frozenset(  # whose objects come as values, so that a test knows their class
    "Tensor Parameter Size DataFrame Series Index RangeIndex MultiIndex DatetimeIndex Timestamp Timedelta Period "
    "Interval Categorical Number Complex Real Rational Integral Decimal Fraction Callable NoneType Ellipsis".split()
)
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
    classes = {name for step in job.steps for name in step.classes}
    texts = [step.imports if step.kind == ANSWER else step.source for step in job.steps]
    modules = {name for text in texts for name in {*bound(text)} - {*bound(text, imports=False)}}
    out = []
    for step in job.steps:
        if step.kind != TEST or step.run != SPLIT:
            continue
        try:
            tree = ast.parse(plain(step.source))
        except UNREADABLE:
            continue
        theirs = _Theirs(asked, classes, modules)
        theirs.visit(tree)
        found = (*_delegated(tree, theirs), *_classed(tree, theirs))
        out += [f"{step.name}, line {line}: {text}" for line, text in found]
        out += [f"{step.name}, line {line}: {text}" for line, text in _mute(tree, ours) if step.hidden]
    return out


def _delegated(tree, theirs):
    """The conditions that a method of an answer's own object decides: it could say yes to everything."""
    for condition in _conditions(tree, theirs.bound):
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
        elif told := _told(condition, theirs):
            yield (
                told.lineno,
                f"`{ast.unparse(condition)}` rests on the word of what the answer returned, which could say "
                f"the same of everything: it gives the verdict. Compute from plain values what `{told.func.attr}` "
                "computes, so that a value of yours decides.",
            )


def _told(condition, theirs):
    """The call of a method of an answer's object, with a value of the test's own, on whose outcome a condition rests.

    It does if it compares the outcome with a constant that an object can guess (nothing, a truth value, a bound), or
    takes an attribute or the length of the outcome for true. What the method of a class that was asked for returns is
    what the exercise is about.
    """
    if isinstance(condition, ast.Compare):
        waiting = theirs.guessable(condition)
    elif (
        isinstance(condition, ast.Attribute | ast.Subscript)
        or getattr(getattr(condition, "func", 0), "id", "") == "len"
    ):
        waiting = [condition]
    else:
        waiting = []  # the truth of what a method gives is refused as it comes
    seen = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            waiting += theirs.bound.get(node.id, ())
        elif isinstance(node, ast.Attribute | ast.Subscript):
            waiting.append(node.value)
        elif isinstance(node, ast.UnaryOp):
            waiting.append(node.operand)
        elif isinstance(node, ast.Call):
            if theirs.hands(node):
                return node
            if (_method(node) or getattr(node.func, "id", "")) in PASSES_ON:
                waiting += node.args[:1]
            waiting += [node.func.value] if _method(node) else []
    return None


def _constant(node):
    """(the value of a constant,), or (): of numbers, texts, and displays that hold nothing else."""
    empty = isinstance(node, ast.Call) and not node.args and getattr(node.func, "id", "")
    if empty in ("set", "list", "dict", "tuple"):
        return ((),)
    try:
        return (ast.literal_eval(node),)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return ()


def _classed(tree, theirs):
    """The questions for the class of an answer's own object: it could claim any."""
    for node in ast.walk(tree):
        kinds = []
        if isinstance(node, ast.Call) and len(node.args) > 1 and theirs.holds(node.args[0]):
            kinds = [node.args[1]] if (_method(node) or getattr(node.func, "id", "")) in CLASSED else []
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            kinds = [side for side in sides if not theirs.class_of(side)]
            kinds = kinds if len(kinds) < len(sides) else []
        if any(name in theirs.names or (name[:1].isupper() and name not in KINDS) for name in _classes(kinds)):
            yield (
                node.lineno,
                f"`{ast.unparse(node)}` asks for the class of what the answer made. Unless that comes as a value, only "
                "the answer's process knows its class, and any object can claim one. Compare what it computes, or "
                "run this test sandboxed.",
            )


def _classes(nodes):
    """The names of classes, as far as they stand in the text: `np.ndarray`, `(int, Circle)`, `"Circle"`."""
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.BinOp):
            yield from _classes(ast.iter_child_nodes(node))


def _method(node):
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def _function(node):
    return getattr(node.func, "id", None) if isinstance(node, ast.Call) else None


def _conditions(tree, assigned):
    """The expressions of which only the truth counts; those that a name stands for, too."""
    waiting = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.If | ast.While | ast.IfExp):
            waiting.append(node.test)
        elif isinstance(node, ast.comprehension):
            waiting += node.ifs
        elif isinstance(node, ast.Call):
            name = _method(node) or getattr(node.func, "id", "")
            if name in TRUTHS:
                waiting += [getattr(arg, "elt", arg) for arg in node.args[:1]]
            elif name in COMPARISONS and len(node.args) > 1:
                sign = ast.Lt() if "Less" in name else ast.Gt() if "Greater" in name else ast.Eq()
                waiting.append(ast.copy_location(ast.Compare(node.args[0], [sign], node.args[1:2]), node))
    seen = set()
    while waiting:
        node = waiting.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ast.BoolOp):
            waiting += node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            waiting.append(node.operand)
        elif isinstance(node, ast.Name):
            waiting += assigned.get(node.id, ())
        elif isinstance(node, ast.NamedExpr):
            waiting.append(node.value)
        elif verdict := _truth_of(node):
            waiting.append(verdict)
        else:
            yield node


def _truth_of(node):
    """What a comparison with a truth value says is true or false: `x == True`, `x is not False`."""
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        return None
    sides = [node.left, *node.comparators]
    others = [side for side in sides if not (isinstance(side, ast.Constant) and type(side.value) is bool)]
    same = isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot)
    return others[0] if same and len(others) == 1 else None


class _Theirs(ast.NodeVisitor):
    """The names of a test that hold what an answer returned, as far as that stands in its text."""

    def __init__(self, asked, classes=(), modules=()):
        self.names, self.classes = set(asked), set(classes)
        self.bound = {}  # name: the expressions that the test binds it to
        self.modules = {*dir(builtins), *modules}

    def holds(self, node):
        """Whether an expression is an object of the student's, or may be."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Call):
            return self.holds(node.func)
        return isinstance(node, ast.Attribute | ast.Subscript | ast.Starred) and self.holds(node.value)

    def class_of(self, node):
        """Whether an expression is the class of such an object, or the name of that."""
        if isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__"):
            node = node.value
        if isinstance(node, ast.Attribute) and node.attr == "__class__":
            return self.holds(node.value)
        return getattr(getattr(node, "func", None), "id", "") == "type" and any(map(self.holds, node.args))

    def made(self, node):
        """Whether an expression is a class that was asked for, or an instance of one."""
        node = node.func if isinstance(node, ast.Call) else node
        return isinstance(node, ast.Name) and node.id in self.classes

    def hands(self, call):
        """Whether a call hands a value of the test's own to a method of an answer's object, which is to compare it."""
        if not _method(call) or call.func.attr in COMPUTED:
            return False
        of, words = call.func.value, (word.value for word in call.keywords if word.arg not in OPTIONS)
        return self.holds(of) and not self.made(of) and any(map(self.own, (*call.args, *words)))

    def own(self, node):
        """Whether an expression is a value of the test's own, more than an option: a number, a kind, a size."""
        if isinstance(node, ast.Name):
            return node.id not in self.names | self.modules
        if isinstance(node, ast.Attribute):
            return node.attr not in ("shape", "size", "ndim", "dtype", "device") and self.own(node.value)
        if isinstance(node, ast.Call):
            return not self.holds(node.func) and getattr(node.func, "id", "") not in ("len", "range", "int", "type")
        if isinstance(node, ast.Subscript | ast.Starred):
            return self.own(node.value)
        if isinstance(node, ast.BinOp):
            return self.own(node.left) or self.own(node.right)
        return isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)

    def guessable(self, node):
        """What a comparison compares with a constant that an object can guess, if it does so, as a list."""
        sides = [node.left, *node.comparators]
        texts = (self.bound.get(getattr(side, "id", ""), [side]) for side in sides)
        known = [_constant(text[0]) if len(text) == 1 else () for text in texts]
        if len(sides) != 2 or sum(map(len, known)) != 1:
            return []
        constant = (known[0] or known[1])[0]
        bound = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE) and isinstance(constant, int | float)
        guessed = not constant or constant is True or (type(constant) is float and constant == 1)
        return [sides[1] if known[0] else sides[0]] if guessed or (bound and constant <= LARGE) else []

    def bind(self, target, value):
        if isinstance(target, ast.Name):
            self.bound.setdefault(target.id, []).append(value)
            if isinstance(value, ast.Call) and self.made(value):
                self.classes.add(target.id)
        if self.holds(value):
            self.names |= {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}

    def visit_Assign(self, node):
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AugAssign(self, node):
        self.bind(node.target, node.value)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.bind(node.target, node.value)

    def visit_NamedExpr(self, node):
        self.bind(node.target, node.value)

    def visit_Import(self, node):
        self.modules |= {(name.asname or name.name).partition(".")[0] for name in node.names}

    visit_ImportFrom = visit_Import

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
