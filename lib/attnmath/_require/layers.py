"""What layers and models are given: heads, positions, masks of tokens, caches."""


def no_mask_with_cache(mask, cache):
    """Sequences of one cache have one length."""
    if mask is not None and cache is not None:
        raise ValueError(
            "mask and cache exclude each other: give sequences of one length a cache, and the others their own"
        )


def cache_rows(X, buffer):
    """New rows fit the kept ones."""
    new, old = ((*Y.shape[:-2], Y.shape[-1]) for Y in (X, buffer))
    if new != old or X.dtype != buffer.dtype:
        raise ValueError(
            f"the cache holds rows of shape {tuple(old)} and dtype {buffer.dtype}, but the new ones have {tuple(new)} "
            f"and {X.dtype}: begin with an empty cache for another batch or model"
        )


def positions(n, count):
    """A position for each token."""
    if n > count:
        raise ValueError(f"ids has {n} tokens in a row, but there are {count} positions: shorten the text")


def keys(mask, ids):
    """A mask of tokens has the ids' shape. Returns it."""
    if "bool" not in str(getattr(mask, "dtype", None)) or mask.shape != ids.shape:
        shape, kind = getattr(mask, "shape", None), getattr(mask, "dtype", type(mask).__name__)
        raise ValueError(
            f"mask has shape {shape} and dtype {kind}; "
            f"expected booleans of ids' shape {tuple(ids.shape)}, True for a token"
        )
    return mask
