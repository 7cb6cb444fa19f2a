"""Recall with a rate for each model: ``python -m attnmath.tuned_recall OUT.json`` tunes and tests eight models.

The models and the task are those of `attnmath.side_by_side`; two kinds of attention that share a model come in both
orders. Each model's rate is chosen on validation texts with one seed, and three seeds are measured on other texts.
"""

import sys
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch

from attnmath import _require, memory_tasks
from attnmath import side_by_side as side
from attnmath.comparisons import Rival
from attnmath.study import Study

TASK, TUNING, SEEDS, TEXTS = "recall", 0, (0, 1, 2), 256
HELD = {"validation": 98, "accuracy": 99}  # the seeds of the texts that choose and of those that test
HYBRIDS = ("softmax + delta", "delta + softmax", "softmax + linear", "linear + softmax")
MIXERS = ("softmax", "linear", "performer", "delta", *HYBRIDS)
RATES = (3e-3, 1e-2, 3e-2)
FURTHER, TRIES = 2.5, 2  # a grid whose best is its end goes on by this factor, so often at most
BETWEEN = {"delta": 1.75e-2, "delta + softmax": 1.75e-2}  # one more, where the seeds of the chosen rate lay far apart


def sweep(mixer: str, score: Callable[[float], float] | None = None) -> list:
    """What each rate of one model gets on the validation texts; a grid whose best rate is its end is extended.

    Parameters
    ----------
    mixer : one of MIXERS.
    score : gives the score of a rate; None trains with the seed TUNING.

    Returns
    -------
    Pairs of a setting and its score, in the order in which they were tried.

    Examples
    --------
    >>> [setting["rate"] for setting, _ in sweep("softmax", lambda rate: rate)]
    [0.003, 0.01, 0.03, 0.075, 0.1875]
    """
    _require.choice("mixer", mixer, MIXERS)
    score = score or (lambda rate: _trained(mixer, TUNING, rate)["validation"])
    more = (BETWEEN[mixer],) if mixer in BETWEEN else ()
    tried = [[{"rate": rate}, score(rate)] for rate in (*RATES, *more)]
    for _ in range(TRIES):
        best, value = _best(tried)
        rates = [setting["rate"] for setting, _ in tried]
        if value == 1 or min(rates) < best < max(rates):
            break
        rate = float(f"{best * FURTHER if best == max(rates) else best / FURTHER:.6g}")
        tried.append([{"rate": rate}, score(rate)])
    return tried


def _best(tried):
    """The rate with the best score, of equals the first, and the score."""
    setting, value = Rival(tried=[(one, [found]) for one, found in tried]).best("higher")
    return setting["rate"], value


def rival(record: dict, mixer: str) -> Rival:
    """What a record says of one model: all that was tried, and the scores of the test.

    Examples
    --------
    >>> runs = {str(seed): {"accuracy": 0.5} for seed in SEEDS}
    >>> rival({"models": {"linear": {"sweep": [[{"rate": 0.01}, 0.6]], "runs": runs}}}, "linear").test
    [0.5, 0.5, 0.5]
    """
    found = record["models"][mixer]
    tried = [(setting, [score]) for setting, score in found["sweep"]]
    return Rival(tried, [found["runs"][str(seed)]["accuracy"] for seed in SEEDS])


def train(mixer: str, seed: int, rate: float, steps: int | None = None) -> dict:
    """Train one model, and measure it on the texts that choose and on those that test.

    Parameters
    ----------
    mixer, seed : as in `attnmath.side_by_side.build`.
    rate : the highest learning rate; it rises for 50 steps and falls to 0 in the second half.
    steps : how many are taken; None takes all, and measures.

    Returns
    -------
    A dict: the first losses, means of 20 losses each, and the shares of right answers.

    Examples
    --------
    >>> len(train("softmax + linear", 0, 1e-2, steps=2)["first"])
    2
    """
    model, total = side.build(mixer, TASK, seed), side.STEPS[TASK]
    draw, _ = side.data(TASK, np.random.default_rng([seed, 7]))
    take = side._stepping(model, draw, total, rate)
    losses = [take(step) for step in range(total if steps is None else steps)]
    found = {}
    if steps is None:
        with torch.no_grad():
            found = {name: side._accuracy(model, *texts(name))["accuracy"] for name in HELD}
    curve = [round(float(np.mean(losses[i : i + side.KEEP])), 4) for i in range(0, len(losses), side.KEEP)]
    return {"first": [round(x, 5) for x in losses[:4]], "curve": curve} | found


@cache
def _trained(mixer, seed, rate):
    """What `train` returns; the seed that tunes is one of the test's, and is not trained twice."""
    return train(mixer, seed, rate)


def texts(name: str):
    """Ids and targets of the texts that choose (``"validation"``) or test (``"accuracy"``).

    Examples
    --------
    >>> [tuple(texts(name)[0].shape) for name in HELD]
    [(256, 24), (256, 24)]
    """
    _require.choice("name", name, tuple(HELD))
    drawn = memory_tasks.recall(np.random.default_rng(HELD[name]), TEXTS, side.PAIRS)
    ids, targets = map(torch.from_numpy, drawn)
    return ids, torch.where(targets < 0, -1, targets + side.OFFSET[TASK])


def _tuned(mixer):
    tried = sweep(mixer)
    rate, _ = _best(tried)
    return {"sweep": tried, "runs": {str(seed): _trained(mixer, seed, rate) for seed in SEEDS}}


def _plan():
    return {"models": {mixer: partial(_tuned, mixer) for mixer in MIXERS}}


STUDY = Study(
    "attnmath.tuned_recall",
    "chapters/07_outlook/tuned_recall.json",
    ("models",),
    _plan,
    lambda found: [run["accuracy"] for run in found["runs"].values()],
)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
