"""What two towers learn of digits and sentences: ``python -m attnmath.contrastive_study OUT.json``.

Each run is a preset of ``python -m attnmath.train clip`` with another seed. The same tower trained with labels, a
linear classifier and support vector machines see the same pictures. The rates of the towers and of the labelled one
are chosen on the writers of the validation.
"""

import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from attnmath import captions
from attnmath.digits import SIDE, digits
from attnmath.study import Study
from attnmath.tasks import clip, vit
from attnmath.torch.contrastive import matching_loss
from attnmath.torch.training import Run

SEEDS = (1, 2, 3)
RUNS = {  # the preset, and what is changed of it
    "clip": ("book", {}),
    "pairs": ("pairs", {}),
    "pairs, one layer": ("pairs", {"words_layers": 1}),
    "short": ("book", {"epochs": 15}),
    "scale 1": ("book", {"epochs": 15, "temperature": 1.0, "learned": False}),
    "scale 100": ("book", {"epochs": 15, "temperature": 0.01, "learned": False}),
    "batch 256": ("book", {"epochs": 15, "batch": 256, "warmup": 15}),
}
LABELS = "same tower, labels"
RATE = 3e-3  # of the presets
SCALES = ("short", "scale 1", "scale 100")
RATES = dict.fromkeys((LABELS, "clip", *SCALES), (1e-3, RATE, 1e-2, 3e-2))  # that are tried, by one seed
CHOSEN = dict.fromkeys(RATES, 1e-2) | {"scale 1": RATE}  # the best of them
TRIED = 0  # the seed with which rates are compared
BATCHES = (2, 4, 8, 16, 32, 64, 128, 256)  # of the bound, on test pictures
DRAWS = 4096  # pairs in all, for each size of a batch
FIRST = 4  # losses that a test repeats


def task(name: str, seed: int, rate: float = RATE) -> clip.Task:
    """The task of one run, with the rate of the presets or another one."""
    preset, changed = RUNS[name]
    return clip.Task(replace(clip.PRESETS[preset], **changed, seed=seed, rate=rate))


def fitted(one):
    """The model of a task after its training, with its losses."""
    with tempfile.TemporaryDirectory() as folder:
        return Run(one, Path(folder)).fit(10**9, progress=False)


def tried(name: str, rate: float) -> float:
    """The share of right answers on validation writers, with a rate: the mean over the sentences of the training."""
    if name == LABELS:
        one = labelled_task(TRIED, rate)
        return round(vit.accuracy(fitted(one).model, *one.data.validation), 4)
    one = task(name, TRIED, rate)
    model, part = fitted(one).model, one.part("validation")
    return round(float(np.mean([clip.accuracy(model, part, pattern) for pattern in one.patterns])), 4)


def best(swept: dict) -> float:
    """The rate with the best score, the smallest of equals.

    Examples
    --------
    >>> best({"0.001": 0.8, "0.003": 0.9, "0.01": 0.9})
    0.003
    """
    return float(max(sorted(swept, key=float), key=swept.get))


def fresh_losses(model, seed: int = 0) -> list[float]:
    """The mean loss on test pictures with sentences of the training's patterns, drawn anew, for each of BATCHES.

    Pictures are drawn with replacement, so that the pairs of a batch are independent.
    """
    test, rng = digits().test, np.random.default_rng(seed)
    said = [captions.prompts(pattern, range(10)) for pattern in captions.ONE]
    S = torch.from_numpy(clip.scores(model, test.X, [text for row in said for text in row]))
    found = []
    for n in BATCHES:
        losses = []
        for _ in range(DRAWS // n):
            i, pattern = rng.integers(0, len(test.y), n), rng.integers(0, len(said), n)
            losses.append(matching_loss(S[torch.from_numpy(i)][:, torch.from_numpy(10 * pattern + test.y[i])]).item())
        found.append(round(float(np.mean(losses)), 4))
    return found


def recalls(S, fits, ks=(1, 5)) -> list[float]:
    """Of the rows of scores S (n, m), the share with a column that ``fits`` (n, m) among the best k, for each k.

    Examples
    --------
    >>> recalls(np.array([[3.0, 2, 1], [1, 2, 3]]), np.array([[True, False, False]] * 2), ks=(1, 2, 3))
    [0.5, 0.5, 1.0]
    """
    best = np.take_along_axis(fits, np.argsort(-S, -1, kind="stable"), -1)
    return [round(float(best[:, :k].any(-1).mean()), 4) for k in ks]


def retrieval(S, y) -> dict:
    """Recall at 1 and 5 in both directions: S (n, m) scores of pictures that show y (n) with a sentence per class."""
    fits = np.asarray(y)[:, None] == np.arange(S.shape[1])
    return {"sentences": recalls(S, fits), "pictures": recalls(S.T, fits.T)}


def run(name: str, seed: int, rate: float = RATE) -> dict:
    """Train one model and measure it."""
    began, one = time.process_time(), task(name, seed, rate)
    found = fitted(one)
    model, shown, test = found.model, one.config.shown, one.part("test")
    everything = clip.classes(shown)
    held = np.isin(np.arange(len(everything)), [10 * a + b for a, b in captions.HELD_PAIRS]) & (shown == 2)
    record = {
        "first": [round(loss, 5) for loss in found.losses[:FIRST]],
        "last": round(float(np.mean(found.losses[-5 * one.per_epoch :])), 4),
        "parameters": sum(P.numel() for P in model.parameters()),
        "scale": round(model.log_scale.exp().item(), 3),
        "accuracy": {},
        "retrieval": {},
    }
    for pattern in (*one.patterns, *clip.HELD[shown]):
        S = clip.scores(model, test.X, captions.prompts(pattern, everything))
        right = S.argmax(-1) == test.y
        record["accuracy"][pattern] = round(float(right.mean()), 4)
        if shown == 2:
            sides = np.stack(np.divmod(S.argmax(-1), 10)), np.stack(np.divmod(test.y, 10))
            record.setdefault("pairs never shown", {})[pattern] = round(float(right[held[test.y]].mean()), 4)
            swapped = (sides[0] == sides[1][::-1]).all(0) & (sides[1][0] != sides[1][1])
            record.setdefault("swapped", {})[pattern] = round(float(swapped.mean()), 4)
        if pattern in clip.HELD[shown]:
            record["retrieval"][pattern] = retrieval(S, test.y)
    if shown == 1:
        record["fresh"] = fresh_losses(model)
    return record | {"seconds": round(time.process_time() - began, 1)}


def labelled_task(seed: int, rate: float) -> vit.Task:
    """The same picture tower, with labels instead of sentences."""
    sizes = {name: getattr(clip.PRESETS["book"], name) for name in ("size", "d", "heads", "f", "layers", "epochs")}
    return vit.Task(vit.Config(**sizes, seed=seed, rate=rate))


def labelled(seed: int, rate: float = RATE) -> dict:
    """What this tower answers on the test after its training."""
    one = labelled_task(seed, rate)
    return {"test": round(vit.accuracy(fitted(one).model, *one.data.test), 4)}


def baselines() -> dict:
    """A linear classifier and support vectors, chosen on the validation part; both also on each half of a pair."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    parts = digits()
    flat = [part.X.reshape(len(part.y), -1) for part in parts]
    kinds = {
        "linear": [LogisticRegression(C=C, max_iter=2000) for C in (0.01, 0.1, 1, 10)],
        "svm": [SVC(C=C, gamma=gamma) for C in (1, 10) for gamma in (0.03, 0.06, 0.12, 0.25, 0.5)],
    }
    two, found = clip.pairs(parts.test, clip.PER_PAIR), {}
    halves = [two.X[..., :SIDE].reshape(len(two.y), -1), two.X[..., SIDE:].reshape(len(two.y), -1)]
    for name, models in kinds.items():
        scores = [model.fit(flat[0], parts.train.y).score(flat[1], parts.validation.y) for model in models]
        best = models[int(np.argmax(scores))]
        said = 10 * best.predict(halves[0]) + best.predict(halves[1])
        found[name] = {
            "test": round(float(best.score(flat[2], parts.test.y)), 4),
            "pairs": round(float((said == two.y).mean()), 4),
        }
    return found | {LABELS: {str(seed): labelled(seed) for seed in SEEDS}}


def _plan():
    return {
        "baselines": baselines,
        "runs": {name: partial(_seeds, name) for name in RUNS},
        "sweep": {name: partial(_swept, name) for name in RATES},
        "tuned": {name: partial(_tuned, name, rate) for name, rate in CHOSEN.items() if rate != RATE},
    }


def _swept(name):
    return {f"{rate:g}": tried(name, rate) for rate in RATES[name]}


def _tuned(name, rate):
    return {str(seed): labelled(seed, rate) if name == LABELS else run(name, seed, rate) for seed in SEEDS}


def _seeds(name):
    return {str(seed): run(name, seed) for seed in SEEDS}


def _told(found):
    return [one.get("accuracy", one) if isinstance(one, dict) else one for one in found.values()]


FILE = "chapters/08_at_work/contrastive.json"
STUDY = Study("attnmath.contrastive_study", FILE, ("baselines", "runs", "sweep", "tuned"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
