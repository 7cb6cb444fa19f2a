"""One layer against two, and parity by length: ``python -m attnmath.limits_study OUT.json`` trains and measures.

Small encoders learn to look up in one table what another table says, with one layer and with two. Others learn the
parity of texts of at most 16 bits, and are asked about longer ones.
"""

import sys
from functools import partial

import numpy as np
import torch

import attnmath.torch as at
from attnmath import shapes
from attnmath.study import Study, descend
from attnmath.torch.modules import ParamTree

D, HEADS, F, BATCH = 32, 4, 64, 128
SEEDS = {"lookup": (1, 2, 3, 4, 5), "parity": (1, 2, 3)}
NAMES, LOOKUPS, LAYERS = 5, {1: 1500, 2: 750}, (1, 2)  # names of a table; steps by layers, so that both take as long
LONGEST, PARITY_STEPS = 16, 3000  # bits of the longest text of training
LENGTHS = (2, 4, 6, 8, 10, 12, 14, 15, 16, 17, 18, 20, 24, 32, 48)
RATES = {"lookup": 3e-3, "parity": 2e-3}
TRIED = (1e-3, 3e-3, 1e-2, 3e-2)  # rates of the lookups, for each number of layers, at the first seed
TUNED = {1: 0.03, 2: 0.003}  # what the sweep chooses
HELD = 2000  # texts on which a model is measured
FIRST = 4  # losses that a test repeats


class Reader(ParamTree):
    """An encoder that answers at its last row; without positions if ``n`` is 0."""

    def __init__(self, words: int, n: int, layers: int, answers: int):
        tables = {"word": {"weight": (words, D)}, "head": {"weight": (D, answers)}}
        tables |= {"place": {"weight": (n, D)}} if n else {}
        super().__init__({"encoder": shapes.encoder_shapes(D, F, layers=layers, norm=at.layer_norm), **tables})

    def forward(self, ids):
        """The logits of (texts, n) tokens, (texts, answers)."""
        params = self.tree()
        X = params["word"]["weight"][ids]
        X = X + params["place"]["weight"][: ids.shape[-1]] if "place" in params else X
        Y = at.encoder(X, params["encoder"], HEADS, join=partial(at.sublayer, norm_first=True))
        return Y[:, -1] @ params["head"]["weight"]


def lookups(rng, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts f(0) … g(0) … x of random tables, and what g(f(x)) is.

    Examples
    --------
    >>> ids, answers = lookups(np.random.default_rng(0), 1)
    >>> f, g, x = np.split(ids[0], [NAMES, 2 * NAMES])
    >>> bool(answers[0] == g[f[x[0]]])
    True
    """
    ids, rows = rng.integers(0, NAMES, (count, 2 * NAMES + 1)), np.arange(count)
    return ids, ids[rows, NAMES + ids[rows, ids[:, -1]]]


def bits(rng, count: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Random texts of n bits and an end token, 2, and whether the number of ones is odd.

    Examples
    --------
    >>> ids, odd = bits(np.random.default_rng(0), 1, 6)
    >>> ids[0, :-1].sum() % 2 == odd[0], int(ids[0, -1])
    (np.True_, 2)
    """
    text = rng.integers(0, 2, (count, n))
    return np.concatenate([text, np.full((count, 1), 2)], 1), text.sum(-1) % 2


def _loss(model, ids, answers):
    return torch.nn.functional.cross_entropy(model(torch.from_numpy(ids)), torch.from_numpy(answers))


@torch.no_grad()
def _right(model, ids, answers):
    return round(float((model(torch.from_numpy(ids)).argmax(-1).numpy() == answers).mean()), 4)


def _look_up(layers, seed, steps=None, rate=RATES["lookup"]):
    """A model of so many layers after its training on tables, the losses, and the shares on others on the way."""
    torch.manual_seed(seed)
    model, rng = Reader(NAMES, 2 * NAMES + 1, layers, NAMES), np.random.default_rng((seed, layers))
    held, log, plan = lookups(np.random.default_rng(9), HELD), [], LOOKUPS[layers]
    found = descend(
        list(model.parameters()),
        lambda: _loss(model, *lookups(rng, BATCH)),
        steps or plan,
        rate,
        plan=plan,
        look=lambda step: log.append([step, _right(model, *held)]),
        every=50,
    )
    return model, found, log


def look_up(layers: int, seed: int, steps: int | None = None) -> dict:
    """Train a model of so many layers on tables, and measure it on others."""
    _, found, log = _look_up(layers, seed, steps)
    return {"first": [round(loss, 5) for loss in found[:FIRST]], "log": log}


def tried(layers: int, rate: float, seed: int) -> dict:
    """The share of right answers at a rate, on the tables that choose and on those that decide."""
    model, _, log = _look_up(layers, seed, rate=rate)
    return {"choice": _right(model, *lookups(np.random.default_rng(10), HELD)), "held": log[-1][1]}


@torch.no_grad()
def at_length(model, n: int) -> dict:
    """What a model does on texts of n bits: right, its loss, and how far one bit moves the difference of its logits."""
    rng = np.random.default_rng((n, 9))
    ids, odd = bits(rng, HELD, n)
    Z = model(torch.from_numpy(ids))
    other, rows = ids.copy(), np.arange(HELD)
    places = rng.integers(0, n, HELD)
    other[rows, places] = 1 - other[rows, places]
    moved = (Z - model(torch.from_numpy(other))) @ torch.tensor([-1.0, 1.0])
    loss = torch.nn.functional.cross_entropy(Z, torch.from_numpy(odd)).item()
    right = float((Z.argmax(-1).numpy() == odd).mean())
    return {"right": round(right, 4), "loss": round(loss, 4), "moved": round(moved.abs().mean().item(), 4)}


def parity(seed: int, steps: int | None = None) -> dict:
    """Train a model on texts of up to LONGEST bits, and measure it by length."""
    torch.manual_seed(seed)
    model, rng = Reader(3, 0, 2, 2), np.random.default_rng((seed, 7))
    found = descend(
        list(model.parameters()),
        lambda: _loss(model, *bits(rng, BATCH, int(rng.integers(1, LONGEST + 1)))),
        steps or PARITY_STEPS,
        RATES["parity"],
        plan=PARITY_STEPS,
    )
    lengths = {} if steps else {str(n): at_length(model, n) for n in LENGTHS}
    return {"first": [round(loss, 5) for loss in found[:FIRST]], "lengths": lengths}


def _plan():
    return {
        "lookup": {f"{layers} {seed}": partial(look_up, layers, seed) for layers in LAYERS for seed in SEEDS["lookup"]},
        "parity": {str(seed): partial(parity, seed) for seed in SEEDS["parity"]},
        "sweep": {f"{layers} {rate:g}": partial(tried, layers, rate, 1) for layers in LAYERS for rate in TRIED},
        "tuned": {  # the runs at the rate of "lookup" are there
            f"{layers} {seed}": partial(tried, layers, TUNED[layers], seed)
            for layers in LAYERS
            if TUNED[layers] != RATES["lookup"]
            for seed in SEEDS["parity"]
        },
    }


def _told(found):
    if "choice" in found:
        return found
    return found["log"][-1] if "log" in found else {n: at["right"] for n, at in found["lengths"].items()}


FILE = "chapters/09_theory/limits.json"
STUDY = Study("attnmath.limits_study", FILE, ("lookup", "parity", "sweep", "tuned"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
