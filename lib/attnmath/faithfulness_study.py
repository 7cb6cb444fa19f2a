"""Which scores of words pass a test: ``python -m attnmath.faithfulness_study OUT.json`` measures two trained models.

The course's language model is asked why it names its next token, and MiniLM why it finds two sentences similar. The
weights of both are also moved as far as the output allows.
"""

import sys
import tempfile
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

import attnmath.torch as at
from attnmath import corpus, minilm
from attnmath.faithfulness import (
    attention_flow,
    deletion_curve,
    distance,
    farthest_weights,
    free_directions,
    integrated_gradients,
    least_weight,
    occlusion,
)
from attnmath.rollout import attention_rollout
from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.torch.training import Run
from attnmath.vision_study import rank_correlation

SEEDS = (1, 2, 3)  # draws of texts
TEXTS = {"language model": 24, "MiniLM": 10}
N, LONG, STEPS, ORDERS, POINTS = 32, 100, 8, 3, 32
FIRST = 4  # losses that a test repeats
RATES, MOST = (1e-3, 3e-3, 1e-2), 6  # of a sweep, which goes on while its best is the end; so many at most
CHANGED = (1, 10, 40)  # words of a text for which weights of the old text are kept
WORDS = (10, 18)  # of a sentence of MiniLM's
METHODS = ("attention", "rollout", "flow", "gradient", "gradient x input", "integrated", "occlusion", "no model")
METHODS += ("random",)


@lm.cached
def language_model():
    return lm.load().eval().requires_grad_(False)


@lru_cache(1)
def encoder():
    model = minilm.load()
    return model, at.from_numpy(model.params)


@lru_cache(2)
def text(part: str = "test") -> np.ndarray:
    """Documents that the language model was not trained on."""
    return lm.stream(language_model().tokens, lm.docstrings()[part][:60])


@lru_cache(1)
def sentences() -> tuple[list, np.ndarray]:
    """Short sentences and their vectors."""
    pool = corpus.sentences(150, words=WORDS)
    return pool, encoder()[0].embed(pool)


class Question:
    """Why does a model answer so? A number, and the vectors of the words that it depends on.

    Attributes
    ----------
    ids : (n,) the tokens that are read.
    words : the places of those that may be taken out.
    X : (words, d) their vectors.
    nothing : (d,) what stands for a word that is taken out.
    plain : (words,) scores that know nothing of the model.
    """

    def __init__(self, ids, words, table, nothing, plain):
        self.ids, self.words, self.table, self.plain = ids, words, table, plain
        self.all, self.nothing = table[torch.from_numpy(ids)], nothing
        self.X = self.all[words]

    def values(self, X, record=None):
        """The answers (b,) for vectors of the words (b, words, d)."""
        raise NotImplementedError

    def share(self, R):
        """What each word has of the row that answers, if R (n, n) says it of each row."""
        raise NotImplementedError

    def _filled(self, X):
        full = self.all.expand(len(X), *self.all.shape).clone()
        full[:, self.words] = X
        return full

    def answer(self, kept, other=None):
        """The answers with some words kept, and the others replaced by nothing, or by other tokens (words,)."""
        gone = self.nothing.expand_as(self.X) if other is None else self.table[torch.from_numpy(other)]
        with torch.no_grad():
            return self.values(torch.where(torch.from_numpy(kept)[..., None], self.X, gone)).double().numpy()

    def gradient(self, X):
        """The gradients of the answers."""
        X = torch.as_tensor(np.asarray(X), dtype=torch.float32).requires_grad_()
        return torch.autograd.grad(self.values(X).sum(), X)[0].double().numpy()

    @cached_property
    def maps(self) -> np.ndarray:
        """The weights (layers, heads, n, n)."""
        record: dict = {}
        with torch.no_grad():
            self.values(self.X[None], record)
        layers = record["layers"]
        return np.stack([layers[str(i)]["attention"]["weights"][0].double().numpy() for i in range(len(layers))])

    @cached_property
    def flow(self) -> np.ndarray:
        return attention_flow(self.maps)

    def at_the_cut(self) -> float:
        """In which share of all pairs the flow is all that the first layer's edges into the word can carry."""
        n = len(self.ids)
        first = 0.5 * self.maps[0].mean(0) + 0.5 * np.eye(n)
        earlier = np.tril(np.ones((n, n), bool)) if isinstance(self, Next) else np.ones((n, n), bool)
        return float((self.flow > np.minimum(first.sum(0), 1) - 1e-5)[earlier].mean())

    def scores(self) -> dict:
        """The scores of the words by each method."""
        P, X, b = self.maps, self.X.double().numpy(), self.nothing.double().numpy()
        G = self.gradient(X[None])[0]
        return {
            "attention": self.share(P[-1].mean(0)),
            "rollout": self.share(attention_rollout(P)),
            "flow": self.share(self.flow),
            "gradient": np.linalg.norm(G, axis=-1),
            "gradient x input": ((X - b) * G).sum(-1),
            "integrated": integrated_gradients(self.gradient, X, b, points=POINTS).sum(-1),
            "occlusion": occlusion(self.answer, len(X)),
            "no model": self.plain,
        }


class Next(Question):
    """The log-probability of the token that the language model finds likeliest."""

    def __init__(self, ids):
        self.model = language_model()
        self.tree, n = self.model.tree(), len(ids)
        table = self.tree["embeddings"]["word"]
        super().__init__(ids, np.arange(n), table, table.mean(0), np.arange(n, dtype=float))  # the last words first
        with torch.no_grad():
            self.target = int(self.logits(self.X[None])[0].argmax())

    def logits(self, X, **options):
        def embed(_, own, start=0):
            return X + own["position"][: X.shape[-2]]

        ids = torch.from_numpy(self.ids).expand(len(X), -1)
        return self.model(ids, embed=embed, head=at.last_row(), **options)[:, 0]

    def values(self, X, record=None):
        return torch.log_softmax(self.logits(self._filled(X), record=record), -1)[:, self.target]

    def share(self, R):
        return R[-1]


class Similar(Question):
    """The cosine similarity of a sentence with another one."""

    def __init__(self, one: str, other: str):
        model, self.tree = encoder()
        ids = model.encode([one])[0][0]
        inner = ids[1:-1]  # without [CLS] and [SEP]
        mask_token = model.tokenizer.token_to_id("[MASK]")
        table = self.tree["embeddings"]["word"]
        # the vocabulary is sorted by frequency, with the rare words last
        super().__init__(ids, np.arange(1, len(ids) - 1), table, table[mask_token], inner.astype(float))
        self.other = torch.from_numpy(model.embed([other])[0])

    def values(self, X, record=None):
        def embed(_, own, eps):
            rows = self._filled(X) + own["position"][: len(self.ids)] + own["segment"][0]
            return at.layer_norm(rows, own["norm"]["gain"], own["norm"]["bias"], eps)

        ids = torch.from_numpy(self.ids).expand(len(X), -1)
        Y = at.sentence_embedding(
            ids, self.tree, minilm.HEADS, torch.ones(ids.shape, dtype=bool), embed=embed, record=record
        )
        return Y @ self.other

    def share(self, R):
        return R.mean(0)[self.words]


def questions(name: str, seed: int, part: str = "test") -> list[Question]:
    """The questions of one draw."""
    rng = np.random.default_rng((seed, 23))
    count = TEXTS[name]
    if name == "language model":
        starts = rng.choice(len(text(part)) - N, count, replace=False)
        return [Next(text(part)[start : start + N]) for start in starts]
    pool, vectors = sentences()
    chosen = rng.choice(len(pool), count, replace=False)
    nearest = np.argsort(-(vectors[chosen] @ vectors.T), -1)[:, 1]  # the first one is the sentence itself
    return [Similar(pool[i], pool[j]) for i, j in zip(chosen, nearest, strict=True)]


def tested(question: Question, rng) -> dict:
    """For each method the fall of the answer, words taken out in two ways, and the correlation with occlusion."""
    scores, n = question.scores(), len(question.X)
    other = question.ids[question.words][rng.permutation(n)]  # words of the same text in other places
    ways = {"fall": question.answer, "fall, other words": partial(question.answer, other=other)}
    orders = {name: [S] for name, S in scores.items()} | {"random": [rng.random(n) for _ in range(ORDERS)]}
    found = {}
    for name, some in orders.items():
        whole = question.answer(np.ones((1, n), bool))[0]
        rows = {way: [deletion_curve(answer, S, steps=STEPS) for S in some] for way, answer in ways.items()}
        kept = [deletion_curve(question.answer, S, keep=True, steps=STEPS) for S in some]
        found[name] = {way: whole - np.mean(curves, 0) for way, curves in rows.items()}
        found[name]["missing"] = whole - np.mean(kept, 0)
        found[name]["agrees"] = np.mean([rank_correlation(S[None], scores["occlusion"][None]) for S in some])
    total = question.answer(np.vstack([np.ones(n, bool), np.zeros(n, bool)]))
    found["integrated"]["error"] = abs(scores["integrated"].sum() - (total[0] - total[1]))
    found["flow"]["cut"] = question.at_the_cut()
    return found


def measured(name: str, seed: int) -> dict:
    """The mean over the questions of one draw, and how many questions a method wins against random orders."""
    rng = np.random.default_rng((seed, 29))
    found = [tested(question, rng) for question in questions(name, seed)]

    def mean(method, what):
        return np.round(np.mean([one[method][what] for one in found], 0), 4).tolist()

    table = {}
    for method in METHODS:
        table[method] = {what: mean(method, what) for what in ("fall", "fall, other words", "missing", "agrees")}
        for rival in ("random", "no model"):
            won = [one[method]["fall"].mean() > one[rival]["fall"].mean() for one in found]
            table[method][f"beats {rival}"] = int(sum(won))
    error = max(one["integrated"]["error"] for one in found)
    cut = round(float(np.mean([one["flow"]["cut"] for one in found])), 4)
    return {"methods": table, "completeness error": float(f"{error:.2g}"), "flow at the cut": cut}


# other ways to read a map ---------------------------------------------------------------------------------------------


def readings(question: Next) -> dict:
    """Scores by the attention of one layer or of all, its heads averaged, at their largest, or times their values."""
    lengths: list = []

    def spy(Q, K, V, **options):
        lengths.append(V[0, ..., : values_width(V)].norm(dim=-1).double().numpy())
        return at.attention_fused(Q, K, V, **options)

    with torch.no_grad():
        question.logits(question.X[None], attend=spy, record={})
    P, sizes = question.maps[:, :, -1], np.stack(lengths)  # the row that answers, (layers, heads, n)
    found = {"mean": P.mean(1), "largest": P.max(1), "times the value": (P * sizes).mean(1)}
    return {(layer, how): S[layer] for how, S in found.items() for layer in range(len(P))} | {
        ("all", how): S.mean(0) for how, S in found.items()
    }


def leads(seed: int, part: str = "test") -> dict:
    """By how much the mean fall of each reading exceeds that of "last words first", and in how many texts it does."""
    falls: dict = {}
    for question in questions("language model", seed, part):
        scores = readings(question) | {"rule": question.plain}
        for name, S in scores.items():
            curve = deletion_curve(question.answer, S, steps=STEPS)
            falls.setdefault(name, []).append((curve[0] - curve[1:]).mean())
    rule = np.array(falls.pop("rule"))
    return {name: (float((own - rule).mean()), int((own > rule).sum())) for name, own in falls.items()}


def read_otherwise() -> dict:
    """Twelve readings of the maps tried on validation texts; the best of them on the draws of test texts."""
    tried = leads(SEEDS[0], "validation")
    best, found = max(tried, key=tried.get), [leads(seed) for seed in SEEDS]
    settings = [({"layer": str(layer), "heads": how}, [round(lead, 4)]) for (layer, how), (lead, _) in tried.items()]
    return {
        "tried": settings,
        "chosen": [str(x) for x in best],
        "lead": [round(one[best][0], 4) for one in found],
        "wins": [one[best][1] for one in found],
        "most wins of any": [max(won for _, won in one.values()) for one in found],
    }


# how freely the weights can move --------------------------------------------------------------------------------------


def moved(p, V, tolerance: float = 0.0) -> dict:
    """How far weights can move, and what the largest can fall to, while the output moves by a share of itself."""
    epsilon = tolerance * np.abs(p @ V).mean()
    top = int(p.argmax())
    far = farthest_weights(p, V, tolerance=epsilon)
    least = least_weight(p, V, top, tolerance=epsilon)[top]
    return {"distance": distance(p, far), "top": float(p[top]), "least": float(least), "far": far}


def last_row(ids, cores=None):
    """The language model's log-probabilities behind a text, and the last layer's values and weights by head."""
    model, seen, record = language_model(), {}, {}

    def spy(Q, K, V, **options):
        seen["V"] = V[0, ..., : values_width(V)].double().numpy()
        return at.attention_fused(Q, K, V, **options)

    last = model.config.layers - 1
    each = [at.attention_fused] * last + [spy if cores is None else cores]
    with torch.no_grad():
        Z = model(torch.from_numpy(ids)[None], attend=each, head=at.last_row(), record=record)[0, 0]
    P = record["layers"][str(last)]["attention"]["weights"][0].double().numpy()
    return torch.log_softmax(Z.double(), -1).numpy(), seen.get("V"), P[:, -1]


def held(rows):
    """A core whose last row attends with weights (heads, n) that are given."""
    rows = torch.from_numpy(np.asarray(rows, np.float32))

    def attend(Q, K, V, **options):
        O = at.attention_fused(Q, K, V, **options)
        own = rows.to(V)[:, None] @ V[..., : rows.shape[-1], :]
        extra = V.shape[-2] - rows.shape[-1]
        return torch.cat([O[..., :-1, :], own], -2) if not extra else O

    return attend


def divergence(a, b) -> float:
    """Kullback and Leibler's, of log-probabilities."""
    return float((np.exp(a) * (a - b)).sum())


def freedom_of_next(seed: int, count: int = 6) -> dict:
    """Adversarial weights for the last row of the last layer, and what they predict when words change."""
    rng, found = np.random.default_rng((seed, 31)), []
    for start in rng.choice(len(text()) - LONG, count, replace=False):
        ids = text()[start : start + LONG]
        before, V, P = last_row(ids)
        exact = [moved(p, values) for p, values in zip(P, V, strict=True)]
        loose = [moved(p, values, 0.01) for p, values in zip(P, V, strict=True)]
        swapped = np.stack([one["far"] for one in exact])
        one = {
            "directions": min(free_directions(values) for values in V),
            "distance": np.mean([head["distance"] for head in exact]),
            "distance, 1 %": np.mean([head["distance"] for head in loose]),
            "top": np.mean([head["top"] for head in exact]),
            "least": np.mean([head["least"] for head in exact]),
            "change": abs(last_row(ids, held(swapped))[0] - before).max(),
        }
        rows = {"own": P, "far": swapped, "flat": np.full(P.shape, 1 / LONG)}
        for words in CHANGED:
            changed = ids.copy()  # some words of the text, but not the last, become other words of it
            changed[rng.choice(LONG - 1, words, replace=False)] = ids[rng.choice(LONG, words, replace=False)]
            after = last_row(changed)[0]
            one |= {f"{name}, {words}": divergence(after, last_row(changed, held(R))[0]) for name, R in rows.items()}
            one[f"old answer, {words}"] = divergence(after, before)
        found.append(one)
    return {name: round(float(np.mean([one[name] for one in found])), 6) for name in found[0]}


def freedom_of_minilm(seed: int, count: int = 2) -> dict:
    """How far one row of each head can move in long sentences, by layer."""
    rng = np.random.default_rng((seed, 37))
    model, tree = encoder()
    pool = [s for s in corpus.sentences(60, words=(36, 60)) if 45 <= model.encode([s])[1].sum() <= 70]
    found = []
    for i in rng.choice(len(pool), count, replace=False):
        ids = model.encode([pool[i]])[0]
        seen: list = []

        def spy(Q, K, V, into=seen, **options):
            into.append(V[0, ..., : values_width(V)].double().numpy())
            return at.attention_fused(Q, K, V, **options)

        record: dict = {}
        with torch.no_grad():
            at.bert(torch.from_numpy(ids), tree, minilm.HEADS, attend=spy, record=record)
        n = ids.shape[-1]
        for layer, V in enumerate(seen):
            P = record["layers"][str(layer)]["attention"]["weights"][0].double().numpy()
            for p, values in zip(P[:, rng.integers(1, n - 1)], V, strict=True):
                one = moved(p, values)
                found.append((layer, n, free_directions(values), one["distance"], one["top"], one["least"]))
    names = ("tokens", "directions", "distance", "top", "least")
    rows = np.array(found)
    return {
        str(layer): {name: round(float(rows[rows[:, 0] == layer, k].mean()), 4) for k, name in enumerate(names, 1)}
        for layer in range(len(seen))
    }


def values_width(V) -> int:
    """The width of a head's values; a recorded core has an identity behind them."""
    return V.shape[-1] - V.shape[-2]


# weights that are replaced in all texts -------------------------------------------------------------------------------


def replaced_everywhere(seed: int, count: int = 24) -> dict:
    """The mean loss when all heads of the last layer, or of all layers, attend in another way in all texts."""
    rng, model = np.random.default_rng((seed, 41)), language_model()
    starts = rng.choice(len(text()) - LONG - 1, count, replace=False)
    ids = torch.from_numpy(text()[starts[:, None] + np.arange(LONG + 1)])
    layers, found = model.config.layers, {}
    for where, chosen in {"last layer": [layers - 1], "all layers": range(layers)}.items():
        for how in ("own", "permuted", "other text", "uniform"):
            cores = [other_way(how, rng) if i in chosen else at.attention_fused for i in range(layers)]
            with torch.no_grad():
                Z = model(ids[:, :-1], attend=cores)
            loss = torch.nn.functional.cross_entropy(Z.mT, ids[:, 1:])
            found[f"{where}, {how}"] = round(float(loss), 4)
    return found


def other_way(how: str, rng):
    """A core whose weights are put in another order, come from the text before, or are all equal."""

    def attend(Q, K, V, mask=True, **options):
        n = K.shape[-2]
        eye = torch.eye(n, dtype=V.dtype).expand(*K.shape[:-1], n)
        P = at.attention_fused(Q, K, eye, mask=mask, **options)
        seen = torch.tril(torch.ones(n, n, dtype=V.dtype))
        if how == "uniform":
            P = (seen / seen.sum(-1, keepdim=True)).expand_as(P)
        elif how == "other text":
            P = P.roll(1, 0)
        elif how == "permuted":
            order = rng.random(P.shape) + np.triu(np.full((n, n), 2.0), 1)  # the keys to come stay behind
            P = torch.take_along_dim(P, torch.from_numpy(np.argsort(order, -1)), -1)
        return P @ V

    return attend


# models that learn anew -----------------------------------------------------------------------------------------------


class Equal(lm.LanguageModel):
    """The language model with all heads attending to all tokens so far alike, in training too."""

    def forward(self, ids, **options):
        return super().forward(ids, **({"attend": other_way("uniform", None)} | options))


class EqualTask(lm.Task):
    """Its training: the queries and keys receive no gradient, and all else learns."""

    def model(self):
        return Equal(self.config, self.tokens)


def fresh(seed: int, task: type = lm.Task, steps: int | None = None, rate: float = lm.PRESETS["book"].rate):
    """A small language model, the preset ``book``, from its own first weights; ``steps`` stops it early."""
    short = {} if steps is None else {"steps": steps, "epochs": 1}
    config = replace(lm.PRESETS["book"], seed=seed, rate=rate, **short)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(task(config), Path(folder)).fit(save_every=10**6, progress=False)
    return run.model.eval().requires_grad_(False), run.losses


@torch.no_grad()
def read(model, seed: int, count: int = 24, part: str = "test") -> dict:
    """The mean loss on texts, the predictions behind them, and the last layer's mean map in the row that predicts."""
    starts = np.random.default_rng((seed, 43)).choice(len(text(part)) - LONG - 1, count, replace=False)
    ids = torch.from_numpy(text(part)[starts[:, None] + np.arange(LONG + 1)])
    record: dict = {}
    Z = model(ids[:, :-1], record=record)
    maps = record["layers"][str(model.config.layers - 1)]["attention"]["weights"]
    loss = torch.nn.functional.cross_entropy(Z.mT, ids[:, 1:])
    return {
        "loss": float(loss),
        "next": torch.softmax(Z[:, -1].double(), -1).numpy(),
        "map": maps.mean(1)[:, -1].numpy(),
    }


def learned_anew() -> dict:
    """The loss with equal weights from the beginning, and how much maps and predictions vary from seed to seed."""
    found: dict = {"own": {}, "equal": {}, "own, then equal": {}, "first": {}, "seeds": {}}
    readings = {}
    for seed in SEEDS:
        own, losses = fresh(seed)
        equal, _ = fresh(seed, EqualTask)
        readings[seed] = [read(own, draw) for draw in SEEDS]
        flat = [read(with_equal_weights(own), draw) for draw in SEEDS]
        found["own"][str(seed)] = [round(one["loss"], 4) for one in readings[seed]]
        found["equal"][str(seed)] = [round(read(equal, draw)["loss"], 4) for draw in SEEDS]
        found["own, then equal"][str(seed)] = [round(one["loss"], 4) for one in flat]
        found["first"][str(seed)] = [round(loss, 5) for loss in losses[:FIRST]]
    for one, other in combinations(SEEDS, 2):
        pairs = list(zip(readings[one], readings[other], strict=True))
        found["seeds"][f"{one} {other}"] = {
            what: [round(float(abs(a[what] - b[what]).sum(-1).mean() / 2), 4) for a, b in pairs]
            for what in ("map", "next")
        }
    found["flat"] = {
        str(seed): [round(float(abs(one["map"] - 1 / LONG).sum(-1).mean() / 2), 4) for one in readings[seed]]
        for seed in SEEDS
    }
    return found


def rates_anew(task: type = lm.Task) -> dict:
    """Rates tried with the first seed on the validation text; the best one with three seeds on the test text."""
    models: dict = {}

    def score(rate, seed=SEEDS[0]):
        models[rate] = fresh(seed, task, rate=rate)[0]
        return round(float(np.mean([read(models[rate], draw, part="validation")["loss"] for draw in SEEDS])), 4)

    tried = {rate: score(rate) for rate in RATES}
    while len(tried) < MOST and (best := min(tried, key=tried.get)) in (min(tried), max(tried)):
        rate = float(f"{best / 0.3 if best == max(tried) else best * 0.3:.2g}")
        tried[rate] = score(rate)
    best = min(tried, key=tried.get)
    chosen = [models[best], *(fresh(seed, task, rate=best)[0] for seed in SEEDS[1:])]
    test = [[round(read(model, draw)["loss"], 4) for draw in SEEDS] for model in chosen]
    return {"tried": [[{"rate": rate}, [tried[rate]]] for rate in sorted(tried)], "test": test}


def with_equal_weights(model):
    """A trained model with equal weights that it was not trained with."""
    flat = Equal(model.config, model.tokens)
    flat.load_state_dict(model.state_dict())
    return flat.eval()


EXAMPLE = "    a : array_like\n        Input array.\n    axis : int, optional\n        Axis along which the sum is comp"


def example() -> dict:
    """The scores of the tokens of one text."""
    tokens = language_model().tokens
    question = Next(np.array([lm.LIMIT, *tokens.encode(EXAMPLE)]))
    log_p = question.answer(np.ones((1, len(question.ids)), bool))[0]
    return {
        "tokens": [tokens.decode([int(i)]) for i in question.ids],
        "next": tokens.decode([question.target]),
        "probability": round(float(np.exp(log_p)), 4),
        "scores": {name: np.round(S, 4).tolist() for name, S in question.scores().items()},
    }


def _tests(name, draws=SEEDS):
    return {f"{name} {seed}": partial(measured, name, seed) for seed in draws}


def of_the_language_model(draws: tuple = SEEDS[:1]) -> dict:
    """What is asked of the language model: of other trainings on the first draw."""
    return {
        "example": {"docstring": example},
        "tests": _tests("language model", draws),
        "language model": {str(seed): partial(freedom_of_next, seed) for seed in draws},
        "everywhere": {str(seed): partial(replaced_everywhere, seed) for seed in draws},
    }


def _plan():
    asked = of_the_language_model(SEEDS)
    return {
        "example": asked["example"],
        "tests": asked["tests"] | _tests("MiniLM"),
        "language model": asked["language model"],
        "MiniLM": {str(seed): partial(freedom_of_minilm, seed) for seed in SEEDS},
        "everywhere": asked["everywhere"],
        "learned anew": {"book": learned_anew},
        "sweeps": {
            "attention": read_otherwise,
            "own": rates_anew,
            "equal": partial(rates_anew, EqualTask),
        },
        "other trainings": lm.others(of_the_language_model),
    }


FILE = "chapters/09_theory/faithfulness.json"
PARTS = ("example", "tests", "language model", "MiniLM", "everywhere", "learned anew", "sweeps", "other trainings")

STUDY = Study("attnmath.faithfulness_study", FILE, PARTS, _plan)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
