"""Recall against long memory: ``python -m attnmath.memory_tasks OUT.json`` tunes and tests small models on both.

Three models of two layers, which differ in what mixes the rows: causal attention with rotary positions, the diagonal
state space S4D, and Mamba-2's layer. Each has a convolution over four rows in front, and about as many parameters.
Each is tried with six settings or seven, one seed and data that do not test choose, and three seeds are measured.
"""

import math
import sys
from collections.abc import Mapping
from functools import partial

import numpy as np

from attnmath import _require, shapes
from attnmath.comparisons import Rival
from attnmath.state_shapes import mamba2_shapes
from attnmath.study import Study
from attnmath.tree import flatten

D, HEADS, STATES, LAYERS, BATCH = 32, 2, 16, 2, 32
INNER = 37  # channels of S4D, so that the three have about as many parameters
PAIRS, QUERIES, SYMBOLS = 16, 16, 24  # of the recall task: pairs shown, keys asked for, keys and values to draw from
STEPS = {"recall": 400, "digits": 300}
LENGTH = {"recall": 2 * PAIRS + QUERIES, "digits": 64}
HELD = {"validation": slice(1100, 1400), "accuracy": slice(1400, None)}  # of the digits; those before them train
KEEP = 20  # steps share one mean loss in the record
SEEDS, TUNING = (0, 1, 2), 0  # seeds of the test, and the one that chooses
MIXERS = ("attention", "s4d", "mamba2")
STARTS = ("published", "adapted")  # of a state space: as published programs draw it, or as long as the text
PUBLISHED_STEPS, PUBLISHED_RATES = (1e-3, 1e-1), (1, 16)
RATES = dict.fromkeys(MIXERS, (3e-3, 1e-2, 3e-2))
RATES["attention"] = (1e-3, 2e-3, 5e-3, 8e-3, 1.2e-2, 3e-2)  # it has one start, and as many settings
FURTHER = {  # where the best was the end of its grid
    ("recall", "s4d"): ({"rate": 6e-2, "start": "adapted"},),
    ("digits", "mamba2"): ({"rate": 6e-2, "start": "published"},),
}
CHOSEN = {  # the best on the data that choose; a test holds them against the record
    ("recall", "attention"): {"rate": 8e-3},
    ("recall", "s4d"): {"rate": 3e-2, "start": "adapted"},
    ("recall", "mamba2"): {"rate": 1e-2, "start": "adapted"},
    ("digits", "attention"): {"rate": 1.2e-2},
    ("digits", "s4d"): {"rate": 1e-2, "start": "published"},
    ("digits", "mamba2"): {"rate": 3e-2, "start": "published"},
}
BEHIND = ("recall", "mamba2", {"rate": 3e-2, "start": "published"})  # the best of the other start, measured too


def recall(rng, batch: int = BATCH, pairs: int = PAIRS):
    """Pairs of a key and a value, then keys in another order: the value of each of these is asked for.

    Parameters
    ----------
    rng : NumPy's generator.
    batch : texts.
    pairs : that are shown, at most SYMBOLS; QUERIES of them are asked for, or all if they are fewer.

    Returns
    -------
    ids, targets : (batch, 2 pairs + queries) integers; the targets are -1 where nothing is asked.

    Examples
    --------
    >>> ids, targets = recall(np.random.default_rng(0), 1)
    >>> asked = ids[0, -1]  # its key was shown once, and the value behind it is the target
    >>> place = ids[0].tolist().index(asked)
    >>> bool(ids[0, place + 1] == SYMBOLS + targets[0, -1])
    True
    """
    keys = np.argsort(rng.random((batch, SYMBOLS)))[:, :pairs]
    values = rng.integers(0, SYMBOLS, (batch, pairs))
    order = np.argsort(rng.random((batch, pairs)))[:, :QUERIES]
    shown = np.stack([keys, SYMBOLS + values], -1).reshape(batch, -1)
    ids = np.concatenate([shown, np.take_along_axis(keys, order, 1)], 1)
    targets = np.full(ids.shape, -1)
    targets[:, 2 * pairs :] = np.take_along_axis(values, order, 1)
    return ids, targets


def digits():
    """Scikit-learn's handwritten digits, one of 64 pixels after the other, from 0 to 1; the digit is asked at the end.

    Returns
    -------
    X, targets : (1797, 64) floats and integers, -1 but at the end.

    Examples
    --------
    >>> X, targets = digits()
    >>> X.shape, targets[0, -2:].tolist()
    ((1797, 64), [-1, 0])
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    targets = np.full(data.data.shape, -1)
    targets[:, -1] = data.target
    return data.data / 16, targets


def sizes(mixer: str, task: str) -> dict:
    """The shapes of one model's parameters, as a flat dict.

    Parameters
    ----------
    mixer : one of MIXERS.
    task : ``"recall"`` or ``"digits"``.

    Examples
    --------
    >>> from math import prod
    >>> {mixer: sum(map(prod, sizes(mixer, "recall").values())) for mixer in MIXERS}
    {'attention': 11104, 's4d': 11092, 'mamba2': 11436}
    """
    layer = {
        "attention": {"conv": (4, D), **shapes.attention_shapes(D, HEADS)},
        "s4d": {"conv": (4, D), "input": (D, INNER), "output": (INNER, D), "step": (INNER,), "skip": (INNER,)}
        | dict.fromkeys("ABC", (INNER, STATES // 2, 2)),
        "mamba2": mamba2_shapes(D, D, STATES, HEADS),
    }[mixer]
    out = SYMBOLS if task == "recall" else 10
    tree = {"word": (2 * SYMBOLS if task == "recall" else 2, D), "head": (D, out), "norm": (D,)}
    tree["layers"] = {str(i): {"mix": layer, "gain": (D,)} for i in range(LAYERS)}
    return flatten(tree)


def build(mixer: str, task: str, seed: int, start: str | None = None) -> dict:
    r"""The parameters of one model, as a flat dict of float32 tensors.

    .. math:: \Delta=e^z,\ z\sim U(\log10^{-3},\log10^{-1}),\qquad r\sim U(1,16)

    Parameters
    ----------
    mixer, task : as in `sizes`.
    seed : of the random numbers.
    start : how a state space forgets at first. ``"published"`` draws the steps, and Mamba-2's rates, as the published
        programs do, by the formula. ``"adapted"`` fits them to a text of n rows: S4D draws its steps from
        :math:`0.64/n` to :math:`32/n`, and a head of Mamba-2, whose steps lie between 0.01 and 0.5, has a half-life of
        2 n rows. None draws steps from 0.01 to 0.5, and Mamba-2's rates from 1 to 8.

    Examples
    --------
    >>> build("attention", "recall", 0)["word"].shape
    torch.Size([48, 32])
    """
    import torch

    from attnmath.numpy.state_space import legs_diagonal

    rng = np.random.default_rng([seed, MIXERS.index(mixer)])
    params = {}
    for name, shape in sizes(mixer, task).items():
        fan = shape[0] if len(shape) == 2 and "word" not in name else 1
        value = rng.standard_normal(shape) * fan**-0.5
        last = name.rpartition(".")[2]
        if last in ("gain", "norm", "skip"):
            value = np.ones(shape)
        elif last == "bias":
            value = np.zeros(shape)
        elif last == "rate":
            value = np.log(rng.uniform(1, 8, shape))
        elif last == "step":  # a time that fits into some 50 rows; Mamba-2's passes through softplus
            value = rng.uniform(np.log(0.01), np.log(0.5), shape)
            value = np.log(np.expm1(np.exp(value))) if mixer == "mamba2" else value
        elif last in "AB" and mixer == "s4d":
            A, B = legs_diagonal(STATES)
            A = np.stack([np.log(-A[:, 0]), A[:, 1]], -1)
            value = np.broadcast_to(A if last == "A" else B, shape)
        params[name] = value
    if start is not None:
        params |= _begun(mixer, params, LENGTH[task], start, np.random.default_rng([seed, MIXERS.index(mixer), 1]))
    return {name: torch.tensor(X, dtype=torch.float32, requires_grad=True) for name, X in params.items()}


def _begun(mixer, params, n, start, rng):
    """The first steps of a state space, and Mamba-2's rates."""
    _require.choice("start", start, STARTS)
    low, high = PUBLISHED_STEPS if start == "published" else (0.01, 0.5) if mixer == "mamba2" else (0.64 / n, 32 / n)
    begun = {}
    for name in params:
        if name.endswith("step"):
            steps = np.exp(rng.uniform(math.log(low), math.log(high), params[name].shape))
            begun[name] = np.log(steps)
            if mixer == "mamba2":  # its steps pass through softplus, its rates through an exponential
                rates = rng.uniform(*PUBLISHED_RATES, steps.shape)
                rates = rates if start == "published" else math.log(2) / (2 * n * steps)
                begun |= {name: np.log(np.expm1(steps)), name.removesuffix("step") + "rate": np.log(rates)}
    return begun


def mix(mixer, Z, p):
    """What a layer adds to its rows."""
    import torch
    import torch.nn.functional as F

    import attnmath.torch as at

    if mixer == "mamba2":
        return at.mamba2(Z, p)
    past = F.pad(Z, (0, 0, 3, 0))
    U = sum(past[..., s : s + Z.shape[-2], :] * w for s, w in enumerate(p["conv"]))
    if mixer == "attention":
        rows = at.causal_mask(Z.shape[-2])
        params = {name: p[name] for name in ("query", "key", "value", "output")}
        return at.multi_head_attention(U, U, U, params, HEADS, rows, turn=at.rotary)
    U = F.silu(U @ p["input"])
    A = torch.stack([-p["A"][..., 0].exp(), p["A"][..., 1]], -1)
    Y = at.state_space(U, A, p["B"], p["C"], p["step"].exp())
    return F.gelu(Y + p["skip"] * U) @ p["output"]


def logits(mixer, X, params):
    """(batch, n, classes) from ids or pixels."""
    import torch

    import attnmath.torch as at
    from attnmath.tree import unflatten

    tree = unflatten(params)
    H = tree["word"][X] if X.dtype == torch.int64 else X[..., None] * tree["word"][0] + tree["word"][1]
    for layer in tree["layers"].values():
        H = H + mix(mixer, at.rms_norm(H, layer["gain"]), layer["mix"])
    return at.rms_norm(H, tree["norm"]) @ tree["head"]


def settings(task: str, mixer: str) -> list[dict]:
    """What is tried for one model: learning rates, and for a state space each of them with each start.

    Examples
    --------
    >>> [len(settings("recall", mixer)) for mixer in MIXERS]
    [6, 7, 6]
    """
    _require.choice("mixer", mixer, MIXERS)
    starts = ({},) if mixer == "attention" else [{"start": start} for start in STARTS]
    return [{"rate": rate, **start} for start in starts for rate in RATES[mixer]] + list(FURTHER.get((task, mixer), ()))


def train(mixer: str, task: str, seed: int, setting: Mapping, steps: int | None = None) -> dict:
    """Train one model, and measure it on what it has not seen.

    Parameters
    ----------
    mixer, task, seed : as in `build`.
    setting : one of `settings`. The rate is the highest one: it rises for 50 steps and falls to 0 in the second half.
    steps : how many are taken; None takes all of STEPS, and measures.

    Returns
    -------
    A dict with the first losses, means of KEEP losses each, and the shares of right answers on the data that choose
    (``"validation"``) and on those that test (``"accuracy"``).

    Examples
    --------
    >>> first = train("s4d", "recall", 0, {"rate": 1e-2, "start": "adapted"}, steps=1)["first"][0]
    >>> bool(abs(first - np.log(SYMBOLS)) < 1)  # before it has learned anything it guesses
    True
    """
    import torch
    import torch.nn.functional as F

    torch.manual_seed(seed)
    rng, params, losses = np.random.default_rng([seed, 7]), build(mixer, task, seed, setting.get("start")), []
    draw, held = _data(task, rng)
    total, rate = STEPS[task], setting["rate"]
    adam = torch.optim.Adam(params.values(), rate)
    for step in range(total if steps is None else steps):
        for group in adam.param_groups:
            group["lr"] = rate * min((step + 1) / 50, (total - step) / (total / 2), 1)
        X, targets = draw()
        Z = logits(mixer, X, params)
        loss = F.cross_entropy(Z[targets >= 0], targets[targets >= 0])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        adam.step()
        losses.append(loss.item())
    curve = [round(float(np.mean(losses[i : i + KEEP])), 4) for i in range(0, len(losses), KEEP)]
    found = {"first": [round(x, 5) for x in losses[:4]], "curve": curve}
    if steps is not None:
        return found
    with torch.no_grad():
        for part, (X, targets) in held.items():
            right = (logits(mixer, X, params).argmax(-1) == targets)[targets >= 0].float().mean()
            found[part] = round(right.item(), 4)
    return found


def _data(task, rng):
    """``draw()`` gives a batch, and what is held out for choosing and for measuring."""
    import torch

    if task == "recall":
        seeds = {"validation": 98, "accuracy": 99}
        held = {part: tuple(map(torch.from_numpy, recall(np.random.default_rng(s), 256))) for part, s in seeds.items()}
        return (lambda: tuple(map(torch.from_numpy, recall(rng)))), held
    X, targets = digits()
    order = np.random.default_rng(99).permutation(len(X))
    X, targets = torch.tensor(X[order], dtype=torch.float32), torch.tensor(targets[order])

    def draw():
        rows = rng.integers(0, HELD["validation"].start, BATCH)
        return X[rows], targets[rows]

    return draw, {part: (X[rows], targets[rows]) for part, rows in HELD.items()}


def named(task: str, mixer: str, setting: Mapping, seed: int) -> str:
    """The name of a run in the record.

    Examples
    --------
    >>> named("recall", "s4d", {"rate": 0.005, "start": "adapted"}, 1)
    'recall s4d 0.005 adapted 1'
    """
    return " ".join(
        [task, mixer, f"{setting['rate']:g}", *([setting["start"]] if "start" in setting else []), str(seed)]
    )


def rival(runs: Mapping[str, Mapping], task: str, mixer: str, start: str | None = None) -> Rival:
    """What the runs of a record say of one model, or of one of its starts: all that was tried, and the test.

    Examples
    --------
    >>> score = {"validation": 0.5, "accuracy": 0.6}
    >>> runs = {named("recall", "s4d", one, seed): score for one in settings("recall", "s4d") for seed in SEEDS}
    >>> rival(runs, "recall", "s4d").test
    [0.6, 0.6, 0.6]
    """
    tried = [(one, [runs[named(task, mixer, one, TUNING)]["validation"]]) for one in settings(task, mixer)]
    tried = [(one, score) for one, score in tried if start in (None, one.get("start"))]
    best, _ = Rival(tried).best("higher")
    return Rival(tried, [runs[named(task, mixer, best, seed)]["accuracy"] for seed in SEEDS])


def _plan():
    every = [(task, mixer) for task in STEPS for mixer in MIXERS]
    wanted = [(*one, setting, TUNING) for one in every for setting in settings(*one)]
    chosen = [(*one, CHOSEN[one]) for one in every if one in CHOSEN]
    chosen = [(*run, seed) for run in (*chosen, BEHIND) for seed in SEEDS]
    runs = {named(t, m, setting, seed): partial(train, m, t, seed, setting) for t, m, setting, seed in wanted + chosen}
    return {"runs": runs}


STUDY = Study(
    "attnmath.memory_tasks",
    "chapters/07_outlook/memory_tasks.json",
    ("runs",),
    _plan,
    lambda run: (run["validation"], run["accuracy"]),
)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
