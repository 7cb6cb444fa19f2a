"""Widths: the factors of each kind, what the decoder does with them, and that the rules agree at the base."""

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import width
from attnmath.check import compare
from attnmath.torch.modules import to_numpy

SIZES = (11, 2, 2, 7)  # tokens, heads, layers, places


def decoder(d, rule="mup", base=4, seed=3):
    tokens, heads, layers, places = SIZES
    return width.ScaledDecoder(tokens, d, heads, layers, places, base=base, rule=rule, seed=seed)


def test_factors_are_those_of_table_8():
    """Of Yang et al.: in width, the spreads are 1, 1/sqrt n, 1; the rates 1, 1/n, 1; the multiplier of the head 1/n."""
    r = 16
    kinds = ("input", "hidden", "output")
    assert [width.factors(kind, 32 * r, 32) for kind in kinds] == [(1, 1, 1), (1 / 4, 1 / r, 1), (1, 1, 1 / r)]
    standard = [width.factors(kind, 32 * r, 32, "standard") for kind in kinds]
    assert standard == [(1, 1, 1), (1 / 4, 1, 1), (1 / 4, 1, 1)]
    assert width.score_scale(64, 4) == 2 / 64 and width.score_scale(64, 4, "standard") == 1 / 8
    assert width.score_scale(16, 16) == width.score_scale(16, 16, "standard") == 1 / 4


def test_a_narrow_model_has_larger_rates():
    assert width.factors("hidden", 8, 32).rate == 4.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: width.factors("tied", 8, 4), r"kind is 'tied'; expected one of 'input', 'hidden', 'output'"),
        (lambda: width.factors("input", 8, 4, "sp"), r"rule is 'sp'; expected one of 'standard', 'mup'"),
        (lambda: width.factors("input", 0, 4), r"width is 0; it must be > 0"),
        (lambda: width.score_scale(8, 0), r"base is 0; it must be > 0"),
        (lambda: decoder(8, base=5), r"heads is 2; .* divides the width 5 of the base model"),
        (lambda: decoder(9), r"heads is 2; .* divides the width 9 of the module"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_at_the_base_the_rules_are_one_model():
    ids = torch.arange(7)[None]
    models = [decoder(4, rule) for rule in width.EXPONENTS]
    compare(models[0](ids), models[1](ids), atol=0.0)
    assert [group["scale"] for group in models[1].groups()] == [1.0, 1.0, 1.0]


def test_each_parameter_is_in_one_group_with_the_scale_of_its_kind():
    model = decoder(12)
    groups = model.groups()
    assert sorted(len(group["params"]) for group in groups) == [1, 2 * 6, 2 + 2 * (4 + 2 + 4) + 2]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    scale = {id(P): group["scale"] for group in groups for P in group["params"]}
    third = {name for name, P in model.named_parameters() if scale[id(P)] == 1 / 3}
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in third} == {
        *("query", "key", "value", "output", "up", "down")
    }


@pytest.mark.parametrize("rule", width.EXPONENTS)
def test_first_values_have_the_spreads_of_the_rule(rule):
    model, d = decoder(64, rule, base=16), 64
    spread = {name: P.std().item() for name, P in model.named_parameters() if P.ndim == 2}
    compare(spread["embeddings.word"], 0.1, atol=0.01)
    compare(spread["layers.1.attention.key.weight"], d**-0.5, atol=0.01)
    compare(spread["layers.0.feed_forward.down.weight"], (4 * d) ** -0.5, atol=0.005)
    compare(spread["head.weight"], 16**-0.5 if rule == "mup" else d**-0.5, atol=0.02)
    assert spread["layers.0.attention.key.weight"] != spread["layers.1.attention.key.weight"]


@pytest.mark.claim("eq:output-multiplier", "eq:score-scale")
@pytest.mark.parametrize("rule", width.EXPONENTS)
def test_the_decoder_is_the_librarys_with_its_scales(rule, rng):
    """By NumPy's decoder in float64, with scores and head scaled by hand."""
    from functools import partial

    model, ids = decoder(12, rule).double(), rng.integers(0, 11, (2, 7))
    with torch.no_grad():
        for P in model.parameters():
            P += 0.3 * torch.from_numpy(rng.standard_normal(P.shape))
    mup = rule == "mup"
    core = partial(an.attention, scale=2**0.5 / 6 if mup else 6**-0.5)
    join = partial(an.sublayer, norm_first=True)
    want, _ = an.decoder_only(ids, to_numpy(model.tree()), 2, attend=core, norm=an.layer_norm, join=join)
    compare(model(torch.from_numpy(ids)), want / 3 if mup else want, atol=1e-12)


def test_a_training_step_uses_the_scales():
    """By hand: Adam's first step moves each entry by the rate of its kind, up or down."""
    model, ids = decoder(8), torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
    before = {name: P.detach().clone() for name, P in model.named_parameters()}
    groups = [{"params": group["params"], "lr": 1e-3 * group["scale"]} for group in model.groups()]
    adam = torch.optim.Adam(groups, eps=1e-30)
    at.cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
    adam.step()
    moved = {name: (P.detach() - before[name]).abs().max().item() for name, P in model.named_parameters()}
    for name, far in moved.items():
        if ".key.bias" not in name:  # its gradient is 0 up to rounding
            compare(far, 5e-4 if width.kind_of(name) == "hidden" else 1e-3, name=name, atol=2e-6)
    np.testing.assert_array_less(0, list(moved.values()))
