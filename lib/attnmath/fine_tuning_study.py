"""What filling in blanks is good for: ``python -m attnmath.fine_tuning_study OUT.json`` fine-tunes and measures.

The pretrained model is the one that comes with the book, a run of ``python -m attnmath.train mlm``, which the study
repeats and compares with it. Shorter runs say what it matters where the heads begin to look.

Every method gets at least three settings. The files of `DEV` choose among them with the labels of the first seed, and
the chosen one is asked for the test with three seeds.

The task: of the first 48 tokens of a docstring, say which subpackage of NumPy or SciPy it documents. Files are whole in
one part, so no docstring of a test file was ever seen, neither with its label nor without.
"""

import hashlib
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from attnmath import bpe
from attnmath.cmudict import draw
from attnmath.docs import docs, subpackage
from attnmath.study import Study
from attnmath.tasks import mlm
from attnmath.torch.bert import bert, mean_pool
from attnmath.torch.losses import cross_entropy
from attnmath.torch.training import Run, rise_and_cosine

SEEDS = (1, 2, 3)
LABELS = (0,)  # how many labelled docstrings; 0 for all
STEPS, LOOKS = {0: 1000}, 10  # of a fine-tuning; how often the dev files are asked on the way
RATES = (5e-4, 1.5e-3, 5e-3)  # more are tried beyond an end that is the best
BATCH, DEV = 32, 0.2
TRAINED, TESTED = 50, 10  # the least number of docstrings of a class
SHARES = (0.05, 0.15, 0.4, 0.8)  # of the tokens that are blanks, in a measurement
SPLITS = {"masked": (1.0, 0.0, 0.0), "random": (0.0, 1.0, 0.0), "unchanged": (0.0, 0.0, 1.0)}
CONFIG = mlm.PRESETS["book"]
FIRST = 3  # losses that a test repeats
C = (0.1, 1.0, 10.0, 100.0, 1000.0)
ALPHA = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SHORT = 125  # steps before each look at the validation text, in the runs of `starts`
STARTS = {"near": True, "everywhere": False}
RUNS = ("pretrained", "from nothing", "pretrained, frozen")
OTHERS = ("frequent", "bayes", "tf-idf", "tf-idf, whole")


class Part(NamedTuple):
    """Docstrings with labels: rows of ids (n, 48), the texts that these stand for, whole texts, labels, files."""

    ids: np.ndarray
    texts: list[str]
    whole: list[str]
    y: np.ndarray
    files: np.ndarray


# the task ------------------------------------------------------------------------------------------------------------


def classes() -> list[str]:
    """The subpackages with enough docstrings to learn from and to test on."""
    data = docs()
    seen, new = (Counter(subpackage(doc.file) for doc in part) for part in (data.train, data.validation + data.test))
    return sorted(name for name in seen if seen[name] >= TRAINED and new[name] >= TESTED)


def labelled(tokens: bpe.BytePairs, context: int) -> dict[str, Part]:
    """The docstrings of the classes by part: ``"train"``, ``"dev"`` (other files of the training text) and ``"test"``.

    The test part is what the pretraining never reads, `attnmath.docs`' validation and test.
    """
    names, data = classes(), docs()
    parts = {"train": [], "dev": [], "test": list(data.validation + data.test)}
    for doc in data.train:
        parts["dev" if draw(f"labels {doc.file}") < DEV else "train"].append(doc)
    return {part: _part(several, names, tokens, context) for part, several in parts.items()}


def _part(several, names, tokens, context):
    kept = [doc for doc in several if subpackage(doc.file) in names]
    rows = [tokens.encode(doc.text)[:context] for doc in kept]
    files = {file: i for i, file in enumerate(dict.fromkeys(doc.file for doc in kept))}
    y = np.array([names.index(subpackage(doc.file)) for doc in kept])
    texts = [tokens.decode(row) for row in rows]
    numbers = np.array([files[doc.file] for doc in kept])
    return Part(mlm.padded(rows, context), texts, [doc.text for doc in kept], y, numbers)


def sample(y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Which documents are labelled: so many, drawn without looking at them; all of them if count is 0.

    Examples
    --------
    >>> len(sample(np.zeros(9), 4, 1)), len(sample(np.zeros(9), 0, 1))
    (4, 9)
    """
    order = np.random.default_rng((seed, 5)).permutation(len(y))
    return order[: count or None]


# the network ---------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """The encoder of a masked language model, the mean of its rows, and a linear map to the classes."""

    def __init__(self, encoder, classes: int):
        super().__init__()
        self.encoder = encoder
        self.out = nn.Linear(encoder.embeddings.word.shape[1], classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def features(self, ids):
        tree, mask = self.encoder.tree(), ids != mlm.PAD
        tower = {name: tree[name] for name in ("embeddings", "layers")}
        return mean_pool(bert(ids, tower, self.encoder.heads, mask, **self.encoder.options), mask)

    def forward(self, ids):
        return self.out(self.features(ids))


def encoder(config: mlm.Config, state: dict | None, seed: int) -> nn.Module:
    """The network with trained parameters, or with those that a seed draws."""
    torch.manual_seed(seed)
    model = mlm.network(config)
    if state is not None:
        model.load_state_dict(state)
    return model


def fine_tune(model: Classifier, ids, y, rate: float, steps: int, seed: int, *, look=None) -> list[float]:
    """Train all parameters of a classifier; gives the losses. ``look(step)`` is called LOOKS times."""
    rng, losses = np.random.default_rng((seed, 6)), []
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01, foreach=True)
    ids, y = torch.from_numpy(ids), torch.from_numpy(y)
    for step in range(1, steps + 1):
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = rise_and_cosine(step, rate, steps // 10, steps)
        rows = torch.from_numpy(rng.choice(len(y), min(BATCH, len(y)), replace=False))
        loss = cross_entropy(model(ids[rows]), y[rows])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if look and step % (steps // LOOKS) == 0:
            look(step)
    return losses


@torch.no_grad()
def by_rows(call, ids: np.ndarray, size: int = 128) -> np.ndarray:
    """A function of ids on many rows, some at a time."""
    return np.concatenate([call(torch.from_numpy(ids[i : i + size])).numpy() for i in range(0, len(ids), size)])


def right(model: Classifier, part: Part) -> np.ndarray:
    """For each document of a part whether a classifier says its subpackage."""
    return by_rows(model.eval(), part.ids).argmax(-1) == part.y


def written(hits: np.ndarray) -> str:
    """Booleans as a row of ones and zeros.

    Examples
    --------
    >>> written(np.array([True, False]))
    '10'
    """
    return "".join("01"[hit] for hit in hits.astype(int))


def tuned(state: dict | None, parts, count: int, seed: int, rate: float) -> dict:
    """Fine-tune from a state, or from parameters that the seed draws, and keep the look that is best on the dev files.

    Returns
    -------
    ``"first"``, losses; ``"dev"``, the share that is right at each look; ``"right"``, the hits of the kept one on the
    test, for which a caller asks who has chosen by ``"dev"`` alone.
    """
    train, dev, test = parts["train"], parts["dev"], parts["test"]
    rows, scores, kept = sample(train.y, count, seed), [], {}
    model = Classifier(encoder(CONFIG, state, seed), len(classes()))

    def look(step):
        scores.append(round(float(right(model, dev).mean()), 4))
        if scores[-1] > max(scores[:-1], default=-1):
            kept.update({name: P.clone() for name, P in model.state_dict().items()})

    losses = fine_tune(model, train.ids[rows], train.y[rows], rate, STEPS[count], seed, look=look)
    model.load_state_dict(kept)
    return {"first": [round(loss, 4) for loss in losses[:FIRST]], "dev": scores, "right": written(right(model, test))}


def swept(run: Callable[[float], float], rates: Sequence[float]) -> dict[float, float]:
    """The scores of some settings, and of more, twice or half as large, until the best is not the end.

    Examples
    --------
    >>> swept(lambda rate: -((rate - 3) ** 2), (0.5, 1.0))
    {0.5: -6.25, 1.0: -4.0, 2.0: -1.0, 4.0: -1.0}
    """
    found = {rate: run(rate) for rate in rates}
    while (best := max(found, key=found.get)) in (min(found), max(found)):
        rate = best * 2 if best == max(found) else best / 2
        found[rate] = run(rate)
    return dict(sorted(found.items()))


def encoder_runs(kind: str, count: int) -> dict:
    """The rates that were tried for an encoder with the labels of the first seed, and the best one with every seed."""
    parts, state, runs = _parts(), mlm.load()[0].state_dict() if kind == "pretrained" else None, {}

    def score(rate):
        runs[rate] = tuned(state, parts, count, SEEDS[0], rate)
        return max(runs[rate]["dev"])

    found = swept(score, RATES)
    rate = max(found, key=found.get)
    seeds = {SEEDS[0]: runs[rate]} | {seed: tuned(state, parts, count, seed, rate) for seed in SEEDS[1:]}
    tried = {str(rate): [score, runs[rate]["dev"]] for rate, score in found.items()}
    return {"tried": tried, "chosen": str(rate), "seeds": {str(seed): one for seed, one in seeds.items()}}


# linear models -------------------------------------------------------------------------------------------------------


def chosen(model: Callable, strengths, features: Callable, parts, count: int) -> dict:
    """Fit a model of scikit-learn with some strengths to the labels of the first seed, and the best with every seed.

    Parameters
    ----------
    model : gives a model for a strength.
    strengths : that are tried.
    features : gives, for the rows that are labelled and a seed, the features of each part.
    parts, count : the documents, and how many of them are labelled.
    """

    def fitted(strength, seed):
        rows = sample(parts["train"].y, count, seed)
        own = features(rows, seed)
        fit = model(strength).fit(own["train"][rows], parts["train"].y[rows])
        dev, test = (fit.predict(own[part]) == parts[part].y for part in ("dev", "test"))
        return round(float(dev.mean()), 4), written(test)

    scores = {strength: fitted(strength, SEEDS[0])[0] for strength in strengths}
    best, seeds = max(scores, key=scores.get), {}
    for seed in SEEDS:
        dev, hits = fitted(best, seed)
        seeds[str(seed)] = {"dev": dev, "right": hits}
    return {"tried": {str(strength): score for strength, score in scores.items()}, "chosen": str(best), "seeds": seeds}


def on_vectors(vectors: Callable[[int], dict[str, np.ndarray]], parts, count: int) -> dict:
    """Logistic regression on vectors, each component brought to variance 1 on the training documents."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def model(c):
        return make_pipeline(StandardScaler(), LogisticRegression(C=c / 1000, max_iter=500))

    return chosen(model, C, lambda rows, seed: vectors(seed), parts, count)


def on_words(kind: str, parts, count: int) -> dict:
    """The most frequent class, naive Bayes on counts of words, or logistic regression on tf-idf of words.

    The kind ``"tf-idf, whole"`` alone reads whole docstrings, the others the first 48 tokens.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB

    texts = {name: part.whole if "whole" in kind else part.texts for name, part in parts.items()}

    def features(rows, seed):
        vectorizer = (TfidfVectorizer if "tf-idf" in kind else CountVectorizer)(token_pattern=r"(?u)\b\w+\b")
        vectorizer.fit([texts["train"][i] for i in rows])
        return {name: vectorizer.transform(several) for name, several in texts.items()}

    model, strengths = {
        "frequent": (lambda _: DummyClassifier(), (0.0,)),
        "bayes": (lambda alpha: MultinomialNB(alpha=alpha), ALPHA),
        "tf-idf": (lambda c: LogisticRegression(C=c, max_iter=500), C),
    }[kind.partition(",")[0]]
    return chosen(model, strengths, features, parts, count)


# blanks --------------------------------------------------------------------------------------------------------------


def counted(train: np.ndarray, batch, vocabulary: int) -> dict[str, float]:
    """What tables of counts need for a blank, in bits: of the token alone, and of it between its two neighbours.

    Each table is mixed with the next coarser one after Witten and Bell: both neighbours, the mean of left and right
    neighbour alone, the token alone. A neighbour is what the model sees too, be it a blank.
    """
    mask = train != mlm.PAD
    one = np.bincount(train[mask], minlength=vocabulary) + 1.0
    one /= one.sum()
    sides = np.pad(train, ((0, 0), (1, 1)))
    tables = [{}, {}, {}]
    for left, token, right in zip(sides[:, :-2][mask], train[mask], sides[:, 2:][mask], strict=True):
        for table, key in zip(tables, (left, right, (left, right)), strict=True):
            table.setdefault(key, Counter())[token] += 1

    def mixed(table, key, token, coarse):
        seen = table.get(key)
        return coarse if seen is None else (seen[token] + len(seen) * coarse) / (seen.total() + len(seen))

    shown, bits = np.pad(batch.ids, ((0, 0), (1, 1))), {"alone": 0.0, "between": 0.0}
    places = np.argwhere(batch.chosen)
    for i, j in places:
        token, left, right = batch.targets[i, j], shown[i, j], shown[i, j + 2]
        near = 0.5 * sum(mixed(tables[k], key, token, one[token]) for k, key in ((0, left), (1, right)))
        bits["alone"] -= math.log2(one[token])
        bits["between"] -= math.log2(mixed(tables[2], (left, right), token, near))
    return {name: round(value / len(places), 3) for name, value in bits.items()}


@torch.no_grad()
def two_orders(model, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Two neighbouring blanks filled one after the other, in both orders: the logarithms of the two products, (w, 2).

    Parameters
    ----------
    model : a masked language model.
    ids : (w, n) pieces of at least two tokens; the pair is drawn in each.
    """
    length = (ids != mlm.PAD).sum(-1)
    at, rows = rng.integers(0, length - 1), np.arange(len(ids))
    X = torch.from_numpy(ids)
    logp = []
    for hidden in ((0, 1), (0,), (1,)):
        seen, where = X.clone(), np.stack([at + k for k in hidden], -1)
        seen[rows[:, None], where] = mlm.MASK
        chosen = torch.zeros_like(X, dtype=torch.bool)
        chosen[rows[:, None], where] = True
        found = torch.log_softmax(model(seen, X != mlm.PAD, chosen).double(), -1)
        logp.append(found.gather(-1, X[chosen][:, None])[:, 0].reshape(len(ids), -1).numpy())
    both, first, second = logp
    return np.stack([both[:, 0] + second[:, 0], both[:, 1] + first[:, 0]], -1)


def blanks(task: mlm.Task, model) -> dict:
    """What the trained model knows of blanks in text that it has not seen."""
    ids = task.ids["validation"]
    whole = ids[(ids != mlm.PAD).sum(-1) == task.config.context][:300]
    gap = np.subtract(*two_orders(model, whole, np.random.default_rng(0)).T)
    shares = {}
    for share in SHARES:
        found = mlm.with_blanks(ids, np.random.default_rng(0), task.config, share=share, split=SPLITS["masked"])
        shares[str(share)] = round(float(mlm.losses(model, found).mean() / math.log(2)), 3)
    return {
        "bits": round(task.measured(model, "validation"), 3),
        "seen as": {name: round(task.measured(model, "validation", split=s), 3) for name, s in SPLITS.items()},
        "shares": shares,
        "orders": [round(float(x), 4) for x in (np.abs(gap).mean(), np.median(np.abs(gap)), np.abs(gap).max())],
    }


# the pretraining -----------------------------------------------------------------------------------------------------


def pretrained(config: mlm.Config) -> tuple[dict, nn.Module]:
    """Fill in blanks as ``python -m attnmath.train mlm`` does: what a record keeps of the run, and the model."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(mlm.Task(config), Path(folder)).fit(progress=False)
    run.model.eval()
    return {
        "config": asdict(config),
        "first": [round(loss, 4) for loss in run.losses[:FIRST]],
        "curve": np.array(run.losses).reshape(-1, 25).mean(1).round(4).tolist(),
        "validation": [round(epoch["validation_bits"], 4) for epoch in run.history],
        "bits": {part: round(run.task.measured(run.model, part), 4) for part in ("validation", "test")},
    }, run.model


def committed() -> dict:
    """The run of the model that comes with the book, repeated, and how far its parameters are from the file's."""
    found, model = pretrained(CONFIG)
    data, ours = mlm.COMMITTED.read_bytes(), mlm.load()[0].state_dict()
    half = {name: X.half().float() for name, X in model.state_dict().items()}
    distance = max(float((half[name] - X).abs().max()) for name, X in ours.items())
    weights = {"file": mlm.COMMITTED.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {"run": "python -m attnmath.train mlm"} | found | {"weights": weights, "distance": distance}


def start(nearby: bool, seed: int) -> dict:
    """A shorter run, with heads that begin near or everywhere."""
    return pretrained(replace(CONFIG, nearby=nearby, seed=seed, steps=SHORT))[0]


# the study -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _parts() -> dict[str, Part]:
    return labelled(mlm.load()[1], CONFIG.context)


def frozen_runs(kind: str, count: int) -> dict:
    """Logistic regression on the mean rows of an encoder that is not trained further."""
    parts, state = _parts(), mlm.load()[0].state_dict() if kind.startswith("pretrained") else None

    @lru_cache(maxsize=1)
    def vectors(seed):
        one = Classifier(encoder(CONFIG, state, seed), 1).eval()
        return {name: by_rows(one.features, part.ids) for name, part in parts.items()}

    return on_vectors(vectors, parts, count)


def runs(kind: str, count: int) -> dict:
    """An encoder as classifier: what was tried for it, and the hits of the chosen setting by seed.

    A seed draws the labelled documents, the batches and the first parameters.
    """
    return (frozen_runs if "frozen" in kind else encoder_runs)(kind, count)


def others(kind: str, count: int) -> dict:
    """A model of words: the same of it."""
    return on_words(kind, _parts(), count)


def data() -> dict:
    """The sizes of the parts, the files of the test documents, and what is known of the blanks."""
    names, parts, task, (model, _) = classes(), _parts(), mlm.Task(CONFIG), mlm.load()
    found = mlm.with_blanks(task.ids["validation"], np.random.default_rng(0), CONFIG)
    return {
        "classes": {name: [int((part.y == i).sum()) for part in parts.values()] for i, name in enumerate(names)},
        "files": parts["test"].files.tolist(),
        "tokens": {part: int((ids != mlm.PAD).sum()) for part, ids in task.ids.items()},
        "counts": counted(task.ids["train"], found, CONFIG.vocabulary),
        "parameters": sum(P.numel() for P in model.parameters()),
        "blanks": blanks(task, model),
    }


def _plan():
    starts = {f"{name} {seed}": partial(start, nearby, seed) for name, nearby in STARTS.items() for seed in SEEDS}
    return {
        "data": data,
        "pretraining": {"committed": committed} | starts,
        "others": {f"{kind} {n}": partial(others, kind, n) for kind in OTHERS for n in LABELS},
        "runs": {f"{kind} {n}": partial(runs, kind, n) for n in LABELS for kind in RUNS},
    }


def _told(found):
    if "curve" in found:
        return found["bits"]
    return found["tried"], found["chosen"], [one["right"].count("1") for one in found["seeds"].values()]


FILE = "chapters/08_at_work/masked_language_model.json"
STUDY = Study("attnmath.fine_tuning_study", FILE, ("data", "pretraining", "others", "runs"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
