"""Random features of the exponential kernel, and the linear attention that they make of softmax attention."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require import random_features as require
from attnmath._require.attention import factor
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.linear_attention import linear_attention
from attnmath.torch.types import Array, Generator, T


def draw_directions(r: int, k: int, rng: Generator, *, orthogonal: bool = True) -> Float[Array, "r k"]:
    r"""Directions for random features: each is normal, and those of one block are at right angles if wished.

    .. math:: w_a \sim N(0, I_k),\qquad w_a \cdot w_b = 0 \text{ for } a \ne b \text{ in one block of } k

    Parameters and errors as in `attnmath.numpy.random_features.draw_directions`, with a generator of PyTorch, on whose
    device the directions are, in PyTorch's default dtype.

    Examples
    --------
    >>> W = draw_directions(2, 2, torch.Generator().manual_seed(0))
    >>> print(f"{abs(W[0] @ W[1]):.4f}")
    0.0000
    """
    require.sizes(r, k)

    def normal(*shape):
        return torch.randn(shape, generator=rng, device=rng.device)

    if not orthogonal:
        return normal(r, k)
    turned = []
    for _ in range(0, r, k):
        U, R = torch.linalg.qr(normal(k, k))
        turned.append(T(U * R.diagonal().sign()))
    return normal(r, k).norm(dim=-1, keepdim=True) * torch.cat(turned)[:r]  # eq:orthogonal-directions


@half_in_float32
def random_features(
    X: Float[Array, "... n k"],
    W: Float[Array, "r k"],
    *,
    kind: str = "positive",
) -> Float[Array, "... n f"]:
    r"""Features whose products are, on average over the directions, the exponential of a dot product.

    .. math:: \phi(x) &= \frac{1}{\sqrt r}\exp\bigl(W x - \tfrac12 \lVert x\rVert^2\bigr) \quad\text{(positive)},\\
              \phi(x) &= \frac{e^{\lVert x\rVert^2/2}}{\sqrt r}\,[\cos W x, \sin W x] \quad\text{(trigonometric)}

    Parameters, errors and source as in `attnmath.numpy.random_features.random_features`.

    Examples
    --------
    >>> random_features(torch.zeros(1, 2), torch.ones(4, 2))
    tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    _require.shapes(X=(X, "... n k"), W=(W, "r k"))
    require.directions(W, "W")
    _require.choice("kind", kind, require.KINDS)
    root = len(W) ** -0.5
    half = (X * X).sum(-1, keepdim=True) / 2
    if kind == "positive":
        return root * (X @ T(W) - half).exp()  # eq:positive-features
    A = X @ T(W)
    return root * half.exp() * torch.cat([A.cos(), A.sin()], -1)  # eq:trigonometric-features


def _as_it_is(F):
    """The feature map of what are features already."""
    return F


@cast_by_autocast
@half_in_float32
def performer_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    directions: Float[Array, "r k"],
    causal: bool = False,
    chunk: int = 128,
    form: str = "chunked",
    scale: float | None = None,
) -> Float[Array, "... n v"]:
    r"""Softmax attention, approximated in linear time by positive random features.

    .. math:: O_i = \frac{\phi(q_i) \sum_j \phi(k_j)^\top v_j}{\phi(q_i) \sum_j \phi(k_j)^\top},\qquad
              E\,\phi(q)\phi(k)^\top = e^{q k^\top/\sqrt{d_k}}

    Parameters, errors and source as in `attnmath.numpy.random_features.performer_attention`.

    Examples
    --------
    >>> W = draw_directions(8, 2, torch.Generator().manual_seed(0))
    >>> performer_attention(torch.ones(1, 2), torch.zeros(2, 2), torch.tensor([[1.0], [3.0]]), directions=W)
    tensor([[2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"), directions=(directions, "r k"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    require.directions(directions, "directions")
    _require.mask(mask, (*sizes["..."], sizes["n"], sizes["m"]))
    c = factor(scale, sizes["k"]) ** 0.5
    W = c * directions
    A = Q @ T(W)  # without the square of the query, which multiplies all its weights alike
    B = K @ T(W) - c * c / 2 * (K * K).sum(-1, keepdim=True)
    if mask is not True:
        B = B.masked_fill(~T(_seen(mask, B.device)), -torch.inf)
    top = B.detach().amax(-2, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    A = A + top
    FQ = (A - A.detach().amax(-1, keepdim=True)).exp()  # eq:performer
    FK = (B - top).exp()
    return linear_attention(FQ, FK, V, mask, causal=causal, chunk=chunk, feature=_as_it_is, form=form)


def _seen(mask, device):
    """The keys that some query sees, (..., 1, m)."""
    mask = torch.as_tensor(mask, device=device)
    return mask.reshape((1,) * (2 - mask.ndim) + tuple(mask.shape)).any(-2, keepdim=True)
