"""Filling blanks in the docstrings of NumPy and SciPy: span corruption, and two more tasks told by their prefix."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from attnmath import bpe, spans
from attnmath.cache import select
from attnmath.decoding import greedy
from attnmath.docs import Doc, subpackage
from attnmath.tasks import lm
from attnmath.torch import training
from attnmath.torch.losses import cross_entropy
from attnmath.torch.normalisation import rms_norm
from attnmath.torch.relative_positions import relative_bias
from attnmath.torch.residuals import sublayer
from attnmath.torch.training import load_state, refuse, saved
from attnmath.torch.transformer import Transformer, decode, encode, token_embedding

SPECIALS = ("<|end|>", "<|pad|>")  # behind each document; where a row has ended, and before the decoder's first token
END, PAD = range(2)
SENTINELS = 32  # the last ids of the model's vocabulary
TASKS = ("fill", "where", "next")
PREFIX = {"fill": "", "where": "where: ", "next": "next: "}  # of a fill the sentinels tell enough
SHOWN, NEXT = 64, 8  # tokens of a document that "where" and "next" show, and that "next" asks for
BLANK = "___"
AWAY = 3.0  # what the first two heads of the encoder take from the other side before the first step
QUICK = 64  # validation examples of each task at the end of an epoch


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    tasks : "fill", "where" or "next", or several of them with "+" between.
    d, heads, f, layers : the sizes of the Transformer; as many layers in the decoder as in the encoder.
    vocabulary : of the tokens, the two special ones included; the sentinels come on top.
    context : tokens of a text from which spans are cut.
    density, mean, roll : the share of tokens that is cut, the mean length of a span, and whether the mask is turned,
        as in `attnmath.spans`.
    epochs, steps : how often the model is held against the validation text, and the steps before each.
    batch : examples of each task in a step.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, clip : the weight decay, and the largest norm of a gradient.
    seed : of the first parameters, the texts and the masks.
    """

    tasks: str = "fill"
    d: int = 64
    heads: int = 4
    f: int = 256
    layers: int = 2
    vocabulary: int = 258
    context: int = 32
    density: float = 0.15
    mean: float = 3.0
    roll: bool = True
    epochs: int = 2
    steps: int = 500
    batch: int = 16
    rate: float = 4e-3
    warmup: int = 50
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        sizes = ("d", "heads", "f", "layers", "epochs", "steps", "batch")
        refuse(self, {2: ("context",), 1: sizes, 0: ("warmup", "decay", "seed")}, positive=("rate", "clip"))
        if wrong := [name for name in self.names if name not in TASKS] or len(set(self.names)) < len(self.names):
            raise ValueError(f"tasks is {self.tasks!r}; join some of {', '.join(TASKS)} with +" * bool(wrong))
        if self.vocabulary < lm.BYTES + len(SPECIALS):
            raise ValueError(f"vocabulary is {self.vocabulary}; bytes and specials need {lm.BYTES + len(SPECIALS)}")
        if (number := spans.span_counts(self.context, self.density, self.mean).spans) >= SENTINELS:
            raise ValueError(f"a text has {number} spans; {SENTINELS} sentinels suffice for {SENTINELS - 1}")

    @property
    def names(self) -> list[str]:
        """The tasks, one by one."""
        return self.tasks.split("+")

    @property
    def sentinels(self) -> range:
        """The ids of the sentinels."""
        return range(self.vocabulary, self.vocabulary + SENTINELS)


PRESETS = {
    "book": Config(),
    "tasks": Config(tasks="fill+where+next", batch=8),
    "full": Config(
        vocabulary=1024,
        context=160,
        d=192,
        f=768,
        layers=4,
        heads=6,
        epochs=20,
        steps=1000,
        batch=32,
        rate=1e-3,
        warmup=500,
    ),
}


class TextToText(Transformer):
    """An encoder-decoder as T5's: norms before the sublayers without means, relative positions, tied word vectors.

    Parameters
    ----------
    config : its sizes.
    tokens : the tokenizer.

    Raises
    ------
    ValueError
        If the tokenizer has another number of tokens.
    """

    def __init__(self, config: Config, tokens: bpe.BytePairs):
        if len(tokens) != config.vocabulary:
            raise ValueError(f"the tokenizer has {len(tokens)} tokens and vocabulary is {config.vocabulary}")
        sizes = (config.vocabulary + SENTINELS, config.d, config.heads, config.f, config.layers)
        join, relative = partial(sublayer, norm=rms_norm, norm_first=True), partial(relative_bias, distance=64)
        embed = partial(token_embedding, scale=math.sqrt(config.d))
        super().__init__(*sizes, norm=rms_norm, buckets=32, embed=embed, relative=relative, join=join)
        torch.nn.init.normal_(self.embeddings.word, std=config.d**-0.5)
        look_near(self.encoder.relative, both=True)
        look_near(self.decoder.relative, both=False)
        self.config, self.tokens = config, tokens

    @torch.no_grad()
    def answer(self, sources: np.ndarray, end: int, limit: int = 64) -> list[list[int]]:
        """The most probable next token again and again, until the token ``end``, which the answers keep.

        Parameters
        ----------
        sources : (b, m) ids, without padding.
        end : the sentinel behind the last span, or END.
        limit : the most tokens of an answer.
        """
        device, cache = self.embeddings.word.device, {}
        params = self.tree()
        memory = encode(torch.from_numpy(np.asarray(sources)).to(device), params, self.heads, **self.options)

        def step(prefixes, rows, parents):
            rows, parents = (torch.from_numpy(index).to(device) for index in (rows, parents))
            select(cache, parents)
            last = torch.from_numpy(prefixes[:, -1:]).to(device)
            Z = decode(last, memory[rows], params, self.heads, cache=cache, **self.options)[:, 0]
            return torch.log_softmax(Z.double(), -1).cpu().numpy()

        found, _ = greedy(step, PAD, end, len(memory), limit)
        return [[*ids, end] if len(ids) < limit else ids for ids in found]

    def text(self, ids) -> str:
        """Tokens as text, a blank for each sentinel."""
        parts, own = [], []
        for i in [*map(int, ids), None]:
            if i is None or i >= len(self.tokens):
                parts, own = [*parts, self.tokens.decode(own)], []
            else:
                own.append(i)
        return BLANK.join(parts)

    def fill(self, text: str) -> list[str]:
        """What the model writes for each blank ``___`` of a text.

        Raises
        ------
        ValueError
            If there is no blank, or more than there are sentinels, or the answer has not the form of a target.
        """
        parts, sentinels = text.split(BLANK), self.config.sentinels
        if not 1 < len(parts) <= SENTINELS:
            raise ValueError(
                f"the text has {len(parts) - 1} blanks {BLANK}; give at least 1 and at most {SENTINELS - 1}"
            )
        ids = self.tokens.encode(parts[0].rstrip(" "))
        for mark, part in zip(sentinels, parts[1:], strict=False):
            ids += [mark, *self.tokens.encode(part)]
        [target] = self.answer(np.array([ids]), sentinels[len(parts) - 1])
        return [self.text(span) for span in spans.blanks(target, sentinels)]


@torch.no_grad()
def look_near(table: torch.Tensor, both: bool) -> None:
    """Let heads begin by looking at what is near, as ALiBi's do: the numbers of a table (c, h) fall with the distance.

    Parameters
    ----------
    table : of `attnmath.torch.relative_bias`; it is written into.
    both : whether there are buckets behind the query too; then the first head looks back and the second one forward.
    """
    c, h = table.shape
    near = c // 2 if both else c
    table.copy_(-(torch.arange(c) % near)[:, None] * 2.0 ** -torch.arange(h))
    if both and h > 1:
        table[near:, 0] -= AWAY
        table[:near, 1] -= AWAY


# examples ------------------------------------------------------------------------------------------------------------


def shift_right(target: torch.Tensor) -> torch.Tensor:
    """What the decoder reads (b, n) while it writes a target (b, n): one token later, PAD first.

    Examples
    --------
    >>> shift_right(torch.tensor([[7, 8, 9]]))
    tensor([[1, 7, 8]])
    """
    return torch.cat([torch.full_like(target[:, :1], PAD), target[:, :-1]], -1)


def corrupted(ids: np.ndarray, starts, config: Config, rng: np.random.Generator):
    """Texts cut out of a stream and corrupted: sources and targets, two arrays without padding, and the masks.

    Parameters
    ----------
    ids : the stream.
    starts : where each text begins.
    config : its context, density, mean, roll and sentinels. A rolled mask that tears a span is drawn again.
    rng : of the masks.
    """
    number = spans.span_counts(config.context, config.density, config.mean).spans
    pairs, masks = [], []
    for start in starts:
        while True:
            mask = spans.span_mask(config.context, config.density, config.mean, rng, roll=config.roll)
            if (mask & ~np.concatenate([[False], mask[:-1]])).sum() == number:
                break
        pairs.append(spans.corrupt(ids[start : start + config.context], mask, config.sentinels))
        masks.append(mask)
    sources, targets = (np.stack(several) for several in zip(*pairs, strict=True))
    return sources, targets, np.stack(masks)


class Part:
    """The documents of a part as tokens, and examples made of them."""

    def __init__(self, docs: Sequence[Doc], tokens: bpe.BytePairs, config: Config):
        each = [tokens.encode(doc.text) for doc in docs]
        self.config, self.tokens = config, tokens
        self.ids = np.concatenate([[END], *([*ids, END] for ids in each)]).astype(np.int64)
        if len(self.ids) < config.context:
            raise ValueError(f"a part has {len(self.ids)} tokens and context is {config.context}; give more text")
        long = [i for i, ids in enumerate(each) if len(ids) >= SHOWN + NEXT]
        self.heads = np.array([each[i][: SHOWN + NEXT] for i in long], np.int64).reshape(-1, SHOWN + NEXT)
        self.labels = [subpackage(docs[i].file) for i in long]
        if not long and config.tasks != "fill":
            raise ValueError(f"no document has {SHOWN + NEXT} tokens; where and next need some")

    def under(self, config: Config) -> "Part":
        """The same tokens with another context, density or mean."""
        found = copy(self)
        found.config = config
        return found

    def examples(self, task: str, rows: np.ndarray, rng: np.random.Generator | None = None):
        """Sources (b, m) and targets (b, n), these padded, of some places of the stream or some documents."""
        if task == "fill":
            return corrupted(self.ids, rows, self.config, rng)[:2]
        prefix = np.tile(self.tokens.encode(PREFIX[task]), (len(rows), 1))
        sources = np.concatenate([prefix, self.heads[rows, :SHOWN]], 1)
        if task == "next":
            return sources, np.pad(self.heads[rows, SHOWN:], ((0, 0), (0, 1)), constant_values=END)
        told = [[*self.tokens.encode(self.labels[row]), END] for row in rows]
        width = max(map(len, told))
        return sources, np.array([ids + [PAD] * (width - len(ids)) for ids in told])

    def size(self, task: str) -> int:
        """How many examples there are: places at which a text can begin, or documents."""
        return len(self.ids) - self.config.context + 1 if task == "fill" else len(self.heads)

    def spread(self, task: str, number: int) -> np.ndarray:
        """Places or documents at equal distances."""
        return np.linspace(0, self.size(task) - 1, min(number, self.size(task))).astype(int)


@torch.no_grad()
def surprise(model: TextToText, sources: np.ndarray, targets: np.ndarray, size: int = 32) -> np.ndarray:
    """The bits of each token of the targets (b, n), 0 where they are padded."""
    device, bits = model.embeddings.word.device, []
    for first in range(0, len(sources), size):
        x, y = (torch.from_numpy(X[first : first + size]).to(device) for X in (sources, targets))
        loss = cross_entropy(model(x, shift_right(y)), y, reduction="none")
        bits.append((loss.double() * (y != PAD)).cpu().numpy())
    return np.concatenate(bits) / math.log(2)


# training ------------------------------------------------------------------------------------------------------------


class Task(training.Task):
    """Filling, and telling by a prefix.

    Parameters
    ----------
    config : what to compute.
    docs : the documents by part, ``"train"``, ``"validation"`` and ``"test"``; by default the docstrings of NumPy and
        SciPy, `attnmath.docs`.

    Raises
    ------
    ValueError
        If a part is shorter than the context, or too short for so large a vocabulary.
    """

    def __init__(self, config: Config, docs: dict[str, Sequence[Doc]] | None = None):
        self.config, self.docs = config, docstrings() if docs is None else docs
        self.tokens = bpe.train_whole([doc.text for doc in self.docs["train"]], config.vocabulary, SPECIALS)
        self.parts = {name: Part(several, self.tokens, config) for name, several in self.docs.items()}
        self.per_epoch, self.total = config.steps, config.epochs * config.steps

    def model(self):
        return TextToText(self.config, self.tokens)

    def epoch(self, number):
        """What each step draws its examples from; the same for a task alone and for it among others."""
        return [(self.config.seed, number, i) for i in range(self.config.steps)]

    def batch(self, chosen, device):
        found = []
        for task in self.config.names:
            rng, part = np.random.default_rng((*chosen, TASKS.index(task))), self.parts["train"]
            pair = part.examples(task, rng.integers(0, part.size(task), self.config.batch), rng)
            found.append(tuple(torch.from_numpy(X).to(device) for X in pair))
        return found

    def loss(self, model, batch):
        """The mean over all tokens of all targets."""
        sums = [cross_entropy(model(x, shift_right(y)), y, y != PAD, reduction="sum") for x, y in batch]
        return torch.stack(sums).sum() / sum((y != PAD).sum() for _, y in batch)

    def evaluate(self, model):
        """The bits per token of the targets of some validation examples, by task."""
        return {f"validation_{task}": bits for task, bits in self._bits(model, "validation", QUICK).items()}

    def _bits(self, model, name, number):
        part, found = self.parts[name], {}
        for task in self.config.names:
            pair = part.examples(task, part.spread(task, number), np.random.default_rng(0))
            found[task] = float(surprise(model, *pair).sum() / (pair[1] != PAD).sum())
        return found

    def meta(self):
        return {"specials": self.tokens.specials, "pairs": self.tokens.pairs}

    def result(self, model):
        return {
            "tokens": {name: len(part.ids) for name, part in self.parts.items()},
            "bits_per_token": {name: self._bits(model, name, 4 * QUICK) for name in ("validation", "test")},
        }


def docstrings() -> dict[str, Sequence[Doc]]:
    """The text of the course, by part."""
    from attnmath.docs import docs

    data = docs()
    return {part: getattr(data, part) for part in ("train", "validation", "test")}


def load(path: Path, device="cpu") -> TextToText:
    """The trained model of a file ``model.safetensors``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or holds a model of another task.
    """
    tensors, config, meta = saved(path, Config, "t5")
    return load_state(TextToText(config, bpe.BytePairs.of(meta)), tensors, device)


# the command line ----------------------------------------------------------------------------------------------------


def add_flags(parser) -> None:
    parser.add_argument("--fill", metavar="TEXT", help=f"do not train: let the folder's model fill the blanks {BLANK}")


def answer(args, path: Path) -> bool:
    """Fill blanks, if that was asked."""
    if args.fill is None:
        return False
    for span in load(path).fill(args.fill):
        print(repr(span))
    return True


def summary(result: dict) -> dict:
    """What the command prints of the result."""
    return result["bits_per_token"]
