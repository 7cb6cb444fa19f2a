"""The task of filling blanks: its examples, its losses, what it writes, and what it refuses."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from attnmath import bpe, spans, train
from attnmath.docs import Doc
from attnmath.tasks import t5
from attnmath.tasks.t5 import Config, Task, TextToText
from attnmath.torch.relative_positions import relative_bias
from attnmath.torch.training import Run

TINY = Config(
    d=8, heads=2, f=16, layers=1, vocabulary=280, context=24, density=0.25, mean=2.0, epochs=2, steps=12, batch=4,
    rate=1e-2, warmup=3, roll=False,
)  # fmt: skip
WORDS = "the a mean sum of axis array along returns compute elements input output shape if given".split()


def docs(train=30, validation=8, test=6):
    """Documents of random words, from two subpackages."""
    rng = np.random.default_rng(3)

    def some(n):
        files = ("scipy/stats/a.py", "numpy/b.py")
        texts = [" ".join(rng.choice(WORDS, rng.integers(45, 60))) + "." for _ in range(n)]
        return [Doc(f"d{i}", files[i % 2], text) for i, text in enumerate(texts)]

    return {"train": some(train), "validation": some(validation), "test": some(test)}


def model_of(config=TINY, scale=0.4):
    """A model whose numbers are neither 0 nor 1, and its tokens."""
    torch.manual_seed(5)
    tokens = bpe.train([doc.text for doc in docs()["train"]], config.vocabulary, t5.SPECIALS)
    model = TextToText(config, tokens).double().eval()
    for P in model.parameters():
        torch.nn.init.normal_(P, std=scale)
    return model


def test_examples_of_a_fill_are_texts_of_the_stream():
    task = Task(TINY, docs())
    part, rng = task.parts["train"], np.random.default_rng(1)
    sources, targets, masks = t5.corrupted(part.ids, [0, 5, 90], TINY, rng)
    cut, number = spans.span_counts(24, 0.25, 2.0)
    assert sources.shape == (3, 24 - cut + number) and targets.shape == (3, cut + number + 1), "no padding is needed"
    for start, source, target, mask in zip((0, 5, 90), sources, targets, masks, strict=True):
        ids, back = spans.restore(source, target, TINY.sentinels)
        assert ids.tolist() == part.ids[start : start + 24].tolist() and (back == mask).all()
    rolled = t5.corrupted(part.ids, np.zeros(40, int), replace(TINY, roll=True), rng)[2]
    assert masks[:, -1].all() and not rolled[:, -1].all() and rolled[:, 0].any()


def test_examples_of_the_other_tasks():
    task = Task(replace(TINY, tasks="where+next"), docs())
    part, tokens = task.parts["test"], task.tokens
    sources, targets = part.examples("where", np.array([0, 1]))
    heads = [tokens.encode(doc.text) for doc in docs()["test"][:2]]
    assert tokens.decode(sources[1].tolist()) == "where: " + tokens.decode(heads[1][: t5.SHOWN])
    assert [tokens.decode([i for i in row if i > t5.PAD]) for row in targets.tolist()] == ["scipy.stats", "numpy"]
    assert (targets == t5.END).sum(1).tolist() == [1, 1] and (targets == t5.PAD).any()
    asked, told = part.examples("next", np.array([1]))
    assert tokens.decode(asked[0].tolist()) == "next: " + tokens.decode(heads[1][: t5.SHOWN])
    assert told[0].tolist() == [*heads[1][t5.SHOWN : t5.SHOWN + t5.NEXT], t5.END]


def test_heads_look_nearby_before_the_first_step():
    """The first head of the encoder looks back, the second one forward, and each number falls with the distance."""
    torch.manual_seed(0)
    model = t5.TextToText(replace(TINY, heads=4), model_of().tokens)
    for part, both in ((model.encoder, True), (model.decoder, False)):
        B = relative_bias(part.relative, 9, 9, 64, causal=not both)
        assert (torch.diff(B[:, 8, :].flip(-1)) <= 0).all() and B[3, 8, 7] - B[3, 8, 8] == -0.125
        if both:
            assert B[0, 4, 3] > B[0, 4, 5] + 2 and B[1, 4, 5] > B[1, 4, 3] + 2 and B[2, 4, 3] == B[2, 4, 5]


def test_a_task_sees_the_same_examples_alone_and_among_others():
    several, alone = (Task(replace(TINY, tasks=tasks), docs()) for tasks in ("fill+where+next", "next"))
    chosen = several.epoch(1)[3]
    assert chosen == alone.epoch(1)[3] and len(several.epoch(0)) == 12
    both = several.batch(chosen, "cpu")
    for mine, theirs in zip(both[2], alone.batch(chosen, "cpu")[0], strict=True):
        assert (mine == theirs).all()
    again, other = several.batch(chosen, "cpu"), several.batch(several.epoch(1)[4], "cpu")
    assert all((x == y).all() for x, y in zip(both[0], again[0], strict=True)) and (both[0][0] != other[0][0]).any()


def test_the_loss_is_the_mean_over_all_tokens_of_all_targets():
    model, task = model_of(), Task(replace(TINY, tasks="fill+where"), docs())
    batch, total, count = task.batch((1, 0, 0), "cpu"), 0.0, 0
    for source, target in batch:
        into = torch.cat([torch.full((4, 1), t5.PAD), target[:, :-1]], 1)
        rows = F.cross_entropy(model(source, into).flatten(0, 1), target.flatten(), reduction="none")
        used = (target != t5.PAD).flatten()
        total, count = total + rows[used].sum().item(), count + int(used.sum())
    assert (batch[1][1] == t5.PAD).any()
    np.testing.assert_allclose(task.loss(model, batch).item(), total / count, rtol=1e-12)
    bits = t5.surprise(model, *(X.numpy() for X in batch[1]), size=3)
    np.testing.assert_allclose(bits.sum() * math.log(2), total - _fill(model, batch[0]), rtol=1e-12)
    assert not bits[batch[1][1].numpy() == t5.PAD].any()


def _fill(model, pair):
    source, target = pair
    return F.cross_entropy(
        model(source, t5.shift_right(target)).flatten(0, 1), target.flatten(), reduction="sum"
    ).item()


def test_answers_with_a_cache_are_the_most_probable_tokens():
    model, rng = model_of(scale=0.6), np.random.default_rng(2)
    sources = rng.integers(2, 280, (3, 9))
    answers = model.answer(sources, end=281, limit=7)
    for source, answer in zip(sources, answers, strict=True):
        ids = [t5.PAD]
        while len(ids) <= 7 and ids[-1] != 281:
            with torch.no_grad():
                Z = model(torch.from_numpy(source)[None], torch.tensor([ids]))
            ids.append(int(Z[0, -1].argmax()))
        assert answer == ids[1:]
    assert len({tuple(answer) for answer in answers}) == 3


def test_blanks_of_a_sentence_are_filled(monkeypatch):
    model, asked = model_of(), {}

    def answer(sources, end, limit=64):
        asked.update(source=sources[0].tolist(), end=end)
        return [[280, *model.tokens.encode(" the mean"), 281, *model.tokens.encode(" axis"), 282]]

    monkeypatch.setattr(model, "answer", answer)
    assert model.fill("Compute ___ along ___.") == [" the mean", " axis"]
    own = model.tokens.encode
    assert asked == {"source": [*own("Compute"), 280, *own(" along "), 281, *own(".")], "end": 282}
    assert model.text([*own("a sum"), 285, *own(" of")]) == "a sum___ of"
    for text in ("no blank", "___ " * 32):
        with pytest.raises(ValueError, match=r"blanks ___; give at least 1 and at most 31"):
            model.fill(text)


@pytest.mark.slow
def test_a_run_learns_is_saved_and_answers(tmp_path, capsys):
    run = Run(Task(replace(TINY, epochs=6, tasks="fill+where+next"), docs()), tmp_path).fit(progress=False)
    assert np.mean(run.losses[-5:]) < 0.8 * np.mean(run.losses[:5])
    assert {"validation_fill", "validation_where", "validation_next"} < run.history[-1].keys()
    result = run.finish([])
    assert t5.summary(result) is result["bits_per_token"] and set(result["bits_per_token"]["test"]) == set(t5.TASKS)
    model, part = t5.load(tmp_path / "model.safetensors"), run.task.parts["test"]
    pair = part.examples("next", np.array([0, 2]))
    np.testing.assert_allclose(t5.surprise(model, *pair), t5.surprise(run.model, *pair), rtol=1e-5)
    said = train.main(["t5", "--out", str(tmp_path), "--fill", "the mean ___ along the axis"])
    told = capsys.readouterr()
    assert (said == 0 and told.out.startswith("'")) or told.err.startswith("error: the target")


def test_bad_settings_and_texts_get_one_line(tmp_path):
    for wrong, message in (
        ({"tasks": "fill+say"}, "tasks is 'fill+say'; join some of fill, where, next with +"),
        ({"tasks": "fill+fill"}, "tasks is 'fill+fill'; join some of"),
        ({"context": 1}, "context is 1; it must be at least 2"),
        ({"vocabulary": 257}, "vocabulary is 257; bytes and specials need 258"),
        ({"context": 400, "mean": 1.0}, "a text has 60 spans; 32 sentinels suffice for 31"),
        ({"density": 1.0}, "density is 1.0"),
        ({"rate": 0.0}, "rate is 0.0; it must be > 0"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            Config(**wrong)
    short = [Doc("a", "numpy/a.py", "the sum")]
    for config, texts, message in (
        (replace(TINY, vocabulary=2000), docs(), "the text has pairs for"),
        (TINY, docs() | {"test": short}, "tokens and context is 24; give more text"),
        (replace(TINY, tasks="next", context=4), docs() | {"test": short}, "no document has 72 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            Task(config, texts)
    with pytest.raises(ValueError, match="the tokenizer has 280 tokens and vocabulary is 281"):
        TextToText(replace(TINY, vocabulary=281), model_of().tokens)
