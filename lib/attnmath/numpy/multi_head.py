"""Multi-head attention: the readable sum over heads, and the fused form with all heads side by side in one matrix."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require, wiring
from attnmath.numpy.attention import attention, attention_fused
from attnmath.numpy.cores import grouped
from attnmath.numpy.linear import affine
from attnmath.numpy.residuals import normalise
from attnmath.numpy.types import Array, T, Vjp, differentiable, sum_to
from attnmath.shapes import attention_shapes, declares
from attnmath.tree import add, map_tree

INPUTS = ("query", "key", "value")


def split_heads(X: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n k"]:
    """Cut the width into heads and put them before the rows: (..., n, h k) to (..., h, n, k)."""
    return X.reshape(*X.shape[:-1], heads, X.shape[-1] // heads).swapaxes(-2, -3)


def merge_heads(X: Float[Array, "... h n k"]) -> Float[Array, "... n d"]:
    """Undo `split_heads`."""
    X = X.swapaxes(-2, -3)
    return X.reshape(*X.shape[:-2], X.shape[-2] * X.shape[-1])


@declares(attention_shapes)
@differentiable
def multi_head_attention(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m e"] | None,
    V: Float[Array, "... m c"] | None,
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    attend: Callable = attention_fused,
    turn: Callable | None = None,
    norm: Callable | None = None,
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Attention in h subspaces at once.

    .. math:: O = [H_1, \dots, H_h] W_o + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters
    ----------
    Q, K, V : (..., n, d), (..., m, e), (..., m, c); self-attention passes one array three times.
    params : ``{"query", "key", "value", "output"}``, each ``{"weight", "bias"}``, of the widths (d, h k), (e, g k),
        (c, g v), (h v, o), see `attnmath.shapes.attention_shapes`; head i has the columns ``i k, …, (i + 1) k - 1``.
        Any of the biases may be missing. Each of the g heads of keys and values, g a divisor of h, is shared by h / g
        query heads: g = h is multi-head attention, 1 multi-query attention, and between them lies grouped-query
        attention.
    heads : h.
    mask : boolean, broadcasts to (..., h, n, m); True = may attend. A padding mask of a batch is (b, 1, 1, m).
    attend : the core, ``attend(Q, K, V, mask=…) -> (O, vjp)`` on the heads, given a mask where there is one:
        `attention_fused`, ``partial(attention, drop=…)``, ``cached(attention_fused, cache)`` and so on.
    turn : ``turn(X) -> (Y, vjp)``, applied to the queries (..., h, n, k) and the keys (..., g, m, k) of the heads, such
        as `rotary`; with a cached core it is called with ``start``, the position of the first new row. None leaves
        them.
    norm : ``norm(X, gain) -> (Y, vjp)``, such as `rms_norm`, applied to the queries and keys of the heads before they
        are turned, with ``params["query_norm"]`` and ``params["key_norm"]``, ``{"gain" (k,)}``; None leaves them.

    Returns
    -------
    O : (..., n, o).
    vjp : dO -> (dQ, dK, dV, dparams), and after them what the core's vjp has to say, such as dbias.

    Raises
    ------
    ValueError
        If heads do not divide the widths, shapes or dtypes disagree, or the mask is wrong.

    References
    ----------
    Vaswani et al. (2017), section 3.2.2; Ainslie et al. (2023) for g < h; Henry et al. (2020) for the norm. Chapter 4,
    eq:multi-head.

    Examples
    --------
    >>> one = {"weight": np.eye(2), "bias": np.zeros(2)}
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> O, vjp = multi_head_attention(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    >>> O.round(3)
    array([[0.731, 0.5  ],
           [0.5  , 0.731]])
    """
    start = getattr(attend, "start", 0)
    g = wiring.head_counts(params, heads, norm)
    wiring.inputs(Q, K, V, start)
    projected, vjps, counts = [], {}, {"query": heads, "key": g, "value": g}
    for name, X in zip(INPUTS, (Q, K, V), strict=True):
        Y, vjps[name] = (None, None) if X is None else _project(X, params, name, counts[name], norm, turn, start)
        projected.append(Y)
    H, head_vjp = grouped(attend)(*projected, **({} if mask is True else {"mask": mask}))  # eq:head
    O, out_vjp = affine(merge_heads(H), params["output"])  # eq:multi-head, alg-multi-head

    def vjp(dO):
        dinputs, dparams = [], {}
        dH, dparams["output"] = out_vjp(dO)
        dheads = head_vjp(split_heads(dH, heads))  # eq:multi-head-vjp
        for name, dhead in zip(INPUTS, dheads, strict=False):  # what follows belongs to the core
            dX, dleaves = vjps[name](dhead)
            dinputs.append(dX)
            dparams |= dleaves
        return *dinputs, dparams, *dheads[3:]

    return O, vjp


def _project(X, params, name, count, norm, turn, start):
    """Queries, keys or values of all heads, (..., count, n, k); vjp: dY -> (dX, dparams of this name)."""
    Y, linear_vjp = affine(X, params[name])
    Y, prepare_vjp = _prepare(split_heads(Y, count), params, name, norm, turn, start)

    def vjp(dY):
        dY, dnorm = prepare_vjp(dY)
        dX, dleaf = linear_vjp(merge_heads(dY))
        return dX, {name: dleaf} | dnorm

    return Y, vjp


def _prepare(Y, params, name, norm, turn, start):
    """What happens to queries and keys before they meet: the norm, then the turn."""
    norm_vjp = turn_vjp = None
    if name != "value" and norm is not None:
        Y, norm_vjp = normalise(Y, params[f"{name}_norm"], norm)
    if name != "value" and turn is not None:
        Y, turn_vjp = turn(Y, start=start) if start else turn(Y)

    def vjp(dY):
        dY, dparams = dY if turn_vjp is None else turn_vjp(dY), {}
        if norm_vjp is not None:
            dY, dparams[f"{name}_norm"] = norm_vjp(dY)
        return dY, dparams

    return Y, vjp


def _columns(leaf, columns):
    """A linear map's parameters for some of its outputs."""
    return {name: X[..., columns] for name, X in leaf.items()}


@differentiable
def multi_head_sum(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m e"],
    V: Float[Array, "... m c"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    turn: Callable | None = None,
    norm: Callable | None = None,
    bias: Float[Array, "..."] | None = None,
    empty_rows: str = "error",
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Multi-head attention as its definition reads: one head after the other, each with its own small matrices.

    .. math:: O = \sum_{i=1}^{h} H_i W_o^i + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters
    ----------
    Q, K, V, params, heads, mask, turn, norm : as in `multi_head_attention`.
    bias, empty_rows : of each head, as in `attention`; the bias broadcasts to (..., h, n, m).

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
    g = wiring.head_counts(params, heads, norm)
    shape = (*sizes["..."], heads, sizes["n"], sizes["m"])
    _require.mask(mask, shape)
    _require.bias(bias, shape, Q)
    counts = dict(zip(INPUTS, (heads, g, g), strict=True))
    Wo = params["output"]["weight"].reshape(heads, -1, params["output"]["weight"].shape[-1])
    O, pieces = params["output"].get("bias", 0), []
    for i in range(heads):
        mine, vjps, projected = {}, [], []
        for name, X in zip(INPUTS, (Q, K, V), strict=True):
            k = params[name]["weight"].shape[-1] // counts[name]
            j = i * counts[name] // heads  # the key head of query head i
            mine[name] = slice(j * k, (j + 1) * k)
            Y, linear_vjp = affine(X, _columns(params[name], mine[name]))
            Y, prepare_vjp = _prepare(Y, params, name, norm, turn, start=0)
            projected.append(Y)
            vjps.append((linear_vjp, prepare_vjp))
        own = {"bias": None if bias is None else bias[_head(bias, i)], "empty_rows": empty_rows}
        H, head_vjp = attention(*projected, _of_head(mask, i), **own)
        O = O + H @ Wo[i]  # eq:multi-head-sum
        pieces.append((mine, vjps, H, head_vjp))

    def vjp(dO):
        dinputs, dparams = [np.zeros_like(X) for X in (Q, K, V)], map_tree(np.zeros_like, params)
        dbias = () if bias is None else (np.zeros_like(bias),)
        dWo = dparams["output"]["weight"].reshape(Wo.shape)
        if "bias" in dparams["output"]:
            dparams["output"]["bias"] += sum_to(dO, dO.shape[-1:])
        for i, (mine, vjps, H, head_vjp) in enumerate(pieces):
            dWo[i] = sum_to(T(H) @ dO, Wo[i].shape)
            dheads = head_vjp(dO @ Wo[i].T)
            for a, name in enumerate(INPUTS):
                linear_vjp, prepare_vjp = vjps[a]
                dY, dnorm = prepare_vjp(dheads[a])
                dX, dleaf = linear_vjp(dY)
                dinputs[a] += dX
                dparams |= {key: add(dparams[key], dvalue) for key, dvalue in dnorm.items()}
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
