"""One row per component and circumstance: how to call it in either world, and what torch's own function says.

Axis sizes all differ, and queries and keys differ in number, so that a swapped axis cannot pass unseen.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from attnmath import shapes

N, M, K, V, A, B = 3, 5, 7, 2, 11, 13  # queries, keys, key width, value width, hidden width, batch
D, HEADS, FF, TOKENS, POSITIONS = 6, 2, 17, 19, 8  # model width 2 heads x 3, feed-forward, vocabulary, positions


@dataclass(frozen=True)
class Case:
    """``call(world, *args)`` calls the component in a world with differentiable args; ``reference(*tensors)`` is
    torch's own. ``function`` is the component's name in both worlds."""

    function: str
    circumstance: str
    args: Callable
    call: Callable
    reference: Callable
    vjp_atol: float = 1e-12

    @property
    def id(self):
        return f"{self.function}-{self.circumstance}"


def const(world, array):
    """A constant in the given world."""
    return torch.from_numpy(array) if world.__name__.endswith("torch") else array


def normal(*shape, scale=1.0):
    """Draws an argument of one array."""
    return lambda rng: (scale * rng.standard_normal(shape),)


def draw(*shape_list):
    """Draws one array per shape."""
    return lambda rng: tuple(rng.standard_normal(shape) for shape in shape_list)


MASK = np.random.default_rng(5).random((N, M)) < 0.6
MASK[:, 2] = True  # every query may attend to key 2
EMPTY_ROW = MASK.copy()
EMPTY_ROW[1] = False
CAUSAL = np.tril(np.ones((N, M), bool), k=M - N)  # the last query sees every key
KEYS = np.ones((B, 1, 1, M), bool)
KEYS[3, ..., 3:] = KEYS[7, ..., 1:] = False
IDS = np.random.default_rng(3).integers(1, TOKENS, (B, M))  # no 0: BertModel of transformers drops its gradient
IDS[0, :2] = 4  # an id that occurs twice
PADDING = np.arange(M) < np.array([M, 1, 2, M, 3, 4, M, M, 1, 2, 3, 4, M])[:, None]


GROUPED = shapes.attention_shapes(D, 6, 2, K, V)  # six query heads, two of keys; input widths D, A and V
GROUPED["key"]["weight"], GROUPED["value"]["weight"] = (A, 2 * K), (V, 2 * V)


def sdpa(Q, K, V, mask=None):
    mask = None if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)


def sdpa_zero(Q, K, V):
    rows = torch.from_numpy(EMPTY_ROW.any(-1))
    O = F.scaled_dot_product_attention(Q, K, V, attn_mask=torch.from_numpy(EMPTY_ROW | ~EMPTY_ROW.any(-1)[:, None]))
    return O * rows[:, None]


def mha(Q, K, V, params, mask=None):
    """`nn.MultiheadAttention`, whose masks are True where attention is forbidden."""
    module = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64)
    weights = {
        "in_proj_weight": torch.cat([params[n]["weight"].T for n in ("query", "key", "value")]),
        "in_proj_bias": torch.cat([params[n]["bias"] for n in ("query", "key", "value")]),
        "out_proj.weight": params["output"]["weight"].T,
        "out_proj.bias": params["output"]["bias"],
    }
    padding = None if mask is None else ~torch.from_numpy(mask[:, 0, 0])
    options = {"key_padding_mask": padding, "need_weights": False}
    return torch.func.functional_call(module, weights, (Q, K, V), options)[0]


def grouped_reference(Q, K, V, params, heads, groups):
    """Grouped-query attention by PyTorch's own grouping."""

    def project(name, X, count):
        return F.linear(X, params[name]["weight"].T, params[name]["bias"]).unflatten(-1, (count, -1)).transpose(-2, -3)

    q, k, v = (project(*a) for a in (("query", Q, heads), ("key", K, groups), ("value", V, groups)))
    H = F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(-2, -3).flatten(-2)
    return F.linear(H, params["output"]["weight"].T, params["output"]["bias"])


def conv_reference(X, W, b, dilation=1):
    """`F.conv1d`, which counts its taps from the far end, on an input padded on the left."""
    past = F.pad(X.transpose(-1, -2), ((len(W) - 1) * dilation, 0))
    return F.conv1d(past, W.flip(0).permute(2, 1, 0), b, dilation=dilation).transpose(-1, -2)


def torch_encoder_layer(X, params):
    module = nn.TransformerEncoderLayer(D, HEADS, FF, 0.0, "gelu", batch_first=True, dtype=torch.float64)
    attention, forward = params["attention"], params["feed_forward"]
    weights = {
        "self_attn.in_proj_weight": torch.cat([attention[n]["weight"].T for n in ("query", "key", "value")]),
        "self_attn.in_proj_bias": torch.cat([attention[n]["bias"] for n in ("query", "key", "value")]),
        "self_attn.out_proj.weight": attention["output"]["weight"].T,
        "self_attn.out_proj.bias": attention["output"]["bias"],
        "linear1.weight": forward["up"]["weight"].T,
        "linear1.bias": forward["up"]["bias"],
        "linear2.weight": forward["down"]["weight"].T,
        "linear2.bias": forward["down"]["bias"],
    }
    for theirs, ours in (("norm1", "attention_norm"), ("norm2", "feed_forward_norm")):
        weights |= {f"{theirs}.weight": params[ours]["gain"], f"{theirs}.bias": params[ours]["bias"]}
    return torch.func.functional_call(module, weights, (X,))


def hugging_face_bert(params):
    """A BERT of `transformers` that is given our parameters."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=TOKENS,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=FF,
        max_position_embeddings=POSITIONS,
        type_vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False).double()
    table = params["embeddings"]
    weights = {
        "embeddings.word_embeddings.weight": table["word"],
        "embeddings.position_embeddings.weight": table["position"],
        "embeddings.token_type_embeddings.weight": table["segment"],
        "embeddings.LayerNorm.weight": table["norm"]["gain"],
        "embeddings.LayerNorm.bias": table["norm"]["bias"],
    }
    for i, layer in params["layers"].items():
        linears = {f"attention.self.{n}": layer["attention"][n] for n in ("query", "key", "value")}
        linears |= {
            "attention.output.dense": layer["attention"]["output"],
            "intermediate.dense": layer["feed_forward"]["up"],
            "output.dense": layer["feed_forward"]["down"],
        }
        for name, p in linears.items():
            weights |= {f"encoder.layer.{i}.{name}.weight": p["weight"].T, f"encoder.layer.{i}.{name}.bias": p["bias"]}
        norms = {"attention.output": layer["attention_norm"], "output": layer["feed_forward_norm"]}
        for name, p in norms.items():
            weights[f"encoder.layer.{i}.{name}.LayerNorm.weight"] = p["gain"]
            weights[f"encoder.layer.{i}.{name}.LayerNorm.bias"] = p["bias"]
    options = {"input_ids": torch.from_numpy(IDS), "attention_mask": torch.from_numpy(PADDING)}
    return torch.func.functional_call(model, weights, (), options).last_hidden_state


def hidden(H):
    """Hidden states without those of padding, which mean nothing."""
    mask = PADDING[..., None]
    return H * (torch.from_numpy(mask) if isinstance(H, torch.Tensor) else mask)


def bert_call(world, params):
    y = world.bert(const(world, IDS), params, HEADS, const(world, PADDING))
    if isinstance(y, tuple):
        H, vjp = y
        return hidden(H), lambda dH: vjp(hidden(dH))
    return hidden(y)


def self_attention(world, X, params):
    """One array three times: its cotangents add."""
    y = world.multi_head_attention(X, X, X, params, HEADS)
    if isinstance(y, tuple):
        O, vjp = y

        def summed(dO):
            dQ, dK, dV, dparams = vjp(dO)
            return dQ + dK + dV, dparams

        return O, summed
    return y


def general(score, transform=None, mask=True):
    """`general_attention` with the parameters of score and transformation as plain arguments."""

    def call(world, Q, K, V, *params):
        split = len(params) - (2 if transform else 0)
        g = getattr(world, transform) if transform else None
        m = mask if mask is True else const(world, mask)
        y = world.general_attention(Q, K, V, getattr(world, score), params[:split], g, params[split:], m)
        if isinstance(y, tuple):
            O, vjp = y

            def flat(dO):
                *inputs, dscore, dtransform = vjp(dO)
                return *inputs, *dscore, *dtransform

            return O, flat
        return y

    return call


def additive_reference(Q, K, Wq, Wk, w):
    return torch.einsum("...nma,a->...nm", torch.tanh((Q @ Wq).unsqueeze(-2) + (K @ Wk).unsqueeze(-3)), w)


def additive_attention_reference(Q, K, V, Wq, Wk, w, W, b):
    P = additive_reference(Q, K, Wq, Wk, w).softmax(-1)
    return P @ F.linear(V, W.T, b)


def rnn_reference(X, h0, W, U, b):
    module = nn.RNN(K, A, batch_first=True, dtype=torch.float64)
    weights = {"weight_ih_l0": W.T, "weight_hh_l0": U.T, "bias_ih_l0": b, "bias_hh_l0": torch.zeros_like(b)}
    return torch.func.functional_call(module, weights, (X, h0[None]))[0]


def tree(*parts):
    """Draws arrays for shapes and trees for shape trees; scaled so that tanh and softmax are in their lively range."""
    return lambda rng: tuple(
        shapes.random_tree(part, rng, 0.4) if isinstance(part, dict) else rng.standard_normal(part) for part in parts
    )


BERT = tree(shapes.bert_shapes(TOKENS, POSITIONS, 2, D, FF, 2))
QKV = draw((B, N, K), (B, M, K), (B, M, V))
CASES = [
    Case("softmax", "plain", normal(B, N, M), lambda w, S: w.softmax(S), lambda S: S.softmax(-1)),
    Case("softmax", "temperature", normal(N, M), lambda w, S: w.softmax(S, 0.3), lambda S: (S / 0.3).softmax(-1)),
    Case("softmax", "huge", normal(N, M, scale=1e4), lambda w, S: w.softmax(S), lambda S: S.softmax(-1)),
    Case(
        "softmax", "cold", normal(N, M, scale=10.0), lambda w, S: w.softmax(S, 1e-4), lambda S: (S / 1e-4).softmax(-1)
    ),
    Case("softmax", "one", normal(N, 1), lambda w, S: w.softmax(S), lambda S: S.softmax(-1)),
    Case("softmax", "no-batch", normal(0, N, M), lambda w, S: w.softmax(S), lambda S: S.softmax(-1)),
    Case("log_softmax", "plain", normal(B, N, M), lambda w, S: w.log_softmax(S), lambda S: F.log_softmax(S, -1)),
    Case(
        "log_softmax",
        "temperature",
        normal(N, M),
        lambda w, S: w.log_softmax(S, 3.0),
        lambda S: (S / 3).log_softmax(-1),
    ),
    Case("log_softmax", "huge", normal(N, M, scale=1e4), lambda w, S: w.log_softmax(S), lambda S: S.log_softmax(-1)),
    Case("logsumexp", "plain", normal(B, N, M), lambda w, S: w.logsumexp(S), lambda S: S.logsumexp(-1)),
    Case("logsumexp", "huge", normal(N, M, scale=1e4), lambda w, S: w.logsumexp(S), lambda S: S.logsumexp(-1)),
    Case(
        "dot_score",
        "plain",
        draw((B, N, K), (B, M, K)),
        lambda w, Q, K: w.dot_score(Q, K),
        lambda Q, K: torch.einsum("bnk,bmk->bnm", Q, K),
    ),
    Case(
        "dot_score",
        "shared-keys",
        draw((B, N, K), (M, K)),
        lambda w, Q, K: w.dot_score(Q, K),
        lambda Q, K: torch.einsum("bnk,mk->bnm", Q, K),
    ),
    Case(
        "scaled_dot_score",
        "plain",
        draw((B, N, K), (B, M, K)),
        lambda w, Q, K: w.scaled_dot_score(Q, K),
        lambda Q, K: torch.einsum("bnk,bmk->bnm", Q, K) / K.shape[-1] ** 0.5,
    ),
    Case(
        "multiplicative_score",
        "plain",
        draw((B, N, A), (B, M, K), (A, K)),
        lambda w, Q, K, W: w.multiplicative_score(Q, K, W),
        lambda Q, K, W: F.bilinear(
            Q[:, :, None].expand(B, N, M, A).contiguous(), K[:, None].expand(B, N, M, -1).contiguous(), W[None]
        )[..., 0],
    ),
    Case(
        "additive_score",
        "plain",
        draw((B, N, V), (B, M, K), (V, A), (K, A), (A,)),
        lambda w, *args: w.additive_score(*args),
        additive_reference,
    ),
    Case(
        "attention_weights",
        "masked",
        draw((B, N, K), (B, M, K)),
        lambda w, Q, K: w.attention_weights(Q, K, const(w, MASK)),
        lambda Q, K: sdpa(Q, K, torch.eye(M, dtype=torch.float64).expand(B, M, M), MASK),
    ),
    Case("attention", "plain", QKV, lambda w, *a: w.attention(*a), sdpa),
    Case(
        "attention", "masked", QKV, lambda w, *a: w.attention(*a, const(w, MASK)), lambda Q, K, V: sdpa(Q, K, V, MASK)
    ),
    Case(
        "attention",
        "causal",
        QKV,
        lambda w, *a: w.attention(*a, const(w, CAUSAL)),
        lambda Q, K, V: sdpa(Q, K, V, CAUSAL),
    ),
    Case(
        "attention",
        "empty-row",
        QKV,
        lambda w, *a: w.attention(*a, const(w, EMPTY_ROW), empty_rows="zero"),
        sdpa_zero,
    ),
    Case("attention", "one-key", draw((N, K), (1, K), (1, V)), lambda w, *a: w.attention(*a), sdpa),
    Case("attention", "no-batch", draw((0, N, K), (0, M, K), (0, M, V)), lambda w, *a: w.attention(*a), sdpa),
    Case(
        "attention",
        "huge",
        lambda rng: (1e2 * rng.standard_normal((N, K)), 1e2 * rng.standard_normal((M, K)), rng.standard_normal((M, V))),
        lambda w, *a: w.attention(*a),
        sdpa,
        vjp_atol=1e-9,
    ),
    Case(
        "attention",
        "shared-keys",
        draw((B, N, K), (M, K), (M, V)),
        lambda w, *a: w.attention(*a),
        lambda Q, K, V: sdpa(Q, K.expand(B, -1, -1), V.expand(B, -1, -1)),
    ),
    Case("attention_fused", "plain", QKV, lambda w, *a: w.attention_fused(*a), sdpa),
    Case(
        "attention_fused",
        "causal",
        QKV,
        lambda w, *a: w.attention_fused(*a, const(w, CAUSAL)),
        lambda Q, K, V: sdpa(Q, K, V, CAUSAL),
    ),
    Case(
        "attention_fused",
        "empty-row",
        QKV,
        lambda w, *a: w.attention_fused(*a, const(w, EMPTY_ROW), empty_rows="zero"),
        sdpa_zero,
    ),
    Case(
        "attention_fused", "no-batch", draw((0, N, K), (0, M, K), (0, M, V)), lambda w, *a: w.attention_fused(*a), sdpa
    ),
    Case("attention_fused", "one-key", draw((N, K), (1, K), (1, V)), lambda w, *a: w.attention_fused(*a), sdpa),
    Case(
        "attention_fused",
        "shared-keys",
        draw((B, N, K), (M, K), (M, V)),
        lambda w, *a: w.attention_fused(*a),
        lambda Q, K, V: sdpa(Q, K.expand(B, -1, -1), V.expand(B, -1, -1)),
    ),
    Case(
        "attention_fused",
        "many-blocks",  # three groups of sequences, and two blocks of queries in each
        draw((3, 521, K), (3, 509, K), (3, 509, V)),
        lambda w, *a: w.attention_fused(*a),
        sdpa,
    ),
    Case("attention_chunked", "plain", QKV, lambda w, *a: w.attention_chunked(*a, chunk=2), sdpa),
    Case(
        "attention_chunked",
        "causal",
        QKV,
        lambda w, *a: w.attention_chunked(*a, const(w, CAUSAL), chunk=2),
        lambda Q, K, V: sdpa(Q, K, V, CAUSAL),
    ),
    Case(
        "general_attention",
        "dot",
        QKV,
        general("dot_score"),
        lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, scale=1.0),
    ),
    Case(
        "general_attention",
        "additive-linear",
        draw((B, N, V), (B, M, K), (B, M, D), (V, A), (K, A), (A,), (D, FF), (FF,)),
        general("additive_score", "linear"),
        additive_attention_reference,
    ),
    Case(
        "general_attention",
        "masked",
        QKV,
        general("scaled_dot_score", mask=MASK),
        lambda Q, K, V: sdpa(Q, K, V, MASK),
    ),
    Case(
        "linear",
        "plain",
        draw((B, N, K), (K, A), (A,)),
        lambda w, *a: w.linear(*a),
        lambda X, W, b: F.linear(X, W.T, b),
    ),
    Case(
        "layer_norm",
        "plain",
        draw((B, N, K), (K,), (K,)),
        lambda w, *a: w.layer_norm(*a),
        lambda X, g, b: F.layer_norm(X, (K,), g, b),
    ),
    Case(
        "layer_norm",
        "wide-range",
        lambda rng: (1e4 * rng.standard_normal((N, K)), rng.standard_normal(K), rng.standard_normal(K)),
        lambda w, *a: w.layer_norm(*a, 1e-12),
        lambda X, g, b: F.layer_norm(X, (K,), g, b, 1e-12),
    ),
    Case("gelu", "plain", normal(B, N, K, scale=2.0), lambda w, X: w.gelu(X), F.gelu),
    Case(
        "feed_forward",
        "plain",
        tree((B, N, D), shapes.feed_forward_shapes(D, FF)),
        lambda w, X, p: w.feed_forward(X, p),
        lambda X, p: F.gelu(X @ p["up"]["weight"] + p["up"]["bias"]) @ p["down"]["weight"] + p["down"]["bias"],
    ),
    Case(
        "multi_head_attention",
        "plain",
        tree((B, N, D), (B, M, D), (B, M, D), shapes.attention_shapes(D)),
        lambda w, *a: w.multi_head_attention(*a, HEADS),
        mha,
    ),
    Case(
        "multi_head_attention",
        "padded",
        tree((B, N, D), (B, M, D), (B, M, D), shapes.attention_shapes(D)),
        lambda w, *a: w.multi_head_attention(*a, HEADS, const(w, KEYS)),
        lambda *a: mha(*a, KEYS),
    ),
    Case(
        "multi_head_attention",
        "self",
        tree((B, N, D), shapes.attention_shapes(D)),
        self_attention,
        lambda X, p: mha(X, X, X, p),
    ),
    Case(
        "multi_head_attention",
        "grouped",
        tree((B, N, D), (B, M, A), (B, M, V), GROUPED),
        lambda w, *a: w.multi_head_attention(*a, 6, key_heads=2),
        lambda *a: grouped_reference(*a, 6, 2),
    ),
    Case(
        "multi_head_attention",
        "multi-query",
        tree((N, D), (M, D), (M, D), shapes.attention_shapes(D, HEADS, 1)),
        lambda w, *a: w.multi_head_attention(*a, HEADS, key_heads=1),
        lambda *a: grouped_reference(*a, HEADS, 1),
    ),
    Case(
        "multi_head_attention",
        "shared-keys",
        tree((B, N, D), (M, D), (M, D), shapes.attention_shapes(D)),
        lambda w, *a: w.multi_head_attention(*a, HEADS),
        lambda Q, K, V, p: mha(Q, K.expand(B, -1, -1), V.expand(B, -1, -1), p),
    ),
    Case(
        "multi_head_sum",
        "plain",
        tree((B, N, D), (B, M, D), (B, M, D), shapes.attention_shapes(D)),
        lambda w, *a: w.multi_head_sum(*a, HEADS),
        mha,
    ),
    Case(
        "multi_head_sum",
        "padded",
        tree((B, N, D), (B, M, D), (B, M, D), shapes.attention_shapes(D)),
        lambda w, *a: w.multi_head_sum(*a, HEADS, const(w, KEYS)),
        lambda *a: mha(*a, KEYS),
    ),
    Case(
        "multi_head_sum",
        "grouped",
        tree((B, N, D), (B, M, A), (B, M, V), GROUPED),
        lambda w, *a: w.multi_head_sum(*a, 6, key_heads=2),
        lambda *a: grouped_reference(*a, 6, 2),
    ),
    Case(
        "self_attention",
        "plain",
        draw((B, N, D), (D, K), (D, K), (D, V)),
        lambda w, *a: w.self_attention(*a),
        lambda X, Wq, Wk, Wv: sdpa(X @ Wq, X @ Wk, X @ Wv),
    ),
    Case(
        "self_attention",
        "causal",
        draw((B, M, D), (D, K), (D, K), (D, V)),
        lambda w, *a: w.self_attention(*a, w.causal_mask(M)),
        lambda X, Wq, Wk, Wv: F.scaled_dot_product_attention(X @ Wq, X @ Wk, X @ Wv, is_causal=True),
    ),
    Case(
        "encoder_layer",
        "plain",
        tree((B, N, D), shapes.encoder_layer_shapes(D, FF)),
        lambda w, X, p: w.encoder_layer(X, p, HEADS),
        torch_encoder_layer,
    ),
    Case(
        "embedding",
        "plain",
        normal(TOKENS, D),
        lambda w, table: w.embedding(const(w, IDS), table),
        lambda table: F.embedding(torch.from_numpy(IDS), table),
    ),
    Case(
        "bert_embedding",
        "plain",
        tree(shapes.bert_embedding_shapes(TOKENS, POSITIONS, 2, D)),
        lambda w, p: w.bert_embedding(const(w, IDS), p),
        lambda p: F.layer_norm(
            F.embedding(torch.from_numpy(IDS), p["word"]) + p["position"][:M] + p["segment"][0],
            (D,),
            p["norm"]["gain"],
            p["norm"]["bias"],
            1e-12,
        ),
    ),
    Case(
        "bert",
        "padded",
        tree(shapes.bert_shapes(TOKENS, POSITIONS, 2, D, FF, 2)),
        bert_call,
        lambda p: hidden(hugging_face_bert(p)),
        1e-11,
    ),
    Case(
        "mean_pool",
        "padded",
        normal(B, M, D),
        lambda w, H: w.mean_pool(H, const(w, PADDING)),
        lambda H: torch.stack([row[torch.from_numpy(keep)].mean(0) for row, keep in zip(H, PADDING, strict=True)]),
    ),
    Case("unit_norm", "plain", normal(B, D), lambda w, X: w.unit_norm(X), lambda X: F.normalize(X, dim=-1)),
    Case(
        "sentence_embedding",
        "padded",
        BERT,
        lambda w, p: w.sentence_embedding(const(w, IDS), p, HEADS, const(w, PADDING)),
        lambda p: F.normalize(
            torch.stack(
                [row[torch.from_numpy(keep)].mean(0) for row, keep in zip(hugging_face_bert(p), PADDING, strict=True)]
            ),
            dim=-1,
        ),
        1e-11,
    ),
    Case(
        "rnn",
        "plain",
        lambda rng: tuple(0.5 * X for X in draw((B, N, K), (B, A), (K, A), (A, A), (A,))(rng)),
        lambda w, *a: w.rnn(*a),
        rnn_reference,
    ),
    Case(
        "causal_conv",
        "plain",
        draw((B, M, K), (3, K, A), (A,)),
        lambda w, *a: w.causal_conv(*a),
        conv_reference,
    ),
    Case(
        "causal_conv",
        "dilated",
        draw((B, M, K), (3, K, A), (A,)),
        lambda w, *a: w.causal_conv(*a, 2),
        lambda *a: conv_reference(*a, 2),
    ),
    Case(
        "causal_conv",
        "longer-than-the-input",
        draw((N, K), (2, K, A), (A,)),
        lambda w, *a: w.causal_conv(*a, 4),
        lambda *a: conv_reference(*a, 4),
    ),
    Case(
        "softmax_entropy",
        "plain",
        normal(B, N, M),
        lambda w, S: w.softmax_entropy(S),
        lambda S: torch.distributions.Categorical(logits=S).entropy(),
    ),
    Case(
        "softmax_entropy",
        "huge",
        normal(N, M, scale=1e4),
        lambda w, S: w.softmax_entropy(S),
        lambda S: torch.distributions.Categorical(logits=S).entropy(),
    ),
]
