"""Dropout: a random mask that keeps the expectation. The mask is an argument, so the function is pure."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.torch.types import Array, Generator


def dropout(X: Float[Array, "..."], keep: Bool[Array, "..."], p: float) -> Float[Array, "..."]:
    r"""Zero what is not kept, and enlarge the rest so that the expectation stays.

    .. math:: Y = \frac{\text{keep} \odot X}{1 - p}

    Parameters, errors and source as in `attnmath.numpy.dropout.dropout`.

    Examples
    --------
    >>> dropout(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]), p=0.5)
    tensor([2., 0., 6.])
    """
    _require.floats(X=X)
    _require.dropout.probability(p)
    _require.dropout.keep(keep, X.shape)
    return X * keep * (1 / (1 - p))  # eq:dropout


def draw_keep(shape: tuple[int, ...], p: float, rng: Generator) -> Bool[Array, "..."]:
    """A mask for `dropout`: independent entries, True with probability 1 - p.

    Parameters and errors as in `attnmath.numpy.dropout.draw_keep`, with a generator of PyTorch, on whose device the
    mask is.

    Examples
    --------
    >>> draw_keep((6,), 0.5, torch.Generator().manual_seed(0))
    tensor([False,  True, False, False, False,  True])
    """
    _require.dropout.probability(p)
    return torch.rand(shape, generator=rng, device=rng.device) >= p


def random_dropout(p: float, rng: Generator) -> Callable:
    """Dropout that draws a new mask at every call: for the options ``drop`` and ``drop_weights`` of a layer.

    Parameters and errors as in `attnmath.numpy.dropout.random_dropout`; the result is ``drop(X) -> Y``.
    ``torch.nn.Dropout`` serves as well, and follows ``train()`` and ``eval()``. Under ``torch.utils.checkpoint``, which
    restores the default generators only, pass ``torch.default_generator``.

    Examples
    --------
    >>> random_dropout(0.5, torch.Generator().manual_seed(0))(torch.ones(6))
    tensor([0., 2., 0., 0., 0., 2.])
    """
    _require.dropout.probability(p)
    return lambda X: dropout(X, draw_keep(X.shape, p, rng), p)
