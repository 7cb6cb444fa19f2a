"""The BERT encoder and the sentence embedding on top of it: together, MiniLM."""

import torch
from jaxtyping import Bool, Float, Integer

from attnmath import _require, shapes
from attnmath.torch.embedding import bert_embedding
from attnmath.torch.encoder import encoder_layer
from attnmath.torch.modules import ParamTree
from attnmath.torch.types import Array
from attnmath.tree import child


def bert(
    ids: Integer[Array, "... n"],
    params: dict,
    heads: int,
    mask: Bool[Array, "... n"] | None = None,
    *,
    eps: float = 1e-12,
    record: dict | None = None,
) -> Float[Array, "... n d"]:
    r"""A stack of encoder layers on embedded tokens.

    .. math:: X^0 = \operatorname{embedding}(\mathrm{ids}),\qquad X^{l+1} = \operatorname{layer}_l(X^l)

    Parameters, errors and source as in `attnmath.numpy.bert.bert`.

    Examples
    --------
    >>> Bert(11, 5, 1, 4, 2, 8, layers=2)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 4])
    """
    keys = True if mask is None else _key_mask(mask, ids)
    X = bert_embedding(ids, params["embeddings"], eps)
    for i in range(len(params["layers"])):
        layer_record = child(record, "layers", str(i))
        X = encoder_layer(X, params["layers"][str(i)], heads, keys, eps=eps, record=layer_record)
    return X


def _key_mask(mask, ids):
    if getattr(mask, "dtype", None) != torch.bool or mask.shape != ids.shape:
        raise ValueError(
            f"mask has shape {getattr(mask, 'shape', None)} and dtype {getattr(mask, 'dtype', type(mask).__name__)}; "
            f"expected booleans of ids' shape {tuple(ids.shape)}, True for a token"
        )
    return mask[..., None, None, :]


def mean_pool(H: Float[Array, "... n d"], mask: Bool[Array, "... n"]) -> Float[Array, "... d"]:
    r"""The mean of the rows that are tokens.

    .. math:: p = \frac{\sum_i m_i H_i}{\sum_i m_i}

    Parameters, errors and source as in `attnmath.numpy.bert.mean_pool`.

    Examples
    --------
    >>> mean_pool(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([True, True, False]))
    tensor([2.])
    """
    _require.floats(H=H)
    if mask.dtype != torch.bool or mask.shape != H.shape[:-1]:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)} and dtype {mask.dtype}; expected booleans {tuple(H.shape[:-1])}"
        )
    if not torch.compiler.is_compiling() and not mask.any(-1).all():
        raise ValueError("mask has a row without a token: there is nothing to average")
    share = (mask.to(H.dtype) / mask.sum(-1, keepdim=True))[..., None]
    return (share * H).sum(-2)  # eq:mean-pool


def unit_norm(X: Float[Array, "... d"]) -> Float[Array, "... d"]:
    r"""Scale each row to length 1.

    .. math:: Y = X / \lVert X\rVert

    Parameters, errors and source as in `attnmath.numpy.bert.unit_norm`.

    Examples
    --------
    >>> unit_norm(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    _require.floats(X=X)
    r = torch.linalg.vector_norm(X, dim=-1, keepdim=True)
    if not torch.compiler.is_compiling() and (r == 0).any():
        raise ValueError(
            f"X has a row of zeros at {tuple((r[..., 0] == 0).nonzero()[0].tolist())}: it has no direction"
        )
    return X / r  # eq:unit-norm


def sentence_embedding(
    ids: Integer[Array, "... n"],
    params: dict,
    heads: int,
    mask: Bool[Array, "... n"],
    *,
    eps: float = 1e-12,
    record: dict | None = None,
) -> Float[Array, "... d"]:
    """One unit vector per sentence: BERT, mean of the tokens, length 1.

    Parameters, errors and source as in `attnmath.numpy.bert.sentence_embedding`.

    Examples
    --------
    >>> model = Bert(11, 5, 1, 4, 2, 8, layers=2)
    >>> sentence_embedding(torch.tensor([[3, 1]]), model.tree(), 2, torch.tensor([[True, True]])).shape
    torch.Size([1, 4])
    """
    return unit_norm(mean_pool(bert(ids, params, heads, mask, eps=eps, record=record), mask))


class Bert(ParamTree):
    """`bert` that holds its parameters."""

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        segments: int,
        d: int,
        heads: int,
        f: int,
        layers: int,
        eps: float = 1e-12,
    ):
        _require.divides(heads, d, "the module")
        super().__init__(shapes.bert_shapes(vocabulary, positions, segments, d, f, layers))
        self.heads, self.eps = heads, eps

    def forward(self, ids, mask: torch.Tensor | None = None, **options):
        return bert(ids, self.tree(), self.heads, mask, eps=self.eps, **options)
