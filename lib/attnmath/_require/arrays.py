"""Arrays of floats, their shapes and their named axes."""

import sys

_STRANGERS = ("matrix", "MaskedArray")  # subclasses of NumPy's array whose products or sums are others


def broadcast(a, b):
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
    """Every array is floating point, and all have one dtype; under autocast, which mixes them, 16 and 32 bits agree."""
    first = None
    for name, array in arrays.items():
        dtype = getattr(array, "dtype", None)
        if dtype is None or not hasattr(array, "shape"):
            raise ValueError(f"{name} is a {type(array).__name__}; an array (or tensor) of floats is expected")
        if not _is_float(dtype):
            raise ValueError(f"{name} has dtype {dtype}; floats are expected: {_cure(name, dtype)}")
        if type(array).__name__ in _STRANGERS:
            raise ValueError(
                f"{name} is a numpy {type(array).__name__}, whose operators mean something else; pass "
                f"np.asarray({name})"
            )
        if first is None:
            first = (name, dtype)
        elif dtype != first[1] and not _autocast_mixes(array, dtype, first[1]):
            raise ValueError(f"{name} has dtype {dtype} but {first[0]} has {first[1]}; convert one so that they agree")


def _is_float(dtype):
    if getattr(dtype, "kind", None) == "f":
        return dtype.isnative
    return "float" in str(dtype)


def _cure(name, dtype):
    if getattr(dtype, "kind", None) == "f":
        return f"its bytes stand in the other order, convert it without loss by {name}.astype({name}.dtype.name)"
    return "convert it, e.g. to float32"


def _autocast_mixes(array, *dtypes):
    """Whether torch's autocast is on where the array is, and these are dtypes that it mixes."""
    torch = sys.modules.get("torch")  # this package imports neither world
    return (
        torch is not None
        and isinstance(array, torch.Tensor)
        and torch.amp.is_autocast_available(array.device.type)  # the meta device, for one, knows none
        and torch.is_autocast_enabled(array.device.type)
        and all(dtype in (torch.float32, torch.bfloat16, torch.float16) for dtype in dtypes)
    )


def shapes(**specs):
    """``shapes(Q=(Q, "... n k"), K=(K, "... m k"))``: named axes agree, leading axes broadcast. Returns the sizes.

    What has been found of arrays is looked up for others of their names, axes, types, dtypes and shapes: in a layer of
    few rows the comparison takes as long as the product behind it.
    """
    key = _key(specs)
    found = None if key is None else _agreed.get(key)
    if found is None:
        found = _compared(specs)
        if key is not None and all(dtype == key[0][3] for _, _, _, dtype, _ in key):  # others agree under autocast only
            if len(_agreed) >= 4096:
                _agreed.clear()
            _agreed[key] = found
    return dict(found)


_agreed = {}


def graph_is_recorded():
    """Whether sizes may be symbols, of which nothing can be looked up; `attnmath.torch` knows when."""
    return False


def _key(specs):
    if graph_is_recorded():
        return None
    try:
        key = tuple([(name, spec, type(array), array.dtype, array.shape) for name, (array, spec) in specs.items()])
        hash(key)
    except (AttributeError, TypeError):  # no array, or a size without a value
        return None
    return key


def _compared(specs):
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
            own = shape[: len(shape) - len(axes)]
            merged = own if own == lead or not lead else broadcast(lead, own)
            if merged is None:
                raise ValueError(f"{name} has leading axes {own}, which do not broadcast with {lead} of {lead_owner}")
            lead, lead_owner = merged, name
    return {**sizes, "...": lead}


def nonempty(name, shape, axis, size, what):
    """An axis that is summed or maximised over has at least one element."""
    if size == 0:
        raise ValueError(f"{name} has shape {tuple(shape)}: its axis {axis} is empty; at least one {what} is needed")
