"""From token ids to vectors."""

from jaxtyping import Float, Integer

from attnmath import _require
from attnmath.torch.look import can_look
from attnmath.torch.normalisation import layer_norm
from attnmath.torch.types import Array


def embedding(ids: Integer[Array, "..."], table: Float[Array, "t d"]) -> Float[Array, "... d"]:
    r"""Look up a row of the table for each id.

    .. math:: X_i = E_{\mathrm{ids}_i}

    Parameters, errors and source as in `attnmath.numpy.embedding.embedding`. Where values cannot be
    looked at (`attnmath.torch.look.can_look`), the range of the ids is left to PyTorch's own check.

    Examples
    --------
    >>> import torch
    >>> embedding(torch.tensor([2, 0]), torch.tensor([[1.0], [2.0], [3.0]]))
    tensor([[3.],
            [1.]])
    """
    _require.embedding.integers(ids)
    _require.shapes(table=(table, "t d"))
    ids = ids.long()  # table[ids] would take uint8 for a mask, and a vocabulary of 256 is 0 in uint8
    if can_look(ids):
        _require.embedding.inside(ids, len(table))
    return table[ids]  # eq:embedding


def bert_embedding(ids: Integer[Array, "... n"], params: dict, eps: float = 1e-12) -> Float[Array, "... n d"]:
    r"""Word, position and segment vectors, added and normalised; every token is in segment 0.

    .. math:: X_i = \operatorname{norm}(E^{\text{word}}_{\mathrm{ids}_i} + E^{\text{position}}_i + E^{\text{segment}}_0)

    Parameters, errors and source as in `attnmath.numpy.embedding.bert_embedding`.

    Examples
    --------
    >>> import torch
    >>> params = {"word": torch.eye(2), "position": torch.zeros(1, 2), "segment": torch.zeros(1, 2)}
    >>> bert_embedding(torch.tensor([1]), params | {"norm": {"gain": torch.ones(2), "bias": torch.zeros(2)}})
    tensor([[-1.,  1.]])
    """
    _require.embedding.integers(ids)
    _require.branches(params, ("word", "position", "segment", "norm"))
    _require.branches(params["norm"], ("gain", "bias"), name="params['norm']")
    _require.shapes(**{name: (params[name], f"{name[0]} d") for name in ("word", "position", "segment")})
    n, positions = ids.shape[-1], len(params["position"])
    if n > positions:
        raise ValueError(f"ids has {n} tokens in a row, but there are {positions} positions: shorten the text")
    X = embedding(ids, params["word"]) + params["position"][:n] + params["segment"][0]
    return layer_norm(X, params["norm"]["gain"], params["norm"]["bias"], eps)  # eq:bert-embedding
