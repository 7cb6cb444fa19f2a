"""How heads come to go on with a repetition: ``python -m attnmath.induction_study OUT.json`` trains and measures.

Attention-only models of one and of two layers learn to go on with texts that repeat a random beginning. Their heads are
scored, ablated and patched, and so are the heads of the course's own language model.
"""

import sys
from functools import partial

import numpy as np
import torch

import attnmath.torch as at
from attnmath.induction import (
    START,
    after_earlier,
    circuits,
    induction_score,
    occurrence_scores,
    previous_score,
    repeated,
    score_paths,
    uniform,
)
from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.tree import flatten

VOCABULARY, N, D, HEADS = 25, 32, 48, 4
PERIODS, LONGER = (5, 15), (16, 20)  # of training, and of texts that are longer than any in training
STEPS, SEEDS = {1: 1200, 2: 600}, (1, 2, 3, 4, 5)  # one layer may train twice as long
EVERY, BATCH, RATE, WARMUP = 25, 32, 3e-3, 50
HELD = 128  # texts on which a model is measured
FIRST = 4  # losses that a test repeats
RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # what is tried for each number of layers, at the first seed
TUNED = {1: 0.01, 2: 0.003}  # what the sweep chooses
PLACES = ("query", "key", "value")


def start(layers: int, seed: int) -> dict:
    """The first weights of a model."""
    torch.manual_seed(seed)

    def draw(rows, columns, scale):
        return (scale * torch.randn(rows, columns)).requires_grad_()

    def weights():
        scales = {"query": 1, "key": 1, "value": 1, "output": 0.5}
        return {name: {"weight": draw(D, D, scale * D**-0.5)} for name, scale in scales.items()}

    embeddings = {"word": draw(VOCABULARY, D, 0.3), "position": draw(N, D, 0.3)}
    own = {str(i): {"attention": weights()} for i in range(layers)}
    return {"embeddings": embeddings, "layers": own, "head": {"weight": draw(D, VOCABULARY, D**-0.5)}}


def texts(name: str = "held") -> np.ndarray:
    """Texts that no model is trained on: of the periods of training, of longer ones, or others to patch from."""
    seed, periods = {
        "held": (11, PERIODS),
        "longer": (12, LONGER),
        "other": (13, PERIODS),
        "choice": (14, PERIODS),
    }[name]
    return repeated(np.random.default_rng(seed), HELD, N, VOCABULARY, periods)


def losses(Z, ids) -> dict:
    """The mean loss where the token came before, so that the next one can be known, and where it did not."""
    each = torch.nn.functional.cross_entropy(Z[:, :-1].mT, torch.from_numpy(ids[:, 1:]), reduction="none").numpy()
    known = after_earlier(ids).any(-1)[:, :-1]
    right = (Z[:, :-1].argmax(-1).numpy() == ids[:, 1:])[known]
    found = {"copy": each[known], "new": each[~known], "right": right}
    return {name: round(float(values.mean()), 4) for name, values in found.items()}


def run_on(params: dict, ids, **options):
    """The logits, and the weights of each layer."""
    record: dict = {}
    Z = at.attention_only(torch.from_numpy(ids), params, HEADS, record=record, **options)
    return Z, [layer["attention"]["weights"].double().numpy() for layer in record["layers"].values()]


def scores(maps, ids) -> dict:
    """Both scores of all heads, by layer."""
    kinds = {"induction": lambda P: induction_score(P, ids), "previous": previous_score}
    return {name: [np.round(score(P), 3).tolist() for P in maps] for name, score in kinds.items()}


@torch.no_grad()
def measured(params: dict, name: str = "held") -> dict:
    """Losses and scores on one kind of texts."""
    Z, maps = run_on(params, ids := texts(name))
    return losses(Z, ids) | scores(maps, ids)


def train(
    layers: int, seed: int, steps: int | None = None, rate: float = RATE, every: int = EVERY
) -> tuple[dict, list, list]:
    """Train one model: its weights, the losses of all steps, and what was measured on the way."""
    params, rng, found, log = start(layers, seed), np.random.default_rng((seed, layers)), [], []
    own = list(flatten(params).values())
    adam = torch.optim.Adam(own, betas=(0.9, 0.98))
    steps = STEPS[layers] if steps is None else steps
    for step in range(steps):
        if step % every == 0:
            log.append({"step": step} | measured(params))
        adam.param_groups[0]["lr"] = rate * min((step + 1) / WARMUP, 1)
        ids = torch.from_numpy(repeated(rng, BATCH, N, VOCABULARY, PERIODS))
        Z = at.attention_only(ids[:, :-1], params, HEADS)
        loss = torch.nn.functional.cross_entropy(Z.mT, ids[:, 1:])
        adam.zero_grad()
        loss.backward()
        adam.step()
        found.append(loss.item())
    log.append({"step": steps} | measured(params))
    for P in own:
        P.requires_grad_(False)
    return params, found, log


def tried(layers: int, rate: float, seed: int) -> dict:
    """Train one model at a rate: the share that is right on the texts that choose, and on those that decide."""
    params, _, _ = train(layers, seed, rate=rate, every=10**6)
    with torch.no_grad():
        return {name: losses(run_on(params, ids := texts(name))[0], ids)["right"] for name in ("choice", "held")}


# experiments on a trained model --------------------------------------------------------------------------------------


def ablated(params: dict, chosen, to: str) -> dict:
    """The losses with some heads, pairs (layer, head), made to attend uniformly, or as they do on average."""
    ids = texts()
    _, maps = run_on(params, texts("other"))
    flat = uniform(N)[0]
    cores = []
    for i, P in enumerate(maps):
        given = {a: flat if to == "uniform" else P[:, a].mean(0) for layer, a in chosen if layer == i}
        given = {a: torch.from_numpy(np.asarray(W, np.float32)) for a, W in given.items()}
        cores.append(at.patched(at.attention_fused, given))
    Z, _ = run_on(params, ids, attend=cores)
    return losses(Z, ids)


def ablations(params: dict) -> dict:
    """Each head alone, and all heads of a layer, made uniform or average."""
    layers = range(len(params["layers"]))
    sets = {f"{i}.{a}": [(i, a)] for i in layers for a in range(HEADS)}
    sets |= {f"{i}": [(i, a) for a in range(HEADS)] for i in layers}
    sets |= {f"{i} but {a}": [(i, b) for b in range(HEADS) if b != a] for i in layers for a in range(HEADS)}
    return {to: {name: ablated(params, chosen, to) for name, chosen in sets.items()} for to in ("uniform", "mean")}


def crossed(params: dict, places=()) -> dict:
    """Two layers, where what the first one adds comes from other texts on the way to some places of the second."""
    ids, other = torch.from_numpy(texts()), torch.from_numpy(texts("other"))
    mask, embeddings = at.causal_mask(N), params["embeddings"]

    def first(x):
        X = at.token_embedding(x, embeddings)
        return X, at.multi_head_attention(X, X, X, params["layers"]["0"]["attention"], HEADS, mask)

    (X, own), (_, strange) = first(ids), first(other)
    inputs = [X + (strange if place in places else own) for place in PLACES]
    Y = X + own + at.multi_head_attention(*inputs, params["layers"]["1"]["attention"], HEADS, mask)
    return losses(Y @ params["head"]["weight"], texts())


def copying(params: dict, layer: int, heads: int = HEADS) -> list:
    r"""The share of letters for which a head raises the logit of the letter itself most, and so do all heads together.

    .. math:: C = W_E W_{OV} W_U,\qquad \operatorname{mean}_x [\,C_{xx} = \max_y C_{xy}\,]

    Parameters
    ----------
    params : of `attention_only`, as NumPy arrays.
    layer, heads : whose heads, and how many it has.

    Returns
    -------
    One share for each head, and behind them that of the heads' sum; chance is 1 in as many as there are letters.

    References
    ----------
    Elhage et al. (2021), "copying". Chapter 9, eq:copying-share.

    Examples
    --------
    >>> from attnmath.induction import copying_circuit
    >>> copying(copying_circuit(9, 5), 1, heads=1)
    [1.0, 1.0]
    """
    _, OV = circuits(params["layers"][str(layer)]["attention"], heads)
    words = np.arange(len(params["embeddings"]["word"])) != START
    E, U = params["embeddings"]["word"][words], params["head"]["weight"][:, words]
    C = E @ np.concatenate([OV, OV.sum(0)[None]]) @ U
    return np.round((C.argmax(-1) == np.arange(len(E))).mean(-1), 4).tolist()  # eq:copying-share


def leads(params: dict, heads: int = HEADS) -> dict:
    """By how much the scores of the second layer prefer the places behind an earlier occurrence, by kind of path.

    For each head the mean score of these places minus that of the other places that the row may see, over all rows that
    have both. The four kinds are the paths of `score_paths`: no head of the first layer on either side, one on the side
    of the key, one on the side of the query, and one on each.
    """
    ids = texts()[:32]
    there = after_earlier(ids)
    other = np.tri(N, dtype=bool) & ~there
    rows = there.any(-1) & other.any(-1)
    found: dict = {"direct": [], "key": [], "query": [], "both": []}
    for head in range(heads):
        sums = dict.fromkeys(found, 0.0)
        for (p, q), S in score_paths(ids, params, heads, 1, head).items():
            kind = {(0, 0): "direct", (0, 1): "key", (1, 0): "query", (1, 1): "both"}[(len(p), len(q))]
            means = [(S * M).sum(-1)[rows] / M.sum(-1)[rows] for M in (there, other)]
            sums[kind] += float((means[0] - means[1]).mean())
        for kind, value in sums.items():
            found[kind].append(round(value, 4))
    return found


def opened(seed: int) -> dict:
    """The circuits of a model of two layers, trained and before training, read from its weights."""
    models = {"trained": train(2, seed)[0], "untrained": start(2, seed)}
    found = {}
    for name, params in models.items():
        own = _arrays(params)
        found[name] = {"copying": [copying(own, i) for i in (0, 1)], "leads": leads(own)}
    return found


def swapped(count: int = 256, period: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Texts that say twice what comes after a letter, and differently: (count, n) texts and (count, 2) answers.

    A piece is read three times. In the second reading one letter is followed by a letter that is new, and the text
    ends where this letter comes for the third time. The answers are what stood behind it the first and the last time.
    """
    rng = np.random.default_rng(15)
    ids, answers = [], []
    for _ in range(count):
        piece = 1 + rng.permutation(VOCABULARY - 1)[: period + 1]
        first, new = piece[:period], piece[period]
        second = first.copy()
        second[period // 2 + 1] = new
        ids.append(np.concatenate([[START], first, second, first[: period // 2 + 1]]))
        answers.append((first[period // 2 + 1], new))
    return np.stack(ids), np.stack(answers)


def occurrences(seed: int) -> dict:
    """Which earlier occurrence the heads of the second layer look behind, and which answer a trained model gives.

    The scores are those of `occurrence_scores` for 1, 2 and 3 earlier occurrences, on the texts of training; the
    answers are the shares of texts with two answers on which the first, the last or another letter is said.
    """
    params, _, _ = train(2, seed, every=10**6)
    with torch.no_grad():
        (_, maps), other = run_on(params, ids := texts()), swapped()
        said = run_on(params, other[0])[0][:, -1].argmax(-1).numpy()
    scores = {str(c): np.round(occurrence_scores(maps[1], ids, c), 4).tolist() for c in (1, 2, 3)}
    shares = [float(np.mean(said == answer)) for answer in other[1].T]
    return {"scores": scores, "said": [round(share, 4) for share in (*shares, 1 - sum(shares))]}


def _arrays(tree):
    if isinstance(tree, dict):
        return {name: _arrays(part) for name, part in tree.items()}
    return tree.detach().double().numpy()


def run(layers: int, seed: int) -> dict:
    """Train one model and measure it."""
    params, found, log = train(layers, seed)
    record = {"first": [round(loss, 5) for loss in found[:FIRST]], "log": log, "longer": measured(params, "longer")}
    record["ablations"] = ablations(params)
    if layers == 2:
        record["crossed"] = {name: crossed(params, (name,)) for name in PLACES} | {"none": crossed(params)}
    return record


# the course's language model -----------------------------------------------------------------------------------------


def passages(kind: str, seed: int, period: int = 40, count: int = 32, n: int = 120) -> np.ndarray:
    """Texts of the language model: a passage again and again, ``"text"`` or ``"random"``, or a long one ``"once"``."""
    model, rng = lm.load(), np.random.default_rng((seed, 17))
    if kind == "random":
        parts = np.stack([1 + rng.permutation(model.config.vocabulary - 1)[:period] for _ in range(count)])
    else:
        ids, size = lm.stream(model.tokens, lm.docstrings()["test"][:60]), n if kind == "once" else period
        parts = ids[rng.integers(0, len(ids) - size, (count, 1)) + np.arange(size)]
    return np.stack([np.resize(part, n) for part in parts])


def untrained(seed: int):
    """A language model of the same form before training."""
    torch.manual_seed(seed)
    trained = lm.load()
    return lm.LanguageModel(trained.config, trained.tokens).eval()


@torch.no_grad()
def surprise(model, ids, period: int = 40, cores=None) -> tuple[dict, list]:
    """The loss of a first reading and of those after it, behind the first tokens of each, and the weights by layer."""
    record: dict = {}
    options = {} if cores is None else {"attend": cores}
    Z = model(torch.from_numpy(ids), record=record, **options)
    each = torch.nn.functional.cross_entropy(Z[:, :-1].mT, torch.from_numpy(ids[:, 1:]), reduction="none").numpy()
    maps = [record["layers"][str(i)]["attention"]["weights"].double().numpy() for i in range(model.config.layers)]
    parts = {"first": each[:, 4 : period - 1], "again": each[:, period + 4 :]}
    return {name: float(part.mean()) for name, part in parts.items()}, maps


def language_model(seed: int) -> dict:
    """Scores of the language model's heads on repeated passages, and what the loss becomes without each of them."""
    model = lm.load().eval()
    heads, found = model.config.heads, {}
    for kind in ("text", "random", "once"):
        ids = passages(kind, seed)
        read, maps = surprise(model, ids)
        _, plain = surprise(untrained(seed), ids)
        found[kind] = {
            "loss": {name: round(value, 4) for name, value in read.items()},
            "uniform": round(float(induction_score(uniform(ids.shape[-1]), ids)[0]), 4),
            "scores": [np.round(induction_score(P, ids), 4).tolist() for P in maps],
            "untrained": [np.round(induction_score(P, ids), 4).tolist() for P in plain],
            "without": [[_without(model, ids, i, a) for a in range(heads)] for i in range(model.config.layers)],
        }
    return found


def _without(model, ids, layer, head):
    flat = torch.from_numpy(uniform(ids.shape[-1])[0].astype(np.float32))
    cores = [at.patched(at.attention_fused, {head: flat} if i == layer else {}) for i in range(model.config.layers)]
    return {name: round(value, 4) for name, value in surprise(model, ids, cores=cores)[0].items()}


def of_the_language_model(draws: tuple = SEEDS[:1]) -> dict:
    """What is asked of the language model: of other trainings on the first draw."""
    return {"language_model": {str(seed): partial(language_model, seed) for seed in draws}}


def _plan():
    runs = {f"{layers} {seed}": partial(run, layers, seed) for layers in STEPS for seed in SEEDS}
    own = {"opened": {str(seed): partial(opened, seed) for seed in SEEDS}}
    others = {"other trainings": lm.others(of_the_language_model)}
    own |= {"occurrences": {str(seed): partial(occurrences, seed) for seed in SEEDS}}
    last = {"sweep": {f"{n} {rate:g}": partial(tried, n, rate, 1) for n in STEPS for rate in RATES}}
    again = [n for n in STEPS if TUNED[n] != RATE]  # the runs of the others are there
    last["tuned"] = {f"{n} {seed}": partial(tried, n, TUNED[n], seed) for n in again for seed in SEEDS[:3]}
    return {"runs": runs} | of_the_language_model(SEEDS[:3]) | own | others | last


def _told(found):
    if "trained" in found:
        return found["trained"]
    return found["log"][-1] if "log" in found else str(found)[:300]


FILE = "chapters/09_theory/induction.json"
PARTS = ("runs", "language_model", "opened", "occurrences", "other trainings", "sweep", "tuned")
STUDY = Study("attnmath.induction_study", FILE, PARTS, _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
