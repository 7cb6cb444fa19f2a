"""Controls, removal, bad input, and the record of the study of lenses and probes."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import attnmath.numpy as an
from attnmath import probes, shapes
from attnmath import probes_study as study
from attnmath.check import compare

PATH = Path(__file__).parents[2] / "chapters/09_theory/probes.json"


@cache
def record():
    return json.loads(PATH.read_text(encoding="utf-8"))


@pytest.mark.claim("eq:control-labels")
def test_control_labels_belong_to_words_and_have_the_shares_of_the_task():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 3000, 20000).astype(str)
    labels = rng.choice([1, 1, 1, 2], 20000)
    found = probes.control_labels(words, labels, rng)
    own = {word: set(found[words == word]) for word in np.unique(words)[:200]}
    assert all(len(kinds) == 1 for kinds in own.values())
    by_type = np.array([found[np.flatnonzero(words == word)[0]] for word in np.unique(words)])
    assert abs((by_type == 1).mean() - 0.75) < 0.04
    again = probes.control_labels(words, labels, rng)
    assert 0.55 < (found == again).mean() < 0.70  # two draws agree as often as chance, 0.625


@pytest.mark.claim("eq:mean-directions", "eq:without")
def test_removal_is_a_projection_and_leaves_all_else(rng):
    X, labels = rng.standard_normal((40, 6)), np.arange(40) % 3
    U, centre = probes.mean_directions(X, labels), X.mean(0)
    Y = probes.without(X, U, centre)
    compare(probes.without(Y, U, centre), Y, name="twice is once", atol=1e-12)
    compare((Y - centre) @ U, np.zeros((40, 2)), name="nothing left", atol=1e-12)
    rest = np.linalg.svd(U.T)[2][2:].T
    compare(Y @ rest, X @ rest, name="the others", atol=1e-12)
    means = np.stack([X[labels == a].mean(0) for a in range(3)]) - centre
    compare(means @ U @ U.T, means, name="the means lie in the span", atol=1e-12)


@pytest.mark.claim("eq:mean-difference", "eq:steered")
def test_steering_moves_one_mean_to_the_other(rng):
    """At the strength 1 the mean without the property becomes the mean with it; all differences of rows stay."""
    X, yes = rng.standard_normal((3, 20, 5)), rng.random(60) < 0.3
    rows = X.reshape(60, 5)
    v = probes.mean_difference(rows, yes)
    Y = probes.steered(X, v, 1.0).reshape(60, 5)
    compare(Y[~yes].mean(0), rows[yes].mean(0), name="the mean", atol=1e-12)
    compare(Y - Y[0], rows - rows[0], name="the differences", atol=1e-12)
    compare(probes.steered(probes.steered(X, v, 2.5), v, -2.5), X, name="and back", atol=1e-12)
    U = probes.mean_directions(rows, yes)
    compare(abs(U[:, 0] @ v), np.linalg.norm(v), name="it has the direction that a removal takes out", atol=1e-12)


def test_the_lens_and_the_writes_are_those_of_pytorch():
    """The trained language model, run by the other world."""
    import torch

    from attnmath.tasks import lm

    trained, (params, heads) = lm.load().eval(), study.model()
    ids = np.random.default_rng(0).integers(1, 1000, (2, 20))
    X = sum(probes.stream_writes(ids, params, heads).values())
    with torch.no_grad():
        want = trained(torch.from_numpy(ids)).numpy()
    compare(probes.logit_lens(X, params), want, name="logits", atol=2e-3, rtol=1e-4)


def small(**changed):
    sizes = shapes.decoder_only_shapes(7, 4, 8, 1, 5, norm=an.layer_norm)
    return shapes.random_tree(sizes, np.random.default_rng(0)) | changed


def headed():
    return small(head={"weight": np.ones((4, 7)), "bias": np.zeros(7)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: probes.logit_lens(np.ones((2, 4)), {"embeddings": {}}), "needs the last layer norm"),
        (lambda: probes.direct_logits({"a": np.ones((2, 4))}, small(norm={})), "needs the last layer norm"),
        (lambda: probes.direct_logits({"a": np.ones((2, 4))}, headed()), "the head has a bias"),
        (lambda: probes.with_silent_layers(small(), np.ones(3)), "note|word"),
        (lambda: probes.dichotomies(0, 3), "n is 0"),
        (lambda: probes.dichotomies(3, 0), "d is 0"),
        (lambda: probes.control_labels(["a"], [1, 2], None), "one label for each row"),
        (lambda: probes.control_labels([], [], None), "one label for each row"),
        (lambda: probes.mean_directions(np.ones((3, 2)), [1, 1, 1]), "at least two classes"),
        (lambda: probes.mean_directions(np.ones((4, 2)), [1, 1, 2, 2]), "no direction to remove"),
        (lambda: probes.mean_directions(np.ones((4, 2)), [1, 2]), "one label for each row"),
        (
            lambda: probes.mean_difference(np.ones((3, 2)), np.array([1, 0, 1])),
            "give booleans, with a True and a False",
        ),
        (lambda: probes.mean_difference(np.ones((2, 2)), np.array([True, True])), "with a True and a False"),
        (lambda: probes.mean_difference(np.ones((4, 2)), np.array([True, False])), "one label for each row"),
        (lambda: probes.steered(np.ones((2, 3)), np.ones(2), 1.0), "v has shape"),
        (lambda: probes.without(np.ones((2, 3)), np.ones((3, 2)), np.zeros(3)), "not orthonormal"),
        (lambda: probes.without(np.ones((2, 3)), np.eye(2), np.zeros(3)), "U has shape"),
    ],
)
def test_bad_input_gets_one_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# the study


def test_the_record_is_whole():
    found = record()
    parts = {name: found[name] for name in study.STUDY.names}
    assert study.record(*parts.values()) == found
    assert all(list(parts[name]) == list(planned) for name, planned in study.STUDY.plan().items())


def test_words_and_occurrences_are_held_out():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 300, 2000).astype(str)
    cut = study.splits(words, rng)
    train, held = cut["new words"]
    assert not set(words[train]) & set(words[held]) and (train ^ held).all()
    assert 0.2 < held.mean() < 0.45
    train, held = cut["seen words"]
    assert set(words[held]) <= set(words[train]) and not (train & held).any()


def test_removing_nothing_is_the_model_itself():
    params, heads = study.model()
    ids = np.random.default_rng(0).integers(1, 1000, (2, 17))
    streams = study.streams(ids, params, heads)
    for layer in (1, 2, 3):
        Z = study.onward(streams[2 * layer], layer)
        compare(Z, probes.logit_lens(streams[-1], params), name=f"from layer {layer}", atol=5e-3, rtol=1e-3)


@pytest.mark.slow
def test_the_lens_of_the_record_is_that_of_today():
    params, heads = study.model()
    ids = study.windows("test", 1, study.HELD)
    want = record()["lens"]["1"]["trained"]["loss"]["lens"]
    got = [study.loss(probes.logit_lens(X, params), ids) for X in study.streams(ids, params, heads)]
    compare(got, want, name="loss", atol=1e-3)


@pytest.mark.slow
def test_the_matched_controls_of_the_record_are_those_of_today(monkeypatch):
    """The first control of the first draw, and the property itself."""
    want = record()["matched"]["1"]
    monkeypatch.setattr(study, "CONTROLS", 1)
    compare(study.matched(1), [want[0], want[-1]], name="share and cost", atol=1e-3)


@pytest.mark.slow
def test_the_probes_of_the_record_have_the_words_of_today():
    """The words of the first draw, and the cheapest rival; the probes themselves take the study's time."""
    rng, (ids, mask) = np.random.default_rng((1, 47)), study.passages(1)
    one, found = study.occurrences(ids, mask, rng), record()["probes"]["1"]
    assert len(one["words"]) == found["occurrences"] and len(np.unique(one["words"])) == found["words"]
    train, held = study.splits(one["words"], rng)["new words"]
    rival = study.probe(one["letters"][train], one["syllables"][train], one["letters"][held], one["syllables"][held])
    compare(rival, found["letters"]["new words"], name="letters", atol=2e-3)
    few = {row for row, _ in zip(*one["at"], strict=True) if row < 20}
    assert few and one["syllables"].min() == 1 and one["syllables"].max() == 3


@pytest.mark.slow
def test_the_steering_of_the_record_is_that_of_today():
    """The property itself in the first draw, at three strengths; at 0 the model is not steered."""
    (params, heads), want = study.model(), record()["steering"]["1"]
    fit, ids = study.windows("train", 1, study.FIT), study.windows("test", 1, study.PUSHED)
    X, Y = (study.streams(part, params, heads)[4] for part in (fit, ids))
    v = probes.mean_difference(X.reshape(-1, X.shape[-1]), study.properties(fit)["next starts"].ravel())
    starts = np.array([text[:1] in " \n" for text in study._tokens()])
    for strength in (-2, 0, 2):
        got = study.said(probes.steered(Y, v, float(strength)), ids, 2, starts)
        compare(got, want["next starts"][study.STRENGTHS.index(strength)], name=f"strength {strength}", atol=2e-3)
    plain = study.loss(study.onward(Y, 2), ids)
    assert abs(want["random"][0][study.STRENGTHS.index(0)][1] - plain) < 2e-3


def test_a_sweep_goes_on_until_its_best_is_inside(monkeypatch):
    seen = []

    def probe(X, y, held, z, c):
        seen.append(c)
        return 1 - abs(np.log10(c) - 2) / 10

    monkeypatch.setattr(study, "probe", probe)
    found = study._sweep(np.ones((40, 2)), np.arange(40) % 2, np.arange(40), np.arange(40), "new words")
    assert found["chosen"] == 100 and sorted(seen) == [1e-3, 1e-2, 1e-1, 1, 10, 100, 1000]
