"""Rates, widths and batches: ``python -m attnmath.width_study OUT.json`` trains and measures what its page tells.

Every run is a decoder of two layers that reads windows of 32 tokens of docstrings, on one thread.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import torch

from attnmath import bpe
from attnmath.batch_noise import noise_scale
from attnmath.docs import docs
from attnmath.schedules import warmup, warmup_stable_decay
from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.torch.losses import cross_entropy
from attnmath.torch.training import rise_and_cosine
from attnmath.width import ScaledDecoder

DOCUMENTS, HELD, VOCABULARY = (600, 60, 60), 256, 512  # for training, validation, test; windows of both; tokens
HEADS, LAYERS, CONTEXT, BATCH, BASE = 4, 2, 32, 8, 32
SEEDS = (1, 2, 3)
WIDTHS = (32, 64, 128, 256)
STEPS, RISE = 200, 20  # all steps, and those of the rise
RATES = {  # of each width, as exponents of 2
    "standard": {32: range(-8, -3), 64: range(-8, -4), 128: range(-9, -5), 256: range(-10, -5)},
    "mup": {64: range(-8, -4), 128: range(-8, -4), 256: range(-7, -4)},  # at 32 the rules agree
}
TESTED = (  # the rate of the narrow model with both rules, and the best of the widest model under the standard one
    *(("standard", d, e) for d, e in ((32, -6), (256, -6), (256, -8))),
    *(("mup", d, -6) for d in (64, 128, 256)),
)
PEAKS, LONG, FALL, EVERY = range(-8, -3), 400, 80, 40  # for the schedules: their rates, steps, steps of the fall
POOL, READY, TRIED = 256, (0, 50, 100, 200, 400), 200  # windows; steps before the noise is measured, or steps tried
DRAWS, BATCHES, LENGTHS = 8, (4, 16, 64), tuple(0.1 * 2**i for i in range(9))  # repetitions; windows; of the steps
FIRST = 4  # losses that a test repeats

SCHEDULES: dict[str, Callable[[int, float], float]] = {
    "cosine": lambda s, rate: rise_and_cosine(s, rate, RISE, LONG),
    "warmup-stable-decay": lambda s, rate: warmup_stable_decay(s, rate, RISE, FALL, LONG),
    "inverse root": lambda s, rate: warmup(s, BASE, RISE, rate * (BASE * RISE) ** 0.5),
}


@cache
def text() -> tuple[np.ndarray, torch.Tensor, torch.Tensor]:
    """The tokens to learn from, and windows of the validation text and of the test, evenly spread."""
    data = docs()
    whole = zip((data.train, data.validation, data.test), DOCUMENTS, strict=True)
    parts = [[doc.text for doc in part[:n]] for part, n in whole]
    tokens = bpe.train(parts[0], VOCABULARY, (lm.END,))
    ids, *others = (lm.stream(tokens, part) for part in parts)
    return ids, *(windows(X, np.linspace(0, len(X) - CONTEXT - 1, HELD).astype(int)) for X in others)


def windows(ids: np.ndarray, starts: np.ndarray) -> torch.Tensor:
    """Rows of CONTEXT + 1 tokens from each start."""
    return torch.from_numpy(ids[starts[:, None] + np.arange(CONTEXT + 1)])


def loss(model, rows: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of a token, in nats."""
    return cross_entropy(model(rows[:, :-1]), rows[:, 1:])


def training(model, rate: Callable[[int], float], seed: int) -> Iterator[float]:
    """Train without end; each step gives its loss."""
    ids, rng = text()[0], np.random.default_rng((seed, 1))
    adam = torch.optim.AdamW(model.groups(), lr=0.0, betas=(0.9, 0.98), eps=1e-12, weight_decay=0.0, foreach=True)
    step = 0
    while True:
        step += 1
        for group in adam.param_groups:
            group["lr"] = rate(step) * group["scale"]
        value = loss(model, windows(ids, rng.integers(0, len(ids) - CONTEXT, BATCH)))
        adam.zero_grad()
        value.backward()
        adam.step()
        yield value.item()


def network(d: int, rule: str, seed: int) -> ScaledDecoder:
    """The decoder of a run."""
    return ScaledDecoder(VOCABULARY, d, HEADS, LAYERS, CONTEXT, base=BASE, rule=rule, seed=seed)


@torch.no_grad()
def held_out(model, part: int = 1) -> float:
    """The loss on the windows of the validation text, 1, or of the test, 2."""
    return round(loss(model, text()[part]).item(), 4)


def wide(rule: str, d: int, exponent: int, seed: int) -> dict:
    """One run of the comparison of widths: the validation loss after all steps."""
    model, losses = whole_run(rule, d, exponent, seed)
    return {"first": [round(value, 5) for value in losses[:FIRST]], "loss": held_out(model)}


def tested(rule: str, d: int, exponent: int, seed: int) -> float:
    """The test loss of such a run, of a rate that the validation loss chose."""
    return held_out(whole_run(rule, d, exponent, seed)[0], 2)


def whole_run(rule: str, d: int, exponent: int, seed: int) -> tuple[ScaledDecoder, list[float]]:
    """The model after all steps, and the losses of the steps."""
    model = network(d, rule, seed)
    run = training(model, lambda s: rise_and_cosine(s, 2.0**exponent, RISE, STEPS), seed)
    losses = [next(run) for _ in range(STEPS)]
    return model, losses


def scheduled(name: str, exponent: int, seed: int) -> dict:
    """One run of the comparison of schedules, at the base width: validation losses on the way and at the end."""
    model = network(BASE, "standard", seed)
    run = training(model, lambda s: SCHEDULES[name](s, 2.0**exponent), seed)
    curve = []
    for s in range(1, LONG + 1):
        next(run)
        if s % EVERY == 0:
            curve.append(held_out(model))
    return {"curve": curve, "loss": curve[-1], "test": held_out(model, 2)}


def noisy(seed: int) -> dict:
    """The noise scale of the gradient on a pool of windows after some steps, and what steps of each length gain."""
    ids, rng = text()[0], np.random.default_rng((seed, 2))
    pool, found, done = windows(ids, rng.integers(0, len(ids) - CONTEXT, POOL)), {}, 0
    model = network(BASE, "standard", seed)
    run = training(model, lambda s: rise_and_cosine(s, 2.0**-6, RISE, LONG), seed)
    for ready in READY:
        for _ in range(ready - done):
            next(run)
        done = ready
        G = torch.stack([gradient(model, row[None]) for row in pool])
        whole = G.mean(0)
        one, all_ = (float(X.double().square().sum(-1).mean()) for X in (G, whole))
        exact = (one - all_) / all_  # of draws from the pool with replacement, whose covariance is that of its rows
        picked = G[torch.from_numpy(rng.integers(0, POOL, (64, 4)))].mean(1)
        squares = [X.double().square().sum(-1).numpy() for X in (picked, picked.mean(0))]
        estimate = noise_scale(4, 256, *squares).scale
        found[str(ready)] = {"scale": round(exact, 2), "estimate": round(estimate, 2)}
        if ready == TRIED:
            gains = {str(B): [gain(model, pool, G, B, length, rng) for length in LENGTHS] for B in BATCHES}
            gains["all"] = [gain(model, pool, G, None, length, rng) for length in LENGTHS]
            found[str(ready)] |= {"gains": gains}
    return found


def gradient(model, rows: torch.Tensor) -> torch.Tensor:
    """The gradient of the mean loss of some windows, as one vector."""
    return torch.cat([P.flatten() for P in torch.autograd.grad(loss(model, rows), list(model.parameters()))])


@torch.no_grad()
def gain(model, pool, G, B: int | None, length: float, rng) -> float:
    """By how much a step of plain gradient descent lowers the loss of the pool, on average over batches of B."""
    params, before, gained = list(model.parameters()), loss(model, pool).item(), []
    start = torch.nn.utils.parameters_to_vector(params)
    for _ in range(DRAWS if B else 1):
        g = G[torch.from_numpy(rng.integers(0, len(G), B))].mean(0) if B else G.mean(0)
        torch.nn.utils.vector_to_parameters(start - length * g, params)
        gained.append(before - loss(model, pool).item())
    torch.nn.utils.vector_to_parameters(start, params)
    return round(float(np.mean(gained)), 5)


def optimum(exponents, losses) -> float:
    """The exponent at the lowest point of a parabola through the best loss and its two neighbours.

    Raises
    ------
    ValueError
        If the best loss stands at an end: then the rates do not reach far enough.

    Examples
    --------
    >>> optimum([-8, -7, -6, -5], [3.0, 2.0, 2.0, 3.0])
    -6.5
    """
    i = int(np.argmin(losses))
    if i in (0, len(losses) - 1):
        raise ValueError(f"the best of {len(losses)} losses is at an end, 2^{exponents[i]}; try rates beyond it")
    a, b, c = losses[i - 1 : i + 2]
    return float(exponents[i] + 0.5 * (a - c) / (a - 2 * b + c))


def _plan():
    settings = [(rule, d, e) for d in WIDTHS for rule in RATES for e in RATES[rule].get(d, ())]
    many = {
        "schedules": (scheduled, [(name, e, seed) for name in SCHEDULES for e in PEAKS for seed in SEEDS]),
        "noise": (noisy, [(seed,) for seed in SEEDS]),
        "widths": (wide, [(*one, seed) for seed in SEEDS for one in settings]),
        "tests": (tested, [(*one, seed) for one in TESTED for seed in SEEDS]),
    }
    return {part: {" ".join(map(str, one)): partial(f, *one) for one in all_} for part, (f, all_) in many.items()}


def _told(found):
    if isinstance(found, float):
        return found
    return found["loss"] if "loss" in found else [one["scale"] for one in found.values()]


FILE = "chapters/08_at_work/width_and_schedules.json"
STUDY = Study("attnmath.width_study", FILE, ("schedules", "noise", "widths", "tests"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
