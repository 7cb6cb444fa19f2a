"""Scores from a distance: who is near is heard, with a bandwidth for each head."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import metric_attention as require
from attnmath.torch.attention import attention_fused
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.types import Array, T


def _width(bandwidth, Q):
    """The bandwidth as a tensor where the queries are; a plain number takes their dtype."""
    return torch.tensor(bandwidth, dtype=Q.dtype, device=Q.device) if isinstance(bandwidth, int | float) else bandwidth


def _scaled(Q, K, bandwidth):
    """Queries and keys from the mean key, in units of the bandwidth."""
    if can_look(bandwidth):
        require.bandwidth(bandwidth, torch.isfinite)
    centre, width = K.detach().mean(-2, keepdim=True), bandwidth[..., None, None]
    return (Q - centre) / width, (K - centre) / width


@cast_by_autocast
@half_in_float32
def metric_score(
    Q: Float[Array, "... n k"], K: Float[Array, "... m k"], bandwidth: Float[Array, "..."] | float
) -> Float[Array, "... n m"]:
    r"""Scores that fall with the squared distance between query and key.

    .. math:: S_{ij} = -\frac{\lVert q_i - k_j\rVert^2}{2\sigma^2}

    Parameters, errors and source as in `attnmath.numpy.metric_attention.metric_score`.

    Examples
    --------
    >>> metric_score(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0], [3.0, 0.0]]), 1.0)
    tensor([[-0.5000, -2.0000]])
    """
    bandwidth = _width(bandwidth, Q)
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), bandwidth=(bandwidth, "..."))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    Q, K = _scaled(Q, K, bandwidth)
    D = Q.square().sum(-1)[..., :, None] + K.square().sum(-1)[..., None, :] - 2 * (Q @ T(K))
    return -torch.relu(D) / 2  # eq:metric-score


@cast_by_autocast
@half_in_float32
def metric_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    bandwidth: Float[Array, "..."] | float,
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
) -> Float[Array, "... n v"]:
    r"""Attention whose scores fall with the squared distance between query and key.

    .. math:: O_i = \sum_j \operatorname{softmax}_j\Bigl(\frac{q_i\cdot k_j}{\sigma^2}
              - \frac{\lVert k_j\rVert^2}{2\sigma^2}\Bigr) V_j

    Parameters, errors and source as in `attnmath.numpy.metric_attention.metric_attention`.

    Examples
    --------
    >>> Q, K, V = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]]), torch.tensor([[1.0], [0.0]])
    >>> metric_attention(Q, K, V, 1.0)
    tensor([[0.8808]])
    """
    bandwidth = _width(bandwidth, Q)
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"), bandwidth=(bandwidth, "..."))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    Q, K = _scaled(Q, K, bandwidth)
    bias = -K.square().sum(-1)[..., None, :] / 2
    return attention_fused(Q, K, V, mask, bias=bias, empty_rows=empty_rows, scale=1.0)  # eq:metric-attention
