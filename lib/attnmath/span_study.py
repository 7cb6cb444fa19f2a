"""How well blanks are filled after some minutes: ``python -m attnmath.span_study OUT.json`` trains and measures.

Each run is a preset of ``python -m attnmath.train t5`` with another seed, another mean length of the spans or other
tasks; tables of counts fill the same blanks.
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
from attnmath.lm_baselines import counted
from attnmath.ngram import KneserNey
from attnmath.study import Study
from attnmath.tasks import t5
from attnmath.torch.training import Run

MEANS = (1, 3, 8)
SEEDS = (1, 2, 3)
TOGETHER = {"together": "fill+where+next", "where": "where", "next": "next"}
TEXTS = 120  # of the test part, whose blanks are filled
BOTH = 300  # blanks for which counts look to both sides
FIRST = 4  # losses that a test repeats
SHOWN = 40  # blanks that are shown


@lru_cache(maxsize=1)
def base() -> t5.Task:
    """The text, read once for all runs."""
    return t5.Task(t5.Config())


def task(seed: int, **changed) -> t5.Task:
    """The task of one run: the preset's, with a seed and what is changed, on the text of `base`."""
    found = object.__new__(t5.Task)
    preset = t5.PRESETS["book" if changed.get("tasks", "fill") == "fill" else "tasks"]
    config = replace(preset, seed=seed, **changed)
    found.__dict__ |= base().__dict__ | {"config": config, "per_epoch": config.steps}
    found.total = config.epochs * config.steps
    found.parts = {name: part.under(config) for name, part in base().parts.items()}
    return found


def blanks(mean: float, *, roll: bool = False) -> tuple:
    """Sources, targets and masks of the test texts, the same for every model."""
    config, part = replace(t5.Config(), mean=float(mean)), base().parts["test"]
    return t5.corrupted(part.ids, part.spread("fill", TEXTS), config, np.random.default_rng(mean), roll)


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


def filled(model, mean: float, *, roll: bool = False) -> dict:
    """Bits per cut token (its sentinels' share included), and apart those of tokens and of sentinels."""
    sources, targets, masks = blanks(mean, roll=roll)
    bits, marks = t5.surprise(model, sources, targets), targets >= t5.Config().vocabulary
    return {
        "all": round(float(bits.sum() / masks.sum()), 4),
        "tokens": round(float(bits[~marks].mean()), 4),
        "sentinels": round(float(bits[marks].sum() / masks.sum()), 4),
    }


def written(model, mean: float) -> tuple[dict, list]:
    """The spans that a model writes, greedily, and of some of them the text around, what stood and what it wrote."""
    sources, targets, _ = blanks(mean)
    sentinels = model.config.sentinels
    answers = model.answer(sources, int(targets[0, -1]), limit=targets.shape[1] + 8)
    right, total, malformed = matches(answers, targets, sentinels)
    shown = []
    for source, answer, target in zip(sources, answers, targets, strict=True):
        try:
            said = spans.blanks(answer, sentinels)
        except ValueError:
            continue
        place = np.flatnonzero(source == sentinels[1])[0]  # the second blank
        around = [source[max(place - 12, 0) : place], source[place + 1 : place + 9]]
        left, right_ = map(model.text, around)
        stood = model.text(spans.blanks(target, sentinels)[1])
        shown.append([left, stood, model.text(said[1]), right_])
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
    record["rolled"] = filled(model, mean, roll=True)
    return record | {"seconds": round(time.process_time() - began, 1)}


def tasks_run(name: str, seed: int) -> dict:
    """Train one model on one or several tasks, and measure each of them on the test part."""
    began, one = time.process_time(), task(seed, tasks=TOGETHER[name])
    model, record = _trained(one)
    part, rows = one.parts["test"], one.parts["test"].spread("where", 200)
    labels = [part.labels[row] for row in rows]
    for asked in one.config.names:
        if asked == "fill":
            record["fill"] = filled(model, 3)
            continue
        sources, targets = part.examples(asked, rows)
        bits = t5.surprise(model, sources, targets)
        said = [model.text(ids[:-1]) for ids in model.answer(sources, t5.END, 16)]
        record[asked] = {
            "bits": round(float(bits.sum() / (targets != t5.PAD).sum()), 4),
            "right": sum(a == b for a, b in zip(said, labels, strict=True)),
            "packages": sum(a in set(labels) for a in said),
            "texts": len(rows),
        }
    return record | {"seconds": round(time.process_time() - began, 1)}


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
    pad = np.zeros((t, k - 1), np.int64)  # so that no context reaches into the row before
    own = model.probabilities(np.concatenate([pad, rows], 1).ravel()).reshape(t, -1)[:, -len(right) or rows.size :]
    logp = np.log(p) + np.log(own).sum(-1)
    p = np.exp(logp - logp.max())
    return p / p.sum()


def baselines() -> dict:
    """What counts say to the same blanks: the most frequent token, n-grams from the left, and from both sides."""
    parts = base().parts
    train, test = parts["train"].ids, parts["test"].ids
    model, order = counted("tokens", train, parts["validation"].ids, t5.Config().vocabulary)
    frequent = np.bincount(train, minlength=model.vocabulary) + 1.0
    frequent /= frequent.sum()
    left = model.probabilities(test)
    found = {"order": order}
    starts, n = parts["test"].spread("fill", TEXTS), t5.Config().context
    for mean in MEANS:
        masks = blanks(mean)[2]
        places = np.concatenate([start + np.flatnonzero(mask) for start, mask in zip(starts, masks, strict=True)])
        found[str(mean)] = {
            "frequent": round(float(-np.log2(frequent[test[places]]).mean()), 4),
            "left": round(float(-np.log2(left[places]).mean()), 4),
        }
    masks = blanks(1)[2]
    asked = [(s, i) for s, mask in zip(starts, masks, strict=True) for i in np.flatnonzero(mask)]
    asked = [asked[i] for i in np.linspace(0, len(asked) - 1, BOTH).astype(int)]
    right, bits = Counter(), 0.0
    for start, i in asked:
        mask = masks[list(starts).index(start)]
        hidden = i + 1 + np.flatnonzero(np.append(mask[i + 1 :], True))[0]
        window = test[start : start + n]
        p = both_sides(model, window, i, hidden)
        truth = window[i]
        bits -= np.log2(p[truth])
        right["both"] += int(p.argmax() == truth)
        right["left"] += int(model.next(window[max(i - 8, 0) : i]).argmax() == truth)
        right["frequent"] += int(frequent.argmax() == truth)
    found["single"] = {"blanks": BOTH, "right": dict(right), "bits of both": round(float(bits / BOTH), 4)}
    labels = parts["test"].labels
    rows = parts["test"].spread("where", 200)
    often = Counter(parts["train"].labels).most_common(1)[0][0]
    found["where"] = {"most": often, "right": sum(labels[row] == often for row in rows), "texts": len(rows)}
    return found


def _plan():
    fills = {f"{mean} {seed}": partial(fill_run, mean, seed) for seed in SEEDS for mean in (3, 1, 8)}
    several = {f"{name} {seed}": partial(tasks_run, name, seed) for seed in SEEDS for name in TOGETHER}
    return {"baselines": baselines, "fill": fills, "tasks": several}


def _told(found):
    return found.get("bits", {}), found.get("where", {}), found["seconds"]


FILE = "chapters/08_at_work/span_corruption.json"
STUDY = Study("attnmath.span_study", FILE, ("baselines", "fill", "tasks"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
