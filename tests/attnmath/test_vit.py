"""The task of digits: its batches, its two models, and what it refuses."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from attnmath import train
from attnmath.check import compare
from attnmath.digits import Digits, Part, digits, shifted
from attnmath.tasks import vit
from attnmath.tasks.vit import Config, Task
from attnmath.torch.training import Run

TINY = Config(d=8, heads=2, f=16, layers=1, epochs=2, batch=16, warmup=5, shift=1)


def few(n=40):
    """The first pictures of each part."""
    return Digits(*(Part(part.X[:n], part.y[:n]) for part in digits()))


def test_an_epoch_is_a_function_of_seed_and_number():
    task, again, other = (Task(replace(TINY, seed=seed), few()) for seed in (1, 1, 2))
    rows = np.concatenate(task.epoch(3))
    compare(np.concatenate(again.epoch(3)), rows, atol=0.0)
    assert sorted(rows[:, 0].tolist()) == list(range(40)) and set(rows[:, 1:].ravel()) == {-1, 0, 1}
    assert [len(part) for part in task.epoch(0)] == [16, 16, 8] and task.per_epoch == 3
    assert (np.concatenate(task.epoch(4)) != rows).any() and (np.concatenate(other.epoch(3)) != rows).any()
    still = np.concatenate(Task(replace(TINY, shift=0), few()).epoch(3))
    assert not still[:, 1:].any()


def test_a_batch_holds_the_pictures_moved():
    data = few()
    X, y = Task(TINY, data).batch(np.array([[5, 1, -1], [2, 0, 0]]), torch.device("cpu"))
    compare(X, np.stack([shifted(data.train.X[5], 1, -1), data.train.X[2]]), atol=0.0)
    assert y.tolist() == data.train.y[[5, 2]].tolist() and X.dtype == torch.float32


def test_the_loss_is_pytorchs_and_the_result_counts():
    task = Task(TINY, few())
    torch.manual_seed(0)
    model = task.model()
    batch = task.batch(task.epoch(0)[0], torch.device("cpu"))
    want = F.cross_entropy(model(batch[0]), batch[1], label_smoothing=TINY.smoothing)
    compare(task.loss(model, batch), want, atol=1e-6)
    result = task.result(model)
    said = model(torch.from_numpy(task.data.test.X)).argmax(-1).numpy()
    assert result["accuracy"]["test"] == (said == task.data.test.y).mean() and result["pictures"]["train"] == 40
    assert task.evaluate(model) == {"validation_accuracy": result["accuracy"]["validation"]}
    assert vit.summary(result) is result["accuracy"]


@pytest.mark.parametrize(
    "options", [{"pool": "class"}, {"positions": "grid"}, {"positions": "none"}, {"model": "conv"}]
)
def test_every_kind_of_model_learns_and_is_loaded_again(options, tmp_path):
    config = replace(TINY, shift=0, epochs=8, rate=1e-2, **options)
    run = Run(Task(config, few()), tmp_path).fit(progress=False)
    assert np.mean(run.losses[-3:]) < 0.9 * np.mean(run.losses[:3])
    run.finish([])
    model = vit.load(tmp_path / "model.safetensors")
    X = few().test.X
    assert (vit.predict(model, X) == vit.predict(run.model, X)).all()
    places = "grid" if options.get("positions") == "grid" else None
    assert (getattr(run.model, "options", {}).get("positions") is not None) is (places == "grid")


def test_settings_outside_their_domain_get_one_line():
    for wrong, message in (
        ({"model": "cnn"}, "model is 'cnn'; expected one of vit, conv"),
        ({"pool": "max"}, "pool is 'max'; expected one of class, mean"),
        ({"positions": "sine"}, "positions is 'sine'; expected one of learned, grid, none"),
        ({"size": 3}, "size is 3 and shift is 0; the pictures have 8 x 8 pixels"),
        ({"shift": 8}, "size is 2 and shift is 8"),
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"rate": 0.0}, "rate is 0.0; it must be > 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            Config(**wrong)


def test_the_command_knows_the_task_and_its_flags():
    args = train.parser().parse_args(["vit", "--preset=moved", "--seed=3", "--pool=class"])
    assert train.configuration(args) == replace(vit.PRESETS["moved"], seed=3, pool="class")
    assert train.command(args) == [
        "python",
        "-m",
        "attnmath.train",
        "vit",
        "--preset=moved",
        "--pool=class",
        "--seed=3",
    ]
