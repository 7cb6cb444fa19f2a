"""Every component in PyTorch: the names and argument order of `attnmath.numpy`, differentiated by autograd."""

from attnmath.torch.attention import (
    attention,
    attention_chunked,
    attention_fused,
    attention_weights,
    general_attention,
)
from attnmath.torch.bert import Bert, bert, mean_pool, sentence_embedding, unit_norm
from attnmath.torch.checkpoint import checkpoint
from attnmath.torch.convolution import causal_conv
from attnmath.torch.embedding import bert_embedding, embedding
from attnmath.torch.encoder import EncoderLayer, encoder_layer
from attnmath.torch.layers import FeedForward, LayerNorm, feed_forward, gelu, layer_norm, linear
from attnmath.torch.masks import additive_mask, causal_mask, padding_mask, window_mask
from attnmath.torch.modules import ParamTree, from_numpy, to_numpy
from attnmath.torch.multihead import (
    MultiHeadAttention,
    merge_heads,
    multi_head_attention,
    multi_head_sum,
    share_heads,
    split_heads,
)
from attnmath.torch.recurrent import rnn
from attnmath.torch.scores import additive_score, dot_score, multiplicative_score, scaled_dot_score
from attnmath.torch.self_attention import self_attention
from attnmath.torch.softmax import log_softmax, logsumexp, softmax, softmax_entropy

__all__ = [
    "Bert",
    "EncoderLayer",
    "FeedForward",
    "LayerNorm",
    "MultiHeadAttention",
    "ParamTree",
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
    "from_numpy",
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
    "to_numpy",
    "unit_norm",
    "window_mask",
]
