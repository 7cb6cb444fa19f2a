"""All attentions of Chapter 7 in one decoder: its models, their tasks, and what they keep, compute and take in time.

Each model is `attnmath.torch.decoder_only` with two layers of width 32 and learned positions. They differ in the core
of attention, or in the layer that stands in attention's place, or in the feed-forward network. The width of that
network makes the numbers of parameters equal. `attnmath.side_by_side_study` tunes, trains and tests them.
"""

import math
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F

import attnmath.torch as at
from attnmath import _require, layouts, memory_starts, memory_tasks, shapes
from attnmath.tree import flatten

D, HEADS, LAYERS, TAPS, WIDTH = 32, 2, 2, 4, 64  # WIDTH of softmax attention's feed-forward network
NEAR, FEATURES, EXPERTS, TOP = 4, 32, 4, 2
TASKS = ("recall", "digits")
VOCABULARY = {"recall": 2 * memory_tasks.SYMBOLS, "digits": 17}
PAIRS = 8  # of the recall task
LENGTH = {"recall": 3 * PAIRS, "digits": 64}
DRAWN = 256  # texts that choose, and as many that test
TRAINED, CHOOSING = 1200, 200  # digits that train, and that choose
LENGTHS, TIMED_HEADS, TIMED_WIDTH = (256, 512, 1024, 2048, 4096), 4, 64
GATES = ("decay", "rate")
MIXERS = {  # what stands in the first layer and in the second
    "softmax": ("softmax", "softmax"),
    "window": ("window", "window"),
    "sparse": ("sparse", "sparse"),
    "linear": ("linear", "linear"),
    "performer": ("performer", "performer"),
    "decay": ("decay", "decay"),
    "delta": ("delta", "delta"),
    "mamba-2": ("mamba-2", "mamba-2"),
    "s4d": ("s4d", "s4d"),
    "experts": ("softmax", "softmax"),
    "delta + softmax": ("delta", "softmax"),
    "softmax + delta": ("softmax", "delta"),
    "linear + softmax": ("linear", "softmax"),
    "softmax + linear": ("softmax", "linear"),
}
WHOLE_LAYERS = {"mamba-2": "mamba2", "s4d": "s4d"}  # not cores: their names in `memory_tasks`
SINGLE = tuple(mixer for mixer in MIXERS if "+" not in mixer)


def cores(near: int = NEAR, segment: int = NEAR, count: int = 1, features: int = FEATURES, size: int = 16) -> dict:
    """The causal cores by name; the last three take the gates ``decay`` and ``rate`` besides.

    Parameters
    ----------
    near : how far a window reaches back.
    segment, count : of the sparse pattern: a window, and the last ``count`` keys of each segment for all later queries.
    features : of Performer.
    size : of a tile of the window and of the sparse pattern.

    Returns
    -------
    A dict of cores ``attend(Q, K, V, mask=…) -> O``.

    Examples
    --------
    >>> [name for name, core in cores().items() if gated(core)]
    ['decay', 'delta', 'gated delta']
    """
    window = layouts.window(near, causal=True)
    sparse = window | (layouts.summaries(segment, count) & layouts.causal())
    return {
        "softmax": at.attention_fused,
        "window": partial(at.block_sparse_attention, layout=window, size=size),
        "sparse": partial(at.block_sparse_attention, layout=sparse, size=size),
        "linear": partial(at.linear_attention, causal=True, chunk=64),
        "performer": partial(_performer, features=features),
        "decay": _decay,
        "delta": _delta,
        "gated delta": _gated_delta,
    }


def gated(core: Callable) -> bool:
    """Whether a core takes gates."""
    return core in (_decay, _delta, _gated_delta)


def _performer(Q, K, V, mask=True, *, features):
    return at.performer_attention(Q, K, V, mask, directions=_directions(features, Q.shape[-1]), causal=True, chunk=64)


@cache
def _directions(r, k):
    return at.draw_directions(r, k, torch.Generator().manual_seed(0))


def _decay(Q, K, V, mask=True, *, decay, rate):
    """A memory that adds, as strongly as the rate says, and decays."""
    return at.state_space_dual(_unit(Q), _unit(K) * rate, V, mask, decay=decay[..., 0].log(), chunk=64)


def _delta(Q, K, V, mask=True, *, decay, rate):
    """A memory that corrects what it holds; it has no use for the decay."""
    return at.fast_weights(_unit(Q), _unit(K), V, mask, beta=rate)


def _gated_delta(Q, K, V, mask=True, *, decay, rate):
    """A memory that decays and corrects."""
    return at.fast_weights(_unit(Q), _unit(K), V, mask, decay=decay, beta=rate)


def _unit(X):
    return F.normalize(X, dim=-1)


def mixing_shapes(d: int, heads: int = 1, key_heads: int | None = None, *, gates: bool = False) -> dict:
    """Attention behind a convolution; with gates, two more numbers for each head from each row."""
    more = {name: shapes.linear_shapes(d, heads) for name in GATES} if gates else {}
    return {"conv": (TAPS, d)} | shapes.attention_shapes(d, heads, key_heads) | more


@shapes.declares(mixing_shapes)
def mixing(Q, K, V, params, heads, mask=True, *, attend: Callable = at.attention_fused, gates: bool = False):
    """Self-attention of rows that have read the three rows before them; a core with gates gets its gates from them.

    Parameters
    ----------
    Q, K, V, params, heads, mask, attend : as in `attnmath.torch.multi_head_attention`, K and V being Q.
    gates : whether there are parameters for gates.

    Examples
    --------
    >>> params = at.MultiHeadAttention(4, 2).tree() | {"conv": torch.ones(4, 4)}
    >>> X = torch.eye(3, 4)
    >>> mixing(X, X, X, params, 2).shape
    torch.Size([3, 4])
    """
    past = F.pad(Q, (0, 0, TAPS - 1, 0))
    U = sum(past[..., s : s + Q.shape[-2], :] * w for s, w in enumerate(params["conv"]))
    if gated(attend):
        found = {name: (U @ params[name]["weight"] + params[name]["bias"]).sigmoid() for name in GATES}
        attend = partial(attend, **{name: X.transpose(-1, -2)[..., None] for name, X in found.items()})
    projections = {name: params[name] for name in ("query", "key", "value", "output")}
    return at.multi_head_attention(U, U, U, projections, heads, mask, attend=attend)


def _whole_layer(name):
    """A layer of `memory_tasks` in the place of attention."""

    def sizes(d, heads=1, key_heads=None):
        return memory_starts.sizes(name)

    @shapes.declares(sizes)
    def layer(Q, K, V, params, heads, mask=True, *, attend=None):
        return memory_tasks.mix(name, Q, params)

    return layer


def parts(mixer: str) -> dict:
    """The options with which one model calls `attnmath.torch.decoder_only`.

    Parameters
    ----------
    mixer : one of MIXERS.

    Examples
    --------
    >>> sorted(parts("delta"))
    ['attend', 'attention', 'feed_forward', 'join']
    """
    _require.choice("mixer", mixer, tuple(MIXERS))
    names, found = MIXERS[mixer], cores()
    options = {"join": partial(at.sublayer, norm=at.rms_norm, norm_first=True), "feed_forward": at.feed_forward}
    if mixer == "experts":
        network = partial(at.mixture_of_experts, experts=EXPERTS, top=TOP, expert=at.feed_forward)
        options["feed_forward"] = network
    if mixer in WHOLE_LAYERS:
        return options | {"attention": _whole_layer(WHOLE_LAYERS[mixer])}
    attend = [found[name] for name in names]
    return options | {"attend": attend, "attention": partial(mixing, gates=any(map(gated, attend)))}


def sizes(mixer: str, task: str, f: int | None = None) -> dict:
    """The shapes of one model's parameters, as a flat dict.

    Parameters
    ----------
    mixer : one of MIXERS.
    task : one of TASKS.
    f : width of the feed-forward network; None is that with which all models are of one size.

    Examples
    --------
    >>> [sum(map(math.prod, sizes(mixer, "recall").values())) for mixer in ("softmax", "s4d", "experts")]
    [21088, 21076, 21016]
    """
    f = width(mixer) if f is None else f
    said = {name: part for name, part in parts(mixer).items() if name != "attend"}
    said |= {"heads": HEADS, "norm": at.rms_norm, "tie": False}
    return flatten(shapes.decoder_only_shapes(VOCABULARY[task], D, f, LAYERS, LENGTH[task], **said))


@cache
def width(mixer: str) -> int:
    """The width of the feed-forward network with which a model has as many parameters as softmax attention's.

    Examples
    --------
    >>> width("softmax"), width("experts")
    (64, 15)
    """
    wanted = sum(map(math.prod, sizes("softmax", "recall", WIDTH).values()))
    none, one = (sum(map(math.prod, sizes(mixer, "recall", f).values())) for f in (1, 2))
    return 1 + round((wanted - none) / (one - none))


def build(mixer: str, task: str, seed: int, start: str = "adapted"):
    """One model, with its first parameters.

    Parameters
    ----------
    mixer, task : as in `sizes`.
    seed : of the random numbers.
    start : of a memory that forgets, as in `attnmath.memory_starts.begin`; gates of decay start like those of Mamba-2.

    Examples
    --------
    >>> build("window", "digits", 0)(torch.zeros(1, 64, dtype=torch.int64)).shape
    torch.Size([1, 64, 17])
    """
    _require.choice("start", start, memory_starts.STARTS)
    torch.manual_seed(seed)
    n, rng = LENGTH[task], np.random.default_rng([seed, 8])
    options = {"norm": at.rms_norm, "tie": False} | parts(mixer)
    model = at.DecoderOnly(VOCABULARY[task], D, HEADS, width(mixer), LAYERS, n, **options)
    if mixer in WHOLE_LAYERS:
        for i in range(LAYERS):
            first = memory_starts.begin(WHOLE_LAYERS[mixer], rng, n, start)
            model.load_state_dict({f"layers.{i}.attention.{name}": X for name, X in first.items()}, strict=False)
    for name, parameter in model.named_parameters():
        if name.endswith("decay.bias"):
            parameter.data = _forgetting(rng, n, start)
    return model


def _forgetting(rng, n, start):
    """Biases with which the gates of a layer start: a half-life of 2 n rows, or what the program of Mamba-2 draws."""
    loss = np.full(HEADS, math.log(2) / (2 * n))  # minus the logarithm of what a row keeps
    if start == "published":
        loss = np.exp(rng.uniform(*np.log(memory_starts.STEPS), HEADS)) * rng.uniform(*memory_starts.RATES, HEADS)
    return torch.tensor(-loss - np.log(-np.expm1(-loss)), dtype=torch.float32)


def data(task: str, rng):
    """``draw()`` gives a batch of ids and targets, -1 where nothing is asked; and what chooses and what tests.

    Parameters
    ----------
    task : one of TASKS.
    rng : NumPy's generator of what trains.

    Examples
    --------
    >>> draw, held = data("digits", np.random.default_rng(0))
    >>> {name: tuple(ids.shape) for name, (ids, targets) in held.items()}
    {'validation': (200, 64), 'accuracy': (397, 64)}
    """
    _require.choice("task", task, TASKS)
    if task == "recall":

        def texts(rng, batch):
            ids, targets = map(torch.from_numpy, memory_tasks.recall(rng, batch, PAIRS))
            return ids, torch.where(targets < 0, -1, targets + memory_tasks.SYMBOLS)

        held = {"validation": 98, "accuracy": 99}  # the seeds of the texts
        held = {name: texts(np.random.default_rng(seed), DRAWN) for name, seed in held.items()}
        return partial(texts, rng, memory_tasks.BATCH), held
    X, targets = memory_tasks.digits()
    order = np.random.default_rng(99).permutation(len(X))
    ids, targets = torch.tensor((16 * X[order]).round().astype(int)), torch.tensor(targets[order])

    def draw():
        rows = rng.integers(0, TRAINED, memory_tasks.BATCH)
        return ids[rows], targets[rows]

    held = {"validation": slice(TRAINED, TRAINED + CHOOSING), "accuracy": slice(TRAINED + CHOOSING, None)}
    return draw, {name: (ids[part], targets[part]) for name, part in held.items()}


def writing(name: str, n: int, heads: int, k: int, near: int = NEAR, segment: int = NEAR) -> tuple[int, int]:
    """What one layer keeps while it writes, and what it computes for the next token, with n tokens before and with it.

    Parameters
    ----------
    name : of a core, or of a layer that stands in its place.
    n : tokens.
    heads, k : heads and their width; values are as wide as keys, and Performer has k features.
    near, segment : of the window and of the sparse pattern, as in `cores`.

    Returns
    -------
    Numbers that are kept, and multiplications and additions, without projections, convolutions and exponentials.

    References
    ----------
    Chapter 7, tab-writing.

    Examples
    --------
    >>> writing("softmax", 4096, 4, 64), writing("delta", 4096, 4, 64)
    ((2097152, 4194304), (16384, 98304))
    """
    states = memory_tasks.STATES
    seen = min(n, near + 1)
    summaries = max(0, n - 1 - near) // segment
    table = {
        "softmax": (2 * n * k, 4 * n * k),
        "window": (2 * seen * k, 4 * seen * k),
        "sparse": (2 * (seen + summaries) * k, 4 * (seen + summaries) * k),
        "linear": (k * (k + 1), 4 * k * (k + 1)),
        "performer": (k * (k + 1), 4 * k * (k + 1) + 4 * k * k),
        "decay": (k * k, 5 * k * k),
        "delta": (k * k, 6 * k * k),
        "gated delta": (k * k, 7 * k * k),
        "mamba-2": (states * k, 5 * states * k),
        "s4d": (states * k, 7 * states * k),
    }
    _require.choice("name", name, tuple(table))
    kept, work = table[name]
    return heads * kept, heads * work


def measure(name: str, n: int, runs: int = 3) -> float:
    """Milliseconds of one core of the processor for one call of an attention, forward, in float32.

    Parameters
    ----------
    name : of a core, or ``"s4d"``.
    n : tokens.
    runs : of which the shortest counts.

    Examples
    --------
    >>> measure("window", 256, runs=1) > 0
    True
    """
    rng, shape = torch.Generator().manual_seed(1), (TIMED_HEADS, n, TIMED_WIDTH)
    Q, K, V = torch.randn(3, *shape, generator=rng)
    if name == "s4d":
        d, pairs = TIMED_HEADS * TIMED_WIDTH, memory_tasks.STATES // 2
        U, P = torch.randn(n, d, generator=rng), torch.ones(d, pairs, 2)
        run = partial(at.state_space, U, -P, P, P, torch.full((d,), 0.1))
    else:
        core = cores(TIMED_WIDTH, 8 * TIMED_WIDTH, TIMED_WIDTH, TIMED_WIDTH, size=TIMED_WIDTH)[name]
        gates = {g: torch.full((*shape[:2], 1), 0.9) for g in GATES} if gated(core) else {}
        mask = {"mask": at.causal_mask(n)} if name == "softmax" else {}
        run = partial(core, Q, K, V, **gates, **mask)
    best = math.inf
    with torch.no_grad():
        run()
        for _ in range(runs):
            start = time.process_time()
            run()
            best = min(best, time.process_time() - start)
    return round(1e3 * best, 3)
