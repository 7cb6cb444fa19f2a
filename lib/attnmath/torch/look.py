"""Whether the values of tensors can be looked at: the question before every check and every choice that needs one."""

import torch
from torch._C import _functorch
from torch._subclasses.fake_tensor import FakeTensor

from attnmath._require import arrays

# While one of these dispatch modes is active, operations are recorded or imitated: a value read now decides nothing.
_RECORDERS = tuple(getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL"))


def graph_is_recorded() -> bool:
    """Whether sizes may be symbols of a graph that is recorded."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


arrays.graph_is_recorded = graph_is_recorded


def can_look(*tensors) -> bool:
    r"""Whether ``.item()`` of these tensors gives a value that stands for the whole computation.

    Parameters
    ----------
    tensors : tensors; anything else, such as ``True`` in place of a mask or an array of NumPy's, can be looked at.

    Returns
    -------
    answer : False while a graph is recorded (``torch.compile``, ``torch.export``, ``torch.jit.trace``, ``make_fx``, a
        CUDA graph), and for tensors that have no single value: on the meta device, fake, or with an axis that
        ``torch.func.vmap`` hides. True under ``torch.func.grad`` and ``jvp`` alone, whose tensors have their values.

    Examples
    --------
    >>> can_look(torch.ones(2)), can_look(torch.ones(2, device="meta"))
    (True, False)
    """
    if graph_is_recorded():
        return False
    if torch._C._len_torch_dispatch_stack() and any(torch._C._get_dispatch_mode(mode) for mode in _RECORDERS):
        return False
    return all(_has_a_value(X) for X in tensors if isinstance(X, torch.Tensor))


def _has_a_value(X):
    """Whether a tensor, under the wrappers of ``torch.func``, is one array of numbers."""
    while _functorch.is_functorch_wrapped_tensor(X):
        if _functorch.is_batchedtensor(X) or _functorch.is_functionaltensor(X):
            return False
        X = _functorch.get_unwrapped(X)  # what torch.func.grad and jvp wrap has its values
    if X.is_meta or isinstance(X, FakeTensor):
        return False
    return not (X.is_cuda and torch.cuda.is_current_stream_capturing())
