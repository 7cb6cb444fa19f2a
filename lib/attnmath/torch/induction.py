"""A Transformer of attention alone, whose logits fall apart into paths, and heads with weights from elsewhere."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Integer

from attnmath import _require, wiring
from attnmath._require import induction as require
from attnmath.torch.attention import attention_fused
from attnmath.torch.cores import recording
from attnmath.torch.masks import causal_mask
from attnmath.torch.multi_head import multi_head_attention
from attnmath.torch.transformer import logits, token_embedding
from attnmath.torch.types import Array
from attnmath.tree import child


def attention_only(
    ids: Integer[Array, "... n"],
    params: dict,
    heads: int,
    *,
    attend: Callable | list = attention_fused,
    record: dict | None = None,
) -> Float[Array, "... n t"]:
    r"""A language model with attention, residual connections and nothing else: no norm and no feed-forward network.

    .. math:: X^{l+1} = X^l + \operatorname{multihead}_l(X^l, X^l, X^l),\qquad Z = X^L W_U

    Parameters, errors and source as in `attnmath.numpy.induction.attention_only`.

    Examples
    --------
    >>> params = {"embeddings": {"word": torch.eye(3)}, "layers": {}}
    >>> attention_only(torch.tensor([2, 0]), params, heads=1)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    _require.integers(ids)
    _require.branches(params, ("embeddings", "layers"), optional=("head",))
    X = token_embedding(ids, params["embeddings"])
    mask = causal_mask(ids.shape[-1]).to(ids.device)
    for i in range(len(params["layers"])):
        core = wiring.part_of(attend, i, "attention")
        core = core if record is None else recording(core, child(record, "layers", str(i), "attention"))
        own = params["layers"][str(i)]["attention"]
        X = X + multi_head_attention(X, X, X, own, heads, mask, attend=core)  # eq:attention-only
    return logits(X, params)


def patched(core: Callable, patches: dict):
    r"""Let some heads attend with weights that are given, whatever their queries and keys say.

    .. math:: O_a = \tilde P_a V_a\text{ for the patched heads } a,\qquad O_a = \operatorname{core}_a(Q, K, V)
              \text{ for the others}

    Parameters, errors and source as in `attnmath.numpy.induction.patched`; the cores return tensors.

    Examples
    --------
    >>> from attnmath.torch.attention import attention
    >>> X, V = torch.zeros(2, 1, 1), torch.tensor([[[3.0]], [[5.0]]])
    >>> patched(attention, {1: torch.tensor([[0.0]])})(X, X, V).flatten()
    tensor([3., 0.])
    """

    require.by_head(patches)

    def attend(Q, K, V, **options):
        O = core(Q, K, V, **options)
        require.patches(patches, tuple(O.shape), tuple(V.shape))
        own = list(O.unbind(-3))
        for a, P in patches.items():
            own[a] = (P.to(V) @ V[..., a, :, :]).expand_as(own[a])  # eq:patched-head
        return torch.stack(own, -3)

    return attend
