"""The task of pictures and sentences: its batches, its loss, its measures, and what it refuses."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from attnmath import captions, train
from attnmath.check import compare
from attnmath.digits import Digits, Part, digits
from attnmath.tasks import clip
from attnmath.tasks.clip import Config, Task
from attnmath.torch.training import Run

TINY = Config(d=8, heads=2, f=16, layers=1, words_d=8, width=8, epochs=2, batch=16, warmup=5)
CPU = torch.device("cpu")


def few(n=60):
    """The first pictures of each part."""
    return Digits(*(Part(part.X[:n], part.y[:n]) for part in digits()))


@pytest.mark.parametrize("shown", [1, 2])
def test_an_epoch_is_a_function_of_seed_and_number(shown):
    tasks = [Task(replace(TINY, shown=shown, seed=seed), few()) for seed in (1, 1, 2)]
    rows, again, other = (np.concatenate(task.epoch(3)) for task in tasks)
    compare(again, rows, atol=0.0)
    assert len(set(rows[:, 0])) == 48 and rows.shape == (48, 3) and set(rows[:, 2]) == set(range(6))
    assert [len(part) for part in tasks[0].epoch(0)] == [16, 16, 16] and tasks[0].per_epoch == 3
    assert (np.concatenate(tasks[0].epoch(4)) != rows).any() and (other != rows).any()


def test_held_pairs_are_never_shown_in_training():
    task, seen = Task(Config(shown=2), digits()), set()
    for number in range(8):
        y = task.data.train.y[np.concatenate(task.epoch(number))[:, :2]]
        seen |= set(map(tuple, y.tolist()))
    assert len(seen) == 90 and not seen & set(captions.HELD_PAIRS)


def test_a_batch_holds_pictures_and_what_is_said_of_them():
    data = few()
    X, ids = Task(TINY, data).batch(np.array([[5, 1, 2], [2, 0, 0]]), CPU)
    compare(X, data.train.X[[5, 2]], atol=0.0)
    names = [captions.WORDS[digit] for digit in data.train.y]
    assert (
        captions.decode(ids.numpy()) == [f"a picture of the number {names[5]}", names[2]] and X.dtype == torch.float32
    )
    X, ids = Task(replace(TINY, shown=2), data).batch(np.array([[5, 1, 3], [2, 0, 2]]), CPU)
    compare(X[0, 0], np.concatenate([data.train.X[5, 0], data.train.X[1, 0]], -1), atol=0.0)
    assert captions.decode(ids.numpy()) == [f"{names[1]} is right of {names[5]}", f"{names[2]} is left of {names[0]}"]


def test_the_loss_and_the_measures_are_those_of_plain_formulas():
    task = Task(replace(TINY, shown=2), few())
    torch.manual_seed(0)
    model = task.model()
    X, ids = task.batch(task.epoch(0)[0], CPU)
    U, V = (torch.nn.functional.normalize(Y) for Y in (model.pictures(X), model.texts(ids)))
    S, y = U @ V.T / 0.07, torch.arange(len(X))
    want = (torch.nn.functional.cross_entropy(S, y) + torch.nn.functional.cross_entropy(S.T, y)) / 2
    compare(task.loss(model, (X, ids)), want, atol=1e-5)
    part = Part(X.numpy(), np.arange(16))
    said = captions.prompts("{a} and {b}", clip.classes(2))
    T = torch.nn.functional.normalize(model.texts(torch.from_numpy(captions.encode(said))))
    assert clip.accuracy(model, part, "{a} and {b}") == float(((U @ T.T).argmax(-1) == y).float().mean())


def test_pairs_of_the_test_show_each_pair_as_often():
    test = digits().test
    two = clip.pairs(test, 3)
    assert two.X.shape == (300, 1, 8, 16) and (np.bincount(two.y) == 3).all()
    left = {X.tobytes(): y for X, y in zip(test.X, test.y, strict=True)}
    for X, y in zip(two.X, two.y, strict=True):
        assert (left[X[..., :8].tobytes()], left[X[..., 8:].tobytes()]) == divmod(y, 10)
    compare(clip.pairs(test, 3).X, two.X, atol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"words_layers": 2}, {"shown": 2}, {"learned": False, "temperature": 0.1}])
def test_every_kind_of_model_learns_and_is_loaded_again(options, tmp_path):
    config = replace(TINY, epochs=20, rate=1e-2, **options)
    run = Run(Task(config, few()), tmp_path).fit(10**9, progress=False)
    assert np.mean(run.losses[-3:]) < 0.9 * np.mean(run.losses[:3])
    run.finish([])
    model, task = clip.load(tmp_path / "model.safetensors"), run.task
    assert task.evaluate(model) == task.evaluate(run.model) and list(task.result(model)) == ["accuracy"]
    assert bool(abs(model.log_scale.item() - np.log(10.0)) < 1e-6) is ("learned" in options)
    compare(
        clip.scores(model, task.part("test").X[:5], "five and two"),
        clip.scores(run.model, task.part("test").X[:5], "five and two"),
    )


def test_settings_outside_their_domain_get_one_line():
    for wrong, message in (
        ({"shown": 3}, "shown is 3; a picture shows 1 or 2 digits"),
        ({"size": 3}, "size is 3; a digit has 8 x 8 pixels"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be > 0"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            Config(**wrong)
    with pytest.raises(ValueError, match="batch is 64, but there are only 60 pictures"):
        Task(Config(), few())


@pytest.mark.parametrize("shown", [1, 2])
def test_the_command_finds_pictures_for_a_sentence(shown, tmp_path, capsys):
    config = replace(TINY, shown=shown)
    torch.manual_seed(0)
    Run(Task(config, few()), tmp_path).finish([])
    args = train.parser().parse_args(["clip", f"--shown={shown}", "--find=the digit three", f"--out={tmp_path}"])
    assert clip.answer(args, tmp_path / "model.safetensors")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all(re.match(r"picture \d+, which shows .+: -?\d+\.\d\d$", line) for line in lines)
    assert not clip.answer(train.parser().parse_args(["clip"]), tmp_path / "model.safetensors")
