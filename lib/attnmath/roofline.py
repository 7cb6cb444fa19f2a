"""How fast a machine lets a computation be: its peak, its bandwidth, and the intensity of each kernel of the course.

``python -m attnmath.roofline`` measures this machine and prints what ``chapters/07_outlook/roofline.json`` holds.
"""

import argparse
import hashlib
import json
import tracemalloc
from dataclasses import dataclass
from functools import partial
from time import process_time

import numpy as np

from attnmath import _require
from attnmath.count import attention_flops


@dataclass(frozen=True)
class Machine:
    """Peak in FLOP per second and bandwidth in bytes per second."""

    name: str
    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """The intensity from which on arithmetic sets the pace, in FLOP per byte."""
        return self.peak / self.bandwidth


H100 = Machine("H100 SXM, bfloat16, dense, as published", 989e12, 3.35e12)


def intensity(flops: float | int, nbytes: float | int) -> float:
    r"""Operations for each byte that is moved.

    .. math:: I = \text{FLOP} / \text{bytes}

    Parameters
    ----------
    flops, nbytes : operations of a computation, and bytes > 0 it moves between processor and memory.

    References
    ----------
    Williams, Waterman and Patterson (2009). Chapter 7, eq:intensity.

    Examples
    --------
    >>> intensity(flops=12, nbytes=4)
    3.0
    """
    _require.positive("nbytes", nbytes)
    return flops / nbytes  # eq:intensity


def attainable(machine: Machine, intensity: float | int) -> float:
    r"""The most operations per second at an intensity: the roof.

    .. math:: \min(\text{peak},\ I \cdot \text{bandwidth})

    Parameters
    ----------
    machine : peak and bandwidth.
    intensity : I >= 0, FLOP per byte.

    Returns
    -------
    FLOP per second.

    References
    ----------
    Williams, Waterman and Patterson (2009). Chapter 7, eq:roofline.

    Examples
    --------
    >>> attainable(Machine("small", peak=100.0, bandwidth=10.0), intensity=3.0)
    30.0
    """
    _require.nonnegative("intensity", intensity)
    return min(machine.peak, intensity * machine.bandwidth)  # eq:roofline


def kernels(n: int, d: int, k: int = 64, itemsize: int = 2, rows: int = 256) -> dict[str, tuple[int, int]]:
    """The kernels of a layer over n tokens of width d: operations, and bytes if each array is moved once for each use.

    Parameters
    ----------
    n, d, k : tokens, model width, width of one head; keys are as wide as values.
    itemsize : bytes per number, 2 in bfloat16.
    rows : queries in a tile of the attention in tiles.

    Returns
    -------
    A dict from a name to (FLOP, bytes). Attention is that of one head, and decoding that of one new token over n.

    References
    ----------
    Chapter 7, "What it costs, again".

    Examples
    --------
    >>> flops, nbytes = kernels(n=1024, d=512)["attention in tiles"]
    >>> round(flops / nbytes)
    205
    """
    one = attention_flops(n, n, k, k)
    parts = {
        "projection": (2 * n * d * d, 2 * n * d + d * d),
        "feed-forward": (16 * n * d * d, 10 * n * d + 8 * d * d),
        "layer norm": (8 * n * d, 2 * n * d),
        "softmax of all scores": (5 * n * n, 2 * n * n),
        "attention in three steps": (one, 4 * n * n + 4 * n * k),
        "attention in tiles": (one, 2 * n * k + 2 * -(-n // rows) * n * k),
        "decoding one token": (attention_flops(1, n, k, k), 2 * n * k + 2 * k),
    }
    return {name: (flops, itemsize * numbers) for name, (flops, numbers) in parts.items()}


def _seconds(f, repeats):
    times = []
    for _ in range(repeats):
        start = process_time()
        f()
        times.append(process_time() - start)
    return min(times)


def measured_machine(size: int = 768, repeats: int = 5) -> Machine:
    """Peak and bandwidth of one thread of this machine, in float32.

    Parameters
    ----------
    size : rows of the square matrices whose product is timed; a copy of 64 million bytes is timed beside it.
    repeats : the shortest time of so many counts.

    Returns
    -------
    A machine; a copy of x bytes is counted as 2 x bytes moved, because it reads and writes.

    Examples
    --------
    >>> machine = measured_machine(size=64, repeats=1)
    >>> machine.peak > machine.bandwidth / 100
    True
    """
    A = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    out, long = np.empty_like(A), np.ones(16_000_000, np.float32)
    copy = np.empty_like(long)
    product = _seconds(lambda: np.matmul(A, A, out=out), repeats)
    return Machine(
        "this machine, float32, one thread",
        2 * size**3 / max(product, 1e-9),
        2 * long.nbytes / max(_seconds(lambda: np.copyto(copy, long), repeats), 1e-9),
    )


def measured_rates(n: int = 4096, d: int = 512, k: int = 128, repeats: int = 2) -> dict[str, tuple[float, float]]:
    """How fast this library's kernels run on this machine, float32: those of `kernels`, and two cores of Chapter 7.

    Parameters
    ----------
    n, d, k : as in `kernels`.
    repeats : the shortest time of so many counts.

    Returns
    -------
    A dict from a name to (intensity, FLOP per second). The two more are linear attention, whose products take
    4 n k k operations, and a window of tiles of 64 keys, of which each strip of 64 queries reads three.

    Examples
    --------
    >>> len(measured_rates(n=64, d=8, k=4, repeats=1))
    9
    """
    import attnmath.numpy as an
    from attnmath.layouts import blocks

    rng = np.random.default_rng(0)
    X, W = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, d), (d, d)))
    up, down = (rng.standard_normal(shape).astype(np.float32) for shape in ((d, 4 * d), (4 * d, d)))
    Q, K, V = rng.standard_normal((3, n, k)).astype(np.float32)
    S, gain = rng.standard_normal((n, n), np.float32), np.ones(d, np.float32)
    count = -(-n // 64)
    near = abs(np.subtract.outer(np.arange(count), np.arange(count))) <= 1
    costs = kernels(n, d, k, itemsize=4)
    costs |= {
        "linear attention": (4 * n * k * k, 16 * n * k),
        "window of tiles": (4 * k * 64**2 * int(near.sum()), 8 * k * (n + 64 * int(near.sum()))),
    }
    calls = {
        "projection": lambda: X @ W,
        "feed-forward": lambda: np.maximum(X @ up, 0) @ down,
        "layer norm": lambda: an.layer_norm(X, gain, gain),
        "softmax of all scores": lambda: an.softmax(S),
        "attention in three steps": lambda: an.attention(Q, K, V),
        "attention in tiles": lambda: an.tiled_attention(Q, K, V),
        "decoding one token": lambda: an.attention_fused(Q[:1], K, V),
        "linear attention": lambda: an.linear_attention(Q, K, V),
        "window of tiles": lambda: an.block_sparse_attention(Q, K, V, layout=blocks(near, 64), size=64),
    }
    return {
        name: (intensity(*costs[name]), costs[name][0] / max(_seconds(call, repeats + 1), 1e-9))
        for name, call in calls.items()
    }


def _bytes_of_torch(f) -> int:
    """The most bytes that PyTorch holds at a time while f runs, beyond those from before; its profiler counts them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        kept = f()
    events = [e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]"]
    moved = np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())])
    del kept
    return int(max(moved, default=0))


def measure(lengths, k: int = 64, repeats: int = 3, longest_plain: int = 4096) -> list[dict]:
    """Time and memory of causal attention in three forms of this library and in PyTorch's kernel, by length.

    Parameters
    ----------
    lengths : numbers of tokens.
    k : width of the head, float32.
    repeats : the shortest time of so many counts.
    longest_plain : the plain form, which holds all scores, is left out beyond.

    Returns
    -------
    Rows ``{"form", "n", "seconds", "peak"}``, peak in bytes beside the inputs, as tracemalloc counts them, and for the
    kernel as PyTorch's profiler does.

    Examples
    --------
    >>> [row["form"] for row in measure([16], repeats=1)]
    ['plain', 'fused', 'tiled', 'kernel']
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    import attnmath.numpy as an
    from attnmath.layouts import causal

    rng, rows = np.random.default_rng(0), []
    for n in lengths:
        Q, K, V = rng.standard_normal((3, n, k)).astype(np.float32)
        forms = {
            "plain": lambda Q=Q, K=K, V=V, n=n: an.attention(Q, K, V, an.causal_mask(n)),
            "fused": lambda Q=Q, K=K, V=V, n=n: an.attention_fused(Q, K, V, an.causal_mask(n)),
            "tiled": partial(an.tiled_attention, Q, K, V, causal()),
            "kernel": partial(
                scaled_dot_product_attention, *(torch.from_numpy(X)[None, None] for X in (Q, K, V)), is_causal=True
            ),
        }
        for form, f in forms.items():
            if form == "plain" and n > longest_plain:
                continue
            seconds = _seconds(f, repeats)
            peak = _bytes_of_torch(f) if form == "kernel" else _bytes_of_numpy(f)
            rows.append({"form": form, "n": n, "seconds": round(seconds, 6), "peak": peak})
    return rows


def _bytes_of_numpy(f) -> int:
    """The most bytes that Python and NumPy hold at a time while f runs."""
    tracemalloc.start()
    f()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def checksum(record: dict) -> str:
    """What a record holds of itself: SHA-256 of its machine and rows, by which an edit is seen."""
    return hashlib.sha256(json.dumps([record["machine"], record["rows"]], sort_keys=True).encode()).hexdigest()


def main(arguments: list[str] | None = None) -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(prog="python -m attnmath.roofline", description=__doc__)
    parser.add_argument("--longest", type=int, default=16384, help="the longest text, a power of two >= 256")
    options = parser.parse_args(arguments)
    lengths = [n for n in (256, 512, 1024, 2048, 4096, 8192, 16384) if n <= options.longest]
    machine = measured_machine()
    result = {
        "command": f"OMP_NUM_THREADS=1 python -m attnmath.roofline --longest {options.longest}",
        "sha256": "",
        "machine": {"name": machine.name, "peak": round(machine.peak), "bandwidth": round(machine.bandwidth)},
        "rows": measure(lengths),
    }
    print(json.dumps(result | {"sha256": checksum(result)}, indent=1))


if __name__ == "__main__":
    main()
