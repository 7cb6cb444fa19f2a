"""A language model on the docstrings of NumPy and SciPy: the decoder, its batches and its bits per byte."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from pathlib import Path

import numpy as np
import torch

from attnmath import _require, bpe, saves
from attnmath.speculative import nucleus
from attnmath.torch import training
from attnmath.torch.losses import cross_entropy
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.residuals import sublayer
from attnmath.torch.training import load_state, refuse, saved
from attnmath.torch.transformer import DecoderOnly

END, LIMIT = "<|end|>", 0  # stands behind each document, and its id
BYTES = 256
QUICK = 64  # windows of the validation text that are read at the end of each epoch
COMMITTED = Path(__file__).parents[3] / "chapters" / "08_at_work" / "language_model.safetensors"
OTHERS = (3,)  # seeds of more trainings of the preset ``full``; their weights do not come with the book
_read = COMMITTED  # what `load` reads where no file is named


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    d, heads, f, layers : the sizes of the decoder.
    vocabulary : of the tokens: 256 bytes, the end of a document, and what byte-pair encoding merges.
    context : the tokens of a window, and so the most that the model can look back.
    epochs, steps : how often the model is held against the validation text, and the steps before each.
    batch : windows in a step.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, clip : the weight decay, and the largest norm of a gradient.
    seed : of the first parameters and the windows.
    """

    d: int = 96
    heads: int = 4
    f: int = 384
    layers: int = 3
    vocabulary: int = 1024
    context: int = 128
    epochs: int = 8
    steps: int = 200
    batch: int = 16
    rate: float = 3e-3
    warmup: int = 100
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        sizes = ("d", "heads", "f", "layers", "context", "epochs", "steps", "batch")
        refuse(self, {1: sizes, 0: ("warmup", "decay", "seed")}, positive=("rate", "clip"))
        if self.vocabulary <= BYTES:
            raise ValueError(f"vocabulary is {self.vocabulary}; 256 bytes and the end of a document need {BYTES + 1}")


PRESETS = {
    "book": Config(d=64, f=256, layers=2, epochs=2),
    "full": Config(),
}


class LanguageModel(DecoderOnly):
    """The decoder of Chapter 5, pre-norm, with learned positions and tied word vectors, and its tokens.

    Parameters
    ----------
    config : its sizes.
    tokens : the tokenizer; its first token is the end of a document.

    Raises
    ------
    ValueError
        If the tokenizer has another number of tokens.
    """

    def __init__(self, config: Config, tokens: bpe.BytePairs):
        if len(tokens) != config.vocabulary:
            raise ValueError(f"the tokenizer has {len(tokens)} tokens and vocabulary is {config.vocabulary}")
        sizes = (config.vocabulary, config.d, config.heads, config.f, config.layers, config.context)
        super().__init__(*sizes, norm=layer_norm, join=partial(sublayer, norm_first=True))
        for table in self.embeddings.parameters():
            torch.nn.init.normal_(table, std=0.1)
        self.config, self.tokens = config, tokens


# text ----------------------------------------------------------------------------------------------------------------


def stream(tokens: bpe.BytePairs, texts: Iterable[str]) -> np.ndarray:
    """All documents one after the other, the end token before the first and behind each.

    Raises
    ------
    ValueError
        If there is no text.
    """
    parts = [[*tokens.encode(text), LIMIT] for text in texts]
    if sum(map(len, parts)) == len(parts):
        raise ValueError("the text is empty; give at least one document with a character")
    return np.concatenate([[LIMIT], *parts]).astype(np.int64)


def length(texts: Iterable[str]) -> int:
    """The bytes of the documents in UTF-8, and one for the end of each: what bits are divided by."""
    return sum(len(text.encode()) + 1 for text in texts)


def windows(ids: np.ndarray, context: int, stride: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut a text into windows that overlap, so that each token is predicted once and from many tokens.

    Parameters
    ----------
    ids : (n,) the text, n > context.
    context : the tokens of a window.
    stride : how far the next window lies; 1 <= stride <= context. Only a window's last ``stride`` tokens count, but in
        the first all do.

    Returns
    -------
    rows : (w, context + 1), the tokens that go in and, one step later, those that should come out.
    counts : (w, context) of bool, which predictions count: each token of the text but the first, once.
    """
    n = len(ids)
    _long_enough(n, context)
    if not 1 <= stride <= context:
        raise ValueError(f"stride is {stride}; it must be at least 1 and at most the context, {context}")
    starts = np.minimum(np.arange(0, n - 1 - context + stride, stride), n - 1 - context)
    rows = ids[starts[:, None] + np.arange(context + 1)]
    counts = np.ones((len(starts), context), bool)
    done = starts[:-1] + context
    counts[1:] = starts[1:, None] + np.arange(context) >= done[:, None]
    return rows, counts


def _long_enough(n, context):
    if n <= context:
        raise ValueError(f"the text has {n} tokens and the context is {context}; it must be shorter than the text")


@torch.no_grad()
def surprise(model: LanguageModel, ids: np.ndarray, stride: int, size: int = 32) -> np.ndarray:
    """The negative logarithms, to base 2, of the probabilities of all tokens but the first, in order: bits."""
    rows, counts = windows(ids, model.config.context, stride)
    device, bits = next(model.parameters()).device, []
    for first in range(0, len(rows), size):
        x = torch.from_numpy(rows[first : first + size]).to(device)
        loss = cross_entropy(model(x[:, :-1]), x[:, 1:], reduction="none")
        bits.append(loss.double().cpu().numpy()[counts[first : first + size]])
    return np.concatenate(bits) / math.log(2)


def bits_per_byte(model: LanguageModel, texts: Sequence[str], stride: int | None = None) -> float:
    """How many bits the model needs for a byte of some documents, their ends included.

    Parameters
    ----------
    model : the model.
    texts : the documents; their `length` is what the bits are divided by.
    stride : as in `windows`; by default half of the context.

    Raises
    ------
    ValueError
        If the documents are empty, or not longer than the context.
    """
    stride = model.config.context // 2 or 1 if stride is None else stride
    return float(surprise(model, stream(model.tokens, texts), stride).sum() / length(texts))


# writing -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def write(
    model: LanguageModel,
    prompt: str = "",
    limit: int = 100,
    rng: np.random.Generator | None = None,
    *,
    choose: Callable = lambda p: p,
) -> str:
    """Let the model go on with a text, until it ends the document.

    Parameters
    ----------
    model : the model.
    prompt : the beginning of a document.
    limit : the most tokens to write.
    rng : where the draws come from; None takes the most probable token each time.
    choose : what to make of the probabilities (t,) before a draw, such as a `attnmath.speculative.nucleus`.

    Returns
    -------
    The text behind the prompt. Beyond the context the model sees the last tokens only.
    """
    _require.count("limit", limit)
    context, device = model.config.context, next(model.parameters()).device
    ids = [LIMIT, *model.tokens.encode(prompt)]
    new: list[int] = []
    cache: dict = {}
    for _ in range(limit):
        if len(ids) > context:  # places are learned: a window that moves on is read anew
            ids, cache = ids[-(context // 2) or -1 :], {}
        part = ids if not cache else ids[-1:]
        Z = model(torch.tensor([part], device=device), cache=cache)[0, -1].double()
        p = choose(torch.softmax(Z, -1).cpu().numpy())
        token = int(p.argmax()) if rng is None else int(rng.choice(len(p), p=p))
        if token == LIMIT:
            break
        ids, new = [*ids, token], [*new, token]
    return model.tokens.decode(new)


# training ------------------------------------------------------------------------------------------------------------


class Task(training.Task):
    """The language model.

    Parameters
    ----------
    config : what to compute.
    texts : the documents by part, ``"train"``, ``"validation"`` and ``"test"``; by default the docstrings of NumPy and
        SciPy, `attnmath.docs`.

    Raises
    ------
    ValueError
        If a part is empty or not longer than the context, or too short for so large a vocabulary.
    """

    def __init__(self, config: Config, texts: dict[str, Sequence[str]] | None = None):
        self.config, self.texts = config, docstrings() if texts is None else texts
        self.tokens = bpe.train_whole(self.texts["train"], config.vocabulary, (END,))
        self.ids = {part: stream(self.tokens, texts) for part, texts in self.texts.items()}
        for ids in self.ids.values():
            _long_enough(len(ids), config.context)
        self.per_epoch, self.total = config.steps, config.epochs * config.steps

    def model(self):
        return LanguageModel(self.config, self.tokens)

    def epoch(self, number):
        config, rng = self.config, np.random.default_rng((self.config.seed, number))
        return rng.integers(0, len(self.ids["train"]) - config.context, (config.steps, config.batch))

    def batch(self, chosen, device):
        rows = self.ids["train"][np.asarray(chosen)[:, None] + np.arange(self.config.context + 1)]
        return torch.from_numpy(rows).to(device)

    def loss(self, model, batch):
        return cross_entropy(model(batch[:, :-1]), batch[:, 1:])

    def evaluate(self, model):
        """The bits per token of some windows of the validation text, times its tokens per byte."""
        context, ids = self.config.context, self.ids["validation"]
        bits = surprise(model, ids[: QUICK * context + 1], context).mean()
        return {"validation_bits_per_byte": float(bits * (len(ids) - 1) / length(self.texts["validation"]))}

    def meta(self):
        return {"specials": self.tokens.specials, "pairs": self.tokens.pairs}

    def result(self, model):
        sizes = {part: {"bytes": length(self.texts[part]), "tokens": len(ids) - 1} for part, ids in self.ids.items()}
        bits = {part: bits_per_byte(model, self.texts[part]) for part in ("validation", "test")}
        return {"text": sizes, "seen": self.total * self.config.batch * self.config.context, "bits_per_byte": bits}


def docstrings() -> dict[str, list[str]]:
    """The text of the course, by part."""
    from attnmath.docs import docs

    data = docs()
    return {part: [doc.text for doc in getattr(data, part)] for part in ("train", "validation", "test")}


def load(path: Path | None = None, device="cpu") -> LanguageModel:
    """The trained model of a file; by default the one that comes with the book.

    Parameters
    ----------
    path : a file ``model.safetensors`` of a run, or one that `halve` wrote. Its parameters become float32. None is the
        model of the book, or within `instead` the one that is named there.
    device : where the model shall be.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or holds a model of another task.
    """
    tensors, config, meta = saved(_read if path is None else path, Config, "lm")
    return load_state(LanguageModel(config, bpe.BytePairs.of(meta)), tensors, device)


@contextmanager
def instead(path: Path):
    """Within, `load` reads this file where none is named, so that a study asks another training the same questions."""
    global _read
    before, _read = _read, Path(path)
    try:
        yield
    finally:
        _read = before


def cached(of: Callable) -> Callable:
    """`functools.cache` for a function of the trained model: it forgets nothing, and keeps the trainings apart."""
    kept = cache(lambda path, *given, **options: of(*given, **options))
    return wraps(of)(lambda *given, **options: kept(_read, *given, **options))


def another(seed: int) -> Path:
    """The file of another training of the preset ``full``, which first takes four minutes of one core if it is new."""
    out = Path("runs") / f"lm-full-{seed}"
    if not (out / "model.safetensors").exists():
        run = training.Run(Task(replace(PRESETS["full"], seed=seed)), out).fit(progress=False)
        run.finish(["python", "-m", "attnmath.train", "lm", "--preset=full", f"--seed={seed}"])
    return out / "model.safetensors"


def asked(path: Path, plan: Mapping[str, Mapping[str, Callable]]) -> dict:
    """What a study's plan finds on the trained model of a file, behind the SHA-256 of that file."""
    with instead(path):
        found = {part: {name: find() for name, find in some.items()} for part, some in plan.items()}
    return {"weights": hashlib.sha256(Path(path).read_bytes()).hexdigest()} | found


def others(plan: Callable[[], Mapping[str, Mapping[str, Callable]]]) -> dict[str, Callable]:
    """A part of a study: the same plan for the other trainings."""
    return {str(seed): lambda seed=seed: asked(another(seed), plan()) for seed in OTHERS}


def as_small_gpt(model: LanguageModel) -> dict[str, torch.Tensor]:
    """The parameters under the names of ``chapters/small_gpt/step12_writing.py``, for its ``load_state_dict``.

    Its matrices are transposed, and its head has a bias, which is 0 here.
    """
    tree = model.tree()

    def norm(name, own):
        return {f"{name}.weight": own["gain"], f"{name}.bias": own["bias"]}

    def affine(name, own):
        return {f"{name}.weight": own["weight"].mT, f"{name}.bias": own["bias"]}

    words, places = (tree["embeddings"][name] for name in ("word", "position"))
    found = {"embedding.word.weight": words, "embedding.place.weight": places, "out.weight": words}
    found |= {"out.bias": words.new_zeros(len(words))} | norm("norm", tree["norm"])
    for i, layer in tree["layers"].items():
        for name, own in layer["attention"].items():
            found |= affine(f"blocks.{i}.attention.{name}", own)
        for name, own in layer["feed_forward"].items():
            found |= affine(f"blocks.{i}.{name}", own)
        found |= norm(f"blocks.{i}.norm1", layer["attention_norm"])
        found |= norm(f"blocks.{i}.norm2", layer["feed_forward_norm"])
    return {name: X.detach() for name, X in found.items()}


def halve(path: Path, out: Path) -> dict:
    """Write a trained model again with half the bytes, float16 for each number.

    Parameters
    ----------
    path : a file ``model.safetensors`` of a run.
    out : the file to write.

    Returns
    -------
    Its size and its SHA-256.
    """
    tensors, meta = saves.load(path)
    saves.save(out, {name: X.astype(np.float16) for name, X in tensors.items()}, meta)
    data = Path(out).read_bytes()
    return {"file": Path(out).name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


# the command line ----------------------------------------------------------------------------------------------------


def add_flags(parser) -> None:
    parser.add_argument("--write", metavar="BEGINNING", help="do not train: let the folder's model go on with a text")
    parser.add_argument("--halve", type=Path, metavar="FILE", help="do not train: write the folder's model in float16")


def answer(args, path: Path) -> bool:
    """Write a text, or the model in half precision, if that was asked."""
    if args.halve:
        print(json.dumps(halve(path, args.halve)))
    if args.write is not None:
        rng = np.random.default_rng(args.seed or 0)
        print(args.write + write(load(path), args.write, 200, rng, choose=partial(nucleus, mass=0.9)))
    return bool(args.halve) or args.write is not None


def summary(result: dict) -> dict:
    """What the command prints of the result."""
    return result["bits_per_byte"]
