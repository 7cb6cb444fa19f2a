"""Pictures as rows of patches: the embedding, positions on a grid, and the encoder with a head on top of it."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float

from attnmath import _require, vision_shapes
from attnmath._require import vision_transformer as _ask
from attnmath.torch.bert import mean_pool
from attnmath.torch.encoder import encoder
from attnmath.torch.linear import affine
from attnmath.torch.modules import ParamTree
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.positions import sinusoidal_positions
from attnmath.torch.residuals import normalise, sublayer
from attnmath.torch.types import Array


def patches(X: Float[Array, "... c y x"], size: int) -> Float[Array, "... n p"]:
    r"""Cut pictures into square patches, row by row, each laid out as one row of numbers.

    .. math:: P_{iw + j,\; as^2 + us + v} = X_{a,\; is + u,\; js + v},\qquad 0\le u, v < s

    Parameters, errors and source as in `attnmath.numpy.vision_transformer.patches`.

    Examples
    --------
    >>> patches(torch.arange(8.0).reshape(1, 2, 4), 2)
    tensor([[0., 1., 4., 5.],
            [2., 3., 6., 7.]])
    """
    rows, columns = _ask.patches(X, size)
    cut = X.unflatten(-1, (columns, size)).unflatten(-3, (rows, size))
    return cut.movedim((-4, -2), (-5, -4)).flatten(-3).flatten(-3, -2)  # eq:patches


def grid_positions(rows: int, columns: int, d: int, base: float = 10000.0, *, dtype=None) -> Float[Array, "n d"]:
    r"""Sinusoids of the row in the first half of the components, of the column in the second.

    .. math:: G_{iw + j} = \bigl[E_i,\; E_j\bigr],\qquad E \text{ the sinusoids of width } d/2

    Parameters, errors and source as in `attnmath.numpy.vision_transformer.grid_positions`.

    Examples
    --------
    >>> grid_positions(1, 2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.0000, 1.0000, 0.8415, 0.5403]])
    """
    _require.count("rows", rows)
    _require.count("columns", columns)
    _ask.grid_width(d)
    row, column = (sinusoidal_positions(n, d // 2, base, dtype=dtype) for n in (rows, columns))
    return torch.cat([row.repeat_interleave(columns, 0), column.repeat(rows, 1)], -1)  # eq:grid-positions


def picture_embedding(
    X: Float[Array, "... c y x"], params: dict, size: int, positions: Float[Array, "n d"] | None = None
) -> Float[Array, "... m d"]:
    r"""Patches through one linear map, behind a class token if there is one, plus positions.

    .. math:: H = \bigl[t;\; P W + b + G\bigr] + E

    Parameters, errors and source as in `attnmath.numpy.vision_transformer.picture_embedding`.

    Examples
    --------
    >>> params = {"patch": {"weight": torch.ones(4, 1)}, "class": torch.tensor([9.0])}
    >>> picture_embedding(torch.arange(8.0).reshape(1, 2, 4), params, 2).flatten()
    tensor([ 9., 10., 18.])
    """
    _ask.patches(X, size)
    _require.branches(params, ("patch",), ("class", "position", "norm"), "params of the pictures")
    _require.leaf(params["patch"], "params['patch']")
    _ask.width(X, size, params["patch"]["weight"])
    H = affine(patches(X, size), params["patch"])  # eq:patch-embedding
    if positions is not None:
        _ask.table("positions", positions, H)
        H = H + positions
    if "class" in params:
        _ask.vector("class", params["class"], H)
        H = torch.cat([params["class"].to(H.dtype).expand(*H.shape[:-2], 1, -1), H], -2)
    if "position" in params:
        _ask.table("position", params["position"], H)
        H = H + params["position"]
    return normalise(H, params["norm"], layer_norm) if "norm" in params else H


def vision_encoder(
    X: Float[Array, "... c y x"],
    params: dict,
    heads: int,
    size: int,
    *,
    positions: Float[Array, "n d"] | None = None,
    norm: Callable = layer_norm,
    record: dict | None = None,
    **layer,
) -> Float[Array, "... m d"]:
    r"""Embedded patches through a stack of pre-norm encoder layers.

    .. math:: H = \operatorname{encoder}\bigl(\operatorname{embedding}(X)\bigr)

    Parameters, errors and source as in `attnmath.numpy.vision_transformer.vision_encoder`.

    Examples
    --------
    >>> sizes = vision_shapes.vision_encoder_shapes(vision_shapes.picture_embedding_shapes(4, 6), 6, 8, 1, layer_norm)
    >>> vision_encoder(torch.ones(1, 4, 4), ParamTree(sizes).tree(), 2, 2).shape
    torch.Size([5, 6])
    """
    _ask.patches(X, size)
    _require.branches(params, ("embeddings", "layers"), ("norm", "relative"))
    E = picture_embedding(X, params["embeddings"], size, positions)
    layer.setdefault("join", partial(sublayer, norm_first=True))
    stack = {name: part for name, part in params.items() if name != "embeddings"}
    return encoder(E, stack, heads, norm=norm, record=record, **layer)


def vision_transformer(
    X: Float[Array, "... c y x"],
    params: dict,
    heads: int,
    size: int,
    **options,
) -> Float[Array, "... t"]:
    r"""Scores of t classes for each picture, from the class token's row or, without one, from the mean of all rows.

    .. math:: z = r W + b,\qquad r = H_0 \quad\text{or}\quad r = \frac1n\sum_{i=1}^n H_i

    Parameters, errors and source as in `attnmath.numpy.vision_transformer.vision_transformer`.

    Examples
    --------
    >>> VisionTransformer(1, 4, 2, 10, 6, 2, 8, 1)(torch.ones(3, 1, 4, 4)).shape
    torch.Size([3, 10])
    """
    _ask.patches(X, size)
    _require.branches(params, ("embeddings", "layers", "head"), ("norm", "relative"))
    first = "class" in params["embeddings"]
    body = {name: part for name, part in params.items() if name != "head" and not (first and name == "norm")}
    H = vision_encoder(X, body, heads, size, **options)
    if first:  # of all rows this one is read, so that only it needs the last norm
        r = H[..., 0, :]
        r = normalise(r, params["norm"], options.get("norm", layer_norm)) if "norm" in params else r
    else:
        r = mean_pool(H, torch.ones(H.shape[:-1], dtype=torch.bool, device=H.device))
    return affine(r[..., None, :], params["head"])[..., 0, :]  # eq:picture-logits


class VisionTransformer(ParamTree):
    """`vision_transformer` that holds its parameters, for square pictures; options are its keywords.

    Parameters
    ----------
    channels, pixels, size : of a picture, along its side, along a patch's side.
    classes, d, heads, f, layers : the sizes of the model.
    pool : "class" or "mean".
    learned : whether the positions are learned; fixed ones are given with each call, or bound as ``positions``.
    """

    def __init__(
        self,
        channels: int,
        pixels: int,
        size: int,
        classes: int,
        d: int,
        heads: int,
        f: int,
        layers: int,
        *,
        pool: str = "class",
        learned: bool = True,
        **options,
    ):
        _require.divides(heads, d, "the module")
        _require.choice("pool", pool, ("class", "mean"))
        first, n = pool == "class", (pixels // size) ** 2
        embeddings = vision_shapes.picture_embedding_shapes(
            channels * size**2, d, (n + first) * learned, class_token=first
        )
        parts = {name: options[name] for name in ("attention", "feed_forward", "join") if name in options}
        super().__init__(
            vision_shapes.vision_transformer_shapes(
                embeddings, d, f, layers, classes, options.get("norm", layer_norm), heads=heads, **parts
            )
        )
        self.heads, self.size, self.options = heads, size, options

    def forward(self, X, **options):
        return vision_transformer(X, self.tree(), self.heads, self.size, **self.options | options)
