"""Decoding and prefill, as ratios to `transformers` in the same run, on one thread.

The model is GPT-2's decoder with random weights, converted by `load_hf`. Before it is timed, both must write the same
greedy tokens, or give the same logits.
"""

from functools import partial

import torch
from timing import ratio_of_times
from transformers import GPT2Config, GPT2LMHeadModel

import attnmath.torch as at
from attnmath.check import compare

D, HEADS, LAYERS, TOKENS, N = 256, 4, 4, 1000, 512


def both():
    """A model of `transformers` whose greedy text does not repeat itself, and ours."""
    torch.manual_seed(0)
    sizes = {"vocab_size": TOKENS, "n_positions": N, "n_embd": D, "n_layer": LAYERS, "n_head": HEADS}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, attn_implementation="sdpa")).eval()
    torch.nn.init.normal_(model.transformer.wpe.weight, std=0.2)
    return model, at.load_hf(model)


def test_greedy(benchmark, ratios):
    """128 tokens behind a prompt of 64, with the caches of both."""
    model, converted = both()
    prompt, count = torch.randint(1, TOKENS, (1, 64)), 128
    options = {"min_new_tokens": count, "max_new_tokens": count, "do_sample": False, "pad_token_id": 0}

    def theirs():
        with torch.no_grad():
            return model.generate(prompt, **options, eos_token_id=None)[:, 64:]

    def ours():
        return converted.greedy(prompt, count)

    assert ours().tolist() == theirs().tolist() and len(set(ours()[0].tolist())) > 10
    sizes = {"prompt": 64, "tokens": count, "d": D, "layers": LAYERS}
    name = "torch greedy decoding / transformers' generate"
    goal = 1.05  # "not slower": within the noise of a machine
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, goal, sizes, rounds=3) <= goal


def test_prefill(benchmark, ratios):
    """A prompt of 512 tokens into the cache, with logits of its last row alone."""
    model, converted = both()
    prompt = torch.randint(TOKENS, (1, N))
    whole = partial(at.decoder_only, prompt, converted.params, converted.heads, **converted.keywords(at))

    def theirs():
        with torch.no_grad():
            return model(prompt, use_cache=True, logits_to_keep=1).logits[:, -1]

    def ours():
        with torch.no_grad():
            return whole(cache={}, head=at.last_row(at.logits))[:, -1]

    compare(ours(), theirs(), name="logits of the last row", atol=1e-4)
    sizes = {"batch": 1, "n": N, "d": D, "layers": LAYERS}
    name = "torch prefill, last row's logits / transformers'"
    assert ratio_of_times(benchmark, ratios, name, ours, theirs, 1.0, sizes) <= 1.0
