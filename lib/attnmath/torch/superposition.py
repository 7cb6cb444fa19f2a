"""More features than dimensions: a toy model that stores them in superposition, and an autoencoder that finds them."""

import torch
from jaxtyping import Float

from attnmath import _require
from attnmath._require.superposition import top as _ask_top
from attnmath.torch.bert import unit_norm
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.linear import linear
from attnmath.torch.types import Array


@cast_by_autocast
@half_in_float32
def superposition(
    X: Float[Array, "... n f"], W: Float[Array, "... f m"], b: Float[Array, "... f"]
) -> Float[Array, "... n f"]:
    r"""Press f features into m dimensions along the rows of W, and read them off with the same directions.

    .. math:: Y = \operatorname{relu}(X W W^\top + b)

    Parameters, errors and source as in `attnmath.numpy.superposition.superposition`.

    Examples
    --------
    >>> superposition(torch.tensor([[0.5, 0.0], [0.0, 0.5]]), torch.tensor([[1.0], [-1.0]]), torch.zeros(2))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """
    _require.shapes(X=(X, "... n f"), W=(W, "... f m"), b=(b, "... f"))
    return torch.relu(X @ W @ W.mT + b[..., None, :])  # eq:superposition


@cast_by_autocast
@half_in_float32
def sparse_code(
    X: Float[Array, "... n d"], E: Float[Array, "d u"], a: Float[Array, "u"], *, top: int | None = None
) -> Float[Array, "... n u"]:
    r"""How strongly each of u units speaks about each row, for all units or for the loudest of them.

    .. math:: Z_{ij} = R_{ij}\,[R_{ij} \ge r_i],\qquad R = \operatorname{relu}(X E + a)

    Parameters, errors and source as in `attnmath.numpy.superposition.sparse_code`.

    Examples
    --------
    >>> sparse_code(torch.tensor([[3.0, 1.0, -2.0]]), torch.eye(3), torch.zeros(3), top=1)
    tensor([[3., 0., 0.]])
    """
    u = _require.shapes(X=(X, "... n d"), E=(E, "d u"), a=(a, "u"))["u"]
    _ask_top(top, u)
    R = torch.relu(linear(X, E, a))
    if top is None:
        return R
    least = R.detach().topk(top, -1).values[..., -1:]
    return torch.where(R >= least, R, 0)  # eq:sparse-code


@cast_by_autocast
@half_in_float32
def sparse_autoencoder(
    X: Float[Array, "... n d"],
    E: Float[Array, "d u"],
    a: Float[Array, "u"],
    D: Float[Array, "u d"],
    c: Float[Array, "d"],
    *,
    top: int | None = None,
) -> Float[Array, "... n d"]:
    r"""Write each row as a centre plus a few directions of a dictionary, each of them of length 1.

    .. math:: Y = c + Z \hat D,\qquad Z = \operatorname{code}(X - c),\qquad \hat D_j = D_j / \lVert D_j\rVert

    Parameters, errors and source as in `attnmath.numpy.superposition.sparse_autoencoder`.

    Examples
    --------
    >>> D = torch.tensor([[5.0, 0.0], [0.0, 5.0]])  # the length of a row plays no part
    >>> sparse_autoencoder(torch.tensor([[3.0, 1.0]]), torch.eye(2), torch.zeros(2), D, torch.zeros(2), top=1)
    tensor([[3., 0.]])
    """
    _require.shapes(X=(X, "... n d"), E=(E, "d u"), a=(a, "u"), D=(D, "u d"), c=(c, "d"))
    return linear(sparse_code(X - c, E, a, top=top), unit_norm(D), c)  # eq:sparse-autoencoder
