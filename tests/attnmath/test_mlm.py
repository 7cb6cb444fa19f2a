"""The task of filling in blanks: its pieces, batches, losses and fillings; both worlds learn the same."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import attnmath.numpy as an
from attnmath import bpe, train
from attnmath.check import compare
from attnmath.numpy.optimisers import adam, adam_state
from attnmath.tasks import mlm
from attnmath.tasks.mlm import MASK, PAD, Config, Task
from attnmath.torch.modules import to_numpy
from attnmath.torch.training import Run

TINY = Config(
    d=8, heads=2, f=16, layers=1, vocabulary=280, context=12, epochs=2, steps=30, batch=16, rate=1e-2, warmup=5
)
WORDS = "the a mean sum of axis array along returns compute elements input output shape if given".split()


def texts(train=80, validation=20, test=10):
    """Documents of random words, a full stop behind each."""
    rng = np.random.default_rng(3)
    some = lambda n: [" ".join(rng.choice(WORDS, rng.integers(3, 14))) + "." for _ in range(n)]  # noqa: E731
    return {"train": some(train), "validation": some(validation), "test": some(test)}


def test_pieces_hold_each_token_once_and_pad_the_last():
    tokens = bpe.train(["the sum of the sum"], 262, mlm.SPECIALS)
    found = mlm.pieces(tokens, ["the sum of the sum", "", "of"], 4)
    kept = [[i for i in row if i != PAD] for row in found.tolist()]
    ids = tokens.encode("the sum of the sum")
    assert [i for row in kept[:-1] for i in row] == ids and kept[-1] == tokens.encode("of") and all(map(len, kept))
    assert all(row[len(k) :] == [PAD] * (4 - len(k)) for row, k in zip(found.tolist(), kept, strict=True))


def test_an_epoch_and_its_blanks_are_a_function_of_seed_and_number():
    task, again, other = (Task(replace(TINY, seed=seed), texts()) for seed in (1, 1, 2))
    (rows, *_), (more, *_) = task.epoch(3)[2], again.epoch(3)[2]
    assert (rows == more).all() and (rows != task.epoch(4)[2][0]).any() and (rows != other.epoch(3)[2][0]).any()
    one, two = (t.batch(t.epoch(3)[2], "cpu") for t in (task, again))
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    ids, targets, chosen = (X.numpy() for X in one)
    assert (targets == task.ids["train"][rows]).all() and not (chosen & (targets == PAD)).any()
    assert (ids[~chosen] == targets[~chosen]).all() and (ids == MASK).sum() == round(0.8 * chosen.sum())
    same = task.batch((rows, 3, 5), "cpu")[2].numpy()
    assert (same != chosen).any(), "another step has other blanks"


def test_the_loss_is_that_of_the_chosen_tokens():
    task = Task(TINY, texts())
    torch.manual_seed(2)
    model, batch = task.model(), task.batch(task.epoch(0)[0], "cpu")
    ids, targets, chosen = batch
    want = F.cross_entropy(model(ids, ids != PAD).flatten(0, 1), torch.where(chosen, targets, -100).flatten())
    compare(task.loss(model, batch), want, atol=1e-5)
    blanks = mlm.with_blanks(task.ids["test"], np.random.default_rng(0), task.config)
    found = mlm.losses(model, blanks, size=3)
    assert len(found) == blanks.chosen.sum()
    assert task.measured(model, "test") == pytest.approx(found.mean() / math.log(2), rel=1e-6)
    masked = mlm.with_blanks(task.ids["test"], np.random.default_rng(0), task.config, split=(1.0, 0.0, 0.0))
    assert (masked.ids[masked.chosen] == MASK).all()


def test_heads_begin_on_their_side():
    B = mlm.nearby(5, 4)
    assert B.shape == (4, 5, 5) and (B.diagonal(dim1=1, dim2=2) == 0).all()
    for h in range(4):
        p = torch.softmax(B[h, 2], -1)
        mine, other = (p[:2], p[3:]) if h % 2 == 0 else (p[3:], p[:2])
        assert mine.sum() > 20 * other.sum()
    assert B[0, 2, 1] == -2 and B[2, 2, 1] == -0.5 and B[1, 2, 1] == -8
    torch.manual_seed(1)
    near, plain = (mlm.network(replace(TINY, nearby=on)) for on in (True, False))
    plain.load_state_dict(near.state_dict())
    ids = torch.from_numpy(np.random.default_rng(0).integers(2, 280, (2, 12)))
    assert (near(ids) - plain(ids)).abs().max() > 1e-3


@pytest.mark.slow
def test_gradients_by_hand_train_the_same_model():
    """Thirty steps with gradients and Adam by hand, and with PyTorch's autograd and AdamW: the same losses."""
    task = Task(replace(TINY, nearby=False, layers=2), texts())
    torch.manual_seed(4)
    model = task.model().double()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1)
    params = to_numpy(model.tree())
    state, ours, theirs = adam_state(params), [], []
    for step in range(30):
        batch = task.batch(task.epoch(0)[step], "cpu")
        ids, targets, chosen = (X.numpy() for X in batch)
        Z, vjp = an.masked_language_model(ids, params, TINY.heads, ids != PAD, chosen)
        loss, loss_vjp = an.cross_entropy(Z, targets[chosen])
        ours.append(float(loss))
        params, state = adam(params, vjp(loss_vjp(1.0)), state, 3e-3, weight_decay=0.1)
        found = task.loss(model, batch)
        optimiser.zero_grad()
        found.backward()
        optimiser.step()
        theirs.append(found.item())
    assert theirs[-1] < 0.9 * theirs[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run(Task(TINY, texts()), tmp_path_factory.mktemp("mlm")).fit(progress=False)
    return run, run.finish(["python"])


def test_a_run_learns_is_read_again_and_fills_in_blanks(finished, capsys):
    run, result = finished
    assert np.mean(run.losses[-5:]) < 0.9 * np.mean(run.losses[:5])
    model, tokens = mlm.load(run.out / "model.safetensors")
    assert result["bits"]["test"] == pytest.approx(run.task.measured(model, "test"), abs=1e-5)
    assert mlm.summary(result) == result["bits"] and result["tokens"]["test"] == (run.task.ids["test"] != PAD).sum()
    ids = [*tokens.encode("the"), MASK, *tokens.encode(" of"), MASK]
    with torch.no_grad():
        p = torch.softmax(model(torch.tensor([ids]))[0].double(), -1)
    found = mlm.fill(model, tokens, "the___ of___")
    for best, place in zip(found, [i for i, token in enumerate(ids) if token == MASK], strict=True):
        assert [t for t, _ in best] == [tokens.decode([i]) for i in p[place].topk(3).indices.tolist()]
        compare(np.array([q for _, q in best]), p[place].topk(3).values.numpy(), atol=1e-5)
    assert train.main(["mlm", "--out", str(run.out), "--fill", "the___"]) == 0
    assert capsys.readouterr().out.count("'") >= 6


def test_bad_input_is_refused_in_one_line(finished, tmp_path, capsys):
    whole, (run, _) = texts(), finished
    for change, given, said in (
        ({"vocabulary": 257}, whole, "vocabulary is 257; 256 bytes, padding and the blank need 258"),
        ({"vocabulary": 5000}, whole, "vocabulary is 5000; the text has pairs for"),
        ({"share": 0.0}, whole, "share is 0"),
        ({"share": 1.5}, whole, "share is 1.5; it must be above 0 and at most 1"),
        ({"context": 0}, whole, "context is 0; it must be at least 1"),
        ({}, whole | {"test": [""]}, "the text is empty; give at least one document with a character"),
    ):
        with pytest.raises(ValueError, match=said) as caught:
            Task(replace(TINY, **change), given).model()
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="the text has no blank; write ___ where a token is missing"):
        mlm.fill(run.model, run.task.tokens, "the sum")
    with pytest.raises(ValueError, match="but there are 12 positions"):
        mlm.fill(run.model, run.task.tokens, "x y z " * 9 + "___")
    assert train.main(["mlm", "--share=2"]) == 1
    assert capsys.readouterr().err == "error: share is 2.0; it must be above 0 and at most 1\n"
