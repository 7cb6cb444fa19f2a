"""Multi-head attention: the readable sum over heads, and the fused form with all heads side by side in one matrix."""

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.cache import KeyValueCache, no_vjp
from attnmath.numpy.attention import attention, attention_fused, attention_weights
from attnmath.numpy.linear import affine
from attnmath.numpy.types import Array, T, Vjp, sum_to

INPUTS = ("query", "key", "value")


def split_heads(X: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n k"]:
    """Cut the width into heads and put them before the rows: (..., n, h k) to (..., h, n, k)."""
    return X.reshape(*X.shape[:-1], heads, -1).swapaxes(-2, -3)


def merge_heads(X: Float[Array, "... h n k"]) -> Float[Array, "... n d"]:
    """Undo `split_heads`."""
    X = X.swapaxes(-2, -3)
    return X.reshape(*X.shape[:-2], -1)


def share_heads(X: Float[Array, "... g m k"], times: int) -> Float[Array, "... h m k"]:
    """Repeat each key or value head for the queries of its group: (..., g, m, k) to (..., g times, m, k)."""
    return X if times == 1 else np.repeat(X, times, -3)  # eq:grouped-heads


def unshare_heads(dX, times):
    """The transpose of `share_heads`: a head used several times receives the sum of the cotangents."""
    return dX if times == 1 else dX.reshape(*dX.shape[:-3], -1, times, *dX.shape[-2:]).sum(-3)  # eq:grouped-heads-vjp


def multi_head_attention(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m e"] | None,
    V: Float[Array, "... m c"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    key_heads: int | None = None,
    rotate: Callable | None = None,
    bias: Float[Array, "..."] | None = None,
    drop_weights: Callable | None = None,
    cache: KeyValueCache | None = None,
    empty_rows: str = "error",
    record: dict | None = None,
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Attention in h subspaces at once.

    .. math:: O = [H_1, \dots, H_h] W_o + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters
    ----------
    Q, K, V : (..., n, d), (..., m, e), (..., m, c); self-attention passes one array three times.
    params : ``{"query", "key", "value", "output"}``, each ``{"weight", "bias"}``, of the widths (d, h k), (e, g k),
        (c, g v), (h v, o), see `attnmath.shapes.attention_shapes`; head i has the columns ``i k, …, (i + 1) k - 1``.
        Any of the biases may be missing.
    heads : h.
    mask : boolean, broadcasts to (..., h, n, m); True = may attend. A padding mask of a batch is (b, 1, 1, m).
    key_heads : g, divides h: as many heads for keys and values, each shared by h / g query heads. None is h, multi-head
        attention; 1 is multi-query attention; between them lies grouped-query attention.
    rotate : ``rotate(X) -> (Y, vjp)``, applied to the queries (..., h, n, k) and the keys (..., g, m, k) of the heads,
        such as `rotary`; None leaves them.
    bias : broadcasts to (..., h, n, m), added to the scaled scores; None adds nothing.
    drop_weights : ``drop(P) -> (P', vjp)``, applied to the weights, such as `random_dropout`; None leaves them.
    cache : keys and values of earlier rows, which come before K's and V's; those are added to it. With K and V None
        the cache alone is attended to. There is no vjp then. ``rotate`` is called with ``start``.
    empty_rows : a query that may attend to nothing is an ``"error"``, or gets zeros from each head with ``"zero"``.
    record : a dict that receives ``"weights"``, P (..., h, n, m).

    Returns
    -------
    O : (..., n, o).
    vjp : dO -> (dQ, dK, dV, dparams), and dbias after them if there is a bias.

    Raises
    ------
    ValueError
        If heads do not divide the widths, shapes or dtypes disagree, or the mask is wrong.

    References
    ----------
    Vaswani et al. (2017), section 3.2.2; Ainslie et al. (2023) for g < h. Chapter 4, eq:multi-head.

    Examples
    --------
    >>> one = {"weight": np.eye(2), "bias": np.zeros(2)}
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> O, vjp = multi_head_attention(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    >>> O.round(3)
    array([[0.731, 0.5  ],
           [0.5  , 0.731]])
    """
    _require.keys_or_cache(K, V, cache)
    g = _require.head_sizes(params, heads, key_heads)
    projected, vjps, counts = {}, {}, {"query": heads, "key": g, "value": g}
    turn = {"query": rotate or _stay, "key": rotate or _stay, "value": _stay}
    if cache is not None:
        q, k, v = _with_cache(Q, K, V, params, heads, g, cache, rotate)
    else:
        _require.shapes(Q=(Q, "... n d"), K=(K, "... m e"), V=(V, "... m c"))
        for name, X in zip(INPUTS, (Q, K, V), strict=True):
            Y, vjps[name] = affine(X, params[name])
            Y, turn[name] = turn[name](split_heads(Y, counts[name]))
            projected[name] = share_heads(Y, heads // counts[name])
        q, k, v = projected.values()
    if record is not None:
        record["weights"], _ = attention_weights(q, k, mask, bias=bias, empty_rows=empty_rows)
    attend = attention_fused if drop_weights is None else partial(attention, drop=drop_weights)
    H, head_vjp = attend(q, k, v, mask, bias=bias, empty_rows=empty_rows)  # eq:head
    O, vjps["output"] = affine(merge_heads(H), params["output"])  # eq:multi-head

    def vjp(dO):
        dinputs, dparams = [], {}
        dH, dparams["output"] = vjps["output"](dO)
        dheads = head_vjp(split_heads(dH, heads))  # eq:multi-head-vjp
        for name, dhead in zip(INPUTS, dheads, strict=False):  # a fourth is the bias's
            dhead = turn[name](unshare_heads(dhead, heads // counts[name]))
            dX, dparams[name] = vjps[name](merge_heads(dhead))
            dinputs.append(dX)
        return *dinputs, dparams, *dheads[3:]

    return O, vjp if cache is None else no_vjp


def _with_cache(Q, K, V, params, heads, g, cache, rotate):
    """Queries of the new rows, keys and values of all rows so far: each row's are computed once, and kept."""

    def project(X, name, count, turn=None):
        Y = split_heads(affine(X, params[name])[0], count)
        return Y if turn is None else turn(Y, start=start)[0]

    start = cache.length
    q = project(Q, "query", heads, rotate)
    k, v = cache.kept if K is None else cache.append(project(K, "key", g, rotate), project(V, "value", g))
    return q, share_heads(k, heads // g), share_heads(v, heads // g)


def _stay(X):
    """The rotation of a model that has none."""
    return X, lambda dY: dY


def _columns(leaf, columns):
    """A linear map's parameters for some of its outputs."""
    return {name: X[..., columns] for name, X in leaf.items()}


def multi_head_sum(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m e"],
    V: Float[Array, "... m c"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    key_heads: int | None = None,
    rotate: Callable | None = None,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Multi-head attention as its definition reads: one head after the other, each with its own small matrices.

    .. math:: O = \sum_{i=1}^{h} H_i W_o^i + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters
    ----------
    Q, K, V, params, heads, mask, key_heads, rotate, bias, empty_rows : as in `multi_head_attention`.

    Returns
    -------
    O : (..., n, o), equal to `multi_head_attention`'s up to rounding.
    vjp : dO -> (dQ, dK, dV, dparams[, dbias]).

    Raises
    ------
    ValueError
        As `multi_head_attention`.

    References
    ----------
    Chapter 4, eq:multi-head-sum.

    Examples
    --------
    >>> one = {"weight": np.eye(2), "bias": np.zeros(2)}
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> O, vjp = multi_head_sum(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    >>> O.round(3)
    array([[0.731, 0.5  ],
           [0.5  , 0.731]])
    """
    sizes = _require.shapes(Q=(Q, "... n d"), K=(K, "... m e"), V=(V, "... m c"))
    g = _require.head_sizes(params, heads, key_heads)
    shape = (*sizes["..."], heads, sizes["n"], sizes["m"])
    _require.mask(mask, shape)
    _require.bias(bias, shape, Q)
    counts = dict(zip(INPUTS, (heads, g, g), strict=True))
    turn = {"query": rotate or _stay, "key": rotate or _stay, "value": _stay}
    Wo = params["output"]["weight"].reshape(heads, -1, params["output"]["weight"].shape[-1])
    O, pieces = params["output"].get("bias", 0), []
    for i in range(heads):
        mine, vjps, projected = {}, [], []
        for name, X in zip(INPUTS, (Q, K, V), strict=True):
            k = params[name]["weight"].shape[-1] // counts[name]
            j = i * counts[name] // heads  # the key head of query head i
            mine[name] = slice(j * k, (j + 1) * k)
            Y, vjp = affine(X, _columns(params[name], mine[name]))
            Y, turn_vjp = turn[name](Y)
            projected.append(Y)
            vjps.append((vjp, turn_vjp))
        H, head_vjp = attention(
            *projected, _of_head(mask, i), bias=None if bias is None else bias[_head(bias, i)], empty_rows=empty_rows
        )
        O = O + H @ Wo[i]  # eq:multi-head-sum
        pieces.append((mine, vjps, H, head_vjp))

    def vjp(dO):
        dinputs = [np.zeros_like(X) for X in (Q, K, V)]
        dparams = {name: {leaf: np.zeros_like(X) for leaf, X in p.items()} for name, p in params.items()}
        dbias = () if bias is None else (np.zeros_like(bias),)
        dWo = dparams["output"]["weight"].reshape(Wo.shape)
        if "bias" in dparams["output"]:
            dparams["output"]["bias"] += sum_to(dO, dO.shape[-1:])
        for i, (mine, vjps, H, head_vjp) in enumerate(pieces):
            dWo[i] = sum_to(T(H) @ dO, Wo[i].shape)
            dheads = head_vjp(dO @ Wo[i].T)
            for a, name in enumerate(INPUTS):
                linear_vjp, turn_vjp = vjps[a]
                dX, dleaf = linear_vjp(turn_vjp(dheads[a]))
                dinputs[a] += dX
                for leaf, dvalue in dleaf.items():
                    dparams[name][leaf][..., mine[name]] += dvalue
            if bias is not None:
                dbias[0][_head(bias, i)] += dheads[3]
        return *dinputs, dparams, *dbias

    return O, vjp


def _head(X, i):
    """Where head i stands in an array that broadcasts to (..., h, n, m)."""
    return (..., min(i, X.shape[-3] - 1), slice(None), slice(None)) if X.ndim >= 3 else ...


def _of_head(mask, i):
    """Head i's mask."""
    return mask if isinstance(mask, bool) else mask[_head(mask, i)]
