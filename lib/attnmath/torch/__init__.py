"""Every component in PyTorch: the names and argument order of `attnmath.numpy`, differentiated by autograd."""

from attnmath.torch.activations import gelu, gelu_tanh, relu, silu, swish
from attnmath.torch.attention import (
    attention,
    attention_chunked,
    attention_fused,
    attention_weights,
    general_attention,
)
from attnmath.torch.bert import Bert, bert, mean_pool, sentence_embedding, unit_norm
from attnmath.torch.beyond_one_memory import (
    dropped_weight_bound,
    store_distribution,
    store_mixture,
    top_k_attention,
)
from attnmath.torch.block_sparse import block_sparse_attention
from attnmath.torch.checkpoint import checkpoint
from attnmath.torch.clusters import sphere_attention_flow
from attnmath.torch.contrastive import (
    Clip,
    clip,
    contrastive_loss,
    cosine_scores,
    end_of_text,
    matching_loss,
    row_at,
    text_embedding,
)
from attnmath.torch.convolution import causal_conv
from attnmath.torch.cores import cached, grouped, recording, share_heads, windowed
from attnmath.torch.decoder import DecoderLayer, cross_attention, decoder, decoder_layer
from attnmath.torch.dropout import draw_keep, dropout, random_dropout
from attnmath.torch.embedding import bert_embedding, embedding
from attnmath.torch.encoder import EncoderLayer, encoder, encoder_layer, own_attention
from attnmath.torch.evoformer import (
    alignment_layer,
    column_attention,
    gated_attention,
    mean_outer_product,
    outer_product_mean,
    pair_layer,
    row_attention,
    transition,
    triangle_attention,
    triangle_product,
    triangle_update,
)
from attnmath.torch.experts import (
    MixtureOfExperts,
    dispatch,
    load_balance,
    mixture_of_experts,
    router_z_loss,
    top_k_gates,
)
from attnmath.torch.fast_weights import (
    fast_weights,
    fast_weights_recurrent,
    fast_weights_state,
    retention_decays,
)
from attnmath.torch.feed_forward import FeedForward, feed_forward, gated_feed_forward
from attnmath.torch.few_shots import mean_attention
from attnmath.torch.gated_cross_attention import (
    GatedCrossAttention,
    flamingo,
    gated_cross_attention,
    gated_sublayer,
    picture_mask,
)
from attnmath.torch.hard_and_local import (
    choice_log_probability,
    co_attention,
    draw_choice,
    hard_attention,
    hierarchical_attention,
    local_attention,
    location_attention,
    location_aware_score,
)
from attnmath.torch.hf import Converted, load_hf, load_nn
from attnmath.torch.hopfield import hopfield, hopfield_attention, hopfield_energy
from attnmath.torch.induction import attention_only, patched
from attnmath.torch.kernel_regression import leave_one_out, local_linear_attention, taylor_features
from attnmath.torch.key_value_caches import dequantised, latent_attention, quantised
from attnmath.torch.linear import affine, linear
from attnmath.torch.linear_attention import elu_plus_one, linear_attention
from attnmath.torch.longer_positions import (
    dynamic_factor,
    interpolated_frequencies,
    ntk_frequencies,
    rotary_frequencies,
    turned_attention,
    yarn_frequencies,
    yarn_temperature,
)
from attnmath.torch.lora import LoRA, lora_linear, lora_merge, lora_unmerge
from attnmath.torch.losses import cross_entropy, smoothed_targets
from attnmath.torch.low_rank import linformer_attention, slot_mask
from attnmath.torch.lstm import bidirectional_lstm, lstm, lstm_cell
from attnmath.torch.masked_language_model import MaskedLanguageModel, masked_head, masked_language_model
from attnmath.torch.masks import additive_mask, causal_mask, padding_mask, window_mask
from attnmath.torch.metric_attention import metric_attention, metric_score
from attnmath.torch.mixed_precision import scale_loss, unscale
from attnmath.torch.modules import ParamTree, from_numpy, to_numpy
from attnmath.torch.multi_head import (
    MultiHeadAttention,
    merge_heads,
    multi_head_attention,
    multi_head_sum,
    split_heads,
)
from attnmath.torch.normalisation import LayerNorm, layer_norm, rms_norm
from attnmath.torch.optimisers import adam, adam_state, clip_by_norm
from attnmath.torch.other_weights import (
    pointwise_attention,
    pointwise_weights,
    sink_attention,
    sink_weights,
    sinkhorn_attention,
    sinkhorn_weights,
)
from attnmath.torch.parallel_layer import parallel_layer
from attnmath.torch.positions import sinusoidal_positions
from attnmath.torch.programs import bare_sublayer
from attnmath.torch.random_features import draw_directions, performer_attention, random_features
from attnmath.torch.recurrent import rnn
from attnmath.torch.relative_positions import (
    alibi_bias,
    alibi_slopes,
    half_to_interleaved,
    relative_bias,
    relative_buckets,
    relative_score,
    rotary,
)
from attnmath.torch.residuals import block, sublayer
from attnmath.torch.ring_attention import ring_attention
from attnmath.torch.sandwich import sandwich
from attnmath.torch.scoring_functions import additive_score, dot_score, multiplicative_score, scaled_dot_score
from attnmath.torch.selective_scan import linear_scan, mamba, mamba2, selective_scan, state_space_dual
from attnmath.torch.self_attention import self_attention
from attnmath.torch.seq2seq import bahdanau_step, bridge, luong_step, plain_step, recurrent_decoder, recurrent_seq2seq
from attnmath.torch.shaped import shaped_attention
from attnmath.torch.soft_cap import capped, soft_cap
from attnmath.torch.softmax import log_softmax, logsumexp, softmax, softmax_entropy
from attnmath.torch.sparse_weights import (
    entmax15,
    entmax_attention,
    entmax_bisect,
    fenchel_young_loss,
    sparsemax,
    sparsemax_attention,
    tsallis_entropy,
)
from attnmath.torch.state_space import cauchy_kernel, discretise, hippo_legs, legs_diagonal, state_space
from attnmath.torch.superposition import sparse_autoencoder, sparse_code, superposition
from attnmath.torch.tiled import tiled_attention
from attnmath.torch.transformer import (
    DecoderOnly,
    Transformer,
    decode,
    decoder_only,
    encode,
    last_row,
    lm_head,
    logits,
    token_embedding,
    transformer,
)
from attnmath.torch.vision_transformer import (
    VisionTransformer,
    grid_positions,
    patches,
    picture_embedding,
    vision_encoder,
    vision_transformer,
)

__all__ = [
    "Bert",
    "Clip",
    "Converted",
    "DecoderLayer",
    "DecoderOnly",
    "EncoderLayer",
    "FeedForward",
    "GatedCrossAttention",
    "LayerNorm",
    "LoRA",
    "MaskedLanguageModel",
    "MixtureOfExperts",
    "MultiHeadAttention",
    "ParamTree",
    "Transformer",
    "VisionTransformer",
    "adam",
    "adam_state",
    "additive_mask",
    "additive_score",
    "affine",
    "alibi_bias",
    "alibi_slopes",
    "alignment_layer",
    "attention",
    "attention_chunked",
    "attention_fused",
    "attention_only",
    "attention_weights",
    "bahdanau_step",
    "bare_sublayer",
    "bert",
    "bert_embedding",
    "bidirectional_lstm",
    "block",
    "block_sparse_attention",
    "bridge",
    "cached",
    "capped",
    "cauchy_kernel",
    "causal_conv",
    "causal_mask",
    "checkpoint",
    "choice_log_probability",
    "clip",
    "clip_by_norm",
    "co_attention",
    "column_attention",
    "contrastive_loss",
    "cosine_scores",
    "cross_attention",
    "cross_entropy",
    "decode",
    "decoder",
    "decoder_layer",
    "decoder_only",
    "dequantised",
    "discretise",
    "dispatch",
    "dot_score",
    "draw_choice",
    "draw_directions",
    "draw_keep",
    "dropout",
    "dropped_weight_bound",
    "dynamic_factor",
    "elu_plus_one",
    "embedding",
    "encode",
    "encoder",
    "encoder_layer",
    "end_of_text",
    "entmax15",
    "entmax_attention",
    "entmax_bisect",
    "fast_weights",
    "fast_weights_recurrent",
    "fast_weights_state",
    "feed_forward",
    "fenchel_young_loss",
    "flamingo",
    "from_numpy",
    "gated_attention",
    "gated_cross_attention",
    "gated_feed_forward",
    "gated_sublayer",
    "gelu",
    "gelu_tanh",
    "general_attention",
    "grid_positions",
    "grouped",
    "half_to_interleaved",
    "hard_attention",
    "hierarchical_attention",
    "hippo_legs",
    "hopfield",
    "hopfield_attention",
    "hopfield_energy",
    "interpolated_frequencies",
    "last_row",
    "latent_attention",
    "layer_norm",
    "leave_one_out",
    "legs_diagonal",
    "linear",
    "linear_attention",
    "linear_scan",
    "linformer_attention",
    "lm_head",
    "load_balance",
    "load_hf",
    "load_nn",
    "local_attention",
    "local_linear_attention",
    "location_attention",
    "location_aware_score",
    "log_softmax",
    "logits",
    "logsumexp",
    "lora_linear",
    "lora_merge",
    "lora_unmerge",
    "lstm",
    "lstm_cell",
    "luong_step",
    "mamba",
    "mamba2",
    "masked_head",
    "masked_language_model",
    "matching_loss",
    "mean_attention",
    "mean_outer_product",
    "mean_pool",
    "merge_heads",
    "metric_attention",
    "metric_score",
    "mixture_of_experts",
    "multi_head_attention",
    "multi_head_sum",
    "multiplicative_score",
    "ntk_frequencies",
    "outer_product_mean",
    "own_attention",
    "padding_mask",
    "pair_layer",
    "parallel_layer",
    "patched",
    "patches",
    "performer_attention",
    "picture_embedding",
    "picture_mask",
    "plain_step",
    "pointwise_attention",
    "pointwise_weights",
    "quantised",
    "random_dropout",
    "random_features",
    "recording",
    "recurrent_decoder",
    "recurrent_seq2seq",
    "relative_bias",
    "relative_buckets",
    "relative_score",
    "relu",
    "retention_decays",
    "ring_attention",
    "rms_norm",
    "rnn",
    "rotary",
    "rotary_frequencies",
    "router_z_loss",
    "row_at",
    "row_attention",
    "sandwich",
    "scale_loss",
    "scaled_dot_score",
    "selective_scan",
    "self_attention",
    "sentence_embedding",
    "shaped_attention",
    "share_heads",
    "silu",
    "sink_attention",
    "sink_weights",
    "sinkhorn_attention",
    "sinkhorn_weights",
    "sinusoidal_positions",
    "slot_mask",
    "smoothed_targets",
    "soft_cap",
    "softmax",
    "softmax_entropy",
    "sparse_autoencoder",
    "sparse_code",
    "sparsemax",
    "sparsemax_attention",
    "sphere_attention_flow",
    "split_heads",
    "state_space",
    "state_space_dual",
    "store_distribution",
    "store_mixture",
    "sublayer",
    "superposition",
    "swish",
    "taylor_features",
    "text_embedding",
    "tiled_attention",
    "to_numpy",
    "token_embedding",
    "top_k_attention",
    "top_k_gates",
    "transformer",
    "transition",
    "triangle_attention",
    "triangle_product",
    "triangle_update",
    "tsallis_entropy",
    "turned_attention",
    "unit_norm",
    "unscale",
    "vision_encoder",
    "vision_transformer",
    "window_mask",
    "windowed",
    "yarn_frequencies",
    "yarn_temperature",
]
