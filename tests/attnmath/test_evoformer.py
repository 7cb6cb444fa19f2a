"""An Evoformer against transformers' folding trunk and against loops; its work, its cores, and bad input."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import evoformer as sizes
from attnmath import shapes
from attnmath.check import check_vjp, compare
from attnmath.tree import flatten, map_tree
from tests.attnmath.test_references import randomised

B, S, N, D, HEADS, K = 2, 5, 7, 6, 3, 4  # batch, sequences, points, width, heads, their width
MASK = np.random.default_rng(4).random((B, N, N)) < 0.6
MASK |= np.eye(N, dtype=bool)


def named(model, path):
    """A linear map or a norm of theirs as a leaf of ours."""
    part = model.get_submodule(path)
    if isinstance(part, torch.nn.Linear):
        return {"weight": part.weight.T} | ({} if part.bias is None else {"bias": part.bias})
    return {"gain": part.weight, "bias": part.bias}


def renamed(model, names):
    return {ours: named(model, theirs) for ours, theirs in names.items()}


GATED = {
    "norm": "layer_norm",
    "pair": "linear",
    "query": "mha.linear_q",
    "key": "mha.linear_k",
    "value": "mha.linear_v",
    "gate": "mha.linear_g",
    "output": "mha.linear_o",
}
SIDES = {
    "norm": "layer_norm_in",
    "left": "linear_a_p",
    "left_gate": "linear_a_g",
    "right": "linear_b_p",
    "right_gate": "linear_b_g",
    "product_norm": "layer_norm_out",
    "output": "linear_z",
    "gate": "linear_g",
}


def check_against(model, params, theirs, call, *shape):
    """Value, and the gradients of the input and of every parameter, by the twin and by hand, to 1e-10.

    ``call(world, Z, params)`` is our component; the gradients of parameters are carried back to theirs by autograd.
    """
    Z = torch.from_numpy(np.random.default_rng(1).standard_normal(shape)).requires_grad_()
    dO = torch.from_numpy(np.random.default_rng(2).standard_normal(shape))
    used = [p for p in model.parameters() if p.requires_grad]
    O = theirs(Z)
    assert O.dtype == torch.float64
    want = torch.autograd.grad(O, [Z, *used], dO)
    assert min(g.abs().max() for g in want) > 1e-3
    twin = call(at, Z, params)
    compare(twin, O, name="twin", atol=1e-10, rtol=1e-10)
    got = torch.autograd.grad(twin, [Z, *used], dO, retain_graph=True)
    compare(got, want, name="twin's gradients", atol=1e-10, rtol=1e-10)
    value, vjp = call(an, Z.detach().numpy(), at.to_numpy(params))
    compare(value, O, name="by hand", atol=1e-10, rtol=1e-10)
    dZ, dparams = vjp(dO.numpy())
    compare(dZ, want[0], name="dZ by hand", atol=1e-10, rtol=1e-10)
    leaves, cotangents = flatten(params), flatten(dparams)
    assert leaves.keys() == cotangents.keys()
    back = torch.autograd.grad(list(leaves.values()), used, [torch.tensor(cotangents[key]) for key in leaves])
    compare(back, want[1:], name="dparams by hand", atol=1e-10, rtol=1e-10)


def given(world, mask):
    """The mask as ours take it."""
    return True if mask is None else (torch.from_numpy(mask) if world is at else mask)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("starting", [True, False])
def test_triangle_attention_is_that_of_the_folding_trunk(starting, mask):
    from transformers.models.esm.modeling_esmfold import EsmFoldTriangleAttention

    model = randomised(EsmFoldTriangleAttention(D, K, HEADS, starting=starting))
    theirs = partial(model, mask=None if mask is None else torch.from_numpy(mask).double())
    call = lambda w, Z, p: w.triangle_attention(Z, p, HEADS, given(w, mask), starting=starting)  # noqa: E731
    check_against(model, renamed(model, GATED), theirs, call, B, N, N, D)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("outgoing", [True, False])
def test_triangle_update_is_that_of_the_folding_trunk(outgoing, mask):
    from transformers.models.esm.modeling_esmfold import EsmFoldTriangleMultiplicativeUpdate

    model = randomised(EsmFoldTriangleMultiplicativeUpdate(SimpleNamespace(pairwise_state_dim=D), outgoing))
    theirs = partial(model, mask=None if mask is None else torch.from_numpy(mask).double())
    call = lambda w, Z, p: w.triangle_update(Z, p, given(w, mask), outgoing=outgoing)  # noqa: E731
    check_against(model, renamed(model, SIDES), theirs, call, B, N, N, D)


@pytest.mark.slow
def test_pair_layer_is_that_of_the_folding_trunk():
    """Whose block does more: its sequence is kept from the pairs by zeros."""
    from transformers.models.esm.modeling_esmfold import EsmFoldTriangularSelfAttentionBlock

    described = dict(sequence_state_dim=4, pairwise_state_dim=D, sequence_head_width=2, pairwise_head_width=2)
    model = randomised(EsmFoldTriangularSelfAttentionBlock(SimpleNamespace(**described, dropout=0.0)))
    for name, parameter in model.named_parameters():
        if not name.startswith(("tri_", "mlp_pair")):
            parameter.requires_grad_(False)
    with torch.no_grad():
        model.sequence_to_pair.o_proj.weight.zero_()
        model.sequence_to_pair.o_proj.bias.zero_()
    params = {
        name: renamed(model.get_submodule(path), names)
        for name, path, names in (
            ("outgoing", "tri_mul_out", SIDES),
            ("incoming", "tri_mul_in", SIDES),
            ("starting", "tri_att_start", GATED),
            ("ending", "tri_att_end", GATED),
            ("transition", "mlp_pair.mlp", {"norm": "0", "up": "1", "down": "3"}),
        )
    }
    sequence = torch.ones(B, N, 4, dtype=torch.float64)
    call = lambda w, Z, p: w.pair_layer(Z, p, D // 2)  # noqa: E731
    check_against(model, params, lambda Z: model(sequence, Z)[1], call, B, N, N, D)


@pytest.mark.slow
@pytest.mark.parametrize("along", ["row", "column"])
def test_rows_and_columns_are_gated_attention_with_a_bias(along):
    """transformers has no alignment, but the gated attention of which both consist, and one bias for all rows."""
    from transformers.models.esm.modeling_esmfold import EsmFoldAttention

    model = randomised(EsmFoldAttention(D, D, D, K, HEADS))
    rng = np.random.default_rng(6)
    own = {ours: theirs.removeprefix("mha.") for ours, theirs in GATED.items() if theirs.startswith("mha.")}
    extra = shapes.random_tree({"norm": shapes.norm_shapes(D), "pair_norm": shapes.norm_shapes(D)}, rng)
    extra = at.from_numpy(extra | {"pair": {"weight": rng.standard_normal((D, HEADS))}})
    Z = torch.from_numpy(rng.standard_normal((N, N, D)))
    normed = lambda X, leaf: torch.nn.functional.layer_norm(X, (D,), leaf["gain"], leaf["bias"])  # noqa: E731
    bias = (normed(Z, extra["pair_norm"]) @ extra["pair"]["weight"]).permute(2, 0, 1)

    def theirs(M):
        X = normed(M, extra["norm"])
        if along == "row":
            return model(X, X, [bias])
        return model(X.transpose(-2, -3), X.transpose(-2, -3), []).transpose(-2, -3)

    def call(world, M, p):
        more = extra if world is at else at.to_numpy(extra)
        if along == "row":
            result = world.row_attention(M, Z if world is at else Z.numpy(), p | more, HEADS)
        else:
            result = world.column_attention(M, p | {"norm": more["norm"]}, HEADS)
        if world is at:
            return result
        O, vjp = result

        def theirs_alone(dO):
            found = vjp(dO)
            return found[0], {name: found[-1][name] for name in own}

        return O, theirs_alone

    check_against(model, renamed(model, own), theirs, call, S, N, D)


def test_the_mean_of_outer_products_is_a_loop(rng):
    A, C = rng.standard_normal((S, N, 2)), rng.standard_normal((S, N, 3))
    there = rng.random((S, N)) < 0.6
    want = np.zeros((N, N, 6))
    for i in range(N):
        for j in range(N):
            both = [np.outer(A[s, i], C[s, j]).ravel() for s in range(S) if there[s, i] and there[s, j]]
            want[i, j] = np.mean(both, 0) if both else 0
    assert (want == 0).all(-1).any() and not there.all()
    compare(an.mean_outer_product(A, C, there)[0], want, name="by hand")
    compare(at.mean_outer_product(*map(torch.from_numpy, (A, C, there))), want, name="twin")


def test_what_is_not_there_is_not_read(rng):
    """Changing masked entries changes nothing elsewhere, whatever they hold."""
    M, Z = rng.standard_normal((S, N, D)), rng.standard_normal((N, N, D))
    there, pairs = rng.random((S, N)) < 0.7, MASK[0]
    there[0], there[:, 0] = True, True
    other = np.where(there[..., None], M, 1e3 * rng.standard_normal(M.shape))
    wrong = np.where(pairs[..., None], Z, 1e3 * rng.standard_normal(Z.shape))
    for name, tree, more in (
        ("row_attention", sizes.row_attention_shapes(D, D, HEADS), (Z,)),
        ("column_attention", sizes.column_attention_shapes(D, HEADS), ()),
    ):
        params = shapes.random_tree(tree, rng, 0.5)
        O, P = (getattr(an, name)(X, *more, params, HEADS, there)[0] for X in (M, other))
        compare(P[there], O[there], name=name)
        assert np.abs(P[~there] - O[~there]).max() > 1e-3
    params = shapes.random_tree(sizes.outer_product_shapes(D, 2, 3), rng)
    compare(*(an.outer_product_mean(X, params, there)[0] for X in (other, M)), name="outer product", atol=1e-11)
    params = shapes.random_tree(sizes.triangle_update_shapes(D), rng)
    for outgoing in (True, False):
        O, P = (an.triangle_update(X, params, pairs, outgoing=outgoing)[0] for X in (Z, wrong))
        compare(P[pairs], O[pairs], name="update")
    infinite = np.where(pairs[..., None], Z, np.nan)
    assert np.isfinite(an.triangle_product(infinite, infinite, pairs)[0]).all()
    twin = torch.from_numpy(infinite)
    assert at.triangle_product(twin, twin, torch.from_numpy(pairs)).isfinite().all()


def test_any_core_may_be_gated(rng):
    """The weights of triangle attention can be written down, and another core can stand in its place."""
    params = shapes.random_tree(sizes.triangle_attention_shapes(D, HEADS), rng, 0.5)
    Z, seen = rng.standard_normal((N, N, D)), {}
    O, vjp = an.triangle_attention(Z, params, HEADS)
    P, recorded_vjp = an.triangle_attention(Z, params, HEADS, attend=an.recording(an.attention, seen))
    compare(P, O, name="recorded")
    dO = rng.standard_normal(O.shape)
    compare(recorded_vjp(dO)[0], vjp(dO)[0], name="dZ")
    assert seen["weights"].shape == (N, HEADS, N, N)  # rows, heads, queries, keys
    compare(seen["weights"].sum(-1), np.ones((N, HEADS, N)), name="rows of weights")
    blind = np.ones((N, N), bool)
    blind[2] = False
    zero = partial(an.attention_fused, empty_rows="zero")
    Q, _ = an.triangle_attention(Z, params, HEADS, blind, attend=zero)
    compare(Q[2], np.broadcast_to(params["output"]["bias"], (N, D)), name="a row that sees nothing")
    with pytest.raises(ValueError, match="may attend to no key"):
        an.triangle_attention(Z, params, HEADS, blind)


def test_a_gate_closes_and_opens(rng):
    Q, Ks, V = rng.standard_normal((3, 4)), rng.standard_normal((5, 4)), rng.standard_normal((5, 2))
    open_, _ = an.attention(Q, Ks, V)
    gate = np.full((3, 2), 1e4)
    with np.errstate(all="raise", under="ignore"):
        O, _ = an.gated_attention(Q, Ks, V, gate=gate)
        compare(O, open_, name="open")
        shut, shut_vjp = an.gated_attention(Q, Ks, V, gate=-gate)
        compare(shut, np.zeros((3, 2)), name="closed")
        assert np.isfinite(shut_vjp(rng.standard_normal((3, 2)))[-1]).all()
    check_vjp(lambda V, A: _last(an.gated_attention(Q, Ks, V, gate=A)), V, rng.standard_normal((3, 2)), rng=rng)


def _last(result):
    O, vjp = result
    return O, lambda dO: vjp(dO)[2:]


@pytest.mark.slow
@pytest.mark.claim("prop-triangle-cost")
def test_the_work_of_triangles():
    """2 n^3 c of the product, 4 n^3 h k of scores and values, as PyTorch counts them."""
    n, heads, k = 11, 3, 4
    Z = torch.ones(n, n, D, dtype=torch.float64)
    with FlopCounterMode(display=False) as counter:
        at.triangle_product(Z, Z)
    assert counter.get_total_flops() == 2 * n**3 * D
    params = at.from_numpy(shapes.random_tree(sizes.triangle_attention_shapes(D, heads, k), np.random.default_rng(0)))
    with FlopCounterMode(display=False) as counter:
        at.triangle_attention(Z, params, heads, attend=at.attention)
    projections = 2 * n**2 * D * (5 * heads * k + heads)
    assert counter.get_total_flops() == 4 * n**3 * heads * k + projections


GOOD = {
    "row_attention": lambda w, lift, **o: w.row_attention(
        *lift(o.get("M", (S, N, D)), o.get("Z", (N, N, D)), o.get("params", sizes.row_attention_shapes(D, D, HEADS))),
        o.get("heads", HEADS),
        *o.get("mask", ()),
    ),
    "column_attention": lambda w, lift, **o: w.column_attention(
        *lift((S, N, D), o.get("params", sizes.column_attention_shapes(D, HEADS))), HEADS, *o.get("mask", ())
    ),
    "mean_outer_product": lambda w, lift, **o: w.mean_outer_product(
        *lift(o.get("M", (S, N, D)), o.get("Z", (S, N, 2))), *o.get("mask", ())
    ),
    "triangle_product": lambda w, lift, **o: w.triangle_product(
        *lift(o.get("M", (N, N, D)), o.get("Z", (N, N, D))), *o.get("mask", ())
    ),
    "triangle_update": lambda w, lift, **o: w.triangle_update(
        *lift(o.get("Z", (N, N, D)), o.get("params", sizes.triangle_update_shapes(D))), *o.get("mask", ())
    ),
    "triangle_attention": lambda w, lift, **o: w.triangle_attention(
        *lift(o.get("Z", (N, N, D)), o.get("params", sizes.triangle_attention_shapes(D, HEADS))),
        o.get("heads", HEADS),
        *o.get("mask", ()),
    ),
}
WITHOUT_GATE = {k: v for k, v in sizes.triangle_attention_shapes(D, HEADS).items() if k != "gate"}
BAD = [
    ("row_attention", {"Z": (N, N + 1, D)}, r"Z has shape \(7, 8, 6\)"),
    ("row_attention", {"Z": (N + 1, N + 1, D)}, r"n = 7"),
    ("row_attention", {"params": sizes.row_attention_shapes(D, D, 1)}, r"params\['pair'\] has 1 columns; expected one"),
    ("row_attention", {"params": sizes.column_attention_shapes(D, HEADS)}, "lacks 'pair_norm', 'pair'"),
    (
        "row_attention",
        {"mask": (np.ones((N, S), bool),)},
        r"\(7, 5\), which does not broadcast to \(5, 7\): one boolean",
    ),
    (
        "column_attention",
        {"mask": (np.ones((S, N)),)},
        "mask has dtype .*float64; expected booleans, True for position",
    ),
    ("column_attention", {"params": sizes.row_attention_shapes(D, D, HEADS)}, "holds 'pair_norm', 'pair'"),
    ("mean_outer_product", {"M": (0, N, D), "Z": (0, N, 2)}, "at least one sequence"),
    ("mean_outer_product", {"Z": (S, N + 1, 2)}, "n = 7"),
    ("mean_outer_product", {"mask": (np.ones((N, N), bool),)}, "does not broadcast"),
    ("triangle_product", {"Z": (N, N, D + 1)}, "c = 6"),
    ("triangle_product", {"mask": ([True],)}, "mask has dtype list"),
    ("triangle_update", {"Z": (N, N - 1, D)}, r"\(7, 6, 6\)"),
    ("triangle_update", {"params": sizes.triangle_attention_shapes(D, HEADS)}, "lacks 'left'"),
    ("triangle_attention", {"params": WITHOUT_GATE}, "lacks 'gate'"),
    ("triangle_attention", {"heads": 4}, "4"),
    ("triangle_attention", {"mask": (np.ones((2, N, N), bool),)}, "does not broadcast"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("name", "wrong", "said"), BAD)
def test_bad_input_gets_one_clear_line(name, wrong, said, world, as_users_call, rng):
    def lift(*parts):
        arrays = [shapes.random_tree(p, rng) if isinstance(p, dict) else rng.standard_normal(p) for p in parts]
        return [map_tree(torch.from_numpy, X) for X in arrays] if world is at else arrays

    wrong = dict(wrong)
    if world is at and "mask" in wrong and isinstance(wrong["mask"][0], np.ndarray):
        wrong["mask"] = (torch.from_numpy(wrong["mask"][0]),)
    GOOD[name](world, lift)
    with pytest.raises(ValueError, match=said) as error:
        GOOD[name](world, lift, **wrong)
    assert "\n" not in str(error.value)
