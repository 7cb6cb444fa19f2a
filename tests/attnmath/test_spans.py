"""Span corruption: the round trip, what is refused, and the loss of transformers' T5 on corrupted pairs."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnmath.torch as at
from attnmath import spans
from attnmath.check import compare
from attnmath.tasks import t5
from tests.attnmath.converted import VOCABULARY, check_unlifted, randomised, wide  # noqa: F401

FAMILIES = ("t5",)
MARKS = range(1000, 1032)


@pytest.mark.claim("prop-span-round-trip", "eq:span-pair", "eq:span-restore")
@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 999), st.booleans()), max_size=30))
def test_every_text_and_every_mask_come_back(tokens):
    ids = np.array([token for token, _ in tokens], int)
    mask = np.array([cut for _, cut in tokens], bool)
    source, target = spans.corrupt(ids, mask, MARKS)
    number = int((np.diff(mask.astype(int), prepend=0) == 1).sum())
    assert len(source) == (~mask).sum() + number and len(target) == mask.sum() + number + 1
    back, cut = spans.restore(source, target, MARKS)
    assert back.tolist() == ids.tolist() and cut.tolist() == mask.tolist()
    assert source[source < 1000].tolist() == ids[~mask].tolist(), "what is kept keeps its order"


def test_the_pair_of_the_paper():
    """Figure 2 of Raffel et al.: two spans, and the end is kept."""
    words = "Thank you for inviting me to your party last week .".split()
    mask = np.isin(words, ["for", "inviting", "last"])
    source, target = spans.corrupt(np.arange(len(words)), mask, [97, 98, 99])
    name = dict(enumerate(words)) | {97: "<X>", 98: "<Y>", 99: "<Z>"}
    assert " ".join(name[i] for i in source.tolist()) == "Thank you <X> me to your party <Y> week ."
    assert " ".join(name[i] for i in target.tolist()) == "<X> for inviting <Y> last <Z>"


def test_the_sizes_of_the_released_program():
    """Its text of 568 tokens fills the 512 and 114 places of input and target, their ends counted."""
    assert spans.span_counts(568) == (85, 28)
    source, target = spans.pair_lengths(568)
    assert (source + 1, target) == (512, 114)
    assert spans.span_counts(2) == (1, 1) and spans.span_counts(3, 0.99) == (2, 1)
    assert spans.span_counts(10, 0.25, 1.0) == (2, 2), "a half is rounded to the even number"
    assert spans.span_counts(10, 0.8, 1.0) == (8, 2), "no more spans than tokens between them"


def test_without_a_generator_each_call_draws_anew():
    assert len({spans.span_mask(60).tobytes() for _ in range(5)}) == 5
    first, again, other = (spans.span_mask(60, rng=np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spans.span_counts(1), "n is 1; a text needs at least 2 tokens"),
        (lambda: spans.span_counts(9, 0.0), "density is 0.0; it must be more than 0 and less than 1"),
        (lambda: spans.span_counts(9, 0.5, 0.5), "mean is 0.5; a span has at least 1 token"),
        (lambda: spans.composition(2, 3, np.random.default_rng(0)), "2 tokens cannot be cut into 3 spans"),
        (lambda: spans.span_length_probabilities(2, 3), "2 tokens cannot be cut into 3 spans"),
        (lambda: spans.corrupt([1, 2], np.array([True]), [7, 8]), "mask has shape (1,) and dtype bool; expected (2,)"),
        (lambda: spans.corrupt([1, 2], np.array([0, 1]), [7, 8]), "and dtype int64; expected (2,) of bool"),
        (lambda: spans.corrupt([1, 2], np.array([False, True]), [7]), "there are 1 spans and 1 sentinels"),
        (lambda: spans.corrupt([1, 2], np.array([False, True]), [7, 7]), "sentinels repeat"),
        (lambda: spans.corrupt([1, 7], np.array([False, True]), [7, 8]), "the text has the sentinel 7"),
        (lambda: spans.corrupt([[1]], np.array([[True]]), [7, 8]), "a text has shape (1, 1)"),
        (lambda: spans.blanks([5, 8], [7, 8]), "the target's sentinels are [8]; it must begin and end with one"),
        (lambda: spans.blanks([8, 5, 7], [7, 8]), "the target's sentinels are [8, 7]"),
        (lambda: spans.blanks([], [7, 8]), "the target's sentinels are []"),
        (lambda: spans.blanks([7, 8], [7, 8]), "the target has an empty span"),
        (lambda: spans.restore([1, 2], [7, 5, 8], [7, 8]), "the source's sentinels are [], and the target tells 1"),
    ],
)
def test_bad_input_gets_one_line(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def t5_and_pairs(spread=0.3):
    from transformers import T5Config, T5ForConditionalGeneration

    rng, sizes = np.random.default_rng(4), dict(d_model=6, d_kv=5, d_ff=17, num_layers=2, num_heads=3, dropout_rate=0.0)
    ends = dict(pad_token_id=t5.PAD, decoder_start_token_id=t5.PAD)
    model = randomised(T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, **sizes, **ends)), spread)
    pairs = [
        spans.corrupt(rng.integers(2, 17, n), spans.span_mask(n, 0.4, 2.0, rng), range(17, VOCABULARY))
        for n in (9, 12, 10)
    ]
    source, target = (
        torch.tensor([[*row, *[t5.PAD] * (max(map(len, rows)) - len(row))] for row in rows])
        for rows in zip(*pairs, strict=True)
    )
    return model, source, target


def test_t5_has_the_same_loss_on_corrupted_pairs(wide):  # noqa: F811
    """transformers shifts the labels itself and leaves out those that are -100; ours are shifted and masked here."""
    model, source, target = t5_and_pairs()
    labels = torch.where(target == t5.PAD, -100, target)
    want = model(source, attention_mask=source != t5.PAD, labels=labels).loss
    shifted = t5.shift_right(target)
    assert shifted.tolist() == model._shift_right(labels).tolist() and (target == t5.PAD).any()
    ours = at.load_hf(model)(source, shifted, mask=source != t5.PAD)
    compare(at.cross_entropy(ours, target, target != t5.PAD), want, name="loss", atol=1e-10, rtol=1e-10)
    unshifted = at.cross_entropy(at.load_hf(model)(source, target, mask=source != t5.PAD), target, target != t5.PAD)
    assert abs(unshifted - want) > 1e-3


def test_t5_has_the_same_loss_with_upstreams_casts():
    model, source, target = t5_and_pairs(spread=0.1)
    labels = torch.where(target == t5.PAD, -100, target)

    def ours():
        Z = at.load_hf(model)(source, t5.shift_right(target), mask=source != t5.PAD)
        return at.cross_entropy(Z, target, target != t5.PAD)

    check_unlifted("loss", lambda: model(source, attention_mask=source != t5.PAD, labels=labels).loss, ours)
