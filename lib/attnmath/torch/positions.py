"""Where a token stands: sinusoids to add, rotations of queries and keys, learned offsets, a linear penalty."""

import torch
from jaxtyping import Float, Integer

from attnmath import _require
from attnmath.torch.types import Array, T


def sinusoidal_positions(n: int, d: int, base: float = 10000.0, start: int = 0, *, dtype=None) -> Float[Array, "n d"]:
    r"""Sines and cosines of the position, at d / 2 frequencies.

    .. math:: E_{p,2i} = \sin(\omega_i p),\qquad E_{p,2i+1} = \cos(\omega_i p),\qquad \omega_i = B^{-2i/d}

    Parameters, errors and source as in `attnmath.numpy.positions.sinusoidal_positions`. The table is made on the CPU
    (or the default device).

    Examples
    --------
    >>> sinusoidal_positions(2, 4).round(decimals=4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 1.0000]])
    """
    _require.positive("n", n)
    angles = _angles(n, d, base, start, "d", None)
    pairs = torch.stack([angles.sin(), angles.cos()], -1)  # eq:sinusoid
    return pairs.reshape(n, d).to(torch.get_default_dtype() if dtype is None else dtype)


def rotary(
    X: Float[Array, "... n k"], *, base: float = 10000.0, start: int = 0, pairing: str = "interleaved"
) -> Float[Array, "... n k"]:
    r"""Turn each pair of components of row p by the angle :math:`\omega_i p`.

    .. math:: \begin{pmatrix}Y_{p,a}\\ Y_{p,b}\end{pmatrix} =
              \begin{pmatrix}\cos\omega_ip&-\sin\omega_ip\\ \sin\omega_ip&\cos\omega_ip\end{pmatrix}
              \begin{pmatrix}X_{p,a}\\ X_{p,b}\end{pmatrix},\qquad \omega_i = B^{-2i/k}

    Parameters, errors and source as in `attnmath.numpy.positions.rotary`.

    Examples
    --------
    >>> rotary(torch.tensor([[1.0, 0.0], [1.0, 0.0]])).round(decimals=4)
    tensor([[1.0000, 0.0000],
            [0.5403, 0.8415]])
    """
    sizes = _require.shapes(X=(X, "... n k"))
    angles = _angles(sizes["n"], sizes["k"], base, start, "k", X.device)
    _require.choice("pairing", pairing, ("interleaved", "half"))
    cos, sin = angles.cos().to(X.dtype), angles.sin().to(X.dtype)
    half = sizes["k"] // 2
    a, b = (X[..., :half], X[..., half:]) if pairing == "half" else (X[..., ::2], X[..., 1::2])
    Y = (a * cos - b * sin, a * sin + b * cos)  # eq:rotary
    return torch.cat(Y, -1) if pairing == "half" else torch.stack(Y, -1).flatten(-2)


def half_to_interleaved(k: int) -> Integer[Array, " k"]:
    r"""The order in which the components of the "half" pairing stand side by side.

    .. math:: \pi(2i) = i,\qquad \pi(2i+1) = i + k/2

    Parameters, errors and source as in `attnmath.numpy.positions.half_to_interleaved`.

    Examples
    --------
    >>> half_to_interleaved(6)
    tensor([0, 3, 1, 4, 2, 5])
    """
    _require.even("k", k)
    return torch.arange(k).reshape(2, k // 2).T.reshape(k)  # eq:rotary-pairing


def relative_score(
    Q: Float[Array, "... n k"], K: Float[Array, "... m k"], table: Float[Array, "r k"]
) -> Float[Array, "... n m"]:
    r"""Scaled dot-product scores whose keys carry a vector learned for their distance from the query.

    .. math:: S_{ij} = \frac{q_i\cdot(k_j + a_{\rho(i,j)})}{\sqrt{d_k}},\qquad
              \rho(i,j) = \operatorname{clip}(j - i - (m - n),\, -w,\, w)

    Parameters, errors and source as in `attnmath.numpy.positions.relative_score`.

    Examples
    --------
    >>> relative_score(torch.ones(2, 1), torch.zeros(2, 1), torch.tensor([[1.0], [2.0], [3.0]]))
    tensor([[2., 3.],
            [1., 2.]])
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), table=(table, "r k"))
    _require.nonempty("Q", Q.shape, -1, sizes["k"], "component")
    _require.odd("table", table.shape, 0)
    n, m, w = sizes["n"], sizes["m"], len(table) // 2
    row = torch.arange(n, device=Q.device)[:, None]
    at = (torch.arange(m, device=Q.device) - row - (m - n)).clip(-w, w) + w
    R = Q @ T(table)  # every query against every distance: (..., n, 2 w + 1), not (n, m, k)
    return sizes["k"] ** -0.5 * (Q @ T(K) + R[..., row, at])  # eq:relative-score


def alibi_slopes(h: int, *, dtype=None) -> Float[Array, " h"]:
    r"""The slopes of h heads, a geometric progression from :math:`2^{-8/h}` to :math:`2^{-8}`.

    .. math:: s_i = 2^{-8i/h},\qquad i = 1, \dots, h

    Parameters, errors and source as in `attnmath.numpy.positions.alibi_slopes`.

    Examples
    --------
    >>> alibi_slopes(4)
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    _require.positive("h", h)
    p = 1 << (h.bit_length() - 1)
    orders = [*range(1, p + 1), *(i - 0.5 for i in range(1, h - p + 1))]
    return torch.tensor([2.0 ** (-8 * i / p) for i in orders], dtype=dtype)  # eq:alibi


def alibi_bias(n: int, m: int, slopes: Float[Array, " h"]) -> Float[Array, "h n m"]:
    r"""What ALiBi adds to the scaled scores: minus a slope times the distance, for each head its own.

    .. math:: B_{hij} = -s_h\,|i + m - n - j|

    Parameters, errors and source as in `attnmath.numpy.positions.alibi_bias`. The result is on the slopes' device.

    Examples
    --------
    >>> alibi_bias(2, 3, torch.tensor([0.5]))[0]
    tensor([[-0.5000, -0.0000, -0.5000],
            [-1.0000, -0.5000, -0.0000]])
    """
    _require.positive("n", n)
    _require.positive("m", m)
    _require.shapes(slopes=(slopes, "h"))
    i, j = (torch.arange(size, device=slopes.device) for size in (n, m))
    distance = (i[:, None] + (m - n) - j).abs().to(slopes.dtype)
    return -slopes[:, None, None] * distance  # eq:alibi


def _angles(n, width, base, start, name, device):
    """The angle of each position in each pair, (n, width / 2), in float64 where the device has it."""
    _require.even(name, width)
    _require.positive("base", base)
    device = torch.get_default_device() if device is None else device
    exact = torch.float32 if device.type == "mps" else torch.float64
    frequencies = base ** (-torch.arange(0, width, 2, dtype=exact, device=device) / width)
    return torch.arange(start, start + n, dtype=exact, device=device)[:, None] * frequencies
