"""Single heads of a multi-head layer: scale them, ask the gradient what they are worth, take them out.

They work on the parameters of one layer, ``{"query", "key", "value", "output"}``, as arrays of either world.
"""

from attnmath import _require


def _by_head(W, heads):
    """Rows of the output projection, (h v, d) to (h, v, d)."""
    _require.divides(heads, W.shape[0], "the output projection's input")
    return W.reshape(heads, -1, W.shape[-1])


def gate_heads(params: dict, gates) -> dict:
    r"""Multiply each head's contribution by a number.

    .. math:: O = \sum_i \xi_i\, H_i W_o^i + b_o

    Parameters
    ----------
    params : one layer's parameters; they are not changed.
    gates : (h,) :math:`\xi`; 1 leaves a head as it is, 0 removes it.

    Returns
    -------
    The parameters with head i's rows of the output weight multiplied by its gate.

    Raises
    ------
    ValueError
        If the number of gates does not divide the output projection's rows, or the dtypes differ.

    References
    ----------
    Michel, Levy and Neubig (2019), equation 1. Chapter 4, eq:head-gates.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import attention_shapes, random_tree
    >>> params = random_tree(attention_shapes(4), np.random.default_rng(0))
    >>> gate_heads(params, np.array([1.0, 0.0]))["output"]["weight"].any(-1)
    array([ True,  True, False, False])
    """
    W = params["output"]["weight"]
    _require.shapes(gates=(gates, "h"), W=(W, "r d"))
    gated = (gates[:, None, None] * _by_head(W, len(gates))).reshape(W.shape)  # eq:head-gates
    return params | {"output": params["output"] | {"weight": gated}}


def gate_gradients(params: dict, dparams: dict, heads: int):
    r"""The derivative of the loss by each head's gate, where all gates are 1.

    .. math:: \frac{\partial L}{\partial \xi_i} = \langle W_o^i,\; \partial L/\partial W_o^i\rangle_F

    Parameters
    ----------
    params : one layer's parameters.
    dparams : the gradient of the loss with respect to them.
    heads : h.

    Returns
    -------
    (h,) in the unit of the loss: to first order, what the loss loses when the head is removed is minus this.

    Raises
    ------
    ValueError
        If heads does not divide the output projection's rows.

    References
    ----------
    Michel, Levy and Neubig (2019), equation 2. Chapter 4, eq:gate-gradients.

    Examples
    --------
    >>> import numpy as np
    >>> one = {"output": {"weight": np.array([[1.0], [2.0]])}}
    >>> gate_gradients(one, {"output": {"weight": np.array([[3.0], [4.0]])}}, heads=2)
    array([3., 8.])
    """
    W, dW = (_by_head(tree["output"]["weight"], heads) for tree in (params, dparams))
    return (W * dW).sum((-2, -1))  # eq:gate-gradients


def prune_heads(params: dict, keep) -> dict:
    """Take heads out for good: their columns of the three projections, and their rows of the output's.

    Parameters
    ----------
    params : one layer's parameters, with as many key-value heads as query heads.
    keep : (h,) boolean, True for a head that stays; at least one.

    Returns
    -------
    Smaller parameters, for ``multi_head_attention(…, heads=number of heads kept)``; the same function as gates of 0.

    Raises
    ------
    ValueError
        If keep is not boolean, keeps no head, or does not divide the widths.

    References
    ----------
    Michel, Levy and Neubig (2019), section 3; Voita et al. (2019).

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.shapes import attention_shapes, random_tree
    >>> params = random_tree(attention_shapes(4), np.random.default_rng(0))
    >>> small = prune_heads(params, np.array([False, True]))
    >>> small["query"]["weight"].shape, small["output"]["weight"].shape
    ((4, 2), (2, 4))
    """
    if "bool" not in str(getattr(keep, "dtype", "")) or not bool(keep.any()):
        raise ValueError(f"keep is {keep!r}; expected booleans, one per head, at least one of them True")
    pruned = {}
    for name in ("query", "key", "value"):
        weight, bias = params[name]["weight"], params[name]["bias"]
        _require.divides(len(keep), len(bias), f"params[{name!r}]")
        pruned[name] = {
            "weight": weight.reshape(len(weight), len(keep), -1)[:, keep].reshape(len(weight), -1),
            "bias": bias.reshape(len(keep), -1)[keep].reshape(-1),
        }
    W = params["output"]["weight"]
    rows = _by_head(W, len(keep))[keep].reshape(-1, W.shape[-1])
    return pruned | {"output": params["output"] | {"weight": rows}}
