"""What training makes of the functions that a Transformer can certainly write down: a smooth one, and a random table.

The model has two layers with two heads and residual connections, ReLU and no norm, as the stacks of
`attnmath.universal` have, and about a thousand parameters.
"""

import sys
from functools import partial

import numpy as np
import torch

import attnmath.torch as at
from attnmath.study import Study, descend

FILE = "chapters/09_theory/universal.json"
WIDTH, HIDDEN, LAYERS, HEADS = 8, 16, 2, 2
BATCH, RATE, SEEDS, FIRST = 256, 0.02, (1, 2, 3, 4, 5), 5
TRIED = (0.006, 0.02, 0.06, 0.2)  # rates for each goal of 1,000 steps, at the first seed
TUNED = {"smooth": 0.02, "table": 0.06, "long": 0.02}  # what the sweep chooses
CELLS = 8  # of the table, along each side


def smooth(X):
    """The larger number for the first token, the product for the second.

    Examples
    --------
    >>> smooth(torch.tensor([[0.5, 0.25]]))
    tensor([[0.5000, 0.1250]])
    """
    return torch.stack([X.max(-1).values, X.prod(-1)], -1)


def random_table():
    """(2, 8, 8) of 0 and 1, drawn once: the answer of each token in each cell."""
    return np.random.default_rng(0).choice([0.0, 1.0], (2, CELLS, CELLS))


def tabled(X):
    """The entries of `random_table` at the cells of X.

    Examples
    --------
    >>> tabled(torch.tensor([[0.0, 1.0]])).shape
    torch.Size([1, 2])
    """
    a, b = (X * CELLS).long().clamp(max=CELLS - 1).unbind(-1)
    T = torch.tensor(random_table(), dtype=X.dtype)
    return torch.stack([T[0, a, b], T[1, a, b]], -1)


GOALS = {"smooth": smooth, "table": tabled, "long": tabled}  # the table again, with more steps
STEPS = {"smooth": 1000, "table": 1000, "long": 6000}


def start(seed: int) -> dict:
    """Weights before training."""
    rng = torch.Generator().manual_seed(seed)

    def affine(a, b):
        weight = torch.randn(a, b, generator=rng) / a**0.5
        return {"weight": weight.requires_grad_(), "bias": torch.zeros(b, requires_grad=True)}

    parts = ("query", "key", "value", "output")
    return {
        "read": affine(3, WIDTH),
        "answer": affine(WIDTH, 1),
        "attention": [{name: affine(WIDTH, WIDTH) for name in parts} for _ in range(LAYERS)],
        "network": [{"up": affine(WIDTH, HIDDEN), "down": affine(HIDDEN, WIDTH)} for _ in range(LAYERS)],
    }


def leaves(tree) -> list:
    """All tensors of nested dicts and lists."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [leaf for part in (tree.values() if isinstance(tree, dict) else tree) for leaf in leaves(part)]


def answers(params: dict, X):
    """(b, 2) numbers to (b, 2) answers; each token sees its number and which of the two it is.

    Examples
    --------
    >>> answers(start(1), torch.rand(3, 2)).shape
    torch.Size([3, 2])
    """
    Z = torch.cat([X[..., None], torch.eye(2).expand(len(X), 2, 2)], -1)
    Z = Z @ params["read"]["weight"] + params["read"]["bias"]
    for heads, network in zip(params["attention"], params["network"], strict=True):
        Z = Z + at.multi_head_attention(Z, Z, Z, heads, HEADS)
        Z = Z + at.feed_forward(Z, network, torch.relu)
    return (Z @ params["answer"]["weight"] + params["answer"]["bias"])[..., 0]


def train(goal: str, seed: int, steps: int | None = None, rate: float = RATE):
    """The weights and the losses of a run; the plan of the rate is that of the whole run."""
    params, rng = start(seed), torch.Generator().manual_seed(seed)

    def loss():
        X = torch.rand(BATCH, 2, generator=rng)
        return ((answers(params, X) - GOALS[goal](X)) ** 2).mean()

    plan = STEPS[goal]
    return params, descend(leaves(params), loss, plan if steps is None else steps, rate, plan=plan)


def run(goal: str, seed: int) -> dict:
    """Train, and measure the root of the mean square of the error inside the square and on [1, 2] x [1, 2]."""
    params, losses = train(goal, seed)
    X = torch.rand(10_000, 2, generator=torch.Generator().manual_seed(100 + seed))
    with torch.no_grad():
        errors = {"inside": answers(params, X) - GOALS[goal](X)}
        if goal == "smooth":
            errors["outside"] = answers(params, X + 1) - smooth(X + 1)
    found = {name: round(float((e**2).mean() ** 0.5), 5) for name, e in errors.items()}
    size = sum(leaf.numel() for leaf in leaves(params))
    return {"first": [round(value, 5) for value in losses[:FIRST]], "parameters": size} | found


def tried(goal: str, rate: float, seed: int) -> dict:
    """The error at a rate, on the inputs that choose and on those that decide."""
    params, _ = train(goal, seed, rate=rate)
    found = {}
    for name, start_at in (("choice", 200), ("inside", 100)):
        X = torch.rand(10_000, 2, generator=torch.Generator().manual_seed(start_at + seed))
        with torch.no_grad():
            found[name] = round(float(((answers(params, X) - GOALS[goal](X)) ** 2).mean() ** 0.5), 5)
    return found


def _plan():
    return {
        "runs": {f"{goal} {seed}": lambda goal=goal, seed=seed: run(goal, seed) for goal in GOALS for seed in SEEDS},
        "sweep": {f"{goal} {rate:g}": partial(tried, goal, rate, 1) for goal in ("smooth", "table") for rate in TRIED},
        "tuned": {  # the runs at RATE are there
            f"{goal} {seed}": partial(tried, goal, TUNED[goal], seed)
            for goal in GOALS
            if TUNED[goal] != RATE
            for seed in SEEDS[:3]
        },
    }


STUDY = Study("attnmath.universal_study", FILE, ("runs", "sweep", "tuned"), _plan, lambda found: found["inside"])
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
