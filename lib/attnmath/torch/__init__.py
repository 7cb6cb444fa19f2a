"""Every component in PyTorch: the names and argument order of `attnmath.numpy`, differentiated by autograd."""

from attnmath.torch.attention import (
    attention,
    attention_chunked,
    attention_fused,
    attention_weights,
    general_attention,
)
from attnmath.torch.bert import Bert, bert, mean_pool, sentence_embedding, unit_norm
from attnmath.torch.embedding import bert_embedding, embedding
from attnmath.torch.encoder import EncoderLayer, encoder_layer
from attnmath.torch.layers import FeedForward, LayerNorm, feed_forward, gelu, layer_norm, linear
from attnmath.torch.modules import ParamTree, from_numpy, to_numpy
from attnmath.torch.multihead import MultiHeadAttention, merge_heads, multi_head_attention, split_heads
from attnmath.torch.recurrent import rnn
from attnmath.torch.scores import additive_score, dot_score, multiplicative_score, scaled_dot_score
from attnmath.torch.softmax import log_softmax, logsumexp, softmax

__all__ = [
    "Bert",
    "EncoderLayer",
    "FeedForward",
    "LayerNorm",
    "MultiHeadAttention",
    "ParamTree",
    "additive_score",
    "attention",
    "attention_chunked",
    "attention_fused",
    "attention_weights",
    "bert",
    "bert_embedding",
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
    "multiplicative_score",
    "rnn",
    "scaled_dot_score",
    "sentence_embedding",
    "softmax",
    "split_heads",
    "to_numpy",
    "unit_norm",
]
