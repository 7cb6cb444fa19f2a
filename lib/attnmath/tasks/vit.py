"""Handwritten digits in 8 x 8 pixels: a Vision Transformer, and a convolutional network to hold it against."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from attnmath.digits import SIDE, Digits, digits, shifted
from attnmath.torch import training
from attnmath.torch.losses import cross_entropy
from attnmath.torch.training import adamw, load_state, refuse, saved
from attnmath.torch.vision_transformer import VisionTransformer, grid_positions

CLASSES = 10


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    model : "vit", or "conv" for two convolutions and a linear map.
    size : pixels along a patch's side.
    d, heads, f, layers : the sizes of the Transformer; d is also the number of the second convolution's channels.
    pool : "class" or "mean". positions : "learned", "grid" (sinusoids of row and column) or "none".
    shift : training pictures are moved by up to as many pixels along each axis, anew in each epoch.
    epochs, batch : passes over the data, and pictures in a step.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, smoothing, clip : the weight decay, the smoothing of labels, and the largest norm of a gradient.
    seed : of the first parameters, the order of the pictures and their shifts.
    """

    model: str = "vit"
    size: int = 2
    d: int = 48
    heads: int = 4
    f: int = 96
    layers: int = 3
    pool: str = "mean"
    positions: str = "learned"
    shift: int = 0
    epochs: int = 60
    batch: int = 64
    rate: float = 3e-3
    warmup: int = 60
    decay: float = 0.05
    smoothing: float = 0.1
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        sizes = ("size", "d", "heads", "f", "layers", "epochs", "batch")
        refuse(self, {1: sizes, 0: ("shift", "warmup", "decay", "seed")}, ("rate", "clip"), ("smoothing",))
        words = {"model": ("vit", "conv"), "pool": ("class", "mean"), "positions": ("learned", "grid", "none")}
        for name, allowed in words.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        if SIDE % self.size or self.shift >= SIDE:
            raise ValueError(f"size is {self.size} and shift is {self.shift}; the pictures have {SIDE} x {SIDE} pixels")


PRESETS = {"book": Config(), "conv": Config(model="conv"), "moved": Config(shift=1)}


def network(config: Config) -> nn.Module:
    """The model of a configuration: pictures (b, 1, 8, 8) to logits (b, 10)."""
    if config.model == "conv":
        half = SIDE // 2
        return nn.Sequential(
            nn.Conv2d(1, config.d // 2, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(config.d // 2, config.d, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(config.d * half * half, CLASSES),
        )
    options, rows = {}, SIDE // config.size
    if config.positions == "grid":
        options["positions"] = grid_positions(rows, rows, config.d)
    return VisionTransformer(
        1,
        SIDE,
        config.size,
        CLASSES,
        config.d,
        config.heads,
        config.f,
        config.layers,
        pool=config.pool,
        learned=config.positions == "learned",
        **options,
    )


@torch.no_grad()
def predict(model, X) -> np.ndarray:
    """The digit that a model sees in each picture of an array."""
    model.eval()
    device = next(model.parameters()).device
    return model(torch.from_numpy(np.ascontiguousarray(X)).to(device)).argmax(-1).cpu().numpy()


def accuracy(model, X, y) -> float:
    """The share of the pictures whose digit a model says."""
    return float((predict(model, X) == y).mean())


class Task(training.Task):
    """Handwritten digits.

    Parameters
    ----------
    config : what to compute.
    data : the pictures; by default all of them.
    """

    def __init__(self, config: Config, data: Digits | None = None):
        self.config, self.data = config, digits() if data is None else data
        self.per_epoch = -(-len(self.data.train.y) // config.batch)
        self.total = config.epochs * self.per_epoch

    def model(self):
        return network(self.config)

    def optimiser(self, model):
        return adamw(model, self.config.decay, (0.9, 0.99), 1e-8)

    def epoch(self, number):
        """Rows (picture, down, right), in batches."""
        rng, n = np.random.default_rng((self.config.seed, number)), len(self.data.train.y)
        steps = rng.integers(-self.config.shift, self.config.shift + 1, (n, 2))
        rows = np.concatenate([rng.permutation(n)[:, None], steps], -1)
        return [rows[i : i + self.config.batch] for i in range(0, n, self.config.batch)]

    def batch(self, chosen, device):
        X, y = self.data.train
        moved = [shifted(X[i], down, right) if down or right else X[i] for i, down, right in chosen.tolist()]
        return torch.from_numpy(np.stack(moved)).to(device), torch.from_numpy(y[chosen[:, 0]]).to(device)

    def loss(self, model, batch):
        X, y = batch
        return cross_entropy(model(X), y, smoothing=self.config.smoothing)

    def evaluate(self, model):
        return {"validation_accuracy": accuracy(model, *self.data.validation)}

    def result(self, model):
        found = {name: accuracy(model, *getattr(self.data, name)) for name in self.data._fields}
        return {"pictures": {name: len(getattr(self.data, name).y) for name in self.data._fields}, "accuracy": found}


def load(path: Path, device="cpu") -> nn.Module:
    """The trained model of a file ``model.safetensors``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or the checkpoint of another task.
    """
    tensors, config, _ = saved(path, Config, "vit")
    return load_state(network(config), tensors, device)


def summary(result: dict) -> dict:
    """What the command prints of the result."""
    return result["accuracy"]
