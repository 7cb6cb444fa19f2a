"""The models of Chapter 7 tuned and tested: ``python -m attnmath.side_by_side_study OUT.json``.

The models and tasks are those of `attnmath.side_by_side`. Validation scores choose the settings of each model. Then
three seeds are measured on the test, and some of the models once more in the time that softmax attention needs.
"""

import sys
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import _require, memory_starts
from attnmath import side_by_side as side
from attnmath.comparisons import Rival
from attnmath.study import Study

STEPS = {"recall": 400, "digits": 100}
SEEDS = (0, 1, 2)  # of the test; the first of them tune
KEEP = 20  # steps that share a loss in the record
ALONE = tuple(mixer for mixer in side.SINGLE if mixer != "experts")  # its attention is softmax attention
WHO = {"recall": tuple(side.MIXERS), "digits": ALONE}
RATES = {  # of a model with one start
    "recall": (3e-3, 1e-2, 2e-2, 3e-2),
    "digits": (1e-3, 2e-3, 4e-3, 8e-3, 1.2e-2, 1.6e-2, 3.2e-2, 6.4e-2),
}
STARTED = ("decay", "mamba-2", "s4d")  # their time of forgetting has to start somewhere
OF_STARTED = (3e-3, 1e-2, 3e-2)
LEARN = ("softmax", "linear", "performer", "delta")  # these, and the hybrids that they make
QUICK = LEARN[1:]  # they train in equal time as well, for recall
LONGER = ("linear",)  # it trains twice as long as well
FURTHER, TRIES = 2.5, 2  # a grid whose best is its end goes on by this factor, so often at most


def settings(mixer: str, task: str) -> list[dict]:
    """The settings from which the search for a model's best one starts.

    Parameters
    ----------
    mixer : one of `attnmath.side_by_side.MIXERS`.
    task : one of STEPS.

    Examples
    --------
    >>> len(settings("softmax", "recall")), len(settings("decay", "digits")), settings("decay", "digits")[0]
    (4, 6, {'rate': 0.003, 'start': 'published'})
    """
    _require.choice("mixer", mixer, tuple(side.MIXERS))
    _require.choice("task", task, tuple(STEPS))
    if mixer in STARTED:
        return [{"rate": rate, "start": start} for start in memory_starts.STARTS for rate in OF_STARTED]
    return [{"rate": rate} for rate in RATES[task]]


def tuning(mixer: str, task: str) -> tuple[int, ...]:
    """The seeds that choose: two of the models that learn to recall, where seeds differ most, and one of the others.

    Examples
    --------
    >>> tuning("delta", "recall"), tuning("delta + softmax", "recall"), tuning("decay", "recall")
    ((0, 1), (0, 1), (0,))
    """
    return SEEDS[:2] if task == "recall" and set(mixer.split(" + ")) <= set(LEARN) else SEEDS[:1]


def sweep(mixer: str, task: str, score: Callable[[int, dict], float] | None = None) -> list:
    """What each setting of one model gets on the validation data; a grid whose best rate is its end is extended.

    Parameters
    ----------
    mixer, task : as in `settings`.
    score : gives the score of a seed with a setting; None trains, and a training whose numbers break down gets 0.

    Returns
    -------
    Pairs of a setting and its scores, one for each seed of `tuning`, in the order in which they were tried.

    Examples
    --------
    >>> [setting["rate"] for setting, _ in sweep("softmax", "recall", lambda seed, setting: setting["rate"])][-2:]
    [0.075, 0.1875]
    """
    score = score or partial(_validation, mixer, task)

    def tried_once(setting):
        return [setting, [score(seed, setting) for seed in tuning(mixer, task)]]

    tried = [tried_once(setting) for setting in settings(mixer, task)]
    for _ in range(TRIES):
        best, value = chosen(tried)
        rates = [setting["rate"] for setting, _ in tried if {**setting, "rate": 0} == {**best, "rate": 0}]
        if value == 1 or min(rates) < best["rate"] < max(rates):
            break
        rate = best["rate"] * FURTHER if best["rate"] == max(rates) else best["rate"] / FURTHER
        tried.append(tried_once(best | {"rate": float(f"{rate:.6g}")}))
    return tried


def chosen(tried: list) -> tuple[dict, float]:
    """The setting of a sweep with the best mean of its scores, and this mean; of equals the first.

    Examples
    --------
    >>> chosen([[{"rate": 0.1}, [0.9, 0.3]], [{"rate": 0.2}, [0.7, 0.7]], [{"rate": 0.3}, [0.7, 0.7]]])
    ({'rate': 0.2}, 0.7)
    """
    return Rival([(setting, scores) for setting, scores in tried]).best("higher")


def rival(record: dict, task: str, mixer: str, part: str = "runs") -> Rival:
    """What a record says of one model: all that was tried, and the scores of the test.

    Parameters
    ----------
    record : the content of the file.
    task, mixer : as in `settings`.
    part : ``"runs"``, ``"equal time"`` or ``"longer"``; a model without this part keeps its scores.

    Examples
    --------
    >>> found = {"sweep": [[{"rate": 0.01}, [0.6, 0.5]]], "runs": [{"accuracy": 0.5}] * 3}
    >>> rival({"models": {"recall linear": found}}, "recall", "linear").test
    [0.5, 0.5, 0.5]
    """
    found = record["models"][f"{task} {mixer}"]
    return Rival(
        [(setting, scores) for setting, scores in found["sweep"]],
        [run["accuracy"] for run in found.get(part, found["runs"])],
    )


def train(mixer: str, task: str, seed: int, setting: dict, steps: int | None = None, total: int | None = None) -> dict:
    """Train one model, and measure it on what it has not seen.

    Parameters
    ----------
    mixer, task : as in `settings`.
    seed : of the first parameters and of what trains.
    setting : the learning rate, and ``"start"`` if there is one to choose.
    steps : how many are taken; None takes all.
    total : the steps of the whole training, for which the learning rate is planned; None is STEPS.

    Returns
    -------
    A dict: the first losses, means of KEEP losses each, the seconds of one core, and after all steps the share of right
    answers about what chooses (``"validation"``) and about what tests (``"accuracy"``).

    Examples
    --------
    >>> first = train("delta", "recall", 0, {"rate": 4e-3}, steps=1)["first"][0]
    >>> bool(abs(first - np.log(side.VOCABULARY["recall"])) < 1)  # before it has learned anything it guesses
    True
    """
    total = STEPS[task] if total is None else total
    model = side.build(mixer, task, seed, setting.get("start", "adapted"))
    draw, held = side.data(task, np.random.default_rng([seed, 7]))
    take, start = _stepping(model, draw, total, setting["rate"]), time.process_time()
    losses = [take(step) for step in range(total if steps is None else steps)]
    seconds = time.process_time() - start
    with torch.no_grad():
        found = {name: _accuracy(model, *texts) for name, texts in held.items()} if steps is None else {}
    curve = [round(float(np.mean(losses[i : i + KEEP])), 4) for i in range(0, len(losses), KEEP)]
    first = [round(x, 5) for x in losses[:4]]
    return {"first": first, "curve": curve} | found | {"seconds": round(seconds, 1)}


def _accuracy(model, ids, targets):
    return round((model(ids).argmax(-1) == targets)[targets >= 0].float().mean().item(), 4)


def _stepping(model, draw, total, rate):
    """``take(step)`` takes one step of the training and returns its loss; the rate rises for an eighth of all steps."""
    adam = torch.optim.Adam(model.parameters(), rate, fused=True)

    def take(step):
        for group in adam.param_groups:
            group["lr"] = rate * min((step + 1) / (total / 8), (total - step) / (total / 2), 1)
        ids, targets = draw()
        loss = F.cross_entropy(model(ids)[targets >= 0], targets[targets >= 0])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return loss.item()

    return take


@cache
def _trained(mixer, task, seed, setting):
    """What `train` returns; a seed that tunes is one of the test's, and is not trained twice."""
    return train(mixer, task, seed, dict(setting))


def _validation(mixer, task, seed, setting):
    try:
        return _trained(mixer, task, seed, tuple(setting.items()))["validation"]
    except ValueError:  # at a high rate all features of a query may become 0, and linear attention refuses to divide
        return 0.0


@cache
def steps_in_equal_time(mixer: str, task: str, rounds: int = 15) -> int:
    """How many steps a model can take in the time that softmax attention needs for all of STEPS.

    Parameters
    ----------
    mixer, task : as in `settings`.
    rounds : in each of them both models take four steps, one model after the other; the median of the ratios counts.

    Returns
    -------
    The number of steps, from the time of one core of this machine.

    Examples
    --------
    >>> 100 < steps_in_equal_time("delta", "recall", rounds=2) < 800
    True
    """
    draw, _ = side.data(task, np.random.default_rng(0))
    takes = [_stepping(side.build(name, task, 0), draw, 10**6, 4e-3) for name in ("softmax", mixer)]
    ratios = []
    for _ in range(rounds + 1):
        seconds = []
        for take in takes:
            start = time.process_time()
            for step in range(4):
                take(step)
            seconds.append(time.process_time() - start)
        ratios.append(seconds[0] / seconds[1])
    return round(STEPS[task] * float(np.median(ratios[1:])))  # the first round warms up


def find(mixer: str, task: str) -> dict:
    """Tune one model on one task, and test it.

    Parameters
    ----------
    mixer, task : as in `settings`.

    Returns
    -------
    A dict: the ``"sweep"``, and the ``"runs"`` of SEEDS with the setting that was chosen, and what `more` adds.
    """
    tried = sweep(mixer, task)
    best, _ = chosen(tried)
    found = {"sweep": tried, "runs": [_trained(mixer, task, seed, tuple(best.items())) for seed in SEEDS]}
    return found | more(mixer, task, best)


def more(mixer: str, task: str, setting: dict) -> dict:
    """The runs in equal time and those of twice as many steps, for recall.

    Parameters
    ----------
    mixer, task : as in `settings`.
    setting : as in `train`.

    Returns
    -------
    A dict: for the models of QUICK the number of ``"steps"`` in equal time and the runs of ``"equal time"``, and for
    those of LONGER the runs of twice as many steps, ``"longer"``.

    Examples
    --------
    >>> more("softmax", "recall", {"rate": 1e-2}), more("linear", "digits", {"rate": 1e-2})
    ({}, {})
    """
    found = {}
    if task == "recall" and mixer in QUICK:
        found["steps"] = steps_in_equal_time(mixer, task)
        found["equal time"] = [train(mixer, task, seed, setting, total=found["steps"]) for seed in SEEDS]
    if task == "recall" and mixer in LONGER:
        found["longer"] = [train(mixer, task, seed, setting, total=2 * STEPS[task]) for seed in SEEDS]
    return found


def _plan():
    models = {f"{task} {mixer}": partial(find, mixer, task) for task in STEPS for mixer in WHO[task]}
    times = {name: partial(_times, name) for name in (*side.cores(), "s4d")}
    return {"models": models, "times": times}


def _times(name):
    return [side.measure(name, n) for n in side.LENGTHS]


def _tell(found):
    return [run["accuracy"] for run in found["runs"]] if isinstance(found, dict) else found


STUDY = Study("attnmath.side_by_side_study", "chapters/07_outlook/side_by_side.json", ("models", "times"), _plan, _tell)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
