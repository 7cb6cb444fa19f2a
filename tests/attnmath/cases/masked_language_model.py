"""Masked language models: how they are called in either world, and what `transformers`' own head and model say."""

import functools

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import shapes
from attnmath.masked_shapes import masked_head_shapes, masked_language_model_shapes
from tests.attnmath.cases.case import FF, HEADS, POSITIONS, TOKENS, B, Case, D, M, const, tree

EPS = 1e-12
IDS = np.random.default_rng(3).integers(0, TOKENS, (B, M))
MASK = np.arange(M) < np.random.default_rng(4).integers(2, M + 1, (B, 1))
CHOSEN = MASK & (np.random.default_rng(5).random((B, M)) < 0.3)
HEAD = masked_head_shapes(D, TOKENS)
MODEL = masked_language_model_shapes(TOKENS, POSITIONS, 2, D, FF, 2, heads=HEADS)
UNTIED = MODEL | {"head": HEAD | {"table": (TOKENS, D)}}


@functools.cache
def hugging_face():
    """A small BERT of `transformers` with its head; its parameters are replaced by ours."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=TOKENS,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=FF,
        max_position_embeddings=POSITIONS,
        type_vocab_size=2,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    return BertForMaskedLM(config).double().eval()


def leaf(name, own):
    return {f"{name}.weight": own["weight"].T, f"{name}.bias": own["bias"]}


def norm(name, own):
    return {f"{name}.weight": own["gain"], f"{name}.bias": own["bias"]}


def head_names(params, table):
    transform, found = leaf("transform.dense", params["transform"]), norm("transform.LayerNorm", params["norm"])
    return transform | found | {"decoder.weight": table, "decoder.bias": params["bias"], "bias": params["bias"]}


def names(params):
    """Our parameters under the names that `transformers` has for this model."""
    table = params["embeddings"]
    found = {f"bert.embeddings.{kind}_embeddings.weight": table[kind] for kind in ("word", "position")}
    found |= {"bert.embeddings.token_type_embeddings.weight": table["segment"]}
    found |= norm("bert.embeddings.LayerNorm", table["norm"])
    for i, layer in params["layers"].items():
        at = f"bert.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            found |= leaf(f"{at}.attention.self.{name}", layer["attention"][name])
        found |= leaf(f"{at}.attention.output.dense", layer["attention"]["output"])
        found |= norm(f"{at}.attention.output.LayerNorm", layer["attention_norm"])
        found |= leaf(f"{at}.intermediate.dense", layer["feed_forward"]["up"])
        found |= leaf(f"{at}.output.dense", layer["feed_forward"]["down"])
        found |= norm(f"{at}.output.LayerNorm", layer["feed_forward_norm"])
    own = params["head"]
    head = head_names(own, own.get("table", table["word"]))
    return found | {f"cls.predictions.{name}": value for name, value in head.items()}


def their_head(H, params, table):
    return torch.func.functional_call(hugging_face().cls.predictions, head_names(params, table), (H,))


def relu_head(H, params, table):
    """The same with another activation, written down."""
    A = F.relu(F.linear(H, params["transform"]["weight"].T, params["transform"]["bias"]))
    T = F.layer_norm(A, (D,), params["norm"]["gain"], params["norm"]["bias"], 1e-3)
    return F.linear(T, table, params["bias"])


def theirs(params, rows=None):
    given = (torch.from_numpy(IDS), torch.from_numpy(MASK).long())
    Z = torch.func.functional_call(hugging_face(), names(params), given).logits
    return Z[torch.from_numpy(MASK if rows is None else rows)]


def fill(world, params, rows=None):
    """The logits of chosen places, or of all that are no padding."""
    ids, mask = const(world, IDS), const(world, MASK)
    chosen = mask if rows is None else const(world, rows)
    return world.masked_language_model(ids, params, HEADS, mask, chosen)


def huge(rng):
    H, params, table = tree((B, M, D), HEAD, (TOKENS, D))(rng)
    return 1e4 * H, params, table


def whole(world, params):
    """No padding, and the logits of all places."""
    return world.masked_language_model(const(world, IDS), params, HEADS)


def their_whole(params):
    return torch.func.functional_call(hugging_face(), names(params), (torch.from_numpy(IDS),)).logits


CALL = lambda w, H, params, table: w.masked_head(H, params, table)  # noqa: E731
CASES = [
    Case("masked_head", "transformers", tree((B, M, D), HEAD, (TOKENS, D)), CALL, their_head),
    Case("masked_head", "one-row", tree((1, D), HEAD, (TOKENS, D)), CALL, their_head),
    Case("masked_head", "huge", huge, CALL, their_head, vjp_atol=1e-7),
    Case("masked_head", "no-batch", tree((0, M, D), HEAD, (TOKENS, D)), CALL, their_head),
    Case(
        "masked_head",
        "relu",
        tree((B, M, D), HEAD, (TOKENS, D)),
        lambda w, H, params, table: w.masked_head(H, params, table, activation=w.relu, eps=1e-3),
        relu_head,
    ),
    Case("masked_language_model", "padded", lambda rng: (shapes.random_tree(MODEL, rng, 0.4),), fill, theirs, 1e-11),
    Case(
        "masked_language_model",
        "chosen",
        lambda rng: (shapes.random_tree(MODEL, rng, 0.4),),
        lambda w, params: fill(w, params, CHOSEN),
        lambda params: theirs(params, CHOSEN),
        1e-11,
    ),
    Case(
        "masked_language_model",
        "untied",
        lambda rng: (shapes.random_tree(UNTIED, rng, 0.4),),
        whole,
        their_whole,
        1e-11,
    ),
]
