"""The language model: windows, bits, writing, its record; both worlds learn the same; errors are one line."""

import json
import math
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import attnmath.numpy as an
from attnmath import bpe, saves, train
from attnmath.numpy.losses import cross_entropy
from attnmath.numpy.optimisers import adam, adam_state, clip_by_norm
from attnmath.tasks import lm
from attnmath.tasks.lm import Config, LanguageModel, Task
from attnmath.torch.modules import to_numpy
from attnmath.torch.training import Run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "chapters" / "08_at_work"
TINY = Config(
    d=8, heads=2, f=32, layers=2, vocabulary=280, context=12, epochs=2, steps=20, batch=8, rate=1e-2, warmup=5
)
WORDS = "the a mean sum of axis array along returns compute elements input output shape if given".split()


def texts(train=60, validation=12, test=10):
    """Documents of random words, a full stop behind each."""
    rng = np.random.default_rng(3)

    def some(n):
        return [" ".join(rng.choice(WORDS, rng.integers(3, 14))) + "." for _ in range(n)]

    return {"train": some(train), "validation": some(validation), "test": some(test)}


def model_of(config=TINY, scale=0.2):
    """A model whose numbers are neither 0 nor 1, and its tokens."""
    torch.manual_seed(5)
    model = LanguageModel(config, bpe.train(texts()["train"], config.vocabulary, (lm.END,))).double().eval()
    for P in model.parameters():
        torch.nn.init.normal_(P, std=scale)
    return model


# batches and measures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "context", "stride"), [(13, 12, 5), (14, 12, 12), (60, 12, 5), (61, 12, 12), (61, 12, 1)]
)
def test_windows_count_each_token_once(n, context, stride):
    rows, counts = lm.windows(np.arange(100, 100 + n), context, stride)
    assert rows[:, 1:][counts].tolist() == list(range(101, 100 + n)), "in order, each but the first, once"
    assert (np.diff(rows, axis=1) == 1).all() and rows.shape[1] == context + 1
    seen = np.broadcast_to(np.arange(1, context + 1), counts.shape)[1:][counts[1:]]
    assert len(seen) == 0 or seen.min() > context - stride, "each is predicted from at least context - stride tokens"


def test_bits_per_byte_are_those_of_the_chain_rule():
    """Where the window holds all, the bits are -log2 of the product of the probabilities, over bytes and ends."""
    model, several = model_of(replace(TINY, context=60)), ["naïve mean.", "the sum"]
    ids = lm.stream(model.tokens, several)
    assert ids.tolist() == [0, *model.tokens.encode(several[0]), 0, *model.tokens.encode(several[1]), 0]
    assert lm.length(several) == 12 + 1 + 7 + 1, "ï has two bytes"
    total = 0.0
    with torch.no_grad():
        for i in range(1, len(ids)):
            p = torch.softmax(model(torch.from_numpy(ids[:i])[None])[0, -1], -1)
            total -= math.log2(p[ids[i]])
    model.config = replace(model.config, context=len(ids) - 1)
    np.testing.assert_allclose(lm.bits_per_byte(model, several), total / 21, rtol=1e-12)


def test_a_longer_view_is_used(rng):
    """With a stride below the context, later windows begin with tokens that were counted before."""
    model, ids = model_of(), rng.integers(0, 280, 60)
    fine, coarse = (lm.surprise(model, ids, stride) for stride in (1, 12))
    assert len(fine) == len(coarse) == 59
    np.testing.assert_allclose(fine[:12], coarse[:12], rtol=1e-12)
    with torch.no_grad():
        Z = model(torch.from_numpy(ids[20:32])[None])[0, -1]
    np.testing.assert_allclose(fine[31], -torch.log_softmax(Z, -1)[ids[32]] / math.log(2), rtol=1e-12)
    assert np.abs(fine[12:] - coarse[12:]).max() > 1e-3


def test_an_epoch_is_a_function_of_seed_and_number():
    task, again = (Task(TINY, texts()) for _ in range(2))
    first = task.epoch(0)
    assert first.shape == (20, 8) and (first == again.epoch(0)).all()
    assert (first != task.epoch(1)).any() and (first != Task(replace(TINY, seed=2), texts()).epoch(0)).any()
    starts = np.concatenate([task.epoch(i).ravel() for i in range(300)])
    assert starts.min() == 0 and starts.max() == len(task.ids["train"]) - TINY.context - 1, "every window can come"
    rows = task.batch(first[0], "cpu")
    for start, row in zip(first[0], rows.tolist(), strict=True):
        assert row == task.ids["train"][start : start + 13].tolist()


def test_the_loss_is_that_of_every_next_token():
    model, task = model_of(), Task(TINY, texts())
    rows = task.batch([3, 50, 70], "cpu")
    with torch.no_grad():
        logp = torch.log_softmax(model(rows[:, :-1]), -1)
    want = -np.mean([logp[b, i, rows[b, i + 1]] for b in range(3) for i in range(12)])
    np.testing.assert_allclose(task.loss(model, rows).item(), want, rtol=1e-12)


# writing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [5, 20])
def test_writing_with_a_cache_is_writing_without(limit):
    """Beyond the context the model goes on from the last half of it."""
    model, prompt = model_of(scale=0.5), "the sum"
    with torch.no_grad():
        model.embeddings.position *= 8  # so that it does not repeat itself
    ids, new = [0, *model.tokens.encode(prompt)], []
    while len(new) < limit:
        ids = ids[-6:] if len(ids) > 12 else ids
        with torch.no_grad():
            token = int(model(torch.tensor([ids]))[0, -1].argmax())
        if not token:
            break
        ids, new = [*ids, token], [*new, token]
    assert len(new) == limit and len(set(new)) > 3, "it ends nowhere, and does not repeat itself"
    assert lm.write(model, prompt, limit) == model.tokens.decode(new)


def test_draws_follow_the_probabilities_that_were_chosen():
    model = model_of()
    with torch.no_grad():
        p = torch.softmax(model(torch.tensor([[0, *model.tokens.encode("a")]]))[0, -1], -1).numpy()
    best = int(p.argmax())
    only = lm.write(model, "a", 3, np.random.default_rng(0), choose=lambda p: np.eye(len(p))[p.argmax()])
    assert only == lm.write(model, "a", 3) and only.startswith(model.tokens.decode([best]))
    free = {lm.write(model, "a", 4, np.random.default_rng(i)) for i in range(4)}
    assert len(free) == 4 and lm.write(model, "a", 4, np.random.default_rng(3)) in free
    assert lm.write(model, "a", 9, np.random.default_rng(0), choose=lambda p: np.eye(len(p))[0]) == "", "it ended"


# both worlds ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_gradients_by_hand_train_the_same_model(tmp_path):
    """Fifty steps on docstrings with the task's schedule, decay and clipping: gradients by hand, and a run of PyTorch.

    The preset is ``book`` in half its sizes, with four windows in a step and a text of 250 documents.
    """
    sizes = {"d": 32, "f": 128, "vocabulary": 512, "context": 64}
    config = replace(lm.PRESETS["book"], **sizes, epochs=1, steps=50, batch=4, warmup=10)
    task = Task(config, {part: texts[:250] for part, texts in lm.docstrings().items()})
    run = Run(task, tmp_path)
    run.model.double()
    params = to_numpy(run.model.tree())
    state, losses, norms = adam_state(params), [], []
    options = {"norm": an.layer_norm, "join": partial(an.sublayer, norm_first=True)}
    for step, chosen in enumerate(task.epoch(0), 1):
        rows = task.batch(chosen, "cpu").numpy()
        Z, vjp = an.decoder_only(rows[:, :-1], params, config.heads, **options)
        loss, loss_vjp = cross_entropy(Z, rows[:, 1:])
        losses.append(float(loss))
        grads, norm = clip_by_norm(vjp(loss_vjp(1.0)), config.clip)
        norms.append(norm)
        params, state = adam(params, grads, state, task.rate(step), weight_decay=config.decay)
    run.fit(progress=False)
    assert config.layers == 2 and losses[-1] < 0.9 * losses[0]
    assert 3 < sum(norm > config.clip for norm in norms) < 47, "some gradients are cut, and not all"
    np.testing.assert_allclose(losses, run.losses, atol=1e-9)


def test_it_is_the_model_that_grew():
    """The last step of the small GPT, with the trained numbers and one table for words and head, is this model."""
    from runpy import run_path

    last = sorted((ROOT / "chapters" / "small_gpt").glob("step*.py"))[-1]
    model, ids = model_of(), torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
    small = run_path(str(last), run_name="imported")["GPT"](280, 12, 8, 2, 2).double()
    small.out.weight = small.embedding.word.weight
    small.load_state_dict(lm.as_small_gpt(model))
    torch.testing.assert_close(small(ids), model(ids), atol=1e-12, rtol=1e-12)
    assert sum(P.numel() for P in small.parameters()) == sum(P.numel() for P in model.parameters()) + 280


# saved models --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = Run(Task(TINY, texts()), tmp_path_factory.mktemp("lm")).fit(progress=False)
    return run, run.finish(["python"])


def test_a_run_learns_and_its_result_is_what_the_model_says(finished):
    run, result = finished
    assert np.mean(run.losses[-5:]) < 0.8 * np.mean(run.losses[:5])
    assert result["seen"] == 2 * 20 * 8 * 12 and result["text"]["test"]["bytes"] == lm.length(texts()["test"])
    model = lm.load(run.out / "model.safetensors")
    assert lm.bits_per_byte(model, texts()["test"]) == pytest.approx(result["bits_per_byte"]["test"], abs=1e-6)
    assert (
        result["bits_per_byte"]["test"]
        < 4
        < math.log2(280) * result["text"]["test"]["tokens"] / lm.length(texts()["test"])
    )
    ids, bytes_ = run.task.ids["validation"], lm.length(texts()["validation"])
    quick = lm.surprise(run.model, ids[: lm.QUICK * 12 + 1], 12).mean() * (len(ids) - 1) / bytes_
    assert run.history[-1]["validation_bits_per_byte"] == pytest.approx(quick, rel=1e-9)


def test_a_study_can_ask_another_training(finished):
    """`load` reads the file that is named, a cache does not mix two trainings, and an error ends it all."""
    path, read = finished[0].out / "model.safetensors", []

    @lm.cached
    def width(times=1):
        read.append(times)
        return times * lm.load().config.d

    own = width()
    assert lm.asked(path, {"part": {"width": width, "twice": lambda: width(2)}}) == {
        "weights": lm.hashlib.sha256(path.read_bytes()).hexdigest(),
        "part": {"width": TINY.d, "twice": 2 * TINY.d},
    }
    with pytest.raises(KeyError), lm.instead(path):
        assert width() == TINY.d != own
        raise KeyError
    assert width() == lm.load().config.d == own and read == [1, 1, 2]


def test_half_of_the_bytes_say_nearly_the_same(finished, tmp_path, capsys):
    run, _ = finished
    told = lm.halve(run.out / "model.safetensors", tmp_path / "half.safetensors")
    whole, half = lm.load(run.out / "model.safetensors"), lm.load(tmp_path / "half.safetensors")
    assert told["bytes"] == (tmp_path / "half.safetensors").stat().st_size and len(told["sha256"]) == 64
    assert half.config == whole.config and half.tokens == whole.tokens
    bits = [lm.bits_per_byte(model, texts()["test"]) for model in (whole, half)]
    assert 0 < abs(bits[0] - bits[1]) < 2e-3
    args = ["lm", "--out", str(run.out), "--write", "the mean", "--halve", str(tmp_path / "again.safetensors")]
    assert train.main(args) == 0
    out = capsys.readouterr().out.splitlines()
    assert json.loads(out[0])["bytes"] == told["bytes"] and out[1].startswith("the mean")
    again = saves.load(tmp_path / "again.safetensors")
    for name, X in saves.load(tmp_path / "half.safetensors")[0].items():
        assert X.dtype == np.float16 and np.array_equal(X, again[0][name])


def test_bad_input_is_refused_in_one_line(capsys):
    whole = texts()
    for change, given, said in (
        ({"vocabulary": 256}, whole, "vocabulary is 256; 256 bytes and the end of a document need 257"),
        ({"vocabulary": 5000}, whole, "vocabulary is 5000; the text has pairs for"),
        ({"context": 5000}, whole, "and the context is 5000; it must be shorter than the text"),
        ({"context": 0}, whole, "context is 0; it must be at least 1"),
        ({"rate": 0.0}, whole, "rate is 0"),
        ({"heads": 3}, whole, "heads is 3"),
        ({}, whole | {"train": []}, "the text is empty"),
        ({}, whole | {"test": [""]}, "the text is empty; give at least one document with a character"),
    ):
        with pytest.raises(ValueError, match=said) as caught:
            Task(replace(TINY, **change), given).model()
        assert "\n" not in str(caught.value)
    model = model_of()
    for call, said in (
        (lambda: lm.write(model, "a", 0), "limit is 0"),
        (lambda: lm.windows(np.arange(12), 12, 5), "the text has 12 tokens and the context is 12"),
        (lambda: lm.bits_per_byte(model, []), "the text is empty"),
        (lambda: lm.bits_per_byte(model, ["a"]), "the context is 12; it must be shorter"),
        (lambda: lm.bits_per_byte(model, whole["test"], stride=13), "stride is 13"),
        (lambda: LanguageModel(replace(TINY, vocabulary=300), model.tokens), "the tokenizer has 280 tokens"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    assert train.main(["lm", "--vocabulary=100"]) == 1
    assert capsys.readouterr().err == "error: vocabulary is 100; 256 bytes and the end of a document need 257\n"
    assert asdict(lm.PRESETS["full"]).keys() == asdict(TINY).keys()
