"""What the layers of two trained models know: ``python -m attnmath.probes_study OUT.json`` reads, probes and removes.

The course's language model is read by the logit lens, and directions are taken out of its stream. Linear probes read
MiniLM's layers. Everything is done on several draws of passages, with controls.
"""

import re
import sys
from functools import cache, partial

import numpy as np
import torch

import attnmath.torch as at
from attnmath import minilm
from attnmath.cmudict import VOWELS, cmudict
from attnmath.probes import (
    control_labels,
    logit_lens,
    mean_difference,
    mean_directions,
    steered,
    stream_writes,
    without,
)
from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.torch.modules import to_numpy
from attnmath.tree import map_tree

SEEDS = (1, 2, 3)
WINDOW, FIT, HELD = 128, 64, 32  # tokens of a window; windows that maps are fitted on, and others that are measured
CONTROLS = 20  # control tasks and random directions in each draw
LAYERS = (1, 2)  # of the language model, behind which directions are removed
PASSAGES, WORDS, READ, CAP = 400, 40, 64, 4  # of MiniLM: words and tokens of a passage, occurrences of a word at most
PLAIN = (0, 3, 6)  # MiniLM's layers that are probed before training
SPREAD = 0.02  # of MiniLM's parameters before training
C = 0.01  # the inverse strength of a probe's penalty, on standardised features
CS, MOST = (1e-3, 1e-2, 1e-1), 7  # of a sweep, which goes on while its best is the end; so many at most
STRENGTHS, PUSHES, PUSHED = (-4, -2, -1, 0, 1, 2, 4), 4, 8  # of steering; directions of a kind; windows
BEHIND, ENCODED, DRAWS = 3, 60, 5  # MiniLM's layer behind which directions are removed, passages, and controls


# the language model --------------------------------------------------------------------------------------------------


@lm.cached
def model(seed: int | None = None) -> tuple[dict, int]:
    """The parameters and heads of the language model, trained, or as it would begin with a seed."""
    trained = lm.load()
    if seed is not None:
        torch.manual_seed(seed)
        trained = lm.LanguageModel(trained.config, trained.tokens)
    return to_numpy(trained.tree()), trained.config.heads


@cache
def _text(part):
    texts = lm.docstrings()[part]
    return lm.stream(lm.load().tokens, texts[:400] if part == "train" else texts)


def windows(part: str, seed: int, count: int) -> np.ndarray:
    """Random windows of the training or the test text, (count, WINDOW + 1)."""
    ids = _text(part)
    starts = np.random.default_rng((seed, 29)).integers(0, len(ids) - WINDOW - 1, (count, 1))
    return ids[starts + np.arange(WINDOW + 1)]


def streams(ids, params, heads) -> list:
    """The residual stream behind the embedding and each sub-layer."""
    return list(np.cumsum(list(stream_writes(ids[:, :-1], params, heads).values()), 0))


def loss(Z, ids) -> float:
    """The mean loss of the next token, in nats."""
    Z = torch.from_numpy(np.array(Z)).flatten(0, 1)
    return round(torch.nn.functional.cross_entropy(Z, torch.from_numpy(ids[:, 1:].flatten())).item(), 4)


def translators(fit: list, ridge: float = 1.0) -> list:
    """For each stream the affine map to the last one that fits best, by least squares."""
    from sklearn.linear_model import Ridge

    rows = [X.reshape(-1, X.shape[-1]) for X in fit]
    maps = [Ridge(alpha=ridge).fit(X, rows[-1]) for X in rows]
    return [(line.coef_.T.astype(np.float32), line.intercept_.astype(np.float32)) for line in maps]


def read(params, heads, seed: int) -> dict:
    """The lens and the tuned lens at each depth: the loss, and how often the best token is the model's own."""
    tuned = translators(streams(windows("train", seed, FIT), params, heads))
    ids = windows("test", seed, HELD)
    found = streams(ids, params, heads)
    Q = np.linalg.qr(np.random.default_rng((seed, 31)).standard_normal((found[0].shape[-1],) * 2))[0]
    seen = {
        "lens": [logit_lens(X, params) for X in found],
        "rotated": [logit_lens(X @ Q.astype(np.float32), params) for X in found],
        "tuned": [logit_lens(X @ A + b, params) for X, (A, b) in zip(found, tuned, strict=True)],
    }
    best = {name: np.stack([Z.argmax(-1) for Z in maps]) for name, maps in seen.items()}
    own = best["lens"][-1]
    settled = np.cumprod((best["lens"] == own)[::-1], 0)[::-1]  # right from here on
    return {
        "loss": {name: [loss(Z, ids) for Z in maps] for name, maps in seen.items()},
        "agrees": {name: np.round((B == own).mean((1, 2)), 4).tolist() for name, B in best.items()},
        "settled": np.round(settled.mean((1, 2)), 4).tolist(),
        "repeats": np.round((best["lens"] == ids[:, :-1]).mean((1, 2)), 4).tolist(),
    }


def lens(seed: int) -> dict:
    """One draw of passages, read from the trained model and from one that is not trained."""
    return {"trained": read(*model(), seed), "untrained": before_training(seed)}


@cache
def before_training(seed: int) -> dict:
    """The same for a model that is not trained, once for all trainings."""
    return read(*model(seed), seed)


@torch.no_grad()
def onward(X, layer: int):
    """The logits that the rest of the trained language model makes of a stream behind so many layers."""
    trained, X = lm.load(), torch.from_numpy(X)
    own, config = trained.tree(), trained.config
    rest = {str(i - layer): own["layers"][str(i)] for i in range(layer, config.layers)}
    join = partial(at.sublayer, norm_first=True)
    params = {"layers": rest, "norm": own["norm"]}
    Y = at.decoder(X, None, params, config.heads, at.causal_mask(X.shape[-2]), norm=at.layer_norm, join=join)
    return at.logits(Y, own).numpy()


@cache
def _tokens():
    tokens = lm.load().tokens
    return [tokens.decode([i]) for i in range(len(tokens))]


def properties(ids) -> dict:
    """Yes or no for each place of windows: does this token start a word, and does the next one?"""
    starts = np.array([text[:1] in " \n" for text in _tokens()])
    return {"starts": starts[ids[:, :-1]], "next starts": starts[ids[:, 1:]]}


def probe(X, y, held, z, strength: float = C) -> float:
    """The accuracy of a linear probe that is fitted on rows X and tried on others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return round(
        float(_fitted(make_pipeline(StandardScaler(), LogisticRegression(C=strength)), X, y).score(held, z)), 4
    )


def _fitted(line, X, y):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a probe that has not converged to the last digit is as good
        return line.fit(X, y)


def removal(seed: int) -> dict:
    """What the language model's loss becomes without the direction of a property, of a control, or a random one."""
    params, heads = model()
    fit, ids, rng = windows("train", seed, FIT), windows("test", seed, HELD), np.random.default_rng((seed, 37))
    have, held, found = streams(fit, params, heads), streams(ids, params, heads), {}
    for layer in LAYERS:
        X = have[2 * layer].reshape(-1, have[0].shape[-1])
        Y, centre = held[2 * layer], X.mean(0)
        spread = np.square(X - centre).sum() / len(X)

        def without_it(U, X=X, Y=Y, centre=centre, spread=spread, layer=layer):
            U = U.astype(np.float32)
            share = np.square((X - centre) @ U).sum() / len(X) / spread
            return [round(float(share), 5), loss(onward(without(Y, U, centre), layer), ids)]

        yes, test = properties(fit), properties(ids)
        own = {name: mean_directions(X, yes[name].ravel()) for name in yes}
        controls = [control_labels(fit[:, :-1].ravel(), yes["starts"].ravel(), rng) for _ in range(CONTROLS)]
        flat = Y.reshape(-1, Y.shape[-1])
        found[str(layer)] = {
            "all": loss(onward(Y, layer), ids),
            "without": {name: without_it(U) for name, U in own.items()},
            "control": [without_it(mean_directions(X, labels)) for labels in controls],
            "random": [without_it(np.linalg.qr(rng.standard_normal((X.shape[1], 1)))[0]) for _ in controls],
            "probe": {name: probe(X, yes[name].ravel(), flat, test[name].ravel()) for name in yes},
            "probe after": {
                name: probe(
                    without(X, U.astype(np.float32), centre),
                    yes[name].ravel(),
                    without(flat, U.astype(np.float32), centre),
                    test[name].ravel(),
                )
                for name, U in own.items()
            },
            "most frequent": {name: round(float(max(Z.mean(), 1 - Z.mean())), 4) for name, Z in test.items()},
        }
    return found


def matched(seed: int) -> list:
    """After layer 2 the share of the variance in a direction and what removing it adds to the loss.

    The directions are those of 20 properties that give each type of the *next* token a random yes or no, and behind
    them that of "the next token starts a word".
    """
    (params, heads), rng, layer = model(), np.random.default_rng((seed, 59)), 2
    fit, ids = windows("train", seed, FIT), windows("test", seed, HELD)
    X, Y = (streams(part, params, heads)[2 * layer] for part in (fit, ids))
    X, yes = X.reshape(-1, X.shape[-1]), properties(fit)["next starts"].ravel()
    controls = [control_labels(fit[:, 1:].ravel(), yes, rng) for _ in range(CONTROLS)]
    centre, whole, found = X.mean(0), loss(onward(Y, layer), ids), []
    for labels in (*controls, yes):
        U = mean_directions(X, labels).astype(np.float32)
        share = np.square((X - centre) @ U).sum() / np.square(X - centre).sum()
        added = loss(onward(without(Y, U, centre), layer), ids) - whole
        found.append([round(float(share), 5), round(added, 4)])
    return found


@torch.no_grad()
def said(X, ids, layer: int, starts) -> list:
    """How probable the model finds it that the next token starts a word, on average; and its loss."""
    Z = torch.from_numpy(onward(X, layer))
    total = torch.softmax(Z, -1)[..., torch.from_numpy(starts)].sum(-1).mean()
    return [round(float(total), 4), loss(Z.numpy(), ids)]


def steering(seed: int, layer: int = 2) -> dict:
    """What the language model says when a vector is added to all rows of its stream, in several strengths.

    The vectors are the way from "the next token does not start a word" to "it does", that for random labels of the
    types of the next token, and random ones, all of one length.
    """
    (params, heads), rng = model(), np.random.default_rng((seed, 61))
    fit, ids = windows("train", seed, FIT), windows("test", seed, PUSHED)
    X, Y = (streams(part, params, heads)[2 * layer] for part in (fit, ids))
    X, yes = X.reshape(-1, X.shape[-1]), properties(fit)["next starts"].ravel()
    starts = np.array([text[:1] in " \n" for text in _tokens()])
    v = mean_difference(X, yes)
    labels = [mean_difference(X, control_labels(fit[:, 1:].ravel(), yes, rng)) for _ in range(PUSHES)]
    plain = list(rng.standard_normal((PUSHES, len(v))))

    def along(way):
        way = (np.linalg.norm(v) / np.linalg.norm(way) * way).astype(np.float32)
        return [said(steered(Y, way, np.float32(s)), ids, layer, starts) for s in STRENGTHS]

    length = np.linalg.norm(v) / np.linalg.norm(X - X.mean(0), axis=-1).mean()
    found = {"next starts": along(v), "labels": list(map(along, labels)), "random": list(map(along, plain))}
    return {"length": round(float(length), 4), "truth": round(float(starts[ids[:, 1:]].mean()), 4)} | found


STORY = "Return the sum of"


@torch.no_grad()
def written(layer: int = 2, count: int = 20) -> dict:
    """What the model writes after the same beginning, its favourite tokens, for each strength of steering."""
    params, heads = model()
    fit = windows("train", 1, FIT)
    X = streams(fit, params, heads)[2 * layer]
    v = mean_difference(X.reshape(-1, X.shape[-1]), properties(fit)["next starts"].ravel()).astype(np.float32)
    begun, tokens, found = [lm.LIMIT, *lm.load().tokens.encode(STORY)], lm.load().tokens, {}
    for strength in STRENGTHS:
        ids = list(begun)
        for _ in range(count):
            Y = np.cumsum(list(stream_writes(np.array([ids]), params, heads).values()), 0)[2 * layer]
            ids.append(int(onward(steered(Y, v, np.float32(strength)), layer)[0, -1].argmax()))
        found[str(strength)] = tokens.decode(ids[len(begun) :])
    return found


# MiniLM --------------------------------------------------------------------------------------------------------------


@cache
def lexicon() -> dict:
    """The number of syllables of each word of the dictionary, 3 for more."""
    data = cmudict()
    return {
        word: min(sum(p in VOWELS for p in spoken[0]), 3)
        for part in (data.train, data.validation, data.test)
        for word, spoken in part.items()
    }


@cache
def encoder(seed: int | None = None) -> dict:
    """MiniLM's parameters, trained, or drawn anew with a seed: normal with the spread BERT starts with."""
    params = minilm.load().params
    if seed is not None:
        rng = np.random.default_rng((seed, 41))
        params = map_tree(lambda W: (SPREAD * rng.standard_normal(W.shape)).astype(np.float32), params)
        params = _plain_norms(params)
    return at.from_numpy(params)


def _plain_norms(tree):
    plain = {"gain": np.ones_like, "bias": np.zeros_like}
    return {
        name: _plain_norms(leaf) if isinstance(leaf, dict) else plain.get(name, lambda W: W)(leaf)
        for name, leaf in tree.items()
    }


def passages(seed: int, count: int = PASSAGES) -> tuple[np.ndarray, np.ndarray]:
    """Beginnings of docstrings as MiniLM's tokens, and their mask."""
    words = [re.findall(r"[a-z]+", text.lower()) for text in lm.docstrings()["train"]]
    texts = [" ".join(some[:WORDS]) for some in words if len(some) >= WORDS]
    chosen = np.random.default_rng((seed, 43)).permutation(len(texts))[:count]
    return minilm.load().encode([texts[i] for i in chosen], max_tokens=READ)


@torch.no_grad()
def states(params, ids, mask) -> np.ndarray:
    """The rows behind MiniLM's embedding and each of its layers, (7, texts, n, 384)."""
    seen: list = []

    def join(X, f, own, **options):
        seen.append(X)
        return at.sublayer(X, f, own, norm=partial(at.layer_norm, eps=1e-12), **options)

    parts = []
    for first in range(0, len(ids), 50):
        seen.clear()
        some = [torch.from_numpy(part[first : first + 50]) for part in (ids, mask)]
        end = at.bert(some[0], params, minilm.HEADS, some[1], join=join)
        parts.append(torch.stack([*seen[::2], end]))
    return torch.cat(parts, 1).numpy()


def occurrences(ids, mask, rng) -> dict:
    """Where whole words of the dictionary stand, a word CAP times at most, with three questions about each."""
    names, sounds = minilm.load().tokens(np.arange(minilm.load().tokenizer.get_vocab_size())), lexicon()
    found: dict = {}
    for row, n in enumerate(mask.sum(-1)):
        for place in range(1, n - 1):
            word, behind = (names[token] for token in ids[row, place : place + 2])
            if len(word) >= 3 and word in sounds and not behind.startswith("##"):
                found.setdefault(word, []).append((row, place))
    chosen = [(word, *at_) for word, all_ in found.items() for at_ in rng.permutation(all_)[:CAP].tolist()]
    words, rows, places = map(np.array, zip(*chosen, strict=True))
    return {
        "words": words,
        "at": (rows, places),
        "syllables": np.array([sounds[word] for word in words]),
        "letters": np.array([[len(word)] for word in words], float),
        "before": np.array([ids[r, p] in ids[r, 1:p] for r, p in zip(rows, places, strict=True)]),
    }


def splits(words, rng) -> dict:
    """Which occurrences are held out: a third of the words, or a third of the occurrences of words that are seen."""
    types = np.unique(words)
    new = np.isin(words, types[rng.random(len(types)) < 1 / 3])
    out = rng.random(len(words)) < 1 / 3
    return {"new words": (~new, new), "seen words": (~out, out & np.isin(words, words[~out]))}


def probes(seed: int, layers=range(7)) -> dict:
    """Probes on MiniLM's layers, trained and untrained, for two tasks and a control, on seen and on new words."""
    rng, (ids, mask) = np.random.default_rng((seed, 47)), passages(seed)
    one = occurrences(ids, mask, rng)
    cut = splits(one["words"], rng)
    tasks = {
        "syllables": one["syllables"],
        "control": control_labels(one["words"], one["syllables"], rng),
        "before": one["before"],
    }

    def tried(X, task, split):
        (train, held), y = cut[split], tasks[task]
        return probe(X[train], y[train], X[held], y[held])

    kinds = [(task, split) for task in tasks for split in cut if (task, split) != ("before", "seen words")]
    found = {
        "occurrences": len(one["words"]),
        "words": len(np.unique(one["words"])),
        "letters": {split: tried(one["letters"], "syllables", split) for split in cut},
        "most frequent": {
            f"{task}, {split}": round(float((tasks[task][cut[split][1]] == _most(tasks[task])).mean()), 4)
            for task, split in kinds
        },
    }
    for name, params in {"trained": encoder(), "untrained": encoder(seed)}.items():
        H, read_ = states(params, ids, mask), layers if name == "trained" else PLAIN
        found[name] = {
            f"{task}, {split}": [tried(H[layer][one["at"]], task, split) for layer in read_] for task, split in kinds
        }
    return found


def layers_of(kind: str, seed: int, layer: int, ids, mask):
    """The rows behind a layer of MiniLM, trained or not, without the layers that come later."""
    params = encoder() if kind == "trained" else encoder(seed)
    short = params | {"layers": {str(i): params["layers"][str(i)] for i in range(layer)}}
    return states(short, ids, mask)[-1]


TUNED = tuple(("trained", 0, *kind) for kind in (("syllables", "seen words"), ("control", "seen words")))
TUNED += (("trained", 0, "syllables", "new words"), ("untrained", 0, "syllables", "seen words"))
TUNED += tuple((kind, 3, "before", "new words") for kind in ("trained", "untrained"))
TUNED += (("letters", 0, "syllables", "new words"), ("each length", 0, "syllables", "new words"))


def tuned(kind: str, layer: int, task: str, split: str) -> dict:
    """The penalty of one probe, chosen on a part of the first draw's training set, and the accuracies of three draws.

    The rivals that know a word's length are tuned as the probes are: one number, or one for each length.
    """
    found: dict = {"test": []}
    for seed in SEEDS:
        rng, (ids, mask) = np.random.default_rng((seed, 47)), passages(seed)
        one = occurrences(ids, mask, rng)
        train, held = splits(one["words"], rng)[split]
        labels = control_labels(one["words"], one["syllables"], rng)
        y = {"syllables": one["syllables"], "control": labels, "before": one["before"]}[task]
        X = one["letters"]
        if kind == "each length":
            X = (X == np.arange(3, 15)).astype(float)
        elif kind != "letters":
            X = layers_of(kind, seed, layer, ids, mask)[one["at"]]
        if not found["test"]:
            found |= _sweep(X, y, np.flatnonzero(train), one["words"], split)
        found["test"].append(probe(X[train], y[train], X[held], y[held], found["chosen"]))
    return found


def _sweep(X, y, places, words, split):
    """The strengths tried on a quarter of a training set, of its words or of its occurrences, and the best."""
    rng, types = np.random.default_rng(67), np.unique(words[places])
    of_types = np.isin(words[places], types[rng.random(len(types)) < 0.25])
    out = of_types if split == "new words" else rng.random(len(places)) < 0.25
    own, apart = places[~out], places[out]
    tried = {c: probe(X[own], y[own], X[apart], y[apart], c) for c in CS}
    while len(tried) < MOST and (best := max(tried, key=tried.get)) in (low := min(tried), high := max(tried)):
        c = float(f"{high * 10 if best == high else low / 10:.2g}")
        tried[c] = probe(X[own], y[own], X[apart], y[apart], c)
    return {"tried": [[{"C": c}, [tried[c]]] for c in sorted(tried)], "chosen": max(tried, key=tried.get)}


def _most(labels):
    kinds, counts = np.unique(labels, return_counts=True)
    return kinds[counts.argmax()]


@torch.no_grad()
def embedded(X, mask, layer: int) -> np.ndarray:
    """The sentence vectors that the rest of MiniLM makes of rows behind so many layers."""
    params = encoder()
    rest = {str(i - layer): params["layers"][str(i)] for i in range(layer, len(params["layers"]))}
    join = partial(at.sublayer, norm=partial(at.layer_norm, eps=1e-12))
    keep = torch.from_numpy(mask)
    Y = at.encoder(torch.from_numpy(X), {"layers": rest}, minilm.HEADS, keep[..., None, None, :], join=join)
    return at.unit_norm(at.mean_pool(Y, keep)).numpy()


def sentences(seed: int) -> dict:
    """How far MiniLM's sentence vectors move without the subspace of the syllables, of controls, or random ones."""
    rng, (ids, mask) = np.random.default_rng((seed, 53)), passages(seed, PASSAGES // 2)
    one, H = occurrences(ids, mask, rng), states(encoder(), ids, mask)
    own = embedded(H[-1][:ENCODED], mask[:ENCODED], 6)
    X, rows = H[BEHIND][one["at"]], H[BEHIND][mask]
    centre = rows.mean(0)

    def moved(U):
        U = U.astype(np.float32)
        share = np.square((rows - centre) @ U).sum() / np.square(rows - centre).sum()
        new = embedded(without(H[BEHIND][:ENCODED], U, centre), mask[:ENCODED], BEHIND)
        return [round(float(share), 5), round(float(1 - (own * new).sum(-1).mean()), 5)]

    controls = [control_labels(one["words"], one["syllables"], rng) for _ in range(DRAWS)]
    return {
        "syllables": moved(mean_directions(X, one["syllables"])),
        "control": [moved(mean_directions(X, labels)) for labels in controls],
        "random": [moved(np.linalg.qr(rng.standard_normal((X.shape[1], 2)))[0]) for _ in controls],
    }


def _of_draws(draws, **parts):
    return {name: {str(seed): partial(of, seed) for seed in draws} for name, of in parts.items()}


def of_the_language_model(draws: tuple = SEEDS[:1]) -> dict:
    """What is asked of the language model: of other trainings on the first draw."""
    return _of_draws(draws, lens=lens, removal=removal, matched=matched)


def _plan():
    minilms = _of_draws(SEEDS, probes=probes, sentences=sentences)
    minilms |= {"tuned": {" ".join(map(str, one)): partial(tuned, *one) for one in TUNED}}
    pushed = _of_draws(SEEDS, steering=steering) | {"written": {STORY: written}}
    own = of_the_language_model(SEEDS) | minilms | pushed
    return own | {"other trainings": lm.others(of_the_language_model)}


def _told(found):
    return str(found)[:300]


FILE = "chapters/09_theory/probes.json"
PARTS = ("lens", "removal", "matched", "probes", "sentences", "tuned", "steering", "written", "other trainings")
STUDY = Study("attnmath.probes_study", FILE, PARTS, _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
