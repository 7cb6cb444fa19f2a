"""Train a Transformer to pronounce: the model, the batches, the loop that survives being killed, the evaluation."""

import json
import math
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rapidfuzz.distance import Levenshtein
from torch import nn
from tqdm.auto import tqdm

from attnmath import saves
from attnmath.cache import select
from attnmath.cmudict import END, LETTERS, PAD, SPECIALS, START, CMUdict, Lexicon, cmudict, pad, spell
from attnmath.decoding import beam_search, greedy
from attnmath.torch.activations import relu
from attnmath.torch.feed_forward import feed_forward
from attnmath.torch.losses import cross_entropy
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.positions import sinusoidal_positions
from attnmath.torch.residuals import sublayer
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
        for name in ("d", "heads", "f", "layers", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("words", "warmup", "decay", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be > 0")
        for name in ("drop", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0 and less than 1")


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


def hardware(device) -> dict:
    """What the run ran on."""
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), name)
    found = {"cpu": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return found | ({"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {})


def rate_at(step: int, config: Config, total: int) -> float:
    """The learning rate of step 1, 2, …: a line up, then a cosine down to 0."""
    if step <= config.warmup:
        return config.rate * step / config.warmup
    part = (step - config.warmup) / max(total - config.warmup, 1)
    return config.rate * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))


class Run:
    """One training run in a folder: it begins, or goes on from its last checkpoint.

    Parameters
    ----------
    config : what to compute.
    out : the folder.
    device : where.
    data : the dictionary; by default all of it.
    resume : go on from a checkpoint of the folder if there is one; False refuses a folder that has one.

    Raises
    ------
    ValueError
        If the folder's checkpoint is damaged or belongs to another configuration.
    """

    def __init__(self, config: Config, out: Path, device="cpu", data: CMUdict | None = None, resume: bool = True):
        self.config, self.out, self.device = config, Path(out), torch.device(device)
        self.data = cmudict(config.stress) if data is None else data
        words = list(self.data.train)[: config.words or None]
        self.train = pairs({word: self.data.train[word] for word in words}, self.data.phonemes)
        self.validation = pairs(self.data.validation, self.data.phonemes)
        self.lengths = np.array([(len(source), len(target)) for source, target in self.train])
        self.per_epoch = sum(
            math.ceil(min(64 * config.batch, len(self.train) - i) / config.batch)
            for i in range(0, len(self.train), 64 * config.batch)
        )
        self.total = config.epochs * self.per_epoch
        torch.manual_seed(config.seed)
        self.model = Speller(config, self.data.phonemes).to(self.device)
        options = {"lr": 0.0, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": config.decay, "foreach": True}
        self.optimiser = torch.optim.AdamW(self.model.parameters(), **options)
        self.step, self.history, self.losses = 0, [], []
        self.seconds = self.processor = 0.0
        self._rng = self._random_states()
        found = saves.load_latest(self.out, asdict(config))
        if found and not resume:
            raise ValueError(f"{self.out} has checkpoints; resume from them, or choose another folder")
        if found:
            self._restore(*found)

    # what is kept ---------------------------------------------------------------------------------------------------

    def _random_states(self):
        cuda = {"rng.cuda": torch.cuda.get_rng_state(self.device)} if self.device.type == "cuda" else {}
        return {"rng.cpu": torch.get_rng_state()} | cuda

    def _set_random_states(self):
        torch.set_rng_state(self._rng["rng.cpu"])
        if self.device.type == "cuda" and "rng.cuda" in self._rng:
            torch.cuda.set_rng_state(self._rng["rng.cuda"], self.device)

    def _tensors(self):
        tensors = {f"model.{name}": X for name, X in self.model.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{i}.{name}": X for name, X in state.items()}
        tensors |= self._random_states()
        arrays = {name: X.detach().cpu().numpy() for name, X in tensors.items()}
        return arrays | {"losses": np.array(self.losses, dtype=np.float64)}

    def _meta(self):
        return {
            "config": asdict(self.config),
            "phonemes": list(self.data.phonemes),
            "step": self.step,
            "history": self.history,
            "seconds": self.seconds,
            "processor_seconds": self.processor,
        }

    def save(self):
        """Write a checkpoint; the last two are kept."""
        return saves.save_step(self.out, self.step, self._tensors(), self._meta())

    def _restore(self, tensors, meta):
        state = self.optimiser.state_dict()
        for name, X in tensors.items():
            if name.startswith("optimiser."):
                _, i, key = name.split(".")
                state["state"].setdefault(int(i), {})[key] = torch.from_numpy(X)
        self.optimiser.load_state_dict(state)
        model = {name: X for name, X in tensors.items() if name.startswith("model.")}
        self.model.load_state_dict({name.removeprefix("model."): torch.from_numpy(X) for name, X in model.items()})
        self._rng = {name: torch.from_numpy(X) for name, X in tensors.items() if name.startswith("rng.")}
        self.step, self.history, self.losses = meta["step"], meta["history"], tensors["losses"].tolist()
        self.seconds, self.processor = meta["seconds"], meta["processor_seconds"]

    # the loop -------------------------------------------------------------------------------------------------------

    def _update(self, batch):
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = rate_at(self.step + 1, self.config, self.total)
        self.optimiser.zero_grad(set_to_none=True)
        loss = loss_of(self.model, batch, self.config.smoothing)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of step {self.step + 1} is {loss.item()}; try a lower rate")
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimiser.step()
        self.losses.append(loss.item())
        self.step += 1

    def _close_epoch(self):
        record = {
            "epoch": self.step // self.per_epoch,
            "step": self.step,
            "train_loss": float(np.mean(self.losses[-self.per_epoch :])),
            "validation_loss": mean_loss(self.model, self.validation, self.device),
        }
        found = evaluate(self.model, self.data.validation)
        record |= {"validation_per": found["per"], "validation_wer": found["wer"]}
        self.history.append(record)

    def _log(self):
        text = "".join(json.dumps(record) + "\n" for record in self.history)
        saves.write(self.out / "log.jsonl", text.encode())

    def fit(self, save_every: int = 250, progress: bool = True) -> "Run":
        """Train to the end of the last epoch; a checkpoint every ``save_every`` steps and at the end of an epoch."""
        self._log()
        self._set_random_states()
        wall, cpu = time.monotonic() - self.seconds, time.process_time() - self.processor
        bar = tqdm(
            total=self.total, initial=self.step, disable=not progress, unit="step", mininterval=2, file=sys.stderr
        )
        with bar:
            while self.step < self.total:
                epoch, done = divmod(self.step, self.per_epoch)
                order = batches(self.lengths, self.config.batch, np.random.default_rng((self.config.seed, epoch)))
                for indices in order[done:]:
                    self._update(collate([self.train[i] for i in indices], self.device))
                    rate = self.optimiser.param_groups[0]["lr"]
                    bar.set_postfix(epoch=epoch + 1, loss=f"{self.losses[-1]:.3f}", rate=f"{rate:.1e}", refresh=False)
                    bar.update()
                    last = self.step % self.per_epoch == 0
                    if last:
                        self._close_epoch()
                    if last or self.step % save_every == 0:
                        self.seconds, self.processor = time.monotonic() - wall, time.process_time() - cpu
                        if last:
                            self.history[-1] |= {"seconds": round(self.seconds, 1)}
                        self.save()
                    if last:
                        self._log()
                        if progress:
                            bar.write(json.dumps(self.history[-1]), file=sys.stderr)
        return self

    def finish(self, command: list[str], widths: tuple[int, ...] = (1, 5)) -> dict:
        """Evaluate on validation and test words, and write the model and ``result.json``."""
        meta = {"config": asdict(self.config), "phonemes": list(self.data.phonemes), "step": self.step}
        arrays = {name: X.detach().cpu().numpy() for name, X in self.model.state_dict().items()}
        saves.save(self.out / "model.safetensors", arrays, meta)
        result = {
            "command": command,
            "config": asdict(self.config),
            "parameters": sum(P.numel() for P in self.model.parameters()),
            "words": {name: len(getattr(self.data, name)) for name in ("train", "validation", "test")},
            "pairs": len(self.train),
            "steps": self.step,
            "hardware": hardware(self.device),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "seconds": round(self.seconds, 1),
            "processor_seconds": round(self.processor, 1),
            "history": self.history,
        }
        for part in ("validation", "test"):
            lexicon = getattr(self.data, part)
            result[part] = {
                ("greedy" if width == 1 else f"beam {width}"): evaluate(self.model, lexicon, width=width)
                for width in widths
            }
        saves.write(self.out / "result.json", (json.dumps(result, indent=1) + "\n").encode())
        return result


def load_speller(path: Path, device="cpu") -> Speller:
    """The trained model of a file ``model.safetensors``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged.
    """
    tensors, meta = saves.load(path)
    model = Speller(Config(**meta["config"]), tuple(meta["phonemes"]))
    model.load_state_dict({name: torch.from_numpy(X) for name, X in tensors.items()})
    return model.to(device).eval()
