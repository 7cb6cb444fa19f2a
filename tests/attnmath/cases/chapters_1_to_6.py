"""The components of Chapters 1 to 6: how each is called in either world, and what torch's own function says."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import attnmath.numpy as an
from attnmath import shapes
from tests.attnmath.cases.case import FF, HEADS, POSITIONS, TOKENS, A, B, Case, D, K, M, N, V, const, draw, normal, tree

MASK = np.random.default_rng(5).random((N, M)) < 0.6
MASK[:, 2] = True  # every query may attend to key 2
EMPTY_ROW = MASK.copy()
EMPTY_ROW[1] = False
CAUSAL = np.tril(np.ones((N, M), bool), k=M - N)  # the last query sees every key
KEEP = np.random.default_rng(7).random((3, B, N, D)) < 0.7
KEEP_WEIGHTS = np.random.default_rng(7).random((B, HEADS, N, M)) < 0.7
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


def dropped_reference(Q, K, V, mask=None, keep=KEEP_WEIGHTS):
    """Attention with `nn.Dropout`'s place taken by a mask that is given."""
    S = Q @ K.transpose(-1, -2) / Q.shape[-1] ** 0.5
    S = S if mask is None else S.masked_fill(~torch.from_numpy(mask), -torch.inf)
    return Given(keep, 0.3)(S.softmax(-1)) @ V


def dropped_heads_reference(Q, K, V, params):
    def project(name, X):
        return F.linear(X, params[name]["weight"].T, params[name]["bias"]).unflatten(-1, (HEADS, -1)).transpose(-2, -3)

    H = dropped_reference(project("query", Q), project("key", K), project("value", V))
    return F.linear(H.transpose(-2, -3).flatten(-2), params["output"]["weight"].T, params["output"]["bias"])


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


class Given(nn.Module):
    """In the place of an `nn.Dropout`: a mask that is given."""

    def __init__(self, keep, p):
        super().__init__()
        self.keep, self.p = torch.from_numpy(keep), p

    def forward(self, X):
        return torch.where(self.keep, X / (1 - self.p), 0.0)


def given(world, *keeps, p=0.3):
    """The same masks for the options of the library, one for each call."""
    left = iter(keeps)
    return lambda X: world.dropout(X, const(world, next(left)), p)


def torch_layer(kind, params, inputs, norm_first=False, keeps=(), **masks):
    """`nn.TransformerEncoderLayer` or `nn.TransformerDecoderLayer` that is given our parameters."""
    module = kind(D, HEADS, FF, 0.0, "gelu", batch_first=True, norm_first=norm_first, dtype=torch.float64)
    for i, keep in enumerate(keeps, 1):
        setattr(module, f"dropout{i}", Given(keep, 0.3))
    forward, weights = params["feed_forward"], {}
    for theirs, ours in (("self_attn", "attention"), ("multihead_attn", "cross_attention")):
        if ours in params:
            attention = params[ours]
            weights |= {
                f"{theirs}.in_proj_weight": torch.cat([attention[n]["weight"].T for n in ("query", "key", "value")]),
                f"{theirs}.in_proj_bias": torch.cat([attention[n]["bias"] for n in ("query", "key", "value")]),
                f"{theirs}.out_proj.weight": attention["output"]["weight"].T,
                f"{theirs}.out_proj.bias": attention["output"]["bias"],
            }
    for theirs, ours in (("linear1", "up"), ("linear2", "down")):
        weights |= {f"{theirs}.weight": forward[ours]["weight"].T, f"{theirs}.bias": forward[ours]["bias"]}
    norms = [name for name in ("attention_norm", "cross_attention_norm", "feed_forward_norm") if name in params]
    for i, ours in enumerate(norms, 1):
        weights |= {f"norm{i}.weight": params[ours]["gain"], f"norm{i}.bias": params[ours]["bias"]}
    return torch.func.functional_call(module, weights, inputs, masks)


def torch_encoder_layer(X, params, norm_first=False, **masks):
    return torch_layer(nn.TransformerEncoderLayer, params, (X,), norm_first, **masks)


def torch_decoder_layer(X, memory, params, norm_first=False, **masks):
    return torch_layer(nn.TransformerDecoderLayer, params, (X, memory), norm_first, **masks)


def torch_stack(X, params, step, norm_first=False):
    """Layers one after the other, and the last norm if there is one."""
    for i in range(len(params["layers"])):
        X = step(X, params["layers"][str(i)], norm_first)
    return F.layer_norm(X, (D,), *params["norm"].values()) if "norm" in params else X


FORBIDDEN = ~torch.ones(M, M).tril().bool()  # as `nn.Transformer` wants it: True where attention is forbidden
TARGET = IDS[:, ::-1].copy()
SHORT = ~torch.from_numpy(PADDING)


def causal_layer(X, params, norm_first):
    return torch_encoder_layer(X, params, norm_first, src_mask=FORBIDDEN)


def decoder_only_reference(params, norm_first=False):
    table = params["embeddings"]["word"]
    X = F.embedding(torch.from_numpy(IDS), 3.0 * table) + params["embeddings"]["position"][:M]
    Y = torch_stack(X, params, causal_layer, norm_first)
    return F.linear(Y, params["head"]["weight"].T if "head" in params else table)


def transformer_reference(params, norm_first=False):
    """An encoder-decoder of PyTorch's layers, padding included."""

    def embed(ids, table):
        X = F.embedding(torch.from_numpy(ids), table["word"])
        return X + table["position"][:M] + torch.from_numpy(FIXED)[:M]

    def encode(X, p, norm_first):
        return torch_encoder_layer(X, p, norm_first, src_key_padding_mask=SHORT)

    def decode(X, p, norm_first):
        return torch_decoder_layer(X, memory, p, norm_first, tgt_mask=FORBIDDEN, memory_key_padding_mask=SHORT)

    source = params.get("source_embeddings", params["embeddings"])
    memory = torch_stack(embed(IDS, source), params["encoder"], encode, norm_first)
    Y = torch_stack(embed(TARGET, params["embeddings"]), params["decoder"], decode, norm_first)
    return F.linear(Y, params["head"]["weight"].T if "head" in params else params["embeddings"]["word"])


LOSS_WEIGHTS = np.random.default_rng(13).random(TOKENS)
LOSS_WEIGHTS[3] = 0  # a target of weight 0 does not count


def weighted_loss_call(smoothing=0.0, reduction="mean", padded=True):
    """With a factor for each token; a padded position is told by a mask."""

    def call(world, Z):
        keep, dtype = const(world, PADDING) if padded else None, str(Z.dtype).removeprefix("torch.")
        options = {"smoothing": smoothing, "weights": const(world, LOSS_WEIGHTS.astype(dtype)), "reduction": reduction}
        return world.cross_entropy(Z, const(world, IDS), keep, **options)

    return call


def weighted_loss_reference(smoothing=0.0, reduction="mean", padded=True):
    targets = torch.from_numpy(np.where(PADDING, IDS, -100) if padded else IDS)
    options = {"weight": torch.from_numpy(LOSS_WEIGHTS), "label_smoothing": smoothing, "reduction": reduction}

    def reference(Z):
        loss = F.cross_entropy(Z.flatten(0, -2), targets.flatten(), **options)
        return loss.reshape(IDS.shape) if reduction == "none" else loss

    return reference


def loss_call(mask=False, smoothing=0.0):
    """Cross-entropy; where the mask says that a position does not count, the target is no token."""
    targets = np.where(PADDING, IDS, -100) if mask else IDS

    def call(world, Z):
        keep = const(world, PADDING) if mask else None
        return world.cross_entropy(Z, const(world, targets), keep, smoothing=smoothing)

    return call


def loss_reference(mask=False, smoothing=0.0):
    targets = torch.from_numpy(np.where(PADDING, IDS, -100) if mask else IDS)
    return lambda Z: F.cross_entropy(Z.flatten(0, -2), targets.flatten(), label_smoothing=smoothing)


def one_row(world, Z):
    return world.cross_entropy(Z, const(world, np.array(3)), smoothing=0.2)


def forbidden_token(world, Z):
    """One logit, not that of a target, is -inf."""
    allowed = const(world, np.arange(TOKENS) != 0)
    Z = (
        torch.where(allowed, Z, -torch.inf)
        if world.__name__.endswith("torch")
        else np.where(allowed, Z, -np.inf).astype(Z.dtype)
    )
    return world.cross_entropy(Z, const(world, IDS))


FIXED = np.random.default_rng(11).standard_normal((POSITIONS, D))
TURNED = {"query": {"weight": (D, 6 * 4)}, "key": {"weight": (A, 2 * 4)}, "value": {"weight": (V, 2 * V)}}
TURNED["output"] = {"weight": (6 * V, D)}  # six query heads of width 4, two of keys; no biases


def turned_reference(Q, K, V, params, bias):
    """Grouped heads turned as complex numbers, with what is added to the scores as PyTorch's float mask."""

    def project(name, X, count):
        return (X @ params[name]["weight"]).unflatten(-1, (count, -1)).transpose(-2, -3)

    def turn(X):
        angle = torch.arange(X.shape[-2], dtype=X.dtype)[:, None] * 50.0 ** -torch.tensor([0.0, 0.5], dtype=X.dtype)
        pairs = torch.view_as_complex(X.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(torch.polar(torch.ones_like(angle), angle) * pairs).flatten(-2)

    q, k, v = turn(project("query", Q, 6)), turn(project("key", K, 2)), project("value", V, 2)
    allowed = bias.expand(B, 6, N, M).masked_fill(~torch.from_numpy(MASK), -torch.inf)
    H = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=True)
    return H.transpose(-2, -3).flatten(-2) @ params["output"]["weight"]


def turned(function):
    """Multi-head attention with every option at once, the bias last among the arguments."""

    def call(world, Q, K, V, params, bias):
        turn = partial(world.rotary, base=50.0)
        if function == "multi_head_sum":
            return world.multi_head_sum(Q, K, V, params, 6, const(world, MASK), turn=turn, bias=bias)
        core = partial(world.attention_fused, bias=bias)
        return world.multi_head_attention(Q, K, V, params, 6, const(world, MASK), attend=core, turn=turn)

    return call


def add_bias(function, mask=True):
    """Attention with an argument that is added to the scores."""

    def call(world, *args):
        *inputs, bias = args
        m = mask if mask is True else const(world, mask)
        return getattr(world, function)(*inputs, m, bias=bias)

    return call


def gemma_reference(Q, K, V, bias, cap=0.7, scale=1.3, mask=None):
    """Gemma-2's own attention, which caps the scaled scores and then adds what hides keys."""
    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    class OneGroup:
        num_key_value_groups, training = 1, False

    bias = bias.expand(B, N, M)
    if mask is not None:
        bias = bias.masked_fill(~torch.from_numpy(mask), -torch.inf)
    heads = [X[:, None] for X in (Q, K, V)]
    O = in_float64(eager_attention_forward, OneGroup(), *heads, bias[:, None], scaling=scale, softcap=cap)[0]
    return O[:, :, 0]


def in_float64(f, *args, **options):
    """f, whose softmax in float32 is kept in float64."""
    softmax = F.softmax
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "softmax", lambda X, dim, dtype: softmax(X, dim))
        return f(*args, **options)


def capped_scores(Q, K, cap=0.7):
    return cap * torch.tanh(torch.einsum("bnk,bmk->bnm", Q, K) / K.shape[-1] ** 0.5 / cap)


def optioned(function, mask=True, **options):
    """Attention with options, the last argument being its bias."""

    def call(world, *args):
        *inputs, bias = args
        m = mask if mask is True else const(world, mask)
        return getattr(world, function)(*inputs, m, bias=bias, **options)

    return call


HEADS_OF_VALUES = (np.random.default_rng(11).random((A, B, N, M)) < 0.6) | (np.arange(M) == 2)


def more_values(function):
    """Values, a mask and a bias with a leading axis that queries and keys lack."""
    return Case(
        function,
        "more-values",
        draw((B, N, K), (M, K), (A, 1, M, V), (A, 1, 1, M)),
        optioned(function, HEADS_OF_VALUES),
        lambda Q, K, V, bias: F.scaled_dot_product_attention(
            Q.expand(A, -1, -1, -1),
            K.expand(A, B, -1, -1),
            V.expand(-1, B, -1, -1),
            attn_mask=bias.expand(A, B, N, M).masked_fill(~torch.from_numpy(HEADS_OF_VALUES), -torch.inf),
        ),
    )


def biased_reference(Q, K, V, bias, mask=None):
    bias = bias.expand(B, N, M)
    if mask is not None:
        bias = bias.masked_fill(~torch.from_numpy(mask), -torch.inf)
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=bias)


BUCKETS = {0: 0, -1: 1, -2: 2, -3: 3, -4: 3, 1: 5, 2: 6}  # eight buckets, distance 3, counted by hand


def transformer_call(norm_first):
    def call(world, params):
        positions = const(world, FIXED)
        y = params["embeddings"]["word"]
        positions = positions.to(y.dtype) if isinstance(y, torch.Tensor) else positions.astype(y.dtype)
        source, target, mask = (const(world, X) for X in (IDS, TARGET, PADDING))
        options = {"embed": partial(world.token_embedding, positions=positions), "join": joint(world, norm_first)}
        return world.transformer(source, target, params, HEADS, mask, **options)

    return call


def joint(world, norm_first=True, **options):
    """How sub-layers are joined, for the models."""
    return partial(world.sublayer, norm_first=norm_first, **options)


def sublayer_call(norm_first):
    def call(world, X, network, norm):
        return world.sublayer(X, lambda Z: world.feed_forward(Z, network), norm, norm_first=norm_first)

    def flat(world, X, network, norm):
        y = call(world, X, network, norm)
        if isinstance(y, tuple):
            Y, vjp = y

            def in_order(dY):
                dX, dnorm, dnetwork = vjp(dY)
                return dX, dnetwork, dnorm

            return Y, in_order
        return y

    return flat


def sublayer_reference(norm_first):
    def network(X, p):
        return F.gelu(X @ p["up"]["weight"] + p["up"]["bias"]) @ p["down"]["weight"] + p["down"]["bias"]

    def reference(X, p, norm):
        def normed(X):
            return F.layer_norm(X, (D,), norm["gain"], norm["bias"])

        return X + network(normed(X), p) if norm_first else normed(X + network(X, p))

    return reference


def without_memory(world, X, params):
    """A decoder layer that has no encoder to look at."""
    y = world.decoder_layer(X, None, params, HEADS, world.causal_mask(M), join=joint(world))
    if isinstance(y, tuple):
        Y, vjp = y

        def two(dY):
            dX, dmemory, dparams = vjp(dY)
            assert dmemory is None
            return dX, dparams

        return Y, two
    return y


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


def complex_rotary(X, pairing, base=10000.0, start=0):
    """Each pair as one complex number, multiplied by e^(i omega p)."""
    n, k = X.shape[-2:]
    turns = torch.outer(torch.arange(start, start + n), base ** (-torch.arange(0, k, 2).double() / k))
    pairs = X.unflatten(-1, (k // 2, 2)) if pairing == "interleaved" else X.unflatten(-1, (2, k // 2)).mT
    Z = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(turns), turns))
    return (Z if pairing == "interleaved" else Z.mT).flatten(-2)


def llama_rotary(X):
    """The rotation of Llama in `transformers`."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    n, k = X.shape[-2:]
    angles = torch.outer(torch.arange(n), 10000.0 ** (-torch.arange(0, k, 2).double() / k)).repeat(1, 2)[None]
    return apply_rotary_pos_emb(X, X, angles.cos(), angles.sin())[0]


def relative_reference(Q, K, table):
    """Every pair's own vector, gathered: (n, m, k)."""
    (n, k), m, w = Q.shape[-2:], K.shape[-2], len(table) // 2
    offset = torch.arange(m)[None] - torch.arange(m - n, m)[:, None]
    A = table[torch.clamp(offset, -w, w) + w]
    return torch.einsum("...nk,...nmk->...nm", Q, K.unsqueeze(-3) + A) / k**0.5


def shaped_reference(temperature=1.0, strength=1.0, mask=None):
    """Values, plus what attention adds to an even average of them: a query of zeros scores all keys alike."""

    def reference(Q, K, V):
        V = V.expand(*Q.shape[:-1], V.shape[-1])
        return V + strength * (sdpa(Q / temperature, K, V, mask) - sdpa(0 * Q, K, V, mask))

    return reference


SELF = np.random.default_rng(7).random((M, M)) < 0.5
SELF[:, 2] = True
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
    *[
        Case(
            name,
            "scale",
            QKV,
            lambda w, *a, name=name: getattr(w, name)(*a, scale=1.0),
            lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, scale=1.0),
        )
        for name in ("attention", "attention_fused")
    ],
    *[
        Case(
            name,
            "scale-causal",
            draw((B, M, K), (B, M, K), (B, M, V)),
            lambda w, *a, name=name: getattr(w, name)(*a, w.causal_mask(M), scale=0.9),
            lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, is_causal=True, scale=0.9),
        )
        for name in ("attention", "attention_fused")
    ],
    *[
        Case(
            name,
            "softcap",
            draw((B, N, K), (B, M, K), (B, M, V), (N, M)),
            optioned(name, mask=MASK, softcap=0.7, scale=1.3),
            lambda *a: gemma_reference(*a, mask=MASK),
        )
        for name in ("attention", "attention_fused")
    ],
    *[
        Case(
            name,
            "softcap-empty-row",
            QKV,
            lambda w, *a, name=name: getattr(w, name)(*a, const(w, EMPTY_ROW), empty_rows="zero", softcap=0.7),
            lambda Q, K, V: (
                capped_scores(Q, K)
                .masked_fill(~torch.from_numpy(EMPTY_ROW | ~EMPTY_ROW.any(-1)[:, None]), -torch.inf)
                .softmax(-1)
                .mul(torch.from_numpy(EMPTY_ROW.any(-1)[:, None]))
                @ V
            ),
        )
        for name in ("attention", "attention_fused")
    ],
    *[
        Case(
            name,
            "softcap-no-batch",
            draw((0, N, K), (0, M, K), (0, M, V), (0, 1, M)),
            optioned(name, mask=MASK, softcap=0.7, scale=1.3, empty_rows="zero"),
            lambda Q, K, V, bias: ((Q @ K.mT).tanh() + bias).softmax(-1) @ V,
        )
        for name in ("attention", "attention_fused")
    ],
    Case(
        "attention_fused",
        "softcap-many-blocks",
        draw((3, 521, K), (3, 509, K), (3, 509, V)),
        lambda w, *a: w.attention_fused(*a, softcap=0.7),
        lambda Q, K, V: capped_scores(Q, K).softmax(-1) @ V,
    ),
    Case(
        "attention_weights",
        "softcap",
        draw((B, N, K), (B, M, K), (N, 1)),
        lambda w, Q, K, bias: w.attention_weights(Q, K, const(w, MASK), bias=bias, softcap=0.7),
        lambda Q, K, bias: (capped_scores(Q, K) + bias).masked_fill(~torch.from_numpy(MASK), -torch.inf).softmax(-1),
    ),
    Case(
        "scaled_dot_score",
        "scale",
        draw((B, N, K), (B, M, K)),
        lambda w, Q, K: w.scaled_dot_score(Q, K, scale=0.3),
        lambda Q, K: 0.3 * torch.einsum("bnk,bmk->bnm", Q, K),
    ),
    more_values("attention"),
    more_values("attention_fused"),
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
        "affine",
        "plain",
        tree((B, N, K), shapes.linear_shapes(K, A)),
        lambda w, *a: w.affine(*a),
        lambda X, p: F.linear(X, p["weight"].T, p["bias"]),
    ),
    Case(
        "affine",
        "no-bias",
        tree((B, N, K), {"weight": (K, A)}),
        lambda w, *a: w.affine(*a),
        lambda X, p: F.linear(X, p["weight"].T),
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
    Case(
        "rms_norm",
        "plain",
        draw((B, N, K), (K,)),
        lambda w, *a: w.rms_norm(*a),
        lambda X, g: F.rms_norm(X, (K,), g, 1e-6),
    ),
    Case(
        "rms_norm",
        "eps-counts",
        draw((B, N, K), (K,)),
        lambda w, *a: w.rms_norm(*a, 0.5),
        lambda X, g: F.rms_norm(X, (K,), g, 0.5),
    ),
    Case(
        "rms_norm",
        "wide-range",
        lambda rng: (1e4 * rng.standard_normal((N, K)), rng.standard_normal(K)),
        lambda w, *a: w.rms_norm(*a, 1e-12),
        lambda X, g: F.rms_norm(X, (K,), g, 1e-12),
    ),
    Case("relu", "plain", normal(B, N, K), lambda w, X: w.relu(X), F.relu),
    Case("relu", "kink", lambda rng: (np.array([-1.0, -0.0, 0.0, 2.0]),), lambda w, X: w.relu(X), F.relu),
    Case("silu", "plain", normal(B, N, K, scale=2.0), lambda w, X: w.silu(X), F.silu),
    Case("dropout", "plain", normal(B, N, D), lambda w, X: w.dropout(X, const(w, KEEP[0]), 0.3), Given(KEEP[0], 0.3)),
    Case(
        "dropout",
        "whole-rows",
        normal(B, N, D),
        lambda w, X: w.dropout(X, const(w, KEEP[0, 0, :, :1]), 0.75),
        Given(KEEP[0, 0, :, :1], 0.75),
    ),
    Case(
        "dropout",
        "off",
        normal(B, N, D),
        lambda w, X: w.dropout(X, const(w, np.ones(D, bool)), 0.0),
        lambda X: F.dropout(X, 0.5, training=False),
    ),
    Case(
        "dropout",
        "nothing-left",
        normal(N, D),
        lambda w, X: w.dropout(X, const(w, np.zeros((N, D), bool)), 0.9),
        lambda X: F.dropout(X, 1.0),
    ),
    Case(
        "attention",
        "dropped",
        draw((B, HEADS, N, K), (B, HEADS, M, K), (B, HEADS, M, V)),
        lambda w, Q, K, V: w.attention(Q, K, V, const(w, MASK), drop=given(w, KEEP_WEIGHTS)),
        lambda Q, K, V: dropped_reference(Q, K, V, MASK),
    ),
    Case(
        "multi_head_attention",
        "dropped",
        tree((B, N, D), (B, M, D), (B, M, D), shapes.attention_shapes(D)),
        lambda w, Q, K, V, p: w.multi_head_attention(
            Q, K, V, p, HEADS, attend=partial(w.attention, drop=given(w, KEEP_WEIGHTS))
        ),
        dropped_heads_reference,
    ),
    Case(
        "encoder_layer",
        "dropped",
        tree((B, N, D), shapes.encoder_layer_shapes(D, FF)),
        lambda w, X, p: w.encoder_layer(X, p, HEADS, join=joint(w, False, drop=given(w, *KEEP[:2]))),
        lambda X, p: torch_encoder_layer(X, p, keeps=KEEP[:2]),
    ),
    Case(
        "encoder_layer",
        "dropped-pre-norm",
        tree((B, N, D), shapes.encoder_layer_shapes(D, FF)),
        lambda w, X, p: w.encoder_layer(X, p, HEADS, join=joint(w, drop=given(w, *KEEP[:2]))),
        lambda X, p: torch_encoder_layer(X, p, True, keeps=KEEP[:2]),
    ),
    Case(
        "decoder_layer",
        "dropped",
        tree((B, N, D), (B, M, D), shapes.decoder_layer_shapes(D, FF)),
        lambda w, X, Y, p: w.decoder_layer(X, Y, p, HEADS, join=joint(w, False, drop=given(w, *KEEP))),
        lambda X, Y, p: torch_decoder_layer(X, Y, p, keeps=KEEP),
    ),
    Case(
        "token_embedding",
        "dropped",
        tree({"word": (TOKENS, D), "position": (POSITIONS, D)}),
        lambda w, p: w.token_embedding(const(w, IDS[:, :N]), p, 3.0, drop=given(w, KEEP[0])),
        lambda p: Given(KEEP[0], 0.3)(3 * F.embedding(torch.from_numpy(IDS[:, :N]), p["word"]) + p["position"][:N]),
    ),
    Case("swish", "plain", normal(B, N, K, scale=2.0), lambda w, X: w.swish(X), F.silu),
    Case("swish", "steeper", normal(B, N, K), lambda w, X: w.swish(X, 1.7), lambda X: F.silu(1.7 * X) / 1.7),
    Case("swish", "huge", normal(N, K, scale=1e4), lambda w, X: w.swish(X), F.silu),
    Case(
        "gelu_tanh",
        "plain",
        normal(B, N, K, scale=2.0),
        lambda w, X: w.gelu_tanh(X),
        lambda X: F.gelu(X, approximate="tanh"),
    ),
    Case(
        "gelu_tanh",
        "huge",
        normal(N, K, scale=1e4),
        lambda w, X: w.gelu_tanh(X),
        lambda X: F.gelu(X, approximate="tanh"),
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
        "feed_forward",
        "no-bias",
        tree((B, N, D), {"up": {"weight": (D, FF)}, "down": {"weight": (FF, D)}}),
        lambda w, X, p: w.feed_forward(X, p),
        lambda X, p: F.gelu(X @ p["up"]["weight"]) @ p["down"]["weight"],
    ),
    Case(
        "feed_forward",
        "relu",
        tree((B, N, D), shapes.feed_forward_shapes(D, FF)),
        lambda w, X, p: w.feed_forward(X, p, w.relu),
        lambda X, p: F.relu(X @ p["up"]["weight"] + p["up"]["bias"]) @ p["down"]["weight"] + p["down"]["bias"],
    ),
    Case(
        "gated_feed_forward",
        "plain",
        tree((B, N, D), shapes.gated_feed_forward_shapes(D, FF)),
        lambda w, X, p: w.gated_feed_forward(X, p),
        lambda X, p: (F.silu(X @ p["gate"]["weight"]) * (X @ p["up"]["weight"])) @ p["down"]["weight"],
    ),
    Case(
        "gated_feed_forward",
        "gelu-biases",
        tree((B, N, D), shapes.feed_forward_shapes(D, FF) | {"gate": shapes.linear_shapes(D, FF)}),
        lambda w, X, p: w.gated_feed_forward(X, p, w.gelu_tanh),
        lambda X, p: F.linear(
            F.gelu(F.linear(X, p["gate"]["weight"].T, p["gate"]["bias"]), approximate="tanh")
            * F.linear(X, p["up"]["weight"].T, p["up"]["bias"]),
            p["down"]["weight"].T,
            p["down"]["bias"],
        ),
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
        lambda w, *a: w.multi_head_attention(*a, 6),
        lambda *a: grouped_reference(*a, 6, 2),
    ),
    Case(
        "multi_head_attention",
        "multi-query",
        tree((N, D), (M, D), (M, D), shapes.attention_shapes(D, HEADS, 1)),
        lambda w, *a: w.multi_head_attention(*a, HEADS),
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
        lambda w, *a: w.multi_head_sum(*a, 6),
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
        "encoder_layer",
        "pre-norm",
        tree((B, N, D), shapes.encoder_layer_shapes(D, FF)),
        lambda w, X, p: w.encoder_layer(X, p, HEADS, join=joint(w)),
        lambda X, p: torch_encoder_layer(X, p, True),
    ),
    Case(
        "attention_weights",
        "biased",
        draw((B, N, K), (B, M, K), (1, N, M)),
        add_bias("attention_weights", MASK),
        lambda Q, K, bias: biased_reference(Q, K, torch.eye(M, dtype=torch.float64).expand(B, M, M), bias, MASK),
    ),
    Case(
        "attention",
        "biased",
        draw((B, N, K), (B, M, K), (B, M, V), (B, N, M)),
        add_bias("attention"),
        biased_reference,
    ),
    Case(
        "attention_fused",
        "biased",
        draw((B, N, K), (B, M, K), (B, M, V), (B, 1, M)),
        add_bias("attention_fused"),
        biased_reference,
    ),
    Case(
        "attention_fused",
        "biased-masked",
        draw((B, N, K), (B, M, K), (B, M, V), (N, M)),
        add_bias("attention_fused", MASK),
        lambda Q, K, V, bias: biased_reference(Q, K, V, bias, MASK),
    ),
    Case(
        "attention_fused",
        "biased-heads",  # one bias for every sequence: two groups of heads add to it
        draw((2, HEADS, N, K), (2, HEADS, M, K), (2, HEADS, M, V), (HEADS, N, M)),
        add_bias("attention_fused"),
        lambda Q, K, V, bias: F.scaled_dot_product_attention(Q, K, V, attn_mask=bias.expand(2, HEADS, N, M)),
    ),
    Case(
        "multi_head_attention",
        "turned",
        tree((B, N, D), (B, M, A), (B, M, V), TURNED, (6, N, M)),
        turned("multi_head_attention"),
        turned_reference,
    ),
    Case(
        "multi_head_attention",
        "one-bias-for-all-heads",
        tree((B, N, D), (B, M, A), (B, M, V), TURNED, (B, 1, 1, M)),
        turned("multi_head_attention"),
        turned_reference,
    ),
    Case(
        "multi_head_sum",
        "turned",
        tree((B, N, D), (B, M, A), (B, M, V), TURNED, (6, N, M)),
        turned("multi_head_sum"),
        turned_reference,
    ),
    Case(
        "sublayer",
        "post-norm",
        tree((B, N, D), shapes.feed_forward_shapes(D, FF), shapes.norm_shapes(D)),
        sublayer_call(False),
        sublayer_reference(False),
    ),
    Case(
        "sublayer",
        "pre-norm",
        tree((B, N, D), shapes.feed_forward_shapes(D, FF), shapes.norm_shapes(D)),
        sublayer_call(True),
        sublayer_reference(True),
    ),
    Case(
        "encoder",
        "post-norm",
        tree((B, N, D), shapes.encoder_shapes(D, FF, 2)),
        lambda w, X, p: w.encoder(X, p, HEADS),
        lambda X, p: torch_stack(X, p, torch_encoder_layer),
    ),
    Case(
        "encoder",
        "pre-norm",
        tree((B, N, D), shapes.encoder_shapes(D, FF, 2, norm=an.layer_norm)),
        lambda w, X, p: w.encoder(X, p, HEADS, join=joint(w)),
        lambda X, p: torch_stack(X, p, torch_encoder_layer, True),
    ),
    Case(
        "decoder_layer",
        "post-norm",
        tree((B, N, D), (B, M, D), shapes.decoder_layer_shapes(D, FF)),
        lambda w, X, Y, p: w.decoder_layer(X, Y, p, HEADS, memory_mask=const(w, KEYS)),
        lambda X, Y, p: torch_decoder_layer(X, Y, p, memory_key_padding_mask=~torch.from_numpy(KEYS[:, 0, 0])),
    ),
    Case(
        "decoder_layer",
        "pre-norm",
        tree((B, M, D), (B, N, D), shapes.decoder_layer_shapes(D, FF)),
        lambda w, X, Y, p: w.decoder_layer(X, Y, p, HEADS, w.causal_mask(M), join=joint(w)),
        lambda X, Y, p: torch_decoder_layer(X, Y, p, True, tgt_mask=FORBIDDEN),
    ),
    Case(
        "decoder_layer",
        "no-memory",
        tree((B, M, D), shapes.encoder_layer_shapes(D, FF)),
        without_memory,
        lambda X, p: causal_layer(X, p, True),
    ),
    Case(
        "decoder",
        "plain",
        tree((B, N, D), (B, M, D), shapes.decoder_shapes(D, FF, 2, norm=an.layer_norm)),
        lambda w, X, Y, p: w.decoder(X, Y, p, HEADS),
        lambda X, Y, p: torch_stack(X, p, lambda X, q, first: torch_decoder_layer(X, Y, q, first)),
        1e-11,
    ),
    Case(
        "relative_bias",
        "both-sides",
        normal(8, HEADS),
        lambda w, table: w.relative_bias(table, N, M, 3),
        lambda table: torch.stack(
            [torch.stack([table[BUCKETS[j - i - M + N]] for j in range(M)]) for i in range(N)]
        ).permute(2, 0, 1),
    ),
    Case(
        "token_embedding",
        "learned",
        tree(shapes.token_embedding_shapes(TOKENS, D, POSITIONS)),
        lambda w, p: w.token_embedding(const(w, IDS), p, 3.0),
        lambda p: F.embedding(torch.from_numpy(IDS), 3.0 * p["word"]) + p["position"][:M],
    ),
    Case(
        "lm_head",
        "plain",
        draw((B, N, D), (TOKENS, D)),
        lambda w, *a: w.lm_head(*a),
        lambda X, E: torch.einsum("bnd,td->bnt", X, E),
    ),
    Case(
        "decoder_only",
        "tied",
        tree(shapes.decoder_only_shapes(TOKENS, D, FF, 2, POSITIONS)),
        lambda w, p: w.decoder_only(const(w, IDS), p, HEADS, embed=partial(w.token_embedding, scale=3.0)),
        decoder_only_reference,
        1e-11,
    ),
    Case(
        "decoder_only",
        "untied",
        tree(shapes.decoder_only_shapes(TOKENS, D, FF, 2, POSITIONS, norm=an.layer_norm, tie=False)),
        lambda w, p: w.decoder_only(
            const(w, IDS), p, HEADS, embed=partial(w.token_embedding, scale=3.0), join=joint(w)
        ),
        lambda p: decoder_only_reference(p, True),
        1e-11,
    ),
    Case(
        "transformer",
        "shared",
        tree(shapes.transformer_shapes(TOKENS, D, FF, 2, POSITIONS, norm=an.layer_norm)),
        transformer_call(True),
        lambda p: transformer_reference(p, True),
        1e-11,
    ),
    Case(
        "transformer",
        "two-vocabularies",
        tree(shapes.transformer_shapes(TOKENS, D, FF, 2, POSITIONS, source_vocabulary=TOKENS + 2, tie=False)),
        transformer_call(False),
        transformer_reference,
        1e-11,
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
    Case(
        "rotary",
        "interleaved",
        normal(B, N, 2 * K),
        lambda w, X: w.rotary(X),
        lambda X: complex_rotary(X, "interleaved"),
    ),
    Case(
        "rotary",
        "half",
        normal(V, B, N, 2 * K),
        lambda w, X: w.rotary(X, pairing="half"),
        llama_rotary,
    ),
    Case(
        "rotary",
        "start-and-base",
        normal(N, 2 * K),
        lambda w, X: w.rotary(X, base=50.0, start=11, pairing="half"),
        lambda X: complex_rotary(X, "half", 50.0, 11),
    ),
    Case(
        "rotary",
        "no-batch",
        normal(0, N, 2 * K),
        lambda w, X: w.rotary(X),
        lambda X: complex_rotary(X, "interleaved"),
    ),
    Case(
        "relative_score",
        "clipped",
        draw((B, N, K), (B, M, K), (3, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "relative_score",
        "wide-table",
        draw((N, K), (M, K), (A, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "relative_score",
        "shared-keys",
        draw((B, N, K), (M, K), (3, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "relative_score",
        "shared-queries",
        draw((N, K), (B, M, K), (3, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "relative_score",
        "more-queries-than-keys",
        draw((M, K), (N, K), (3, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "relative_score",
        "one-key",
        draw((B, N, K), (B, 1, K), (1, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "relative_score",
        "no-batch",
        draw((0, N, K), (0, M, K), (3, K)),
        lambda w, *a: w.relative_score(*a),
        relative_reference,
    ),
    Case(
        "scale_loss",
        "plain",
        normal(B),
        lambda w, L: w.scale_loss(L, 64.0),
        lambda L: torch.amp.GradScaler("cpu", init_scale=64.0).scale(L),
    ),
    Case("scale_loss", "one", normal(1), lambda w, L: w.scale_loss(L, 3.0), lambda L: 3 * L),
    Case("cross_entropy", "plain", normal(B, M, TOKENS), loss_call(), loss_reference()),
    Case("cross_entropy", "padded", normal(B, M, TOKENS), loss_call(True), loss_reference(True)),
    Case("cross_entropy", "smoothed", normal(B, M, TOKENS), loss_call(False, 0.1), loss_reference(False, 0.1)),
    Case("cross_entropy", "padded-and-smoothed", normal(B, M, TOKENS), loss_call(True, 0.3), loss_reference(True, 0.3)),
    Case("cross_entropy", "all-smoothing", normal(B, M, TOKENS), loss_call(False, 1.0), loss_reference(False, 1.0)),
    Case("cross_entropy", "huge", normal(B, M, TOKENS, scale=1e4), loss_call(False, 0.1), loss_reference(False, 0.1)),
    Case(
        "cross_entropy",
        "one-token",
        normal(B, M, 1),
        lambda w, Z: w.cross_entropy(Z, const(w, 0 * IDS)),
        lambda Z: 0 * Z.sum(),
    ),
    Case(
        "cross_entropy",
        "one-row",
        normal(TOKENS),
        one_row,
        lambda Z: F.cross_entropy(Z, torch.tensor(3), label_smoothing=0.2),
    ),
    *(
        Case(
            "cross_entropy",
            f"weights-{reduction}-{'smoothed' if smoothing else 'plain'}",
            normal(B, M, TOKENS),
            weighted_loss_call(smoothing, reduction, padded),
            weighted_loss_reference(smoothing, reduction, padded),
        )
        for smoothing, reduction, padded in [
            (0.0, "mean", True),
            (0.1, "mean", False),
            (0.3, "sum", True),
            (0.0, "none", False),
            (0.3, "none", True),
        ]
    ),
    Case(
        "cross_entropy",
        "sum-of-no-rows",
        normal(0, TOKENS),
        lambda w, Z: w.cross_entropy(Z, const(w, np.zeros(0, int)), reduction="sum"),
        lambda Z: F.cross_entropy(Z, torch.zeros(0, dtype=torch.long), reduction="sum"),
    ),
    Case(
        "cross_entropy",
        "forbidden-token",
        normal(B, M, TOKENS),
        forbidden_token,
        lambda Z: F.cross_entropy(Z[..., 1:].flatten(0, -2), torch.from_numpy(IDS - 1).flatten()),
    ),
    Case(
        "shaped_attention",
        "plain",
        draw((B, M, K), (B, M, K), (B, M, V)),
        lambda w, *a: w.shaped_attention(*a),
        shaped_reference(),
    ),
    Case(
        "shaped_attention",
        "masked",
        draw((B, M, K), (B, M, K), (B, M, V)),
        lambda w, *a: w.shaped_attention(*a, const(w, SELF), temperature=2.5, strength=0.7),
        shaped_reference(2.5, 0.7, SELF),
    ),
    Case(
        "shaped_attention",
        "shared-values",
        draw((B, M, K), (B, M, K), (M, V)),
        lambda w, *a: w.shaped_attention(*a, strength=-1.5),
        shaped_reference(strength=-1.5),
    ),
    Case(
        "shaped_attention",
        "one-token",
        draw((B, 1, K), (B, 1, K), (B, 1, V)),
        lambda w, *a: w.shaped_attention(*a),
        lambda Q, K, V: V,
    ),
    Case(
        "shaped_attention",
        "cold",
        draw((M, K), (M, K), (M, V)),
        lambda w, *a: w.shaped_attention(*a, temperature=1e-2),
        shaped_reference(1e-2),
        vjp_atol=1e-9,
    ),
    Case(
        "shaped_attention",
        "no-batch",
        draw((0, M, K), (0, M, K), (0, M, V)),
        lambda w, *a: w.shaped_attention(*a),
        shaped_reference(),
    ),
]


BAND = np.abs(np.arange(N)[:, None] + M - N - np.arange(M)) <= 1  # each query and the keys next to it
BAND &= MASK | np.eye(N, M, k=M - N, dtype=bool)  # but every query sees the key where it stands


def two_networks(world, X, params):
    """A block of two steps with one joint, as a function of the input and of all parameters."""
    steps = {"first": world.feed_forward, "second": partial(world.feed_forward, activation=world.relu)}
    y = world.block(X, params, steps, joint(world))
    if isinstance(y, tuple):
        Y, vjp = y
        return Y, lambda dY: vjp(dY)[:2]
    return y


def two_networks_reference(X, params):
    for name, activation in (("first", F.gelu), ("second", F.relu)):
        norm, network = params[f"{name}_norm"], params[name]
        Z = F.layer_norm(X, (D,), norm["gain"], norm["bias"])
        up, down = network["up"], network["down"]
        X = X + activation(Z @ up["weight"] + up["bias"]) @ down["weight"] + down["bias"]
    return X


def windowed_call(mask=True, biased=False):
    def call(world, Q, K, V, *bias):
        core = world.windowed(world.attention_fused, 1)
        m = mask if mask is True else const(world, mask | np.eye(N, M, k=M - N, dtype=bool))
        return core(Q, K, V, mask=m, **({"bias": bias[0]} if biased else {}))

    return call


NORMED = GROUPED | {name: {"gain": (K,)} for name in ("query_norm", "key_norm")}


def normed_heads(function):
    """Six query heads, two of keys, with a norm of queries and keys, as in Qwen 3."""
    return lambda world, *inputs: getattr(world, function)(*inputs, 6, norm=partial(world.rms_norm, eps=0.1))


def normed_reference(Q, K_, V_, params):
    def project(name, X, count):
        Y = X @ params[name]["weight"] + params[name]["bias"]
        return Y.unflatten(-1, (count, -1)).transpose(-2, -3)

    q, k = (
        F.rms_norm(project(name, X, count), (K,), params[f"{name}_norm"]["gain"], 0.1)
        for name, X, count in (("query", Q, 6), ("key", K_, 2))
    )
    H = F.scaled_dot_product_attention(q, k, project("value", V_, 2), enable_gqa=True)
    return H.transpose(-2, -3).flatten(-2) @ params["output"]["weight"] + params["output"]["bias"]


def recorded(world, Q, K, V):
    return world.recording(world.attention_fused, {})(Q, K, V, mask=const(world, MASK))


CORES = [
    Case(
        "grouped",
        "six-and-two-heads",
        draw((B, 6, N, K), (B, 2, M, K), (B, 2, M, V)),
        lambda w, *a: w.grouped(w.attention)(*a),
        lambda Q, K, V: F.scaled_dot_product_attention(Q, K, V, enable_gqa=True),
    ),
    Case("recording", "masked", draw((B, N, K), (B, M, K), (B, M, V)), recorded, lambda *a: sdpa(*a, MASK)),
    Case(
        "windowed",
        "fewer-queries",
        draw((B, N, K), (B, M, K), (B, M, V)),
        windowed_call(),
        lambda *a: sdpa(*a, np.abs(np.arange(N)[:, None] + M - N - np.arange(M)) <= 1),
    ),
    Case(
        "windowed",
        "masked",
        draw((B, N, K), (B, M, K), (B, M, V)),
        windowed_call(MASK),
        lambda *a: sdpa(*a, BAND),
    ),
    Case(
        "windowed",
        "biased",
        draw((B, N, K), (B, M, K), (B, M, V), (N, M)),
        windowed_call(MASK, True),
        lambda *a: biased_reference(*a, BAND),
    ),
    Case(
        "multi_head_attention",
        "normed-heads",
        tree((B, N, D), (B, M, A), (B, M, V), NORMED),
        normed_heads("multi_head_attention"),
        normed_reference,
    ),
    Case(
        "multi_head_sum",
        "normed-heads",
        tree((B, N, D), (B, M, A), (B, M, V), NORMED),
        normed_heads("multi_head_sum"),
        normed_reference,
    ),
    Case(
        "block",
        "two-networks",
        tree(
            (B, N, D),
            {name: shapes.feed_forward_shapes(D, FF) for name in ("first", "second")}
            | {f"{name}_norm": shapes.norm_shapes(D) for name in ("first", "second")},
        ),
        two_networks,
        two_networks_reference,
    ),
]
CASES += CORES

# reshapes, seen by every case of multi_head_attention; masks and checkpoint, which have no gradient of their own
HELPERS = {"split_heads", "merge_heads", "share_heads", "checkpoint"}
HELPERS |= {"additive_mask", "causal_mask", "padding_mask", "window_mask", "relative_buckets"}
HELPERS |= {"alibi_bias", "alibi_slopes", "half_to_interleaved", "sinusoidal_positions"}  # plain arrays too
HELPERS |= {"smoothed_targets"}  # seen by every case of cross_entropy
HELPERS |= {"adam", "adam_state", "clip_by_norm"}  # no gradient of their own; tests/attnmath/test_optimisers.py
HELPERS |= {"unscale"}  # of gradients, which have none; tests/attnmath/test_precision.py
HELPERS |= {"draw_keep", "random_dropout"}  # masks again; tests/theorems/test_dropout.py
HELPERS |= {"encode", "decode"}  # the halves of transformer, which its cases see; tests/attnmath/test_cache.py
HELPERS |= {"own_attention", "cross_attention"}  # steps of a block, which the cases of layers see
HELPERS |= {"cached"}  # keeps rows and has no gradient; tests/attnmath/test_cache.py
