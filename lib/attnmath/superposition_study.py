"""Sparse autoencoders: ``python -m attnmath.superposition_study OUT.json`` trains and measures them.

First on samples whose features are known, at several sparsities; then on the residual stream of the course's language
model, with an untrained model, a random dictionary and principal components as controls.
"""

import sys
from functools import cache, partial

import numpy as np
import torch

import attnmath.torch as at
from attnmath.study import Study, descend
from attnmath.superposition import matched, purity
from attnmath.tasks import lm

SEEDS = (1, 2, 3)
KNOWN, WIDTH, UNITS = 40, 20, 80  # features, dimensions and units where the features are known
PRESENT = (0.025, 0.05, 0.1, 0.2, 0.4)
TOPS = (1, 4, 8)  # units that may speak at the second of these probabilities, where the right number is 2
BATCH, RATE, STEPS = 512, 3e-3, 1500
FIRST = 4  # losses that a test repeats
RATES, MOST = (1e-3, 3e-3, 1e-2), 6  # of a sweep, which goes on while its best is the end; so many at most
WIDE = (*RATES, 0.033)  # for the language model
CHOOSING = 11  # the seed that chooses where features are known; the three others decide
LONGER = 3  # times the steps

SITE = 2  # the residual stream behind so many layers
TOP, DICTIONARY, PENALTY = 8, 384, 3.0
WINDOWS = {"train": 400, "test": 100, "validation": 100}
KINDS = ("trained", "untrained", "random", "penalty")
TRAINED = ("trained", "random", "penalty")  # those that read the trained model
COMPONENTS = (8, 16, 32, 64)
LOUD = 20  # tokens by which a unit is judged if only the loudest are looked at


def start(d: int, units: int, generator) -> list:
    """The first encoder, its biases, the dictionary and the centre: the encoder is the dictionary transposed."""
    D = at.unit_norm(torch.randn(units, d, generator=generator))
    return [D.mT.clone(), torch.zeros(units), D, torch.zeros(d)]


def train(draw, d: int, units: int, generator, *, top=None, penalty=0.0, fixed=False, steps=None, plan=(RATE, STEPS)):
    """Train an autoencoder on samples: its parameters and its losses. A fixed dictionary stays as it was drawn.

    The plan is the learning rate and the steps of the whole training; ``steps`` says how many of them are taken.
    """
    params = start(d, units, generator)
    learned = [P.requires_grad_() for i, P in enumerate(params) if i != 2 or not fixed]

    def loss():
        X = draw(BATCH)
        if not penalty:
            return (at.sparse_autoencoder(X, *params, top=top) - X).square().mean()
        E, a, D, c = params
        Z = at.sparse_code(X - c, E, a)
        return (Z @ at.unit_norm(D) + c - X).square().mean() + penalty * Z.sum(-1).mean() / d

    rate, whole = plan
    losses = descend(learned, loss, whole if steps is None else steps, rate, plan=whole)
    return [P.detach() for P in params], losses


def code(params, X, top):
    E, a, _, c = params
    return at.sparse_code(X - c, E, a, top=top)


def explained(Y, X) -> float:
    """The share of the variance of X that Y has."""
    return 1 - float((Y - X).square().sum() / (X - X.mean(0)).square().sum())


def rounded(value, digits=4):
    return round(float(value), digits)


def speaking(Z) -> dict:
    """How many units speak about a sample, and how many never do."""
    on = (Z > 0).reshape(-1, Z.shape[-1])
    return {"active": rounded(on.float().sum(-1).mean(), 3), "dead": int((~on.any(0)).sum())}


# features that are known ---------------------------------------------------------------------------------------------


def known(present: float, seed: int, top: int | None = None, **options) -> dict:
    """Random directions, sparse features, and how much of them an autoencoder finds; top None is the right number."""
    generator = torch.Generator().manual_seed(seed)
    F = at.unit_norm(torch.randn(KNOWN, WIDTH, generator=generator))
    scale = (KNOWN * present / 3 / WIDTH) ** 0.5
    top = max(1, round(KNOWN * present)) if top is None else top

    def features(count):
        there = torch.rand(count, KNOWN, generator=generator) < present
        return torch.rand(count, KNOWN, generator=generator) * there

    params, losses = train(lambda n: features(n) @ F / scale, WIDTH, UNITS, generator, top=top, **options)
    X = features(5000) @ F / scale
    other = torch.randn(UNITS, WIDTH, generator=generator)
    s, chance = (matched(F.double().numpy(), D.double().numpy()) for D in (params[2], other))
    found = {"found": rounded(s.mean()), "chance": rounded(chance.mean()), "above": rounded((s > 0.9).mean())}
    found["explained"] = rounded(explained(at.sparse_autoencoder(X, *params, top=top), X))
    return {"first": [rounded(loss, 5) for loss in losses[:FIRST]]} | found | speaking(code(params, X, top))


# the language model --------------------------------------------------------------------------------------------------


@cache
def windows(part: str) -> torch.Tensor:
    """Pieces of the text, each with the token that comes next."""
    model, n = lm.load(), lm.Config().context
    ids = lm.stream(model.tokens, lm.docstrings()[part][:400])
    chosen = np.random.default_rng(5).choice(len(ids) // n - 1, WINDOWS[part], replace=False)
    return torch.from_numpy(ids[n * chosen[:, None] + np.arange(n + 1)])


@lm.cached
def model_of(seed: int = 0):
    """The trained model, or for a seed one of the same form before training."""
    trained = lm.load().eval()
    if not seed:
        return trained
    torch.manual_seed(seed)
    return lm.LanguageModel(trained.config, trained.tokens).eval()


@torch.no_grad()
def streams(model, ids, batch: int = 20):
    """The residual stream behind the first layers."""
    tree = model.tree()
    layers = {name: own for name, own in tree["layers"].items() if int(name) < SITE}
    part = {"embeddings": tree["embeddings"], "layers": layers}
    options = {name: value for name, value in model.options.items() if name != "norm"}
    read = partial(at.decoder_only, params=part, heads=model.heads, head=lambda X, params: X, **options)
    return torch.cat([read(rows[:, :-1]) for rows in ids.split(batch)])


@torch.no_grad()
def loss_from(model, X, ids, batch: int = 20) -> float:
    """The loss of the next token if the residual stream behind the first layers is X."""
    tree = model.tree()
    rest = {str(int(name) - SITE): own for name, own in tree["layers"].items() if int(name) >= SITE}
    losses = []
    for part, rows in zip(X.split(batch), ids.split(batch), strict=True):
        Z = at.decoder_only(
            rows[:, :-1],
            tree | {"layers": rest},
            model.heads,
            embed=lambda ids, tables, start, part=part: part,
            **model.options,
        )
        losses.append(torch.nn.functional.cross_entropy(Z.mT, rows[:, 1:], reduction="none"))
    return float(torch.cat(losses).mean())


@lm.cached
def rows(part: str, seed: int = 0):
    """The residual streams of a part, and the mean and the scale of those of training."""
    X = streams(model_of(seed), windows(part))
    if part != "train":
        return X, *rows("train", seed)[1:]
    flat = X.reshape(-1, X.shape[-1])
    mean = flat.mean(0)
    return X, mean, (flat - mean).square().mean().sqrt()


@lm.cached
def dictionary(kind: str, seed: int, steps: int | None = None, rate: float = RATE, longer: int = 1):
    """A trained autoencoder of a kind, and its losses."""
    X, mean, scale = rows("train", seed if kind == "untrained" else 0)
    flat = ((X - mean) / scale).reshape(-1, X.shape[-1])
    generator = torch.Generator().manual_seed(seed)
    options = {"penalty": PENALTY} if kind == "penalty" else {"top": TOP, "fixed": kind == "random"}
    draw = lambda n: flat[torch.randint(len(flat), (n,), generator=generator)]  # noqa: E731
    return train(draw, flat.shape[-1], DICTIONARY, generator, steps=steps, plan=(rate, longer * STEPS), **options)


def judged(kind: str, seed: int, part: str, rate: float = RATE) -> dict:
    """What an autoencoder explains on text that it has not seen, and what the model makes of it."""
    plain = seed if kind == "untrained" else 0
    (params, losses), (X, mean, scale), ids = dictionary(kind, seed, None, rate), rows(part, plain), windows(part)
    V, top = (X - mean) / scale, None if kind == "penalty" else TOP
    Z = code(params, V, top)
    Y = Z @ at.unit_norm(params[2]) + params[3]
    flat = Z.reshape(-1, Z.shape[-1])
    tokens = ids[:, :-1].reshape(-1).numpy()
    found = {"explained": rounded(explained(Y.flatten(0, 1), V.flatten(0, 1)))} | speaking(flat)
    found["loss"] = rounded(loss_from(model_of(plain), mean + scale * Y, ids))
    found["purity"] = {
        name: rounded(np.nanmean(purity(flat.numpy(), tokens, top)), 3) for name, top in (("loud", LOUD), ("all", None))
    }
    found["refitted"] = refitted(params, V.reshape(-1, V.shape[-1])[::13], flat[::13])
    return {"first": [rounded(loss, 5) for loss in losses[:FIRST]]} | found


def refitted(params, V, Z) -> dict:
    """What the chosen units explain as they speak, and with the loudness that fits each row best."""
    D, c = at.unit_norm(params[2]).double(), params[3].double()
    best = torch.stack([_fitted(D[z > 0], v) for z, v in zip(Z, V.double() - c, strict=True)])
    said = Z.double() @ D
    return {"as is": rounded(explained(said + c, V)), "best": rounded(explained(best + c, V))}


def _fitted(D, v):
    return torch.linalg.lstsq(D.mT, v[:, None]).solution[:, 0] @ D if len(D) else torch.zeros_like(v)


def baselines(part: str) -> dict:
    """What nothing, principal components and the current token alone leave of the model."""
    (X, mean, _), ids, model = rows(part), windows(part), model_of()
    found = {"loss": rounded(loss_from(model, X, ids)), "tokens": ids[:, 1:].numel()}
    found["mean"] = rounded(loss_from(model, mean.expand_as(X), ids))
    found["zero"] = rounded(loss_from(model, torch.zeros_like(X), ids))
    train, own = rows("train")[0].flatten(0, 1), windows("train")[:, :-1].reshape(-1)
    axes = torch.linalg.eigh(torch.cov(train.T))[1].flip(1)
    found["components"] = {}
    for k in COMPONENTS:
        Y = mean + (X - mean) @ axes[:, :k] @ axes[:, :k].mT
        found["components"][str(k)] = _both(model, Y, X, ids)
    counts = torch.bincount(own, minlength=model.config.vocabulary)
    sums = torch.zeros(model.config.vocabulary, X.shape[-1]).index_add(0, own, train)
    table = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), mean)
    found["token"] = _both(model, table[ids[:, :-1]], X, ids)
    found["directions"] = {name: of_directions(part, seed) for name, seed in (("trained", 0), ("untrained", 1))}
    return found


def _both(model, Y, X, ids):
    return {
        "explained": rounded(explained(Y.flatten(0, 1), X.flatten(0, 1))),
        "loss": rounded(loss_from(model, Y, ids)),
    }


def of_directions(part: str, seed: int) -> dict:
    """The purity of random directions that nobody trained, each speaking as often as a unit of the autoencoder."""
    X, mean, scale = rows(part, seed)
    D = at.unit_norm(torch.randn(DICTIONARY, X.shape[-1], generator=torch.Generator().manual_seed(7)))
    S = ((X - mean) / scale).flatten(0, 1) @ D.mT
    S = (S - S.quantile(1 - TOP / DICTIONARY, 0)).clamp(min=0).numpy()
    ids = windows(part)[:, :-1].reshape(-1).numpy()
    return {name: rounded(np.nanmean(purity(S, ids, top)), 3) for name, top in (("loud", LOUD), ("all", None))}


# sweeps --------------------------------------------------------------------------------------------------------------


def swept(score, rates=RATES, most: int = MOST) -> list:
    """The scores of rates, a grid that is extended while its best is at an end: pairs of a rate and its score."""
    tried = {rate: score(rate) for rate in rates}
    while len(tried) < most and (best := max(tried, key=tried.get)) in (low := min(tried), high := max(tried)):
        rate = float(f"{high / 0.3 if best == high else low * 0.3:.2g}")
        tried[rate] = score(rate)
    return [[rate, tried[rate]] for rate in sorted(tried)]


def chosen(sweep) -> float:
    return max(sweep, key=lambda one: one[1])[0]


def tuned_known(present: float, top: int, longer: bool = False) -> dict:
    """Rates tried with one seed for one number of units, and the best of them with the other seeds.

    What chooses is what nobody has on a real model: how near the units are to the true directions.
    """
    sweep = swept(lambda rate: known(present, CHOOSING, top, plan=(rate, STEPS))["found"])
    rate = chosen(sweep)
    found = {"tried": [[{"rate": rate}, [score]] for rate, score in sweep]}
    found["test"] = [known(present, seed, top, plan=(rate, STEPS)) for seed in SEEDS]
    return found | ({"longer": known(present, 1, top, plan=(rate, LONGER * STEPS))} if longer else {})


def tuned(kind: str) -> dict:
    """Rates tried on the validation documents with the first seed, and the best of them on the test documents."""
    sweep = swept(lambda rate: judged(kind, 1, "validation", rate)["explained"], WIDE)
    rate = chosen(sweep)
    found = [judged(kind, seed, "test", rate) for seed in SEEDS]
    drawn = [dictionary(kind, seed, None, rate)[0][2].double().numpy() for seed in SEEDS]
    pairs = [matched(A, B) for A in drawn for B in drawn if A is not B]
    told = {name: [one[name] for one in found] for name in ("explained", "loss", "dead")}
    told |= {"copies": [rounded((s > 0.9).mean()) for s in pairs]}
    return {"tried": [[{"rate": rate}, [score]] for rate, score in sweep]} | told


def agreement(seeds: tuple = SEEDS, kinds: tuple = ("trained", "penalty")) -> dict:
    """How well dictionaries of different seeds agree, and random ones: any directions, and some of the same spread."""
    found, X = {}, rows("train")[0].flatten(0, 1)
    rng, root = np.random.default_rng(3), np.linalg.cholesky(np.cov(X.double().numpy().T))
    draws = {name: [rng.standard_normal((DICTIONARY, len(root))) for _ in seeds] for name in ("any", "spread")}
    draws["spread"] = [G @ root.T for G in draws["spread"]]
    for kind in kinds:
        draws[kind] = [dictionary(kind, seed)[0][2].double().numpy() for seed in seeds]
    for name, all_of_them in draws.items():
        pairs = [matched(A, B) for A in all_of_them for B in all_of_them if A is not B]
        found[name] = {
            "cosines": [rounded(s.mean()) for s in pairs],
            "above": [rounded((s > 0.9).mean()) for s in pairs],
        }
    return found


def shown(seed: int = 1, part: str = "test") -> dict:
    """Some units with tokens in their places: the first ones by number, and the purest."""
    params, _ = dictionary("trained", seed)
    X, mean, scale = rows(part)
    Z = code(params, (X - mean) / scale, TOP).flatten(0, 1).numpy()
    ids = windows(part)[:, :-1]
    pure = np.nan_to_num(purity(Z, ids.reshape(-1).numpy(), LOUD))
    alike = np.argsort(-pure, kind="stable")[:4]
    return {"first": [_unit(Z, ids, j) for j in range(4)], "purest": [_unit(Z, ids, int(j)) for j in alike]}


def _unit(Z, ids, j):
    z, rng = Z[:, j], np.random.default_rng(j)
    order = np.flatnonzero(z > 0)[np.argsort(-z[z > 0], kind="stable")]
    any_of_them = rng.choice(order, min(5, len(order)), replace=False)
    places = {"loud": order[:5], "any": any_of_them}
    return {"unit": j, "share": rounded((z > 0).mean())} | {
        name: [_context(ids, int(t)) for t in chosen] for name, chosen in places.items()
    }


def _context(ids, t):
    """The five tokens before a place, and its own."""
    decode, (row, place) = model_of().tokens.decode, divmod(t, ids.shape[1])
    before, own = ids[row, max(0, place - 5) : place].tolist(), ids[row, place : place + 1].tolist()
    return [decode(before), decode(own)]


def _asked(seeds, parts, kinds, more) -> dict:
    runs = {f"{k} {seed} {p}": partial(judged, k, seed, p) for k in kinds for seed in seeds for p in parts}
    return {"baselines": {p: partial(baselines, p) for p in parts}, "runs": runs, "more": more}


def of_the_language_model() -> dict:
    """What is asked of the other trainings: one autoencoder of each kind, and whether two seeds agree."""
    return _asked((1,), ("test",), TRAINED, {"agreement": partial(agreement, (1, 2), ("trained",))})


def _plan():
    toy = {f"{p} {seed}": partial(known, p, seed) for p in PRESENT for seed in SEEDS}
    tops = {f"{top} {seed}": partial(known, PRESENT[1], seed, top) for top in TOPS for seed in SEEDS}
    own = _asked(SEEDS, ("test", "validation"), KINDS, {"agreement": agreement, "shown": shown})
    settings = ((0.1, 4), *((0.2, top) for top in (2, 4, 8, 16)))
    sweeps = {f"known {p} {top}": partial(tuned_known, p, top, (p, top) == (0.2, 8)) for p, top in settings}
    sweeps |= {kind: partial(tuned, kind) for kind in ("trained", "random")}
    return {"known": toy, "tops": tops} | own | {"sweeps": sweeps, "other trainings": lm.others(of_the_language_model)}


def _told(found):
    return {name: found[name] for name in ("found", "explained", "loss") if name in found}


PARTS = ("known", "tops", "baselines", "runs", "more", "sweeps", "other trainings")
FILE = "chapters/09_theory/superposition.json"
STUDY = Study("attnmath.superposition_study", FILE, PARTS, _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
