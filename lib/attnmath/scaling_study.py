"""An IsoFLOP sweep of tiny language models: ``python -m attnmath.scaling_study OUT.json`` trains them, once each.

All models read the docstrings of `attnmath.docs` with one tokenizer. No run sees a token twice, and each has a
schedule of its own length.
"""

import sys
import tempfile
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnmath import bpe, count
from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.torch.training import Run

BASE = lm.Config(layers=2, vocabulary=512, context=64, epochs=1, batch=4)
WINDOW = BASE.batch * BASE.context  # tokens of a step
SWEEP = {  # operations: the widths of the models that spend them, and the seeds
    1e10: ((6, 8, 12, 16, 24, 32), (1, 2)),
    3e10: ((8, 12, 16, 24, 32, 48), (1, 2)),
    1e11: ((12, 16, 24, 32, 48, 64), (1,)),
    3e11: ((24, 32, 48, 64, 96), (1,)),
}
WATCHED, PARTS = (1e11, (16, 24, 32)), 10  # these are measured after each tenth of the run, on the way
THIN = 6  # every sixth document of a part is held out
FIRST = 4  # losses that a test repeats


class Data(NamedTuple):
    """The tokenizer, the training text as tokens, and of the held-out texts the tokens and the bytes.

    Attributes
    ----------
    tokens : 256 bytes, the end of a document, and pairs.
    train : (n,) the training text.
    held : for ``"validation"`` and ``"test"``, tokens (n,) and the bytes that they stand for.
    """

    tokens: bpe.BytePairs
    train: np.ndarray
    held: dict[str, tuple[np.ndarray, int]]


@cache
def data() -> Data:
    """The text of all runs."""
    texts = lm.docstrings()
    tokens = bpe.train(texts["train"], BASE.vocabulary, (lm.END,))
    thin = {part: texts[part][::THIN] for part in ("validation", "test")}
    held = {part: (lm.stream(tokens, some), lm.length(some)) for part, some in thin.items()}
    return Data(tokens, lm.stream(tokens, texts["train"]), held)


def parameters(d: int) -> int:
    """N, the weights that multiply: those of two layers of width d, and of the logits.

    Examples
    --------
    >>> parameters(64)
    131072
    """
    return count.transformer_parameters(d, 4 * d, BASE.layers, BASE.vocabulary)


def rate(d: int) -> float:
    """The highest learning rate of a model of width d, chosen on the validation text before the sweep."""
    return 0.2 * d**-0.75


def configuration(d: int, flops: float, seed: int) -> lm.Config:
    """The run of a model of width d that spends so many operations, to the nearest step."""
    parts = PARTS if flops == WATCHED[0] and d in WATCHED[1] else 1
    steps = round(flops / (6 * parameters(d) * WINDOW * parts))
    sizes = {"d": d, "heads": max(1, d // 16), "f": 4 * d}
    return replace(BASE, **sizes, epochs=parts, steps=steps, rate=rate(d), warmup=parts * steps // 10, seed=seed)


class Once(lm.Task):
    """`attnmath.tasks.lm.Task` that reads each window of the training text once at most.

    Raises
    ------
    ValueError
        If the text is shorter than what the run would read.
    """

    def __init__(self, config: lm.Config, data: Data, part: str = "test"):
        self.config, self.data, self.part = config, data, part
        self.per_epoch, self.total = config.steps, config.epochs * config.steps
        self.windows = (len(data.train) - 1) // config.context
        wanted = self.total * config.batch * config.context
        if wanted > self.windows * config.context:
            raise ValueError(f"the run reads {wanted} tokens and the text has {len(data.train)}; take a larger model")

    def model(self):
        return lm.LanguageModel(self.config, self.data.tokens)

    def epoch(self, number):
        size, c = self.config.batch, self.config
        order = np.random.default_rng(c.seed).permutation(self.windows)[: self.total * size] * c.context
        return order.reshape(c.epochs, c.steps, size)[number]

    def batch(self, chosen, device):
        import torch

        rows = self.data.train[np.asarray(chosen)[:, None] + np.arange(self.config.context + 1)]
        return torch.from_numpy(rows).to(device)

    def evaluate(self, model):
        ids, size = self.data.held[self.part]
        return {"bits": float(lm.surprise(model, ids, self.config.context).sum() / size)}

    def meta(self):
        return {}

    def result(self, model):
        return {}


def run(config: lm.Config, part: str = "test") -> dict:
    """Train one model; its bits per byte of the held-out text, at the end of each part of the run."""
    began, task = time.process_time(), Once(config, data(), part)
    with tempfile.TemporaryDirectory() as folder:
        found = Run(task, Path(folder)).fit(10**9, progress=False)
    return {
        "d": config.d,
        "N": parameters(config.d),
        "D": task.total * WINDOW,
        "bits": [round(one["bits"], 4) for one in found.history],
        "first": [round(loss, 5) for loss in found.losses[:FIRST]],
        "seconds": round(time.process_time() - began, 1),
    }


def plan() -> dict:
    """The runs by name, "1e+10 8 1" for 10^10 operations, width 8 and seed 1; first all of the first seed."""
    every = [(C, d, seed) for C, (widths, seeds) in SWEEP.items() for d in widths for seed in seeds]
    every.sort(key=lambda one: one[2])
    return {f"{C:.0e} {d} {seed}": partial(run, configuration(d, C, seed)) for C, d, seed in every}


def begin(name: str) -> list[float]:
    """The losses of the first steps of a run, to be held against the record."""
    task = Once(plan()[name].args[0], data())
    with tempfile.TemporaryDirectory() as folder:
        run = Run(task, Path(folder))
        for chosen in task.epoch(0)[:FIRST]:
            run._update(task.batch(chosen, run.device))
    return run.losses


def _told(found):
    return found["bits"][-1]


FILE = "chapters/08_at_work/scaling_laws.json"
STUDY = Study("attnmath.scaling_study", FILE, ("runs",), lambda: {"runs": plan()}, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
