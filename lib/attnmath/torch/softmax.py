"""Softmax, its logarithm, and the log-sum-exp they share, along the last axis."""

import torch
from jaxtyping import Float

from attnmath import _require
from attnmath.torch.half import half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array


@half_in_float32
def softmax(S: Float[Array, "... m"], temperature: float = 1.0, *, empty_rows: str = "error") -> Float[Array, "... m"]:
    r"""Turn each row of scores into a probability distribution.

    .. math:: P_{ij} = \frac{e^{S_{ij}/\tau}}{\sum_l e^{S_{il}/\tau}}

    Parameters, errors and source as in `attnmath.numpy.softmax.softmax`. Where no value can be
    looked at (`attnmath.torch.look.can_look`: in a compiled function, under ``torch.func.vmap``, on the meta device),
    an empty row is no error but zeros, whatever ``empty_rows`` says.

    Examples
    --------
    >>> softmax(torch.tensor([[1.0, 2.0, 1.0]]).log())
    tensor([[0.2500, 0.5000, 0.2500]])
    """
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.positive("temperature", temperature)
    _require.choice("empty_rows", empty_rows, ("error", "zero"))
    if empty_rows == "error" and can_look(S):
        _refuse_empty_rows(S, "empty_rows='zero'")
        return torch.softmax(_cooled(S, temperature), -1)  # eq:softmax
    empty = torch.isneginf(S).all(-1, keepdim=True)
    # the empty row is made finite before the softmax and zero after it, so that no nan enters the backward pass
    P = torch.softmax(_cooled(S.masked_fill(empty, 0), temperature), -1)
    return P.masked_fill(empty, 0)


def _refuse_empty_rows(S, allowed):
    """Name the first row that may attend to nothing."""
    empty = torch.isneginf(S.detach()).all(-1)
    if empty.any():
        _require.no_empty_row(tuple(empty.nonzero()[0].tolist()), allowed)


def _cooled(S, temperature):
    """(S - max) / temperature: the maximum first, because a low temperature overflows 16 bits."""
    return S if temperature == 1 else (S - S.detach().amax(-1, keepdim=True)) / temperature


@half_in_float32
def logsumexp(S: Float[Array, "... m"]) -> Float[Array, "..."]:
    r"""The smooth maximum of each row.

    .. math:: L_i = \log\sum_j e^{S_{ij}} = \max_j S_{ij} + \log\sum_j e^{S_{ij} - \max_l S_{il}}

    Parameters, errors and source as in `attnmath.numpy.softmax.logsumexp`.

    Examples
    --------
    >>> round(logsumexp(torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64).log()).exp().item(), 12)
    4.0
    """
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    empty = torch.isneginf(S).all(-1)
    # made finite before, so that the slope of an empty row is 0 and not nan
    return torch.logsumexp(S.masked_fill(empty[..., None], 0), -1).masked_fill(empty, -torch.inf)  # eq:logsumexp


@half_in_float32
def log_softmax(S: Float[Array, "... m"], temperature: float = 1.0) -> Float[Array, "... m"]:
    r"""The logarithm of the softmax, without taking the softmax first.

    .. math:: \log P_{ij} = S_{ij}/\tau - \log\sum_l e^{S_{il}/\tau}

    Parameters, errors and source as in `attnmath.numpy.softmax.log_softmax`. Where no value can be looked at, an empty
    row is no error but gives ``-inf``, the logarithm of `softmax`'s zeros.

    Examples
    --------
    >>> log_softmax(torch.tensor([0.0, 1000.0]))
    tensor([-1000.,     0.])
    """
    _require.shapes(S=(S, "... m"))
    _require.nonempty("S", S.shape, -1, S.shape[-1], "score")
    _require.positive("temperature", temperature)
    if can_look(S):
        _refuse_empty_rows(S, "softmax(…, empty_rows='zero')")
        return torch.log_softmax(_cooled(S, temperature), -1)  # eq:log-softmax
    empty = torch.isneginf(S).all(-1, keepdim=True)
    return torch.log_softmax(_cooled(S.masked_fill(empty, 0), temperature), -1).masked_fill(empty, -torch.inf)


@half_in_float32
def softmax_entropy(S: Float[Array, "... m"]) -> Float[Array, "..."]:
    r"""How spread out the softmax of each row of scores is.

    .. math:: H_i = -\sum_j P_{ij}\log P_{ij} = \log\sum_j e^{S_{ij}} - \sum_j P_{ij} S_{ij},\qquad
              P = \operatorname{softmax}(S)

    Parameters, errors and source as in `attnmath.numpy.softmax.softmax_entropy`. Where no value can be looked at, an
    empty row is no error but has the entropy 0.

    Examples
    --------
    >>> softmax_entropy(torch.zeros(1, 4)).exp()
    tensor([4.])
    """
    logP = log_softmax(S)
    # the weight of -inf is 0; its logarithm is made finite before the product, so that no nan enters the backward pass
    return -(logP.exp() * logP.masked_fill(torch.isneginf(logP), 0)).sum(-1)  # eq:softmax-entropy
