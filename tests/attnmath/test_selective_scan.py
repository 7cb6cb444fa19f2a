"""Selective scans: forms that are equal, whole models of transformers, what is held, and bad input in one sentence."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import count, shapes
from attnmath.check import check_vjp, compare
from attnmath.state_shapes import mamba_shapes
from attnmath.tree import flatten, unflatten
from tests.attnmath.cases.selective_scan import dual_draw, scanned
from tests.attnmath.converted import check_unlifted

WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def value(result):
    """The value in either world."""
    return result[0] if isinstance(result, tuple) else result


def given(world, args):
    return args if world is an else [torch.from_numpy(X) for X in args]


@WORLDS
@pytest.mark.parametrize("form", ["sequential", "parallel"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 100, 1000])
def test_chunks_of_any_size_and_both_forms_are_equal(world, form, chunk, rng):
    args = given(world, scanned(2, n=100, step=0.1)(rng))
    want = value(world.selective_scan(*args, chunk=1000))
    compare(value(world.selective_scan(*args, chunk=chunk, form=form)), want, name="scan", atol=1e-11)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 31, 100])
@WORLDS
def test_a_parallel_scan_is_the_sequential_one(world, n, rng):
    args = given(world, (rng.uniform(-1, 1, (2, n, 3)), rng.standard_normal((2, n, 3))))
    want = value(world.linear_scan(*args))
    compare(value(world.linear_scan(*args, form="parallel")), want, name="scan", atol=1e-12)


@WORLDS
@pytest.mark.parametrize("chunk", [1, 4, 9, 50])
def test_the_dual_in_chunks_is_the_quadratic_form(world, chunk, rng):
    from tests.attnmath.cases.case import K, V

    Q, Ks, Vs = (rng.standard_normal((2, 3, 37, w)) for w in (K, K, V))
    g = -0.1 * rng.exponential(size=(3, 37))
    Q, Ks, Vs, g = given(world, (Q, Ks, Vs, g))
    want = value(world.state_space_dual(Q, Ks, Vs, decay=g))
    compare(value(world.state_space_dual(Q, Ks, Vs, decay=g, chunk=chunk)), want, name="chunks", atol=1e-11)


def test_the_backward_pass_holds_one_state_for_each_chunk(rng):
    """And not one for each row: with chunks of c rows, n/c states of d s numbers."""
    n, d, s = 512, 8, 16
    U, step, B, C = (rng.standard_normal(shape) for shape in ((n, d), (n, d), (n, s), (n, s)))
    A, step = -np.exp(rng.standard_normal((d, s))), np.abs(step)
    inputs = sum(X.nbytes for X in (U, step, A, B, C))
    for chunk in (16, 64, 512):
        held = count.bytes_held(an.selective_scan(U, step, A, B, C, chunk=chunk)[1])
        states = n // chunk * d * s * 8
        assert inputs + states <= held <= inputs + states + 1.2 * (U.nbytes + d * s * 8)
    Q, K, V, g = rng.standard_normal((n, s)), B, U, -step[:, 0]
    linear = count.bytes_held(an.state_space_dual(Q, K, V, decay=g, chunk=64)[1])
    quadratic = count.bytes_held(an.state_space_dual(Q, K, V, decay=g)[1])
    assert quadratic > n * n * 8 and linear < 2 * (Q.nbytes + K.nbytes + V.nbytes + g.nbytes) + n // 64 * d * s * 8


class MambaModel:
    """Our functions on the parameters of transformers' MambaForCausalLM."""

    def __init__(self, model):
        self.params = {}
        names = {"in_proj": "input", "x_proj": "select", "out_proj": "output", "dt_proj": "step"}
        for key, tensor in model.named_parameters():
            parts = key.removeprefix("backbone.").split(".")
            if parts[0] != "layers":
                self.params[key.removeprefix("backbone.")] = tensor
                continue
            i, kind, *rest = parts[1:]
            if kind == "norm":
                self.params[f"layers.{i}.mamba_norm.gain"] = tensor
            elif rest[0] == "conv1d":
                self.params[f"layers.{i}.mamba.conv.{rest[1]}"] = (
                    tensor[:, 0].T if rest[1] == "weight" else tensor.clone()
                )
            elif rest[0] in names:
                own = tensor.T if rest[1] == "weight" else tensor.clone()
                self.params[f"layers.{i}.mamba.{names[rest[0]]}.{rest[1]}"] = own
            else:
                self.params[f"layers.{i}.mamba.{ {'A_log': 'rate', 'D': 'skip'}[rest[0]] }"] = tensor.clone()

    @staticmethod
    def twin(ids, params, eps):
        tree = unflatten(params)
        X = tree["embeddings"]["weight"][ids]
        join = partial(at.sublayer, norm_first=True, norm=partial(at.rms_norm, eps=eps))
        for i in sorted(tree["layers"]):
            X = at.block(X, tree["layers"][i], {"mamba": at.mamba}, join)
        return at.rms_norm(X, tree["norm_f"]["weight"], eps) @ tree["embeddings"]["weight"].T

    @staticmethod
    def by_hand(ids, params, eps):
        tree = unflatten(params)
        word = tree["embeddings"]["weight"]
        X, vjps = word[ids], {}
        join = partial(an.sublayer, norm_first=True, norm=partial(an.rms_norm, eps=eps))
        for i in sorted(tree["layers"]):
            X, vjps[i] = an.block(X, tree["layers"][i], {"mamba": an.mamba}, join)
        H, norm_vjp = an.rms_norm(X, tree["norm_f"]["weight"], eps)

        def vjp(dZ):
            dX, dgain = norm_vjp(dZ @ word)
            dword = np.einsum("bnt,bnd->td", dZ, H)
            layers = {}
            for i in reversed(sorted(vjps)):
                dX, layers[i], _ = vjps[i](dX)
            np.add.at(dword, ids, dX)
            return {"embeddings": {"weight": dword}, "layers": layers, "norm_f": {"weight": dgain}}

        return H @ word.T, vjp


IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])


def small_mamba():
    """A MambaForCausalLM with random weights in float64."""
    from transformers import MambaConfig, MambaForCausalLM

    sizes = dict(hidden_size=6, state_size=3, time_step_rank=2, num_hidden_layers=2, vocab_size=11, conv_kernel=3)
    settings = MambaConfig(**sizes, tie_word_embeddings=True, layer_norm_epsilon=1e-4, residual_in_fp32=False)
    torch.manual_seed(3)
    model = MambaForCausalLM(settings).double().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter) + ("norm" in name))
    return model


@pytest.mark.slow
def test_a_whole_mamba_with_its_casts():
    model = small_mamba()
    with torch.no_grad():
        check_unlifted("Mamba", lambda: model(IDS).logits, lambda: MambaModel.twin(IDS, MambaModel(model).params, 1e-4))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_a_layer_with_its_casts(name, rng):
    """The layers of transformers on their torch paths, in float32 where they ask for it."""
    from tests.attnmath.cases import selective_scan as cases

    tree = shapes.random_tree({"mamba": cases.MAMBA, "mamba2": cases.MAMBA2}[name], rng, 0.5)
    X, params = torch.from_numpy(rng.standard_normal((2, 7, cases.D))), at.from_numpy(tree)
    theirs = partial({"mamba": cases.mamba_reference, "mamba2": cases.mamba2_reference}[name], lifted=False)
    with torch.no_grad():
        exact = theirs(X, params)
        check_unlifted(name, lambda: exact, lambda: getattr(at, name)(X, params))
    by_hand = getattr(an, name)(X.numpy(), tree)[0]
    check_unlifted(f"NumPy {name}", lambda: exact, lambda: torch.from_numpy(by_hand.copy()))


@pytest.mark.slow
def test_a_whole_mamba_of_transformers(monkeypatch):
    """Logits, and the gradient of every parameter, in both worlds: pre-norm blocks whose only step is our layer."""
    from transformers.models.mamba import modeling_mamba

    from tests.attnmath.test_references import Wide

    monkeypatch.setattr(modeling_mamba, "torch", Wide("torch"))
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    model, ids = small_mamba(), IDS
    Z = model(ids).logits
    dZ = torch.from_numpy(np.random.default_rng(2).standard_normal(Z.shape))
    want = dict(zip(dict(model.named_parameters()), torch.autograd.grad(Z, model.parameters(), dZ), strict=True))
    assert min(g.abs().max() for g in want.values()) > 1e-5

    ours = MambaModel(model).params
    twin = MambaModel.twin(ids, ours, 1e-4)
    compare(twin, Z, name="value", atol=1e-10, rtol=1e-10)
    got = torch.autograd.grad(twin, model.parameters(), dZ, retain_graph=True)
    compare(dict(zip(want, got, strict=True)), want, name="gradient", atol=1e-9, rtol=1e-9)

    arrays = {key: tensor.detach().numpy() for key, tensor in ours.items()}
    Y, vjp = MambaModel.by_hand(ids.numpy(), arrays, 1e-4)
    compare(Y, Z, name="NumPy value", atol=1e-10, rtol=1e-10)
    cotangents = flatten(vjp(dZ.numpy()))
    assert set(cotangents) == set(ours)
    back = torch.autograd.grad(
        list(ours.values()), model.parameters(), [torch.tensor(cotangents[key]) for key in ours], retain_graph=True
    )
    compare(dict(zip(want, back, strict=True)), want, name="NumPy gradient", atol=1e-9, rtol=1e-9)


def core(world, chunk=None):
    decay = np.full((3, 1), -0.2) * np.arange(3)[:, None]
    return partial(world.state_space_dual, decay=given(world, [decay])[0], chunk=chunk)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 4])
def test_the_dual_is_a_core_of_any_model(chunk, rng):
    """With padding, in both worlds, by hand and by a finite difference; no file of a model knows of it."""
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 2, 9, heads=3), rng, 0.5)
    ids, mask = rng.integers(0, 11, (2, 9)), np.arange(9) < np.array([[9], [6]])
    Y, _ = an.decoder_only(ids, params, 3, mask, attend=core(an, chunk))
    twin = at.decoder_only(
        torch.from_numpy(ids), at.from_numpy(params), 3, torch.from_numpy(mask), attend=core(at, chunk)
    )
    compare(twin, Y, name="twin", atol=1e-10)
    check_vjp(lambda p: an.decoder_only(ids, p, 3, mask, attend=core(an, chunk)), params, rng=rng)
    plain, _ = an.decoder_only(ids, params, 3, mask)
    assert np.abs(Y - plain).max() > 1e-2


def test_the_dual_is_cached_and_recorded(rng):
    params = shapes.random_tree(shapes.decoder_only_shapes(11, 12, 7, 2, 9, heads=3), rng, 0.5)
    ids, record, cache = rng.integers(0, 11, (2, 9)), {}, {}
    whole, _ = an.decoder_only(ids, params, 3, attend=core(an), record=record)
    pieces = [an.decoder_only(ids[:, a:b], params, 3, attend=core(an), cache=cache)[0] for a, b in ((0, 4), (4, 9))]
    compare(np.concatenate(pieces, 1), whole, name="in pieces", atol=1e-10)
    P = record["layers"]["1"]["attention"]["weights"]
    assert P.shape == (2, 3, 9, 9) and not np.triu(P, 1).any() and P.min() < 0


@pytest.mark.slow
def test_attention_and_mamba_alternate_in_a_block(rng):
    """A hybrid: a step of a block each, by hand, in the twin, and by a finite difference."""
    tree = {
        "mamba": mamba_shapes(6, 12, 3, 2),
        "mamba_norm": {"gain": (6,)},
        "attention": shapes.attention_shapes(6, 2),
        "attention_norm": {"gain": (6,)},
    }
    params, X = shapes.random_tree(tree, rng, 0.5), rng.standard_normal((2, 7, 6))

    def hybrid(world, X, params):
        rows = world.causal_mask(7)
        own = world.own_attention(world.multi_head_attention, 2, rows, world.attention)
        join = partial(world.sublayer, norm=world.rms_norm, norm_first=True)
        return world.block(X, params, {"mamba": world.mamba, "attention": own}, join)

    Y, _ = hybrid(an, X, params)
    compare(hybrid(at, torch.from_numpy(X), at.from_numpy(params)), Y, name="twin", atol=1e-11)

    def alone(X, params):
        Y, vjp = hybrid(an, X, params)
        return Y, lambda dY: vjp(dY)[:2]

    check_vjp(alone, X, params, rng=rng)
    later = X.copy()
    later[:, 4:] += 1
    compare(hybrid(an, later, params)[0][:, :4], Y[:, :4], name="nothing sees what comes later")


U, A, B = np.ones((5, 3)), -np.ones((3, 2)), np.ones((5, 2))
SPOILT = B.copy()
SPOILT[3, 1] = np.nan
SCAN = [
    ((U, -U, A, B, B), {}, r"step holds -1; nonnegative numbers are expected, such as softplus or exp of what"),
    ((U, np.nan * U, A, B, B), {}, r"step holds nan; nonnegative"),
    ((U, U, -A, B, B), {}, r"A holds 1; it must be <= 0, or the state grows without bound: give -exp"),
    ((U, U, A, SPOILT, B), {}, r"B holds nan; the state would be NaN from there on: look at what computed it"),
    ((U, U, A, B, SPOILT), {}, r"C holds nan"),
    ((U, U[:4], A, B, B), {}, r"step has shape \(4, 3\), expected \(\.\.\., n, d\) with n = 5"),
    ((U, U, A, B, B), {"chunk": 0}, r"chunk is 0; it must be an integer >= 1"),
    ((U, U, A, B, B), {"chunk": 2.5}, r"chunk is 2\.5; it must be an integer >= 1"),
    ((U, U, A, B, B), {"form": "tree"}, r"form is 'tree'; expected one of 'sequential', 'parallel'"),
]
Q, G = np.ones((2, 5, 3)), -np.ones(5)
DIAGONAL = np.eye(5, dtype=bool)
DUAL = [
    ((Q, Q, Q), {"decay": -G}, r"decay holds 1; it must be <= 0"),
    ((Q, Q, Q), {"decay": np.nan * G}, r"decay holds nan"),
    ((Q, Q, Q), {"decay": G[:4]}, r"decay has shape \(4,\), which does not broadcast to \(2, 5\), one for each key"),
    ((Q, Q, Q), {"decay": G.astype(np.float32)}, r"decay has dtype .*float32 but Q has .*float64"),
    ((Q, np.nan * Q, Q), {}, r"K holds nan"),
    ((Q, Q[:, :4], Q[:, :4]), {}, r"n = 5 queries and m = 4 keys; the last query stands at the last key"),
    ((Q[:, :4], Q, Q), {"chunk": 2}, r"n = 4 queries and m = 5 keys; with a chunk they are as many: leave chunk=None"),
    ((Q, Q, Q), {"chunk": -1}, r"chunk is -1; it must be an integer >= 1"),
    ((Q, Q, Q, DIAGONAL), {"chunk": 2}, r"mask hides a key from some queries only; with a chunk it may hide keys"),
    ((Q, Q, Q, DIAGONAL.astype(float)), {}, r"masks are boolean"),
]
BAD = [("selective_scan", *row) for row in SCAN] + [("state_space_dual", *row) for row in DUAL]
BAD += [("linear_scan", (U, np.nan * U), {}, "B holds nan"), ("linear_scan", (U, U), {"form": 1}, "form is 1")]


@WORLDS
@pytest.mark.parametrize(("name", "args", "options", "message"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_one_sentence(world, name, args, options, message, as_users_call):
    if world is at:
        args = [torch.from_numpy(X) for X in args]
        options = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    with pytest.raises(ValueError, match=message) as caught:
        getattr(world, name)(*args, **options)
    assert "\n" not in str(caught.value)


@WORLDS
def test_a_layer_names_what_its_parameters_lack(world, rng):
    params = shapes.random_tree(mamba_shapes(6, 12, 3, 2), rng, 0.5)
    params = params if world is an else at.from_numpy(params)
    (X,) = given(world, [rng.standard_normal((5, 6))])
    del params["skip"]
    with pytest.raises(ValueError, match="params lacks 'skip'"):
        world.mamba(X, params)


def test_values_that_cannot_be_looked_at_are_let_pass():
    args = [torch.from_numpy(X).to("meta") for X in (U, U, A, B, B)]
    assert at.selective_scan(*args, chunk=2).shape == U.shape
    Q, K, V, g = (torch.from_numpy(X).to("meta") for X in dual_draw(2)(np.random.default_rng(0)))
    mask = torch.ones(Q.shape[-2], Q.shape[-2], dtype=torch.bool, device="meta")
    for chunk in (None, 2):
        assert at.state_space_dual(Q, K, V, mask, decay=g, chunk=chunk).shape == V.shape


@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_autocast_keeps_the_value(name, rng):
    """In 16 bits between the products, and the scan itself in float32."""
    from tests.attnmath.cases.selective_scan import MAMBA, MAMBA2

    tree = shapes.random_tree({"mamba": MAMBA, "mamba2": MAMBA2}[name], rng, 0.5)
    params = unflatten({key: torch.from_numpy(leaf).float() for key, leaf in flatten(tree).items()})
    X = torch.from_numpy(rng.standard_normal((2, 9, 6))).float()
    exact = getattr(at, name)(X, params)
    with torch.autocast("cpu", torch.bfloat16):
        low = getattr(at, name)(X, params)
    assert exact.abs().max() > 0.1
    compare(low.float(), exact, name=name, atol=5e-2 * float(exact.abs().max()), rtol=0.0)
