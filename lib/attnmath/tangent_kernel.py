"""Wide models in a straight line: tangent kernels from vector-Jacobian products, and training as they foretell it.

A model is ``model(X, theta) -> (y, vjp)``: outputs y (m,) of m inputs, and vjp carries a cotangent of y to theta.
"""

from collections.abc import Callable

import numpy as np

from attnmath import _require
from attnmath.numpy.attention import attention
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.tree import flatten, map_tree

PARTS = ("query", "key", "value", "output")


def first_weights(rng, heads: int, *, d: int, width: int) -> dict:
    """The weights of a layer before training: independent normal numbers with mean 0 and variance 1, and no biases.

    Parameters
    ----------
    rng : NumPy's generator.
    heads : h.
    d : components of a token.
    width : k, components of a query, a key or a value of one head.

    Returns
    -------
    theta : ``{"query", "key", "value", "output"}``, each ``{"weight"}``, of the shapes (d, h k) thrice and (h k, 1).

    Raises
    ------
    ValueError
        If a size is not a count.

    Examples
    --------
    >>> theta = first_weights(np.random.default_rng(0), 3, d=5, width=2)
    >>> {name: leaf["weight"].shape for name, leaf in theta.items()}
    {'query': (5, 6), 'key': (5, 6), 'value': (5, 6), 'output': (6, 1)}
    """
    for name, size in (("heads", heads), ("d", d), ("width", width)):
        _require.count(name, size)
    shapes = [(d, heads * width)] * 3 + [(heads * width, 1)]
    return {name: {"weight": rng.standard_normal(shape)} for name, shape in zip(PARTS, shapes, strict=True)}


def many_heads(X, theta: dict, heads: int) -> tuple[np.ndarray, Callable]:
    r"""What the last token of each sentence receives from h heads whose sum is divided by the root of h.

    .. math:: f(X) = \frac1{\sqrt h}\sum_{a=1}^h \varphi(X;\theta_a),\qquad
              \varphi = \frac{p_a^\top X V_a o_a}{\sqrt{kd}},\qquad
              p_a = \operatorname{softmax}\Bigl(\frac{X K_a Q_a^\top x_n}{d\sqrt k}\Bigr)

    Parameters
    ----------
    X : (m, n, d) sentences of n tokens; the last token asks.
    theta : as `first_weights` draws it; all roots of sizes stand in the formula, none in the weights.
    heads : h, a divisor of the columns of the queries' weights.

    Returns
    -------
    y : (m,).
    vjp : dy -> dtheta.

    Raises
    ------
    ValueError
        If shapes or dtypes disagree, or the heads do not divide the columns.

    References
    ----------
    Hron et al. (2020), section 2, for one output. Chapter 9, eq:many-heads.

    Examples
    --------
    >>> one = {name: {"weight": np.ones((1, 2))} for name in ("query", "key", "value")}
    >>> theta = one | {"output": {"weight": np.array([[1.0], [3.0]])}}
    >>> y, vjp = many_heads(np.ones((1, 1, 1)), theta, heads=2)  # one token: each head is v o
    >>> y.round(4), vjp(np.ones(1))["value"]["weight"].round(4)  # (1 + 3) / sqrt 2, and o / sqrt 2
    (array([2.8284]), array([[0.7071, 2.1213]]))
    """
    _require.shapes(X=(X, "m n d"))
    root = {name: X.shape[-1] ** -0.5 for name in PARTS} | {"output": len(theta["output"]["weight"]) ** -0.5}

    def scaled(tree):
        return {name: map_tree(lambda W, r=root[name]: r * W, tree[name]) for name in PARTS}

    weights = scaled(theta)
    O, back = multi_head_attention(X[:, -1:], X, X, weights, heads, attend=attention)  # eq:many-heads

    def vjp(dy):
        return scaled(back(dy[:, None, None])[3])

    return O[:, 0, 0], vjp


def jacobian(model: Callable, theta: dict, X) -> np.ndarray:
    r"""The derivative of every output by every weight, one vector-Jacobian product for each row.

    .. math:: J_{i\cdot} = \nabla_\theta f(x_i)

    Parameters
    ----------
    model : ``model(X, theta) -> (y, vjp)``, one output for each input.
    theta : a tree of arrays.
    X : (m, ...) inputs.

    Returns
    -------
    J : (m, p); the columns are the leaves of theta in their order, each read row by row.

    Raises
    ------
    ValueError
        If the model has not one output for each input.

    Examples
    --------
    >>> square = lambda x, theta: (theta["w"] ** 2 @ x.T, lambda dy: {"w": 2 * theta["w"] * (dy @ x)})
    >>> jacobian(square, {"w": np.array([1.0, 3.0])}, np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[2., 0.],
           [2., 6.]])
    """
    rows = []
    for i in range(len(X)):
        y, vjp = model(X[i : i + 1], theta)
        if y.shape != (1,):
            raise ValueError(f"the model returns the shape {y.shape} for one input; (1,) is needed, choose one output")
        rows.append(np.concatenate([leaf.ravel() for leaf in flatten(vjp(np.ones(1))).values()]))
    return np.stack(rows)


def tangent_kernel(model: Callable, theta: dict, X, Z=None) -> np.ndarray:
    r"""By how much a step on one input moves the output of another: the empirical neural tangent kernel.

    .. math:: K(x, z) = \nabla_\theta f(x)\cdot\nabla_\theta f(z)

    Parameters
    ----------
    model, theta : as in `jacobian`.
    X, Z : (m, ...) and (l, ...) inputs; by default both are the same.

    Returns
    -------
    K : (m, l).

    References
    ----------
    Jacot, Gabriel and Hongler (2018). Chapter 9, eq:tangent-kernel.

    Examples
    --------
    >>> square = lambda x, theta: (theta["w"] ** 2 @ x.T, lambda dy: {"w": 2 * theta["w"] * (dy @ x)})
    >>> tangent_kernel(square, {"w": np.array([1.0, 3.0])}, np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[ 4.,  4.],
           [ 4., 40.]])
    """
    J = jacobian(model, theta, X)
    return J @ (J if Z is None else jacobian(model, theta, Z)).T  # eq:tangent-kernel


def linear_change(K, error, times, *, rate: float | None = None, cross=None) -> np.ndarray:
    r"""How the outputs of the linearised model change while it learns, in closed form.

    .. math:: f_t(z) - f_0(z) = -K(z, X)\,K^{-1}\,(I - e^{-Kt})\,(f_0(X) - y)

    Parameters
    ----------
    K : (m, m) tangent kernel of the training inputs, symmetric; directions in which it is 0 do not learn.
    error : (m,) outputs less targets before training.
    times : (s,) of the gradient flow; with a rate the numbers of steps of gradient descent.
    rate : of descent, with :math:`(I - \eta K)^t` for :math:`e^{-Kt}`; None for the flow.
    cross : (l, m) kernel of other inputs with the training inputs; by default K.

    Returns
    -------
    change : (s, l).

    Raises
    ------
    ValueError
        If shapes disagree, K is not symmetric, or the rate is not positive.

    References
    ----------
    Lee et al. (2019), section 2.2. Chapter 9, eq:linear-flow.

    Examples
    --------
    >>> linear_change(np.array([[2.0]]), np.array([-1.0]), np.array([0.0, 0.5])).round(4)  # 1 - 1 / e
    array([[0.    ],
           [0.6321]])
    >>> linear_change(np.array([[2.0]]), np.array([-1.0]), np.array([0, 1]), rate=0.25)
    array([[0. ],
           [0.5]])
    """
    K, error, times = np.asarray(K), np.asarray(error), np.asarray(times, float)
    cross = K if cross is None else np.asarray(cross)
    _require.shapes(K=(K, "m m"), error=(error, "m"), cross=(cross, "l m"))
    if rate is not None:
        _require.positive("rate", rate)
    if abs(K - K.T).max() > 1e-8 * abs(K).max():
        raise ValueError("K is not symmetric; pass the kernel of the training inputs with themselves")
    values, vectors = np.linalg.eigh(K)
    if rate is None:
        left = np.expm1(-values * times[:, None])
        limit = -times[:, None]
    else:
        left = (1 - rate * values) ** times[:, None] - 1
        limit = -rate * times[:, None]
    none = values <= 1e-12 * values.max()  # the quotient below, where an eigenvalue is 0
    shares = np.where(none, limit, left / np.where(none, 1, values))
    return (shares * (vectors.T @ error)) @ vectors.T @ cross.T  # eq:linear-flow


def descend(model: Callable, theta: dict, X, y, rate: float, steps: int, *, watch=()) -> tuple[dict, np.ndarray]:
    r"""Gradient descent on half the squared error, every step on all inputs.

    .. math:: \theta \leftarrow \theta - \eta\sum_i (f(x_i) - y_i)\,\nabla_\theta f(x_i)

    Parameters
    ----------
    model, theta : as in `jacobian`; theta is left as it is.
    X, y : (m, ...) inputs and (m,) targets.
    rate : eta, > 0.
    steps : how many.
    watch : numbers of steps, from 0 to ``steps``, before which the outputs are kept.

    Returns
    -------
    theta : after the last step.
    path : (len(watch), m) outputs.

    Raises
    ------
    ValueError
        If the rate is not positive, steps is not a count, or one that is watched lies outside of them.

    References
    ----------
    Chapter 9, eq:kernel-descent.

    Examples
    --------
    >>> line = lambda x, theta: (x @ theta["w"], lambda dy: {"w": dy @ x})
    >>> theta, path = descend(line, {"w": np.zeros(1)}, np.ones((1, 1)), np.ones(1), 0.5, 2, watch=(0, 1, 2))
    >>> theta["w"], path.ravel()
    (array([0.75]), array([0.  , 0.5 , 0.75]))
    """
    _require.positive("rate", rate)
    _require.count("steps", steps)
    for step in watch:
        if not 0 <= step <= steps:
            raise ValueError(f"watch holds {step}; name steps from 0 to {steps}")
    kept = {}
    for step in range(steps + 1):
        f, vjp = model(X, theta)
        if step in watch:
            kept[step] = f
        if step < steps:
            theta = map_tree(lambda W, dW: W - rate * dW, theta, vjp(f - y))  # eq:kernel-descent
    return theta, np.array([kept[step] for step in watch])


def moved(before: dict, after: dict) -> float:
    r"""How far weights have moved, as a share of their size.

    .. math:: \frac{\lVert\theta - \theta_0\rVert}{\lVert\theta_0\rVert}

    Examples
    --------
    >>> moved({"w": np.array([3.0, 4.0])}, {"w": np.array([3.0, 5.0])})
    0.2
    """
    a, b = (np.concatenate([leaf.ravel() for leaf in flatten(tree).values()]) for tree in (before, after))
    return float(np.linalg.norm(b - a) / np.linalg.norm(a))
