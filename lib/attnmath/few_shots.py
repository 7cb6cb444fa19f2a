"""Learning from the context, and forgetting: ``python -m attnmath.few_shots OUT.json`` trains all that is told of it.

Single layers of attention answer tasks that are stated by examples: their rows are (x, y), and the last row is a
question, (x, 0). The runs called "digits" are those of `attnmath.going_on`.
"""

import sys
from functools import cache, partial

import numpy as np

from attnmath import _require, going_on
from attnmath.numpy.few_shots import mean_attention
from attnmath.numpy.multi_head import multi_head_attention
from attnmath.numpy.types import T
from attnmath.study import Study

WIDTH, SPECTRUM, FREQUENCIES = 5, (3.0, 1.0, 0.5, 0.25, 0.25), 4  # of x in lines, of tilted lines, of waves
STEPS, BATCH, RATE, HELD = 600, 128, 3e-2, 10_000
SWEPT = (("lines", 20), ("waves", 40))  # for which both cores are tried with each of RATES
RATES, TRIED = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1), 9  # of both cores, and the seed with which they are compared
PARTS = {"test": 99, "validation": 98}  # of the tasks on which the error is measured: their seeds
CHOSEN = {"lines mean 20": 1e-2, "lines softmax 20": 1e-2, "waves mean 40": 3e-2, "waves softmax 40": 3e-1}  # the best
SEEDS = (0, 1, 2, 3, 4)
COUNTS = {
    "lines": (5, 10, 20, 40, 80),
    "tilted": (20,),
    "waves": (10, 20, 40),
    "free-tilted": (20,),
    "free-waves": (40,),
}
CORES = {kind: ("mean", "softmax") for kind in ("lines", "waves")}
CORES |= {"tilted": ("mean",), "free-tilted": ("mean",), "free-waves": ("softmax",)}  # free: from random weights
NAMES = ("query", "key", "value", "output")


def lines(rng, batch: int, n: int, d: int = WIDTH, *, covariance=None, noise: float = 0.0):
    r"""Tasks of linear regression, one in each row of a batch.

    .. math:: y_i = x_i \cdot w + \sigma \varepsilon_i,\qquad x_i \sim N(0, \Sigma),\; w \sim N(0, I)

    Parameters
    ----------
    rng : NumPy's generator.
    batch, n : tasks, and examples in each.
    d : width of x.
    covariance : Sigma, (d, d), or None for the identity.
    noise : sigma, >= 0, of the examples; the answer has none.

    Returns
    -------
    E : (batch, n + 1, d + 1), the examples (x, y), and (x, 0) for the question.
    answer : (batch,), the question's x times w.

    Examples
    --------
    >>> E, answer = lines(np.random.default_rng(0), 2, 7)
    >>> w = np.linalg.lstsq(E[0, :-1, :-1], E[0, :-1, -1])[0]
    >>> bool(abs(E[0, -1, :-1] @ w - answer[0]) < 1e-12)
    True
    """
    _require.count("n", n)
    _require.nonnegative("noise", noise)
    X, w = rng.standard_normal((batch, n + 1, d)), rng.standard_normal((batch, d, 1))
    if covariance is not None:
        X = X @ T(np.linalg.cholesky(covariance))
    Y = X @ w
    answer = Y[:, -1, 0].copy()
    if noise:
        Y = Y + noise * rng.standard_normal(Y.shape)
    Y[:, -1] = 0
    return np.concatenate([X, Y], -1), answer


def waves(rng, batch: int, n: int):
    r"""Tasks of periodic regression: x lies on the unit circle, and y is a random sum of four waves of variance 1.

    .. math:: y_i = \tfrac12 \sum_{k=1}^4 a_k \cos k\theta_i + b_k \sin k\theta_i,\qquad a_k, b_k \sim N(0, 1)

    Parameters
    ----------
    rng, batch, n : as in `lines`.

    Returns
    -------
    E : (batch, n + 1, 3), rows (cos theta, sin theta, y); the question's y is 0.
    answer : (batch,).

    Examples
    --------
    >>> E, answer = waves(np.random.default_rng(0), 2, 7)
    >>> E.shape, answer.shape
    ((2, 8, 3), (2,))
    """
    _require.count("n", n)
    angle = 2 * np.pi * rng.random((batch, n + 1, 1))
    k = np.arange(1, FREQUENCIES + 1)
    a, b = rng.standard_normal((2, batch, 1, FREQUENCIES)) / FREQUENCIES**0.5
    Y = (a * np.cos(k * angle) + b * np.sin(k * angle)).sum(-1, keepdims=True)
    answer = Y[:, -1, 0].copy()
    Y[:, -1] = 0
    return np.concatenate([np.cos(angle), np.sin(angle), Y], -1), answer


def descent(d: int, rate: float, *, bend: float = 0.0, precondition=None) -> dict:
    r"""The weights with which one layer of mean attention does one step of gradient descent on its examples.

    .. math:: W_Q = \operatorname{diag}(P, 0),\; W_K = \operatorname{diag}(I, 0),\;
              W_V = \operatorname{diag}(-\gamma I, -\eta),\; W_O = I

    Parameters
    ----------
    d : width of x.
    rate : eta.
    bend : gamma, by which the layer also changes the x of all rows ("GD++"); 0 leaves them.
    precondition : P, (d, d), which multiplies the gradient; None is the identity. With bend it stays None.

    Returns
    -------
    params : of `multi_head_attention` with one head, without biases.

    Raises
    ------
    ValueError
        If P is not (d, d), or is given together with bend.

    References
    ----------
    von Oswald et al. (2023), proposition 1 and its GD++, whose columns are our rows and whose eta / N is our eta / n.
    Chapter 8, eq:descent-weights.

    Examples
    --------
    >>> E = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 4.0], [3.0, -1.0, 0.0]])
    >>> float(predict(E, [descent(2, rate=2.0)]))  # after a step of rate 2 on two examples, w = (2, 4)
    2.0
    """
    if precondition is not None and np.shape(precondition) != (d, d):
        raise ValueError(f"precondition has shape {np.shape(precondition)}; expected ({d}, {d}), a matrix of x's width")
    if precondition is not None and bend:
        raise ValueError("precondition and bend are given together; a layer that bends x has no P: leave one out")
    query, key, value = (np.zeros((d + 1, d + 1)) for _ in range(3))
    query[:d, :d] = np.eye(d) if precondition is None else precondition
    key[:d, :d] = np.eye(d)
    value[:d, :d] = -bend * np.eye(d)
    value[d, d] = -rate
    weights = (query, key, value, np.eye(d + 1))  # eq:descent-weights
    return {name: {"weight": W} for name, W in zip(NAMES, weights, strict=True)}


def predict(E, layers: list, attend=None):
    r"""The answer of layers of attention to the question in the last row of their context.

    .. math:: E^{l+1} = E^l + \operatorname{attention}_l(E^l, E^l_{\text{examples}}, E^l_{\text{examples}}),\qquad
              \hat y = -E^L_{\text{last row, last column}}

    Parameters
    ----------
    E : (..., n + 1, d + 1) arrays or tensors: n examples (x, y), and the question (x, 0), which is no key.
    layers : parameters of `multi_head_attention` with one head, one dict for each layer.
    attend : the core; None is mean attention.

    Returns
    -------
    answer : (...,).

    Examples
    --------
    >>> E = np.array([[1.0, 2.0], [1.0, 0.0]])
    >>> [float(predict(E, [descent(1, 0.5)] * steps)) for steps in (1, 2, 3)]
    [1.0, 1.5, 1.75]
    """
    if isinstance(E, np.ndarray):
        core, layer = (
            mean_attention if attend is None else attend,
            lambda *args, **kw: multi_head_attention(*args, **kw)[0],
        )
    else:
        import attnmath.torch as at

        core, layer = at.mean_attention if attend is None else attend, at.multi_head_attention
    for i, params in enumerate(layers):
        examples = E[..., :-1, :]
        E = E[..., -1:, :] if i == len(layers) - 1 else E  # of the last layer only the question is read
        E = E + layer(E, examples, examples, params, 1, attend=core)  # eq:in-context-layer
    return -E[..., -1, -1]


def gradient_descent(E, rate: float, steps: int, precondition=None):
    r"""What the layers are held against: gradient descent on the examples, as anyone would write it.

    .. math:: w \leftarrow w - \eta P \nabla L(w),\qquad L(w) = \frac1{2n} \sum_i (y_i - x_i \cdot w)^2

    Parameters
    ----------
    E : (..., n + 1, d + 1), as in `predict`.
    rate, steps, precondition : eta, how often, and P.

    Returns
    -------
    answer : (...,), the question's x times w.

    Examples
    --------
    >>> float(gradient_descent(np.array([[1.0, 2.0], [1.0, 0.0]]), 0.5, 3))
    1.75
    """
    X, Y = E[..., :-1, :-1], E[..., :-1, -1:]
    P = np.eye(X.shape[-1]) if precondition is None else precondition
    w = np.zeros((*X.shape[:-2], X.shape[-1], 1))
    for _ in range(steps):
        w = w + rate * P @ (T(X) @ (Y - X @ w)) / X.shape[-2]  # eq:context-descent
    return (E[..., -1:, :-1] @ w)[..., 0, 0]


def ridge(E, penalty: float = 0.0):
    r"""Least squares on the examples, with a penalty on the squares of w; without one the shortest solution.

    .. math:: \min_w \sum_i (y_i - x_i \cdot w)^2 + \lambda |w|^2

    Parameters
    ----------
    E : (..., n + 1, d + 1), as in `predict`.
    penalty : lambda, >= 0; the variance of the noise over that of w is best.

    Returns
    -------
    answer : (...,).

    Examples
    --------
    >>> E = np.array([[1.0, 2.0], [1.0, 0.0]])
    >>> float(ridge(E)), float(ridge(E, 1.0))
    (2.0, 1.0)
    """
    _require.nonnegative("penalty", penalty)
    X, Y = E[..., :-1, :-1], E[..., :-1, -1:]
    if penalty:
        w = np.linalg.solve(T(X) @ X + penalty * np.eye(X.shape[-1]), T(X) @ Y)
    else:
        w = np.linalg.pinv(X) @ Y
    return (E[..., -1:, :-1] @ w)[..., 0, 0]


def best_map(n: int, covariance, noise: float = 0.0):
    r"""The matrix of the best single layer on tasks of `lines`: its answer is :math:`x A \frac1n\sum_i x_i y_i`.

    .. math:: A = n\,\bigl((n+1)\,\Sigma + (\operatorname{tr}\Sigma + \sigma^2)\,I\bigr)^{-1}

    Parameters
    ----------
    n : examples.
    covariance : Sigma, (d, d).
    noise : sigma.

    Returns
    -------
    A : (d, d).

    References
    ----------
    Ahn et al. (2023), theorem 1; Zhang, Frei and Bartlett (2024), theorem 4.1. Chapter 8, eq:best-map.

    Examples
    --------
    >>> best_map(20, np.eye(5))[0, 0].round(4)  # 20 / (20 + 5 + 1)
    np.float64(0.7692)
    """
    _require.count("n", n)
    d = len(covariance)
    return n * np.linalg.inv((n + 1) * covariance + (np.trace(covariance) + noise**2) * np.eye(d))  # eq:best-map


def expected_loss(A, n: int, covariance, noise: float = 0.0) -> float:
    r"""The expected squared error of the answer :math:`x A b`, :math:`b = \frac1n\sum_i x_i y_i`, on tasks of `lines`.

    .. math:: \operatorname{tr}\,\Sigma\,(A M A^\top - A\Sigma - \Sigma A^\top + I),\qquad
              M = \tfrac{n+1}n\Sigma^2 + \tfrac{\operatorname{tr}\Sigma + \sigma^2}n\Sigma

    Parameters
    ----------
    A : (d, d).
    n, covariance, noise : as in `best_map`, of the tasks on which it is measured.

    Examples
    --------
    >>> I = np.eye(5)
    >>> round(expected_loss(best_map(20, I), 20, I), 4), expected_loss(0 * I, 20, I)  # 5 * 6 / 26, and no answer at all
    (1.1538, 5.0)
    """
    _require.count("n", n)
    S, d = np.asarray(covariance), len(covariance)
    M = (n + 1) / n * S @ S + (np.trace(S) + noise**2) / n * S
    return float(np.trace(S @ (A @ M @ T(A) - A @ S - S @ T(A) + np.eye(d))))  # eq:layer-loss


def effective_map(params: dict):
    r"""What a layer of mean attention with any weights does with :math:`b = \frac1n\sum_i x_i y_i`.

    .. math:: \hat y = x\,B\,b + \text{terms that stay the same when all } y \text{ change their sign}

    Parameters
    ----------
    params : of one layer, as in `descent`.

    Returns
    -------
    B : (d, d).

    Examples
    --------
    >>> effective_map(descent(1, 0.5))
    array([[0.5]])
    """
    query, key, value, output = (np.asarray(params[name]["weight"]) for name in NAMES)
    scores, read = query @ T(key), value @ output[:, -1]
    d = len(read) - 1
    return -(read[d] * scores[:d, :d] + np.outer(scores[:d, d], read[:d]))  # eq:effective-map


def tasks(kind: str):
    """``draw(rng, batch, n)`` of a kind of tasks: lines, tilted lines, or waves.

    Examples
    --------
    >>> tasks("tilted")(np.random.default_rng(0), 2, 3)[0].shape
    (2, 4, 6)
    """
    _require.choice("kind", kind, tuple(COUNTS))
    if kind.endswith("tilted"):
        return partial(lines, covariance=np.diag(SPECTRUM))
    return lines if kind == "lines" else waves


def start(kind: str, seed: int) -> dict:
    """The first weights of a layer: near those of a step of gradient descent for tilted lines and waves, else random.

    Examples
    --------
    >>> start("waves", 0)["value"]["weight"].diagonal().round(1)
    array([ 0. , -0.1, -0.9])
    """
    width = 3 if tasks(kind) is waves else WIDTH + 1
    W = np.random.default_rng([seed, 5]).standard_normal((4, width, width))
    if kind in ("tilted", "waves"):
        near = descent(width - 1, rate=1.0)
        return {name: {"weight": near[name]["weight"] + 0.1 * w} for name, w in zip(NAMES, W, strict=True)}
    return {name: {"weight": w * width**-0.5} for name, w in zip(NAMES, W, strict=True)}


def train(
    kind: str, core: str, n: int, seed: int, steps: int | None = None, rate: float = RATE, part: str = "test"
) -> dict:
    """Train one layer on one kind of tasks, and measure it on others of that kind.

    Parameters
    ----------
    kind : of `tasks`.
    core : ``"mean"`` or ``"softmax"``.
    n : examples in a context.
    seed : of the weights and of the tasks.
    steps : None takes STEPS.
    rate : of Adam.
    part : the tasks of the test, or those of the ``"validation"``.

    Returns
    -------
    A dict: the first losses, the squared error on HELD new tasks, and the weights if n is 20.

    Examples
    --------
    >>> run = train("lines", "mean", 20, 0, steps=1)
    >>> len(run["first"]), run["loss"] > 2
    (1, True)
    """
    import torch

    import attnmath.torch as at

    attend = {"mean": at.mean_attention, "softmax": at.attention}[core]
    rng, draw, losses = np.random.default_rng([seed, n]), tasks(kind), []
    params = at.from_numpy(start(kind, seed))
    weights = [params[name]["weight"].requires_grad_() for name in NAMES]
    adam = torch.optim.Adam(weights, rate)
    for step in range(STEPS if steps is None else steps):
        for group in adam.param_groups:
            group["lr"] = rate * min((step + 1) / 50, (STEPS - step) / (STEPS / 2), 1)
        E, answer = map(torch.from_numpy, draw(rng, BATCH, n))
        loss = (predict(E, [params], attend) - answer).square().mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)  # a batch with a large x would throw the weights far away
        adam.step()
        losses.append(loss.item())
    with torch.no_grad():
        E, answer = map(torch.from_numpy, held(kind, n, part))
        error = (predict(E, [params], attend) - answer).square().mean().item()
    run = {"first": [round(x, 6) for x in losses[:4]], "loss": round(error, 6)}
    keep = {"weights": [w.detach().numpy().round(5).tolist() for w in weights]} if n == 20 else {}
    return run | keep


@cache
def held(kind: str, n: int, part: str = "test"):
    """The tasks on which all layers of a kind are measured, or those on which a rate is chosen.

    Examples
    --------
    >>> held("waves", 10)[0].shape
    (10000, 11, 3)
    """
    return tasks(kind)(np.random.default_rng([PARTS[part], n]), HELD, n)


def plan() -> list[str]:
    """The names of all runs.

    Examples
    --------
    >>> len(plan()), plan()[0]
    (105, 'lines mean 5 0')
    """
    grid = [(kind, core, n) for kind in COUNTS for core in CORES[kind] for n in COUNTS[kind]]
    names = [f"{kind} {core} {n} {seed}" for kind, core, n in grid for seed in seeds(kind)]
    return names + [f"digits {seed}" for seed in SEEDS]


def seeds(kind: str) -> tuple[int, ...]:
    """The seeds of a kind: five, and ten where it is asked which starts succeed.

    Examples
    --------
    >>> seeds("free-waves")
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    """
    return tuple(range(10)) if kind == "free-waves" else SEEDS


def do(name: str, steps: int | None = None) -> dict:
    """One run by its name, or its first steps.

    Examples
    --------
    >>> do("waves mean 10 1", steps=2)["first"] == train("waves", "mean", 10, 1, steps=2)["first"]
    True
    """
    kind, *rest = name.split()
    if kind == "digits":
        return going_on.continual(int(rest[0])) if steps is None else going_on.continual(int(rest[0]), steps, ())
    return train(kind, rest[0], int(rest[1]), int(rest[2]), steps)


def swept(kind: str, core: str, n: int) -> dict:
    """The squared error on the tasks for choosing, after training with each rate."""
    return {f"{rate:g}": train(kind, core, n, TRIED, rate=rate, part="validation")["loss"] for rate in RATES}


def tuned(kind: str, core: str, n: int) -> list[float]:
    """The squared errors of all seeds with the rate that is best."""
    rate = CHOSEN[f"{kind} {core} {n}"]
    return [train(kind, core, n, seed, rate=rate)["loss"] for seed in SEEDS]


def _plan():
    rivals = [(kind, core, n) for kind, n in SWEPT for core in CORES[kind]]
    sweep = {f"{kind} {core} {n}": partial(swept, kind, core, n) for kind, core, n in rivals}
    sweep |= {f"shots {k}": partial(going_on.tried, k) for k in going_on.SHOTS}
    best = {f"{kind} {core} {n}": partial(tuned, kind, core, n) for kind, core, n in rivals}
    best |= {f"{f.__name__} {seed}": partial(f, seed) for f in (going_on.few, going_on.paces) for seed in SEEDS}
    return {"sweep": sweep, "tuned": best, "runs": {name: partial(do, name) for name in plan()}}


def _told(found):
    return found.get("first", found) if isinstance(found, dict) else found


FILE = "chapters/08_at_work/few_shots.json"
STUDY = Study("attnmath.few_shots", FILE, ("sweep", "tuned", "runs"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
