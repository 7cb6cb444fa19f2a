"""What training minimises: the cross-entropy of the next token, with smoothed targets if wanted."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer

from attnmath import _require
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
    _require.losses.targets(targets, getattr(targets, "shape", ()), None, rows="position")
    _require.losses.within(targets.reshape(-1), t)
    return (1 - smoothing) * F.one_hot(targets.long(), t).to(
        torch.get_default_dtype()
    ) + smoothing / t  # eq:smoothed-target


def cross_entropy(
    Z: Float[Array, "... t"],
    targets: Integer[Array, "..."],
    mask: Bool[Array, "..."] | None = None,
    *,
    smoothing: float = 0.0,
) -> Float[Array, ""]:
    r"""The mean surprise at the targets, over the positions that count.

    .. math:: L = -\frac{1}{|C|}\sum_{i\in C}\sum_{j} q_{ij}\log p_{ij},\qquad p_i = \operatorname{softmax}(Z_i),\quad
              q_{ij} = (1 - \epsilon)\,[j = y_i] + \frac{\epsilon}{t}

    Parameters, errors and source as in `attnmath.numpy.losses.cross_entropy`. Under ``torch.compile`` the targets are
    not looked at, because that would need a value; no counted position gives ``nan``.

    Examples
    --------
    >>> cross_entropy(torch.tensor([[2.0, 1.0, 1.0]]).log(), torch.tensor([1]))
    tensor(1.3863)
    """
    t = _require.shapes(Z=(Z, "... t"))["t"]
    _require.nonempty("Z", Z.shape, -1, t, "token")
    _require.losses.smoothing(smoothing)
    _require.losses.targets(targets, Z.shape[:-1], mask)
    rows, y = (Z.reshape(-1, t), targets.reshape(-1)) if mask is None else (Z[mask], targets[mask])
    if not torch.compiler.is_compiling():
        _require.losses.within(y, t)
        empty = torch.isneginf(rows.detach().amax(-1))
        if empty.any():
            _require.losses.no_token(int(empty.int().argmax()))
    logP = torch.log_softmax(rows, -1)
    token = -logP.gather(-1, y.long()[:, None])[:, 0]  # eq:token-loss
    if smoothing:
        token = (1 - smoothing) * token - smoothing * logP.mean(-1)  # eq:smoothed-loss
    return token.mean()  # eq:sequence-loss
