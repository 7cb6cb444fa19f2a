"""What a Vision Transformer learns of 748 digits: ``python -m attnmath.vision_study OUT.json`` trains and measures.

Each run is a preset of ``python -m attnmath.train vit`` with another seed; the support vectors and the neighbours see
the same pictures.
"""

import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.stats import rankdata

from attnmath.digits import SIDE, Digits, Part, digits, scrambled, shifted, turned
from attnmath.rollout import attention_rollout
from attnmath.study import Study
from attnmath.tasks import vit
from attnmath.torch.training import Run

RUNS = {  # what is changed of the preset "book", and the seeds
    "vit": ({}, (1, 2, 3)),
    "conv": ({"model": "conv"}, (1, 2, 3)),
    "moved": ({"shift": 1}, (1, 2, 3)),
    "none": ({"positions": "none"}, (1, 2, 3)),
    "grid": ({"positions": "grid"}, (1, 2, 3)),
    "scrambled": ({}, (1, 2, 3)),
    "conv scrambled": ({"model": "conv"}, (1, 2, 3)),
}
ANGLES = (-30, -20, -10, 0, 10, 20, 30)
STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))
ORDER = np.random.default_rng(7).permutation(16)  # of the patches, in the runs on scrambled pictures
SHOWN = (0, 1, 2, 3)  # of the test pictures
FIRST = 4  # losses that a test repeats
RATES, TRIED = (1e-3, 3e-3, 1e-2), 1  # of the two networks of the first comparison, and the seed that compares them
SWEPT = ("vit", "conv")


def data(name: str) -> Digits:
    """The pictures of a run."""
    parts = digits()
    if "scrambled" not in name:
        return parts
    return Digits(*(Part(scrambled(part.X, ORDER, 2), part.y) for part in parts))


def task(name: str, seed: int, **changed) -> vit.Task:
    """The task of one run, with other settings if they are given."""
    return vit.Task(replace(vit.PRESETS["book"], **RUNS[name][0], seed=seed, **changed), data(name))


def moved(predict, test) -> dict:
    """The accuracy on the test pictures moved by one pixel (mean of four directions) and turned by each angle."""
    step = np.mean([(predict(shifted(test.X, *by)) == test.y).mean() for by in STEPS])
    return {
        "step": round(float(step), 4),
        "turned": [round(float((predict(turned(test.X, angle)) == test.y).mean()), 4) for angle in ANGLES],
    }


def run(name: str, seed: int, **changed) -> dict:
    """Train one model, with other settings if they are given, and measure it."""
    began, one = time.process_time(), task(name, seed, **changed)
    with tempfile.TemporaryDirectory() as folder:
        found = Run(one, Path(folder)).fit(10**9, progress=False)
    model, test = found.model, one.data.test
    record = {
        "first": [round(loss, 5) for loss in found.losses[:FIRST]],
        "parameters": sum(P.numel() for P in model.parameters()),
        "train": round(vit.accuracy(model, *one.data.train), 4),
        "validation": round(vit.accuracy(model, *one.data.validation), 4),
        "wrong": np.flatnonzero(vit.predict(model, test.X) != test.y).tolist(),
    } | moved(lambda X: vit.predict(model, X), test)
    if name == "vit" and not changed:
        record |= explained(model, test, shown=seed == 1)
    return record | {"seconds": round(time.process_time() - began, 1)}


@torch.no_grad()
def maps(model, X) -> tuple:
    """Of each picture: the rollout's mean row, what erasing a patch takes from the chosen logit, and the raw weights.

    Pictures are (b, 1, 8, 8). The raw weights are those of each head of the last layer, the mean of their rows.
    """
    model.eval()
    given, record = torch.from_numpy(X), {}
    Z = model(given, record=record)
    layers = [layer["attention"]["weights"].numpy() for layer in record["layers"].values()]
    best, rows = Z.argmax(-1, keepdim=True), SIDE // model.size
    lost = []
    for i, j in np.ndindex(rows, rows):
        erased = given.clone()
        erased[..., i * model.size : (i + 1) * model.size, j * model.size : (j + 1) * model.size] = 0
        lost.append((Z - model(erased)).gather(-1, best)[:, 0].numpy())
    return attention_rollout(np.stack(layers)).mean(-2), np.stack(lost, -1), layers[-1].mean(-2)


def rank_correlation(A, B) -> float:
    """Spearman's correlation of each row of A with the same of B, on average over the rows in which both vary."""
    A, B = (rankdata(X, axis=-1) - (X.shape[-1] + 1) / 2 for X in (A, B))
    length = np.sqrt((A * A).sum(-1) * (B * B).sum(-1))
    return float(((A * B).sum(-1)[length > 0] / length[length > 0]).mean())


def explained(model, test, shown: bool) -> dict:
    """How the rollout, and the ink alone, agree with what erasing each patch does."""
    rollout, lost, raw = maps(model, test.X)
    rows = SIDE // model.size
    ink = test.X.reshape(-1, rows, model.size, rows, model.size).sum((2, 4)).reshape(len(test.y), -1)
    record = {
        "rollout": round(rank_correlation(rollout, lost), 4),
        "ink": round(rank_correlation(ink, lost), 4),
        "rollout and ink": round(rank_correlation(rollout, ink), 4),
    }
    if shown:
        record["maps"] = [[np.round(M[i], 4).tolist() for M in (rollout, lost)] for i in SHOWN]
        record["heads"] = [np.round(raw[i], 4).tolist() for i in SHOWN]
    return record


def baselines() -> dict:
    """Support vectors and nearest neighbours: settings chosen on the validation part, then the test, once."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    parts = digits()
    flat = [part.X.reshape(len(part.y), -1) for part in parts]
    around = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    many = np.concatenate([shifted(parts.train.X, *by).reshape(len(flat[0]), -1) for by in around])
    kinds = {
        "svm": ([SVC(C=10, gamma=gamma) for gamma in (0.06, 0.12, 0.25)], flat[0], 1),
        "neighbours": ([KNeighborsClassifier(k) for k in (3, 5, 7)], flat[0], 1),
        "svm moved": ([SVC(C=10, gamma=gamma) for gamma in (0.12, 0.25)], many, len(around)),
    }
    found = {}
    for name, (models, X, times) in kinds.items():
        scores = [model.fit(X, np.tile(parts.train.y, times)).score(flat[1], parts.validation.y) for model in models]
        best = models[int(np.argmax(scores))]
        found[name] = {
            "tried": [round(score, 4) for score in scores],
            "chosen": {key: best.get_params()[key] for key in ("C", "gamma", "n_neighbors") if hasattr(best, key)},
            "validation": round(max(scores), 4),
            "wrong": np.flatnonzero(best.predict(flat[2]) != parts.test.y).tolist(),
        } | moved(lambda X, best=best: best.predict(X.reshape(len(X), -1)), parts.test)
    return found


def swept(name: str) -> dict:
    """The validation accuracy of one seed with each rate."""
    return {f"{rate:g}": run(name, TRIED, rate=rate)["validation"] for rate in RATES}


def _plan():
    return {
        "baselines": baselines,
        "sweep": {name: partial(swept, name) for name in SWEPT},
        "runs": {name: partial(_seeds, name) for name in RUNS},
    }


def _seeds(name):
    return {str(seed): run(name, seed) for seed in RUNS[name][1]}


def _told(found):
    return [len(one["wrong"]) for one in found.values()]


FILE = "chapters/08_at_work/vision_transformer.json"
STUDY = Study("attnmath.vision_study", FILE, ("baselines", "sweep", "runs"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
