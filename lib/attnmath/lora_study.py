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
    "attention 1": (1, MAPS[:1]),
    "attention 4": (4, MAPS[:1]),
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
TRIED = 0  # the seed with which rates are compared, on the validation part
RATES = {  # an adapter of another rank or for fewer maps has the rate that was best for rank 4 and all maps
    "full": (3e-3, 1e-2, 3e-2),
    "all 4": (1e-2, 3e-2, 1e-1),
    "last": (1e-2, 3e-2, 1e-1),
    "vectors": (3e-2, 1e-1, 3e-1),
    "words": (3e-3, 1e-2, 3e-2),
}
CHOSEN = {"full": 1e-2, "all 4": 3e-2, "last": 3e-2, "vectors": 1e-1, "words": 1e-2}  # the best of them
STEPS, WARMUP, BATCH, CLIP = 80, 8, 16, 1.0
OLD = 40_000  # bytes of held-out docstrings, at least, that are read again
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
def docstrings() -> list[str]:
    """Docstrings of whole test files, which the model has never seen: the first of them."""
    from attnmath.docs import docs

    texts, size = [], 0
    for doc in docs().test:
        if size >= OLD:
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


def before() -> dict:
    """The committed model, and what zlib and a text's bytes are."""
    from attnmath.tasks import lm

    model, parts = lm.load(), news()
    sizes = {part: {"articles": len(texts), "bytes": lm.length(texts)} for part, texts in parts.items()}
    tokens = {part: len(lm.stream(model.tokens, texts)) - 1 for part, texts in parts.items()}
    return {
        "parameters": sum(P.numel() for P in model.parameters()),
        "text": {part: sizes[part] | {"tokens": tokens[part]} for part in parts},
        "docstrings": {"count": len(docstrings()), "bytes": lm.length(docstrings())},
        "news": bits(model, parts["test"]),
        "docs": bits(model, docstrings()),
    }


def rates(method: str) -> dict:
    """The bits per byte of the validation articles after training with each rate."""
    return {f"{rate:g}": bits(train(method, TRIED, rate)[0], news()["validation"]) for rate in RATES[method]}


def like(method: str) -> str:
    """The method whose rates were compared for this one."""
    return method if method in RATES else "all 4"


def best(found: dict) -> float:
    """The rate with the fewest bits."""
    return float(min(found, key=found.get))


def run(method: str, seed: int, rate: float) -> dict:
    """Adapt the model with one seed and measure it on the test articles and on docstrings."""
    began = time.process_time()
    model, losses, trained = train(method, seed, rate)
    record = {
        "rate": rate,
        "first": [round(loss, 5) for loss in losses[:FIRST]],
        "last": round(float(np.mean(losses[-10:])), 4),
        "trained": trained,
        "news": bits(model, news()["test"]),
        "docs": bits(model, docstrings()),
    }
    if method == "full":
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
        "rates": {method: partial(rates, method) for method in RATES},
        "runs": {method: partial(_seeds, method) for method in METHODS},
    }


def _seeds(method):
    return {str(seed): run(method, seed, CHOSEN[like(method)]) for seed in SEEDS}


def _told(found):
    return {key: one["news"] if isinstance(one, dict) else one for key, one in found.items()}


FILE = "chapters/08_at_work/lora.json"
STUDY = Study("attnmath.lora_study", FILE, ("before", "rates", "runs"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
