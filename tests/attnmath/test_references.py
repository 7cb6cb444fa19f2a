"""Whole models equal references that nobody here wrote: `nn.Transformer`; BERT, GPT-2, Llama and T5 of `transformers`.

Logits and the gradients of every parameter, in float64, in both worlds; the families that came later are in
tests/attnmath/hf.
"""

from functools import partial

import pytest
import torch
from torch import nn

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import compare
from attnmath.tree import flatten, unflatten
from tests.attnmath.converted import (
    BATCH,
    PADDED,
    SOURCE,
    TARGET,
    VOCABULARY,
    Wide,
    check_both_worlds,
    check_converted,
    check_unlifted,
    ids,
    randomised,
    wide,
)

__all__ = ["Wide", "wide"]
FAMILIES = ("llama", "t5")

BERTS = {
    "small": dict(hidden_size=6, num_attention_heads=2, intermediate_size=17, num_hidden_layers=2),
    "deep": dict(
        hidden_size=15,
        num_attention_heads=5,
        intermediate_size=7,
        num_hidden_layers=3,
        layer_norm_eps=1e-5,
        type_vocab_size=3,
    ),
}


@pytest.mark.parametrize("config", BERTS)
def test_bert(config):
    from transformers import BertConfig, BertModel

    model = randomised(
        BertModel(
            BertConfig(vocab_size=VOCABULARY, max_position_embeddings=SOURCE, **BERTS[config]), add_pooling_layer=False
        )
    )
    source = ids(BATCH, SOURCE)
    # rows of the other segments and the padding id are unused: their gradient is zero in all
    theirs = lambda: model(source, attention_mask=PADDED).last_hidden_state  # noqa: E731
    check_converted(f"BERT {config}", model, theirs, [source], PADDED, hide=PADDED)


GPTS = {
    "tied": dict(n_embd=6, n_head=2, n_layer=2),
    "untied": dict(n_embd=10, n_head=5, n_layer=3, n_inner=13, activation_function="relu", layer_norm_epsilon=1e-3),
}


@pytest.mark.parametrize("config", GPTS)
def test_gpt2(config):
    from transformers import GPT2Config, GPT2LMHeadModel

    tie = config == "tied"
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=SOURCE + 2,
            tie_word_embeddings=tie,
            bos_token_id=1,
            eos_token_id=2,
            **GPTS[config],
        )
    )
    assert (model.lm_head.weight is model.transformer.wte.weight) is tie
    source = ids(BATCH, SOURCE)
    model = randomised(model)
    assert ("head" in at.load_hf(model).params) is not tie
    check_converted(f"GPT-2 {config}", model, lambda: model(source).logits, [source])
    check_converted(
        f"GPT-2 {config}, padded",
        model,
        lambda: model(source, attention_mask=PADDED).logits,
        [source],
        PADDED,
        hide=PADDED,
    )


LLAMAS = {
    "grouped": dict(hidden_size=12, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=2),
    "tied": dict(
        hidden_size=8,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=6,
        num_hidden_layers=3,
        rms_norm_eps=1e-3,
        rope_theta=50.0,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
    ),
    "multi-query": dict(hidden_size=12, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=1),
}


@pytest.mark.parametrize("config", LLAMAS)
def test_llama(config, wide):
    from transformers import LlamaConfig, LlamaForCausalLM

    options = dict(vocab_size=VOCABULARY, intermediate_size=17, max_position_embeddings=32) | LLAMAS[config]
    model = randomised(LlamaForCausalLM(LlamaConfig(**options)))
    source = ids(BATCH, SOURCE)
    check_converted(f"Llama {config}", model, lambda: model(source).logits, [source])


T5S = {
    "plain": dict(d_model=6, d_kv=5, d_ff=17, num_layers=2, num_heads=3),
    "gated": dict(
        d_model=10,
        d_kv=2,
        d_ff=13,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=5,
        feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        layer_norm_epsilon=1e-3,
    ),
    "unscaled": dict(d_model=6, d_kv=5, d_ff=7, num_layers=1, num_heads=2, tie_word_embeddings=False),
}


def t5_model(config, spread=0.3):
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, dropout_rate=0.0, **T5S[config]))
    model = randomised(model, spread)
    if config == "unscaled":  # untied by hand: the configuration of this version ties always
        model.lm_head.weight = nn.Parameter(0.3 * torch.randn(VOCABULARY, 6, dtype=torch.float64))
        assert not model.config.scale_decoder_outputs and "head" in at.load_hf(model).params
    return model, ids(BATCH, SOURCE), ids(BATCH, TARGET, seed=3)


@pytest.mark.parametrize("config", T5S)
def test_t5(config, wide):
    model, source, target = t5_model(config)
    theirs = lambda: model(source, attention_mask=PADDED, decoder_input_ids=target).logits  # noqa: E731
    check_converted(f"T5 {config}", model, theirs, [source, target], PADDED)


@pytest.mark.parametrize("config", T5S)
def test_t5_with_upstreams_casts(config):
    model, source, target = t5_model(config, spread=0.1)
    theirs = lambda: model(source, attention_mask=PADDED, decoder_input_ids=target).logits  # noqa: E731
    check_unlifted(f"T5 {config}", theirs, lambda: at.load_hf(model)(source, target, mask=PADDED))


def test_buckets_of_long_texts_are_t5s():
    from transformers.models.t5.modeling_t5 import T5Attention

    offsets = torch.arange(600) - torch.arange(600)[:, None]
    for count, distance in ((32, 128), (8, 20), (16, 500)):
        for causal in (False, True):
            want = T5Attention._relative_position_bucket(offsets, not causal, count, distance)
            compare(at.relative_buckets(600, 600, count, distance, causal=causal), want, name="torch")
            compare(an.relative_buckets(600, 600, count, distance, causal=causal), want, name="NumPy")


NNS = {
    "post-norm": dict(d_model=6, nhead=2, num_encoder_layers=2, num_decoder_layers=3, dim_feedforward=17),
    "pre-norm": dict(
        d_model=10,
        nhead=5,
        num_encoder_layers=1,
        num_decoder_layers=2,
        dim_feedforward=7,
        norm_first=True,
        activation="gelu",
        layer_norm_eps=1e-3,
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("config", NNS)
def test_nn_transformer(config, masked, rng):
    options = NNS[config]
    module = randomised(nn.Transformer(dropout=0.0, batch_first=True, **options))
    d, heads = options["d_model"], options["nhead"]
    S, X = rng.standard_normal((BATCH, SOURCE, d)), rng.standard_normal((BATCH, TARGET, d))
    causal = ~torch.ones(TARGET, TARGET).tril().bool()  # theirs is True where attention is forbidden
    masks = {"tgt_mask": causal, "src_key_padding_mask": ~PADDED, "memory_key_padding_mask": ~PADDED} if masked else {}

    def joint(world):
        norm = partial(world.layer_norm, eps=options.get("layer_norm_eps", 1e-5))
        activation = getattr(world, options.get("activation", "relu"))
        return {
            "norm": norm,
            "join": partial(world.sublayer, norm_first=options.get("norm_first", False), norm=norm),
            "feed_forward": partial(world.feed_forward, activation=activation),
        }

    def ours(params):
        keys, mask = (PADDED[:, None, None], at.causal_mask(TARGET)) if masked else (True, True)
        M = at.encoder(torch.from_numpy(S), params["encoder"], heads, keys, **joint(at))
        return at.decoder(torch.from_numpy(X), M, params["decoder"], heads, mask, keys, **joint(at))

    def by_hand(params):
        keys, mask = (PADDED[:, None, None].numpy(), an.causal_mask(TARGET)) if masked else (True, True)
        M, encoder_vjp = an.encoder(S, params["encoder"], heads, keys, **joint(an))
        Y, decoder_vjp = an.decoder(X, M, params["decoder"], heads, mask, keys, **joint(an))

        def vjp(dY):
            _, dM, ddecoder = decoder_vjp(dY)
            return {"encoder": encoder_vjp(dM)[1], "decoder": ddecoder}

        return Y, vjp

    theirs = lambda: module(torch.from_numpy(S), torch.from_numpy(X), **masks)  # noqa: E731
    check_both_worlds(config, module, theirs, ours, by_hand, at.load_nn(module))


def test_a_model_that_cannot_be_converted_is_refused():
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    sizes = dict(n_embd=4, n_head=2, n_layer=1, vocab_size=5, n_positions=3)
    with pytest.raises(ValueError, match=r"config.scale_attn_weights is False; only True can be converted"):
        at.load_hf(GPT2LMHeadModel(GPT2Config(scale_attn_weights=False, **sizes)))
    with pytest.raises(ValueError, match=r"activation is 'tanh'; expected one of gelu, gelu_new"):
        at.load_hf(GPT2LMHeadModel(GPT2Config(activation_function="tanh", **sizes)))
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    sizes = dict(hidden_size=4, num_attention_heads=2, num_hidden_layers=1, vocab_size=5, intermediate_size=4)
    with pytest.raises(ValueError, match=r"rope_type 'linear'; only 'default'"):
        at.load_hf(LlamaForCausalLM(LlamaConfig(rope_parameters=rope, **sizes)))
    with pytest.raises(ValueError, match=r"model is a Linear; expected one of .*BertModel, .*GPT2LMHeadModel"):
        at.load_hf(nn.Linear(2, 2))


def test_a_wrong_weight_is_seen(monkeypatch):
    """The comparison is alive: one transposed query map, and both worlds disagree with the reference."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = randomised(GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=SOURCE, **GPTS["tied"])))
    source, converted = ids(BATCH, SOURCE), at.load_hf(model)
    flat = flatten(converted.params)
    flat["layers.0.attention.query.weight"] = flat["layers.0.attention.query.weight"].T
    for world, X, params in ((at, source, unflatten(flat)), (an, source.numpy(), at.to_numpy(unflatten(flat)))):
        Z = converted(X, params=params, world=world)
        with pytest.raises(AssertionError):
            compare(Z if world is at else Z[0], model(source).logits, atol=1e-3)
