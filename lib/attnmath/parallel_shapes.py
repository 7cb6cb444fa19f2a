"""The parameters of a layer whose two halves stand side by side."""

from collections.abc import Callable

from attnmath.shapes import encoder_layer_shapes, sublayer_shapes

PARALLEL = ("norm", "attention", "feed_forward")


def parallel_layer_shapes(
    d: int, f: int, heads: int = 1, key_heads: int | None = None, *, norm: Callable | None = None, **parts
) -> dict:
    """Those of an encoder layer, with one norm for both halves."""
    layer = encoder_layer_shapes(d, f, heads, key_heads, **parts)
    return {"norm": sublayer_shapes(d, norm=norm)} | {name: layer[name] for name in PARALLEL[1:]}
