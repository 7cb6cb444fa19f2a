"""A language model learns to see: ``python -m attnmath.flamingo_study OUT.json`` trains and measures.

A small language model reads sentences about one to three digits. Then it is frozen, and gated layers and an encoder of
pictures learn to caption strips of handwritten digits. Other runs start or train otherwise, for as many steps. The rate
of three of them is chosen on strips by the writers of the validation.
"""

import sys
import time
import zlib
from functools import cache, partial

import numpy as np
import torch

from attnmath import shapes
from attnmath.digits import SIDE, digits
from attnmath.flamingo_shapes import gated_cross_attention_shapes
from attnmath.study import Study, descend
from attnmath.torch import ParamTree, cross_entropy, flamingo, layer_norm, picture_mask, vision_encoder
from attnmath.vision_shapes import picture_embedding_shapes, vision_encoder_shapes

COUNTS, ASKS, SLOTS = ("one", "two", "three"), ("sum", "largest", "backwards"), 3
WORDS = ("<pad>", "<picture>", *COUNTS, "digit", "digits", ":", ".", *ASKS, *map(str, range(28)))
NUMBER = {word: number for number, word in enumerate(WORDS)}
PAD, PICTURE, STOP = (NUMBER[word] for word in ("<pad>", "<picture>", "."))
SENTENCE = 13  # words of the longest one
HELD_OUT = 0.2  # the share of combinations of two or three digits that no training text or picture has

D, HEADS, F, LAYERS = 48, 4, 192, 2  # of the language model
EYE, EYE_F, EYE_LAYERS, PATCH = 48, 96, 2, 4  # of the encoder of pictures
ROWS = SIDE * SIDE * SLOTS // PATCH**2  # of features that a picture has
READING, LOOKING, BATCH = 3000, 800, 32  # steps of the language model, of the gated layers
RATE, OPEN = 3e-3, 20.0  # tanh(20) is 1 in float32, and its slope is 0
EVERY, TESTED = 100, 400  # steps between two looks at a run; test pictures of each kind
SEEDS, FIRST, TRIED = (1, 2, 3), 4, 0  # the last is the seed with which rates are compared
SHOWN = 6  # test strips whose captions are written down
KINDS = {"trained": False, "kept": True}  # combinations of digits
RUNS = {  # which language model it begins with, whether that learns, and the gates at the start
    "frozen": (True, False, 0.0),
    "open": (True, False, OPEN),
    "all": (True, True, 0.0),
    "nothing": (False, True, 0.0),
}
RATES = {"frozen": (1e-3, RATE, 1e-2), "open": (1e-3, RATE, 1e-2, 3e-2), "all": (3e-4, 1e-3, RATE)}  # that are tried
CHOSEN = {"frozen": RATE, "open": 1e-2, "all": 1e-3}  # the best for questions that no caption asked


def held_out(row) -> bool:
    """Whether these digits, in any order, are kept for the test: decided by a checksum of the sorted digits.

    Examples
    --------
    >>> held_out([4, 2, 7]) == held_out([7, 4, 2]), held_out([5])
    (True, False)
    """
    name = "".join(map(str, sorted(row))).encode()
    return len(row) > 1 and zlib.crc32(name) / 2**32 < HELD_OUT


def combination(rng, kept: bool = False) -> list[int]:
    """One to three digits, each number of them equally often; kept ones have two or three."""
    while True:
        row = rng.integers(0, 10, rng.integers(1 + kept, SLOTS + 1)).tolist()
        if held_out(row) == kept:
            return row


def answer(row, ask: str) -> list[str]:
    """What the text says of these digits."""
    return [str(number) for number in {"sum": [sum(row)], "largest": [max(row)], "backwards": row[::-1]}[ask]]


def sentence(row, ask: str) -> list[str]:
    """A picture's mark, how many digits it shows, which, and the answer to one question about them.

    Examples
    --------
    >>> " ".join(sentence([4, 2, 7], "sum"))
    '<picture> three digits : 4 2 7 . sum 13 .'
    """
    listed = [*map(str, row), ".", ask, *answer(row, ask), "."]
    return ["<picture>", COUNTS[len(row) - 1], "digit" if len(row) == 1 else "digits", ":", *listed]


def encoded(texts: list[list[str]], width: int) -> torch.Tensor:
    """Word numbers (b, width), padded at the end."""
    ids = torch.full((len(texts), width), PAD)
    for i, text in enumerate(texts):
        ids[i, : len(text)] = torch.tensor([NUMBER[word] for word in text])
    return ids


def reading(rng, count: int, asks=ASKS, kept: bool = False) -> torch.Tensor:
    """Sentences for the language model, (count, 13)."""
    return encoded([sentence(combination(rng, kept), asks[rng.integers(len(asks))]) for _ in range(count)], SENTENCE)


def strip(rng, row, part) -> np.ndarray:
    """A picture (1, 8, 24) of these digits from left to right, in some of three slots, written by hands of a part."""
    X = np.zeros((1, SIDE, SLOTS * SIDE), np.float32)
    for slot, digit in zip(sorted(rng.permutation(SLOTS)[: len(row)]), row, strict=True):
        chosen = rng.choice(np.flatnonzero(part.y == digit))
        X[..., slot * SIDE : (slot + 1) * SIDE] = part.X[chosen]
    return X


def strips(rng, count: int, part, kept: bool = False) -> tuple[torch.Tensor, list[list[int]]]:
    """Pictures (count, 1, 8, 24) and the digits that they show."""
    rows = [combination(rng, kept) for _ in range(count)]
    return torch.from_numpy(np.stack([strip(rng, row, part) for row in rows])), rows


class Seer(torch.nn.Module):
    """A language model, an encoder of pictures, and gated layers in front of the language model's own.

    Parameters
    ----------
    gate : of all gates, at the start.
    """

    def __init__(self, gate: float = 0.0):
        super().__init__()
        table = picture_embedding_shapes(PATCH**2, EYE, ROWS, class_token=False)
        gated = gated_cross_attention_shapes(D, F, EYE, heads=HEADS)
        self.language = ParamTree(
            shapes.decoder_only_shapes(len(WORDS), D, F, LAYERS, SENTENCE, norm=layer_norm, heads=HEADS)
        )
        self.eye = ParamTree(vision_encoder_shapes(table, EYE, EYE_F, EYE_LAYERS, layer_norm, heads=HEADS))
        self.gated = ParamTree({str(i): gated for i in range(LAYERS)})
        with torch.no_grad():
            for name, parameter in self.gated.named_parameters():
                if name.endswith("norm.gate"):
                    parameter.fill_(gate)

    def features(self, X):
        """Of pictures (b, 1, 8, 24), the rows (b, r, e)."""
        return vision_encoder(X, self.eye.tree(), HEADS, PATCH)

    def forward(self, ids, memory=None, **options):
        """Logits, with the features of a picture for each text or without."""
        params = self.language.tree() | {"gated": self.gated.tree()}
        mask = True if memory is None else picture_mask(ids == PICTURE, 1, ROWS)[:, None]
        return flamingo(ids, memory, params, HEADS, mask, **options)

    def gates(self) -> list[float]:
        """The factors tanh(g), layer by layer: of attention, of the network."""
        names = ("cross_attention_norm", "feed_forward_norm")
        tree = self.gated.tree()
        return [round(float(tree[i][name]["gate"].tanh()), 4) for i in tree for name in names]


def loss(model, ids, memory=None):
    """The mean cross-entropy of each next word, in nats; nothing is asked about marks of pictures and padding."""
    targets = ids[:, 1:]
    return cross_entropy(model(ids[:, :-1], memory), targets, (targets != PAD) & (targets != PICTURE))


@cache
def language() -> dict:
    """The state of the one language model with which runs begin, after `READING` steps."""
    torch.manual_seed(1)
    model, rng = Seer(), np.random.default_rng(1)
    descend(list(model.language.parameters()), lambda: loss(model, reading(rng, BATCH)), READING, RATE)
    return model.language.state_dict()


def start(name: str, seed: int) -> tuple[Seer, list]:
    """The model at the beginning of a run, and the parameters that it trains."""
    knows, learns, gate = RUNS[name]
    torch.manual_seed(100 + seed)
    model = Seer(gate)
    if knows:
        model.language.load_state_dict(language())
    model.language.requires_grad_(learns)
    return model, [P for P in model.parameters() if P.requires_grad]


def caption_loss(model, rng):
    """The loss of one batch of strips by the training writers and their captions, which ask for the sum."""
    X, rows = strips(rng, BATCH, digits().train)
    return loss(model, encoded([sentence(row, "sum") for row in rows], SENTENCE), model.features(X))


@torch.no_grad()
def written(model, texts: list[list[str]], memory=None, most: int = 8) -> list[list[str]]:
    """What the model writes after each text, up to its full stop: the likeliest word each time."""
    lengths = torch.tensor([len(text) for text in texts])
    ids, rows = encoded(texts, int(lengths.max()) + most), torch.arange(len(texts))
    begun, writing = lengths.tolist(), torch.ones(len(ids), dtype=torch.bool)
    for _ in range(most):
        Z = model(ids[:, : min(SENTENCE, int(lengths.max()))], memory)
        chosen = Z[rows, lengths.clamp(max=SENTENCE) - 1].argmax(-1)
        writing = writing & (chosen != PICTURE)  # a mark of another picture ends a text
        ids[rows[writing], lengths[writing]] = chosen[writing]
        lengths = lengths + writing
        writing = writing & (chosen != STOP) & (lengths < SENTENCE)
    return [[WORDS[k] for k in row[a:b]] for row, a, b in zip(ids.tolist(), begun, lengths.tolist(), strict=True)]


def listed(words) -> list[int]:
    """The digits that a caption names.

    Examples
    --------
    >>> listed("two digits : 4 7 .".split())
    [4, 7]
    """
    return [int(word) for word in words[3:] if word.isdigit()]


def share(pairs) -> float:
    """Of pairs that are equal."""
    return round(float(np.mean([a == b for a, b in pairs])), 4)


def answers(model, captions, wanted, memory=None) -> dict:
    """For each question the share of right answers after these captions; ``wanted`` are the digits to answer for."""
    found = {}
    for ask in ASKS:
        told = written(model, [["<picture>", *words, ask] for words in captions], memory, most=4)
        found[ask] = share((words[:-1], answer(row, ask)) for words, row in zip(told, wanted, strict=True))
    return found


def captions(model, memory, rows) -> dict:
    """The shares of right counts, right digits, right lists, and right answers to each question."""
    first = written(model, [["<picture>"]] * len(rows), memory)
    mine = [listed(words) for words in first]
    pairs = [(a, b) for own, row in zip(mine, rows, strict=True) for a, b in zip(own + [-1] * SLOTS, row, strict=False)]
    found = {
        "count": share((words[:1], [COUNTS[len(row) - 1]]) for words, row in zip(first, rows, strict=True)),
        "digit": share(pairs),
        "list": share(zip(mine, rows, strict=True)),
    }
    return found | answers(model, first, rows, memory)


@torch.no_grad()
def texts(model) -> dict:
    """The loss on sentences without pictures, for each question."""
    return {ask: float(loss(model, reading(np.random.default_rng(50), 1000, (ask,)))) for ask in ASKS}


def told(model, seed: int = 90) -> dict:
    """The shares of right answers to sentences without pictures that list their digits, trained and kept ones."""
    found = {}
    for name, kept in KINDS.items():
        rows = [combination(np.random.default_rng([seed, i]), kept) for i in range(TESTED)]
        found[name] = answers(model, [sentence(row, "sum")[1 : len(row) + 5] for row in rows], rows)
    return found


@torch.no_grad()
def tested(model, blind: bool = False) -> dict:
    """Captions of strips by new writers, of combinations that were trained and of those that were kept."""
    found = {}
    for name, kept in KINDS.items():
        X, rows = strips(np.random.default_rng(60 + kept), TESTED, digits().test, kept)
        found[name] = captions(model, None if blind else model.features(X), rows)
    return found


@torch.no_grad()
def looked(model) -> dict:
    """Where the model looks as it names the first, second and third of three digits, and what it writes.

    For each gated layer the mean weight, over heads and strips of three digits, on each of the three slots.
    """
    X, rows = strips(np.random.default_rng(60), TESTED, digits().test)
    memory, full, found = model.features(X), [len(row) == SLOTS for row in rows], {}
    record = {}
    model(encoded([sentence(row, "sum") for row in rows], SENTENCE), memory, record=record)
    for name, own in record["gated"].items():
        P = own["weights"][full, :, 3 : 3 + SLOTS].mean((0, 1))  # the colon and two digits; patches, row by row
        P = P.unflatten(-1, (SIDE // PATCH, SLOTS, SIDE // PATCH)).sum((-3, -1))
        found[name] = [[round(value, 4) for value in row] for row in P.tolist()]
    says = written(model, [["<picture>"]] * SHOWN, memory[:SHOWN])
    return {"slots": found, "says": [" ".join(words) for words in says]}


def trained(name: str, seed: int, rate: float) -> tuple[Seer, list[float], list]:
    """One model after its training, its losses, and what was seen on the way: loss of validation, and gates."""
    model, parameters = start(name, seed)
    rng, curve = np.random.default_rng(1000 + seed), []
    X, rows = strips(np.random.default_rng(80), 300, digits().validation)
    ids = encoded([sentence(row, "sum") for row in rows], SENTENCE)

    @torch.no_grad()
    def look(step):
        curve.append([step, round(float(loss(model, ids, model.features(X))), 4), *model.gates()])

    look(0)
    losses = descend(parameters, lambda: caption_loss(model, rng), LOOKING, rate, look=look, every=EVERY)
    return model, losses, curve


def tried(name: str, rate: float) -> dict:
    """What a rate gives on strips by the writers of the validation, and on sentences of its own."""
    model, _, curve = trained(name, TRIED, rate)
    X, rows = strips(np.random.default_rng(70), TESTED, digits().validation)
    with torch.no_grad():
        found = {"loss": curve[-1][1], "captions": captions(model, model.features(X), rows)}
    return found | ({"told": told(model, 95)["trained"]} if RUNS[name][1] else {})


def unasked(found: dict) -> float:
    """Of `captions`, the share of right answers to the questions that no caption of the training asked.

    Examples
    --------
    >>> unasked({"sum": 0.8, "largest": 0.5, "backwards": 0.25})
    0.375
    """
    return (found["largest"] + found["backwards"]) / 2


def best(sweep: dict, name: str) -> float:
    """The rate of a rival with most right answers to these questions, the smallest of equals."""
    return max(sorted(RATES[name]), key=lambda rate: unasked(sweep[f"{name} {rate:g}"]["captions"]))


def run(name: str, seed: int, rate: float = RATE) -> dict:
    """Train one model and measure it."""
    began = time.process_time()
    before = texts(start(name, seed)[0])
    model, losses, curve = trained(name, seed, rate)
    return {
        "first": [round(value, 5) for value in losses[:FIRST]],
        "trained": sum(P.numel() for P in model.parameters() if P.requires_grad),
        "curve": curve,
        "texts before": before,
        "texts": texts(model),
        "captions": tested(model),
        "told": told(model) if RUNS[name][1] else {},  # else as the language model alone
        "looked": looked(model),
        "seconds": round(time.process_time() - began, 1),
    }


def blind() -> dict:
    """The language model alone: what it writes without a picture."""
    model, _ = start("frozen", 1)
    return {"texts": texts(model), "told": told(model), "captions": tested(model, blind=True)}


def _plan():
    runs = {f"{name} {seed}": partial(run, name, seed) for seed in SEEDS for name in RUNS}
    tuned = [(name, rate, seed) for name, rate in CHOSEN.items() if rate != RATE for seed in SEEDS]
    return {
        "runs": {"blind": blind} | runs,
        "sweep": {f"{name} {rate:g}": partial(tried, name, rate) for name in RATES for rate in RATES[name]},
        "tuned": {f"{name} {rate:g} {seed}": partial(run, name, seed, rate) for name, rate, seed in tuned},
    }


def _told(found):
    return found["captions"].get("trained", found["captions"])


FILE = "chapters/08_at_work/gated_cross_attention.json"
STUDY = Study("attnmath.flamingo_study", FILE, ("runs", "sweep", "tuned"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
