"""Attention over a store that is too large to attend to, and a store of what followed beside a language model."""

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require import beyond_one_memory as require
from attnmath.torch.attention import attention
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.look import can_look
from attnmath.torch.softmax import softmax
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


@cast_by_autocast
@half_in_float32
def store_distribution(
    Q: Float[Array, "... n k"],
    K: Float[Array, "m k"],
    followed: Integer[Array, " m"],
    vocabulary: int,
    *,
    temperature: float = 1.0,
    keep: int | None = None,
) -> Float[Array, "... n t"]:
    r"""What a store of keys, each followed by a token, says about the token that follows a query.

    .. math:: p_i(w) = \sum_{j \in A_i:\, w_j = w}
              \frac{e^{-\lVert q_i - k_j\rVert^2/T}}{\sum_{l\in A_i} e^{-\lVert q_i - k_l\rVert^2/T}}

    Parameters, errors and source as in `attnmath.numpy.beyond_one_memory.store_distribution`. Where values cannot be
    looked at (`attnmath.torch.look.can_look`), those of Q, K and followed are not.

    Examples
    --------
    >>> K = torch.tensor([[0.0], [0.0], [9.0]])
    >>> store_distribution(torch.tensor([[1.0]]), K, torch.tensor([2, 0, 1]), 4, keep=2)
    tensor([[0.5000, 0.0000, 0.5000, 0.0000]])
    """
    require.store(Q, K, followed, vocabulary, temperature, keep)
    tokens = followed.long()
    if can_look(Q, K, tokens):
        require.finite("Q", Q, torch.isfinite)
        require.finite("K", K, torch.isfinite)
        _require.losses.within(tokens, vocabulary, name="followed")
    centre = K.detach().mean(0)  # distances remain, and far from the origin they keep their digits
    A, B = Q - centre, K - centre
    S = 2 * A @ T(B) - B.square().sum(-1)  # without -|q|^2, which all keys share
    if keep is not None and keep < len(K):
        best, kept = S.topk(keep, -1), _greatest(S.detach(), keep)
        if can_look(S) and kept.sum() == best.values.numel():  # without ties only what is kept has to be weighed
            S, tokens = best.values, tokens[best.indices]
        else:
            S = S.masked_fill(~kept, -torch.inf)
    W = softmax(S, temperature)
    return W.new_zeros(*W.shape[:-1], vocabulary).scatter_add(-1, tokens.expand_as(W), W)  # eq:store-distribution


@half_in_float32
def store_mixture(model: Float[Array, "... t"], store: Float[Array, "... t"], weight: float) -> Float[Array, "... t"]:
    r"""The distribution of a model, mixed with that of a store.

    .. math:: p = (1 - \lambda)\,p_{\text{model}} + \lambda\,p_{\text{store}}

    Parameters, errors and source as in `attnmath.numpy.beyond_one_memory.store_mixture`. Where values cannot be looked
    at (`attnmath.torch.look.can_look`), those of the probabilities are not.

    Examples
    --------
    >>> store_mixture(torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.0, 1.0]), 0.25)
    tensor([0.3750, 0.3750, 0.2500])
    """
    _require.shapes(model=(model, "... t"), store=(store, "... t"))
    require.share("weight", weight)
    if can_look(model, store):
        require.probabilities("model", model, torch.isfinite)
        require.probabilities("store", store, torch.isfinite)
    return (1 - weight) * model + weight * store  # eq:store-mixture


def _best(Q, K, V, mask, keep):
    """True for the keys with the greatest scores that each query may attend to."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.count("keep", keep)
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    if keep >= sizes["m"]:
        return mask
    wide = [X.float() if X.dtype in (torch.float16, torch.bfloat16) else X for X in (Q, K)]
    S = (wide[0] @ T(wide[1])).masked_fill(~torch.as_tensor(mask, device=Q.device), -torch.inf)
    return _greatest(S, keep) & mask


def _greatest(S, keep):
    """True for the entries of each row that are not below the last one kept."""
    return S.topk(keep, -1).values[..., -1:] <= S
