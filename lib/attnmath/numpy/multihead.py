"""Multi-head attention with the projections of all heads side by side in one matrix."""

from jaxtyping import Bool, Float

from attnmath import _require
from attnmath.numpy.attention import attention_weights
from attnmath.numpy.layers import linear
from attnmath.numpy.types import Array, T, Vjp, sum_to


def split_heads(X: Float[Array, "... n d"], heads: int) -> Float[Array, "... h n k"]:
    """Cut the width into heads and put them before the rows: (..., n, h k) to (..., h, n, k)."""
    return X.reshape(*X.shape[:-1], heads, -1).swapaxes(-2, -3)


def merge_heads(X: Float[Array, "... h n k"]) -> Float[Array, "... n d"]:
    """Undo `split_heads`."""
    X = X.swapaxes(-2, -3)
    return X.reshape(*X.shape[:-2], -1)


def multi_head_attention(
    Q: Float[Array, "... n d"],
    K: Float[Array, "... m d"],
    V: Float[Array, "... m d"],
    params: dict,
    heads: int,
    mask: Bool[Array, "..."] | bool = True,
    *,
    empty_rows: str = "error",
    record: dict | None = None,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""Attention in h subspaces at once.

    .. math:: O = [H_1, \dots, H_h] W_o + b_o,\qquad
              H_i = \operatorname{attention}(Q W_q^i + b_q^i,\; K W_k^i + b_k^i,\; V W_v^i + b_v^i)

    Parameters
    ----------
    Q, K, V : (..., n, d), (..., m, d), (..., m, d); self-attention passes one array three times.
    params : ``{"query", "key", "value", "output"}``, each ``{"weight" (d, d), "bias" (d,)}``; the columns
        ``i k, …, (i + 1) k - 1`` of the first three belong to head i, with k = d / h.
    heads : h, divides d.
    mask : boolean, broadcasts to (..., h, n, m); True = may attend. A padding mask of a batch is (b, 1, 1, m).
    empty_rows : a query that may attend to nothing is an ``"error"``, or gets zeros from each head with ``"zero"``.
    record : a dict that receives ``"weights"``, P (..., h, n, m).

    Returns
    -------
    O : (..., n, d).
    vjp : dO -> (dQ, dK, dV, dparams).

    Raises
    ------
    ValueError
        If heads does not divide d, shapes or dtypes disagree, or the mask is wrong.

    References
    ----------
    Vaswani et al. (2017), section 3.2.2. Appendix B, eq:multi-head.

    Examples
    --------
    >>> import numpy as np
    >>> one = {"weight": np.eye(2), "bias": np.zeros(2)}
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> O, vjp = multi_head_attention(X, X, X, dict.fromkeys(["query", "key", "value", "output"], one), heads=2)
    >>> O.round(3)
    array([[0.731, 0.5  ],
           [0.5  , 0.731]])
    """
    sizes = _require.shapes(Q=(Q, "... n d"), K=(K, "... m d"), V=(V, "... m d"))
    _require.divides(heads, sizes["d"], "Q")
    inputs = {"query": Q, "key": K, "value": V}
    projected, vjps = {}, {}
    for name, X in inputs.items():
        Y, vjps[name] = linear(X, params[name]["weight"], params[name]["bias"])
        projected[name] = split_heads(Y, heads)
    P, weights_vjp = attention_weights(projected["query"], projected["key"], mask, empty_rows=empty_rows)
    if record is not None:
        record["weights"] = P
    H = P @ projected["value"]  # eq:head
    O, vjps["output"] = linear(merge_heads(H), params["output"]["weight"], params["output"]["bias"])  # eq:multi-head

    def vjp(dO):
        dH, *doutput = vjps["output"](dO)
        dH = split_heads(dH, heads)
        dheads = {"value": sum_to(T(P) @ dH, projected["value"].shape)}
        dheads["query"], dheads["key"] = weights_vjp(dH @ T(projected["value"]))
        dinputs, dparams = [], {"output": dict(zip(("weight", "bias"), doutput, strict=True))}
        for name in inputs:
            dX, dW, db = vjps[name](merge_heads(dheads[name]))
            dinputs.append(dX)
            dparams[name] = {"weight": dW, "bias": db}
        return *dinputs, dparams

    return O, vjp
