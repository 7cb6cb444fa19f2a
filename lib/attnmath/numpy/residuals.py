"""A sub-layer with its residual connection and its norm, the joint of every block, and the block itself."""

from collections.abc import Callable

from jaxtyping import Float

from attnmath import _require, wiring
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.shapes import declares, sublayer_shapes


def normalise(X, params, norm):
    """A norm with its parameters in a dict, ``{"gain", "bias"}`` or ``{"gain"}``; vjp: dY -> (dX, dparams)."""
    names = wiring.norm_names(params, norm)
    Y, norm_vjp = norm(X, *(params[name] for name in names))

    def vjp(dY):
        dX, *dvalues = norm_vjp(dY)
        return dX, dict(zip(names, dvalues, strict=True))

    return Y, vjp


def _leave(F):
    """The dropout of a model that has none."""
    return F, lambda dF: dF


@declares(sublayer_shapes)
@differentiable
def sublayer(
    X: Float[Array, "... n d"],
    f: Callable,
    params: dict,
    *,
    norm_first: bool = False,
    norm: Callable = layer_norm,
    drop: Callable | None = None,
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""X plus a function of X, with a norm after the sum (post-norm) or before the function (pre-norm).

    .. math:: Y = \operatorname{norm}(X + f(X))\qquad\text{or}\qquad Y = X + f(\operatorname{norm}(X))

    Parameters
    ----------
    X : (..., n, d) rows.
    f : ``f(Z) -> (F, vjp)`` of X's shape, with ``vjp(dF) -> (dZ, …)``: attention or a feed-forward network.
    params : of the norm, ``{"gain", "bias"}``, each (d,), or ``{"gain"}``.
    norm_first : True is pre-norm.
    norm : ``norm(X, gain[, bias]) -> (Y, vjp)``, such as `layer_norm` or ``partial(rms_norm, eps=1e-6)``.
    drop : ``drop(F) -> (F', vjp)``, applied to f's value before the sum, such as `random_dropout`; None leaves it.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams, …), the dots being what f's vjp gives after dZ.

    Raises
    ------
    ValueError
        As ``norm`` and ``f``.

    References
    ----------
    Vaswani et al. (2017), section 3.1; Xiong et al. (2020). Chapter 5, eq:sublayer-post-norm, eq:sublayer-pre-norm.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.numpy.linear import linear
    >>> norm = {"gain": np.ones(2), "bias": np.zeros(2)}
    >>> Y, vjp = sublayer(np.array([[1.0, 3.0]]), lambda Z: linear(Z, np.eye(2), np.zeros(2)), norm, norm_first=True)
    >>> Y.round(3)
    array([[0., 4.]])
    """
    drop = drop or _leave
    if norm_first:
        N, norm_vjp = normalise(X, params, norm)
        F, f_vjp = f(N)
        F, drop_vjp = drop(F)
        Y = X + F  # eq:sublayer-pre-norm
    else:
        F, f_vjp = f(X)
        F, drop_vjp = drop(F)
        Y, norm_vjp = normalise(X + F, params, norm)  # eq:sublayer-post-norm

    def vjp(dY):
        if norm_first:
            dN, *rest = f_vjp(drop_vjp(dY))
            dX, dparams = norm_vjp(dN)
            return dY + dX, dparams, *rest
        dsum, dparams = norm_vjp(dY)
        dX, *rest = f_vjp(drop_vjp(dsum))
        return dsum + dX, dparams, *rest

    return Y, vjp


@differentiable
def block(
    X: Float[Array, "... n d"], params: dict, steps: dict, join: Callable = sublayer
) -> tuple[Float[Array, "... n d"], Vjp]:
    r"""X through named sub-layers, one after the other, each joined to its input.

    .. math:: X^{s+1} = \operatorname{join}(X^s,\; f_s)

    Parameters
    ----------
    X : (..., n, d) rows.
    params : for each step its parameters under its name, and those of its joint under ``"<name>_norm"``.
    steps : ``{name: f}``, in order, with ``f(Z, params) -> (F, vjp)`` and ``vjp(dF) -> (dZ, dparams, …)``.
    join : ``join(X, f, params) -> (Y, vjp)``, with ``f(Z) -> (F, vjp)`` and ``vjp(dY) -> (dX, dparams, …)``, the dots
        being what f's vjp gives after dZ: `sublayer`, or a joint of one's own.

    Returns
    -------
    Y : (..., n, d).
    vjp : dY -> (dX, dparams, rest), rest being a dict of lists: what each step's vjp gave after its dparams.

    Raises
    ------
    ValueError
        If a step has no parameters, parameters have no step, and as ``join`` and the steps do.

    References
    ----------
    Vaswani et al. (2017), section 3.1. Chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnmath.numpy.feed_forward import feed_forward
    >>> from attnmath.shapes import feed_forward_shapes, norm_shapes, random_tree
    >>> shapes = {"network": feed_forward_shapes(4, 8), "network_norm": norm_shapes(4)}
    >>> Y, vjp = block(np.eye(3, 4), random_tree(shapes, np.random.default_rng(0)), {"network": feed_forward})
    >>> Y.shape
    (3, 4)
    """
    if not isinstance(steps, dict):
        raise ValueError(f"steps is a {type(steps).__name__}; expected a dict of functions by name, in their order")
    _require.branches(params, tuple(steps), optional=tuple(f"{name}_norm" for name in steps))
    vjps = {}
    for name, f in steps.items():
        own = params[name]
        X, vjps[name] = join(X, lambda Z, f=f, own=own: f(Z, own), params.get(f"{name}_norm", {}))

    def vjp(dX):
        dparams, rest = {}, {}
        for name in reversed(vjps):
            dX, dparams[f"{name}_norm"], dparams[name], *rest[name] = vjps[name](dX)
        return dX, {name: dparams[name] for name in params}, rest

    return X, vjp
