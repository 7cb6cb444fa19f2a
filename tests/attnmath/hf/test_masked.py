"""BERT with its masked head: logits, loss and all gradients are those of `transformers`, tied and untied."""

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from tests.attnmath.converted import (
    BATCH,
    PADDED,
    SOURCE,
    VOCABULARY,
    check_converted,
    check_unlifted,
    ids,
    randomised,
)

SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=15,
    num_attention_heads=5,
    intermediate_size=7,
    num_hidden_layers=2,
    max_position_embeddings=SOURCE + 2,
    type_vocab_size=3,
)
KINDS = {
    "tied": {"pad_token_id": None},
    "padding without gradient": {"pad_token_id": 1},
    "untied": {"tie_word_embeddings": False, "hidden_act": "relu", "layer_norm_eps": 1e-3},
    "quick": {"hidden_act": "quick_gelu"},
}
EVERY = pytest.mark.parametrize("kind", KINDS)


def small(kind, spread=0.3):
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(**SIZES | KINDS[kind]))
    model.cls.predictions.decoder.bias = model.cls.predictions.bias  # untied, theirs has a second one that nobody reads
    return randomised(model, spread)


@EVERY
def test_value_and_gradients(kind):
    model, source = small(kind), ids(BATCH, SOURCE)
    assert ("table" in at.load_hf(model).params["head"]) is (kind != "tied")
    theirs = lambda: model(source, attention_mask=PADDED.long()).logits  # noqa: E731
    check_converted(kind, model, theirs, [source], PADDED, hide=PADDED)


def test_segments_and_positions():
    model, source = small("tied"), ids(BATCH, SOURCE)
    positions, segments = ids(BATCH, SOURCE, seed=7) % SOURCE, ids(BATCH, SOURCE, seed=8) % 3
    theirs = lambda: model(source, PADDED.long(), token_type_ids=segments, position_ids=positions).logits  # noqa: E731
    check_converted("tied", model, theirs, [source], PADDED, hide=PADDED, positions=positions, segments=segments)


@EVERY
def test_the_loss_of_blanks_is_theirs(kind, rng):
    """Only the chosen places are computed here; there the others have the label -100."""
    model, source = small(kind), ids(BATCH, SOURCE)
    targets, chosen = ids(BATCH, SOURCE, seed=4), PADDED & torch.from_numpy(rng.random((BATCH, SOURCE)) < 0.4)
    assert 3 < chosen.sum() < PADDED.sum() - 3
    want = model(source, attention_mask=PADDED.long(), labels=torch.where(chosen, targets, -100)).loss
    converted = at.load_hf(model)
    Z = converted(source, mask=PADDED, chosen=chosen)
    assert Z.shape == (int(chosen.sum()), VOCABULARY)
    loss = at.cross_entropy(Z, targets[chosen])
    compare(loss, want, name="loss", atol=1e-12)
    parameters = list(model.parameters())
    theirs, ours = (torch.autograd.grad(L, parameters) for L in (want, loss))
    for one, other in zip(ours, theirs, strict=True):
        compare(one, other, name="gradient", atol=1e-11)
    arrays = {"world": an, "params": at.to_numpy(converted.params), "chosen": chosen.numpy()}
    Z, vjp = converted(source.numpy(), mask=PADDED.numpy(), **arrays)
    loss, loss_vjp = an.cross_entropy(Z, targets[chosen].numpy())
    compare(loss, want, name="loss by hand", atol=1e-12)
    bias = vjp(loss_vjp(np.float64(1.0)))["head"]["bias"]
    own = dict(zip((name for name, _ in model.named_parameters()), theirs, strict=True))
    compare(bias, own["cls.predictions.bias"], name="gradient by hand", atol=1e-11)


@EVERY
def test_unlifted(kind):
    model, source = small(kind, 0.1), ids(BATCH, SOURCE)
    with torch.no_grad():
        check_unlifted(kind, lambda: model(source).logits, lambda: at.load_hf(model)(source))


def test_a_decoder_is_refused():
    model = small("tied")
    model.config.is_decoder = True
    with pytest.raises(ValueError, match=r"config\.is_decoder is True; only False can be converted"):
        at.load_hf(model)
