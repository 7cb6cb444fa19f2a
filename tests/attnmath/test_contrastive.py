"""The two towers' small parts, the module that holds them, scales at the edge, and bad input."""

import re

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import captions
from attnmath.check import compare
from attnmath.tasks import clip

X = np.ones
ONE = np.array(1.0)
IDS = np.array([[[1, 9, 2, 0], [1, 2, 7, 2]], [[2, 1, 1, 1], [1, 7, 5, 2]]])


def test_the_end_is_the_first_one_or_the_highest_id():
    for end, places in ((2, [[2, 1], [0, 3]]), (None, [[1, 2], [0, 1]])):
        compare(an.end_of_text(IDS, end), places, atol=0.0)
        compare(at.end_of_text(torch.from_numpy(IDS), end), places, atol=0.0)


def test_a_head_looks_at_one_row_and_its_cotangent_comes_back_to_it(rng):
    H, params = rng.standard_normal((2, 2, 4, 3)), {"head": {"weight": rng.standard_normal((3, 5))}}
    places = an.end_of_text(IDS, 2)
    Z, vjp = an.row_at(places)(H, params)
    rows = np.stack([[H[i, j, places[i, j]] for j in range(2)] for i in range(2)])
    compare(Z[..., 0, :], rows @ params["head"]["weight"], atol=1e-12)
    dZ = rng.standard_normal(Z.shape)
    given, tree = torch.from_numpy(H).requires_grad_(), at.from_numpy(params)
    twin = at.row_at(torch.from_numpy(places))(given, tree)
    compare(twin, Z, atol=1e-12)
    dH, dparams = vjp(dZ)
    compare(dH, torch.autograd.grad(twin, given, torch.from_numpy(dZ))[0], atol=1e-12)
    compare(dparams["head"]["weight"], np.einsum("bcd,bce->de", rows, dZ[..., 0, :]), atol=1e-12)


@pytest.mark.parametrize(("dtype", "tau", "tolerance"), [("float64", 700.0, 1e-9), ("float32", 80.0, 1e-5)])
def test_a_huge_scale_gives_a_finite_loss_and_gradient(dtype, tau, tolerance, rng):
    U, V = (rng.standard_normal((5, 4)).astype(dtype) for _ in range(2))
    tau = np.array(tau, dtype)
    loss, vjp = an.contrastive_loss(U, V, tau)
    leaves = [torch.from_numpy(A).requires_grad_() for A in (U, V, tau)]
    twin = at.contrastive_loss(*leaves)
    compare(loss / np.exp(tau), (twin / leaves[2].exp()).item(), atol=tolerance)
    for got, want in zip(vjp(1.0), torch.autograd.grad(twin, leaves), strict=True):
        assert np.isfinite(got).all() and np.abs(got).max() > 0
        compare(got / np.abs(got).max(), want / np.abs(got).max(), atol=tolerance)
    best = an.contrastive_loss(U, U, tau)
    assert best[0] == 0 and all(np.isfinite(d).all() for d in best[1](1.0))


def test_half_precision_computes_in_single(rng):
    U, V = (rng.standard_normal((4, 3)).astype(np.float16) for _ in range(2))
    tau = np.array(9.0, np.float16)  # scores of some thousand, which float16 holds to 2 digits
    exact = an.contrastive_loss(U.astype(float), V.astype(float), tau.astype(float))[0]
    for loss in (an.contrastive_loss(U, V, tau)[0], at.contrastive_loss(*map(torch.from_numpy, (U, V, tau)))):
        assert "float16" in str(loss.dtype)
        compare(float(loss), exact, atol=0.0, rtol=1e-3)


def test_the_module_is_the_function_with_its_parameters():
    torch.manual_seed(0)
    model = clip.network(clip.Config(words_layers=2)).double()
    assert set(model.tree()) == {"picture", "text", "log_scale"} and model.log_scale.exp().item() == pytest.approx(
        1 / 0.07
    )
    pictures = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    ids = torch.from_numpy(captions.encode(["the digit two", "five"]))
    S = model(pictures, ids)
    U, V = model.pictures(pictures), model.texts(ids)
    compare(at.cosine_scores(U, V, model.log_scale), S, atol=1e-12)
    by_hand, vjp = an.clip(
        pictures.numpy(), ids.numpy(), at.to_numpy(model.tree()), 4, size=2, end=2, text=numpy_text()
    )
    compare(by_hand, S, atol=1e-10)
    dS = torch.randn(3, 2, dtype=torch.float64)
    S.backward(dS)
    _, dparams = vjp(dS.numpy())
    compare(dparams["log_scale"], model.log_scale.grad, atol=1e-10)
    compare(dparams["text"]["embeddings"]["word"], model.text.embeddings.word.grad, atol=1e-10)
    two = at.Clip({"picture": {"w": (2, 2)}, "text": {"w": (2, 2)}}, (2, 1), size=2, temperature=0.5)
    assert two.log_scale.exp().item() == pytest.approx(2.0)


def numpy_text():
    from functools import partial

    return {"join": partial(an.sublayer, norm_first=True)}


BAD = [
    ("contrastive_loss", (X((4, 3)), X((5, 3)), ONE), "there are 4 pictures and 5 captions; row i of the one belongs"),
    ("contrastive_loss", (X((0, 3)), X((0, 3)), ONE), "S has shape (0, 0): its axis 0 is empty; at least one pair"),
    ("contrastive_loss", (X((4, 3)), X((4, 2)), ONE), "V has shape (4, 2), expected (m, d) with d = 3"),
    ("contrastive_loss", (X((4, 3)), X((4, 3)), X(1)), "log_scale is a"),
    ("contrastive_loss", (X((4, 3)), X((4, 3)), 2.0), "log_scale is a float of shape () and dtype None"),
    ("contrastive_loss", (X((4, 3)), X((4, 3)), np.array(800.0)), "log_scale is 800, whose exponential the dtype"),
    ("contrastive_loss", (X((4, 3)), X((4, 3)), np.array(np.nan)), "log_scale is nan"),
    ("contrastive_loss", (X((4, 3)), 0 * X((4, 3)), ONE), "X has a row of zeros at (0,)"),
    ("cosine_scores", (X((4, 3), int), X((4, 3), int), ONE), "U has dtype"),
    ("matching_loss", (X((2, 3)),), "there are 2 pictures and 3 captions"),
    ("end_of_text", (np.array([[1, 2], [1, 3]]), 2), "sentence 1 of ids has no end-of-text token"),
    ("end_of_text", (np.array([[1.0, 2.0]]), 2), "token ids are integers"),
    ("clip", (X((1, 1, 4, 4)), IDS[0], {"picture": {}, "text": {}}, 2), "params lacks 'log_scale'"),
]


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize(("name", "args", "message"), BAD, ids=[f"{i}-{row[0]}" for i, row in enumerate(BAD)])
def test_bad_input_gets_one_line(name, args, message, world, as_users_call):
    if world is at:
        args = [torch.from_numpy(A) if isinstance(A, np.ndarray) else A for A in args]
    options = {"size": 2} if name == "clip" else {}
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        getattr(world, name)(*args, **options)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_a_temperature_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match=r"temperature is 0\.0; it must be > 0"):
        at.Clip({"picture": {}, "text": {}}, 2, temperature=0.0)
