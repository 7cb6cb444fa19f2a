"""All attentions of Chapter 7 in one decoder: ``python -m attnmath.side_by_side OUT.json`` trains and times them.

Each model is `attnmath.torch.decoder_only` with two layers of width 32 and learned positions. They differ in the core
of attention, or in the layer that stands in attention's place, or in the feed-forward network. The width of that
network makes the numbers of parameters equal. Three tasks are those of `attnmath.memory_tasks`, and the fourth is the
language model of `attnmath.tasks.lm`: the docstrings of NumPy and SciPy, with that task's parts and tokens.
"""

import math
import sys
import time
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F

import attnmath.torch as at
from attnmath import _require, layouts, memory_tasks, shapes
from attnmath.study import Study
from attnmath.tasks import lm
from attnmath.tree import flatten, unflatten

D, HEADS, LAYERS, TAPS, WIDTH = 32, 2, 2, 4, 64  # WIDTH of softmax attention's feed-forward network
NEAR, FEATURES, EXPERTS, TOP = 4, 32, 4, 2
RATE, SEEDS, KEEP = memory_tasks.RATE, (0, 1, 2), 20  # KEEP steps share one mean loss in the record
STEPS = {"recall": 400, "digits": 100, "far": 200, "text": 300}
OFFSET = {"recall": memory_tasks.SYMBOLS, "far": memory_tasks.NOISE}  # the token of the first answer
VOCABULARY = {"recall": 2 * memory_tasks.SYMBOLS, "digits": 17, "text": 512}
VOCABULARY["far"] = memory_tasks.NOISE + memory_tasks.ANSWERS + 1
PAIRS = 8  # of the recall task
LENGTH = {"recall": 3 * PAIRS, "digits": 64, "far": memory_tasks.FAR, "text": 128}
WINDOWS, DOCUMENTS = 8, 100  # of the text: windows in a batch, and documents that test
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
    "gated delta": ("gated delta", "gated delta"),
    "mamba-2": ("mamba-2", "mamba-2"),
    "s4d": ("s4d", "s4d"),
    "experts": ("softmax", "softmax"),
    "delta + window": ("delta", "window"),
    "delta + softmax": ("delta", "softmax"),
}
TURNED = {  # the other order, and linear attention in a hybrid; `attnmath.tuned_recall` trains them
    "softmax + delta": ("softmax", "delta"),
    "linear + softmax": ("linear", "softmax"),
    "softmax + linear": ("softmax", "linear"),
}
WHOLE_LAYERS = {"mamba-2": "mamba2", "s4d": "s4d"}  # not cores: their names in `memory_tasks`


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
        return unflatten(memory_tasks.sizes(name, "recall"))["layers"]["0"]["mix"]

    @shapes.declares(sizes)
    def layer(Q, K, V, params, heads, mask=True, *, attend=None):
        return memory_tasks.mix(name, Q, params)

    return layer


def parts(mixer: str) -> dict:
    """The options with which one model calls `attnmath.torch.decoder_only`.

    Parameters
    ----------
    mixer : one of MIXERS or of TURNED.

    Examples
    --------
    >>> sorted(parts("delta"))
    ['attend', 'attention', 'feed_forward', 'join']
    """
    _require.choice("mixer", mixer, (*MIXERS, *TURNED))
    names, found = (MIXERS | TURNED)[mixer], cores()
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
    task : one of STEPS.
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


def build(mixer: str, task: str, seed: int):
    """One model, with its first parameters.

    Parameters
    ----------
    mixer, task : as in `sizes`.
    seed : of the random numbers.

    Examples
    --------
    >>> build("window", "digits", 0)(torch.zeros(1, 64, dtype=torch.int64)).shape
    torch.Size([1, 64, 17])
    """
    torch.manual_seed(seed)
    options = {"norm": at.rms_norm, "tie": False} | parts(mixer)
    model = at.DecoderOnly(VOCABULARY[task], D, HEADS, width(mixer), LAYERS, LENGTH[task], **options)
    if mixer in WHOLE_LAYERS:
        start = {name.replace(".mix.", ".attention."): X for name, X in _start(mixer, seed).items() if ".mix." in name}
        model.load_state_dict(start, strict=False)
    for name, parameter in model.named_parameters():
        if name.endswith("decay.bias"):  # a memory that forgets slowly, as long as nothing has been learned
            torch.nn.init.constant_(parameter, 4.0)
    return model


def _start(mixer, seed):
    return {name: X.detach() for name, X in memory_tasks.build(WHOLE_LAYERS[mixer], "recall", seed).items()}


def train(mixer: str, task: str, seed: int, steps: int | None = None, total: int | None = None) -> dict:
    """Train one model, and measure it on what it has not seen.

    Parameters
    ----------
    mixer, task, seed : as in `build`.
    steps : how many are taken; None takes all.
    total : the steps of the whole training, for which the learning rate is planned; None is STEPS.

    Returns
    -------
    A dict: the first losses, means of KEEP losses each, the seconds of one core, and after all steps what was measured:
    the share of right answers, or the bits that a byte and a token of new text need.

    Examples
    --------
    >>> first = train("delta", "recall", 0, steps=1)["first"][0]
    >>> bool(abs(first - math.log(VOCABULARY["recall"])) < 1)  # before it has learned anything it guesses
    True
    """
    total = STEPS[task] if total is None else total
    model, (draw, held) = build(mixer, task, seed), data(task, np.random.default_rng([seed, 7]))
    measure = _bits if task == "text" else _accuracy
    take, start = _stepping(model, draw, total), time.process_time()
    losses = [take(step) for step in range(total if steps is None else steps)]
    seconds = time.process_time() - start
    with torch.no_grad():
        found = measure(model, *held) if steps is None else {}
    curve = [round(float(np.mean(losses[i : i + KEEP])), 4) for i in range(0, len(losses), KEEP)]
    first = [round(x, 5) for x in losses[:4]]
    return {"first": first, "curve": curve} | found | {"seconds": round(seconds, 1)}


def _accuracy(model, ids, targets):
    right = (model(ids).argmax(-1) == targets)[targets >= 0].float().mean().item()
    return {"accuracy": round(right, 4)}


def _bits(model, ids, targets):
    """Bits for each byte and each token, as `attnmath.tasks.lm.bits_per_byte` counts them with windows side by side."""
    parts = zip(ids.split(64), targets.split(64), strict=True)
    losses = [F.cross_entropy(model(X)[t >= 0], t[t >= 0], reduction="sum").item() for X, t in parts]
    bits = sum(losses) / math.log(2)
    length = lm.length(_corpus().texts["test"][:DOCUMENTS])
    return {"bits per byte": round(bits / length, 4), "bits per token": round(bits / int((targets >= 0).sum()), 4)}


@cache
def _corpus():
    """The task of the language model, with its documents by part, their tokens and the ids."""
    return lm.Task(lm.Config(vocabulary=VOCABULARY["text"], context=LENGTH["text"]))


def _stepping(model, draw, total, rate=RATE):
    """``take(step)`` takes one step of the training and returns its loss."""
    adam = torch.optim.Adam(model.parameters(), rate, fused=True)

    def take(step):
        for group in adam.param_groups:
            group["lr"] = rate * min((step + 1) / 50, (total - step) / (total / 2), 1)
        ids, targets = draw()
        loss = F.cross_entropy(model(ids)[targets >= 0], targets[targets >= 0])
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return loss.item()

    return take


def train_in_equal_time(mixer: str, task: str, seed: int) -> dict:
    """Train one model for as long as softmax attention needs for all of its steps.

    Parameters
    ----------
    mixer, task, seed : as in `build`.

    Returns
    -------
    What `train` returns, and ``steps``, how many were taken.
    """
    steps = steps_in_equal_time(mixer, task)
    return {"steps": steps} | train(mixer, task, seed, total=steps)


@cache
def steps_in_equal_time(mixer: str, task: str, rounds: int = 15) -> int:
    """How many steps a model can take in the time that softmax attention needs for all of STEPS.

    Parameters
    ----------
    mixer, task : as in `build`.
    rounds : in each of them both models take four steps, one model after the other; the median of the ratios counts.

    Returns
    -------
    The number of steps, from the time of one core of this machine.

    Examples
    --------
    >>> 100 < steps_in_equal_time("delta", "recall", rounds=2) < 800
    True
    """
    draw, _ = data(task, np.random.default_rng(0))
    takes = [_stepping(build(name, task, 0), draw, 10**6) for name in ("softmax", mixer)]
    ratios = []
    for _ in range(rounds + 1):
        seconds = []
        for take in takes:
            start = time.process_time()
            for step in range(4):
                take(step)
            seconds.append(time.process_time() - start)
        ratios.append(seconds[0] / seconds[1])
    return round(STEPS[task] * float(np.median(ratios[1:])))  # the first round warms up


def data(task: str, rng):
    """``draw()`` gives a batch of ids and targets, -1 where nothing is asked; and what is held out for measuring.

    Examples
    --------
    >>> draw, (ids, targets) = data("digits", np.random.default_rng(0))
    >>> ids.shape, int(targets[0, -1]) in range(10)
    (torch.Size([397, 64]), True)
    """
    _require.choice("task", task, tuple(STEPS))
    if task in OFFSET:
        drawn = partial(memory_tasks.recall, pairs=PAIRS) if task == "recall" else memory_tasks.far

        def texts(rng, batch):
            ids, targets = map(torch.from_numpy, drawn(rng, batch))
            return ids, torch.where(targets < 0, -1, targets + OFFSET[task])

        return partial(texts, rng, memory_tasks.BATCH), texts(np.random.default_rng(99), 256)
    if task == "text":
        n, known = LENGTH[task], torch.from_numpy(_corpus().ids["train"])

        def windows():
            rows = known[rng.integers(0, len(known) - n, WINDOWS)[:, None] + np.arange(n + 1)]
            return rows[:, :-1], rows[:, 1:]

        new = lm.stream(_corpus().tokens, _corpus().texts["test"][:DOCUMENTS])
        rows, counts = map(torch.from_numpy, lm.windows(new, n, n))
        return windows, (rows[:, :-1], torch.where(counts, rows[:, 1:], -1))
    X, targets = memory_tasks.digits()
    order = np.random.default_rng(99).permutation(len(X))
    ids, targets = torch.tensor((16 * X[order]).round().astype(int)), torch.tensor(targets[order])

    def draw():
        rows = rng.integers(0, 1400, memory_tasks.BATCH)
        return ids[rows], targets[rows]

    return draw, (ids[1400:], targets[1400:])


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


def _plan():
    runs = {
        f"{task} {mixer} {seed}": partial(train, mixer, task, seed)
        for seed in SEEDS
        for task in STEPS
        for mixer in MIXERS
    }
    equal = {
        f"{task} {mixer} {seed}": partial(train_in_equal_time, mixer, task, seed)
        for seed in SEEDS
        for task in STEPS
        for mixer in MIXERS
        if mixer != "softmax"
    }
    return {"runs": runs, "times": {name: partial(_times, name) for name in (*cores(), "s4d")}, "equal time": equal}


def _times(name):
    return [measure(name, n) for n in LENGTHS]


STUDY = Study("attnmath.side_by_side", "chapters/07_outlook/side_by_side.json", ("runs", "times", "equal time"), _plan)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
