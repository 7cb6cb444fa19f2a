"""Refuse bad input with one sentence that names the argument, its shape and the cure.

Works on anything that has ``shape`` and ``dtype``, so that both worlds raise the same errors and this module imports
neither.
"""


def _broadcast(a, b):
    """The broadcast of two shapes, or None."""
    out = []
    for i in range(max(len(a), len(b))):
        x = a[-1 - i] if i < len(a) else 1
        y = b[-1 - i] if i < len(b) else 1
        if x != y and 1 not in (x, y):
            return None
        out.append(y if x == 1 else x)
    return tuple(reversed(out))


def floats(**arrays):
    """Every array is floating point, and all have one dtype."""
    first = None
    for name, array in arrays.items():
        if not hasattr(array, "dtype") or not hasattr(array, "shape"):
            raise ValueError(f"{name} is a {type(array).__name__}; an array (or tensor) of floats is expected")
        if "float" not in str(array.dtype):
            raise ValueError(f"{name} has dtype {array.dtype}; floats are expected: convert it, e.g. to float32")
        first = first or (name, array.dtype)
        if array.dtype != first[1]:
            raise ValueError(
                f"{name} has dtype {array.dtype} but {first[0]} has {first[1]}; convert one so that they agree"
            )


def shapes(**specs):
    """``shapes(Q=(Q, "... n k"), K=(K, "... m k"))``: named axes agree, leading axes broadcast. Returns the sizes."""
    floats(**{name: array for name, (array, _) in specs.items()})
    sizes, owner, lead, lead_owner = {}, {}, (), None
    for name, (array, spec) in specs.items():
        axes = spec.split()
        batched = axes[0] == "..."
        axes = axes[1:] if batched else axes
        shape = tuple(array.shape)
        if len(shape) < len(axes) or (not batched and len(shape) != len(axes)):
            raise ValueError(f"{name} has shape {shape}; expected ({', '.join(spec.split())})")
        core = shape[len(shape) - len(axes) :]
        for axis, size in zip(axes, core, strict=True):
            if axis.isdigit():
                continue
            if sizes.setdefault(axis, size) != size:
                raise ValueError(
                    f"{name} has shape {shape}, expected ({', '.join(spec.split())}) with {axis} = {sizes[axis]}, "
                    f"the size that {owner[axis]} gives it"
                )
            owner.setdefault(axis, name)
        if batched:
            merged = _broadcast(lead, shape[: len(shape) - len(axes)])
            if merged is None:
                raise ValueError(
                    f"{name} has leading axes {shape[: len(shape) - len(axes)]}, "
                    f"which do not broadcast with {lead} of {lead_owner}"
                )
            lead, lead_owner = merged, name
    return {**sizes, "...": lead}


def nonempty(name, shape, axis, size, what):
    """An axis that is summed or maximised over has at least one element."""
    if size == 0:
        raise ValueError(f"{name} has shape {tuple(shape)}: its axis {axis} is empty; at least one {what} is needed")


def mask(mask, scores_shape):
    """A boolean mask that broadcasts to the scores' shape without enlarging it."""
    if isinstance(mask, bool):
        return
    if not hasattr(mask, "dtype") or "bool" not in str(mask.dtype):
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise ValueError(
            f"mask has dtype {kind}; masks are boolean, True = may attend (from an additive mask M: mask = M == 0)"
        )
    scores_shape = tuple(scores_shape)
    if _broadcast(tuple(mask.shape), scores_shape) != scores_shape:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, which does not broadcast to the scores' shape {scores_shape} "
            "(…, queries n, keys m)"
        )


def bias(bias, scores_shape, like):
    """An array that is added to the scores: their dtype, and a shape that broadcasts to theirs."""
    if bias is None:
        return
    floats(Q=like, bias=bias)
    shape, scores_shape = tuple(bias.shape), tuple(scores_shape)
    if _broadcast(shape, scores_shape) != scores_shape:
        raise ValueError(
            f"bias has shape {shape}, which does not broadcast to the scores' shape {scores_shape} "
            "(…, queries n, keys m)"
        )


def choice(name, value, allowed):
    """A keyword takes one of a few words."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; expected one of {', '.join(map(repr, allowed))}")


def positive(name, value):
    """A strictly positive number."""
    if not value > 0:
        raise ValueError(f"{name} is {value!r}; it must be > 0")


def above(name, value, least):
    """A number beyond a bound."""
    if not value > least:
        raise ValueError(f"{name} is {value!r}; it must be > {least}")


def fraction(name, value):
    """A factor that shrinks."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value!r}; it must lie between 0 and 1, both excluded")


def count(name, value):
    """How many: 1, 2, …"""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be an integer >= 1")


def even(name, value):
    """A width whose components form pairs."""
    if not isinstance(value, int) or value < 2 or value % 2:
        raise ValueError(f"{name} is {value!r}; it must be an even number >= 2, because components are taken in pairs")


def odd(name, shape, axis):
    """A table of offsets -w to w has 2 w + 1 rows."""
    if shape[axis] % 2 == 0:
        raise ValueError(
            f"{name} has shape {tuple(shape)}; its axis {axis} counts the offsets -w to w and must be odd, 2 w + 1"
        )


def nonnegative(name, value):
    """Zero or more."""
    if not value >= 0:
        raise ValueError(f"{name} is {value!r}; it must be >= 0")


def drop_probability(p):
    """A probability that leaves something."""
    if not 0 <= p < 1:
        raise ValueError(f"p is {p!r}; the probability of being dropped must be >= 0 and < 1")


def keep(keep, shape):
    """A boolean mask of what is kept, which broadcasts to the array's shape without enlarging it."""
    kind = getattr(keep, "dtype", type(keep).__name__)
    if "bool" not in str(kind) or _broadcast(tuple(keep.shape), tuple(shape)) != tuple(shape):
        raise ValueError(
            f"keep has shape {getattr(keep, 'shape', None)} and dtype {kind}; expected booleans, True for what is "
            f"kept, that broadcast to X's shape {tuple(shape)}"
        )


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


def divides(heads, d, name):
    """The number of heads divides the width."""
    if not isinstance(heads, int) or heads < 1 or d % heads:
        raise ValueError(f"heads is {heads!r}; it must be a positive integer that divides the width {d} of {name}")


def no_empty_row(row, allowed):
    """Raise for the first row that may attend to nothing."""
    raise ValueError(
        f"row {row} may attend to no key: every score in it is -inf. Allow at least one key, or pass "
        f"{allowed} to get a row of zeros"
    )


def tree(params, shapes_tree, name="params"):
    """The parameters form the expected tree of the expected shapes."""
    if isinstance(shapes_tree, dict):
        if not isinstance(params, dict):
            raise ValueError(f"{name} is a {type(params).__name__}; expected a dict with keys {sorted(shapes_tree)}")
        missing, extra = sorted(set(shapes_tree) - set(params)), sorted(set(params) - set(shapes_tree))
        if missing or extra:
            raise ValueError(f"{name} lacks {missing} and has unexpected {extra}; expected {sorted(shapes_tree)}")
        for key, sub in shapes_tree.items():
            tree(params[key], sub, f"{name}[{key!r}]")
    elif tuple(getattr(params, "shape", ())) != tuple(shapes_tree):
        raise ValueError(f"{name} has shape {tuple(getattr(params, 'shape', ()))}; expected {tuple(shapes_tree)}")


def leaf(leaf):
    """The parameters of one affine map: a weight, and perhaps a bias."""
    keys = sorted(leaf) if isinstance(leaf, dict) else type(leaf).__name__
    if keys not in (["weight"], ["bias", "weight"]):
        raise ValueError(f"an affine map's parameters are {keys}; expected a dict with 'weight' and perhaps 'bias'")


def token_ids(ids, vocabulary):
    """Integer ids inside the vocabulary."""
    if not hasattr(ids, "dtype") or "int" not in str(ids.dtype):
        raise ValueError(f"ids has dtype {getattr(ids, 'dtype', type(ids).__name__)}; token ids are integers")
    bad = (ids < 0) | (ids >= vocabulary)
    if bool(bad.any()):
        # argwhere is spelled differently in the two worlds; flatten and unravel by hand instead
        flat = int(bad.reshape(-1).argmax() if not hasattr(bad, "numpy") else bad.reshape(-1).int().argmax())
        where = []
        for size in reversed(tuple(ids.shape)):
            where.insert(0, flat % size)
            flat //= size
        where = tuple(where)
        raise ValueError(
            f"ids[{', '.join(map(str, where))}] = {int(ids[where])} is outside the vocabulary of {vocabulary} tokens"
        )


def positions(n, count):
    """A position for each token."""
    if n > count:
        raise ValueError(f"ids has {n} tokens in a row, but there are {count} positions: shorten the text")


def bucket_sizes(count, exact, distance):
    """A bucket of its own for one offset at least, and a larger distance."""
    if not 1 <= exact < distance:
        raise ValueError(
            f"count is {count} and distance {distance}, which makes {exact} buckets of one offset; "
            "at least one is needed, and fewer than the distance"
        )


def keys(mask, ids):
    """A mask of tokens has the ids' shape. Returns it."""
    if "bool" not in str(getattr(mask, "dtype", None)) or mask.shape != ids.shape:
        shape, kind = getattr(mask, "shape", None), getattr(mask, "dtype", type(mask).__name__)
        raise ValueError(
            f"mask has shape {shape} and dtype {kind}; "
            f"expected booleans of ids' shape {tuple(ids.shape)}, True for a token"
        )
    return mask


def causal_sizes(n, m):
    """At least one query, and a key for the first of them."""
    if not 1 <= n <= m:
        raise ValueError(
            f"n = {n} queries and m = {m} keys; a causal mask needs 1 <= n <= m, because the last query sees the last "
            "key and each earlier one a key less: give at least as many keys as queries"
        )


def lengths(lengths, m):
    """Lengths of sequences are integers from 1 to m; returns m."""
    if "int" not in str(getattr(lengths, "dtype", None)) or len(lengths.shape) != 1:
        raise ValueError(f"lengths is {lengths!r}; expected a one-dimensional array of integers, tokens per sequence")
    m = int(lengths.max()) if m is None and len(lengths) else m
    if m is None or not bool(((lengths >= 1) & (lengths <= m)).all()):
        raise ValueError(f"lengths is {lengths.tolist()}; each must lie between 1 and m = {m}")
    return m


def head_sizes(params, heads, key_heads):
    """The columns of the projections fall into heads. Returns the number of key-value heads."""
    names = ("query", "key", "value", "output")
    if not isinstance(params, dict) or set(params) != set(names):
        raise ValueError(f"params is {type(params).__name__} {sorted(params)}; expected a dict with keys {list(names)}")
    width = {name: params[name]["weight"].shape[-1] for name in names[:3]}
    divides(heads, width["query"], "params['query']")
    g = heads if key_heads is None else key_heads
    if not isinstance(g, int) or g < 1 or heads % g:
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


def same_leaves(**trees):
    """Trees of float arrays, all of the first one's keys, shapes and dtypes."""
    (first, model), *others = trees.items()
    if not isinstance(model, dict):
        raise ValueError(f"{first} is a {type(model).__name__}; expected a tree: a dict of arrays or of such dicts")
    for key, leaf in model.items():
        same = {}
        for name, other in others:
            if not isinstance(other, dict) or set(other) != set(model):
                keys = sorted(other) if isinstance(other, dict) else f"a {type(other).__name__}"
                raise ValueError(f"{name} is {keys}; expected the keys of {first}, {sorted(model)}")
            same[f"{name}[{key!r}]"] = other[key]
        if isinstance(leaf, dict):
            same_leaves(**{f"{first}[{key!r}]": leaf}, **same)
            continue
        floats(**{f"{first}[{key!r}]": leaf}, **same)
        for name, other in same.items():
            if tuple(other.shape) != tuple(leaf.shape):
                raise ValueError(
                    f"{name} has shape {tuple(other.shape)}, expected that of {first}[{key!r}], {tuple(leaf.shape)}"
                )


def moments(state):
    """Adam's state. Returns its two trees by the names that messages use."""
    names = ["first", "second", "step"]
    if not isinstance(state, dict) or sorted(state) != names:
        found = sorted(state) if isinstance(state, dict) else f"a {type(state).__name__}"
        raise ValueError(f"state is {found}; expected the dict of adam_state(params) or of the step before, {names}")
    return {"state['first']": state["first"], "state['second']": state["second"]}


def decay_rates(name, betas):
    """Two rates at which averages forget. Returns them as floats."""
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"{name} is {betas!r}; expected two numbers in [0, 1)")
    return float(betas[0]), float(betas[1])


def finite_norms(name, norms, norm):
    """Every leaf of a tree of gradients has a finite length."""
    if norm - norm != 0:  # inf and nan
        bad = next((path for path, leaf in norms.items() if leaf - leaf != 0), next(iter(norms)))
        raise ValueError(
            f"{name} has the norm {norm}, and {bad!r} is the first leaf that is not finite; clipping cannot repair "
            "that: skip this step, and with a loss scale lower it"
        )


def smoothing(value):
    """The part of a target that is spread over all tokens."""
    if not 0 <= value <= 1:
        raise ValueError(f"smoothing is {value!r}; it is the part of the target that all tokens share, >= 0 and <= 1")


def targets(targets, shape, mask, name="targets", rows="row of Z"):
    """An integer for each row of logits, and booleans that say which rows count."""
    kind, shape = getattr(targets, "dtype", type(targets).__name__), tuple(shape)
    if "int" not in str(kind) or tuple(getattr(targets, "shape", "?")) != shape:
        raise ValueError(
            f"{name} has shape {getattr(targets, 'shape', None)} and dtype {kind}; "
            f"expected integers of shape {shape}, one for each {rows}"
        )
    if mask is not None and ("bool" not in str(getattr(mask, "dtype", None)) or tuple(mask.shape) != shape):
        raise ValueError(
            f"mask has shape {getattr(mask, 'shape', None)} and dtype {getattr(mask, 'dtype', type(mask).__name__)}; "
            f"expected booleans of shape {shape}, True for a position that counts"
        )


def within(targets, t, name="targets"):
    """At least one target, and each of them the id of a token."""
    if not len(targets):
        raise ValueError("no position counts, so there is no mean: leave such a batch out")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= t:
        raise ValueError(
            f"{name} holds {low if low < 0 else high}, which is not between 0 and t - 1 = {t - 1}"
            + ("; a position that shall not count is False in the mask" if name == "targets" else "")
        )


def no_token(row):
    """Raise for the first row of logits without a token."""
    raise ValueError(f"row {row} of the logits that count is -inf throughout: no token is left to choose")
