"""Superposition: bad input, the tools that measure directions and codes, and the record of the study."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import superposition as sup
from attnmath import superposition_study as study
from attnmath.check import compare
from attnmath.tasks import lm
from tests.attnmath.refusals import check_refused

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
RECORD = Path(__file__).parents[2] / study.FILE


def record():
    return json.loads(RECORD.read_text(encoding="utf-8"))


X, W, b = np.ones((4, 5)), np.ones((5, 3)), np.ones(5)
E, a, D, c = np.ones((5, 7)), np.ones(7), np.ones((7, 5)), np.ones(5)
BAD = [
    ("superposition", (X, np.ones((4, 3)), b), {}, r"W has shape \(4, 3\), expected \(\.\.\., f, m\) with f = 5"),
    ("superposition", (X, W, np.ones(4)), {}, r"b has shape \(4,\)"),
    ("superposition", (X.astype(np.float32), W, b), {}, r"W has dtype .*float64 but X has"),
    ("sparse_code", (X, E.T, a), {}, r"E has shape \(7, 5\)"),
    ("sparse_code", (X, E, a), {"top": 0}, r"top is 0; it must be an integer >= 1"),
    ("sparse_code", (X, E, a), {"top": 8}, r"top is 8, but there are only 7 units; give at most 7"),
    ("sparse_autoencoder", (X, E, a, D.T, c), {}, r"D has shape \(5, 7\)"),
    ("sparse_autoencoder", (X, E, a, 0 * D, c), {}, r"row of zeros"),
    ("sparse_autoencoder", (X, E, a, D, np.ones(4)), {}, r"c has shape \(4,\)"),
    ("sparse_autoencoder", (X, E, a, D, c), {"top": 2.0}, r"top is 2\.0; it must be an integer"),
]


@WORLDS
@pytest.mark.parametrize("row", range(len(BAD)))
def test_bad_input_gets_a_sentence(row, world, as_users_call):
    check_refused(world, *BAD[row])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sup.sparse_features(None, (3,), 0.0), r"present is 0\.0; it must be a probability > 0"),
        (lambda: sup.dropped_loss(1.5), r"present is 1\.5"),
        (lambda: sup.opposite_loss(0.5, 2.0), r"importance is 2\.0; .* give 0 < r <= 1"),
        (lambda: sup.opposite_border(0.0), r"importance is 0\.0"),
        (lambda: sup.welch_bound(1, 3), r"at least 2 directions"),
        (lambda: sup.welch_bound(3, 0), r"m is 0; it must be an integer >= 1"),
        (lambda: sup.coherence(np.ones((1, 3))), r"D is 1 directions in 3 dimensions; at least 2"),
        (lambda: sup.random_fit(5, 0.0), r"largest is 0\.0; it must be > 0"),
        (lambda: sup.matched(np.ones((2, 3)), np.ones((2, 4))), r"B has shape \(2, 4\)"),
        (lambda: sup.matched(np.ones((2, 3)), np.ones((0, 3))), r"at least one direction is needed"),
        (lambda: sup.purity(np.ones((3, 2)), np.ones(4, int)), r"Z has 3 rows and ids 4 tokens; give one row"),
        (lambda: sup.soft_threshold(np.ones(2), -1.0), r"amount is -1\.0; it must be >= 0"),
    ],
)
def test_bad_numbers_get_a_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.claim("eq:matched")
def test_cosines_are_scipys(rng):
    A, B = rng.standard_normal((6, 4)), rng.standard_normal((9, 4))
    compare(sup.matched(A, B), (1 - cdist(A, B, "cosine")).max(-1), atol=1e-12)
    between = np.abs(1 - cdist(A, A, "cosine"))[~np.eye(6, dtype=bool)]
    compare(sup.coherence(A), between.max(), atol=1e-12)
    compare(sup.coherence(np.array([[1.0, 0], [0, 1], [-3, 0]])), 1.0, name="opposite ones count")


def test_purity_counts_tokens(rng):
    Z, ids = np.maximum(rng.standard_normal((50, 4)), 0), rng.integers(0, 3, 50)
    for top in (None, 5):
        want = []
        for z in Z.T:
            spoken = sorted((i for i in range(50) if z[i] > 0), key=lambda i: -z[i])[:top]
            want.append(max(sum(ids[i] == x for i in spoken) for x in range(3)) / len(spoken))
        compare(sup.purity(Z, ids, top), want, atol=1e-14)


@pytest.mark.parametrize("top", [1, 3, 7])
def test_at_most_so_many_units_speak(top, rng):
    X, E, a = rng.standard_normal((40, 5)), rng.standard_normal((5, 7)), rng.standard_normal(7)
    Z, vjp = an.sparse_code(X, E, a, top=top)
    R = np.maximum(X @ E + a, 0)
    assert ((Z > 0).sum(-1) == np.minimum((R > 0).sum(-1), top)).all()
    assert (np.where(Z > 0, 0, R).max(-1) <= np.where(Z > 0, Z, np.inf).min(-1)).all(), "the loudest are kept"
    _, _, da = vjp(np.ones_like(Z))
    compare(da, (Z > 0).sum(0).astype(float), atol=1e-12)


def test_samples_under_vmap(rng):
    X, *rest = (torch.from_numpy(rng.standard_normal(s)) for s in ((3, 4, 5), (5, 7), (7,), (7, 5), (5,)))
    loss = lambda X: at.sparse_autoencoder(X, *rest, top=2).square().sum()  # noqa: E731
    compare(torch.func.vmap(torch.func.grad(loss))(X), torch.stack([torch.func.grad(loss)(x) for x in X]), atol=1e-12)


# the study


def test_the_record_is_whole():
    found = record()
    assert study.record(*(found[name] for name in study.PARTS)) == found
    assert study.WINDOWS["train"] * lm.Config().context == 51_200, "the page says so"
    plan = study.STUDY.plan()
    assert all(list(found[name]) == list(plan[name]) for name in study.PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["0.05 1", "0.2 3"])
def test_known_features_begin_as_today(name):
    p, seed = name.split()
    found = study.known(float(p), int(seed), steps=study.FIRST)
    compare(found["first"], record()["known"][name]["first"], name=name, atol=2e-4)
    compare(found["chance"], record()["known"][name]["chance"], name="chance", atol=0.03)


@pytest.mark.slow
def test_the_best_of_a_sweep_begins_as_today():
    one = record()["sweeps"]["known 0.2 4"]
    rate = study.chosen([[setting["rate"], score[0]] for setting, score in one["tried"]])
    assert rate == 0.11
    found = study.known(0.2, 1, 4, steps=study.FIRST, plan=(rate, study.STEPS))
    compare(found["first"], one["test"][0]["first"], name="losses", atol=2e-4)


def test_a_sweep_goes_on_until_its_best_is_inside():
    assert [rate for rate, _ in study.swept(lambda rate: rate)] == [1e-3, 3e-3, 1e-2, 0.033, 0.11, 0.37]
    assert [rate for rate, _ in study.swept(lambda rate: -abs(rate - 3e-3))] == [1e-3, 3e-3, 1e-2]
    assert [rate for rate, _ in study.swept(lambda rate: -rate, most=4)] == [3e-4, 1e-3, 3e-3, 1e-2]


@pytest.mark.slow
def test_an_autoencoder_of_the_model_begins_as_today():
    want = record()["runs"]
    for kind in ("trained", "random", "penalty"):
        _, losses = study.dictionary(kind, 2, study.FIRST)
        compare(losses, want[f"{kind} 2 test"]["first"], name=kind, atol=1e-3, rtol=1e-3)
    loss = study.loss_from(study.model_of(), study.rows("test")[0], study.windows("test"))
    compare(loss, record()["baselines"]["test"]["loss"], name="loss", atol=2e-3)


@pytest.mark.slow
def test_splicing_nothing_is_the_model_itself():
    model, ids = lm.load().eval(), study.windows("test")[:3]
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:])
    stream = study.streams(model, ids)
    compare(study.loss_from(model, stream, ids), float(want), atol=1e-5)
    assert abs(study.loss_from(model, 0 * stream, ids) - float(want)) > 1


def test_explained_and_refitted(rng):
    X = torch.from_numpy(rng.standard_normal((200, 5)))
    compare(study.explained(X, X), 1.0)
    compare(study.explained(X.mean(0).expand_as(X), X), 0.0, atol=1e-12)
    params = study.start(5, 7, torch.Generator().manual_seed(1))
    params = [P.double() for P in params]
    Z = study.code(params, X, 2)
    found = study.refitted(params, X, Z)
    assert found["best"] > found["as is"]
    D = params[2].numpy()
    X, Z, want = X.numpy(), Z.numpy(), 0.0
    for x, z in zip(X, Z, strict=True):
        want += np.linalg.lstsq(D[z > 0].T, x, rcond=None)[1].sum() if any(z) else x @ x
    assert 1 - want / ((X - X.mean(0)) ** 2).sum() == pytest.approx(found["best"], abs=1e-4)


def test_a_fixed_dictionary_stays():
    generator = torch.Generator().manual_seed(3)
    first = study.start(4, 6, torch.Generator().manual_seed(3))[2]
    draw = lambda n: torch.randn(n, 4, generator=generator)  # noqa: E731
    for fixed in (True, False):
        generator.manual_seed(3)
        params, _ = study.train(draw, 4, 6, generator, top=2, fixed=fixed, steps=3)
        assert torch.equal(params[2], first) == fixed and not torch.equal(params[0], first.mT)
