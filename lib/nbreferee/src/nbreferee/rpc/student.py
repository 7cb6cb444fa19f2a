"""The trusted side's view of the student's process: cells to be run there, values, and proxies of what stays there.

Whatever the other process says, this side gets plain values (numbers, strings, lists, arrays, tensors, frames) or a
`Proxy`, which does nothing but ask. No code of the student runs here, nothing is unpickled, and every wait ends when
``Student.clock`` says so.

Timing. A test that holds an answer to a time measures until it has read the value, and reads a copy:

    began = time.perf_counter()
    found = np.array(f(x))
    took = time.perf_counter() - began

What comes back without being a plain value is computed when it is asked, and an array that the student's process has
made may still be changed by it, by a thread, say: the test sees that at its next question. The copy is what was there
when the clock was stopped, so it alone is judged. A call costs a fifth of a millisecond and more with its values: time
many at once, or one that takes long, and compare with a reference that is timed in the same way.
"""

from dataclasses import dataclass

from . import plain
from .calls import TEXT, Call, described, question
from .exchange import flat
from .files import Shared, Sharing
from .plugins import CannotSend, Garbled
from .proxies import Proxy, refuse_verdict
from .raised import MESSAGE, TRACE, Meddled, StudentLost, clean, name_of
from .trusted_end import TrustedEnd

__all__ = ["Ran", "Student"]

_CALLS = 20


@dataclass(frozen=True, slots=True)
class Ran:
    """How a cell ended: what it raised (``ValueError: …``), or None; its own lines; what it printed."""

    error: str | None
    ename: str | None
    trace: str
    output: str


def _retired(*args, **kwargs):
    raise RuntimeError("this function belongs to a test that has ended")


class Student(Sharing, TrustedEnd):
    """The student's process, as the grader sees it.

    Parameters
    ----------
    channel : a `nbreferee.rpc.framing.Channel` to a process that runs `nbreferee.rpc.agent.serve`.
    output_limit : characters of printed text that are kept for each question.
    folder : the `nbreferee.rpc.files.Shared` that it has in common with this side; None: no files are shared.

    Attributes
    ----------
    calls : the last 20 questions, as `nbreferee.rpc.calls.Call`.
    output : what the student's code printed since this was last set.
    may_change : whether the student's code may change arrays, lists, … that it is given. If not, a question after which
        they have changed raises Meddled: a test that computes what it wants from an argument afterwards would compute
        it from the student's numbers.
    classes : names that the instructor's own solution binds to classes, or to instances of them; None: not known. A
        truth value that a method gives, or an attribute is, counts only if the object is of one of them. Of any other
        object it would be a verdict on itself, ``tidy(frame).equals(wanted)``, and is refused.

    Examples
    --------
    >>> student.clock = Until(time.monotonic() + 20)  # doctest: +SKIP
    >>> student.cell("def double(x): return 2 * x", "answer").error is None  # doctest: +SKIP
    True
    >>> student.value("double")(3)  # doctest: +SKIP
    6
    """

    def __init__(self, channel, output_limit: int = 65_536, folder: Shared | None = None):
        super().__init__(channel, output_limit)
        self.share(folder)
        self.calls, self.classes = [], None
        self._begun = False
        self._kept = 0  # functions given before the present test
        self.refused = ""  # what a test asked that is never answered, though it may have caught the error
        self.after = None  # called after each question of a test

    # ---- for the grader

    @property
    def clock(self):
        """Tells when any question under way is given up; see `nbreferee.rpc.line.Line`."""
        return self.line.clock

    @clock.setter
    def clock(self, value):
        self.line.clock = value

    @property
    def lost(self):
        """(state, reason) if the process is of no use any more, or None."""
        return self.line.lost

    def cell(self, source: str, name: str) -> Ran:
        """Run a cell in the student's namespace; magics and ``await`` are allowed.

        Parameters
        ----------
        source : code.
        name : what its lines are called in traces.

        Returns
        -------
        how it ended.

        Raises
        ------
        StudentLost : the process died, took too long, or sent nonsense.
        """
        return self._run("cell", source, name)

    def test(self, source: str, name: str) -> Ran:
        """Run a *sandboxed* test in the student's own namespace. The answer is the student's process's word, no more.

        Parameters, returns and raises as for `cell`.
        """
        return self._run("test", source, name)

    def names(self, wanted) -> set:
        """Those of the wanted names that the student's namespace has.

        Raises
        ------
        StudentLost : as for `cell`.
        """
        wanted = sorted(wanted)
        found = self.ask("names", (wanted,))
        if type(found) is not list or not all(type(name) is str for name in found):
            self.out_of_turn()
        return set(found) & set(wanted)

    def value(self, name: str) -> object:
        """What the student's namespace holds under a name: a plain value, or a `Proxy`.

        Raises
        ------
        StudentError : a NameError: there is no such name.
        StudentLost : as for `cell`.
        """
        found = self.ask("value", (name,), name)
        return _of(found, "class" if name in (self.classes or ()) else "")

    def values(self, wanted) -> dict:
        """{name: value} of those of the wanted names that the student's namespace has.

        Raises
        ------
        StudentLost : as for `cell`.
        """
        there = self.names(wanted) if wanted else ()
        return {name: self.value(name) for name in wanted if name in there}

    def forget(self):
        """A test begins: nothing that crossed before can be changed from over there any more."""
        self.links.clear()
        self._kept, self.refused, self.echoed = self.registry.last, "", 0
        self._begun = False
        if self.folder is not None:
            self.folder.begin()

    def retire(self):
        """A test has ended: its functions can be called from over there no more."""
        self.may_change, self.echo, self.after = False, False, None
        self.registry.retire(self._kept, _retired)
        if self.folder is not None:
            self.folder.end()

    def _run(self, verb, source, name):
        before, self.output = self.output, ""
        try:
            found = self.ask(verb, (source, name))
            if type(found) is not tuple or len(found) != 3 or not all(type(x) is str for x in found):
                self.out_of_turn()
            ename, message, trace = found
            ename, message, trace = clean(ename, 80), clean(message, MESSAGE), clean(trace, TRACE)
            error = (f"{ename}: {message}" if message else ename) if ename else None
            return Ran(error, ename or None, trace, self.output)
        finally:
            self.output = (before + self.output)[: self.output_limit]

    # ---- questions

    def question(self, proxy, verb, args=(), kwargs=None):
        """A question about one object; it is remembered if it is one of the test itself."""
        label, origin, outermost = proxy._nb_label, proxy._nb_origin, not self.level
        what = question(label, verb, args, kwargs or {}, self.plugins) if outermost else ""
        inner = f"{label}.{args[0]}" if verb == "attribute" else f"{label}(…)" if verb == "call" else label
        try:
            found = self.ask(verb, (proxy, tuple(args), flat(kwargs or {})), inner)
            if self.classes is not None and _delegates(verb, origin):
                refuse_verdict(f"{label}(…)" if verb == "call" else inner, proxy, found)
        except BaseException as error:
            if what:
                self._note(what, f"{name_of(error)}: {error}")
            raise
        if self.after is not None and outermost:
            self.after()
        if what and verb not in ("iterate", "next", "enter", "leave") and not isinstance(found, Proxy):
            self._note(what, described(found, TEXT, self.plugins))
        elif what and verb == "call":
            self._note(what, f"an object of type {found._nb_kind}")
        if verb == "attribute":
            return _of(found, "own" if origin in ("class", "instance") else "method")
        return _of(found, "instance" if verb == "call" and origin == "class" else "")

    def _note(self, what, came):
        self.calls.append(Call(clean(what, TEXT), clean(" ".join(came.split()), TEXT)))
        del self.calls[:-_CALLS]

    def ask(self, verb, payload, label=""):
        self.line.check()
        if not self._begun:
            self._begun = True
            self.ask("begin", (self.output_limit,))
        outermost, asked = not self.level, False
        if outermost:
            self.raised, self.verdict = [], None
        try:
            found = super().ask(verb, payload, label)
            asked = True
            return found
        except Garbled:
            self.out_of_turn()
        except StudentLost:
            raise
        except CannotSend as error:
            self.refused = str(error)
            raise
        except BaseException:
            asked = True
            raise
        finally:
            if outermost:
                self._judge(asked)

    def _judge(self, asked):
        """An assertion of the test that failed in a callback has failed, whoever caught it; and so on."""
        changed = self.arguments.put_back()
        if asked and self.verdict is not None:
            raise self.verdict
        if asked and changed:
            raise Meddled(Meddled.message)

    def cure(self, kind):
        """What an answer returns instead of an object of this type, or nothing."""
        cures = dict(plain.CURES)
        for plugin in self.plugins:
            cures |= plugin.cures()
        return cures.get(kind, "")


def _delegates(verb, origin):
    """Whether a truth value that comes of a question is a verdict: of a method, or of an attribute of what is no class
    that was asked for, and no instance of one."""
    return origin == "method" if verb == "call" else verb == "attribute" and origin not in ("class", "instance")


def _of(found, origin):
    """A proxy that knows where it was first had from; a plain value is as it is."""
    if origin and isinstance(found, Proxy) and not found._nb_origin:
        object.__setattr__(found, "_nb_origin", origin)
    return found
