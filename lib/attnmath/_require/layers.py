"""What layers and models are given: heads, positions, masks of tokens, caches."""

from attnmath._require.numbers import divides, integral


def keys_or_cache(K, V, cache):
    """Keys and values are both given, or both kept already."""
    if (K is None) != (V is None) or (K is None and (cache is None or not cache.length)):
        raise ValueError("K and V may be None only together, and with a cache that holds rows already")


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


def head_sizes(params, heads, key_heads):
    """The columns of the projections fall into heads. Returns the number of key-value heads."""
    names = ("query", "key", "value", "output")
    if not isinstance(params, dict) or set(params) != set(names):
        raise ValueError(f"params is {type(params).__name__} {sorted(params)}; expected a dict with keys {list(names)}")
    width = {name: params[name]["weight"].shape[-1] for name in names[:3]}
    divides(heads, width["query"], "params['query']")
    g = heads if key_heads is None else key_heads
    if not integral(g) or g < 1 or heads % g:
        raise ValueError(f"key_heads is {key_heads!r}; it must be a positive integer that divides heads = {heads}")
    k = width["query"] // heads
    if width["key"] != g * k:
        raise ValueError(
            f"params['key'] has width {width['key']}; expected {g} heads of the query heads' width {k}, {g * k}"
        )
    divides(g, width["value"], "params['value']")
    rows, v = params["output"]["weight"].shape[0], width["value"] // g
    if rows != heads * v:
        raise ValueError(
            f"params['output'] has {rows} rows; expected {heads} heads of the values' width {v}, {heads * v}"
        )
    return g
