"""A masked language model on the docstrings of NumPy and SciPy: BERT's encoder, small, that fills in blanks."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from attnmath import bpe, masking
from attnmath.tasks.lm import docstrings, halve
from attnmath.torch import training
from attnmath.torch.attention import attention_fused
from attnmath.torch.losses import cross_entropy
from attnmath.torch.masked_language_model import MaskedLanguageModel
from attnmath.torch.training import load_state, refuse, saved

SPECIALS = ("<|pad|>", "<|mask|>")
PAD, MASK = 0, 1
BLANK = "___"  # how a person writes a blank
BYTES = 256
COMMITTED = Path(__file__).parents[3] / "chapters" / "08_at_work" / "masked_language_model.safetensors"
QUICK = 128  # pieces of the validation text that are read at the end of each epoch


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    d, heads, f, layers : the sizes of the encoder.
    vocabulary : of the tokens: padding, the blank, 256 bytes, and what byte-pair encoding merges.
    context : the most tokens of a piece of text.
    share : of the tokens, those that are to be predicted.
    nearby : whether heads begin by looking at neighbours, see `nearby`; BERT's begin by looking everywhere.
    epochs, steps : how often the model is held against the validation text, and the steps before each.
    batch : pieces in a step.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, clip : the weight decay, and the largest norm of a gradient.
    seed : of the first parameters, the pieces and the blanks.
    """

    d: int = 64
    heads: int = 4
    f: int = 128
    layers: int = 2
    vocabulary: int = 2048
    context: int = 48
    share: float = 0.15
    nearby: bool = True
    epochs: int = 4
    steps: int = 300
    batch: int = 32
    rate: float = 3e-3
    warmup: int = 100
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        sizes = ("d", "heads", "f", "layers", "context", "epochs", "steps", "batch")
        refuse(self, {1: sizes, 0: ("warmup", "decay", "seed")}, ("rate", "clip", "share"))
        if self.share > 1:
            raise ValueError(f"share is {self.share}; it must be above 0 and at most 1")
        if self.vocabulary < BYTES + len(SPECIALS):
            raise ValueError(f"vocabulary is {self.vocabulary}; 256 bytes, padding and the blank need {BYTES + 2}")


PRESETS = {"book": Config(), "plain": Config(nearby=False)}


def network(config: Config) -> MaskedLanguageModel:
    """The encoder with its head: post-norm, as BERT is, with learned positions and small first word vectors."""
    sizes = (config.vocabulary, config.context, 1, config.d, config.heads, config.f, config.layers)
    model = MaskedLanguageModel(*sizes, **({"attend": attend} if config.nearby else {}))
    for name in ("word", "position", "segment"):
        torch.nn.init.normal_(getattr(model.embeddings, name), std=0.05)
    return model


def nearby(n: int, heads: int) -> torch.Tensor:
    r"""What is added to the scaled scores: ALiBi's penalty of distance, with a side for each head.

    .. math:: B_{hij} = -s_h\,|i - j| - 6\,[j\text{ is on the other side}],\qquad s_h = 2\cdot 4^{-\lfloor h/2\rfloor}

    Heads 0, 2, … look left and heads 1, 3, … look right. Nothing in it is learned; queries and keys can overrule it.

    Examples
    --------
    >>> nearby(3, 2)[0]
    tensor([[ -0.,  -8., -10.],
            [ -2.,  -0.,  -8.],
            [ -4.,  -2.,  -0.]])
    """
    step = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    head = torch.arange(heads)[:, None, None]
    other = torch.where(head % 2 == 0, step > 0, step < 0)
    return -2.0 * 4.0 ** -(head // 2) * step.abs() - 6.0 * other


def attend(Q, K, V, mask=True):
    """Attention with the bias of `nearby`."""
    bias = nearby(Q.shape[-2], Q.shape[-3]).to(Q)
    return attention_fused(Q, K, V, mask, bias=bias)


# text ----------------------------------------------------------------------------------------------------------------


def pieces(tokens: bpe.BytePairs, texts: Iterable[str], context: int) -> np.ndarray:
    """Cut each document into pieces of so many tokens; the last one of a document is padded.

    Returns
    -------
    ids : (w, context).

    Raises
    ------
    ValueError
        If there is no text.
    """
    rows = []
    for text in texts:
        ids = tokens.encode(text)
        rows += [ids[i : i + context] for i in range(0, len(ids), context)]
    if not rows:
        raise ValueError("the text is empty; give at least one document with a character")
    return padded(rows, context)


def padded(rows: Sequence[Sequence[int]], context: int) -> np.ndarray:
    """Rows of ids as one array, each cut or padded to the context."""
    ids = np.full((len(rows), context), PAD, np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row[:context]
    return ids


def with_blanks(ids: np.ndarray, rng: np.random.Generator, config: Config, **options) -> masking.Masked:
    """Pieces with blanks, as BERT trains on them; options are those of `attnmath.masking.blank`."""
    words = range(len(SPECIALS), config.vocabulary)
    return masking.blank(ids, ids != PAD, rng, **{"token": MASK, "words": words, "share": config.share} | options)


@torch.no_grad()
def losses(model: MaskedLanguageModel, batch: masking.Masked, size: int = 64) -> np.ndarray:
    """The negative logarithm of the right token's probability at each chosen place, in order: nats."""
    model.eval()
    device, found = next(model.parameters()).device, []
    for i in range(0, len(batch.ids), size):
        ids, targets, chosen = (torch.from_numpy(X[i : i + size]).to(device) for X in batch)
        Z = model(ids, ids != PAD, chosen)
        found.append(cross_entropy(Z, targets[chosen], reduction="none").double().cpu().numpy())
    return np.concatenate(found)


@torch.no_grad()
def fill(model: MaskedLanguageModel, tokens: bpe.BytePairs, text: str, count: int = 3) -> list[list]:
    """The likeliest tokens for each blank of a text, with their probabilities.

    Parameters
    ----------
    model, tokens : of a trained run.
    text : with ``___`` for each missing token. A space before a word belongs to its token: write it into the blank.
    count : how many tokens.

    Returns
    -------
    For each blank a list of ``(token, probability)``, the likeliest first.

    Raises
    ------
    ValueError
        If the text has no blank, or more tokens than the model has positions.
    """
    parts = text.split(BLANK)
    if len(parts) < 2:
        raise ValueError(f"the text has no blank; write {BLANK} where a token is missing")
    ids = [i for part in parts for i in (MASK, *tokens.encode(part))][1:]
    given = torch.tensor([ids], device=next(model.parameters()).device)
    p = torch.softmax(model(given, None, given == MASK).double(), -1)
    best = p.topk(count)
    return [
        [(tokens.decode([i]), float(v)) for i, v in zip(*pair, strict=True)]
        for pair in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


# training ------------------------------------------------------------------------------------------------------------


class Task(training.Task):
    """The masked language model.

    Parameters
    ----------
    config : what to compute.
    texts : the documents by part, ``"train"``, ``"validation"`` and ``"test"``; by default the docstrings of NumPy and
        SciPy, `attnmath.docs`.

    Raises
    ------
    ValueError
        If a part is empty, or the text too short for so large a vocabulary.
    """

    def __init__(self, config: Config, texts: dict[str, Sequence[str]] | None = None):
        self.config, texts = config, docstrings() if texts is None else texts
        self.tokens = bpe.train_whole(texts["train"], config.vocabulary, SPECIALS)
        self.ids = {part: pieces(self.tokens, several, config.context) for part, several in texts.items()}
        self.per_epoch, self.total = config.steps, config.epochs * config.steps

    def model(self):
        return network(self.config)

    def epoch(self, number):
        """For each step the pieces, and the epoch and step that the blanks are drawn with."""
        config, rng = self.config, np.random.default_rng((self.config.seed, number))
        chosen = rng.integers(0, len(self.ids["train"]), (config.steps, config.batch))
        return [(rows, number, step) for step, rows in enumerate(chosen)]

    def batch(self, chosen, device):
        rows, number, step = chosen
        rng = np.random.default_rng((self.config.seed, number, step))
        found = with_blanks(self.ids["train"][rows], rng, self.config)
        return [torch.from_numpy(X).to(device) for X in found]

    def loss(self, model, batch):
        ids, targets, chosen = batch
        return cross_entropy(model(ids, ids != PAD, chosen), targets[chosen])

    def measured(self, model, part, most=None, **options):
        """The mean loss at the blanks of a part, in bits for a token; the blanks are the same for every model."""
        found = with_blanks(self.ids[part][:most], np.random.default_rng(0), self.config, **options)
        return float(losses(model, found).mean() / math.log(2))

    def evaluate(self, model):
        return {"validation_bits": self.measured(model, "validation", QUICK)}

    def meta(self):
        return {"specials": self.tokens.specials, "pairs": self.tokens.pairs}

    def result(self, model):
        sizes = {part: int((ids != PAD).sum()) for part, ids in self.ids.items()}
        bits = {part: self.measured(model, part) for part in ("validation", "test")}
        return {"tokens": sizes, "bits": bits}


def load(path: Path = COMMITTED, device="cpu") -> tuple[MaskedLanguageModel, bpe.BytePairs]:
    """The trained model of a file and its tokenizer; by default those that come with the book.

    Parameters
    ----------
    path : a file ``model.safetensors`` of a run, or one that ``--halve`` wrote. Its parameters become float32.
    device : where the model shall be.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or holds a model of another task.
    """
    tensors, config, meta = saved(path, Config, "mlm")
    return load_state(network(config), tensors, device), bpe.BytePairs.of(meta)


def add_flags(parser) -> None:
    parser.add_argument("--fill", metavar="TEXT", help=f"do not train: let the folder's model fill in each {BLANK}")
    parser.add_argument("--halve", type=Path, metavar="FILE", help="do not train: write the folder's model in float16")


def answer(args, path: Path) -> bool:
    """Fill in the blanks of a text, or write the model in half precision, if that was asked."""
    if args.halve:
        print(json.dumps(halve(path, args.halve)))
    if args.fill is not None:
        for best in fill(*load(path), args.fill):
            print("   ".join(f"{token!r} {p:.3f}" for token, p in best))
    return bool(args.halve) or args.fill is not None


def summary(result: dict) -> dict:
    """What the command prints of the result."""
    return result["bits"]
