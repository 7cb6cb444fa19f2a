"""Modern Hopfield networks: patterns that are keys and values at once, states that attend to them, and their energy."""

import torch
from jaxtyping import Bool, Float

from attnmath import _require
from attnmath._require.attention import factor
from attnmath.torch.attention import attention
from attnmath.torch.half import cast_by_autocast, half_in_float32
from attnmath.torch.scoring_functions import scaled_dot_score
from attnmath.torch.softmax import logsumexp
from attnmath.torch.types import Array


@cast_by_autocast
@half_in_float32
def hopfield(
    X: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    scale: float | None = None,
    steps: int = 1,
) -> Float[Array, "... n k"]:
    r"""Let states fall towards stored patterns: each step is attention with the patterns as keys and as values.

    .. math:: X^{(t+1)} = \operatorname{softmax}(\beta X^{(t)} K^\top)\, K,\qquad X^{(0)} = X

    Parameters, errors and source as in `attnmath.numpy.hopfield.hopfield`.

    Examples
    --------
    >>> K = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    >>> hopfield(torch.tensor([[1.0, 0.5]]), K, scale=2.0, steps=3).round(decimals=3)
    tensor([[3., 0.]])
    """
    _require.count("steps", steps)
    for _ in range(steps):
        X = attention(X, K, K, mask, scale=scale)  # eq:hopfield
    return X


@cast_by_autocast
@half_in_float32
def hopfield_attention(
    Q: Float[Array, "... n k"],
    K: Float[Array, "... m k"],
    V: Float[Array, "... m v"],
    mask: Bool[Array, "..."] | bool = True,
    *,
    scale: float | None = None,
    steps: int = 2,
) -> Float[Array, "... n v"]:
    r"""Attention whose queries first fall towards the keys: a core that goes into every model.

    .. math:: O = \operatorname{softmax}(\beta\, Q^{(T-1)} K^\top)\, V,\qquad
              Q^{(t+1)} = \operatorname{softmax}(\beta\, Q^{(t)} K^\top)\, K

    Parameters, errors and source as in `attnmath.numpy.hopfield.hopfield_attention`.

    Examples
    --------
    >>> Q, K, V = torch.tensor([[1.0, 0.0]]), 2 * torch.eye(2), torch.tensor([[0.0], [1.0]])
    >>> [round(hopfield_attention(Q, K, V, scale=1.0, steps=t).item(), 3) for t in (1, 2, 3)]
    [0.119, 0.045, 0.026]
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.count("steps", steps)
    Q = Q.expand(*sizes["..."], *Q.shape[-2:])  # a mask may have the leading axes that only V has
    fallen = Q if steps == 1 else hopfield(Q, K, mask, scale=scale, steps=steps - 1)
    return attention(fallen, K, V, mask, scale=scale)  # eq:hopfield-attention


@cast_by_autocast
@half_in_float32
def hopfield_energy(
    X: Float[Array, "... n k"], K: Float[Array, "... m k"], *, scale: float | None = None
) -> Float[Array, "... n"]:
    r"""What each step of `hopfield` lowers.

    .. math:: E(x) = \frac{\lVert x\rVert^2}{2} - \frac1\beta \log\sum_j e^{\beta\, x\cdot k_j}

    Parameters, errors and source as in `attnmath.numpy.hopfield.hopfield_energy`.

    Examples
    --------
    >>> K = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    >>> hopfield_energy(torch.tensor([[0.0, 0.0], [3.0, 0.0]]), K, scale=1.0).round(decimals=3)
    tensor([-0.6930, -4.5000])
    """
    sizes = _require.shapes(X=(X, "... n k"), K=(K, "... m k"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "pattern")
    beta = factor(scale, sizes["k"])
    L = logsumexp(scaled_dot_score(X, K, scale=scale))
    return torch.square(X).sum(-1) / 2 - L / beta  # eq:hopfield-energy
