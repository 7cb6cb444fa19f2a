"""Rivals in training: ``python -m attnmath.training_study OUT.json`` runs what Chapter 6 compares at several rates.

Each part gives all its rivals the same rates. One seed (or other data) chooses, and three seeds or more decide.
"""

import sys
from functools import cache, partial
from itertools import pairwise, product

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import shapes
from attnmath.metrics import calibration_error
from attnmath.study import Study
from attnmath.tree import flatten, map_tree

CHOOSING, SEEDS = 3, (0, 1, 2)  # the seed that chooses a rate, and those that decide
STARTS = {"at once": False, "warm-up": True}  # a post-norm decoder of six layers: does the rate rise?
NORMS = {"plain": False, "normalised": True}  # two layers of attention: are queries and keys normalised?
WAYS = {"none": (0.0, 0.0), "sub-layers": (0.2, 0.0), "weights": (0.0, 0.2)}  # rates of dropout
LIMITS = {"no clipping": 1e30, "limit 0.1": 0.1}
RATES = {
    "starts": (1e-3, 3e-3, 1e-2, 3e-2),
    "norms": (3e-3, 1e-2, 3e-2, 1e-1),
    "drops": (2e-3, 6e-3, 2e-2),
    "clips": (5e-3, 5e-2, 1.6e-1, 5e-1),
    "smooths": (3e-3, 1e-2, 3e-2),
}
LOOKS = range(10, 121, 10)  # steps at which the digits are looked at
MARKS = (10, 20, 40, 80, 150, 300)  # and those at which a calibration is measured
AMOUNTS = (0.0, 0.1)
REGIMES = {"1000 clean": (1000, 0.0), "500 noisy": (500, 0.2)}  # examples, and the share of labels drawn anew


def short(values) -> list[float]:
    """Numbers of four digits."""
    return [float(f"{value:.4g}") for value in values]


def started(name: str, rate: float, seed: int, n: int = 4, letters: int = 10, steps: int = 80) -> list[float]:
    """The losses of a decoder on validation and test strings, after it has learned to write four letters backwards."""
    torch.manual_seed(seed)
    options = {"tie": False, "join": partial(at.sublayer, norm_first=False)}
    model = at.DecoderOnly(letters + 1, 32, 2, 64, layers=6, positions=2 * n, norm=None, **options)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)

    def loss(size, data):
        word = torch.randint(letters, (size, n), generator=data)
        text = torch.cat([word, torch.full((size, 1), letters), word.flip(1)], 1)
        return F.cross_entropy(model(text[:, :-1])[:, n:].flatten(0, 1), text[:, n + 1 :].flatten())

    data = torch.Generator().manual_seed(100 + seed)
    for s in range(1, steps + 1):
        adam.param_groups[0]["lr"] = rate * min(1, s / 40) if STARTS[name] else rate
        value = loss(16, data)
        adam.zero_grad()
        value.backward()
        adam.step()
    with torch.no_grad():
        return short(loss(400, torch.Generator().manual_seed(strings)).item() for strings in (7, 8))


@shapes.declares(lambda k: {})  # its parameters: none
def gainless(X: torch.Tensor) -> torch.Tensor:
    """RMSNorm without a gain."""
    return at.rms_norm(X, torch.ones(X.shape[-1]))


def normed(
    name: str, rate: float, seed: int, steps: int = 130, symbols: int = 10, length: int = 8, d: int = 32
) -> list:
    """The mean loss of the last 20 steps of two layers that reverse a string, and their largest score."""
    normalise, symbols = NORMS[name], 10
    attention = partial(at.multi_head_attention, norm=gainless if normalise else None)
    join = partial(at.sublayer, norm_first=True)
    parts = {"heads": 2, "norm": at.layer_norm, "attention": attention, "join": join}
    sizes = {"word": (symbols, d), "position": (length, d)}
    sizes["stack"] = shapes.encoder_shapes(d, 2 * d, 2, **parts)
    torch.manual_seed(seed)
    model = at.ParamTree(sizes | {"out": {"weight": (d, symbols)}})
    adam = torch.optim.Adam(model.parameters(), rate, betas=(0.9, 0.98))
    data, path = torch.Generator().manual_seed(5 + seed), []
    for _ in range(steps):
        ids = torch.randint(symbols, (32, length), generator=data)
        p, seen = model.tree(), []

        def watched(Q, K, V, seen=seen):
            seen.append(at.scaled_dot_score(Q, K).detach().abs().max().item())
            return at.attention_fused(Q, K, V)

        X = 1.7 * (p["word"][ids] + p["position"])
        Z = at.affine(at.encoder(X, p["stack"], attend=watched, **parts), p["out"])
        loss = F.cross_entropy(Z.flatten(0, 1), ids.flip(1).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        path.append((loss.item(), max(seen)))
    losses, scores = np.array(path).T
    return [round(float(losses[-20:].mean()), 4), float(f"{scores[-20:].mean():.4g}")]


@cache
def pixels() -> tuple[torch.Tensor, torch.Tensor]:
    """The handwritten digits, their rows of pixels as tokens, and what they are."""
    images, digits = load_digits(return_X_y=True)
    return torch.tensor(images.reshape(-1, 8, 8) / 16, dtype=torch.float32), torch.tensor(digits)


def logits(x, params, drop=None, drop_weights=None, record=None) -> torch.Tensor:
    """One layer of attention with four heads on the rows of a digit."""
    X = x @ params["input"] + params["position"]
    X = X if drop is None else drop(X)
    options = {"join": partial(at.sublayer, norm_first=True, drop=drop), "record": record}
    if drop_weights is not None:
        options["attend"] = partial(at.attention, drop=drop_weights)
    return at.encoder(X, params["encoder"], 4, **options).mean(dim=-2) @ params["output"]


def without_top(P: torch.Tensor) -> torch.Tensor:
    """The largest weight of each row removed, the others as they were."""
    return P * (P < P.max(dim=-1, keepdim=True).values)


def dropped(name: str, rate: float, seed: int, d: int = 32) -> dict[str, list[float]]:
    """At each look: losses on validation and test, accuracies with and without each row's top key, keys of a row."""
    images, digits = pixels()
    torch.manual_seed(seed)
    order = torch.randperm(len(images))
    learn, judge, choose = order[:100], order[100:500], order[500:900]
    layout = shapes.encoder_shapes(d, 2 * d, layers=1, norm=at.layer_norm)
    tree = shapes.random_tree(layout, np.random.default_rng(seed), d**-0.5)
    params = {"encoder": at.from_numpy(tree), "input": torch.randn(8, d) / 8**0.5}
    params["position"] = 0.3 * torch.randn(8, d)
    params["output"] = torch.randn(d, 10) / d**0.5
    params = map_tree(lambda X: X.float().requires_grad_(), params)
    dice = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(flatten(params).values(), rate)
    drops, rows = [at.random_dropout(r, dice) if r else None for r in WAYS[name]], []
    for step in range(1, LOOKS[-1] + 1):
        loss = F.cross_entropy(logits(images[learn], params, *drops), digits[learn])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step in LOOKS:
            rows.append(graded(images, digits, params, choose, judge))
    names = ("validation", "test", "accuracy", "cut", "keys")
    return {key: short(column) for key, column in zip(names, zip(*rows, strict=True), strict=True)}


@torch.no_grad()
def graded(images, digits, params, choose, judge) -> tuple[float, ...]:
    """What is measured at a look."""
    record = {}
    Z = [logits(images[i], params, record=record) for i in (choose, judge)]
    cut = logits(images[judge], params, drop_weights=without_top).argmax(-1) == digits[judge]
    P = record["layers"]["0"]["attention"]["weights"]
    keys = (-(P * P.clamp_min(1e-30).log()).sum(-1)).exp().mean()
    losses = (F.cross_entropy(z, digits[i]) for z, i in zip(Z, (choose, judge), strict=True))
    found = *losses, (Z[1].argmax(-1) == digits[judge]).float().mean(), cut.float().mean(), keys
    return tuple(x.item() for x in found)


def clipped(name: str, rate: float, seed: int, h: int = 16, n: int = 40, steps: int = 200) -> list[float]:
    """A plain recurrent network that remembers a sign: its mean squared error at the end, and its largest gradient."""
    rng = np.random.default_rng(seed)
    p = {"W": rng.standard_normal((2, h)), "U": 1.3 * rng.standard_normal((h, h)) / h**0.5, "b": np.zeros(h)}
    out, norms, losses = rng.standard_normal(h) / h**0.5, [], []
    for _ in range(steps):
        X, sign = np.zeros((16, n, 2)), rng.choice([-1.0, 1.0], 16)
        X[..., 0], X[:, 0, 1] = 0.3 * rng.standard_normal((16, n)), sign
        H, vjp = an.rnn(X, np.zeros((16, h)), *p.values())
        error = H[:, -1] @ out - sign
        dH = np.zeros_like(H)
        dH[:, -1] = error[:, None] * out / 8
        grads = dict(zip((*p, "out"), (*vjp(dH)[2:], error @ H[:, -1] / 8), strict=True))
        grads, norm = an.clip_by_norm(grads, LIMITS[name])
        p, out = {k: p[k] - rate * grads[k] for k in p}, out - rate * grads["out"]
        norms.append(norm)
        losses.append((error**2).mean())
    return short((np.mean(losses[-30:]), max(norms)))


def smoothed(regime: str, eps: float, rate: float, runs: int = 5, size: int = 64) -> dict[str, list]:
    """At each mark, for each of five divisions of the data: calibration errors on 200 and 400 answers, accuracy."""
    count, noise = REGIMES[regime]
    images, digits = load_digits(return_X_y=True)
    X, labels = np.empty((runs, *images.shape)), np.empty((runs, len(digits)), int)
    for s in range(runs):
        r = np.random.default_rng(s)
        order, lie = r.permutation(len(digits)), r.random(len(digits)) < noise
        labels[s] = np.where(lie, r.integers(10, size=len(digits)), digits)[order]
        X[s] = images[order] / 16
    torch.manual_seed(0)
    params = [torch.randn(runs, a, b, dtype=torch.float64) / a**0.5 for a, b in pairwise((64, size, 10))]
    params += [torch.zeros(runs, 1, b, dtype=torch.float64) for b in (size, 10)]
    W1, W2, b1, b2 = (P.requires_grad_() for P in params)
    X, y = torch.from_numpy(X), torch.from_numpy(labels)
    optimiser, found = torch.optim.Adam(params, lr=rate), {}
    for step in range(1, MARKS[-1] + 1):
        Z = torch.relu(X[:, :count] @ W1 + b1) @ W2 + b2
        optimiser.zero_grad()
        at.cross_entropy(Z, y[:, :count], smoothing=eps).backward()
        optimiser.step()
        if step in MARKS:
            with torch.no_grad():
                P = torch.softmax(torch.relu(X[:, -600:] @ W1 + b1) @ W2 + b2, -1).numpy()
            found[str(step)] = [answered(p, own) for p, own in zip(P, labels[:, -600:], strict=True)]
    return found


def answered(p: np.ndarray, y: np.ndarray) -> list[float]:
    """Calibration errors on the first 200 answers and on the others, and the share of the others that is right."""
    right = (p[200:].argmax(-1) == y[200:]).mean()
    return short((calibration_error(p[:200], y[:200]), calibration_error(p[200:], y[200:]), right))


def plan() -> dict:
    """The runs of each part by name: what is trained, its rate and its seed."""
    seeds = (*SEEDS, CHOOSING)
    runs = {
        "norms": (normed, product(NORMS, RATES["norms"], seeds)),
        "drops": (dropped, product(WAYS, RATES["drops"], SEEDS)),
        "clips": (clipped, product(LIMITS, RATES["clips"], seeds)),
        "smooths": (smoothed, product(REGIMES, AMOUNTS, RATES["smooths"])),
        "starts": (started, ((name, rate, seed) for rate, name, seed in product(RATES["starts"], STARTS, SEEDS))),
    }
    return {
        part: {" | ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in one): partial(f, *one) for one in every}
        for part, (f, every) in runs.items()
    }


def _told(found):
    return found if not isinstance(found, dict) else {key: values[-1] for key, values in list(found.items())[-2:]}


FILE = "chapters/06_training/rivals.json"
STUDY = Study("attnmath.training_study", FILE, ("norms", "drops", "clips", "smooths", "starts"), plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
