"""English spelling to phonemes with an LSTM: no attention, Bahdanau's or Luong's, beside the Transformer."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from attnmath.cmudict import LETTERS, PAD, SPECIALS, CMUdict, Lexicon, cmudict, pad, spell
from attnmath.recurrent_shapes import seq2seq_shapes
from attnmath.tasks import g2p
from attnmath.torch import (
    additive_score,
    affine,
    bahdanau_step,
    bidirectional_lstm,
    bridge,
    embedding,
    luong_step,
    multiplicative_score,
    plain_step,
    recurrent_decoder,
    softmax,
)
from attnmath.torch.modules import ParamTree
from attnmath.torch.training import load_state, refuse, saved

STEPS = {"bahdanau": bahdanau_step, "luong": luong_step, "none": plain_step}
KINDS = (*STEPS, "transformer")


@dataclass(frozen=True)
class Config:
    """What decides the result of a run, and so what a checkpoint must agree with.

    Attributes
    ----------
    attention : ``"bahdanau"``, ``"luong"`` or ``"none"``; ``"transformer"`` is g2p's model with the sizes of its preset
        ``book``, which reads d, h, a and forget from nowhere.
    d, h, a : the widths of the embeddings, of the decoder's state (half of it in each direction of the encoder) and of
        Bahdanau's score.
    forget : the forget gates' bias before the first step.
    longest : learn from words of at most so many letters (0: of any length).
    without : learn from words that lack these letters side by side (empty: from all).
    words : how many of these words to learn from (0: all).
    steps, batch : of the training; pairs of a word and a pronunciation in a step.
    rate, warmup : the highest learning rate, and the steps to reach it; from there it falls to 0 as a cosine.
    decay, clip : the weight decay, and the largest norm of a gradient.
    seed : of the first parameters and the order of the data.
    """

    attention: str = "bahdanau"
    d: int = 64
    h: int = 128
    a: int = 64
    forget: float = 1.0
    longest: int = 0
    without: str = ""
    words: int = 0
    steps: int = 900
    batch: int = 128
    rate: float = 4e-3
    warmup: int = 200
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 1

    def __post_init__(self):
        if self.attention not in KINDS:
            raise ValueError(f"attention is {self.attention!r}; choose one of {', '.join(KINDS)}")
        refuse(self, {1: ("d", "h", "a", "steps", "batch"), 0: ("longest", "words", "warmup", "decay", "seed")})
        refuse(self, {}, positive=("rate", "clip"))
        if self.h % 2:
            raise ValueError(f"h is {self.h}; it must be even, because each direction of the encoder has half of it")
        if set(self.without) - set(LETTERS):
            raise ValueError(f"without is {self.without!r}; it must be made of the letters {LETTERS}")


PRESETS = {"book": Config()}


class Carried:
    """What a decoder carries from step to step, in the place of a cache of keys and values."""

    def __init__(self, rows):
        self.rows = rows

    def select(self, chosen):
        """Go on with these sequences, as a beam search does."""
        self.rows = self.rows[chosen]


class Speller(g2p.Speller):
    """An LSTM from letters to phonemes; what it is asked, and how, is the Transformer's."""

    def __init__(self, config: Config, phonemes: tuple[str, ...]):
        nn.Module.__init__(self)
        self.config, self.phonemes, self.step = config, phonemes, STEPS[config.attention]
        sizes = {"source": len(SPECIALS) + len(LETTERS), "target": len(SPECIALS) + len(phonemes)}
        sizes |= {"d": config.d, "h": config.h, "a": config.a}
        self.model = ParamTree(seq2seq_shapes(config.attention, sizes))
        for name, parameter in self.model.named_parameters():
            if name.endswith("word"):
                nn.init.normal_(parameter)
            elif name.endswith("vector"):
                nn.init.normal_(parameter, std=config.a**-0.5)
            elif name.endswith(("left.bias", "right.bias", "lstm.bias")):
                i, f = len(parameter) // 4, len(parameter) // 2
                nn.init.constant_(parameter[i:f].detach(), config.forget)
        self.register_buffer("positions", torch.zeros(0), persistent=False)  # it has none; others ask for its device

    def encode(self, letters):
        """Letters (b, m), padded, to the encoder's states and the mask of its letters."""
        mask, params = letters != PAD, self.model.tree()
        return bidirectional_lstm(
            embedding(letters, params["source_embeddings"]["word"]), params["encoder"], mask
        ), mask

    def states(self, phonemes, memory, mask, carried=None):
        """What the decoder carries (b, n + 1, 3, h): before the first of the phonemes (b, n), and after each."""
        params = self.model.tree()
        if carried is None:
            start = bridge(memory, params["bridge"])
            carried = torch.cat([start, torch.zeros_like(start[:, :1])], 1)
        rows = [carried]
        for y in embedding(phonemes, params["embeddings"]["word"]).unbind(1):
            rows.append(self.step(y, rows[-1], memory, params["decoder"], mask))
        return torch.stack(rows, 1)

    def decode(self, phonemes, memory, mask, cache=None):
        """The logits (b, n, t) of each next phoneme; a cache keeps what the decoder carries."""
        params = self.model.tree()
        if cache is None:
            Y = embedding(phonemes, params["embeddings"]["word"])
            start = bridge(memory, params["bridge"])
            rows = recurrent_decoder(Y, start, memory, params["decoder"], mask, step=self.step)
        else:
            kept = cache["carried"].rows if cache else None
            rows = self.states(phonemes, memory, mask, kept)[:, 1:]
            cache["carried"] = Carried(rows[:, -1])
        return affine(rows[..., 2, :], params["head"])

    @torch.no_grad()
    def alignment(self, word: str) -> tuple[tuple[str, ...], np.ndarray]:
        """What the model says to a word, and its weights: a row for each phoneme and one for the end, a column for each
        letter and one for the end.

        Raises
        ------
        ValueError
            If the model has no attention, or the word is none.
        """
        if self.config.attention == "none":
            raise ValueError("a model without attention has no weights; choose bahdanau or luong")
        said = self.transcribe([word])[0]
        names, device = SPECIALS + self.phonemes, self.positions.device
        memory, mask = self.encode(torch.from_numpy(pad([spell(word)])).to(device))
        ids = torch.tensor([[names.index("<start>"), *(names.index(p) for p in said)]], device=device)
        states = self.states(ids, memory, mask)[..., 0, :]
        score = self.model.tree()["decoder"]["score"]
        if self.config.attention == "bahdanau":
            S = additive_score(states[:, :-1], memory, score["query"], score["key"], score["vector"])
        else:
            S = multiplicative_score(states[:, 1:], memory, score["weight"])
        return said, softmax(S)[0].cpu().numpy()


def speller(config: Config, phonemes: tuple[str, ...]) -> nn.Module:
    """The model of a configuration: an LSTM, or g2p's Transformer."""
    if config.attention != "transformer":
        return Speller(config, phonemes)
    return g2p.Speller(replace(g2p.PRESETS["book"], seed=config.seed), phonemes)


def kept(lexicon: Lexicon, longest: int = 0, without: str = "") -> Lexicon:
    """The words of at most so many letters (0: any) that lack these letters side by side (empty: all).

    Examples
    --------
    >>> kept({"cab": (), "crab": (), "ab": ()}, longest=3, without="ca")
    {'ab': ()}
    """
    return {
        word: spoken
        for word, spoken in lexicon.items()
        if len(word) <= (longest or len(word)) and not (without and without in word)
    }


class Task(g2p.Task):
    """Spelling to phonemes with g2p's pairs, batches, split and measures, for a number of steps.

    Parameters
    ----------
    config : what to compute.
    data : the dictionary; by default all of it. Only its training words are left out by ``longest`` and ``without``.

    Raises
    ------
    ValueError
        If no word is left to learn from.
    """

    def __init__(self, config: Config, data: CMUdict | None = None):
        self.config, self.data = config, cmudict() if data is None else data
        words = list(kept(self.data.train, config.longest, config.without).items())[: config.words or None]
        if not words:
            raise ValueError(f"no word is left to learn from with longest={config.longest}, without={config.without!r}")
        self.train = g2p.pairs(dict(words), self.data.phonemes)
        self.validation = g2p.pairs(self.data.validation, self.data.phonemes)
        self.lengths = np.array([(len(source), len(target)) for source, target in self.train])
        self.per_epoch = self.total = config.steps

    def model(self):
        return speller(self.config, self.data.phonemes)

    def epoch(self, number):
        """The batches of one round of ``steps``: as many passes over the data as it takes."""
        found, passes = [], 0
        while len(found) < self.config.steps:
            rng = np.random.default_rng((self.config.seed, passes))
            found += g2p.batches(self.lengths, self.config.batch, rng)
            passes += 1
        return found[: self.config.steps]

    def loss(self, model, batch):
        return g2p.loss_of(model, batch, 0.0)


def load(path: Path, device="cpu") -> nn.Module:
    """The trained model of a file ``model.safetensors``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged, or holds the model of another task.
    """
    tensors, config, meta = saved(path, Config, "g2p_lstm")
    return load_state(speller(config, tuple(meta["phonemes"])), tensors, device)


# the command line ----------------------------------------------------------------------------------------------------

add_flags = g2p.add_flags


def answer(args, path: Path) -> bool:
    """Pronounce words, if that was asked."""
    if not args.say:
        return False
    for word, phonemes in zip(args.say, load(path).transcribe(args.say, width=5), strict=True):
        print(word, *phonemes)
    return True


summary = g2p.summary
