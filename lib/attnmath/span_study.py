"""How well blanks are filled after some minutes: ``python -m attnmath.span_study OUT.json`` trains and measures.

Each run is a preset of ``python -m attnmath.train t5`` with another seed, another mean length of the spans;
tables of counts fill the same blanks. Rates are tried on texts of the validation part.
"""

import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from attnmath import spans
from attnmath.ngram import KneserNey, interpolated
from attnmath.study import Study
from attnmath.tasks import t5
from attnmath.torch.training import Run

MEANS = (1, 3, 8)
SEEDS = (1, 2, 3)
TEXTS = 400  # of the test part, whose blanks are filled
ORDER = 8  # of the counts
FIRST = 4  # losses that a test repeats
SHOWN = 40  # blanks that are shown
RATES, TRIED = (1e-3, 4e-3, 1.6e-2), 0  # tried for blanks of one byte, and the seed with which


@lru_cache(maxsize=1)
def base() -> t5.Task:
    """The text, read once for all runs."""
    return t5.Task(t5.Config())


def task(seed: int, **changed) -> t5.Task:
    """The task of one run: the preset's, with a seed and what is changed, on the text of `base`."""
    found = object.__new__(t5.Task)
    config = replace(t5.PRESETS["book"], seed=seed, **changed)
    found.__dict__ |= base().__dict__ | {"config": config, "per_epoch": config.steps}
    found.total = config.epochs * config.steps
    found.parts = {name: part.under(config) for name, part in base().parts.items()}
    return found


def blanks(mean: float, *, roll: bool = True, of: str = "test") -> tuple:
    """Sources, targets and masks of the texts of a part, the same for every model."""
    config, part = replace(t5.Config(), mean=float(mean), roll=roll), base().parts[of]
    return t5.corrupted(part.ids, part.spread("fill", TEXTS), config, np.random.default_rng(mean))


def matches(answers, targets, sentinels) -> tuple[int, int, int]:
    """How many spans are written as they stood, how many there are, and how many answers have not a target's form.

    Examples
    --------
    >>> matches([[9, 1, 10, 2, 3, 11], [9, 10, 11]], [[9, 1, 10, 2, 11], [9, 5, 10, 6, 11]], [9, 10, 11])
    (1, 4, 1)
    """
    right = total = malformed = 0
    for answer, target in zip(answers, targets, strict=True):
        want = spans.blanks(target, sentinels)
        total += len(want)
        try:
            said = spans.blanks(answer, sentinels)
        except ValueError:
            malformed += 1
            continue
        right += sum(a == b for a, b in zip(said, want, strict=False))
    return right, total, malformed


def filled(model, mean: float, *, roll: bool = True) -> dict:
    """Bits per cut token (its sentinels' share included), and apart those of tokens and of sentinels."""
    sources, targets, masks = blanks(mean, roll=roll)
    bits, marks = t5.surprise(model, sources, targets), targets >= t5.Config().vocabulary
    return {
        "all": round(float(bits.sum() / masks.sum()), 4),
        "tokens": round(float(bits[~marks].mean()), 4),
        "sentinels": round(float(bits[marks].sum() / masks.sum()), 4),
    }


def written(model, mean: float, of: str = "test") -> tuple[dict, list]:
    """The spans that a model writes, greedily, and of some of them the text around, what stood and what it wrote."""
    sources, targets, _ = blanks(mean, of=of)
    sentinels = model.config.sentinels
    answers = model.answer(sources, int(targets[0, -1]), limit=targets.shape[1] + 8)
    right, total, malformed = matches(answers, targets, sentinels)
    shown = []
    for source, answer, target in zip(sources, answers, targets, strict=True):
        try:
            said = spans.blanks(answer, sentinels)
        except ValueError:
            continue
        place = np.flatnonzero(source == sentinels[0])[0]
        around = source[:place], source[place + 1 :]
        left, right_ = map(model.text, around)
        stood = model.text(spans.blanks(target, sentinels)[0])
        shown.append([left, stood, model.text(said[0]), right_])
    return {"right": right, "spans": total, "malformed": malformed, "texts": len(answers)}, shown[:SHOWN]


def fill_run(mean: int, seed: int) -> dict:
    """Train one model that fills, and hold it against blanks of every mean length."""
    began, one = time.process_time(), task(seed, mean=float(mean))
    model, record = _trained(one)
    record |= {"bits": {str(m): filled(model, m) for m in MEANS}, "written": {}}
    for m in dict.fromkeys((1, mean)):
        record["written"][str(m)], shown = written(model, m)
        if seed == 1 and m == mean:
            record["shown"] = shown
    record["unrolled"] = filled(model, mean, roll=False)
    return record | {"seconds": round(time.process_time() - began, 1)}


def tried(rate: float) -> float:
    """The share of the blanks of one byte in validation texts that a model with this rate fills rightly."""
    model, _ = _trained(task(TRIED, mean=1.0, rate=rate))
    found, _ = written(model, 1, "validation")
    return round(found["right"] / found["spans"], 4)


def _trained(one):
    with tempfile.TemporaryDirectory() as folder:
        found = Run(one, Path(folder)).fit(10**9, progress=False)
    validation = [round(next(v for k, v in epoch.items() if k[:5] == "valid"), 4) for epoch in found.history]
    return found.model.eval(), {
        "first": [round(loss, 5) for loss in found.losses[:FIRST]],
        "parameters": sum(P.numel() for P in found.model.parameters()),
        "validation": validation,
    }


# counts --------------------------------------------------------------------------------------------------------------


def both_sides(model: KneserNey, ids: np.ndarray, place: int, until: int) -> np.ndarray:
    r"""The probabilities of all tokens for one blank, from the tokens on its left and some on its right.

    .. math:: p(w \mid \text{left}, \text{right}) \propto p(w \mid \text{left}) \prod_j p(x_j \mid \dots w \dots)

    Parameters
    ----------
    model : counts.
    ids : the text; its token at the place is not looked at.
    place : of the blank.
    until : the first token on the right that is not known; no more than order - 1 of them matter.

    Examples
    --------
    >>> model = KneserNey([0, 1, 2, 0, 1, 2, 0, 3, 1, 3, 3, 3], 4, order=2)
    >>> both_sides(model, np.array([0, 9, 2]), 1, 3).argmax()
    np.int64(1)
    """
    t, k = model.vocabulary, model.order
    p = model.next(ids[max(place - k + 1, 0) : place])
    left, right = ids[max(place - k + 2, 0) : place], ids[place + 1 : min(until, place + k)]
    rows = np.tile(np.concatenate([left, [0], right]), (t, 1))
    rows[:, len(left)] = np.arange(t)
    own = probabilities(model, rows)[:, len(left) + 1 :]
    logp = np.log(p) + np.log(own).sum(-1)
    p = np.exp(logp - logp.max())
    return p / p.sum()


def probabilities(model: KneserNey, rows: np.ndarray) -> np.ndarray:
    """Of each token of several texts (r, n), given those before it in its own text.

    Examples
    --------
    >>> model = KneserNey([0, 1, 0, 1, 0, 2], 3, order=2)
    >>> probabilities(model, np.array([[0, 1], [1, 0]])).round(3)
    array([[0.333, 0.5  ],
           [0.333, 0.667]])
    """
    x = rows.ravel().astype(np.int64)
    p, before = np.full(len(x), 1 / model.vocabulary), np.zeros(len(x), np.int64)
    for level in model.levels:
        wanted = before * model.vocabulary + x
        at = np.minimum(np.searchsorted(level.keys, wanted), len(level.keys) - 1)
        found = np.where((before >= 0) & (level.keys[at] == wanted), at, -1)
        p = interpolated(level, before, np.where(found < 0, 0, level.counts[found]), p)
        before = np.roll(found, 1)
        before[:: rows.shape[1]] = -1  # no text reads the one before it
    return p.reshape(rows.shape)


def baselines() -> dict:
    """What counts say to the same blanks: the most frequent token, n-grams from the left, and from both sides."""
    train, n = base().parts["train"].ids, t5.Config().context
    model = KneserNey(train, t5.Config().vocabulary, ORDER)
    frequent = np.bincount(train, minlength=model.vocabulary) + 1.0
    frequent /= frequent.sum()
    part, found = base().parts["test"], {"order": ORDER}
    texts = [part.ids[start : start + n] for start in part.spread("fill", TEXTS)]
    for mean in MEANS:
        masks = blanks(mean)[2]
        p = probabilities(model, np.stack(texts))[masks]
        q = frequent[np.stack(texts)[masks]]
        bits = {"frequent": -np.log2(q).mean(), "left": -np.log2(p).mean()}
        found[str(mean)] = {name: round(float(value), 4) for name, value in bits.items()}
    return found | {"single": single(model, np.stack(texts), blanks(1)[2], int(frequent.argmax()))}


def single(model: KneserNey, texts: np.ndarray, masks: np.ndarray, frequent: int) -> dict:
    """How many blanks of one token counts fill rightly, from the left and from both sides, and what they are shown.

    ``"hidden"`` shows them the known tokens next to a blank, up to the next blank. ``"guessed"`` shows them their own
    answers to the earlier blanks as well: what a decoder that writes sees of them. ``"told"`` shows the true tokens of
    the earlier blanks.

    Examples
    --------
    >>> model = KneserNey([0, 1, 2, 0, 1, 2, 0, 1, 3, 3, 3], 4, order=2)
    >>> single(model, np.array([[0, 1, 2]]), np.array([[False, True, False]]), 3)
    {'blanks': 1, 'frequent': 0, 'hidden': [1, 1], 'guessed': [1, 1], 'told': [1, 1]}
    """
    found = Counter()
    for text, mask in zip(texts, masks, strict=True):
        places = np.flatnonzero(mask).tolist()
        own = {"left": text.copy(), "both": text.copy()}
        for i, after, before in zip(places, [*places[1:], len(text)], [-1, *places[:-1]], strict=True):
            for way in own:
                shown = {"told": text, "guessed": own[way], "hidden": text[before + 1 :]}
                for name, ids in shown.items():
                    k = i - (len(text) - len(ids))
                    until = after - (len(text) - len(ids))
                    p = both_sides(model, ids, k, until) if way == "both" else model.next(ids[:k])
                    best = p.argmax()
                    found[name, way] += int(best == text[i])
                    if name == "guessed":
                        own[way][i] = best
    right = {name: [found[name, way] for way in ("left", "both")] for name in ("hidden", "guessed", "told")}
    return {"blanks": int(masks.sum()), "frequent": int((texts[masks] == frequent).sum())} | right


def _plan():
    fills = {f"{mean} {seed}": partial(fill_run, mean, seed) for seed in SEEDS for mean in (3, 1, 8)}
    sweep = {f"{rate:g}": partial(tried, rate) for rate in RATES}
    return {"baselines": baselines, "sweep": sweep, "fill": fills}


def _told(found):
    return found if isinstance(found, float) else (found["bits"], found["written"], found["seconds"])


FILE = "chapters/08_at_work/span_corruption.json"
STUDY = Study("attnmath.span_study", FILE, ("baselines", "sweep", "fill"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
