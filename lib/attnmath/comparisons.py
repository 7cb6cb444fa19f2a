"""Comparisons between tuned rivals: what was tried for each, what chose, what came out, and which claims that entails.

A page that says "A is better than B" ends the cell that carries this sentence in a `Comparison`. It refuses a claim
that its own numbers do not entail, and it names what makes a comparison unfair. The appendix collects all of them.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attnmath import _require

BETTER = ("higher", "lower")
CHOSEN = ("validation", "test", "nothing")
SEEDS, SETTINGS, DECADE = 3, 3, 10  # seeds of a test; rates of a grid, and what they span


@dataclass(frozen=True)
class Rival:
    """One side of a comparison.

    Attributes
    ----------
    tried : each setting, a dict of knobs such as ``{"rate": 1e-3}``, with its scores on the data that chose.
    test : the scores of the chosen setting on the data that decides, one for each seed.
    fixed : why there is nothing to tune and nothing to draw, such as ``"zlib has no parameters to learn"``; None
        if there is.

    Examples
    --------
    >>> Rival([({"rate": 1e-3}, [0.2]), ({"rate": 1e-2}, [0.7])], [0.71, 0.69, 0.74]).best("higher")
    ({'rate': 0.01}, 0.7)
    """

    tried: Sequence[tuple[Mapping, Sequence[float]]] = ()
    test: Sequence[float] = ()
    fixed: str | None = None

    def best(self, better: str) -> tuple[dict, float] | None:
        """The setting with the best mean score, with that score; None if nothing was tried."""
        if not self.tried:
            return None
        sign = 1 if better == "higher" else -1
        setting, scores = max(self.tried, key=lambda one: sign * _mean(one[1]))
        return dict(setting), _mean(scores)


@dataclass(frozen=True)
class Comparison:
    """What a page claims of rivals, with all that was tried.

    Attributes
    ----------
    title : what is compared, in a few words.
    score : what the numbers are, with the unit.
    better : ``"higher"`` or ``"lower"``.
    rivals : by name.
    claims : triples ``(a, ">", b)``: each seed of a is better than each seed of b; or ``(a, "~", b)``: the seeds of a
        and those of b overlap.
    chosen : ``"validation"``, ``"test"`` (unfair) or ``"nothing"``: what chose the settings.
    ceiling : a score that cannot be surpassed, such as 1.0 for shares; a grid whose best reaches it may end there.
    said : for a fault that stays, named as `faults` names it, the sentence of the page that speaks of it.

    Raises
    ------
    ValueError
        If the scores do not entail a claim, or a name is unknown.

    Examples
    --------
    >>> rate = lambda *scores: [({"rate": r}, [s]) for r, s in zip((1e-3, 3e-3, 1e-2), scores)]
    >>> ours, theirs = Rival(rate(0.5, 0.8, 0.6), [0.8, 0.81, 0.79]), Rival(rate(0.4, 0.3, 0.2), [0.4, 0.42, 0.41])
    >>> Comparison("ours and theirs", "share found", "higher", {"ours": ours, "theirs": theirs},
    ...     [("ours", ">", "theirs")]).faults()
    ['theirs: the best rate is the end of its grid, 0.001']
    """

    title: str
    score: str
    better: str
    rivals: Mapping[str, Rival]
    claims: Sequence[tuple[str, str, str]]
    chosen: str = "validation"
    ceiling: float | None = None
    said: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        _require.choice("better", self.better, BETTER)
        _require.choice("chosen", self.chosen, CHOSEN)
        for a, relation, b in self.claims:
            for name in (a, b):
                _require.choice("a rival of a claim", name, tuple(self.rivals))
            _require.choice("the relation of a claim", relation, (">", "~"))
            if not self.entails(a, relation, b):
                raise ValueError(
                    f"the record does not entail {a} {relation} {b}: {_range(self.rivals[a].test)} against "
                    f"{_range(self.rivals[b].test)}, {self.better} is better; say what it shows, or measure again"
                )
        for fault in self.said:
            _require.choice("said", fault, tuple(self.faults()))

    def entails(self, a: str, relation: str, b: str) -> bool:
        """Whether the scores of all seeds say so."""
        sign = 1 if self.better == "higher" else -1
        first, second = ([sign * score for score in self.rivals[name].test] for name in (a, b))
        if relation == ">":
            return min(first) > max(second)
        return min(first) <= max(second) and min(second) <= max(first)

    def faults(self) -> list[str]:
        """What makes the comparison unfair, one line each."""
        found = []
        tuned = {name: rival for name, rival in self.rivals.items() if rival.fixed is None}
        if self.chosen == "test" or (self.chosen == "nothing" and any(len(r.tried) > 1 for r in tuned.values())):
            found.append(f"settings are chosen on {self.chosen}")
        favoured = {a for a, relation, b in self.claims if relation == ">" and a in tuned}
        most = max((len(tuned[name].tried) for name in favoured), default=0)
        for name, rival in tuned.items():
            if len(rival.tried) < most:
                found.append(f"{name}: {len(rival.tried)} settings were tried, and {most} for a rival")
            if len(rival.test) < SEEDS:
                found.append(f"{name}: {len(rival.test)} of {SEEDS} seeds")
            found += [f"{name}: {said}" for said in self._grid(rival)]
        return found

    def _grid(self, rival):
        """What is wrong with the grid of one rival: too few rates, too small a span, or a best at its end."""
        if not rival.tried:
            return ["nothing was tuned"]
        best, score = rival.best(self.better)
        said = []
        for knob in best:
            others = {key: value for key, value in best.items() if key != knob}
            values = {setting[knob] for setting, _ in rival.tried if {**setting, knob: None} == {**others, knob: None}}
            if any(isinstance(value, str | bool) for value in values):
                continue
            if knob == "rate" and (len(values) < SETTINGS or max(values) < 0.99 * DECADE * min(values)):
                said.append(f"{len(values)} rates, which span a factor of {max(values) / min(values):.3g}")
            if len(values) > 1 and best[knob] in (min(values), max(values)) and score != self.ceiling:
                said.append(f"the best {knob} is the end of its grid, {best[knob]:.4g}")
        return said

    def data(self) -> dict:
        """All of it as lists, dicts and numbers of four digits."""
        rivals = {
            name: {
                "tried": [[dict(setting), _short(scores)] for setting, scores in rival.tried],
                "test": _short(rival.test),
                "fixed": rival.fixed,
            }
            for name, rival in self.rivals.items()
        }
        own = {name: getattr(self, name) for name in ("title", "score", "better", "chosen", "ceiling")}
        return own | {"rivals": rivals, "claims": [list(c) for c in self.claims], "said": dict(self.said)}

    def rows(self) -> list[tuple[str, str, str, str]]:
        """For each rival: its name, how many settings were tried, which was chosen, and its scores."""
        return [(name, *self._row(rival)) for name, rival in self.rivals.items()]

    def _row(self, rival):
        if rival.fixed is not None:
            return "none", rival.fixed, _range(rival.test)
        best = rival.best(self.better)
        told = ", ".join(f"{knob} {_value(value)}" for knob, value in best[0].items()) if best else "nothing was tuned"
        return str(len(rival.tried)), told, _range(rival.test)

    def _repr_mimebundle_(self, include=None, exclude=None):
        text = json.dumps(self.data(), separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
        heads = ("rival", "settings tried", "chosen", f"{self.score}: mean (least to most)")
        cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.rows()]
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heads)
        page = (
            f'<details class="comparison"><summary>How the rivals were tuned: {html.escape(self.title)}</summary>'
            f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{table}</tbody></table></details>'
            f'<script type="application/json" class="comparison-data">{text}</script>'
        )
        return {"text/html": page, "text/plain": repr(self)}

    def __repr__(self):
        rows = [f"  {name}: {tried} settings, {chosen}: {scores}" for name, tried, chosen, scores in self.rows()]
        return "\n".join([f"{self.title} ({self.score}, {self.better} is better)", *rows])


def read(data: Mapping) -> Comparison:
    """The comparison that `Comparison.data` wrote.

    Examples
    --------
    >>> one = Comparison("a or b", "loss", "lower", {"a": Rival(test=[1.0], fixed="a formula")}, [])
    >>> read(one.data()).data() == one.data()
    True
    """
    rivals = {
        name: Rival([(setting, scores) for setting, scores in one["tried"]], one["test"], one["fixed"])
        for name, one in data["rivals"].items()
    }
    claims = [tuple(claim) for claim in data["claims"]]
    return Comparison(**{**data, "rivals": rivals, "claims": claims})


def _mean(scores):
    return sum(scores) / len(scores)


def _short(scores):
    return [float(f"{score:.4g}") for score in scores]


def _value(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _range(scores):
    if not scores:
        return "not measured"
    low, high = min(scores), max(scores)
    return f"{_mean(scores):.3g}" + (f" ({low:.3g} to {high:.3g})" if len(scores) > 1 else "")
