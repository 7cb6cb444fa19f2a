"""The places that a masked language model has to fill."""


def chosen(chosen, ids):
    """Booleans of the ids' shape. Returns them."""
    shape, kind = getattr(chosen, "shape", ()), getattr(chosen, "dtype", type(chosen).__name__)
    if "bool" not in str(kind) or tuple(shape) != tuple(ids.shape):
        raise ValueError(
            f"chosen has shape {tuple(shape)} and dtype {kind}; expected booleans of ids' shape {tuple(ids.shape)}, "
            "True for each place to fill"
        )
    return chosen
