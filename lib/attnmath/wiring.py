"""How the parts of a layer fit together: which part stands where, and what parameters and inputs it needs.

For either world: it works on anything that has ``shape``.
"""

from functools import cache, partial
from operator import index

from attnmath import _require

PROJECTIONS = ("query", "key", "value", "output")


def part_of(parts, layer: int, name: str):
    """The part for one place: ``parts`` is a function, a dict of functions by sub-layer, or a list of those by layer.

    >>> part_of([max, {"attention": min, "cross_attention": sum}], 1, "cross_attention") is sum
    True
    """
    parts = parts[layer] if isinstance(parts, list | tuple) else parts
    return parts[name] if isinstance(parts, dict) else parts


def head_counts(params: dict, heads: int, norm) -> int:
    """The columns of the projections fall into heads; returns how many heads keys and values have.

    Raises
    ------
    ValueError
        If a projection or a norm is missing, or the widths do not fall into heads.
    """
    _require.branches(params, (*PROJECTIONS, *(("query_norm", "key_norm") if norm else ())))
    for name in PROJECTIONS:
        _require.leaf(params[name])
    width = {name: params[name]["weight"].shape[-1] for name in PROJECTIONS[:3]}
    _require.divides(heads, width["query"], "params['query']")
    k = width["query"] // index(heads)
    g = width["key"] // k
    if width["key"] != g * k or g == 0 or heads % g:
        raise ValueError(
            f"params['key'] has width {width['key']}; with {heads} query heads of width {k} it must be g x {k}, where "
            f"g, the number of key heads, divides {heads}"
        )
    _require.divides(g, width["value"], "params['value']")
    rows, v = params["output"]["weight"].shape[0], width["value"] // g
    if rows != heads * v:
        raise ValueError(
            f"params['output'] has {rows} rows; expected {heads} heads of the values' width {v}, {heads * v}"
        )
    return g


def inputs(Q, K, V, start: int) -> None:
    """Queries, keys and values fit together; keys and values may both be missing where a cache holds some."""
    if K is None and V is None and start:
        _require.shapes(Q=(Q, "... n d"))
    elif K is None or V is None:
        raise ValueError("K and V may be None only together, and with a cached core that holds rows already")
    else:
        _require.shapes(Q=(Q, "... n d"), K=(K, "... m e"), V=(V, "... m c"))


def stack(params: dict) -> None:
    """The parameters of a stack of layers, numbered from 0."""
    _require.branches(params, ("layers",), optional=("norm", "relative"))
    _require.branches(params["layers"], tuple(map(str, range(len(params["layers"])))), name="params['layers']")


def norm_names(params: dict, norm) -> tuple:
    """The names of a norm's parameters in the order in which it takes them: those it declares, or else known ones.

    Raises
    ------
    ValueError
        If the parameters are not those that the norm declares.
    """
    while isinstance(norm, partial):
        norm = norm.func
    names = _declared(norm)
    if names is None:
        return tuple(name for name in ("gain", "bias") if name in params)
    _require.branches(params, names, name=f"the parameters of {norm.__name__}")
    return names


@cache
def _declared(function):
    shapes = getattr(function, "parameter_shapes", None)
    return None if shapes is None else tuple(shapes(1))
