"""Two towers, one for pictures and one for sentences, that are taught to give a pair the highest score."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require import contrastive as _ask
from attnmath.torch.bert import unit_norm
from attnmath.torch.look import can_look
from attnmath.torch.losses import cross_entropy
from attnmath.torch.modules import ParamTree
from attnmath.torch.transformer import decoder_only, logits
from attnmath.torch.types import Array
from attnmath.torch.vision_transformer import vision_transformer


def cosine_scores(
    U: Float[Array, "n d"], V: Float[Array, "m d"], log_scale: Float[Array, ""] | float
) -> Float[Array, "n m"]:
    r"""The cosine of each row of U with each row of V, times a scale.

    .. math:: S_{ij} = e^{\tau}\,\hat u_i\cdot\hat v_j,\qquad \hat u = u/\lVert u\rVert

    Parameters, errors and source as in `attnmath.numpy.contrastive.cosine_scores`.

    Examples
    --------
    >>> cosine_scores(torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor(10.0).log())
    tensor([[6., 8.]])
    """
    U_, V_, scale = _wide(U, V, log_scale)
    scale = scale.exp()
    if can_look(scale):
        _ask.finite_scale(log_scale.detach(), scale.to(U.dtype).item())
    S = scale * (unit_norm(U_) @ unit_norm(V_).T)  # eq:cosine-scores
    return S.to(U.dtype)


def _wide(U, V, log_scale):
    """The arguments, checked; of 16 bits in float32."""
    _require.shapes(U=(U, "n d"), V=(V, "m d"))
    _ask.scale(log_scale, U.dtype)
    return [X.to(torch.promote_types(U.dtype, torch.float32)) for X in (U, V, log_scale)]


def matching_loss(S: Float[Array, "n m"]) -> Float[Array, ""]:
    r"""The cross-entropy of finding row i's partner among the columns, and column i's among the rows: their mean.

    .. math:: L = -\frac1{2n}\sum_i\bigl(\log\operatorname{softmax}(S)_{ii}
              + \log\operatorname{softmax}(S^{\mathsf T})_{ii}\bigr)

    Parameters, errors and source as in `attnmath.numpy.contrastive.matching_loss`.

    Examples
    --------
    >>> matching_loss(torch.tensor([[3.0, 1.0], [1.0, 3.0]]).log())
    tensor(0.2877)
    """
    _require.shapes(S=(S, "n m"))
    _ask.pairs(S)
    pairs = torch.arange(len(S), device=S.device)
    return (cross_entropy(S, pairs) + cross_entropy(S.T, pairs)) / 2  # eq:contrastive-loss


def contrastive_loss(
    U: Float[Array, "n d"], V: Float[Array, "m d"], log_scale: Float[Array, ""] | float
) -> Float[Array, ""]:
    r"""CLIP's loss: `matching_loss` of `cosine_scores`.

    .. math:: L = \operatorname{matching}\bigl(e^\tau\,\hat U\hat V^{\mathsf T}\bigr)

    Parameters, errors and source as in `attnmath.numpy.contrastive.contrastive_loss`.

    Examples
    --------
    >>> contrastive_loss(torch.eye(2), torch.eye(2), torch.tensor(3.0).log())
    tensor(0.0486)
    """
    return matching_loss(cosine_scores(*_wide(U, V, log_scale))).to(U.dtype)  # eq:contrastive-loss


def end_of_text(ids: Integer[Array, "... n"], end: int | None = None) -> Integer[Array, "..."]:
    r"""Where each sentence ends: the place of the first token ``end``.

    .. math:: e = \min\{i : \mathrm{ids}_i = \mathrm{end}\}

    Parameters, errors and source as in `attnmath.numpy.contrastive.end_of_text`.

    Examples
    --------
    >>> end_of_text(torch.tensor([[1, 5, 2, 0], [1, 7, 5, 2]]), 2)
    tensor([2, 3])
    """
    _require.integers(ids)
    _require.nonempty("ids", ids.shape, -1, ids.shape[-1], "token")
    if end is None:
        return ids.argmax(-1)
    found = ids == end
    if can_look(found):
        _ask.ended(ids, found.any(-1))
    return found.int().argmax(-1)


def row_at(places: Integer[Array, "..."], head: Callable = logits) -> Callable:
    r"""A head that looks at one row of each sentence.

    .. math:: \operatorname{head}'(X) = \operatorname{head}(X_e)

    Parameters and source as in `attnmath.numpy.contrastive.row_at`; heads return tensors.

    Examples
    --------
    >>> X, params = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), {"embeddings": {"word": torch.eye(2)}}
    >>> row_at(torch.tensor(0))(X, params)
    tensor([[1., 2.]])
    """
    return lambda X, params: head(torch.take_along_dim(X, places[..., None, None], -2), params)


def text_embedding(
    ids: Integer[Array, "... n"], params: dict, heads: int, *, end: int | None = None, **options
) -> Float[Array, "... t"]:
    r"""One vector per sentence: what a causal Transformer has at the end-of-text token, through the head.

    .. math:: v = H_e W,\qquad H = \operatorname{decoder}(\operatorname{embedding}(\mathrm{ids}))

    Parameters, errors and source as in `attnmath.numpy.contrastive.text_embedding`.

    Examples
    --------
    >>> from attnmath.shapes import decoder_only_shapes
    >>> params = ParamTree(decoder_only_shapes(9, 4, 8, layers=1, positions=5) | {"head": {"weight": (4, 3)}}).tree()
    >>> text_embedding(torch.tensor([[1, 5, 2, 0]]), params, 2, end=2).shape
    torch.Size([1, 3])
    """
    return decoder_only(ids, params, heads, head=row_at(end_of_text(ids, end)), **options)[..., 0, :]


def clip(
    X: Float[Array, "n c y x"],
    ids: Integer[Array, "m w"],
    params: dict,
    heads: int | tuple[int, int],
    mask: Bool[Array, "m w"] | None = None,
    *,
    size: int,
    end: int | None = None,
    picture: dict | None = None,
    text: dict | None = None,
) -> Float[Array, "n m"]:
    r"""The score of each picture with each sentence: two towers that meet in one product.

    .. math:: S = e^\tau\,\hat U\hat V^{\mathsf T},\qquad U = \operatorname{vision}(X),\quad V =
              \operatorname{text}(\mathrm{ids})

    Parameters, errors and source as in `attnmath.numpy.contrastive.clip`.

    Examples
    --------
    >>> from attnmath.shapes import decoder_only_shapes
    >>> from attnmath.vision_shapes import picture_embedding_shapes, vision_transformer_shapes
    >>> sizes = {"picture": vision_transformer_shapes(picture_embedding_shapes(4, 6), 6, 8, 1, 3, None)}
    >>> sizes["text"] = decoder_only_shapes(9, 4, 8, layers=1, positions=5) | {"head": {"weight": (4, 3)}}
    >>> Clip(sizes, 2, size=2, end=2)(torch.ones(1, 1, 4, 4), torch.tensor([[1, 5, 2], [7, 2, 0]])).shape
    torch.Size([1, 2])
    """
    _require.branches(params, ("picture", "text", "log_scale"))
    of_picture, of_text = heads if isinstance(heads, tuple) else (heads, heads)
    U = vision_transformer(X, params["picture"], of_picture, size, **(picture or {}))
    V = text_embedding(ids, params["text"], of_text, end=end, mask=mask, **(text or {}))
    return cosine_scores(U, V, params["log_scale"])


class Clip(ParamTree):
    """`clip` that holds its parameters; options are its keywords.

    Parameters
    ----------
    shapes : ``{"picture", "text"}``, the towers' trees of shapes.
    heads : of both towers, or one number for each.
    temperature : the first one; the scale is its reciprocal.
    """

    def __init__(self, shapes: dict, heads: int | tuple[int, int], *, temperature: float = 0.07, **options):
        _require.positive("temperature", temperature)
        super().__init__(shapes)
        self.log_scale = torch.nn.Parameter(torch.tensor(-math.log(temperature)))
        self.heads, self.options = heads, options

    def forward(self, X, ids):
        return clip(X, ids, self.tree(), self.heads, **self.options)

    def pictures(self, X):
        """The vectors (n, t) of pictures."""
        of_picture = self.heads[0] if isinstance(self.heads, tuple) else self.heads
        options = self.options.get("picture") or {}
        return vision_transformer(X, self.tree()["picture"], of_picture, self.options["size"], **options)

    def texts(self, ids):
        """The vectors (m, t) of sentences."""
        of_text = self.heads[1] if isinstance(self.heads, tuple) else self.heads
        options = self.options.get("text") or {}
        return text_embedding(ids, self.tree()["text"], of_text, end=self.options.get("end"), **options)
