"""Pictures of one or two handwritten digits and sentences about them: two towers and the contrastive loss of CLIP."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from attnmath import captions, shapes
from attnmath.digits import SIDE, Digits, Part, digits
from attnmath.torch import training
from attnmath.torch.contrastive import Clip, matching_loss
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.residuals import sublayer
from attnmath.torch.training import adamw, load_state, refuse, saved
from attnmath.vision_shapes import picture_embedding_shapes, vision_transformer_shapes

PATTERNS = {1: captions.ONE, 2: captions.TWO}
HELD = {1: captions.ONE_HELD, 2: captions.TWO_HELD}
PER_PAIR = 9  # test pictures of each pair of digits


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    shown : the digits of a picture, 1 or 2 side by side; with 2, `captions.HELD_PAIRS` are never shown in training.
    size : pixels along a patch's side.
    d, heads, f, layers : the sizes of the picture's tower. words_d, words_layers : those of the sentences' tower, with
        as many heads and a network twice as wide as its rows.
    width : of the vectors in which the towers meet.
    temperature : the first one. learned : whether it is a parameter; if not, it stays.
    epochs, batch : passes over the pictures, and pairs in a step; what is left over in a pass is left out.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, clip : the weight decay, and the largest norm of a gradient.
    seed : of the first parameters, the order of the pictures and their sentences.
    """

    shown: int = 1
    size: int = 2
    d: int = 32
    heads: int = 4
    f: int = 64
    layers: int = 2
    words_d: int = 32
    words_layers: int = 1
    width: int = 32
    temperature: float = 0.07
    learned: bool = True
    epochs: int = 60
    batch: int = 64
    rate: float = 3e-3
    warmup: int = 60
    decay: float = 0.05
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        sizes = ("size", "d", "heads", "f", "layers", "words_d", "words_layers", "width", "epochs", "batch")
        refuse(self, {1: sizes, 0: ("warmup", "decay", "seed")}, ("temperature", "rate", "clip"))
        if self.shown not in PATTERNS:
            raise ValueError(f"shown is {self.shown}; a picture shows 1 or 2 digits")
        if SIDE % self.size:
            raise ValueError(f"size is {self.size}; a digit has {SIDE} x {SIDE} pixels, which patches must divide")


PRESETS = {"book": Config(), "pairs": Config(shown=2, words_layers=2, epochs=60)}


def network(config: Config) -> Clip:
    """The model of a configuration: pictures (b, 1, 8, 8 or 16) and ids to scores."""
    patches = (SIDE // config.size) ** 2 * config.shown
    embeddings = picture_embedding_shapes(config.size**2, config.d, patches, class_token=False)
    sizes = {
        "picture": vision_transformer_shapes(
            embeddings, config.d, config.f, config.layers, config.width, layer_norm, heads=config.heads
        ),
        "text": shapes.decoder_only_shapes(
            len(captions.VOCABULARY),
            config.words_d,
            2 * config.words_d,
            config.words_layers,
            captions.LONGEST,
            norm=layer_norm,
            heads=config.heads,
        )
        | {"head": {"weight": (config.words_d, config.width)}},
    }
    text = {"join": partial(sublayer, norm_first=True)}
    model = Clip(sizes, config.heads, temperature=config.temperature, size=config.size, end=captions.END, text=text)
    model.log_scale.requires_grad_(config.learned)
    return model


@torch.no_grad()
def scores(model: Clip, X, sentences) -> np.ndarray:
    """The score of each picture of an array with each sentence, (n, m)."""
    model.eval()
    device = next(model.parameters()).device
    ids = torch.from_numpy(captions.encode(sentences)).to(device)
    return model(torch.from_numpy(np.ascontiguousarray(X)).to(device), ids).cpu().numpy()


def classes(shown: int) -> list:
    """What a picture may show: ten digits or a hundred pairs."""
    return list(range(10)) if shown == 1 else [divmod(i, 10) for i in range(100)]


def accuracy(model: Clip, part: Part, pattern: str) -> float:
    """The share of the pictures for which the right one of the sentences of a pattern has the highest score."""
    shown = part.X.shape[-1] // SIDE
    said = scores(model, part.X, captions.prompts(pattern, classes(shown))).argmax(-1)
    return float((said == part.y).mean())


def pairs(part: Part, count: int, seed: int = 0) -> Part:
    """Pictures of two digits side by side, ``count`` of each of the hundred pairs; y is the pair as a number 0 … 99."""
    rng, found = np.random.default_rng(seed), []
    for a, b in classes(2):
        found += [[rng.choice(np.flatnonzero(part.y == digit)) for digit in (a, b)] for _ in range(count)]
    left, right = np.array(found).T
    return Part(captions.side_by_side(part.X[left], part.X[right]), 10 * part.y[left] + part.y[right])


class Task(training.Task):
    """Pictures and sentences.

    Parameters
    ----------
    config : what to compute.
    data : the pictures of single digits; by default all of them.

    Raises
    ------
    ValueError
        If a batch holds more pairs than there are pictures.
    """

    def __init__(self, config: Config, data: Digits | None = None):
        self.config, self.data = config, digits() if data is None else data
        self.per_epoch = len(self.data.train.y) // config.batch
        if not self.per_epoch:
            raise ValueError(f"batch is {config.batch}, but there are only {len(self.data.train.y)} pictures")
        self.total = config.epochs * self.per_epoch
        self.patterns = PATTERNS[config.shown]

    def model(self):
        return network(self.config)

    def optimiser(self, model):
        return adamw(model, self.config.decay, (0.9, 0.99), 1e-8)

    def epoch(self, number):
        """Rows (picture, second picture, pattern), in batches; with one digit the second picture is not looked at."""
        rng, y = np.random.default_rng((self.config.seed, number)), self.data.train.y
        first, second = rng.permutation(len(y)), rng.integers(0, len(y), len(y))
        if self.config.shown == 2:
            while (held := _held(y[first], y[second])).any():
                second[held] = rng.integers(0, len(y), held.sum())
        rows = np.stack([first, second, rng.integers(0, len(self.patterns), len(y))], -1)
        return [rows[i * self.config.batch :][: self.config.batch] for i in range(self.per_epoch)]

    def batch(self, chosen, device):
        X, y = self.data.train
        shown = chosen[:, : self.config.shown]
        pictures = captions.side_by_side(*(X[which] for which in shown.T))
        said = [captions.sentence(self.patterns[row[2]], *y[row[: self.config.shown]].tolist()) for row in chosen]
        captions.check_pairs(pictures, said)
        return torch.from_numpy(pictures).to(device), torch.from_numpy(captions.encode(said)).to(device)

    def loss(self, model, batch):
        return matching_loss(model(*batch))

    def part(self, name: str) -> Part:
        """A part of the data with as many digits in a picture as the model sees."""
        part = getattr(self.data, name)
        return part if self.config.shown == 1 else pairs(part, PER_PAIR if name == "test" else 1)

    def evaluate(self, model):
        return {
            "validation_accuracy": accuracy(model, self.part("validation"), self.patterns[0]),
            "scale": model.log_scale.exp().item(),
        }

    def result(self, model):
        test = self.part("test")
        patterns = (*self.patterns, *HELD[self.config.shown])
        return {"accuracy": {pattern: accuracy(model, test, pattern) for pattern in patterns}}


def _held(a, b):
    """Which pairs are kept for the test."""
    return b == np.array(captions.HELD_PAIRS)[a, 1]


def load(path: Path, device="cpu") -> Clip:
    """The trained model of a file ``model.safetensors``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or the checkpoint of another task.
    """
    tensors, config, _ = saved(path, Config, "clip")
    return load_state(network(config), tensors, device)


def add_flags(parser) -> None:
    """The flag that asks a trained model."""
    parser.add_argument("--find", metavar="SENTENCE", help="the five test pictures that a sentence fits best")


def answer(args, path: Path) -> bool:
    """Print which test pictures a sentence fits best, if the command asks for them."""
    if args.find is None:
        return False
    model = load(path)
    shown = model.tree()["picture"]["embeddings"]["position"].shape[0] // (SIDE // model.options["size"]) ** 2
    test = digits().test if shown == 1 else pairs(digits().test, PER_PAIR)
    S = scores(model, test.X, args.find)[:, 0]
    for i in np.argsort(-S)[:5].tolist():
        print(f"picture {i}, which shows {classes(shown)[test.y[i]]}: {S[i]:.2f}")
    return True


def summary(result: dict) -> dict:
    """What the command prints of the result."""
    return result["accuracy"]
