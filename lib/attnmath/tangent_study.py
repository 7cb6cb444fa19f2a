"""Heads that hardly move: ``python -m attnmath.tangent_study OUT.json`` trains layers beside their straight lines.

Layers of 1 to 1024 heads learn eight sentences by gradient descent, beside their linearisation. Then layers learn to
choose a marked token, which takes weights that move.
"""

import sys
from functools import cache, partial

import numpy as np

from attnmath.study import Study
from attnmath.tangent_kernel import descend, first_weights, linear_change, many_heads, moved, tangent_kernel

WIDTH = 4  # of a head
HEADS, SEEDS = (1, 4, 16, 64, 256, 1024), tuple(range(1, 9))
M, N, D, STEPS = 8, 5, 6, 300
WATCH = (0, 10, 30, 100, 300)
LIMIT = 40  # draws of 256 heads whose kernels are averaged
CHOICE_HEADS, CHOICE_SEEDS = (1, 4, 16, 64), (1, 2, 3, 4, 5)
CHOICE = {"m": 100, "n": 6, "d": 16}  # training sentences, their tokens, components
HELD, MARK, CHOICE_STEPS = 400, 3.0, 1000
RICH = 8.0  # the targets of a layer of 16 heads that has to move


def rms(A) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(A))))


def draw(heads: int, seed: int, d: int):
    """A layer before training: its model and its weights."""
    rng = np.random.default_rng((seed, heads))
    return partial(many_heads, heads=heads), first_weights(rng, heads, d=d, width=WIDTH)


# eight sentences -----------------------------------------------------------------------------------------------------


def sentences():
    """Eight random sentences of five tokens, with the targets 1 and -1 in turn."""
    return np.random.default_rng(7).standard_normal((M, N, D)), np.where(np.arange(M) % 2, 1.0, -1.0)


@cache
def limit_kernel():
    """The mean kernel of 10,240 heads, and the rate of all runs: 0.3 over its largest eigenvalue."""
    X, _ = sentences()
    K = np.mean([tangent_kernel(*draw(256, 1000 + seed, D), X) for seed in range(LIMIT)], 0)
    return K, 0.3 / np.linalg.eigvalsh(K)[-1]


def learn(heads: int, seed: int) -> dict:
    """Train one layer on the eight sentences, and measure it against its own line and that of the limit."""
    X, y = sentences()
    limit, rate = limit_kernel()
    model, theta = draw(heads, seed, D)
    K, f = tangent_kernel(model, theta, X), model(X, theta)[0]
    after, path = descend(model, theta, X, y, rate, STEPS, watch=WATCH)
    own, far = (f + linear_change(kernel, f - y, WATCH, rate=rate) for kernel in (K, limit))
    found = {"own": rms(path - own), "limit": rms(path - far), "moved": moved(theta, after)}
    found["turned"] = rms(tangent_kernel(model, after, X) - K) / rms(limit)
    found |= {"start": rms(K - limit) / rms(limit), "left": rms(path[-1] - y)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


# a marked token ------------------------------------------------------------------------------------------------------


def marked(rng, m: int, n: int, d: int):
    """Sentences of random tokens of which one has a mark in its first component; the target is its third component.

    The last token is the same in all sentences. It asks, and has nothing else to say.
    """
    X = rng.standard_normal((m, n, d))
    X[:, :, :2] = 0
    X[:, -1] = d**0.5 * np.eye(d)[1]
    at = rng.integers(0, n - 1, m)
    X[np.arange(m), at, 0] = MARK
    return X, X[np.arange(m), at, 2]


def choose(heads: int, seed: int, targets: float = 1.0, steps: int = CHOICE_STEPS) -> dict:
    """Train one layer to choose; mean squared errors on its own and on other sentences, and those of its line."""
    rng = np.random.default_rng((3, seed))
    (X, y), (Z, z) = marked(rng, **CHOICE), marked(rng, **CHOICE | {"m": HELD})
    model, theta = draw(heads, seed, CHOICE["d"])
    K, cross = tangent_kernel(model, theta, X), tangent_kernel(model, theta, Z, X)
    rate = 0.2 / np.linalg.eigvalsh(K)[-1]
    f, g = model(X, theta)[0], model(Z, theta)[0]
    after, _ = descend(model, theta, X, targets * y, rate, steps)
    line = g + linear_change(K, f - targets * y, [steps], rate=rate, cross=cross)[0]
    found = {"own": model(X, after)[0] - targets * y, "others": model(Z, after)[0] - targets * z}
    found["line"] = line - targets * z
    errors = {name: rms(error / targets) ** 2 for name, error in found.items()} | {"moved": moved(theta, after)}
    return {name: float(f"{value:.4g}") for name, value in errors.items()}


def plan() -> dict:
    """All runs by name."""
    lines = {f"{h}.{s}": partial(learn, h, s) for h in HEADS for s in SEEDS}
    choices = {f"{h}.{s}": partial(choose, h, s) for h in CHOICE_HEADS for s in CHOICE_SEEDS}
    choices |= {f"rich.{s}": partial(choose, 16, s, RICH) for s in CHOICE_SEEDS}
    return {"lines": lines, "choices": choices}


STUDY = Study("attnmath.tangent_study", "chapters/09_theory/tangent_kernel.json", ("lines", "choices"), plan)


if __name__ == "__main__":
    sys.exit(STUDY.main())
