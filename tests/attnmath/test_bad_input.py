"""Bad input gets one clear sentence: which argument, its shape or dtype, and what was expected. In both worlds."""

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath import _require

pytestmark = pytest.mark.usefixtures("as_users_call")


X = np.zeros
PAIR = {"weight": X((6, 6)), "bias": X(6)}
PARAMS = dict.fromkeys(["query", "key", "value", "output"], PAIR)
NORM = {"gain": X(6), "bias": X(6)}
LAYER = {"attention": PARAMS, "cross_attention": PARAMS, "feed_forward": {"up": PAIR, "down": PAIR}}
LAYER |= dict.fromkeys(["attention_norm", "cross_attention_norm", "feed_forward_norm"], NORM)
EMBED = {"word": X((9, 6)), "position": X((4, 6)), "segment": X((1, 6)), "norm": {"gain": X(6), "bias": X(6)}}
VECTOR = {"w": X(3)}
MOMENTS = {"step": 0, "first": VECTOR, "second": VECTOR}

# component, arguments, keywords, what the message must say
BAD = [
    ("softmax", (X((3, 5), int),), {}, r"S has dtype (torch\.)?int64; floats are expected"),
    ("softmax", ([1.0, 2.0],), {}, r"S is a list; an array"),
    ("softmax", (X((3, 0)),), {}, r"S has shape \(3, 0\): its axis -1 is empty; at least one score is needed"),
    ("softmax", (X((3, 5)), 0.0), {}, r"temperature is 0\.0; it must be > 0"),
    ("softmax", (X((3, 5)), -1.0), {}, r"temperature is -1\.0; it must be > 0"),
    ("softmax", (X((3, 5)),), {"empty_rows": "nan"}, r"empty_rows is 'nan'; expected one of 'error', 'zero'"),
    ("softmax", (np.full((3, 5), -np.inf),), {}, r"row \(0,\) may attend to no key.*empty_rows='zero'"),
    ("log_softmax", (np.full((2, 3, 5), -np.inf),), {}, r"row \(0, 0\) may attend to no key"),
    ("log_softmax", (X((3, 0)),), {}, r"S has shape \(3, 0\)"),
    ("dropout", (X((3, 5)), X((3, 5), bool), 1.0), {}, r"p is 1\.0; the probability of being dropped must be"),
    ("dropout", (X((3, 5)), X((3, 5), bool), -0.1), {}, r"p is -0\.1; the probability"),
    ("dropout", (X((3, 5)), X((3, 5)), 0.1), {}, r"keep has .*3, 5.* and dtype (torch\.)?float64; expected booleans"),
    ("dropout", (X((3, 5)), X((5, 3), bool), 0.1), {}, r"expected booleans.*that broadcast to X's shape \(3, 5\)"),
    ("dropout", (X((3, 5)), X((2, 3, 5), bool), 0.1), {}, r"that broadcast to X's shape \(3, 5\)"),
    ("dropout", (X((3, 5), int), X((3, 5), bool), 0.1), {}, r"X has dtype (torch\.)?int64; floats are expected"),
    ("draw_keep", ((3, 5), 1.5, None), {}, r"p is 1\.5; the probability"),
    ("random_dropout", (1.0, None), {}, r"p is 1\.0; the probability"),
    ("logsumexp", (X((3, 5), bool),), {}, r"S has dtype (torch\.)?bool"),
    ("dot_score", (X((3, 7)), X((5, 6))), {}, r"K has shape \(5, 6\), expected \(\.\.\., m, k\) with k = 7"),
    (
        "dot_score",
        (X((2, 3, 7)), X((4, 5, 7))),
        {},
        r"K has leading axes \(4,\), which do not broadcast with \(2,\) of Q",
    ),
    ("dot_score", (X(7), X((5, 7))), {}, r"Q has shape \(7,\); expected \(\.\.\., n, k\)"),
    ("scaled_dot_score", (X((3, 0)), X((5, 0))), {}, r"Q has shape \(3, 0\): its axis -1 is empty"),
    ("scaled_dot_score", (X((3, 7)), X((5, 7), np.float32)), {}, r"K has dtype .*float32 but Q has .*float64"),
    (
        "multiplicative_score",
        (X((3, 7)), X((5, 6)), X((6, 7))),
        {},
        r"W has shape \(6, 7\), expected \(q, k\) with q = 7",
    ),
    ("additive_score", (X((3, 7)), X((5, 6)), X((7, 4)), X((6, 5)), X(4)), {}, r"Wk has shape \(6, 5\).*a = 4"),
    ("attention_weights", (X((3, 7)), X((0, 7))), {}, r"K has shape \(0, 7\): its axis -2 is empty; at least one key"),
    ("attention", (X((3, 7)), X((5, 7)), X((4, 2))), {}, r"V has shape \(4, 2\), expected \(\.\.\., m, v\) with m = 5"),
    ("attention", (X((3, 7)), X((0, 7)), X((0, 2))), {}, r"at least one key is needed"),
    (
        "attention",
        (X((3, 7)), X((5, 7)), X((5, 2)), X((3, 5))),
        {},
        r"mask has dtype (torch\.)?float64; masks are boolean",
    ),
    (
        "attention",
        (X((3, 7)), X((5, 7)), X((5, 2)), X((5, 3), bool)),
        {},
        r"mask has shape \(5, 3\), which does not broadcast to the scores' shape \(3, 5\)",
    ),
    ("attention", (X((3, 7)), X((5, 7)), X((5, 2)), np.ones((2, 3, 5), bool)), {}, r"mask has shape \(2, 3, 5\)"),
    (
        "attention",
        (X((3, 7)), X((5, 7)), X((5, 2)), np.eye(3, 5, 3, dtype=bool)),
        {},
        r"row \(2,\) may attend to no key",
    ),
    ("attention", (X((3, 7)), X((5, 7)), X((5, 2)), False), {}, r"row \(0,\) may attend to no key"),
    ("attention_chunked", (X((3, 7)), X((5, 7)), X((5, 2))), {"chunk": 0}, r"chunk is 0; it must be > 0"),
    (
        "attention_chunked",
        (X((2, 3, 7)), X((5, 7)), X((5, 2))),
        {},
        r"leading axes \(2,\), \(\), \(\); make them equal",
    ),
    (
        "attention_chunked",
        (X((3, 7)), X((5, 7)), X((5, 2)), np.eye(3, 5, 3, dtype=bool)),
        {},
        r"row \(2,\) may attend to no key",
    ),
    ("linear", (X((3, 7)), X((6, 4)), X(4)), {}, r"W has shape \(6, 4\), expected \(i, o\) with i = 7"),
    ("affine", (X((3, 7)), {"weight": X((6, 4))}), {}, r"has shape \(6, 4\), expected \(i, o\) with i = 7"),
    ("affine", (X((3, 7)), {"bias": X(7)}), {}, r"lacks 'weight'; expected the keys 'weight', and perhaps 'bias'"),
    ("layer_norm", (X((3, 7)), X(7), X(6)), {}, r"bias has shape \(6,\), expected \(d\) with d = 7"),
    ("layer_norm", (X((3, 7)), X(7), X(7), 0.0), {}, r"eps is 0\.0; it must be > 0"),
    ("rms_norm", (X((3, 7)), X(6)), {}, r"gain has shape \(6,\), expected \(d\) with d = 7"),
    ("rms_norm", (X((3, 0)), X(0)), {}, r"X has shape \(3, 0\).*at least one component"),
    ("rms_norm", (X((3, 7)), X(7), 0.0), {}, r"eps is 0\.0; it must be > 0"),
    ("relu", (X((3,), int),), {}, r"X has dtype (torch\.)?int64"),
    ("silu", (X((3,), int),), {}, r"X has dtype (torch\.)?int64"),
    ("gelu_tanh", (X((3,), int),), {}, r"X has dtype (torch\.)?int64"),
    ("swish", (X((3,), int),), {}, r"X has dtype (torch\.)?int64"),
    ("swish", (X(3), 0.0), {}, r"beta is 0\.0; it must be > 0"),
    (
        "gated_feed_forward",
        (X((3, 6)), {"gate": {"weight": X((6, 5))}, "up": {"weight": X((6, 4))}, "down": {"weight": X((4, 6))}}),
        {},
        r"up has shape \(3, 4\), expected \(\.\.\., n, f\) with f = 5",
    ),
    ("gelu", (X((3,), int),), {}, r"X has dtype (torch\.)?int64"),
    (
        "multi_head_attention",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS, 4),
        {},
        r"heads is 4; .*divides the width 6 of params",
    ),
    (
        "multi_head_attention",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS, 2, np.ones((3, 3, 5), bool)),
        {},
        r"mask has shape \(3, 3, 5\)",
    ),
    (
        "multi_head_attention",
        (X((3, 6)), X((5, 6)), X((5, 6)), {"query": PAIR}, 2),
        {},
        r"params lacks 'key', 'value', 'output'; expected the keys",
    ),
    (
        "multi_head_attention",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS | {"key": {"weight": X((6, 4)), "bias": X(4)}}, 6),
        {},
        r"params\['key'\] has width 4; with 6 query heads of width 1 it must be g x 1, where g, .*, divides 6",
    ),
    (
        "multi_head_sum",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS | {"key": {"weight": X((6, 4)), "bias": X(4)}}, 2),
        {},
        r"params\['key'\] has width 4; with 2 query heads of width 3 it must be g x 3",
    ),
    (
        "multi_head_attention",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS | {"qery": PAIR}, 2),
        {},
        r"params holds 'qery', which nothing reads \(write 'query' for 'qery'\)",
    ),
    (
        "decoder_layer",
        (X((3, 6)), None, LAYER, 2),
        {},
        r"holds 'cross_attention', 'cross_attention_norm'.*nothing reads",
    ),
    (
        "encoder",
        (X((3, 6)), {"layers": {"0": {}, "2": {}}}, 2),
        {},
        r"params\['layers'\] lacks '1' and holds '2', which nothing reads",
    ),
    (
        "multi_head_attention",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS | {"output": {"weight": X((4, 6)), "bias": X(6)}}, 2),
        {},
        r"params\['output'\] has 4 rows; expected 2 heads of the values' width 3, 6",
    ),
    ("multi_head_sum", (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS, 2, X((3, 5))), {}, r"masks are boolean"),
    ("attention", (X((3, 7)), X((5, 7)), X((5, 2))), {"bias": X((5, 3))}, r"bias has shape \(5, 3\), .* \(3, 5\)"),
    ("attention_fused", (X((3, 7)), X((5, 7)), X((5, 2))), {"bias": X((3, 5), int)}, r"bias has dtype (torch\.)?int64"),
    ("scaled_dot_score", (X((3, 7)), X((5, 7))), {"scale": 0.0}, r"scale is 0\.0; it must be > 0"),
    ("attention", (X((3, 7)), X((5, 7)), X((5, 2))), {"scale": -1.0}, r"scale is -1\.0; it must be > 0"),
    ("attention_fused", (X((3, 7)), X((5, 7)), X((5, 2))), {"scale": np.nan}, r"scale is nan; it must be > 0"),
    (
        "attention_fused",
        (X((3, 7)), X((5, 7)), X((5, 2))),
        {"scale": np.inf},
        r"scale is inf; it must be a finite number, and None divides by the root",
    ),
    ("attention_weights", (X((3, 7)), X((5, 7))), {"softcap": 0.0}, r"softcap is 0\.0; it must be > 0"),
    (
        "attention_fused",
        (X((3, 7)), X((5, 7)), X((5, 2))),
        {"softcap": np.inf},
        r"softcap is inf; it must be a finite number, and None leaves the scores",
    ),
    ("attention_weights", (X((3, 7), np.float16), X((5, 7), np.float32)), {}, r"K has dtype .*float32 but Q .*float16"),
    (
        "attention",
        (X((3, 7), np.float16), X((5, 7), np.float16), X((5, 2), np.float16), X((3, 5), np.float16)),
        {},
        r"mask has dtype (torch\.)?float16; masks are boolean",
    ),
    ("window_mask", (3, 1, 2), {}, r"n = 3 queries and m = 2 keys; a window needs 1 <= n <= m"),
    (
        "multi_head_sum",
        (X((3, 6)), X((5, 6)), X((5, 6)), PARAMS, 2),
        {"bias": X((3, 3, 5))},
        r"bias has shape \(3, 3, 5\), which does not broadcast to the scores' shape \(2, 3, 5\)",
    ),
    (
        "decoder_layer",
        (X((3, 6)), X((5, 4)), LAYER, 2),
        {},
        r"W has shape \(6, 6\), expected \(i, o\) with i = 4, the size that X gives it",
    ),
    ("decoder_layer", (X((3, 6)), X((5, 6)), LAYER, 4), {}, r"heads is 4; .*divides the width 6 of params"),
    ("lm_head", (X((3, 6)), X((9, 5))), {}, r"table has shape \(9, 5\), expected \(t, d\) with d = 6"),
    (
        "token_embedding",
        (np.zeros((2, 5), int), {"word": X((9, 6)), "position": X((4, 6))}),
        {},
        r"ids has 5 tokens in a row, but there are 4 positions: shorten the text",
    ),
    (
        "decoder_only",
        (np.array([[1, 9]]), {"embeddings": {"word": X((9, 6))}, "layers": {}}, 2),
        {},
        r"ids\[0, 1\] = 9 is outside the vocabulary of 9 tokens",
    ),
    (
        "decoder_only",
        (np.array([[1, 2]]), {"embeddings": {"word": X((9, 6))}, "layers": {}}, 2, np.ones((1, 3), bool)),
        {},
        r"mask has shape .*3.*expected booleans of ids' shape \(1, 2\)",
    ),
    (
        "transformer",
        (np.array([[1, 2]]), np.array([[1, 2]]), {"embeddings": {"word": X((9, 6))}}, 2, np.ones((1, 2))),
        {},
        r"mask has shape .*dtype (torch\.)?float64; expected booleans of ids' shape \(1, 2\)",
    ),
    ("relative_buckets", (3, 3, 2), {}, r"count is 2 and distance 128, which makes 0 buckets of one offset"),
    ("relative_bias", (X((32, 2)), 3, 3, 8), {}, r"count is 32 and distance 8, which makes 8 buckets"),
    ("self_attention", (X((3, 6)), X((6, 2)), X((6, 4)), X((6, 5))), {}, r"Wk has shape \(6, 4\), .* k = 2"),
    ("self_attention", (X((3, 6)), X((5, 2)), X((6, 2)), X((6, 5))), {}, r"Wq has shape \(5, 2\), .* d = 6"),
    ("causal_conv", (X((3, 6)), X((2, 5, 4)), X(4)), {}, r"W has shape \(2, 5, 4\), .* d = 6"),
    ("causal_conv", (X((3, 6)), X((0, 6, 4)), X(4)), {}, r"at least one tap is needed"),
    ("causal_conv", (X((3, 6)), X((2, 6, 4)), X(4), 0), {}, r"dilation is 0; it must be an integer >= 1"),
    ("softmax_entropy", (np.full((2, 3), -np.inf),), {}, r"row \(0,\) may attend to no key"),
    ("causal_mask", (3, 2), {}, r"n = 3 queries and m = 2 keys; .* at least as many keys as queries"),
    ("causal_mask", (0,), {}, r"n = 0 queries"),
    ("window_mask", (3, -1), {}, r"width is -1; it must be >= 0"),
    ("padding_mask", (np.array([2, 0]),), {}, r"lengths is \[2, 0\]; each must lie between 1 and m = 2"),
    ("padding_mask", (np.array([2, 5]), 4), {}, r"each must lie between 1 and m = 4"),
    ("padding_mask", (np.array([2.0, 1.0]),), {}, r"one-dimensional array of integers"),
    ("additive_mask", (X((2, 2)), float), {}, r"masks are boolean"),
    (
        "embedding",
        (np.array([[1, 2], [30, 3]]), X((9, 6))),
        {},
        r"ids\[1, 0\] = 30 is outside the vocabulary of 9 tokens",
    ),
    ("embedding", (np.array([-1]), X((9, 6))), {}, r"ids\[0\] = -1 is outside"),
    ("embedding", (np.array([1.0]), X((9, 6))), {}, r"ids has dtype (torch\.)?float64; token ids are integers"),
    ("bert_embedding", (np.zeros((1, 5), int), EMBED), {}, r"ids has 5 tokens in a row, but there are 4 positions"),
    (
        "bert",
        (np.zeros((1, 3), int), {"embeddings": EMBED, "layers": {}}, 2, np.ones((1, 4), bool)),
        {},
        r"mask has shape .*4.*expected booleans of ids' shape",
    ),
    ("mean_pool", (X((2, 3, 6)), np.array([[True, True, True], [False, False, False]])), {}, r"a row without a token"),
    ("mean_pool", (X((2, 3, 6)), np.ones((2, 3))), {}, r"expected booleans \(2, 3\)"),
    ("unit_norm", (X((2, 3)),), {}, r"X has a row of zeros at \(0,\)"),
    ("rnn", (X((2, 3, 7)), X(4), X((7, 4)), X((4, 4)), X(4)), {}, r"share their leading axes"),
    ("rnn", (X((3, 7)), X(4), X((7, 4)), X((4, 5)), X(4)), {}, r"U has shape \(4, 5\)"),
    ("sinusoidal_positions", (5, 7), {}, r"d is 7; it must be an even number >= 2"),
    ("sinusoidal_positions", (0, 6), {}, r"n is 0; it must be an integer >= 1"),
    ("sinusoidal_positions", (5, 6, -1.0), {}, r"base is -1\.0; it must be > 0"),
    ("rotary", (X((3, 7)),), {}, r"k is 7; it must be an even number >= 2"),
    ("rotary", (X((3, 6)),), {"pairing": "llama"}, r"pairing is 'llama'; expected one of 'interleaved', 'half'"),
    ("rotary", (X((3, 6)),), {"base": 0.0}, r"base is 0\.0; it must be > 0"),
    ("rotary", (X(6),), {}, r"X has shape \(6,\); expected \(\.\.\., n, k\)"),
    ("half_to_interleaved", (5,), {}, r"k is 5; it must be an even number"),
    ("relative_score", (X((3, 7)), X((5, 7)), X((4, 7))), {}, r"table has shape \(4, 7\); its axis 0 .* must be odd"),
    ("relative_score", (X((3, 7)), X((5, 7)), X((3, 6))), {}, r"table has shape \(3, 6\), .* k = 7"),
    ("alibi_slopes", (0,), {}, r"h is 0; it must be an integer >= 1"),
    ("alibi_bias", (3, 5, X(2, int)), {}, r"slopes has dtype (torch\.)?int64"),
    ("alibi_bias", (3, 0, X(2)), {}, r"m is 0; it must be an integer >= 1"),
    ("adam_state", (X(3),), {}, r"params is a (ndarray|Tensor); expected a tree: a dict"),
    ("adam_state", ({"w": X(3, int)},), {}, r"params\['w'\] has dtype (torch\.)?int64; floats are expected"),
    ("adam", (VECTOR, {"v": X(3)}, MOMENTS, 0.1), {}, r"grads is \['v'\]; expected the keys of params, \['w'\]"),
    (
        "adam",
        (VECTOR, {"w": X(2)}, MOMENTS, 0.1),
        {},
        r"grads\['w'\] has shape \(2,\), expected that of params\['w'\], \(3,\)",
    ),
    (
        "adam",
        (VECTOR, {"w": X(3, np.float32)}, MOMENTS, 0.1),
        {},
        r"grads\['w'\] has dtype .*float32 but params\['w'\] has .*float64",
    ),
    (
        "adam",
        ({"a": VECTOR}, {"a": {"w": X(2)}}, MOMENTS | {"first": {"a": VECTOR}, "second": {"a": VECTOR}}, 0.1),
        {},
        r"grads\['a'\]\['w'\] has shape",
    ),
    (
        "adam",
        (VECTOR, VECTOR, MOMENTS | {"second": {"w": X(4)}}, 0.1),
        {},
        r"state\['second'\]\['w'\] has shape \(4,\)",
    ),
    ("adam", (VECTOR, VECTOR, {}, 0.1), {}, r"state is \[\]; expected the dict of adam_state\(params\)"),
    ("adam", (VECTOR, VECTOR, MOMENTS, -0.1), {}, r"lr is -0\.1; it must be >= 0"),
    (
        "adam",
        (VECTOR, VECTOR, MOMENTS, 0.1),
        {"betas": (0.9, 1.0)},
        r"betas is \(0\.9, 1\.0\); expected two numbers in \[0, 1\)",
    ),
    ("adam", (VECTOR, VECTOR, MOMENTS, 0.1), {"eps": -1e-9}, r"eps is -1e-09; it must be >= 0"),
    ("adam", (VECTOR, VECTOR, MOMENTS, 0.1), {"weight_decay": -1.0}, r"weight_decay is -1\.0; it must be >= 0"),
    ("clip_by_norm", (VECTOR, 0.0), {}, r"limit is 0\.0; it must be > 0"),
    (
        "clip_by_norm",
        ({"a": VECTOR, "b": {"w": np.array([1, np.nan])}}, 1.0),
        {},
        r"grads has the norm nan, and 'b\.w' is the first leaf.*skip this step",
    ),
    ("clip_by_norm", ({"w": np.array([1, -np.inf])}, 1.0), {}, r"grads has the norm inf, and 'w'"),
    ("shaped_attention", (X((3, 7)), X((5, 7)), X((5, 2))), {}, r"K has shape \(5, 7\), expected .* with n = 3"),
    ("shaped_attention", (X((3, 7)), X((3, 7)), X((3, 2))), {"temperature": 0.0}, r"temperature is 0\.0; it must be"),
    ("shaped_attention", (X((3, 7)), X((3, 7)), X((3, 2)), X((3, 3))), {}, r"mask has dtype (torch\.)?float64; masks"),
    (
        "shaped_attention",
        (X((3, 7)), X((3, 7)), X((3, 2)), np.eye(3, k=1, dtype=bool)),
        {},
        r"row \(2,\) may attend to no key",
    ),
    ("scale_loss", (X(3, int), 2.0), {}, r"loss has dtype (torch\.)?int64; floats are expected"),
    ("scale_loss", (X(3), 0.0), {}, r"scale is 0\.0; it must be > 0"),
    ("unscale", ({"a": {"w": X(3, int)}}, 2.0), {}, r"a\.w has dtype (torch\.)?int64; floats are expected"),
    ("unscale", ({"w": X(3)}, -1.0), {}, r"scale is -1\.0; it must be > 0"),
    ("cross_entropy", (X((3, 5), int), X(3, int)), {}, r"Z has dtype (torch\.)?int64; floats are expected"),
    ("cross_entropy", (X((3, 0)), X(3, int)), {}, r"Z has shape \(3, 0\): its axis -1 is empty; at least one token"),
    ("cross_entropy", (X((3, 5)), X(3)), {}, r"targets has shape .*3.* and dtype (torch\.)?float64; expected integers"),
    ("cross_entropy", (X((3, 5)), 4), {}, r"targets has shape None and dtype int; expected integers of shape \(3,\)"),
    (
        "cross_entropy",
        (X((2, 3, 5)), X((2, 4), int)),
        {},
        r"targets has shape .*2, 4.* expected integers of shape \(2, 3\)",
    ),
    (
        "cross_entropy",
        (X((3, 5)), np.array([0, 5, 4])),
        {},
        r"targets holds 5, which is not between 0 and t - 1 = 4; .* False in the mask",
    ),
    ("cross_entropy", (X((3, 5)), np.array([0, -100, 4])), {}, r"targets holds -100, which is not between 0"),
    ("cross_entropy", (X((3, 5)), X(3, int), X(3)), {}, r"mask has shape .*3.* and dtype .*float64; expected booleans"),
    (
        "cross_entropy",
        (X((3, 5)), X(3, int), X((3, 1), bool)),
        {},
        r"mask has shape .*3, 1.* expected booleans of shape \(3,\)",
    ),
    ("cross_entropy", (X((3, 5)), X(3, int), X(3, bool)), {}, r"no position counts, so there is no mean"),
    ("cross_entropy", (X((0, 5)), X(0, int)), {}, r"no position counts"),
    ("cross_entropy", (X((3, 5)), X(3, int)), {"smoothing": 1.5}, r"smoothing is 1\.5; .* >= 0 and <= 1"),
    (
        "cross_entropy",
        (np.array([[0.0, 1], [-np.inf, -np.inf]]), X(2, int)),
        {},
        r"row 1 of the logits that count is -inf",
    ),
    ("smoothed_targets", (X(3), 5, 0.1), {}, r"targets has shape .* and dtype (torch\.)?float64; expected integers"),
    ("smoothed_targets", (np.array([5]), 5, 0.1), {}, r"targets holds 5, which is not between 0 and t - 1 = 4"),
    ("smoothed_targets", (X(3, int), 5, -0.1), {}, r"smoothing is -0\.1"),
]


W = np.full((3, 3), 1 / 3)
MEASURES = [
    ("loss_scale.LossScale", (0.0,), r"scale is 0\.0; it must be > 0"),
    ("loss_scale.LossScale", (1.0, 1.0), r"growth is 1\.0; it must be > 1"),
    ("loss_scale.LossScale", (1.0, 2.0, 1.0), r"backoff is 1\.0; it must lie between 0 and 1"),
    ("loss_scale.LossScale", (1.0, 2.0, 0.5, 0), r"interval is 0; it must be an integer >= 1"),
    ("patterns.entropy", (np.ones((2, 2), int),), r"P has dtype int64; floats are expected"),
    ("patterns.entropy", (X((0, 3)),), r"P has shape \(0, 3\): its axis -2 is empty; at least one query"),
    ("patterns.offset_score", (W, 3), r"no query of P, \(3, 3\), has a key at offset 3; choose one nearer to 0"),
    ("patterns.local_score", (X((2, 3)), 1), r"P has shape \(2, 3\), expected \(\.\.\., n, n\) with n = 2"),
    ("patterns.local_score", (W, -1), r"width is -1; it must be >= 0"),
    ("patterns.column_score", (W, np.array([0, 2])), r"columns has shape \(2,\) .*; expected 3 booleans, one per key"),
    ("patterns.gaussian_window", (3, 0.0), r"sigma is 0\.0; it must be > 0"),
    ("heads.gate_heads", (PARAMS, np.ones(4)), r"heads is 4; .* divides the width 6 of the output"),
    ("heads.gate_heads", (PARAMS, np.ones(2, np.float32)), r"W has dtype float64 but gates has float32"),
    ("heads.gate_gradients", (PARAMS, PARAMS, 5), r"heads is 5; .* divides the width 6"),
    ("heads.prune_heads", (PARAMS, np.zeros(2, bool)), r"expected booleans, one per head, at least one of them True"),
    ("heads.prune_heads", (PARAMS, np.ones(2)), r"expected booleans, one per head"),
    ("heads.prune_heads", (PARAMS, np.ones(4, bool)), r"heads is 4; .* divides the width 6 of params\['query'\]"),
    ("metrics.calibration_error", (np.ones((3, 2)), X(3, int)), r"a row that is no distribution: apply softmax"),
    (
        "metrics.calibration_error",
        (W, X(2, int)),
        r"labels has shape \(2,\) .* expected integers of shape \(3,\), one for each row of",
    ),
    ("metrics.calibration_error", (W, np.array([0, 1, 3])), r"labels holds 3, which is not between 0 and t - 1 = 2$"),
    ("metrics.calibration_error", (X((0, 3)), X(0, int)), r"probabilities has shape \(0, 3\).* at least one row"),
    ("metrics.calibration_error", (W, X(3, int), 0), r"bins is 0; it must be an integer >= 1"),
    ("metrics.error_rates", (["a"], []), r"there are 1 hypotheses and 0 references; one is due to each"),
    ("metrics.error_rates", ("word", ["word"]), r"hypotheses is one string; expected a list of words"),
    ("metrics.error_rates", (["a"], [""]), r"the references hold no symbol"),
    ("schedules.warmup", (0, 512, 4000), r"step is 0; it must be at least 1: steps are counted from 1"),
    ("schedules.warmup", (1, 512, 0), r"warmup is 0; it must be at least 1"),
    ("schedules.warmup", (1, 512, 10, 0.0), r"factor is 0\.0; it must be > 0"),
]


@pytest.mark.parametrize(("name", "args", "message"), MEASURES, ids=[f"{i}-{m[0]}" for i, m in enumerate(MEASURES)])
def test_measures_name_the_argument_too(name, args, message):
    module, function = name.split(".")
    f = getattr(importlib.import_module(f"attnmath.{module}"), function)
    with pytest.raises(ValueError, match=message) as error:
        f(*args)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def to_torch(value):
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return {key: to_torch(v) for key, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
@pytest.mark.parametrize("row", BAD, ids=[f"{i}-{row[0]}" for i, row in enumerate(BAD)])
def test_message_names_the_argument_and_the_cure(row, world):
    name, args, keywords, message = row
    f = getattr(world, name)
    args, keywords = (args, keywords) if world is an else (tuple(map(to_torch, args)), to_torch(keywords))
    with pytest.raises(ValueError) as error:
        f(*args, **keywords)
    text = str(error.value)
    assert re.search(message, text), text
    assert "\n" not in text and len(text) < 300


@pytest.mark.parametrize("function", ["general_attention"])
@pytest.mark.parametrize("world", [an, at], ids=["numpy", "torch"])
def test_scores_of_a_wrong_shape_are_named(function, world):
    def wrong(Q, K):
        S = K[..., :1, :]  # (1, 7) where (3, 5) is due
        return (S, None) if world is an else S

    Q, K, V = X((3, 7)), X((5, 7)), X((5, 2))
    Q, K, V = (Q, K, V) if world is an else map(torch.from_numpy, (Q, K, V))
    with pytest.raises(ValueError, match=r"score\(Q, K\) has shape \(1, 7\), expected \(\.\.\., n, m\) with n = 3"):
        getattr(world, function)(Q, K, V, wrong)


def test_the_numpy_world_never_imports_torch():
    modules = "attnmath.numpy, attnmath.check, attnmath.count, attnmath.minilm, attnmath.shapes"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_package_itself_imports_nothing():
    code = "import sys; before = set(sys.modules); import attnmath; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['attnmath']"


def test_what_was_accepted_once_does_not_let_others_in():
    """Sizes are looked up by names, axes, types, dtypes and shapes, and what autocast mixes is not kept."""
    X, W, b = torch.ones(2, 3), torch.ones(3, 4), torch.ones(4)
    for _ in range(2):
        found = _require.shapes(X=(X, "... n i"), W=(W, "i o"))
        assert found == {"n": 2, "i": 3, "o": 4, "...": ()}
        found["n"] = 7  # the caller's own
        with pytest.raises(ValueError, match=r"W has shape \(4, 3\), expected \(i, o\) with i = 3"):
            _require.shapes(X=(X, "... n i"), W=(W.T, "i o"))
        with pytest.raises(ValueError, match=r"X has shape \(2, 3\); expected \(i\)"):
            _require.shapes(X=(X, "i"), W=(W, "i o"))
        with pytest.raises(ValueError, match=r"W has dtype torch\.int64"):
            _require.shapes(X=(X, "... n i"), W=(W.long(), "i o"))
        with torch.autocast("cpu", torch.bfloat16):
            _require.shapes(X=(X.bfloat16(), "... n i"), W=(W, "i o"), b=(b, "o"))
        with pytest.raises(ValueError, match=r"W has dtype torch\.float32 but X has torch\.bfloat16"):
            _require.shapes(X=(X.bfloat16(), "... n i"), W=(W, "i o"), b=(b, "o"))
        A = np.ones((2, 3))
        assert _require.shapes(A=(A, "n m"))["m"] == 3
        with pytest.raises(ValueError, match="A is a numpy MaskedArray"):
            _require.shapes(A=(np.ma.masked_array(A), "n m"))
        with pytest.raises(ValueError, match="A has dtype >f8"):
            _require.shapes(A=(A.astype(">f8"), "n m"))
