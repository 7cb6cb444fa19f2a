"""Two towers: how they are called in either world, and what PyTorch and `transformers` say."""

import numpy as np
import torch
import torch.nn.functional as F

from attnmath import shapes
from attnmath.vision_shapes import picture_embedding_shapes, vision_transformer_shapes
from tests.attnmath.cases.case import FF, HEADS, TOKENS, A, Case, D, K, const

N, M, END, WORDS = 5, 3, 2, 4  # pictures, captions, the end-of-text token, tokens of a sentence
IDS = np.array([[5, 7, END, 3], [4, END, END, 1], [8, 6, 11, END]])
PICTURE = vision_transformer_shapes(picture_embedding_shapes(4, D, 7), D, FF, 1, A, None, heads=HEADS)
TEXT = shapes.decoder_only_shapes(TOKENS, D, FF, layers=2, positions=WORDS, heads=HEADS)
TEXT |= {"norm": shapes.norm_shapes(D), "head": {"weight": (D, A)}}


def vectors(n, m, log_scale=0.7, spread=1.0, near=0.0):
    """Two sets of vectors and a scale; with ``near`` the second is like the first."""

    def draw(rng):
        U = rng.standard_normal((n, K))
        V = rng.standard_normal((m, K))
        return spread * U, near * U + V if near else V, np.array(log_scale)

    return draw


def towers(rng):
    """Pictures of 4 x 6 pixels and the trees of both towers."""
    params = shapes.random_tree({"picture": PICTURE, "text": TEXT}, rng, 0.4)
    return rng.standard_normal((N, 1, 4, 6)), params | {"log_scale": np.array(0.9)}


def scores(U, V, log_scale):
    """PyTorch's own cosines."""
    return log_scale.exp() * F.cosine_similarity(U[:, None], V[None], dim=-1)


def paired(S):
    """The loss of `transformers`."""
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss  # seconds, so not above

    return image_text_contrastive_loss(S)


def loss(U, V, log_scale):
    """The loss of `transformers` on its own formula of the scores."""
    U, V = (X / X.pow(2).sum(-1, keepdim=True).pow(0.5) for X in (U, V))
    return paired(log_scale.exp() * V @ U.T)


def layer(X, params, causal):
    """PyTorch's own encoder layer, with the norm first or last."""
    own = torch.nn.TransformerEncoderLayer(
        D, HEADS, FF, 0.0, "gelu", batch_first=True, norm_first=not causal, dtype=X.dtype
    )
    leaves = params["attention"]
    joined = [torch.cat([leaves[n][k] for n in ("query", "key", "value")], -1) for k in ("weight", "bias")]
    given = {"self_attn.in_proj_weight": joined[0].T, "self_attn.in_proj_bias": joined[1]}
    parts = {"linear1": params["feed_forward"]["up"], "linear2": params["feed_forward"]["down"]}
    parts["self_attn.out_proj"] = leaves["output"]
    for name, leaf in parts.items():
        given |= {f"{name}.weight": leaf["weight"].T, f"{name}.bias": leaf["bias"]}
    for name, norm in (("norm1", "attention_norm"), ("norm2", "feed_forward_norm")):
        given |= {f"{name}.weight": params[norm]["gain"], f"{name}.bias": params[norm]["bias"]}
    options = {"src_mask": torch.ones(X.shape[1], X.shape[1], dtype=torch.bool).triu(1)} if causal else {}
    return torch.func.functional_call(own, given, (X,), options)


def sentences(params):
    """Word vectors, PyTorch's layers with its causal mask, and the row of the first end."""
    X = F.embedding(torch.from_numpy(IDS), params["embeddings"]["word"]) + params["embeddings"]["position"]
    for one in params["layers"].values():
        X = layer(X, one, True)
    X = F.layer_norm(X, (D,), params["norm"]["gain"], params["norm"]["bias"])
    rows = torch.stack([X[i, row.tolist().index(END)] for i, row in enumerate(IDS)])
    return rows @ params["head"]["weight"]


def both(X, params):
    """A convolution, PyTorch's layer, and the row of the class, beside the sentences."""
    table = params["picture"]["embeddings"]
    kernel = table["patch"]["weight"].T.unflatten(-1, (1, 2, 2))
    H = F.conv2d(X, kernel, table["patch"]["bias"], stride=2).flatten(-2).transpose(-1, -2)
    H = torch.cat([table["class"].expand(len(H), 1, D), H], 1) + table["position"]
    for one in params["picture"]["layers"].values():
        H = layer(H, one, False)
    U = F.linear(H[:, 0], params["picture"]["head"]["weight"].T, params["picture"]["head"]["bias"])
    return scores(U, sentences(params["text"]), params["log_scale"])


def plain_scores(w, *args):
    return w.cosine_scores(*args)


def plain_loss(w, *args):
    return w.contrastive_loss(*args)


def embed(w, params):
    return w.text_embedding(const(w, IDS), params, HEADS, end=END)


def match(w, X, params):
    return w.clip(X, const(w, IDS), params, HEADS, size=2, end=END)


CASES = [
    Case("cosine_scores", "plain", vectors(N, M), plain_scores, scores),
    Case("cosine_scores", "no-batch", vectors(0, M), plain_scores, scores),
    Case("cosine_scores", "huge", vectors(N, M, 9.0, 1e4), plain_scores, scores, 1e-9),
    Case(
        "matching_loss",
        "plain",
        lambda rng: (3 * rng.standard_normal((N, N)),),
        lambda w, S: w.matching_loss(S),
        paired,
    ),
    Case(
        "matching_loss",
        "huge",
        lambda rng: (1e4 * rng.standard_normal((N, N)),),
        lambda w, S: w.matching_loss(S),
        paired,
    ),
    Case("contrastive_loss", "plain", vectors(N, N), plain_loss, loss),
    Case("contrastive_loss", "one-pair", vectors(1, 1), plain_loss, loss),
    Case("contrastive_loss", "near", vectors(N, N, 2.0, near=1.0), plain_loss, loss),
    Case("contrastive_loss", "huge", vectors(N, N, 9.0, 1e3), plain_loss, loss, 1e-8),
    Case("text_embedding", "pytorch", lambda rng: (shapes.random_tree(TEXT, rng, 0.4),), embed, sentences, 1e-11),
    Case("clip", "pytorch", towers, match, both, 1e-11),
]

HELPERS = {"end_of_text", "row_at"}  # places without a gradient, and a head; tests/attnmath/test_contrastive.py
