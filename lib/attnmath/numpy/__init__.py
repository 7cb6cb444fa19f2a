"""Every component in NumPy: ``f(*arrays) -> (y, vjp)``, gradients by hand. Never imports torch."""

from attnmath.numpy.attention import (
    attention,
    attention_chunked,
    attention_fused,
    attention_weights,
    general_attention,
)
from attnmath.numpy.bert import bert, mean_pool, sentence_embedding, unit_norm
from attnmath.numpy.checkpoint import checkpoint
from attnmath.numpy.convolution import causal_conv
from attnmath.numpy.embedding import bert_embedding, embedding
from attnmath.numpy.encoder import encoder_layer
from attnmath.numpy.layers import feed_forward, gelu, layer_norm, linear
from attnmath.numpy.masks import additive_mask, causal_mask, padding_mask, window_mask
from attnmath.numpy.multihead import merge_heads, multi_head_attention, multi_head_sum, share_heads, split_heads
from attnmath.numpy.recurrent import rnn
from attnmath.numpy.scores import additive_score, dot_score, multiplicative_score, scaled_dot_score
from attnmath.numpy.self_attention import self_attention
from attnmath.numpy.softmax import log_softmax, logsumexp, softmax, softmax_entropy

__all__ = [
    "additive_mask",
    "additive_score",
    "attention",
    "attention_chunked",
    "attention_fused",
    "attention_weights",
    "bert",
    "bert_embedding",
    "causal_conv",
    "causal_mask",
    "checkpoint",
    "dot_score",
    "embedding",
    "encoder_layer",
    "feed_forward",
    "gelu",
    "general_attention",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsumexp",
    "mean_pool",
    "merge_heads",
    "multi_head_attention",
    "multi_head_sum",
    "multiplicative_score",
    "padding_mask",
    "rnn",
    "scaled_dot_score",
    "self_attention",
    "sentence_embedding",
    "share_heads",
    "softmax",
    "softmax_entropy",
    "split_heads",
    "unit_norm",
    "window_mask",
]
