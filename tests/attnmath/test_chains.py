"""The record of the chains is what its command makes; the networks differ in nothing but what is compared."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial import procrustes
from scipy.spatial.distance import cdist

import attnmath.torch as at
from attnmath import chains
from attnmath.check import compare
from attnmath.tree import flatten

RECORD = json.loads((Path(__file__).parents[2] / "chapters/08_at_work/chains.json").read_text(encoding="utf-8"))


def test_the_record_is_whole():
    runs = RECORD["runs"]
    more = [f"average {seed}" for seed in chains.SEEDS]
    more += [f"triangles slower {seed}" for seed in chains.LONGER_SEEDS]
    assert list(runs) == list(chains.runs()) + more and list(RECORD["tried"]) == list(chains.trials())
    assert chains.record(RECORD["plain"], RECORD["tried"], runs) == RECORD
    for name, (_, _, longer) in chains.runs().items():
        assert len(runs[name]["curve"]) == longer * chains.STEPS / chains.KEEP and len(runs[name]["first"]) == 4
        assert 0 < runs[name]["unknown"] < 1 and 0 < runs[name]["points"] < 1


def test_what_was_chosen_is_the_best_that_was_tried():
    for name, chosen in {**chains.RATES, "average": chains.SPREAD}.items():
        scores = {float(key.split()[1]): one["unknown"] for key, one in RECORD["tried"].items() if key.startswith(name)}
        assert min(scores, key=scores.get) == chosen


def test_many_fits_are_as_near_as_one_by_one():
    X, given, known = chains.held_out(4)
    starts = X + 0.2 * np.random.default_rng(1).standard_normal(X.shape)
    many = chains.fit_many(given, known, starts)
    one = np.stack([chains.fit_points(*each) for each in zip(given, known, starts, strict=True)])
    far = [(np.where(known, cdist_all(Y) - given, 0) ** 2).sum((1, 2)) for Y in (starts, many, one)]
    assert (far[1] < 0.2 * far[0]).all() and (far[1] < 1.05 * far[2] + 1e-3).all()
    moved = chains.fit_many(given[:1], known[:1], starts[:1])
    compare(moved[0], many[0], name="each chain by itself", atol=1e-9)


def cdist_all(Y):
    return np.stack([cdist(y, y) for y in Y])


def test_an_average_is_the_mean_of_the_distances_of_its_fits():
    _, given, known = chains.held_out(2)
    found = chains.averaged(np.random.default_rng(3), given, known, 0.5, 3)
    rng, paths = (
        np.random.default_rng(3),
        np.stack([chains.complete_by_paths(g, k) for g, k in zip(given, known, strict=True)]),
    )
    starts, all_ = chains.classical_mds(paths), []
    for _ in range(3):
        moved = starts + 0.5 * rng.standard_normal(starts.shape)
        all_.append(cdist_all(chains.fit_many(given, known, moved)))
    compare(found, np.mean(all_, 0), name="the mean", atol=1e-9)
    other = chains.held_out(2, "validation")[1]
    assert np.abs(other - given).max() > 0.1, "other chains choose"


@pytest.mark.slow
@pytest.mark.parametrize("network", chains.NETWORKS)
def test_the_first_steps_are_those_of_the_record(network):
    for seed in (0, 1):
        again = chains.train(network, seed, steps=4)["first"]
        compare(again, RECORD["runs"][f"{network} {seed}"]["first"], name="losses", atol=2e-3)


@pytest.mark.slow
def test_what_needs_no_learning_is_that_of_the_record():
    again = chains.without_learning(40)
    _, given, known = chains.held_out(40)
    for name, found in again.items():
        assert found["unknown"] == pytest.approx(RECORD["plain"][name]["unknown"], rel=0.3)
    i, j = np.nonzero(np.triu(known[0], 1))
    start = chains.classical_mds(chains.complete_by_paths(given[0], known[0]))
    fitted = chains.fit_points(given[0], known[0], start)
    misses = [((cdist(Y, Y)[i, j] - given[0][i, j]) ** 2).sum() for Y in (start, fitted)]
    assert misses[1] < 0.1 * misses[0]


def test_the_networks_have_as_many_parameters():
    counts = {n: sum(map(math.prod, flatten(chains.sizes(n)).values())) for n in chains.NETWORKS}
    assert max(counts.values()) / min(counts.values()) < 1.01


def told(seed=0, count=3):
    rng = np.random.default_rng(seed)
    X = chains.draw_chains(rng, count)
    return X, *chains.observe(rng, X)


def built(network, seed=0):
    torch.manual_seed(seed)
    return at.modules.ParamTree(chains.sizes(network)).tree()


@pytest.mark.parametrize("network", chains.NETWORKS)
def test_predictions_are_distances_that_depend_on_what_is_told(network):
    _, given, known = told()
    params = built(network)
    with torch.no_grad():
        D = chains.predict(network, params, chains.features(given, known))
        i, j = np.argwhere(np.triu(known[0], 2))[0]
        other = given.copy()
        other[0, i, j] = other[0, j, i] = given[0, i, j] + 1
        E = chains.predict(network, params, chains.features(other, known))
    compare(D, D.transpose(-1, -2), name="symmetric", atol=1e-6)
    assert (D.diagonal(dim1=-1, dim2=-2) == 0).all() and (D + torch.eye(12) > 0).all()
    compare(E[1:], D[1:], name="other chains", atol=1e-6)
    assert ((E - D)[0].abs() > 1e-7).float().mean() > 0.5, "one distance tells something about most of the others"


def test_a_chain_read_backwards_is_the_same_chain_for_triangles():
    """They are told |i - j| only, so they treat both ends alike; the Transformers are told which point is which."""
    _, given, known = told()
    forth, back = chains.features(given, known), chains.features(given[:, ::-1, ::-1], known[:, ::-1, ::-1])
    for network in chains.NETWORKS:
        params = built(network)
        with torch.no_grad():
            D, E = (chains.predict(network, params, X) for X in (forth, back))
        apart = (D - E.flip(-1, -2)).abs().max()
        assert apart < 1e-5 if network == "triangles" else apart > 1e-3


def test_what_is_given_is_what_was_measured():
    X, given, known = told(1, 200)
    exact, n = chains.distances(X), X.shape[1]
    compare(given, given.swapaxes(1, 2), name="symmetric")
    bonds = np.eye(n, k=1, dtype=bool) | np.eye(n, k=-1, dtype=bool)
    assert known[:, bonds].all() and (given[:, bonds] == 1).all() and (given[~known] == 0).all()
    assert not known[:, np.eye(n, dtype=bool)].any()
    far = np.triu(np.ones((n, n), bool), 2)
    assert known[:, far].mean() == pytest.approx(chains.SEEN, abs=0.02)
    noise = (given - exact)[known & far]
    assert noise.std() == pytest.approx(chains.NOISE, rel=0.05) and abs(noise.mean()) < 0.01


def test_errors_are_of_what_was_not_known(rng):
    X, _, known = told(2, 5)
    exact = chains.distances(X)
    found = exact + 0.3 * (~known & (exact > 0))
    assert chains.errors(found, X, known)["unknown"] == pytest.approx(0.3)
    assert chains.errors(np.where(known, exact + 0.3, exact), X, known)["unknown"] == 0
    moved = 1.1 * exact  # the points are those of a chain 1.1 times as large
    wanted = [0.1 * np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean()) for x in X]
    assert chains.errors(moved, X, known)["points"] == pytest.approx(np.mean(wanted), abs=1e-4)
    Y = X[0] + 0.1 * rng.standard_normal(X[0].shape)
    scaled = procrustes(X[0], Y)[2]  # SciPy scales as well: it can only come nearer
    ours = ((chains.superpose(Y, X[0]) - X[0]) ** 2).sum() / ((X[0] - X[0].mean(0)) ** 2).sum()
    assert scaled <= ours < 1.3 * scaled


def test_a_wrong_name_is_named():
    with pytest.raises(ValueError, match="network"):
        chains.sizes("squares")


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(chains, "STEPS", 2)
    monkeypatch.setattr(chains, "SEEDS", (0,))
    monkeypatch.setattr(chains, "LONGER_SEEDS", ())
    monkeypatch.setattr(chains, "without_learning", lambda: {})
    monkeypatch.setattr(chains, "trials", lambda: {})
    monkeypatch.setattr(chains, "average_run", lambda seed: kept)
    out, kept = tmp_path / "out.json", {"first": [7.0], "curve": [7.0], "unknown": 0.5, "points": 0.5, "seconds": 1.0}
    out.write_text(json.dumps(chains.record({}, {}, {"triangles 0": kept})), encoding="utf-8")
    assert chains.main([str(out)]) == 0
    done = json.loads(out.read_text(encoding="utf-8"))
    assert done["runs"]["triangles 0"] == kept and list(done["runs"])[:3] == ["triangles 0", "points 0", "pairs 0"]
    assert len(done["runs"]["pairs 0"]["first"]) == 2 and chains.record({}, {}, done["runs"]) == done
