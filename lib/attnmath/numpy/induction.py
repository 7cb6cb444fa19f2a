"""A Transformer of attention alone, whose logits fall apart into paths, and heads with weights from elsewhere."""

from collections.abc import Callable

from jaxtyping import Float, Integer

from attnmath import _require, wiring
from attnmath._require import induction as require
from attnmath.numpy.attention import attention_fused
from attnmath.numpy.cores import recording
from attnmath.numpy.masks import causal_mask
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.transformer import logits, merge, token_embedding
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to
from attnmath.tree import child


@differentiable
def attention_only(
    ids: Integer[Array, "... n"],
    params: dict,
    heads: int,
    *,
    attend: Callable | list = attention_fused,
    record: dict | None = None,
) -> tuple[Float[Array, "... n t"], Vjp]:
    r"""A language model with attention, residual connections and nothing else: no norm and no feed-forward network.

    .. math:: X^{l+1} = X^l + \operatorname{multihead}_l(X^l, X^l, X^l),\qquad Z = X^L W_U

    Parameters
    ----------
    ids : (..., n) token ids.
    params : ``{"embeddings": {"word" (t, d), "position" (p, d)}, "layers": {"0": {"attention": …}, …}, "head":
        {"weight" (d, t)}}``, the attention's as in `multi_head_attention`. Without ``"head"`` the logits are tied to
        the word vectors, and ``"position"`` may be missing.
    heads : h, of each layer.
    attend : the core, or a list with one for each layer, such as `patched` ones.
    record : a dict that receives the weights of each layer, ``record["layers"]["0"]["attention"]["weights"]``.

    Returns
    -------
    Z : (..., n, t) logits of the next token; a row sees itself and the rows before it.
    vjp : dZ -> dparams.

    Raises
    ------
    ValueError
        If an id lies outside the vocabulary, there are more tokens than positions, or as `multi_head_attention`.

    References
    ----------
    Elhage et al. (2021), whose W_E, W_U and residual stream are our word vectors, head and X. Chapter 9,
    eq:attention-only.

    Examples
    --------
    >>> import numpy as np
    >>> params = {"embeddings": {"word": np.eye(3)}, "layers": {}}
    >>> attention_only(np.array([2, 0]), params, heads=1)[0]
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    _require.integers(ids)
    _require.branches(params, ("embeddings", "layers"), optional=("head",))
    X, embedding_vjp = token_embedding(ids, params["embeddings"])
    mask, vjps = causal_mask(ids.shape[-1]), []
    for i in range(len(params["layers"])):
        core = wiring.part_of(attend, i, "attention")
        core = core if record is None else recording(core, child(record, "layers", str(i), "attention"))
        own = params["layers"][str(i)]["attention"]
        F, layer_vjp = multi_head_attention(X, X, X, own, heads, mask, attend=core)
        X = X + F  # eq:attention-only
        vjps.append(layer_vjp)
    Z, head_vjp = logits(X, params)

    def vjp(dZ):
        dX, dparams = head_vjp(dZ)
        dlayers = {}
        for i, layer_vjp in reversed(list(enumerate(vjps))):
            dQ, dK, dV, dlayers[str(i)], *_ = layer_vjp(dX)
            dX = dX + dQ + dK + dV  # eq:attention-only-vjp
        layers = {str(i): {"attention": dlayers[str(i)]} for i in range(len(vjps))}
        return merge(dparams, {"layers": layers, "embeddings": embedding_vjp(dX)})

    return Z, vjp


def patched(core: Callable, patches: dict):
    r"""Let some heads attend with weights that are given, whatever their queries and keys say.

    .. math:: O_a = \tilde P_a V_a\text{ for the patched heads } a,\qquad O_a = \operatorname{core}_a(Q, K, V)
              \text{ for the others}

    Parameters
    ----------
    core : ``attend(Q, K, V, …) -> (O, vjp)`` on heads, of the same number for queries and keys.
    patches : weights by the number of the head, each (n, m) or (..., n, m): those of another text, their mean, or the
        same for all keys. No mask is applied to them.

    Returns
    -------
    A core; the queries and keys of a patched head get no gradient.

    Raises
    ------
    ValueError
        If patches is no dict; by the core, if there is no such head, or its weights are not (n, m).

    References
    ----------
    Olsson et al. (2022), "pattern-preserving ablation"; Vig et al. (2020) for patching. Chapter 9, eq:patched-head.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.numpy.attention import attention
    >>> X, V = np.zeros((2, 1, 1)), np.array([[[3.0]], [[5.0]]])
    >>> patched(attention, {1: np.array([[0.0]])})(X, X, V)[0].ravel()
    array([3., 0.])
    """

    require.by_head(patches)

    @differentiable
    def attend(Q, K, V, **options):
        O, core_vjp = core(Q, K, V, **options)
        require.patches(patches, O.shape, V.shape)
        O = O.copy()
        for a, P in patches.items():
            O[..., a, :, :] = P.astype(V.dtype) @ V[..., a, :, :]  # eq:patched-head

        def vjp(dO):
            others = dO.copy()
            others[..., list(patches), :, :] = 0
            dQ, dK, dV, *rest = core_vjp(others)
            dV = dV.copy()
            for a, P in patches.items():
                dvalues = T(P.astype(dO.dtype)) @ dO[..., a, :, :]  # eq:patched-head-vjp
                dV[..., a, :, :] += sum_to(dvalues, dV[..., a, :, :].shape)
            return dQ, dK, dV, *rest

        return O, vjp

    return attend
