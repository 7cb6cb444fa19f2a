"""Chains in space from some of their distances; ``python -m attnmath.chains OUT.json`` trains networks to fill them in.

A chain is a random walk of n points with steps of length 1. The distances of neighbours are known; of the others some
are given, with noise. Three networks with equally many parameters, the shortest paths, a least-squares fit and the
average of many fits fill in the rest. Each network's rate, and the spread of the fits' starts, is chosen on chains of
their own. `classical_mds` turns distances into points, and `superpose` compares these with the true ones.
"""

import math
import sys
import time
from functools import cache, partial

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.sparse.csgraph import shortest_path

import attnmath.torch as at
from attnmath import _require, shapes
from attnmath.evoformer import pair_layer_shapes
from attnmath.study import Study
from attnmath.tree import flatten

POINTS, SEEN, NOISE, BATCH, TESTED = 12, 0.4, 0.1, 32, 200
D, HEADS, LAYERS, F = 16, 2, 2, 32  # of the network of triangles; F is the width of its feed-forward network
WIDTH = 32  # of the two Transformers
STEPS, KEEP, SEEDS = 800, 20, (0, 1, 2)
TRIED = {name: (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1) for name in ("triangles", "points", "pairs")}
TRIAL, QUARTER = 9, 200  # the seed and the steps of the runs that chose: a quarter
FITS, SPREADS = 12, (0.7, 1.4, 2.8, 5.6)  # how many are averaged; of their starts
SPREAD = 2.8  # the best of them
RATES = {"triangles": 1e-1, "points": 1e-2, "pairs": 3e-2}
LONGER = {"points": 7}  # times the steps, for about the seconds that the triangles take
LONGER_SEEDS = (0, 1)
SLOWER = 3e-2  # the second-best rate of the triangles, tried at full length as well
NETWORKS = tuple(RATES)


def draw_chains(rng, count: int, n: int = POINTS) -> np.ndarray:
    """Random walks in space: ``count`` chains of n points, each step of length 1 in a direction drawn evenly.

    Examples
    --------
    >>> X = draw_chains(np.random.default_rng(0), 5)
    >>> X.shape, np.allclose(np.linalg.norm(np.diff(X, axis=1), axis=-1), 1)
    ((5, 12, 3), True)
    """
    steps = rng.standard_normal((count, n - 1, 3))
    steps /= np.linalg.norm(steps, axis=-1, keepdims=True)
    return np.concatenate([np.zeros((count, 1, 3)), steps.cumsum(1)], 1)


def distances(X) -> np.ndarray:
    """All distances between the points of each chain, (..., n, n).

    Examples
    --------
    >>> distances(np.array([[0.0, 0, 0], [3.0, 4.0, 0]]))[0]
    array([0., 5.])
    """
    return np.linalg.norm(X[..., :, None, :] - X[..., None, :, :], axis=-1)


def observe(rng, X, seen: float = SEEN, noise: float = NOISE) -> tuple[np.ndarray, np.ndarray]:
    """What is known of chains: (..., n, n) distances, 0 where nothing is known, and booleans that say where.

    Parameters
    ----------
    rng : a NumPy generator.
    X : (..., n, 3) chains.
    seen : the share of the pairs that are no neighbours whose distance is given.
    noise : standard deviation of what is added to these; neighbours are known exactly.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> given, known = observe(rng, draw_chains(rng, 1, 4), seen=0.0)
    >>> given[0].round(12)
    array([[0., 1., 0., 0.],
           [1., 0., 1., 0.],
           [0., 1., 0., 1.],
           [0., 0., 1., 0.]])
    """
    exact = distances(X)
    n = exact.shape[-1]
    upper = np.triu(np.ones((n, n), bool), 2)
    known = upper & (rng.random(exact.shape) < seen)
    noisy = np.abs(exact + noise * rng.standard_normal(exact.shape)) * known
    noisy, known = noisy + noisy.swapaxes(-1, -2), known | known.swapaxes(-1, -2)
    bonds = abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1
    return np.where(bonds, 1.0, noisy), known | bonds


def complete_by_paths(given, known) -> np.ndarray:
    """Distances along the shortest paths over those that are known: an upper bound wherever these are exact.

    Examples
    --------
    >>> given = np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> complete_by_paths(given, given > 0)
    array([[0., 1., 2.],
           [1., 0., 1.],
           [2., 1., 0.]])
    """
    weights = np.where(known, np.maximum(given, 1e-9), np.inf)
    return shortest_path(weights, method="FW", directed=False)


def classical_mds(distances, dimensions: int = 3) -> np.ndarray:
    r"""Points with given distances: classical multidimensional scaling.

    .. math:: G = -\tfrac12 J (D \odot D) J = X X^\top,\qquad J = I - \tfrac1n \mathbf 1 \mathbf 1^\top

    Parameters
    ----------
    distances : (..., n, n) D, symmetric.
    dimensions : of the space; the largest eigenvalues of G are used, negative ones as 0.

    Returns
    -------
    X : (..., n, dimensions), centred; as the points themselves, up to rotation and reflection, if D is exact.

    References
    ----------
    Torgerson (1952). Chapter 8, eq:classical-mds.

    Examples
    --------
    >>> X = classical_mds(np.array([[0.0, 3, 5], [3, 0, 4], [5, 4, 0]]), 2)
    >>> np.linalg.norm(X[0] - X[2]).round(6)
    np.float64(5.0)
    """
    n = distances.shape[-1]
    J = np.eye(n) - 1 / n
    G = -0.5 * J @ (distances**2) @ J  # eq:classical-mds
    values, vectors = np.linalg.eigh(G)
    values = np.maximum(values[..., ::-1][..., :dimensions], 0)
    return vectors[..., ::-1][..., :dimensions] * np.sqrt(values)[..., None, :]


def superpose(X, Y) -> np.ndarray:
    r"""Turn, reflect and shift X so that it lies on Y as well as it can.

    .. math:: X' = (X - \bar x)\,R + \bar y,\qquad R = U V^\top,\quad (X - \bar x)^\top (Y - \bar y) = U \Sigma V^\top

    Parameters
    ----------
    X, Y : (..., n, k) points.

    Returns
    -------
    X' : (..., n, k).

    References
    ----------
    Schönemann (1966); without the reflection Kabsch (1976). Chapter 8, eq:procrustes.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> superpose(X @ np.array([[0.0, 1.0], [1.0, 0.0]]) + 5, X).round(12) + 0.0
    array([[0., 0.],
           [1., 0.],
           [0., 2.]])
    """
    x, y = X.mean(-2, keepdims=True), Y.mean(-2, keepdims=True)
    U, _, Vt = np.linalg.svd(np.swapaxes(X - x, -1, -2) @ (Y - y))
    return (X - x) @ (U @ Vt) + y  # eq:procrustes


def fit_points(given, known, start) -> np.ndarray:
    """Points of one chain whose distances come nearest to the known ones, by least squares from a start (n, 3).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = draw_chains(rng, 1, 6)[0]
    >>> D = distances(X)
    >>> Y = fit_points(D, D > 0, X + 0.1 * rng.standard_normal(X.shape))
    >>> bool(np.abs(distances(Y) - D).max() < 1e-5)
    True
    """
    i, j = np.nonzero(np.triu(known, 1))

    def misses(flat):
        X = flat.reshape(start.shape)
        return np.linalg.norm(X[i] - X[j], axis=-1) - given[i, j]

    def slopes(flat):
        X = flat.reshape(start.shape)
        arrows = X[i] - X[j]
        arrows /= np.maximum(np.linalg.norm(arrows, axis=-1, keepdims=True), 1e-12)
        slope = np.zeros((len(i), *start.shape))
        slope[np.arange(len(i)), i], slope[np.arange(len(i)), j] = arrows, -arrows
        return slope.reshape(len(i), -1)

    return least_squares(misses, start.ravel(), slopes, max_nfev=200).x.reshape(start.shape)


def fit_many(given, known, starts, steps: int = 60) -> np.ndarray:
    r"""`fit_points` for many chains at once: damped Gauss-Newton steps, each with a damping of its own.

    .. math:: \delta = -(J^\top J + \lambda I)^{-1} J^\top r

    Parameters
    ----------
    given, known : (b, n, n), as `observe` gives them.
    starts : (b, n, k) points.
    steps : how many; a step that does not help is not taken, and raises the damping.

    Returns
    -------
    (b, n, k) points.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = draw_chains(rng, 2, 6)
    >>> D = distances(X)
    >>> Y = fit_many(D, D > 0, X + 0.1 * rng.standard_normal(X.shape))
    >>> bool(np.abs(distances(Y) - D).max() < 1e-5)
    True
    """
    b, n, k = starts.shape
    (i, j), X = np.triu_indices(n, 1), starts.copy()
    weight, target, damping = known[:, i, j], given[:, i, j], np.full(b, 1e-2)

    def misses(X):
        arrows = X[:, i] - X[:, j]
        lengths = np.maximum(np.linalg.norm(arrows, axis=-1), 1e-12)
        return weight * (lengths - target), weight[..., None] * arrows / lengths[..., None]

    r, slopes = misses(X)
    rows, eye = np.arange(len(i)), np.eye(n * k)
    for _ in range(steps):
        J = np.zeros((b, len(i), n, k))
        J[:, rows, i], J[:, rows, j] = slopes, -slopes
        J = J.reshape(b, len(i), n * k)
        H, g = J.swapaxes(1, 2) @ J, np.einsum("bpm,bp->bm", J, r)
        new = X - np.linalg.solve(H + damping[:, None, None] * eye, g[..., None]).reshape(X.shape)
        better = (misses(new)[0] ** 2).sum(-1) < (r**2).sum(-1)
        X = np.where(better[:, None, None], new, X)
        damping = np.clip(np.where(better, damping / 3, damping * 5), 1e-6, 1e6)
        r, slopes = misses(X)
    return X


def errors(found, X, known) -> dict:
    """How far distances (count, n, n) are from those of chains X, and the points made of them from the chains.

    Returns
    -------
    ``"unknown"`` : the root mean square error of the distances that were not known.
    ``"points"`` : the root mean square distance of the points from the true ones, superposed; its mean over the chains.

    Examples
    --------
    >>> X = draw_chains(np.random.default_rng(0), 3)
    >>> errors(distances(X), X, np.zeros((3, 12, 12), bool))
    {'unknown': 0.0, 'points': 0.0}
    """
    exact = distances(X)
    hidden = ~known & np.triu(np.ones(exact.shape[-2:], bool), 1)
    unknown = math.sqrt(((found - exact)[hidden] ** 2).mean())
    apart = superpose(classical_mds(found), X) - X
    points = np.sqrt((apart**2).sum(-1).mean(-1)).mean()
    return {"unknown": round(unknown, 4), "points": round(float(points), 4)}


def held_out(count: int = TESTED, part: str = "test"):
    """The chains on which all are measured, or by which settings are chosen, and what is known: (X, given, known)."""
    rng = np.random.default_rng({"test": 99, "validation": 97}[part])
    X = draw_chains(rng, count)
    return X, *observe(rng, X)


def averaged(rng, given, known, spread: float = SPREAD, count: int = FITS) -> np.ndarray:
    """The mean, over many fits, of the distances (..., n, n) that each of them gives.

    A fit is one set of points that agrees with what is known. Many agree, and the mean of their distances has the
    smaller squared error.

    Parameters
    ----------
    rng : a NumPy generator.
    given, known : as `observe` gives them, (b, n, n).
    spread : standard deviation of what is added to the points of the shortest paths, where each fit starts.
    count : of the fits.

    Examples
    --------
    >>> X, given, known = held_out(2)
    >>> averaged(np.random.default_rng(0), given, known, count=2).shape
    (2, 12, 12)
    """
    paths = np.stack([complete_by_paths(*one) for one in zip(given, known, strict=True)])
    starts, total = classical_mds(paths), np.zeros(given.shape)
    for _ in range(count):
        moved = starts + spread * rng.standard_normal(starts.shape)
        total += distances(fit_many(given, known, moved))
    return total / count


def average_run(seed: int, spread: float = SPREAD, part: str = "test") -> dict:
    """The errors of the average of `FITS` fits, whose starts a seed draws."""
    X, given, known = held_out(part=part)
    return errors(averaged(np.random.default_rng([seed, 96]), given, known, spread), X, known)


def without_learning(count: int = TESTED) -> dict:
    """What shortest paths reach on the chains that are held out, and least-squares fits that start from them.

    The fit with six starts keeps the one whose distances are nearest to the known ones; five of its starts are the
    points of the shortest paths with noise of standard deviation 0.7.
    """
    rng = np.random.default_rng(98)
    X, given, known = held_out(count)
    paths = np.stack([complete_by_paths(*one) for one in zip(given, known, strict=True)])
    starts = classical_mds(paths)
    several = [starts] + [starts + 0.7 * rng.standard_normal(starts.shape) for _ in range(5)]
    fits = np.stack([[fit_points(*one) for one in zip(given, known, s, strict=True)] for s in several])
    misses = (np.where(known, distances(fits) - given, 0) ** 2).sum((-1, -2))
    best = np.take_along_axis(fits, misses.argmin(0)[None, :, None, None], 0)[0]
    mean = np.broadcast_to(np.sqrt(abs(np.subtract.outer(np.arange(POINTS), np.arange(POINTS)))), paths.shape)
    found = {"no distance seen": np.where(known, given, mean), "shortest paths": paths}
    found |= {"fit": distances(fits[0]), "fit, six starts": distances(best)}
    return {name: errors(D, X, known) for name, D in found.items()}


def features(given, known) -> torch.Tensor:
    """What a network is told of each pair, (..., n, n, 2 + n): if its distance is known, the distance, ``|i - j|``."""
    n = given.shape[-1]
    apart = np.eye(n)[abs(np.subtract.outer(np.arange(n), np.arange(n)))]
    told = np.stack([known, given], -1)
    return torch.from_numpy(np.concatenate([told, np.broadcast_to(apart, (*given.shape, n))], -1)).float()


def sizes(network: str, f: int | None = None) -> dict:
    """The shapes of one network's parameters.

    Parameters
    ----------
    network : ``"triangles"``, pair layers of an Evoformer; ``"points"``, a Transformer with a token for each point that
        is told all its distances; ``"pairs"``, one with a token for each pair.
    f : width of the feed-forward networks; None is that with which all are of one size.

    Examples
    --------
    >>> [sum(map(math.prod, flatten(sizes(network)).values())) for network in NETWORKS]
    [14785, 14761, 14793]
    """
    _require.choice("network", network, NETWORKS)
    f = width(network) if f is None else f
    if network == "triangles":
        layer, d, told = pair_layer_shapes(D, f, HEADS), D, 2 + POINTS
    else:
        layer, d = shapes.encoder_layer_shapes(WIDTH, f, HEADS), WIDTH
        told = {"points": 3 * POINTS, "pairs": 2 + 3 * POINTS}[network]
    start = {"first": shapes.linear_shapes(told, d), "layers": {str(i): layer for i in range(LAYERS)}}
    ends = {name: shapes.linear_shapes(d, d) for name in ("left", "right")} if network == "points" else {}
    return start | {"norm": shapes.norm_shapes(d)} | ends | {"last": shapes.linear_shapes(d, 1)}


@cache
def width(network: str) -> int:
    """The width of the feed-forward networks with which a network has as many parameters as that of triangles.

    Examples
    --------
    >>> width("triangles")
    32
    """
    if network == "triangles":
        return F
    wanted = sum(map(math.prod, flatten(sizes("triangles")).values()))
    none, one = (sum(map(math.prod, flatten(sizes(network, f)).values())) for f in (1, 2))
    return max(1, 1 + round((wanted - none) / (one - none)))


def predict(network: str, params: dict, told: torch.Tensor) -> torch.Tensor:
    """All distances (..., n, n), symmetric, from what is told of each pair.

    Examples
    --------
    >>> params = at.modules.ParamTree(sizes("pairs")).tree()
    >>> predict("pairs", params, torch.zeros(5, 12, 12, 14)).shape
    torch.Size([5, 12, 12])
    """
    n = told.shape[-2]
    i, j = torch.triu_indices(n, n, 1)
    own = torch.eye(n)
    if network == "points":
        X = torch.cat([told[..., :2].flatten(-2), own.expand(*told.shape[:-3], n, n)], -1)
    elif network == "pairs":
        ends = torch.cat([own[i], own[j]], -1)
        X = torch.cat([told[..., i, j, :], ends.expand(*told.shape[:-3], *ends.shape)], -1)
    else:
        X = told
    X = at.affine(X, params["first"])
    join = partial(at.sublayer, norm_first=True)
    for layer in params["layers"].values():
        X = at.pair_layer(X, layer, HEADS) if network == "triangles" else at.encoder_layer(X, layer, HEADS, join=join)
    X = at.layer_norm(X, **params["norm"])
    if network == "points":
        left, right = at.affine(X, params["left"]), at.affine(X, params["right"])
        X = at.relu(left[..., :, None, :] + right[..., None, :, :])
    Y = at.affine(X, params["last"])[..., 0]
    if network == "pairs":
        Z = Y.new_zeros(*Y.shape[:-1], n, n)
        Z[..., i, j] = Z[..., j, i] = torch.nn.functional.softplus(Y)
        return Z
    return torch.nn.functional.softplus((Y + Y.transpose(-1, -2)) / 2) * (1 - own)


def train(
    network: str,
    seed: int,
    steps: int | None = None,
    *,
    longer: float | int = 1,
    rate: float | None = None,
    part: str = "test",
) -> dict:
    """Train one network on chains that are drawn anew at each step, and measure it on those that are held out.

    Parameters
    ----------
    network, seed : which one, and of the random numbers; the chains of a seed are the same for all networks.
    steps : None takes all of STEPS.
    longer : how many times as many steps; the rate falls as slowly.
    rate : None takes that of RATES.
    part : the chains on which it is measured, as in `held_out`.

    Returns
    -------
    A dict: the first losses, means of KEEP losses each, the errors, and the seconds of one core.

    Examples
    --------
    >>> sorted(train("points", 0, steps=1))
    ['curve', 'first', 'points', 'seconds', 'unknown']
    """
    torch.manual_seed(seed)
    model = at.modules.ParamTree(sizes(network))
    rng, losses, start = np.random.default_rng([seed, 7]), [], time.process_time()
    rate = RATES[network] if rate is None else rate
    total = int(longer * STEPS)
    adam = torch.optim.Adam(model.parameters(), rate)
    upper = torch.ones(POINTS, POINTS).triu(1).bool()
    for step in range(total if steps is None else steps):
        for group in adam.param_groups:
            group["lr"] = rate * min((step + 1) / 100, 2 * (total - step) / total, 1)
        X = draw_chains(rng, BATCH)
        found = predict(network, model.tree(), features(*observe(rng, X)))
        loss = ((found - torch.from_numpy(distances(X)).float())[:, upper] ** 2).mean()
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
    seconds = time.process_time() - start
    X, given, known = held_out(part=part)
    with torch.no_grad():
        found = predict(network, model.tree(), features(given, known)).double().numpy()
    curve = [round(float(np.mean(losses[i : i + KEEP])), 4) for i in range(0, len(losses), KEEP)]
    first = [round(x, 5) for x in losses[:4]]
    return {"first": first, "curve": curve} | errors(found, X, known) | {"seconds": round(seconds, 1)}


def runs() -> dict:
    """The trainings by name, in order: each network and seed, and then the longer ones.

    Examples
    --------
    >>> runs()["pairs 0"], runs()["points longer 1"]
    (('pairs', 0, 1), ('points', 1, 7))
    """
    pairs = [(network, seed) for seed in SEEDS for network in NETWORKS]
    found = {f"{network} {seed}": (network, seed, 1) for network, seed in pairs}
    more = {f"{n} longer {seed}": (n, seed, times) for seed in LONGER_SEEDS for n, times in LONGER.items()}
    return found | more


def trials() -> dict:
    """What was tried, by name: each network with several rates, and averages of fits with several spreads.

    Examples
    --------
    >>> [len([name for name in trials() if name.startswith(kind)]) for kind in ("triangles", "points", "average")]
    [6, 6, 4]
    """
    quarter, part = QUARTER / STEPS, "validation"
    found = {
        f"{network} {rate:g}": partial(train, network, TRIAL, longer=quarter, rate=rate, part=part)
        for network, rates in TRIED.items()
        for rate in rates
    }
    return found | {f"average {x:g}": partial(average_run, TRIAL, x, part) for x in SPREADS}


def _plan():
    plan = {name: partial(train, network, seed, longer=longer) for name, (network, seed, longer) in runs().items()}
    plan |= {f"average {seed}": partial(average_run, seed) for seed in SEEDS}
    plan |= {f"triangles slower {seed}": partial(train, "triangles", seed, rate=SLOWER) for seed in LONGER_SEEDS}
    return {"plain": without_learning, "tried": trials(), "runs": plan}


def _told(run):
    return run["unknown"], run["points"], run.get("seconds")


FILE = "chapters/08_at_work/chains.json"
STUDY = Study("attnmath.chains", FILE, ("plain", "tried", "runs"), _plan, _told)
record, main = STUDY.record, STUDY.main


if __name__ == "__main__":
    sys.exit(main())
