"""How little of a language model has to change: ``python -m attnmath.lora_study OUT.json`` trains and measures.

The model was trained on docstrings, `attnmath.tasks.lm`. It goes on with news, once with all of its numbers, and once
with each of several small parts of them.
"""

import sys
import time
from fnmatch import fnmatchcase
from functools import cache, partial

import numpy as np

from attnmath.study import Study

MAPS = ("*.attention.*", "*.feed_forward.*")
METHODS = {  # what is trained: an adapter of a rank for some maps, or the numbers whose names fit
    "full": ("*",),
    "attention 16": (16, MAPS[:1]),
    "all 1": (1, MAPS),
    "all 4": (4, MAPS),
    "all 16": (16, MAPS),
    "last": ("layers.2.*", "norm.*"),
    "vectors": ("*.bias", "*.gain"),
    "words": ("embeddings.word",),
}
ALPHA = 4.0
SEEDS = (1, 2, 3)
TRIED = 0  # the seed with which rates are compared, on the validation parts
ADAPTER = (1e-3, 3e-3, 6e-3, 1e-2, 3e-2, 1e-1)
RATES = {  # six for each method
    "full": (3e-4, 6e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    **{method: ADAPTER for method, what in METHODS.items() if isinstance(what[0], int)},
    "last": (6e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "vectors": (3e-3, 1e-2, 3e-2, 6e-2, 1e-1, 3e-1),
    "words": (3e-4, 1e-3, 3e-3, 6e-3, 1e-2, 3e-2),
}
AIMS = {"news": ("news",), "both": ("news", "docs")}  # the texts whose mean bits per byte a rate should make small
CHOSEN = {  # the best of them
    "news": {
        "full": 1e-2,
        "attention 16": 3e-2,
        "all 1": 3e-2,
        "all 4": 3e-2,
        "all 16": 3e-2,
        "last": 3e-2,
        "vectors": 1e-1,
        "words": 1e-2,
    },
    "both": {"full": 6e-4, "words": 1e-3, "all 16": 6e-3},
}
STEPS, WARMUP, BATCH, CLIP = 80, 8, 16, 1.0
OLD = {"validation": 20_000, "test": 40_000}  # bytes of held-out docstrings, at least, that are read again
CUTS = (0, 1, 4, 16, 48, 96)  # ranks to which the change that full training made is cut
FIRST = 4  # losses that a test repeats


@cache
def news() -> dict[str, list[str]]:
    """Articles of the Lee corpus without near-duplicates, split by article.

    Examples
    --------
    >>> {part: len(articles) for part, articles in news().items()}
    {'train': 199, 'validation': 30, 'test': 60}
    """
    from attnmath.corpus import lee
    from attnmath.docs import Doc, without_repetitions

    kept, _ = without_repetitions(Doc(str(i), "", text) for i, text in enumerate(lee().background))
    texts = [kept[i].text for i in np.random.default_rng(3).permutation(len(kept))]
    return {"train": texts[90:], "validation": texts[60:90], "test": texts[:60]}


@cache
def docstrings(part: str = "test") -> list[str]:
    """Docstrings of whole files that the model has never seen: the first of a part, ``"validation"`` or ``"test"``.

    Examples
    --------
    >>> len(docstrings()), len(docstrings("validation"))
    (25, 36)
    """
    from attnmath.docs import docs

    texts, size = [], 0
    for doc in getattr(docs(), part):
        if size >= OLD[part]:
            break
        texts.append(doc.text)
        size += len(doc.text.encode()) + 1
    return texts


def prepared(method: str, seed: int) -> tuple:
    """The committed model, ready to be adapted by a method: what is called, and the parameters that are trained."""
    import torch

    from attnmath.tasks import lm
    from attnmath.torch.lora import LoRA

    model, what = lm.load(), METHODS[method]
    if isinstance(what[0], int):
        torch.manual_seed(seed)
        adapted = LoRA(model, what[0], what[1], alpha=ALPHA)
        return adapted, list(adapted.factors.parameters())
    model.requires_grad_(False)
    own = [P for name, P in model.named_parameters() if any(fnmatchcase(name, pattern) for pattern in what)]
    for P in own:
        P.requires_grad_(True)
    return model, own


def train(method: str, seed: int, rate: float, steps: int = STEPS) -> tuple:
    """Adapt the model to the news: the base model with its merged numbers, the losses, and how many were trained."""
    import torch

    from attnmath.tasks import lm
    from attnmath.torch.losses import cross_entropy
    from attnmath.torch.training import rise_and_cosine

    adapted, own = prepared(method, seed)
    base = getattr(adapted, "model", adapted)
    ids, context = lm.stream(base.tokens, news()["train"]), base.config.context
    rng, losses = np.random.default_rng((seed, 7)), []
    adam = torch.optim.AdamW(own, lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, foreach=True)
    for step in range(1, steps + 1):
        chosen = rng.integers(0, len(ids) - context, (BATCH, 1))
        x = torch.from_numpy(ids[chosen + np.arange(context + 1)])
        adam.param_groups[0]["lr"] = rise_and_cosine(step, rate, WARMUP, STEPS)
        loss = cross_entropy(adapted(x[:, :-1]), x[:, 1:])
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own, CLIP)
        adam.step()
        losses.append(loss.item())
    if adapted is not base:
        with torch.no_grad():
            base.load_state_dict(adapted.merged(), strict=False)
    return base, losses, sum(P.numel() for P in own)


def bits(model, texts) -> float:
    """Bits per byte of some texts."""
    from attnmath.tasks import lm

    return round(lm.bits_per_byte(model, texts), 4)


def measured(model, part: str) -> dict:
    """The bits per byte of the news and of the docstrings of a part."""
    return {"news": bits(model, news()[part]), "docs": bits(model, docstrings(part))}


def before() -> dict:
    """The committed model, and how much text there is."""
    from attnmath.tasks import lm

    model, parts = lm.load(), news()
    sizes = {part: {"articles": len(texts), "bytes": lm.length(texts)} for part, texts in parts.items()}
    tokens = {part: len(lm.stream(model.tokens, texts)) - 1 for part, texts in parts.items()}
    return {
        "parameters": sum(P.numel() for P in model.parameters()),
        "text": {part: sizes[part] | {"tokens": tokens[part]} for part in parts},
        "docstrings": {"count": len(docstrings()), "bytes": lm.length(docstrings())},
        "validation": measured(model, "validation"),
        **measured(model, "test"),
    }


def sweep(method: str) -> dict:
    """The bits per byte of the validation texts after training with each rate."""
    return {f"{rate:g}": measured(train(method, TRIED, rate)[0], "validation") for rate in RATES[method]}


def best(found: dict, aim: str) -> float:
    """The rate whose mean bits per byte of the texts of an aim are fewest.

    Examples
    --------
    >>> swept = {"0.001": {"news": 3.0, "docs": 2.0}, "0.01": {"news": 2.8, "docs": 2.6}}
    >>> best(swept, "news"), best(swept, "both")
    (0.01, 0.001)
    """
    return float(min(found, key=lambda rate: sum(found[rate][what] for what in AIMS[aim])))


def run(method: str, seed: int, rate: float) -> dict:
    """Adapt the model with one seed and measure it on the test articles and on docstrings."""
    began = time.process_time()
    model, losses, trained = train(method, seed, rate)
    record = {
        "rate": rate,
        "first": [round(loss, 5) for loss in losses[:FIRST]],
        "last": round(float(np.mean(losses[-10:])), 4),
        "trained": trained,
        **measured(model, "test"),
    }
    if method == "full" and rate == CHOSEN["news"]["full"]:
        record |= changes(model, news()["test"])
    return record | {"seconds": round(time.process_time() - began, 1)}


def linear_maps(model) -> dict:
    """The linear maps by name, as float64."""
    named = model.named_parameters()
    return {name: P.detach().double().numpy() for name, P in named if name.endswith(".weight") and P.ndim == 2}


def changes(model, texts) -> dict:
    """The singular values of W' - W of each linear map, and the bits of texts if each change is cut to a rank."""
    import torch

    from attnmath.tasks import lm

    old, new = linear_maps(lm.load()), linear_maps(model)
    parts = {name: np.linalg.svd(new[name] - old[name], full_matrices=False) for name in old}
    cut = {}
    for r in CUTS:
        for name, (U, S, V) in parts.items():
            with torch.no_grad():
                model.get_parameter(name).copy_(torch.from_numpy(old[name] + U[:, :r] * S[:r] @ V[:r]))
        cut[str(r)] = bits(model, texts)
    values = {name: np.round(S, 4).tolist() for name, (_, S, _) in parts.items()}
    return {"singular values": values, "cut": cut}


def _plan():
    return {
        "before": before,
        "sweep": {method: partial(sweep, method) for method in METHODS},
        "runs": {
            f"{method}, {aim}": partial(_seeds, method, rate)
            for aim, chosen in CHOSEN.items()
            for method, rate in chosen.items()
        },
    }


def _seeds(method, rate):
    return {str(seed): run(method, seed, rate) for seed in SEEDS}


def _told(found):
    return {key: (one["news"], one["docs"]) for key, one in found.items()}


FILE = "chapters/08_at_work/lora.json"
STUDY = Study("attnmath.lora_study", FILE, ("before", "sweep", "runs"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
