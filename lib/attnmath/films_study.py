"""One Transformer for pictures, sounds and text on one clock: ``python -m attnmath.films_study OUT.json`` trains it.

Every row of the three streams enters one sequence, and rotary positions hold the time of each row. Other runs know the
order in place of the time, or lack a stream or the marks.
"""

import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

import attnmath.torch as at
from attnmath import cmudict, shapes
from attnmath.digits import digits
from attnmath.films import ASK, COUNTS, FLASHES, PIXELS, STREAMS, Films, before, films, late, nearest, told_otherwise
from attnmath.study import Study, descend

D, HEADS, F, LAYERS = 48, 3, 96, 2
FREE, PERIODS = 3, (6.0, 400.0)  # pairs of a head that do not turn; ticks of the fastest and of the slowest of the rest
STEPS, BATCH, RATE = 1200, 32, 3e-3
EVERY, TESTED = 100, 1000  # steps between two looks at a run; test films
FIRST = 4  # losses that a test repeats
SHIFTS = (0, 10, 100, 1000)  # ticks by which all clocks are moved
LAGS = tuple(range(-24, 25, 4))  # ticks by which the sounds alone are late
APART = tuple(range(-30, 31, 2))  # ticks between a sound and a picture
OFF = np.cumsum((0, *COUNTS))


@dataclass(frozen=True)
class Kind:
    """What a run knows.

    Attributes
    ----------
    positions : by what queries and keys are turned: "time" is the clock, "order" the place in the sequence, "merged"
        the place among all rows in the order of their times.
    without : streams whose rows are hidden; of the text, the "?" stays.
    marks : a learned vector for each stream is added to its rows.
    """

    positions: str = "time"
    without: tuple[str, ...] = ()
    marks: bool = True


RUNS = {
    "time": Kind(),
    "order": Kind("order"),
    "merged": Kind("merged"),
    "no sounds": Kind(without=("sounds",)),
    "no marks": Kind(marks=False),
}

SEEDS = {"time": (1, 2, 3), "order": (1, 2), "merged": (1, 2, 3), "no sounds": (1, 2, 3), "no marks": (1, 2)}


def frequencies(k: int = D // HEADS) -> torch.Tensor:
    """Radians in a tick for each pair of a head of width k: 0 for the first pairs, then from fast to slow."""
    turning = 2 * np.pi / np.geomspace(*PERIODS, k // 2 - FREE)
    return torch.from_numpy(np.concatenate([np.zeros(FREE), turning]))


def seen(made: Films, kind: Kind) -> torch.Tensor:
    """(b, n) which rows a run sees."""
    there = made.there
    for name in kind.without:
        first = OFF[STREAMS.index(name)] + (name == "text")  # the "?" stays
        there[:, first : OFF[STREAMS.index(name) + 1]] = False
    return torch.from_numpy(there)


def places(made: Films, positions: str) -> torch.Tensor:
    """(b, n) the position of each row: its time, its place in the sequence, or its place in the order of the times.

    Examples
    --------
    >>> made = films(np.random.default_rng(0), 1, digits().train)
    >>> made.times[0, :7], places(made, "merged")[0, :7], places(made, "order")[0, :7]
    (array([ 8, 36, 66, 84, 12, 13, 14]), tensor([0, 4, 5, 6, 1, 2, 3]), tensor([0, 1, 2, 3, 4, 5, 6]))
    """
    if positions == "time":
        return torch.from_numpy(made.times)
    there = made.there
    if positions == "order":
        return torch.from_numpy(there.cumsum(-1) - 1)
    late_padding = np.where(there, made.times, 10**9)
    return torch.from_numpy(late_padding.argsort(-1, kind="stable").argsort(-1))


class Senses(torch.nn.Module):
    """Three streams in, ten logits out: which digit flashed as the animal was named."""

    def __init__(self, kind: Kind):
        super().__init__()
        tree = {
            "pictures": shapes.linear_shapes(PIXELS, D),
            "sounds": {"word": (1 + len(cmudict.PHONEMES), D)},
            "text": {"word": (1 + ASK, D)},
            "encoder": shapes.encoder_shapes(D, F, LAYERS, at.layer_norm, heads=HEADS),
            "head": shapes.linear_shapes(D, 10),
        }
        self.kind, self.params = kind, at.ParamTree(tree | ({"marks": (len(STREAMS), D)} if kind.marks else {}))
        with torch.no_grad():
            for name in ("sounds", "text"):
                self.params.get_parameter(f"{name}.word").normal_()

    def rows(self, made: Films) -> torch.Tensor:
        """(b, n, d) all rows of the three streams: pictures, sounds, text."""
        params = self.params.tree()
        X = [at.affine(torch.from_numpy(made.pictures), params["pictures"])]
        for name in ("sounds", "text"):
            X.append(params[name]["word"][torch.from_numpy(getattr(made, name))])
        if self.kind.marks:
            X = [Y + mark for Y, mark in zip(X, params["marks"], strict=True)]
        return torch.cat(X, 1)

    def forward(self, made: Films, record: dict | None = None) -> torch.Tensor:
        """Logits (b, 10)."""
        params, there = self.params.tree(), seen(made, self.kind)
        turn = partial(at.rotary, frequencies=frequencies(), places=places(made, self.kind.positions)[:, None])
        parts = {
            "attention": partial(at.multi_head_attention, turn=turn),
            "join": partial(at.sublayer, norm_first=True),
        }
        Y = at.encoder(self.rows(made), params["encoder"], HEADS, there[:, None, None], record=record, **parts)
        return at.affine(Y[:, OFF[2]], params["head"])  # the row of "?"


def loss(model: Senses, made: Films) -> torch.Tensor:
    """The mean cross-entropy of the answers, in nats."""
    return at.cross_entropy(model(made), torch.from_numpy(made.answer))


def start(name: str, seed: int) -> tuple[Senses, np.random.Generator]:
    """The model at the beginning of a run, and what draws its films."""
    torch.manual_seed(seed)
    return Senses(RUNS[name]), np.random.default_rng(1000 + seed)


def fit(model: Senses, rng, steps: int, look=None) -> list[float]:
    """The losses of the first ``steps`` of `STEPS`."""
    values = lambda: loss(model, films(rng, BATCH, digits().train))  # noqa: E731
    return descend(list(model.parameters()), values, steps, RATE, plan=STEPS, look=look, every=EVERY)


@torch.no_grad()
def answers(model: Senses, made: Films) -> np.ndarray:
    """(b,) the likeliest digit of each film."""
    return model(made).argmax(-1).numpy()


def share(right) -> float:
    """Of what is true."""
    return round(float(np.mean(right)), 4)


def tested(model: Senses) -> dict:
    """On films by new writers: right answers, and films of which both versions (see `told_otherwise`) are right."""
    made = films(np.random.default_rng(60), TESTED, digits().test)
    other = told_otherwise(np.random.default_rng(61), made)
    right, again = answers(model, made) == made.answer, answers(model, other) == other.answer
    found = {"right": share(right), "both": share(right & again), "shifts": shifted(model, made)}
    return found | ({"lags": lagged(model, made)} if model.kind.positions == "time" else {})


def shifted(model: Senses, made: Films) -> list:
    """Right answers with all clocks moved by each of `SHIFTS`."""
    return [share(answers(model, made._replace(times=made.times + ticks)) == made.answer) for ticks in SHIFTS]


def lagged(model: Senses, made: Films) -> list:
    """Right answers with the sounds alone late by each of `LAGS`."""
    return [share(answers(model, late(made, ticks)) == made.answer) for ticks in LAGS]


@torch.no_grad()
def looked(model: Senses) -> list:
    """For each layer and head the mean weight of a sound's row on a picture's, by how much later the picture is."""
    made, record = films(np.random.default_rng(60), TESTED, digits().test), {}
    model(made, record=record)
    sounds, found = slice(FLASHES, OFF[2]), []
    apart = made.times[:, None, :FLASHES] - made.times[:, sounds, None]
    pairs = [(apart == ticks) & (made.sounds > 0)[..., None] for ticks in APART]
    for layer in record["layers"].values():
        P = layer["attention"]["weights"].numpy()[:, :, sounds, :FLASHES].swapaxes(0, 1)
        found.append([[round(float(own[some].mean()), 4) if some.any() else None for some in pairs] for own in P])
    return found


def run(name: str, seed: int) -> dict:
    """Train one model and measure it."""
    began, curve = time.process_time(), []
    model, rng = start(name, seed)
    made = films(np.random.default_rng(80), 300, digits().validation)
    losses = fit(model, rng, STEPS, lambda step: curve.append([step, share(answers(model, made) == made.answer)]))
    record = {
        "first": [round(value, 5) for value in losses[:FIRST]],
        "parameters": sum(P.numel() for P in model.parameters()),
        "curve": curve,
    } | tested(model)
    if name == "time":
        record["looked"] = looked(model)
    return record | {"seconds": round(time.process_time() - began, 1)}


def baselines() -> dict:
    """Two rules on the test films, with the true digits and with those that support vectors read; and chance."""
    from sklearn.svm import SVC

    made, train = films(np.random.default_rng(60), TESTED, digits().test), digits().train
    reader = SVC(C=10, gamma=0.06).fit(train.X.reshape(len(train.y), -1), train.y)
    read = reader.predict(made.pictures.reshape(-1, PIXELS)).reshape(made.digits.shape)
    found, rows = {"one of the digits shown": round(1 / FLASHES, 4)}, np.arange(TESTED)
    for name, rule in (("nearest", nearest), ("before", before)):
        flash = rule(made)
        found[name] = share(made.digits[rows, flash] == made.answer)
        found[f"{name}, read"] = share(read[rows, flash] == made.answer)
    return found


def _plan():
    runs = {f"{name} {seed}": partial(run, name, seed) for name in RUNS for seed in SEEDS[name]}
    return {"baselines": baselines, "runs": runs}


FILE = "chapters/08_at_work/three_modalities.json"
STUDY = Study("attnmath.films_study", FILE, ("baselines", "runs"), _plan, lambda found: found.get("right", found))
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
