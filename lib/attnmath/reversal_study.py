"""Strings written in reverse: ``python -m attnmath.reversal_study OUT.json`` tunes and tests four networks on them.

A network with a fixed vector and three with attention read a string and write it, in reverse or as it is.
"""

import sys
from functools import partial

import torch

import attnmath.torch as at
from attnmath.study import Study

A, h, LONGEST = 26, 32, 12  # letters, width of a state, longest string of training
LENGTHS = range(2, 17)  # of the tests
STEPS, BATCH, RATES = 400, 64, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
LONGER, SLOWER = 1600, (3e-3, 1e-2)  # steps and rates of the control: does a fixed vector learn with patience?
CHOOSING, SEEDS = 11, (2, 3, 4)
TUNED = {  # what the validation strings choose
    "fixed vector reverse": 1e-2,
    "fixed vector copy": 3e-3,
    "Bahdanau reverse": 1e-2,
    "Luong, general reverse": 1e-2,
    "Luong, dot reverse": 3e-2,
    "Luong, general copy": 1e-2,
}
ORDERS = "reverse", "copy"
ONE_HOT = torch.eye(A + 1)  # the 27th symbol starts the output


def batch(n: int, size: int, g: torch.Generator, order: str = "reverse") -> tuple:
    """Random strings of n letters, what is to be written, and the decoder's input: the right previous letters."""
    x = torch.randint(A, (size, n), generator=g)
    y = x.flip(1) if order == "reverse" else x
    return x, y, torch.cat([torch.full((size, 1), A), y[:, :-1]], 1)


def encode(p: dict, x: torch.Tensor) -> torch.Tensor:
    """All states of the encoder."""
    return at.rnn(ONE_HOT[x], torch.zeros(len(x), h), *p["encoder"])


def readout(p: dict, *parts: torch.Tensor) -> torch.Tensor:
    """The logits of the next letter."""
    return torch.tanh(torch.cat(parts, -1) @ p["output"][0]) @ p["output"][1]


def fixed(p: dict, x: torch.Tensor, y_in: torch.Tensor) -> tuple:
    """The decoder that gets the last state of the encoder and nothing else."""
    return readout(p, at.rnn(ONE_HOT[y_in], encode(p, x)[:, -1], *p["decoder"])), None


def luong(score, p: dict, x: torch.Tensor, y_in: torch.Tensor) -> tuple:
    """The decoder that attends with its new state, after its recurrence; the states are the queries."""
    states = encode(p, x)
    S = at.rnn(ONE_HOT[y_in], states[:, -1], *p["decoder"])
    return readout(p, S, at.general_attention(S, states, states, score, p["score"])), S


def bahdanau(p: dict, x: torch.Tensor, y_in: torch.Tensor) -> tuple:
    """The decoder that attends with its previous state, and takes what it finds into the next one."""
    states = encode(p, x)
    s, queries, found = states[:, -1], [], []
    for y in ONE_HOT[y_in].split(1, dim=1):
        queries.append(s)
        c = at.general_attention(s[:, None], states, states, at.additive_score, p["score"])
        s = at.rnn(torch.cat([y, c], -1), s, *p["decoder"])[:, 0]
        found.append(torch.cat([s, c[:, 0]], -1))
    return readout(p, torch.stack(found, 1)), torch.stack(queries, 1)


MODELS = {
    "fixed vector": fixed,
    "Bahdanau": bahdanau,
    "Luong, general": partial(luong, at.multiplicative_score),
    "Luong, dot": partial(luong, at.dot_score),
}


def start(name: str, g: torch.Generator) -> dict:
    """The first weights of a model."""

    def gauss(*shape):
        return torch.randn(*shape, generator=g) / shape[0] ** 0.5

    def recurrent(d):
        return gauss(d, h), torch.linalg.qr(gauss(h, h))[0], torch.zeros(h)

    feeds, joins = name == "Bahdanau", name != "fixed vector"
    p = {"encoder": recurrent(A + 1), "decoder": recurrent(A + 1 + h * feeds), "score": ()}
    p["output"] = gauss(h + h * joins, h), gauss(h, A)
    if feeds:
        p["score"] = gauss(h, h), gauss(h, h), gauss(h)
    elif name == "Luong, general":
        p["score"] = (gauss(h, h),)
    return {part: tuple(x.requires_grad_() for x in xs) for part, xs in p.items()}


def train(name: str, order: str = "reverse", rate: float = 1e-2, seed: int = 2, steps: int = STEPS) -> dict:
    """Adam on strings of one random length in each step; the rate is constant for two thirds and then falls to 0."""
    g = torch.Generator().manual_seed(seed)
    p = start(name, g)
    weights = [x for xs in p.values() for x in xs]
    optimiser = torch.optim.Adam(weights, lr=rate)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * min(1, 3 * (1 - step / steps))
        x, y, y_in = batch(int(torch.randint(2, LONGEST + 1, (1,), generator=g)), BATCH, g, order)
        loss = torch.nn.functional.cross_entropy(MODELS[name](p, x, y_in)[0].flatten(0, 1), y.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
    return p


@torch.no_grad()
def accuracy(name: str, p: dict, order: str = "reverse", strings: str = "test") -> list[float]:
    """The share of letters that are right, for each length, on 500 strings of the test or of the validation."""
    g, found = torch.Generator().manual_seed({"test": 1, "validation": 5}[strings]), []
    for n in LENGTHS:
        x, y, y_in = batch(n, 500, g, order)
        right = MODELS[name](p, x, y_in)[0].argmax(-1) == y
        found.append(round(right.double().mean().item(), 4))
    return found


def tried(name: str, order: str, rate: float, steps: int = STEPS) -> list[float]:
    """One setting, trained from the seed that chooses, on the validation strings."""
    return accuracy(name, train(name, order, rate, CHOOSING, steps), order, "validation")


def tested(name: str, order: str, seed: int) -> list[float]:
    """The chosen setting, trained from another seed, on the test strings."""
    return accuracy(name, train(name, order, TUNED[f"{name} {order}"], seed), order)


def plan() -> dict:
    """All runs, by the part of the record that they belong to."""
    cases = [tuple(key.rsplit(" ", 1)) for key in TUNED]
    patient = [(name, order) for name, order in cases if name == "fixed vector"]
    return {
        "sweep": {f"{n} {o} {r:g}": partial(tried, n, o, r) for n, o in cases for r in RATES},
        "longer": {f"{n} {o} {r:g}": partial(tried, n, o, r, LONGER) for n, o in patient for r in SLOWER},
        "test": {f"{n} {o} {s}": partial(tested, n, o, s) for n, o in cases for s in SEEDS},
    }


FILE = "chapters/01_introduction/history.json"
STUDY = Study("attnmath.reversal_study", FILE, ("sweep", "longer", "test"), plan)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
