"""What training minimises: the cross-entropy of the next token, with smoothed targets if wanted."""

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath.torch.look import can_look
from attnmath.torch.types import Array


def smoothed_targets(targets: Integer[Array, "..."], t: int, smoothing: float) -> Float[Array, "... t"]:
    r"""The distribution that takes the place of the right token: most of it there, the rest spread evenly over all.

    .. math:: q_{ij} = (1 - \epsilon)\,[j = y_i] + \frac{\epsilon}{t}

    Parameters, errors and source as in `attnmath.numpy.losses.smoothed_targets`.

    Examples
    --------
    >>> smoothed_targets(torch.tensor([1]), 4, 0.2)
    tensor([[0.0500, 0.8500, 0.0500, 0.0500]])
    """
    _require.losses.smoothing(smoothing)
    _require.count("t", t)
    _require.losses.targets(targets, getattr(targets, "shape", ()), None, rows="position")
    if can_look(targets):
        _require.losses.within(targets.long().reshape(-1), t)
    hit = torch.arange(t, device=targets.device) == targets.long()[..., None]
    return (1 - smoothing) * hit.to(torch.get_default_dtype()) + smoothing / t  # eq:smoothed-target


def cross_entropy(
    Z: Float[Array, "... t"],
    targets: Integer[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    *,
    smoothing: float = 0.0,
    weights: Float[Array, " t"] | None = None,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    r"""The mean surprise at the targets, over the positions that count.

    .. math:: L = -\frac{1}{|C|}\sum_{i\in C}\sum_{j} q_{ij}\log p_{ij},\qquad p_i = \operatorname{softmax}(Z_i),\quad
              q_{ij} = (1 - \epsilon)\,[j = y_i] + \frac{\epsilon}{t}

    Parameters, errors and source as in `attnmath.numpy.losses.cross_entropy`. Where values cannot be looked at
    (`attnmath.torch.look.can_look`) targets and weights are not, and no counted position gives ``nan``. Under autocast
    the loss is float32, as PyTorch's own is. Weights are constants here too: they receive no gradient.

    Examples
    --------
    >>> cross_entropy(torch.tensor([[2.0, 1.0, 1.0]]).log(), torch.tensor([1]))
    tensor(1.3863)
    """
    t = _require.shapes(Z=(Z, "... t"))["t"]
    _require.nonempty("Z", Z.shape, -1, t, "token")
    _require.losses.smoothing(smoothing)
    _require.losses.targets(targets, Z.shape[:-1], mask)
    _require.choice("reduction", reduction, ("mean", "sum", "none"))
    rows, y = Z, targets.long()
    if mask is not None:  # not rows[mask], whose number would have to be known
        rows, y = torch.where(mask[..., None], Z, 0), torch.where(mask, y, 0)
    counts = torch.ones_like(y, dtype=torch.bool) if mask is None else mask
    if weights is not None:
        _require.losses.weights(weights, Z, t)
    if can_look(rows, y, counts, weights):
        _look(rows, y[counts], counts, weights)
    wide = torch.promote_types(Z.dtype, torch.float32)
    logP = torch.log_softmax(rows, -1, dtype=wide)
    own = torch.ones_like(y, dtype=wide) if weights is None else weights.detach().to(wide)[y]
    token = -own * logP.gather(-1, y[..., None])[..., 0]  # eq:token-loss
    if smoothing:
        token = (1 - smoothing) * token - smoothing * _mean(logP, weights)  # eq:smoothed-loss
    token = torch.where(counts, token, 0)
    device = Z.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    dtype = wide if autocast else Z.dtype
    if reduction == "none":
        return token.to(dtype)
    if reduction == "sum":
        return token.sum().to(dtype)
    total = torch.where(counts, own, 0).sum()
    if can_look(total):
        _require.losses.a_mean(total)
    return (token.sum() / total).to(dtype)  # eq:sequence-loss


def _look(rows, y, counts, weights):
    """The checks that need values."""
    _require.losses.within(y, rows.shape[-1])
    empty = torch.isneginf(rows.detach().amax(-1))[counts]
    if empty.any():
        _require.losses.no_token(int(empty.int().argmax()))
    if weights is not None:
        _require.losses.nonnegative_weights(weights)


def _mean(logP, weights):
    """The mean of each row, weighted; a token of weight 0 may be forbidden."""
    if weights is None:
        return logP.mean(-1)
    weights = weights.detach().to(logP.dtype)
    return (weights * torch.where(weights == 0, 0, logP)).mean(-1)
