"""How much of a machine a training step of the language model uses.

``python -m attnmath.step_speed OUT.json`` measures the steps that the machine can do, on a GPU in 32 and 16 bits and
compiled, and writes them down beside the speed of a large product.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch

from attnmath.count import training_flops
from attnmath.study import Study
from attnmath.torch.losses import cross_entropy
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.residuals import sublayer
from attnmath.torch.training import hardware
from attnmath.torch.transformer import DecoderOnly


@dataclass(frozen=True)
class Sizes:
    """A decoder and the batch of a step."""

    d: int
    heads: int
    layers: int
    vocabulary: int
    context: int
    batch: int

    @property
    def flops(self) -> int:
        """The operations that the model needs for a step; what a program repeats does not count."""
        return self.batch * training_flops(self.context, self.d, 4 * self.d, self.layers, self.vocabulary)


FULL = Sizes(d=96, heads=4, layers=3, vocabulary=1024, context=128, batch=16)  # the preset `full` of the task `lm`
SMALL_GPT2 = Sizes(d=768, heads=12, layers=12, vocabulary=50304, context=1024, batch=16)


def step(sizes: Sizes, device: str = "cpu", *, half: bool = False, compiled: bool = False) -> Callable[[], float]:
    """One step of training on random tokens, as a function that gives the loss.

    Parameters
    ----------
    sizes : of the model and the batch.
    device : where to compute.
    half : multiply in bfloat16, as autocast does; parameters and the optimiser's state stay in float32.
    compiled : let ``torch.compile`` write the kernels.

    Examples
    --------
    >>> tiny = step(Sizes(d=8, heads=2, layers=1, vocabulary=5, context=6, batch=3))
    >>> tiny() > tiny()
    True
    """
    torch.manual_seed(0)
    parts = (sizes.vocabulary, sizes.d, sizes.heads, 4 * sizes.d, sizes.layers, sizes.context)
    model = DecoderOnly(*parts, norm=layer_norm, join=partial(sublayer, norm_first=True)).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(sizes.vocabulary, (sizes.batch, sizes.context + 1), device=device)

    def loss_of(ids):
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=half):
            logits = model(ids[:, :-1])
        return cross_entropy(logits.float(), ids[:, 1:])

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def take() -> float:
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(ids)
        loss.backward()
        optimiser.step()
        return loss.item()

    return take


def seconds(call: Callable[[], object], rounds: int = 10) -> float:
    """The shortest time of a call that ends when its result is there; three calls before are not counted."""
    times = []
    for _ in range(3 + rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times[3:])


def product_speed(device: str = "cpu", dtype: torch.dtype = torch.float32, size: int = 1024) -> float:
    """The operations a second of a product of two square matrices: a peak that this machine does reach."""
    A, B = torch.randn(2, size, size, device=device, dtype=torch.float32).to(dtype)
    return 2 * size**3 / seconds(lambda: (A @ B)[0, 0].item())


def measured(sizes: Sizes, device: str = "cpu", *, half: bool = False, compiled: bool = False) -> dict:
    """Time and utilisation of a step.

    Returns
    -------
    ``seconds`` of a step, ``tokens`` a second, ``flops`` a second, and ``utilisation``, the share of `product_speed`
    in the same format.
    """
    took = seconds(step(sizes, device, half=half, compiled=compiled))
    size = 8192 if torch.device(device).type == "cuda" else 1024
    peak = product_speed(device, torch.bfloat16 if half else torch.float32, size)
    speed = sizes.flops / took
    found = {"seconds": took, "tokens": sizes.batch * sizes.context / took, "flops": speed}
    return {"sizes": asdict(sizes)} | found | {"peak": peak, "utilisation": speed / peak}


def _plan():
    runs = {"cpu, float32": partial(measured, FULL)}
    if torch.cuda.is_available():
        gpu = partial(measured, SMALL_GPT2, "cuda")
        runs["gpu, float32"] = gpu
        runs["gpu, bfloat16"] = partial(gpu, half=True)
        runs["gpu, bfloat16, compiled"] = partial(gpu, half=True, compiled=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {"hardware": lambda: hardware(device), "runs": runs}


STUDY = Study("attnmath.step_speed", "chapters/08_at_work/step_speed.json", ("hardware", "runs"), _plan)
record, main = STUDY.record, STUDY.main

if __name__ == "__main__":
    raise SystemExit(main())
