"""Gradient checkpointing: a backward pass that recomputes what it needs."""

from collections.abc import Callable

from torch.utils import checkpoint as torch_checkpoint


def checkpoint(f: Callable) -> Callable:
    r"""Make a component that holds its arguments only; its backward pass calls the component again.

    .. math:: \operatorname{vjp}_{f,x}(\bar y):\quad (y, v) \leftarrow f(x),\quad \text{return } v(\bar y)

    Parameters and source as in `attnmath.numpy.checkpoint.checkpoint`; this is ``torch.utils.checkpoint``.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([2.0], requires_grad=True)
    >>> checkpoint(lambda x: x**3)(x).backward()
    >>> x.grad
    tensor([12.])
    """

    def light(*args, **options):
        return torch_checkpoint.checkpoint(f, *args, use_reentrant=False, **options)  # alg-checkpoint

    return light
