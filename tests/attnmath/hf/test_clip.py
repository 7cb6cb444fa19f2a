"""CLIP's two towers: hidden states and gradients are those of `transformers`."""

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
    check_both_worlds,
    check_converted,
    ids,
    randomised,
)

SIZES = dict(hidden_size=6, num_attention_heads=2, intermediate_size=17, num_hidden_layers=2)


def text_tower():
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(vocab_size=VOCABULARY, max_position_embeddings=2 * SOURCE, layer_norm_eps=1e-3, **SIZES)
    return randomised(CLIPTextModel(config))


def test_texts():
    model, source, positions = text_tower(), ids(BATCH, SOURCE), ids(BATCH, SOURCE, seed=7) % SOURCE
    assert model.config.hidden_act == "quick_gelu"
    options = {"attention_mask": PADDED.long(), "position_ids": positions}
    theirs = lambda: model(source, **options).last_hidden_state  # noqa: E731
    check_converted("CLIP texts", model, theirs, [source], PADDED, hide=PADDED, positions=positions)


def test_pictures(rng):
    from transformers import CLIPVisionConfig, CLIPVisionModel

    model = randomised(CLIPVisionModel(CLIPVisionConfig(image_size=8, patch_size=4, **SIZES)))
    model.post_layernorm = None  # which the row of the class alone would pass
    given = torch.from_numpy(rng.standard_normal((3, 3, 8, 8)))
    converted = at.load_hf(model)

    def theirs():
        E = model.pre_layrnorm(model.embeddings(given))
        return model.encoder(inputs_embeds=E).last_hidden_state

    def by_hand(params):
        Z, vjp = converted(given.numpy(), params=params, world=an)
        return Z, lambda dZ: vjp(dZ)[1]

    ours = lambda params: converted(given, params=params)  # noqa: E731
    check_both_worlds("CLIP pictures", model, theirs, ours, by_hand, converted.params)


def test_another_epsilon_is_refused():
    from transformers import CLIPVisionConfig, CLIPVisionModel

    model = CLIPVisionModel(CLIPVisionConfig(image_size=8, patch_size=4, layer_norm_eps=1e-3, **SIZES))
    with pytest.raises(ValueError, match=r"config\.layer_norm_eps is 0\.001; only 1e-05"):
        at.load_hf(model)


END = VOCABULARY - 1  # also the highest id, which is what the first CLIP looks for


def whole_model(end):
    from transformers import CLIPConfig, CLIPModel

    text = SIZES | dict(vocab_size=VOCABULARY, max_position_embeddings=SOURCE, eos_token_id=end, bos_token_id=0)
    picture = SIZES | dict(hidden_size=10, num_attention_heads=5, image_size=8, patch_size=4)
    config = CLIPConfig(text_config=text, vision_config=picture, projection_dim=7)
    return randomised(CLIPModel(config))


def pairs(rng, n=4):
    """Pictures, and sentences that end at different places, with other tokens behind the end."""
    source = ids(n, SOURCE) % (END - 1) + 1
    source[torch.arange(n), torch.tensor([4, SOURCE - 1, 2, 7])] = END
    return torch.from_numpy(rng.standard_normal((n, 3, 8, 8))), source


@pytest.mark.parametrize("end", [2, END], ids=["highest id", "first end"])
def test_whole(end, rng):
    model, (given, source) = whole_model(end), pairs(rng)
    if end != 2:
        source[0, 9] = END  # a second end, and none of the padding behind it counts
    converted = at.load_hf(model)

    def by_hand(params):
        Z, vjp = converted(given.numpy(), source.numpy(), params=params, world=an)
        return Z, lambda dZ: vjp(dZ)[1]

    theirs = lambda: model(input_ids=source, pixel_values=given).logits_per_image  # noqa: E731
    ours = lambda params: converted(given, source, params=params)  # noqa: E731
    check_both_worlds("CLIP", model, theirs, ours, by_hand, converted.params)


def test_embeddings_and_loss_of_the_whole(rng):
    model, (given, source) = whole_model(END), pairs(rng)
    converted, out = at.load_hf(model), model(input_ids=source, pixel_values=given, return_loss=True)
    options, (of_picture, of_text) = converted.keywords(at), converted.heads
    U = at.vision_transformer(given, converted.params["picture"], of_picture, options["size"], **options["picture"])
    V = at.text_embedding(source, converted.params["text"], of_text, end=END, **options["text"])
    compare(at.unit_norm(U), out.image_embeds, name="pictures", atol=1e-10)
    compare(at.unit_norm(V), out.text_embeds, name="texts", atol=1e-10)
    loss = at.contrastive_loss(U, V, converted.params["log_scale"])
    compare(loss, out.loss, name="loss", atol=1e-10)
    compare(at.matching_loss(converted(given, source)), out.loss, name="loss of the scores", atol=1e-10)
    arrays = [X.detach().numpy() for X in (U, V, model.logit_scale)]
    compare(an.contrastive_loss(*arrays)[0], out.loss, name="loss in NumPy", atol=1e-10)
    parameters = list(model.parameters())
    got, want = (torch.autograd.grad(L, parameters, retain_graph=True) for L in (loss, out.loss))
    compare(got, want, name="gradients of the loss", atol=1e-10)
    assert model.logit_scale.grad is None and max(g.abs().max() for g in want) > 1e-3


def test_padding_behind_the_end_is_not_looked_at_and_a_sentence_without_an_end_is_refused(rng):
    model, (given, source) = whole_model(END), pairs(rng)
    converted, words = at.load_hf(model), torch.arange(SOURCE) <= (source == END).int().argmax(-1)[:, None]
    theirs = model(input_ids=source, pixel_values=given, attention_mask=words.long()).logits_per_image
    assert not words.all()
    for options in ({}, {"mask": words}):
        compare(converted(given, source, **options), theirs, name=f"with {options}", atol=1e-10)
    source[2] = 1
    with pytest.raises(ValueError, match=r"sentence 2 of ids has no end-of-text token"):
        converted(given, source)
