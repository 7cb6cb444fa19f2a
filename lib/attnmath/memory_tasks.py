"""Recall against long memory: ``python -m attnmath.memory_tasks OUT.json`` trains small models of equal size on both.

Three models of two layers, which differ in what mixes the rows: causal attention with rotary positions, the diagonal
state space S4D, and Mamba-2's layer. Each has a convolution over four rows in front, and about as many parameters.
"""

import sys
from functools import partial

import numpy as np

from attnmath import shapes
from attnmath.state_shapes import mamba2_shapes
from attnmath.study import Study
from attnmath.tree import flatten

D, HEADS, STATES, LAYERS, BATCH, RATE = 32, 2, 16, 2, 32, 4e-3
INNER = 37  # channels of S4D, so that the three have about as many parameters
PAIRS, QUERIES, SYMBOLS = 16, 16, 24  # of the recall task: pairs shown, keys asked for, keys and values to draw from
FAR, NOISE, ANSWERS = 256, 4, 4  # of the far task: tokens of a text, symbols of noise, answers to draw from
STEPS = {"recall": 400, "digits": 300}
SEEDS = (0, 1, 2)
MIXERS = ("attention", "s4d", "mamba2")


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


def far(rng, batch: int = BATCH, length: int = FAR):
    """Noise with one answer in its first half, and a question at its end: which answer was it?

    Parameters
    ----------
    rng : NumPy's generator.
    batch : texts.
    length : tokens of a text, the question included.

    Returns
    -------
    ids, targets : (batch, length) integers; the targets are -1 but at the end. Noise is below NOISE, the ANSWERS
        symbols from there on are answers, and the next one is the question.

    Examples
    --------
    >>> ids, targets = far(np.random.default_rng(0), 1)
    >>> (place,) = np.flatnonzero((ids[0] >= NOISE) & (ids[0] < NOISE + ANSWERS))
    >>> bool(place < FAR // 2), bool(ids[0, place] == NOISE + targets[0, -1])
    (True, True)
    """
    ids, answers = rng.integers(0, NOISE, (batch, length)), rng.integers(0, ANSWERS, batch)
    ids[np.arange(batch), rng.integers(0, length // 2, batch)] = NOISE + answers
    ids[:, -1] = NOISE + ANSWERS
    targets = np.full(ids.shape, -1)
    targets[:, -1] = answers
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


def build(mixer: str, task: str, seed: int) -> dict:
    """The parameters of one model, as a flat dict of float32 tensors.

    Parameters
    ----------
    mixer, task : as in `sizes`.
    seed : of the random numbers.

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
        params[name] = torch.tensor(value, dtype=torch.float32, requires_grad=True)
    return params


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


def train(mixer: str, task: str, seed: int, steps: int | None = None) -> dict:
    """Train one model, and measure it on what it has not seen.

    Parameters
    ----------
    mixer, task, seed : as in `build`.
    steps : None takes all of STEPS.

    Returns
    -------
    A dict with the losses, one for each step, and the share of right answers at the end.

    Examples
    --------
    >>> first = train("s4d", "recall", 0, steps=1)["losses"][0]
    >>> bool(abs(first - np.log(SYMBOLS)) < 1)  # before it has learned anything it guesses
    True
    """
    import torch
    import torch.nn.functional as F

    torch.manual_seed(seed)
    rng, params, losses = np.random.default_rng([seed, 7]), build(mixer, task, seed), []
    draw, held = _data(task, rng)
    total = STEPS[task]
    adam = torch.optim.Adam(params.values(), RATE)
    for step in range(total if steps is None else steps):
        for group in adam.param_groups:
            group["lr"] = RATE * min((step + 1) / 50, (total - step) / (total / 2), 1)
        X, targets = draw()
        Z = logits(mixer, X, params)
        loss = F.cross_entropy(Z[targets >= 0], targets[targets >= 0])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        adam.step()
        losses.append(loss.item())
    with torch.no_grad():
        X, targets = held
        right = (logits(mixer, X, params).argmax(-1) == targets)[targets >= 0].float().mean()
    return {"losses": [round(x, 5) for x in losses], "accuracy": round(right.item(), 4)}


def _data(task, rng):
    """``draw()`` gives a batch, and what is held out for measuring."""
    import torch

    if task == "recall":
        held = tuple(map(torch.from_numpy, recall(np.random.default_rng(99), 256)))
        return (lambda: tuple(map(torch.from_numpy, recall(rng)))), held
    X, targets = digits()
    order = np.random.default_rng(99).permutation(len(X))
    X, targets = torch.tensor(X[order], dtype=torch.float32), torch.tensor(targets[order])

    def draw():
        rows = rng.integers(0, 1400, BATCH)
        return X[rows], targets[rows]

    return draw, (X[1400:], targets[1400:])


def _plan():
    runs = {
        f"{task} {mixer} {seed}": partial(train, mixer, task, seed)
        for task in STEPS
        for mixer in MIXERS
        for seed in SEEDS
    }
    return {"runs": runs}


STUDY = Study(
    "attnmath.memory_tasks",
    "chapters/07_outlook/memory_tasks.json",
    ("runs",),
    _plan,
    lambda run: run["accuracy"],
)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
