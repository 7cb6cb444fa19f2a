"""The record of few shots is what its command makes, its tasks are what they are said to be, and bad input is told."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import few_shots as fs
from attnmath import going_on
from attnmath.check import compare

PATH = Path(__file__).parents[2] / "chapters/08_at_work/few_shots.json"
RECORD = json.loads(PATH.read_text(encoding="utf-8"))
RUNS = RECORD["runs"]


def layer(run):
    return {name: {"weight": np.array(W)} for name, W in zip(fs.NAMES, run["weights"], strict=True)}


def test_the_record_is_whole():
    assert list(RUNS) == fs.plan() and fs.record(RECORD["sweep"], RECORD["tuned"], RUNS) == RECORD
    for name, run in RUNS.items():
        assert len(run["first"]) == 4 and ("weights" in run) == (" 20 " in name)
    for name, rate in fs.CHOSEN.items():
        assert rate == float(min(RECORD["sweep"][name], key=RECORD["sweep"][name].get)), name
    for i, k in enumerate(going_on.SHOTS):
        for way, swept in RECORD["sweep"][f"shots {k}"].items():
            assert swept[f"{going_on.CHOSEN[way][i]:g}"] == max(swept.values()), (way, k)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["lines mean 5 0", "lines softmax 10 2", "tilted mean 20 1", "free-waves softmax 40 7"]
)
def test_the_first_steps_are_those_of_the_record(name):
    compare(fs.do(name, steps=4)["first"], RUNS[name]["first"], name="losses", atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_the_first_steps_on_digits_are_those_of_the_record(seed):
    compare(fs.do(f"digits {seed}", steps=4)["first"], RUNS[f"digits {seed}"]["first"], name="losses", atol=1e-3)


@pytest.mark.parametrize(("kind", "sigma"), [("lines", np.eye(fs.WIDTH)), ("tilted", np.diag(fs.SPECTRUM))])
def test_trained_layers_are_the_best_layer(kind, sigma):
    """By the formula for the loss of their maps, and by what they answer to tasks."""
    best, least = fs.best_map(20, sigma), fs.expected_loss(fs.best_map(20, sigma), 20, sigma)
    E, answer = (part[:2000] for part in fs.held(kind, 20))
    ideal = fs.predict(E, [fs.descent(fs.WIDTH, 1.0, precondition=best)])
    for seed in fs.SEEDS:
        params = layer(RUNS[f"{kind} mean 20 {seed}"])
        A = fs.effective_map(params)
        assert least < fs.expected_loss(A, 20, sigma) < 1.02 * least
        assert np.linalg.norm(A - best) < 0.12 * np.linalg.norm(best)
        got = fs.predict(E, [params])
        assert 0.97 < ((got - answer) ** 2).mean() / ((ideal - answer) ** 2).mean() < 1.04


def test_from_random_weights_tilted_lines_give_one_direction():
    """At every seed: a saddle, on which the loss is more than twice the least."""
    sigma = np.diag(fs.SPECTRUM)
    for seed in fs.SEEDS:
        A = fs.effective_map(layer(RUNS[f"free-tilted mean 20 {seed}"]))
        assert np.linalg.svd(A)[1][1] < 0.1 < 0.2 < A[0, 0]
        assert fs.expected_loss(A, 20, sigma) > 2 * fs.expected_loss(fs.best_map(20, sigma), 20, sigma)


def test_the_weights_of_the_record_answer_with_the_loss_of_the_record():
    for core, attend in (("mean", an.mean_attention), ("softmax", an.attention)):
        E, answer = fs.held("lines", 20)
        error = ((fs.predict(E[:3000], [layer(RUNS[f"lines {core} 20 1"])], attend) - answer[:3000]) ** 2).mean()
        assert abs(error / RUNS[f"lines {core} 20 1"]["loss"] - 1) < 0.15


def test_both_worlds_predict_alike():
    E, _ = fs.waves(np.random.default_rng(0), 3, 7)
    params = fs.start("waves", 1)
    for name in ("mean_attention", "attention"):
        there = fs.predict(torch.from_numpy(E), [at.from_numpy(params)] * 2, getattr(at, name))
        compare(there, fs.predict(E, [params] * 2, getattr(an, name)), name=name)


def test_lines_are_lines_with_the_spread_that_is_said():
    rng, sigma = np.random.default_rng(1), np.array([[2.0, 0.5], [0.5, 1.0]])
    E, answer = fs.lines(rng, 4000, 3, 2, covariance=sigma)
    X = E[..., :-1].reshape(-1, 2)
    compare(X.T @ X / len(X), sigma, name="the covariance", atol=0.1)
    w = np.linalg.solve(E[:, :2, :2], E[:, :2, 2:])[..., 0]
    for part in w.T:
        assert kstest(part, "norm").pvalue > 1e-3
    compare(np.einsum("bd,bd->b", w, E[:, -1, :2]), answer, name="the answer", atol=1e-6)
    assert (E[:, -1, -1] == 0).all()
    noisy, answer = fs.lines(rng, 2000, 30, 2, noise=0.5)
    left = noisy[:, :-1, -1:] - noisy[:, :-1, :2] @ (np.linalg.pinv(noisy[:, :-1, :2]) @ noisy[:, :-1, -1:])
    assert abs((left**2).sum(1).mean() / 28 - 0.25) < 0.01, "of 30 examples two go into w"
    exact = np.linalg.pinv(noisy[:, :-1, :2]) @ noisy[:, :-1, -1:]
    assert ((noisy[:, -1:, :2] @ exact)[:, 0, 0] - answer).std() < 0.3, "the answer has no noise"


def test_waves_have_four_frequencies_and_variance_1():
    E, answer = fs.waves(np.random.default_rng(2), 3000, 12)
    angle = np.arctan2(E[..., 1], E[..., 0])
    k = np.arange(1, 5)
    basis = np.concatenate([np.cos(k * angle[..., None]), np.sin(k * angle[..., None])], -1)
    held = [np.linalg.lstsq(B[:-1], y[:-1], rcond=None)[0] @ B[-1] for B, y in zip(basis[:9], E[:9, :, 2], strict=True)]
    compare(held, answer[:9], name="the answer", atol=1e-6)
    assert abs((answer**2).mean() - 1) < 0.1 and (E[:, -1, -1] == 0).all()


def test_ridge_is_scikit_learns():
    from sklearn.linear_model import Ridge

    E, _ = fs.lines(np.random.default_rng(3), 4, 3, noise=0.5)  # fewer examples than unknowns
    for e, got, shortest in zip(E, fs.ridge(E, 0.25), fs.ridge(E), strict=True):
        model = Ridge(0.25, fit_intercept=False).fit(e[:-1, :-1], e[:-1, -1])
        compare(got, model.predict(e[-1:, :-1])[0], name="ridge", atol=1e-10)
        w = np.linalg.lstsq(e[:-1, :-1], e[:-1, -1], rcond=None)[0]
        compare(shortest, e[-1, :-1] @ w, name="least squares", atol=1e-10)


def test_replay_keeps_what_it_is_said_to_keep():
    new, kept, rng = np.arange(100, 200), np.arange(7), np.random.default_rng(4)
    assert (going_on._mixed(rng, new, kept[:0]) >= 100).sum() == 32
    batch = going_on._mixed(rng, new, kept)
    assert (batch >= 100).sum() == 16 and (batch < 7).sum() == 16
    _, y = going_on.digits()
    old = int((y[: going_on.IMAGES] < 5).sum())
    for seed in fs.SEEDS:
        for share in going_on.SHARES:
            assert RUNS[f"digits {seed}"][f"share {share}"]["kept"] == round(old * share / 100)


def test_forgetting_and_replay_are_there_at_every_seed():
    for seed in fs.SEEDS:
        run = RUNS[f"digits {seed}"]
        left = [run[f"share {share}"]["right"][0] for share in going_on.SHARES]
        assert run["before"] > 0.95 and left[0] < 0.1 and left[1] > left[0] + 0.2 and left[-1] > 0.9
        assert run["share 0"]["among five"] > left[0] + 0.5 and run["share 0"]["refitted"][0] > 0.85
        assert min(run["joint"]) > 0.9 and RECORD["tuned"][f"few {seed}"]["5"]["left"] < 0.5


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(fs, "plan", lambda: ["lines mean 5 0", "lines mean 5 1"])
    monkeypatch.setattr(fs, "SWEPT", ())
    monkeypatch.setattr(fs, "SEEDS", ())
    monkeypatch.setattr(going_on, "SHOTS", ())
    monkeypatch.setattr(fs, "STEPS", 2)
    monkeypatch.setattr(fs, "HELD", 5)
    fs.held.cache_clear()
    out, kept = tmp_path / "out.json", {"first": [7.0], "loss": 0.5}
    out.write_text(json.dumps(fs.record({}, {}, {"lines mean 5 0": kept})), encoding="utf-8")
    assert fs.main([str(out)]) == 0
    fs.held.cache_clear()
    runs = json.loads(out.read_text(encoding="utf-8"))["runs"]
    assert runs["lines mean 5 0"] == kept and len(runs["lines mean 5 1"]["first"]) == 2


X = np.zeros
BAD = [
    ((X((3, 7)), X((5, 6)), X((5, 2))), {}, r"K has shape \(5, 6\), expected \(\.\.\., m, k\) with k = 7"),
    ((X((3, 7)), X((5, 7)), X((4, 2))), {}, r"V has shape \(4, 2\), expected \(\.\.\., m, v\) with m = 5"),
    ((X((3, 7)), X((0, 7)), X((0, 2))), {}, r"at least one key is needed"),
    ((X((3, 7)), X((5, 7)), X((5, 2)), X((3, 5))), {}, r"mask has dtype (torch\.)?float64; masks are boolean"),
    ((X((3, 7)), X((5, 7)), X((5, 2)), X((4, 5), bool)), {}, r"mask has shape \(4, 5\), which does not broadcast"),
    ((X((2, 3, 7)), X((5, 7)), X((5, 2)), X((3, 5), bool)), {}, r"row \(0, 0\) may attend to no key"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("args", "options", "says"), BAD)
def test_bad_input_is_refused_in_one_line(world, args, options, says, as_users_call):
    args = [torch.from_numpy(arg) for arg in args] if world is at else args
    with pytest.raises(ValueError, match=says) as said:
        world.mean_attention(*args, **options)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fs.lines(None, 2, 0), "n is 0"),
        (lambda: fs.lines(None, 2, 3, noise=-1.0), "noise"),
        (lambda: fs.descent(3, 0.1, precondition=np.eye(2)), r"precondition has shape \(2, 2\); expected \(3, 3\)"),
        (lambda: fs.descent(2, 0.1, bend=0.1, precondition=np.eye(2)), "leave one out"),
        (lambda: fs.tasks("circles"), "kind is 'circles'; expected one of"),
        (lambda: fs.best_map(0, np.eye(2)), "n is 0"),
        (lambda: fs.ridge(np.ones((2, 2)), -1.0), "penalty"),
    ],
)
def test_a_wrong_number_is_told(call, says, as_users_call):
    with pytest.raises(ValueError, match=says):
        call()
