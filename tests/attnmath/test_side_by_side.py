"""The models of the comparison are equal in all but what is compared, and keep and compute what is said."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import attnmath.torch as at
from attnmath import layouts, memory_tasks
from attnmath import side_by_side as side
from attnmath.cache import KeyValueCache
from attnmath.check import compare


@pytest.mark.parametrize("task", side.TASKS)
def test_what_trains_what_chooses_and_what_tests_share_nothing(task):
    draw, held = side.data(task, np.random.default_rng(0))
    parts = [{tuple(row) for row in ids.tolist()} for ids, _ in held.values()]
    seen = {tuple(row) for _ in range(40) for row in draw()[0].tolist()}
    assert not seen & parts[0] and not seen & parts[1] and not parts[0] & parts[1]
    sizes = {"digits": (side.CHOOSING, 1797 - side.TRAINED - side.CHOOSING)}.get(task, (side.DRAWN, side.DRAWN))
    assert tuple(len(ids) for ids, _ in held.values()) == sizes and list(held) == ["validation", "accuracy"]


@pytest.mark.parametrize("mixer", ["decay", "mamba-2"])
def test_a_memory_forgets_at_first_as_its_start_says(mixer):
    def halves(start):
        """Half-lives of the heads of all layers, in rows, when the rows say nothing."""
        found, named = [], dict(side.build(mixer, "digits", 5, start).named_parameters())
        for i in range(side.LAYERS):
            layer = f"layers.{i}.attention."
            if mixer == "decay":
                found += (-math.log(2) / F.logsigmoid(named[layer + "decay.bias"])).tolist()
            else:
                found += (math.log(2) / F.softplus(named[layer + "step"]) / named[layer + "rate"].exp()).tolist()
        return found

    compare(halves("adapted"), [128.0] * 4, name="half-lives", rtol=1e-3)
    low, high = math.log(2) / 0.1 / 16, math.log(2) / 1e-3 / 1
    drawn = halves("published")
    assert len(set(drawn)) == 4 and all(low < half < high for half in drawn)


@pytest.mark.parametrize("task", side.TASKS)
def test_the_models_have_about_as_many_parameters(task):
    counts = {m: sum(map(math.prod, side.sizes(m, task).values())) for m in side.MIXERS}
    assert max(counts.values()) / min(counts.values()) < 1.01
    for mixer in ("softmax", "delta + softmax", "experts", "s4d"):
        model = side.build(mixer, task, 0)
        assert sum(p.numel() for p in model.parameters()) == counts[mixer]


@pytest.mark.parametrize("mixer", side.MIXERS)
def test_the_models_are_causal_and_look_back(mixer):
    model, ids = side.build(mixer, "recall", 1), memory_tasks.recall(np.random.default_rng(0), 2, side.PAIRS)[0]
    moved = ids.copy()
    moved[:, 9] = (moved[:, 9] + 1) % side.VOCABULARY["recall"]
    with torch.no_grad():
        Y, Z = (model(torch.from_numpy(X)) for X in (ids, moved))
    compare(Z[:, :9], Y[:, :9], name="the past", atol=1e-5)
    changes = (Z - Y).abs().amax((0, 2))
    assert changes[9] > 1e-2 and changes[13] > 1e-5
    assert changes[23] > 1e-7  # 14 tokens later, as far as two windows of 4 behind convolutions of 4 reach


def test_a_window_reaches_as_far_as_is_said():
    model, reach = side.build("window", "digits", 1), 2 * (side.NEAR + side.TAPS - 1)
    ids = torch.zeros(1, 64, dtype=torch.int64)
    moved = ids.clone()
    moved[0, 20] = 9
    with torch.no_grad():
        changes = (model(moved) - model(ids)).abs().amax((0, 2))
    assert (changes[20 : 21 + reach] > 0).all() and (changes[21 + reach :] == 0).all()
    assert reach < side.LENGTH["recall"] - 1  # so some of the pairs are out of its sight


def test_what_is_asked_for_is_a_token_of_the_text():
    task = "recall"
    draw, held = side.data(task, np.random.default_rng(0))
    for ids, targets in (draw(), *held.values()):
        assert ids.shape[1] == side.LENGTH[task] and ids.max() < side.VOCABULARY[task]
        for text, wanted in zip(ids.tolist(), targets.tolist(), strict=True):
            assert {answer for answer in wanted if answer >= 0} <= set(text)


def test_a_model_of_two_kinds_has_both():
    found = side.cores()
    assert side.parts("delta + softmax")["attend"] == [found["delta"], at.attention_fused]
    window = side.parts("window")["attend"][1]
    mask = window.keywords["layout"].mask(20)
    assert (mask == layouts.window(side.NEAR, causal=True).mask(20)).all()
    sparse = found["sparse"].keywords["layout"].mask(20)
    assert (
        (sparse & ~mask).any()
        and not np.triu(sparse, 1).any()
        and layouts.layers_to_reach(sparse, wanted=np.tri(20, dtype=bool)) == 2
    )


def test_the_order_of_the_layers_is_that_of_the_name():
    def functions(cores):
        return [getattr(core, "func", core) for core in cores]

    cores = side.cores()
    for name in set(side.MIXERS) - set(side.SINGLE):
        first, second = name.split(" + ")
        assert functions(side.parts(name)["attend"]) == functions([cores[first], cores[second]])
        assert f"{second} + {first}" in side.MIXERS  # both orders


def test_gates_reach_the_memory(rng):
    Q, K, V = torch.tensor(rng.standard_normal((3, 2, 7, 4)))
    gates = {name: torch.tensor(rng.uniform(0.2, 0.9, (2, 7, 1))) for name in side.GATES}
    found, (q, k) = side.cores(), (X / X.norm(dim=-1, keepdim=True) for X in (Q, K))
    # the duality: a scalar decay of fast weights is the state space with the logarithm of it
    compare(
        found["decay"](Q, K, V, **gates), at.fast_weights(q, gates["rate"] * k, V, decay=gates["decay"]), name="decay"
    )
    recurrent = at.fast_weights_recurrent
    compare(found["delta"](Q, K, V, **gates), recurrent(q, k, V, beta=gates["rate"]), name="delta")
    wanted = recurrent(q, k, V, beta=gates["rate"], decay=gates["decay"])
    compare(found["gated delta"](Q, K, V, **gates), wanted, name="gated delta")


def test_what_is_kept_while_writing_is_what_the_library_keeps(rng):
    n, h, k = 37, 3, 8
    Q, K, V = torch.tensor(rng.standard_normal((3, h, n, k)))
    cache = KeyValueCache()
    cache.append(K, V)
    kept = {"softmax": sum(X.numel() for X in cache.kept)}
    S = at.fast_weights_state(K, V)
    kept |= dict.fromkeys(("decay", "delta", "gated delta"), S.numel())
    kept["linear"] = (at.elu_plus_one(K).transpose(-1, -2) @ torch.cat([V, V[..., :1]], -1)).numel()
    found = side.cores()
    for name in ("window", "sparse"):
        row = found[name].keywords["layout"].mask(n)[-1]
        kept[name] = int(row.sum()) * 2 * h * k
    assert {name: side.writing(name, n, h, k)[0] for name in kept} == kept
    work = {}
    for name, run in {
        "softmax": lambda: at.attention(Q[:, -1:], K, V),
        "delta": lambda: at.fast_weights_recurrent(
            Q[:, -1:], K[:, -1:], V[:, -1:], beta=torch.full((h, 1, 1), 0.5, dtype=K.dtype), state=S
        ),
    }.items():
        with FlopCounterMode(display=False) as counter:
            run()
        work[name] = counter.get_total_flops()
    assert {name: side.writing(name, n, h, k)[1] for name in work} == work


def test_a_state_of_fixed_size_does_not_grow():
    names = ("linear", "performer", "decay", "delta", "gated delta", "mamba-2", "s4d")
    for name in names:
        assert side.writing(name, 64, 4, 64) == side.writing(name, 10**6, 4, 64)
    assert side.writing("window", 64, 4, 64) == side.writing("window", 10**6, 4, 64)
    assert side.writing("softmax", 128, 4, 64)[0] == 2 * side.writing("softmax", 64, 4, 64)[0]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: side.parts("rnn"), "mixer"),
        (lambda: side.data("parity", None), "task"),
        (lambda: side.writing("experts", 3, 1, 1), "name"),
        (lambda: side.build("decay", "recall", 0, "late"), "start"),
    ],
)
def test_a_wrong_name_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
