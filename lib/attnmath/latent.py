"""The parameters of multi-head latent attention, and the sizes that follow from them. For either world."""

from attnmath import _require
from attnmath.shapes import linear_shapes

NAMES = ("query", "down", "norm", "up", "output")
COMPRESSED = ("query_down", "query_norm")


def latent_shapes(
    d: int,
    heads: int = 1,
    k: int | None = None,
    v: int | None = None,
    *,
    latent: int | None = None,
    rotary: int | None = None,
    query: int = 0,
) -> dict:
    """Multi-head latent attention of width d.

    Keys of k components that are not turned and ``rotary`` ones that are, values of width v, all from ``latent``
    numbers for each token; queries through ``query`` numbers, or directly if that is 0. By default k and v are
    d / heads, latent is 4 k and rotary k / 2, made even, which are DeepSeek's proportions.

    >>> shapes = latent_shapes(8, 2)
    >>> shapes["down"]["weight"], shapes["up"]["weight"]
    ((8, 18), (16, 16))
    """
    k = d // heads if k is None else k
    v = d // heads if v is None else v
    c = 4 * k if latent is None else latent
    r = 2 * max(1, k // 4) if rotary is None else rotary
    shapes = {
        "query": linear_shapes(query or d, heads * (k + r)),
        "down": linear_shapes(d, c + r),
        "norm": {"gain": (c,)},
        "up": {"weight": (c, heads * (k + v))},
        "output": linear_shapes(heads * v, d),
    }
    return shapes | ({"query_down": linear_shapes(d, query), "query_norm": {"gain": (query,)}} if query else {})


def sizes(params: dict, heads: int) -> tuple[int, int, int, int]:
    """The widths (k, r, c, v): keys that are not turned, turned ones, latent, values.

    Raises
    ------
    ValueError
        If a parameter is missing or the widths do not fit together.
    """
    _require.branches(params, NAMES, optional=COMPRESSED)
    if (COMPRESSED[0] in params) != (COMPRESSED[1] in params):
        raise ValueError(
            "params needs 'query_down' and 'query_norm' together, or neither: both make the queries' latent"
        )
    for name in ("query", "down", "up", "output", *(COMPRESSED[:1] if COMPRESSED[0] in params else ())):
        _require.leaf(params[name])
    if "bias" in params["up"]:
        raise ValueError("params['up'] has a bias, which the absorbed form could not take over: leave it out")
    _require.branches(params["norm"], ("gain",))
    widths = {name: params[name]["weight"].shape for name in ("query", "down", "up", "output")}
    _require.divides(heads, widths["query"][-1], "params['query']")
    _require.divides(heads, widths["up"][-1], "params['up']")
    _require.divides(heads, widths["output"][0], "params['output']")
    c, v = params["norm"]["gain"].shape[0], widths["output"][0] // heads
    r, k = widths["down"][-1] - c, widths["up"][-1] // heads - v
    if r < 0 or k < 1 or widths["up"][0] != c or widths["query"][-1] != heads * (k + r):
        raise ValueError(
            f"the widths of query {tuple(widths['query'])}, down {tuple(widths['down'])}, norm ({c},), up "
            f"{tuple(widths['up'])} and output {tuple(widths['output'])} do not fit together for {heads} heads; "
            "expected (d, h (k + r)), (d, c + r), (c,), (c, h (k + v)) and (h v, d)"
        )
    return k, r, c, v
