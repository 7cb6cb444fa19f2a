"""English spelling to phonemes, on the CMU dictionary: the model, its batches and its evaluation."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch import nn

from attnmath.cache import select
from attnmath.cmudict import END, LETTERS, PAD, SPECIALS, START, CMUdict, Lexicon, cmudict, pad, spell
from attnmath.decoding import beam_search, greedy
from attnmath.torch import training
from attnmath.torch.activations import relu
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.losses import cross_entropy
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.positions import sinusoidal_positions
from attnmath.torch.residuals import sublayer
from attnmath.torch.training import load_state, refuse, saved
from attnmath.torch.transformer import Transformer, decode, encode, token_embedding

LONGEST = 64  # letters or phonemes, with the symbols at the ends


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    d, heads, f, layers : the sizes of the Transformer; as many layers in the decoder as in the encoder.
    drop : the probability of dropout; smoothing : of the labels.
    words : how many of the training words to learn from (0: all of them).
    stress : learn the marks of stress too.
    epochs, batch : passes over the data, and pairs of a word and a pronunciation in a step.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, clip : the weight decay, and the largest norm of a gradient.
    seed : of the first parameters, the order of the data and the dropout.
    """

    d: int = 128
    heads: int = 4
    f: int = 512
    layers: int = 3
    drop: float = 0.1
    smoothing: float = 0.1
    words: int = 0
    stress: bool = False
    epochs: int = 20
    batch: int = 256
    rate: float = 2e-3
    warmup: int = 800
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        sizes = ("d", "heads", "f", "layers", "epochs", "batch")
        others = ("words", "warmup", "decay", "seed")
        refuse(self, {1: sizes, 0: others}, positive=("rate", "clip"), shares=("drop", "smoothing"))


PRESETS = {
    "book": Config(d=64, f=256, layers=2, epochs=1, batch=128, rate=4e-3, warmup=200, drop=0.0, smoothing=0.0),
    "full": Config(d=128, f=512, layers=3, epochs=8, batch=128, rate=1.5e-3, warmup=1000),
}


class Speller(nn.Module):
    """A pre-norm Transformer from letters to phonemes."""

    def __init__(self, config: Config, phonemes: tuple[str, ...]):
        super().__init__()
        self.config, self.phonemes = config, phonemes
        vocabulary, letters = len(SPECIALS) + len(phonemes), len(SPECIALS) + len(LETTERS)
        sizes = {"source_vocabulary": letters, "norm": layer_norm}
        self.model = Transformer(vocabulary, config.d, config.heads, config.f, config.layers, **sizes)
        for name in ("embeddings", "source_embeddings"):
            nn.init.normal_(self.model.get_submodule(name).word, std=config.d**-0.5)
        self.drop = nn.Dropout(config.drop)
        self.register_buffer("positions", sinusoidal_positions(LONGEST, config.d), persistent=False)

    def _options(self):
        drop = self.drop if self.training and self.config.drop else None
        scale = math.sqrt(self.config.d)
        return {
            "embed": partial(token_embedding, scale=scale, positions=self.positions, drop=drop),
            "feed_forward": partial(feed_forward, activation=relu),
            "join": partial(sublayer, norm_first=True, drop=drop),
        }

    def encode(self, letters):
        """Letters (b, m), padded, to the memory and the mask of its letters."""
        mask = letters != PAD
        return encode(letters, self.model.tree(), self.config.heads, mask, **self._options()), mask

    def decode(self, phonemes, memory, mask, **options):
        """The logits (b, n, t) of each next phoneme; options are those of `attnmath.torch.decode`."""
        options = self._options() | options
        return decode(phonemes, memory, self.model.tree(), self.config.heads, mask, **options)

    def forward(self, letters, phonemes):
        return self.decode(phonemes, *self.encode(letters))

    @torch.no_grad()
    def transcribe(self, words: list[str], width: int = 1, length_penalty: float = 0.0, batch: int = 512):
        """The phonemes of each word; ``width`` 1 is greedy search.

        Raises
        ------
        ValueError
            If a word is empty, too long, or has a character that is no letter.
        """
        spelt = [spell(word) for word in words]
        for word, ids in zip(words, spelt, strict=True):
            if len(ids) > LONGEST:
                raise ValueError(f"{word!r} has {len(ids) - 1} letters; the most is {LONGEST - 1}")
        self.eval()
        order = sorted(range(len(words)), key=lambda i: len(spelt[i]))
        device, found = self.positions.device, {}
        for first in range(0, len(order), batch):
            part = order[first : first + batch]
            memory, mask = self.encode(torch.from_numpy(pad([spelt[i] for i in part])).to(device))
            cache = {}

            def step(prefixes, rows, parents):
                rows, parents = (torch.from_numpy(index).to(device) for index in (rows, parents))
                select(cache, parents)
                last = torch.from_numpy(prefixes[:, -1:]).to(device)
                Z = self.decode(last, memory[rows], mask[rows], cache=cache)[:, 0]
                return torch.log_softmax(Z.double(), -1).cpu().numpy()

            if width == 1:
                sequences, _ = greedy(step, START, END, len(part), LONGEST)
            else:
                sequences, _ = beam_search(step, START, END, len(part), width, LONGEST, length_penalty)
            found |= dict(zip(part, sequences, strict=True))
        names = SPECIALS + self.phonemes
        return [tuple(names[i] for i in found[j]) for j in range(len(words))]


def pairs(lexicon: Lexicon, phonemes: tuple[str, ...]) -> list[tuple[list[int], list[int]]]:
    """Each word with each of its pronunciations, as ids with the end symbol."""
    index = {name: len(SPECIALS) + i for i, name in enumerate(phonemes)}
    return [
        (spell(word), [index[p] for p in spoken] + [END]) for word, several in lexicon.items() for spoken in several
    ]


def batches(lengths: np.ndarray, size: int, rng: np.random.Generator, pool: int = 64) -> list[np.ndarray]:
    """Indices of batches in a random order, of similar lengths each: sorted within random pools of ``pool`` batches.

    Parameters
    ----------
    lengths : (pairs, 2), of the words and of their pronunciations.
    """
    order, cut = rng.permutation(len(lengths)), []
    for first in range(0, len(order), pool * size):
        part = order[first : first + pool * size]
        part = part[np.lexsort((lengths[part, 1], lengths[part, 0]))]
        cut += [part[i : i + size] for i in range(0, len(part), size)]
    return [cut[i] for i in rng.permutation(len(cut))]


def collate(examples, device):
    """Pairs as letters (b, m), phonemes that go in (b, n) and phonemes that should come out (b, n)."""
    letters = pad([source for source, _ in examples])
    out = pad([target for _, target in examples])
    into = np.concatenate([np.full((len(out), 1), START), out[:, :-1]], -1)
    return tuple(torch.from_numpy(X).to(device) for X in (letters, into, out))


def loss_of(model, batch, smoothing):
    letters, into, out = batch
    return cross_entropy(model(letters, into), out, out != PAD, smoothing=smoothing)


@torch.no_grad()
def mean_loss(model, examples, device, size=512):
    """The mean negative log-probability of a phoneme, without smoothing and dropout."""
    model.eval()
    total = count = 0
    ordered = sorted(examples, key=lambda pair: (len(pair[0]), len(pair[1])))
    for first in range(0, len(ordered), size):
        batch = collate(ordered[first : first + size], device)
        n = int((batch[2] != PAD).sum())
        total, count = total + n * loss_of(model, batch, 0.0).item(), count + n
    return total / count


def score(hypotheses, references) -> dict:
    """The error rates, in per cent, against the closest of several references (the first of the closest).

    ``per`` is the sum of the edit distances over the sum of the references' lengths, ``wer`` the share of words whose
    pronunciation is none of the references.
    """
    edits = length = wrong = 0
    for hypothesis, several in zip(hypotheses, references, strict=True):
        distance, closest = min(
            ((Levenshtein.distance(hypothesis, spoken), spoken) for spoken in several), key=lambda pair: pair[0]
        )
        edits, length, wrong = edits + distance, length + len(closest), wrong + (distance > 0)
    return {"per": 100 * edits / length, "wer": 100 * wrong / len(hypotheses), "words": len(hypotheses)}


def evaluate(model, lexicon: Lexicon, **options) -> dict:
    """`score` of what the model says to the words of a lexicon; options are those of `Speller.transcribe`."""
    return score(model.transcribe(list(lexicon), **options), list(lexicon.values()))


class Task(training.Task):
    """Spelling to phonemes.

    Parameters
    ----------
    config : what to compute.
    data : the dictionary; by default all of it.
    """

    def __init__(self, config: Config, data: CMUdict | None = None):
        self.config = config
        self.data = cmudict(config.stress) if data is None else data
        words = list(self.data.train)[: config.words or None]
        self.train = pairs({word: self.data.train[word] for word in words}, self.data.phonemes)
        self.validation = pairs(self.data.validation, self.data.phonemes)
        self.lengths = np.array([(len(source), len(target)) for source, target in self.train])
        self.per_epoch = len(self.epoch(0))
        self.total = config.epochs * self.per_epoch

    def model(self):
        return Speller(self.config, self.data.phonemes)

    def epoch(self, number):
        return batches(self.lengths, self.config.batch, np.random.default_rng((self.config.seed, number)))

    def batch(self, chosen, device):
        return collate([self.train[i] for i in chosen], device)

    def loss(self, model, batch):
        return loss_of(model, batch, self.config.smoothing)

    def evaluate(self, model):
        found = evaluate(model, self.data.validation)
        loss = mean_loss(model, self.validation, model.positions.device)
        return {"validation_loss": loss, "validation_per": found["per"], "validation_wer": found["wer"]}

    def meta(self):
        return {"phonemes": list(self.data.phonemes)}

    def result(self, model, widths=(1, 5)):
        sizes = {name: len(getattr(self.data, name)) for name in ("train", "validation", "test")}
        names = {width: "greedy" if width == 1 else f"beam {width}" for width in widths}
        found = {
            part: {name: evaluate(model, getattr(self.data, part), width=width) for width, name in names.items()}
            for part in ("validation", "test")
        }
        return {"words": sizes, "pairs": len(self.train)} | found


def load(path: Path, device="cpu") -> Speller:
    """The trained model of a file ``model.safetensors``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or holds the model of another task.
    """
    tensors, config, meta = saved(path, Config, "g2p")
    return load_state(Speller(config, tuple(meta["phonemes"])), tensors, device)


# the command line ----------------------------------------------------------------------------------------------------


def add_flags(parser) -> None:
    parser.add_argument(
        "--say", nargs="+", metavar="WORD", help="do not train: pronounce words with the folder's model"
    )


def answer(args, path: Path) -> bool:
    """Pronounce words, if that was asked."""
    if not args.say:
        return False
    for word, phonemes in zip(args.say, load(path).transcribe(args.say, width=5), strict=True):
        print(word, *phonemes)
    return True


def summary(result: dict) -> dict:
    """What the command prints of the result."""
    return {part: result[part] for part in ("validation", "test")}
