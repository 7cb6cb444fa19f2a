"""Vision Transformers: input that does not fit, samples one by one, and pictures moved."""

import re

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch._subclasses.fake_tensor import FakeTensorMode

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import digits, shapes
from attnmath.check import compare
from attnmath.rollout import attention_rollout
from attnmath.tree import flatten, map_tree
from attnmath.vision_shapes import picture_embedding_shapes, vision_transformer_shapes

C, SIZE, ROWS, COLUMNS, D, HEADS = 3, 2, 2, 3, 6, 2


def model(rng, **options):
    embeddings = picture_embedding_shapes(C * SIZE**2, D, **options)
    return shapes.random_tree(vision_transformer_shapes(embeddings, D, 11, 2, 5, None, heads=HEADS), rng, 0.5)


PARAMS = model(np.random.default_rng(1), positions=7)
MAP = {"patch": PARAMS["embeddings"]["patch"]}
BAD = [
    ("patches", (np.zeros((3, 4, 5)), 2), {}, r"4 x 5 pixels do not fall into patches of 2 x 2; cut or pad"),
    ("patches", (np.zeros((4, 6)), 2), {}, r"X has shape \(4, 6\); expected \(\.\.\., c, y, x\)"),
    ("patches", (np.zeros((3, 4, 4)), 0), {}, r"size is 0; it must be an integer >= 1"),
    ("patches", (np.zeros((3, 4, 4)), 2.0), {}, r"size is 2\.0; it must be an integer >= 1"),
    ("patches", (np.zeros((3, 0, 4)), 2), {}, r"0 x 4 pixels do not fall into patches"),
    ("patches", (np.zeros((3, 4, 4), np.uint8), 2), {}, r"X has dtype (torch\.)?uint8; floats are expected"),
    ("grid_positions", (2, 2, 6), {}, r"d is 6; it must be a multiple of 4: pairs for the row and as many for the"),
    ("grid_positions", (0, 2, 8), {}, r"rows is 0; it must be an integer >= 1"),
    ("picture_embedding", (np.zeros((1, 4, 6)), MAP, 2), {}, r"has 12 rows; .* 1 channel have 4 numbers"),
    (
        "picture_embedding",
        (np.zeros((3, 8, 6)), PARAMS["embeddings"], 2),
        {},
        r"position has shape \(7, 6\); the pictures give 13 tokens of width 6: give pictures of the size",
    ),
    (
        "picture_embedding",
        (np.zeros((3, 4, 6)), MAP, 2, np.zeros((7, 6))),
        {},
        r"positions has shape \(7, 6\); the pictures give 6 tokens of width 6",
    ),
    ("picture_embedding", (np.zeros((3, 4, 6)), MAP | {"class": np.zeros(5)}, 2), {}, r"class .*\(5,\); .* \(6,"),
    ("picture_embedding", (np.zeros((3, 4, 6)), {"patches": MAP}, 2), {}, r"lacks 'patch'.*write 'patch' for"),
    ("vision_encoder", (np.zeros((3, 4, 6)), PARAMS, 2, 2), {}, r"holds 'head', which nothing reads"),
    ("vision_transformer", (np.zeros((3, 4, 6)), PARAMS, 4, 2), {}, r"heads is 4; .*divides the width 6"),
]  # fmt: skip


def lifted(value, world):
    if isinstance(value, dict):
        return {key: lifted(part, world) for key, part in value.items()}
    return torch.from_numpy(value) if world is at and isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("row", BAD, ids=[f"{i}-{row[0]}" for i, row in enumerate(BAD)])
def test_input_that_does_not_fit_gets_one_line(row, world, as_users_call):
    name, args, options, message = row
    with pytest.raises(ValueError) as error:
        getattr(world, name)(*(lifted(arg, world) for arg in args), **options)
    text = str(error.value)
    assert re.search(message, text), text
    assert "\n" not in text and len(text) < 300


def test_the_module_is_a_thin_shell(rng):
    torch.manual_seed(1)
    X = torch.from_numpy(rng.standard_normal((3, 1, 8, 8))).float()
    fixed = at.grid_positions(4, 4, 12)
    for options in ({}, {"pool": "mean"}, {"pool": "mean", "learned": False, "positions": fixed}):
        module = at.VisionTransformer(1, 8, 2, 10, 12, 3, 16, 2, **options)
        assert set(module.state_dict()) == set(flatten(module.tree()))
        assert ("embeddings.class" in module.state_dict()) is (options.get("pool") != "mean")
        assert ("embeddings.position" in module.state_dict()) is options.get("learned", True)
        own = {"positions": fixed} if "positions" in options else {}
        compare(module(X), at.vision_transformer(X, at.from_numpy(at.to_numpy(module.tree())), 3, 2, **own), atol=1e-6)
    with pytest.raises(ValueError, match="pool is 'max'; expected one of 'class', 'mean'"):
        at.VisionTransformer(1, 8, 2, 10, 12, 3, 16, 2, pool="max")


@pytest.mark.parametrize("positions", [0, 7])
def test_gradients_sample_by_sample_and_tensors_without_values(positions, rng, as_users_call):
    params = at.from_numpy(model(rng, positions=positions, class_token=bool(positions)))
    X = torch.from_numpy(rng.standard_normal((4, C, ROWS * SIZE, COLUMNS * SIZE)))

    def loss(P):
        return (at.vision_transformer(P, params, HEADS, SIZE) * torch.arange(5.0)).sum()

    one_by_one = torch.stack([torch.func.grad(loss)(P) for P in X])
    assert one_by_one.abs().max() > 1e-3
    compare(torch.func.vmap(torch.func.grad(loss))(X), one_by_one, atol=1e-12)
    with torch.device("meta"):
        empty = map_tree(lambda W: W.to("meta"), params)
        assert at.vision_transformer(X.to("meta"), empty, HEADS, SIZE).shape == (4, 5)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert at.vision_transformer(torch.ones(4, C, 4, 6, dtype=torch.float64), params, HEADS, SIZE).shape == (4, 5)


def test_leading_axes_of_any_number(rng):
    params = model(rng, positions=7)
    X = rng.standard_normal((2, 3, C, ROWS * SIZE, COLUMNS * SIZE))
    Y, vjp = an.vision_transformer(X, params, HEADS, SIZE)
    flat, flat_vjp = an.vision_transformer(X.reshape(6, *X.shape[2:]), params, HEADS, SIZE)
    compare(Y.reshape(6, 5), flat, atol=1e-13)
    dY = rng.standard_normal(Y.shape)
    compare(vjp(dY)[1], flat_vjp(dY.reshape(6, 5))[1], atol=1e-11)


def test_sums_over_many_pictures_do_not_stop_in_float16():
    X = np.zeros((5000, 1, 1, 1), np.float16)
    params = {"patch": {"weight": np.ones((1, 1), np.float16)}, "class": np.ones(1, np.float16)}
    params["position"] = np.zeros((2, 1), np.float16)
    _, vjp = an.picture_embedding(X, params, 1)
    _, dparams = vjp(np.ones((5000, 2, 1), np.float16))
    compare(dparams["class"], [5000.0])
    compare(dparams["position"], [[5000.0], [5000.0]])


# the pictures --------------------------------------------------------------------------------------------------------


def test_the_parts_are_the_halves_in_their_order():
    from sklearn.datasets import load_digits

    raw, y = load_digits(return_X_y=True)
    data = digits.digits()
    assert [part.X.shape for part in data] == [(748, 1, 8, 8), (150, 1, 8, 8), (899, 1, 8, 8)]
    compare(np.concatenate([part.X.reshape(-1, 64) * 16 for part in data]), raw, atol=0.0)
    compare(np.concatenate([part.y for part in data]), y, atol=0.0)
    assert data.train.X.dtype == np.float32 and data.train.X.max() == 1


def test_shifts_and_turns(rng):
    X = rng.random((2, 1, 8, 8))
    for down, right in ((0, 0), (1, 0), (-2, 3), (0, -1)):
        compare(digits.shifted(X, down, right), ndimage.shift(X, (0, 0, down, right), order=0), atol=1e-15)
    compare(digits.turned(X, 90.0), np.rot90(X, 1, (-2, -1)), atol=1e-12)
    compare(digits.turned(X, 0.0), X, atol=1e-12)
    for step in (8, -9, 12):
        with pytest.raises(ValueError, match="out of sight"):
            digits.shifted(X, step, 0)


def test_scrambling_is_undone_by_the_inverse_order(rng):
    X, order = rng.random((2, 3, 4, 6)), rng.permutation(6)
    Y = digits.scrambled(X, order, 2)
    compare(digits.scrambled(Y, np.argsort(order), 2), X, atol=0.0)
    compare(an.patches(Y, 2)[0], an.patches(X, 2)[0][:, order], atol=0.0)
    assert not np.array_equal(X, Y)
    with pytest.raises(ValueError, match="order is no order of the 6 patches"):
        digits.scrambled(X, [0, 0, 1, 2, 3, 4], 2)


def test_a_rollout_asks_for_maps():
    for wrong in (np.ones((2, 3, 3)), np.ones((2, 1, 3, 4)), np.ones((0, 1, 3, 3))):
        with pytest.raises(ValueError, match=r"expected \(layers, \.\.\., h, n, n\)"):
            attention_rollout(wrong)
    with pytest.raises(ValueError, match=r"residual is 1\.5; it must be a share"):
        attention_rollout(np.ones((2, 1, 3, 3)) / 3, 1.5)
