"""Attention over a store that is too large to attend to: the best keys of each query, and what the others weigh."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.torch.attention import attention
from attnmath.torch.types import Array, T


def top_k_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    keep: int,
) -> Float[Array, "... n v"]:
    r"""Each query attends to those keys alone that have its greatest scores.

    .. math:: O_i = \sum_{j\in A_i} \frac{e^{S_{ij}}}{\sum_{l\in A_i} e^{S_{il}}} V_j,\qquad
              A_i = \{j : S_{ij} \text{ is among the } t \text{ greatest of row } i\}

    Parameters, errors and source as in `attnmath.numpy.beyond_one_memory.top_k_attention`.

    Examples
    --------
    >>> K = torch.tensor([[0.0], [1.0], [2.0]])
    >>> top_k_attention(torch.tensor([[1.0]]), K, K, keep=1)
    tensor([[2.]])
    """
    return attention(Q, K, V, _best(Q, K, V, mask, keep))  # eq:top-k-attention


def dropped_weight_bound(scores: Float[Array, "... n t"], dropped: int) -> Float[Array, "... n"]:
    r"""At most how much weight lies on keys that a search did not return, from the scores of those that it did.

    .. math:: \tau \le \frac{u\,e^{s_t}}{\sum_{j\le t} e^{s_j} + u\,e^{s_t}},\qquad s_t = \min_j s_j

    Parameters, errors and source as in `attnmath.numpy.beyond_one_memory.dropped_weight_bound`.

    Examples
    --------
    >>> dropped_weight_bound(torch.tensor([[0.0, 0.0]]), 2)
    tensor([0.5000])
    """
    sizes = _require.shapes(scores=(scores, "... n t"))
    _require.nonempty("scores", scores.shape, -1, sizes["t"], "score")
    _require.nonnegative("dropped", dropped)
    return dropped / ((scores - scores.amin(-1, keepdim=True)).exp().sum(-1) + dropped)  # eq:dropped-weight


def _best(Q, K, V, mask, keep):
    """True for the keys with the greatest scores that each query may attend to."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.count("keep", keep)
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    if keep >= sizes["m"]:
        return mask
    wide = [X.float() if X.dtype in (torch.float16, torch.bfloat16) else X for X in (Q, K)]
    S = (wide[0] @ T(wide[1])).masked_fill(~torch.as_tensor(mask, device=Q.device), -torch.inf)
    least = S.topk(keep, -1).values[..., -1:]
    return (S >= least) & mask
