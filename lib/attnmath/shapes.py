"""The shapes of each component's parameters, as trees; both worlds build and check their parameters from these."""

from attnmath.tree import map_tree


def linear_shapes(d_in: int, d_out: int) -> dict:
    """Y = X W + b."""
    return {"weight": (d_in, d_out), "bias": (d_out,)}


def norm_shapes(d: int) -> dict:
    """Gain and bias of a layer norm."""
    return {"gain": (d,), "bias": (d,)}


def attention_shapes(
    d: int, heads: int = 1, key_heads: int | None = None, k: int | None = None, v: int | None = None
) -> dict:
    """Multi-head attention of width d: the projections of all heads side by side.

    Keys and values have ``key_heads`` heads (None: as many as queries), of width k and v (None: d / heads).
    """
    g = heads if key_heads is None else key_heads
    k, v = d // heads if k is None else k, d // heads if v is None else v
    return {
        "query": linear_shapes(d, heads * k),
        "key": linear_shapes(d, g * k),
        "value": linear_shapes(d, g * v),
        "output": linear_shapes(heads * v, d),
    }


def feed_forward_shapes(d: int, f: int) -> dict:
    """Two linear maps, d to f to d."""
    return {"up": linear_shapes(d, f), "down": linear_shapes(f, d)}


def gated_feed_forward_shapes(d: int, f: int) -> dict:
    """Two linear maps side by side, d to f, and one back to d; no biases, as in Llama and T5."""
    return {"gate": {"weight": (d, f)}, "up": {"weight": (d, f)}, "down": {"weight": (f, d)}}


def encoder_layer_shapes(d: int, f: int) -> dict:
    """One post-norm encoder layer."""
    return {
        "attention": attention_shapes(d),
        "attention_norm": norm_shapes(d),
        "feed_forward": feed_forward_shapes(d, f),
        "feed_forward_norm": norm_shapes(d),
    }


def decoder_layer_shapes(d: int, f: int) -> dict:
    """One decoder layer that attends to an encoder's output of the same width."""
    return encoder_layer_shapes(d, f) | {"cross_attention": attention_shapes(d), "cross_attention_norm": norm_shapes(d)}


def _stack_shapes(layer: dict, d: int, layers: int, norm: bool) -> dict:
    stack = {"layers": {str(i): layer for i in range(layers)}}
    return stack | {"norm": norm_shapes(d)} if norm else stack


def encoder_shapes(d: int, f: int, layers: int, norm: bool = False) -> dict:
    """A stack of encoder layers, with a norm at the end or not."""
    return _stack_shapes(encoder_layer_shapes(d, f), d, layers, norm)


def decoder_shapes(d: int, f: int, layers: int, norm: bool = False) -> dict:
    """A stack of decoder layers that attend to an encoder's output, with a norm at the end or not."""
    return _stack_shapes(decoder_layer_shapes(d, f), d, layers, norm)


def token_embedding_shapes(vocabulary: int, d: int, positions: int = 0) -> dict:
    """A table of word vectors, and one of learned positions if there are any."""
    return {"word": (vocabulary, d)} | ({"position": (positions, d)} if positions else {})


def decoder_only_shapes(
    vocabulary: int, d: int, f: int, layers: int, positions: int = 0, *, norm: bool = False, tie: bool = True
) -> dict:
    """A language model; tied, its word vectors are also the head."""
    embeddings = {"embeddings": token_embedding_shapes(vocabulary, d, positions)}
    head = {} if tie else {"head": {"weight": (d, vocabulary)}}
    return embeddings | encoder_shapes(d, f, layers, norm) | head


def transformer_shapes(
    vocabulary: int,
    d: int,
    f: int,
    layers: int,
    positions: int = 0,
    *,
    source_vocabulary: int | None = None,
    norm: bool = False,
    tie: bool = True,
) -> dict:
    """An encoder-decoder; the source has a table of its own if it has a vocabulary of its own."""
    shapes = {
        "embeddings": token_embedding_shapes(vocabulary, d, positions),
        "encoder": encoder_shapes(d, f, layers, norm),
        "decoder": decoder_shapes(d, f, layers, norm),
    }
    if source_vocabulary is not None:
        shapes["source_embeddings"] = token_embedding_shapes(source_vocabulary, d, positions)
    return shapes if tie else shapes | {"head": {"weight": (d, vocabulary)}}


def bert_embedding_shapes(vocabulary: int, positions: int, segments: int, d: int) -> dict:
    """The three tables that BERT adds, and their norm."""
    return {"word": (vocabulary, d), "position": (positions, d), "segment": (segments, d), "norm": norm_shapes(d)}


def bert_shapes(vocabulary: int, positions: int, segments: int, d: int, f: int, layers: int) -> dict:
    """A BERT encoder."""
    return {
        "embeddings": bert_embedding_shapes(vocabulary, positions, segments, d),
        "layers": {str(i): encoder_layer_shapes(d, f) for i in range(layers)},
    }


def random_tree(shapes: dict, rng, scale: float = 1.0):
    """Standard normal arrays times ``scale`` in the given shapes, drawn from a NumPy generator."""
    return map_tree(lambda shape: scale * rng.standard_normal(shape), shapes)
