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


def encoder_layer_shapes(d: int, f: int) -> dict:
    """One post-norm encoder layer."""
    return {
        "attention": attention_shapes(d),
        "attention_norm": norm_shapes(d),
        "feed_forward": feed_forward_shapes(d, f),
        "feed_forward_norm": norm_shapes(d),
    }


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
