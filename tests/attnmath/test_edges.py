"""The leaves at the edges of their domains: few bits, large numbers, no rows, integers of any size, values unseen."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from attnmath.tree import map_tree
from tests.attnmath.cases import CASES

D = 7
WORLDS = pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])


def norms(rng, dtype):
    """The three norms as functions of X alone, with their parameters in the dtype: f(world, X) -> Y."""
    gain, bias = rng.standard_normal((2, D)).astype(dtype)

    def call(name, parameters):
        def norm(world, X):
            given = [torch.from_numpy(p) for p in parameters] if world is at else parameters
            return getattr(world, name)(X, *given)

        return norm

    return [call("layer_norm", (gain, bias)), call("rms_norm", (gain,)), call("unit_norm", ())]


@pytest.mark.parametrize("which", range(3), ids=["layer_norm", "rms_norm", "unit_norm"])
@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [("float16", 1e4, 2e-3), ("float32", 1e20, 1e-5), ("float32", 1e36, 1e-5), ("float64", 1e200, 1e-12)],
)
def test_norms_of_large_numbers(which, dtype, scale, tolerance, rng):
    """The squares overflow, the result does not; value and cotangent are those of float64 and of smaller numbers."""
    norm = norms(rng, dtype)[which]
    X = rng.standard_normal((3, D)).astype(dtype) * np.dtype(dtype).type(scale)
    dY = rng.standard_normal((3, D)).astype(dtype)
    small = X.astype(np.float64) / scale
    exact_norm = norms(np.random.default_rng(20170612), dtype)[which]  # the same parameters
    exact = map_tree(np.float64, {"Y": _widely(exact_norm, small, dtype)[0]})["Y"]
    Y, vjp = norm(an, X)
    tX = torch.from_numpy(X).requires_grad_()
    twin = norm(at, tX)
    assert Y.dtype == dtype and twin.dtype == tX.dtype
    assert np.abs(exact).max() > 0.1
    compare(Y, exact, atol=tolerance, rtol=tolerance)
    compare(twin, exact, atol=tolerance, rtol=tolerance)
    dX = vjp(dY)
    dX = dX[0] if isinstance(dX, tuple) else dX
    (twin_dX,) = torch.autograd.grad(twin, tX, torch.from_numpy(dY))
    exact_dX = _widely(exact_norm, small, dtype)[1](dY.astype(np.float64))
    exact_dX = exact_dX[0] if isinstance(exact_dX, tuple) else exact_dX
    unit = np.abs(exact_dX).max()
    for got in (dX, twin_dX):
        got = np.asarray(got, np.float64) * scale / unit
        compare(got, exact_dX / unit, atol=max(tolerance, {"float16": 2e-3}.get(dtype, 0)), rtol=0.0)


def _widely(norm, X, dtype):
    """A norm in float64, with parameters that were drawn in another dtype."""
    parameters = [cell.cell_contents for cell in norm.__closure__]
    name = next(c for c in parameters if isinstance(c, str))
    given = [p.astype(np.float64) for p in next(c for c in parameters if isinstance(c, tuple))]
    eps = {"layer_norm": {"eps": 1e-300}, "rms_norm": {"eps": 1e-300}, "unit_norm": {}}[name]
    return getattr(an, name)(X, *given, **eps)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rms_norm_agrees_with_llama_to_one_rounding(dtype, rng):
    from transformers.models.llama.modeling_llama import LlamaRMSNorm  # seconds, in each process that collects tests

    X, gain = (torch.from_numpy(A).to(dtype) for A in (300 * rng.standard_normal((5, D)), rng.standard_normal(D)))
    llama = LlamaRMSNorm(D, eps=1e-6)
    llama.weight.data = gain
    want = llama(X).detach().double()
    assert want.abs().max() > 1
    compare(at.rms_norm(X, gain), want, atol=0.0, rtol=float(torch.finfo(dtype).eps))
    if dtype == torch.float16:
        compare(an.rms_norm(X.numpy(), gain.numpy())[0], at.rms_norm(X, gain), atol=0.0, rtol=1e-3)


def test_gradients_of_tables_are_summed_in_float32():
    """In float16 a sum of ones stops at 2048."""
    _, vjp = an.embedding(np.zeros(5000, int), np.ones((2, 1), np.float16))
    compare(vjp(np.ones((5000, 1), np.float16)), [[5000.0], [0.0]])
    _, vjp = an.relative_bias(np.ones((2, 1), np.float16), 80, 80, 3, causal=True)
    compare(vjp(np.ones((1, 80, 80), np.float16)).sum(dtype=float), 6400.0, atol=2.0)


@WORLDS
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_ids_of_every_integer_type_select_rows(world, dtype, rng):
    """PyTorch takes uint8 for a mask, and in uint8 a vocabulary of 256 tokens is 0."""
    table = rng.standard_normal((256, 3))
    ids = np.array([3, 0, 3, 127], dtype)
    given = (torch.from_numpy(ids), torch.from_numpy(table)) if world is at else (ids, table)
    X = world.embedding(*given)
    compare(X if world is at else X[0], table[[3, 0, 3, 127]])
    with pytest.raises(ValueError, match=r"ids\[3\] = 127 is outside the vocabulary of 100 tokens"):
        world.embedding(given[0], given[1][:100])


LEAVES = {
    "layer_norm": lambda X, y: at.layer_norm(X, torch.ones(D), torch.zeros(D)),
    "rms_norm": lambda X, y: at.rms_norm(X, torch.ones(D)),
    "unit_norm": lambda X, y: at.unit_norm(X),
    "mean_pool": lambda X, y: at.mean_pool(X, y > 0),
    "embedding": lambda X, y: at.embedding(y, X),
    "smoothed_targets": lambda X, y: X * at.smoothed_targets(y, D, 0.1),
    "cross_entropy": lambda X, y: at.cross_entropy(X, y, y > 0, smoothing=0.1, weights=torch.arange(1.0, D + 1)),
    "dropout": lambda X, y: at.dropout(X, (y > 2)[:, None], 0.5),
    "rotary": lambda X, y: at.rotary(X[:, 1:]),
    "relative_score": lambda X, y: at.relative_score(X, X, torch.ones(3, D)),
    "rnn": lambda X, y: at.rnn(X, torch.zeros(2), torch.ones(D, 2), torch.ones(2, 2), torch.zeros(2)),
    "causal_conv": lambda X, y: at.causal_conv(X, torch.ones(2, D, 3), torch.zeros(3)),
}


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_give_gradients_sample_by_sample(name, rng):
    """vmap of grad is the loop over the samples; nothing looks at a value that is not there."""
    X, y = torch.from_numpy(rng.standard_normal((3, 5, D))).float(), torch.from_numpy(rng.integers(0, 5, (3, 5)))
    y[:, 0] = 3

    def loss(X, y):
        Y = LEAVES[name](X, y)
        return (Y * torch.linspace(0.3, 1.7, Y.numel()).reshape(Y.shape)).sum()

    samples = torch.func.vmap(torch.func.grad(loss))(X, y)
    assert samples.abs().max() > 1e-3
    compare(samples, torch.stack([torch.func.grad(loss)(*pair) for pair in zip(X, y, strict=True)]), atol=1e-5)


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_take_tensors_without_values(name):
    X, y = torch.ones(5, D), torch.tensor([3, 1, 4, 1, 2])
    shape = LEAVES[name](X, y).shape
    with FakeTensorMode():
        assert LEAVES[name](torch.ones(5, D), torch.ones(5, dtype=torch.long)).shape == shape
    with torch.device("meta"):
        assert LEAVES[name](X.to("meta"), y.to("meta")).shape == shape


def test_autocast_may_mix_its_dtypes(rng):
    X, gain = torch.from_numpy(rng.standard_normal((4, D))).bfloat16(), torch.from_numpy(rng.random(D)).float()
    y = torch.tensor([1, 0, 2, 3])
    with pytest.raises(ValueError, match=r"gain has dtype torch\.float32 but X has torch\.bfloat16"):
        at.rms_norm(X, gain)
    with torch.autocast("cpu", torch.bfloat16):
        compare(at.rms_norm(X, gain), at.rms_norm(X.float(), gain), atol=0.02)
        compare(at.layer_norm(X, gain, gain), F.layer_norm(X.float(), (D,), gain, gain), atol=0.04)
        loss = at.cross_entropy(X, y, weights=gain)
        assert loss.dtype == torch.float32, "a loss in bfloat16 has three digits"
        compare(loss, F.cross_entropy(X.float(), y, gain), atol=1e-6)
        with pytest.raises(ValueError, match=r"gain has dtype torch\.float64"):
            at.rms_norm(X, gain.double())


EMPTY = {
    "layer_norm": lambda w, X, y, ones: w.layer_norm(X, ones(D), ones(D)),
    "rms_norm": lambda w, X, y, ones: w.rms_norm(X, ones(D)),
    "unit_norm": lambda w, X, y, ones: w.unit_norm(X),
    "mean_pool": lambda w, X, y, ones: w.mean_pool(X, y > 0),
    "embedding": lambda w, X, y, ones: w.embedding(y, ones(4, D)),
    "smoothed_targets": lambda w, X, y, ones: w.smoothed_targets(y, D, 0.1),
    "cross_entropy": lambda w, X, y, ones: w.cross_entropy(X, y, reduction="none"),
    "dropout": lambda w, X, y, ones: w.dropout(X, X > 2, 0.5),
    "scale_loss": lambda w, X, y, ones: w.scale_loss(X, 2.0),
    "rotary": lambda w, X, y, ones: w.rotary(X[..., 1:]),
    "relative_score": lambda w, X, y, ones: w.relative_score(X, X, ones(3, D)),
    "rnn": lambda w, X, y, ones: w.rnn(X, X[:, 0], ones(D, D), ones(D, D), ones(D)),
    "causal_conv": lambda w, X, y, ones: w.causal_conv(X, ones(2, D, 3), ones(3)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_batch_of_none(name):
    """Both worlds give the value of the same shape, and NumPy's cotangents have the arguments' shapes."""
    X, y = np.zeros((0, 5, D)), np.zeros((0, 5), int)
    result = EMPTY[name](an, X, y, lambda *shape: np.ones(shape))
    twin = EMPTY[name](at, torch.from_numpy(X), torch.from_numpy(y), partial(torch.ones, dtype=torch.float64))
    if name == "smoothed_targets":
        assert result.shape == tuple(twin.shape) == (0, 5, D)
        return
    Y, vjp = result
    assert Y.shape == tuple(twin.shape) and len(Y) == 0
    cotangents = vjp(np.zeros_like(Y))
    first = cotangents[0] if isinstance(cotangents, tuple) else cotangents
    assert first.shape in (X.shape, X[..., 1:].shape, (4, D))


WRAPPERS = {"grouped", "windowed", "recording"}  # they are given functions


@WORLDS
@pytest.mark.parametrize("name", sorted({case.function for case in CASES} - WRAPPERS))
def test_lists_none_and_matrices_get_a_sentence(name, world, as_users_call, rng):
    """In the place of every array and every tree."""
    case = next(case for case in CASES if case.function == name and "drop" not in case.circumstance)
    spy = Spy(world, name)
    args = case.args(rng)
    case.call(spy, *([map_tree(torch.from_numpy, arg) for arg in args] if world is at else args))
    given, options = spy.given
    hints = [str(hint.annotation) for hint in inspect.signature(getattr(world, name)).parameters.values()]
    may_be_none = [i for i, hint in enumerate(hints) if hint.endswith("| None")]
    tried = 0
    for i, arg in enumerate(given):
        if not isinstance(arg, np.ndarray | torch.Tensor | dict):
            continue
        wrongs = [[1.0, 2.0], np.ones((1, 1)).view(np.matrix)] + ([] if i in may_be_none else [None])
        for wrong in wrongs:
            with pytest.raises(ValueError, match=r"is a|has dtype|has shape|expected|needs|None") as error:
                getattr(world, name)(*given[:i], wrong, *given[i + 1 :], **options)
            assert "truth value" not in str(error.value) and "matmul" not in str(error.value)
            tried += 1
    assert tried, "this case gives no array by position"


class Spy:
    """A world that notes with what one of its functions was called first."""

    def __init__(self, world, name):
        self.world, self.name, self.given, self.__name__ = world, name, None, world.__name__

    def __getattr__(self, name):
        function = getattr(self.world, name)
        if name != self.name:
            return function

        def call(*args, **options):
            self.given = self.given or (args, options)
            return function(*args, **options)

        return call


def test_a_foreign_byte_order_is_named_with_its_cure(as_users_call):
    foreign = np.array([[1.0, 2.0]], ">f8")
    with pytest.raises(ValueError, match=r"S has dtype >f8; .*its bytes stand in the other order.*S\.astype"):
        an.softmax(foreign)
    P, _ = an.softmax(foreign.astype(foreign.dtype.name))
    assert P[0, 1] / P[0, 0] == pytest.approx(np.e)


@WORLDS
def test_a_bias_of_another_width_is_refused(world, as_users_call):
    leaf = {"weight": np.ones((3, 4)), "bias": np.ones(1)}  # it would broadcast
    lift = torch.from_numpy if world is at else np.asarray
    with pytest.raises(ValueError, match=r"shape \(3, 4\) and a bias of shape \(1,\); expected a bias as wide"):
        world.affine(lift(np.ones((2, 3))), map_tree(lift, leaf))
