"""A mixture of experts: a router sends each token to a few of many networks; and the two losses that keep it even."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import experts as _ask
from attnmath.experts import mixture_shapes
from attnmath.numpy.feed_forward import gated_feed_forward
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.linear import affine
from attnmath.numpy.softmax import logsumexp, softmax
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.shapes import declares


def dispatch(S: Float[Array, "... n e"], top: int, capacity: int | None = None) -> Bool[Array, "... n e"]:
    r"""Which experts process which tokens: those with a token's highest scores, as long as they have room.

    .. math:: C_{ti} = [\,i \text{ is among the } k \text{ highest scores of token } t\,]

    Parameters
    ----------
    S : (..., n, e) scores of the router; of equal ones the first counts as the higher.
    top : k, the experts of each token, from 1 to e.
    capacity : the tokens of one sequence that an expert takes at most, >= 1; None for any number. First choices go
        before second ones, and earlier tokens before later ones.

    Returns
    -------
    C : (..., n, e) boolean, at most k True in a row, at most ``capacity`` in a column. It has no gradient.

    Raises
    ------
    ValueError
        If a score is not finite, or top or capacity is no such number.

    References
    ----------
    Shazeer et al. (2017), equation 5; the order as in Lepikhin et al. (2021), algorithm 1. Chapter 7, eq:dispatch.

    Examples
    --------
    >>> dispatch(np.array([[3.0, 1.0, 2.0], [2.0, 0.0, 1.0]]), top=1, capacity=1).astype(int)
    array([[1, 0, 0],
           [0, 0, 0]])
    """
    n, e = (_require.shapes(S=(S, "... n e"))[axis] for axis in "ne")
    _ask.top(top, e)
    _ask.capacity(capacity)
    wrong = np.argwhere(~np.isfinite(S))
    if len(wrong):
        _ask.not_finite(wrong[0].tolist(), S[tuple(wrong[0])])
    choices = np.argsort(-S, axis=-1, kind="stable")[..., :top]
    C = choices[..., None] == np.arange(e)  # (..., n, top, e)
    if capacity is not None:
        queue = np.swapaxes(C, -3, -2).reshape(*S.shape[:-2], top * n, e)  # all first choices, then all second ones
        queue = queue & (queue.cumsum(-2) <= capacity)
        C = np.swapaxes(queue.reshape(*S.shape[:-2], top, n, e), -3, -2)
    return C.any(-2)  # eq:dispatch


@differentiable
@half_in_float32
def top_k_gates(
    S: Float[Array, "... n e"], top: int = 2, capacity: int | None = None, *, renormalise: bool = True
) -> tuple[Float[Array, "... n e"], Vjp]:
    r"""The weight of each expert in a token's output: a softmax over the chosen ones, zero elsewhere.

    .. math:: G_{ti} = \frac{C_{ti}\,\exp S_{ti}}{\sum_j C_{tj}\,\exp S_{tj}}
              \qquad\text{or}\qquad G_{ti} = \frac{C_{ti}\,\exp S_{ti}}{\sum_j \exp S_{tj}}

    Parameters
    ----------
    S : (..., n, e) scores of the router.
    top, capacity : k and the room of each expert, as in `dispatch`. What finds no room gets the gate 0; the others keep
        theirs.
    renormalise : True is the first form, whose gates sum to 1 before tokens are dropped; False the second, in which
        they are probabilities among all experts. With top = 1 the first form is constant.

    Returns
    -------
    G : (..., n, e).
    vjp : dG -> dS, that of the formula with C held fixed.

    Raises
    ------
    ValueError
        As `dispatch`.

    References
    ----------
    Jiang et al. (2024), section 2.1, the first form; Fedus et al. (2022), equations 1 and 2, the second. Chapter 7,
    eq:top-k-gates.

    Examples
    --------
    >>> G, vjp = top_k_gates(np.log([[4.0, 1.0, 3.0, 2.0]]))
    >>> G.round(4)
    array([[0.5714, 0.    , 0.4286, 0.    ]])
    """
    C = dispatch(S, top)
    P, softmax_vjp = softmax(np.where(C, S, -np.inf) if renormalise else S)
    kept = C if capacity is None else dispatch(S, top, capacity)
    G = np.where(kept, P, 0).astype(P.dtype, copy=False)  # eq:top-k-gates

    def vjp(dG):
        return softmax_vjp(np.where(kept, dG, 0).astype(P.dtype, copy=False))  # eq:top-k-gates-vjp

    return G, vjp


@declares(mixture_shapes)
@differentiable
def mixture_of_experts(
    X: Float[Array, "... n d"],
    params: dict,
    experts: int = 8,
    top: int = 2,
    *,
    expert: Callable = gated_feed_forward,
    renormalise: bool = True,
    capacity: int | None = None,
    record: list | None = None,
) -> tuple[Float[Array, "... n o"], Vjp]:
    r"""Each token passes the few networks that a router chooses for it.

    .. math:: Y_t = \sum_{i:\,G_{ti}\ne0} G_{ti}\,E_i(X_t),\qquad G = \operatorname{gates}(X W_r)

    Parameters
    ----------
    X : (..., n, d) tokens.
    params : ``{"router": {"weight" (d, e)}, "experts": {"0": …, …}}``, see `attnmath.experts.mixture_shapes`; a bias
        of the router if given.
    experts, top : e, and k, the experts of each token.
    expert : ``expert(X, params) -> (Y, vjp)``, of what kind all of them are.
    renormalise, capacity : as in `top_k_gates`.
    record : a list to which each call appends a dict with the ``"scores"`` (..., n, e) and the ``"gates"``. The
        gradient of a loss of the scores, put there as ``"dscores"``, is added by the vjp.

    Returns
    -------
    Y : (..., n, o), o the width of the experts' values; d in a Transformer. Zero for a token that found no room.
    vjp : dY -> (dX, dparams); the choice of experts is held fixed.

    Raises
    ------
    ValueError
        As `dispatch` and the experts; if the parameters are those of another number of experts.

    References
    ----------
    Shazeer et al. (2017), equation 1; Jiang et al. (2024), section 2.1. Chapter 7, eq:mixture.

    Examples
    --------
    >>> one = {name: {"weight": np.ones((1, 1))} for name in ("gate", "up", "down")}
    >>> params = {"router": {"weight": np.array([[1.0, -1.0]])}, "experts": {"0": one, "1": one}}
    >>> Y, vjp = mixture_of_experts(np.array([[2.0]]), params, experts=2, top=1)
    >>> Y.round(4)
    array([[3.5232]])
    """
    _require.shapes(X=(X, "... n d"))
    _require.branches(params, ("router", "experts"))
    S, router_vjp = affine(X, params["router"])
    _ask.number(S.shape[-1], experts)
    names = tuple(map(str, range(experts)))
    _require.branches(params["experts"], names, name="params['experts']")
    G, gates_vjp = top_k_gates(S, top, capacity, renormalise=renormalise)
    entry = {"scores": S, "gates": G}
    if record is not None:
        record.append(entry)
    n = math.prod(X.shape[:-1])
    rows, gates = X.reshape(n, X.shape[-1]), G.reshape(n, experts)
    passed, Y = [], None
    for i, name in enumerate(names):
        (t,) = gates[:, i].nonzero()  # the tokens of this expert, and no work for the others
        F, expert_vjp = expert(rows[t], params["experts"][name])
        Y = np.zeros((n, F.shape[-1]), F.dtype) if Y is None else Y
        Y[t] += gates[t, i, None] * F  # eq:mixture
        passed.append((t, F, expert_vjp))

    def vjp(dY):
        dY = dY.reshape(n, dY.shape[-1])
        dG, drows, dexperts = np.zeros_like(gates), np.zeros_like(rows), {}
        for i, (t, F, expert_vjp) in enumerate(passed):
            dG[t, i] = (dY[t] * F).sum(-1)
            dX, dexperts[names[i]] = expert_vjp(gates[t, i, None] * dY[t])  # eq:mixture-vjp
            drows[t] += dX
        dX, drouter = router_vjp(gates_vjp(dG.reshape(G.shape)) + entry.get("dscores", 0))
        return drows.reshape(X.shape) + dX, {"router": drouter, "experts": dexperts}

    return Y.reshape(*X.shape[:-1], Y.shape[-1]), vjp


@differentiable
@half_in_float32
def load_balance(S: Float[Array, "... n e"], top: int = 1) -> tuple[Float[Array, ""], Vjp]:
    r"""The load of each expert times its mean probability, summed; 1 if the load is even.

    .. math:: L = e \sum_{i=1}^{e} f_i\,\bar P_i,\qquad f_i = \frac{1}{kn}\sum_t C_{ti},\quad
              \bar P_i = \frac1n \sum_t \operatorname{softmax}(S_t)_i

    Parameters
    ----------
    S : (..., n, e) scores of the router; the mean is over all tokens of all sequences.
    top : k, the experts of each token.

    Returns
    -------
    loss : ().
    vjp : dloss -> dS, with the loads f held fixed.

    Raises
    ------
    ValueError
        As `dispatch`; if there is no token.

    References
    ----------
    Fedus et al. (2022), equations 4 to 6, for k = 1; transformers leaves the 1/k out. Chapter 7, eq:load-balance.

    Examples
    --------
    >>> loss, vjp = load_balance(np.log([[3.0, 1.0], [3.0, 1.0]]))
    >>> loss.round(4), vjp(1.0)
    (np.float64(1.5), array([[ 0.1875, -0.1875],
           [ 0.1875, -0.1875]]))
    """
    C = dispatch(S, top)
    e, n = S.shape[-1], math.prod(S.shape[:-1])
    _require.nonempty("S", S.shape, -2, n, "token")
    P, _ = softmax(S)
    f = C.reshape(n, e).sum(0).astype(P.dtype) / (top * n)
    weighted = (f * P).sum(-1, keepdims=True)  # the load that each token expects to meet
    loss = np.asarray(e * weighted.mean(), P.dtype)  # eq:load-balance

    def vjp(dloss):
        return (dloss * e / n * P * (f - weighted)).astype(P.dtype, copy=False)  # eq:load-balance-vjp

    return loss, vjp


@differentiable
@half_in_float32
def router_z_loss(S: Float[Array, "... n e"]) -> tuple[Float[Array, ""], Vjp]:
    r"""The mean square of the log-sum-exp of the router's scores, which keeps them small.

    .. math:: L = \frac1n \sum_t \Bigl(\log \sum_i \exp S_{ti}\Bigr)^2

    Parameters
    ----------
    S : (..., n, e) scores of the router; the mean is over all tokens of all sequences.

    Returns
    -------
    loss : ().
    vjp : dloss -> dS.

    Raises
    ------
    ValueError
        If a score is not finite, or there is no token.

    References
    ----------
    Zoph et al. (2022), equation 5. Chapter 7, eq:router-z-loss.

    Examples
    --------
    >>> loss, vjp = router_z_loss(np.log([[3.0, 1.0], [1.0, 3.0]]))
    >>> loss.round(4)
    np.float64(1.9218)
    """
    dispatch(S, 1)  # for its checks
    n = math.prod(S.shape[:-1])
    _require.nonempty("S", S.shape, -2, n, "token")
    Z, logsumexp_vjp = logsumexp(S)
    loss = np.asarray((Z * Z).mean(), S.dtype)  # eq:router-z-loss

    def vjp(dloss):
        return logsumexp_vjp((2 * dloss / n * Z).astype(S.dtype, copy=False))  # eq:router-z-loss-vjp

    return loss, vjp
