"""What one layer of attention cannot do: messages between two parties counted in bits, and how little one token moves.

The weights of the layers that do it after all are here as well. The trained models are in `attnmath.limits_study`.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from attnmath import _require

Number = float | int

# the protocol --------------------------------------------------------------------------------------------------------


def table_bits(keys: int, values: int | None = None) -> float:
    r"""The bits that a table takes, whatever it says.

    .. math:: \log_2 m^n = n\log_2m

    Parameters
    ----------
    keys : n >= 1, the rows of the table.
    values : m >= 1, what each row may say; None is n.

    Returns
    -------
    bits : the logarithm of the number of tables.

    Raises
    ------
    ValueError
        If n or m is no count.

    References
    ----------
    Chapter 9, eq:table-bits.

    Examples
    --------
    >>> table_bits(1024)
    10240.0
    """
    values = keys if values is None else values
    _require.count("keys", keys)
    _require.count("values", values)
    return keys * math.log2(values)  # eq:table-bits


def summary_bits(heads: int, width: int, precision: int) -> int:
    r"""The bits in which one layer keeps what its last row has seen of a block of tokens.

    .. math:: h\,(d_v + 1)\,p

    Parameters
    ----------
    heads, width, precision : h heads whose values have :math:`d_v` components, and p bits for a number; all >= 1.

    Returns
    -------
    bits : for each head an average of values, and the logarithm of the sum that its weights were divided by.

    Raises
    ------
    ValueError
        If one of the three is no count.

    References
    ----------
    Chapter 9, eq:summary-bits.

    Examples
    --------
    >>> summary_bits(12, 32, 32)  # a layer of MiniLM in float32
    12672
    """
    for name, value in (("heads", heads), ("width", width), ("precision", precision)):
        _require.count(name, value)
    return heads * (width + 1) * precision  # eq:summary-bits


def largest_table(bits: Number) -> int:
    """The largest n for which a table of n rows, each with one of n values, fits into so many bits.

    Parameters
    ----------
    bits : >= 0.

    Returns
    -------
    n : `table_bits` of n is at most ``bits``, and that of n + 1 is more.

    Raises
    ------
    ValueError
        If ``bits`` is negative.

    References
    ----------
    Chapter 9, thm-one-layer-bits.

    Examples
    --------
    >>> largest_table(summary_bits(12, 32, 32))
    1233
    """
    _require.nonnegative("bits", bits)
    low, high = 1, max(2, int(bits) + 1)  # a table of n >= 2 rows takes at least n bits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if table_bits(middle) <= bits else (low, middle)
    return low


def summarise(S, V):
    r"""What a softmax has to know of a block of keys, to be merged with other blocks later.

    .. math:: L = \log\sum_je^{s_j},\qquad o = \sum_je^{s_j-L}\,v_j

    Parameters
    ----------
    S : (..., n) finite scores, n >= 1.
    V : (..., n, v) values; the leading axes broadcast.

    Returns
    -------
    L : (...,)
    o : (..., v), what attention to this block alone would return.

    Raises
    ------
    ValueError
        If there is no key, or V has not a row for each score.

    References
    ----------
    Chapter 9, eq:summary.

    Examples
    --------
    >>> L, o = summarise(np.array([0.0, 1.0, 2.0]), np.array([[2.0], [0.0], [1.0]]))
    >>> float(L.round(4)), o.round(4)
    (2.4076, array([0.8453]))
    """
    S, V = np.asarray(S, float), np.asarray(V, float)
    if S.ndim < 1 or S.shape[-1] < 1 or V.ndim < 2 or V.shape[-2] != S.shape[-1]:
        raise ValueError(f"S has shape {S.shape} and V {V.shape}; expected (…, n) and (…, n, v) with n >= 1")
    top = S.max(-1, keepdims=True)
    E = np.exp(S - top)
    z = E.sum(-1, keepdims=True)
    L, o = (top + np.log(z))[..., 0], (E / z)[..., None, :] @ V  # eq:summary
    return L, o[..., 0, :]


def merge(first, second):
    r"""Two summaries of different keys become the summary of all of them.

    .. math:: w = \frac1{1 + e^{L_B - L_A}},\qquad L = \log(e^{L_A} + e^{L_B}),\qquad o = w\,o_A + (1 - w)\,o_B

    Parameters
    ----------
    first, second : pairs ((...,), (..., v)), as `summarise` gives them.

    Returns
    -------
    A pair of the same kind; its second part is what attention to both blocks returns.

    References
    ----------
    Chapter 9, eq:summary-merge, and lem-ring-merge of Chapter 7.

    Examples
    --------
    >>> one = summarise(np.array([0.0]), np.array([[2.0]]))
    >>> merge(one, summarise(np.array([0.0]), np.array([[4.0]])))[1]
    array([3.])
    """
    (La, oa), (Lb, ob) = first, second
    L = np.logaddexp(La, Lb)
    w = np.exp(La - L)[..., None]
    return L, w * oa + (1 - w) * ob  # eq:summary-merge


@dataclass(frozen=True)
class Message:
    """What Alice sends: whole numbers of p bits, and the ranges that both parties have agreed on before.

    Attributes
    ----------
    codes : (h, v + 1) integers from 0 to 2^p - 1; the first of each head is for L.
    precision : p.
    ranges : the largest size of L and of a component of o.

    Examples
    --------
    >>> message = Message(np.zeros((2, 5), int), 8, (10.0, 1.0))
    >>> message.bits
    80
    """

    codes: np.ndarray
    precision: int
    ranges: tuple

    @property
    def bits(self) -> int:
        """How long the message is."""
        return self.codes.size * self.precision

    def open(self):
        """The summary that Bob reads, ((h,), (h, v))."""
        numbers = self.codes / (2**self.precision - 1) * 2 - 1
        return numbers[:, 0] * self.ranges[0], numbers[:, 1:] * self.ranges[1]


def send(summary, precision: int, ranges: tuple) -> Message:
    r"""Round a summary of each head to the nearest of :math:`2^p` numbers between :math:`-R` and R.

    Parameters
    ----------
    summary : ((h,), (h, v)), as `summarise` gives it.
    precision : p, from 1 to 52.
    ranges : :math:`(R_L, R_v)`, the largest sizes of L and of a component of a value.

    Returns
    -------
    message : of h (v + 1) p bits; each number is wrong by at most :math:`R/(2^p-1)`.

    Raises
    ------
    ValueError
        If p is not in its range, or a number lies outside of the agreed ranges.

    References
    ----------
    Chapter 9, lem-rounded-summary.

    Examples
    --------
    >>> message = send((np.array([2.4]), np.array([[0.85]])), 3, (7.0, 2.0))
    >>> message.codes, message.bits
    (array([[5, 5]]), 6)
    """
    _require.count("precision", precision)
    if precision > 52:
        raise ValueError(f"precision is {precision}; float64 rounds to 52 bits at most")
    L, o = (np.asarray(part, float) for part in summary)
    numbers = np.concatenate([L[:, None] / ranges[0], o / ranges[1]], 1)
    if not (abs(numbers) <= 1).all():
        raise ValueError(f"a number of the summary is larger than the agreed ranges {ranges}; agree on wider ones")
    return Message(np.rint((numbers + 1) / 2 * (2**precision - 1)).astype(np.int64), precision, ranges)


def rounding_bound(precision: int, ranges: tuple) -> float:
    r"""How much a component of the merged output changes at most because a message has p bits for a number.

    .. math:: \frac{R_v\,(1 + \frac12R_L)}{2^p - 1}

    Parameters
    ----------
    precision, ranges : as of `send`.

    References
    ----------
    Chapter 9, eq:rounded-summary.

    Examples
    --------
    >>> rounding_bound(8, (2.0, 1.0)) == 2 / 255
    True
    """
    _require.count("precision", precision)
    return ranges[1] * (1 + ranges[0] / 2) / (2**precision - 1)  # eq:rounded-summary


def margin_bits(lead: Number, slope: Number, ranges: tuple) -> int:
    r"""The bits for a number that keep every answer of a layer in exact arithmetic whose right logit leads by a margin.

    .. math:: p = \Bigl\lfloor\log_2\Bigl(1 + \frac{G\,R_v\,(1 + \frac12R_L)}{\gamma}\Bigr)\Bigr\rfloor + 1

    Parameters
    ----------
    lead : :math:`\gamma > 0`, by which the right logit exceeds every other.
    slope : G > 0, how much a difference of two logits changes at most if no component of the heads' outputs changes by
        more than 1.
    ranges : as of `send`.

    Raises
    ------
    ValueError
        If the lead or the slope is not positive.

    References
    ----------
    Chapter 9, eq:margin-bits.

    Examples
    --------
    >>> margin_bits(1.0, 2.0, (10.0, 1.0))
    4
    """
    _require.positive("lead", lead)
    _require.positive("slope", slope)
    return math.floor(math.log2(1 + slope * ranges[1] * (1 + ranges[0] / 2) / lead)) + 1  # eq:margin-bits


# two layers by hand --------------------------------------------------------------------------------------------------


def clock(n: int):
    r"""n points on a circle, :math:`u_i = (\cos\frac{2\pi i}n, \sin\frac{2\pi i}n)`, as rows.

    Examples
    --------
    >>> clock(4).round(3) + 0.0
    array([[ 1.,  0.],
           [ 0.,  1.],
           [-1.,  0.],
           [ 0., -1.]])
    """
    angles = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def sharpness(n: int) -> float:
    r"""Scores that are large enough for `composing_layers`.

    .. math:: \beta = \frac2\delta\log\frac{16n}\delta,\qquad \delta = \min(1, 1 - \cos\tfrac{2\pi}n)

    Parameters
    ----------
    n : names, >= 2.

    References
    ----------
    Chapter 9, eq:composing-sharpness.

    Examples
    --------
    >>> round(sharpness(4), 3)
    8.318
    """
    _names(n)
    delta = min(1.0, 1 - math.cos(2 * math.pi / n))
    return 2 / delta * math.log(16 * n / delta)  # eq:composing-sharpness


def _names(n):
    _require.count("n", n)
    if n < 2:
        raise ValueError(f"n is {n}; tables of fewer than two names have nothing to look up")


def composing_layers(n: int, scale: Number | None = None) -> dict:
    r"""The weights of two layers, one head of width 2 each, that look up in one table what another table says.

    The text is :math:`f(0)\dots f(n-1)\;g(0)\dots g(n-1)\;x`, and the last row answers :math:`g(f(x))`.

    .. math:: \text{stream} = [\,u_\text{token}\mid u_i\text{ at }f(i)\mid u_i\text{ at }g(i)\mid
              \text{first answer}\mid\text{second answer}\,]

    Parameters
    ----------
    n : names, >= 2.
    scale : :math:`\beta`, the score of what is looked for; None is `sharpness`.

    Returns
    -------
    params : of `attnmath.numpy.attention_only` with one head, of width 10.

    Raises
    ------
    ValueError
        If n is no integer >= 2, or the scale not positive.

    References
    ----------
    Chapter 9, eq:composing-layers.

    Examples
    --------
    >>> from attnmath.numpy import attention_only
    >>> f, g, x = [1, 2, 0], [2, 0, 1], 0
    >>> Z, _ = attention_only(np.array([*f, *g, x]), composing_layers(3), 1)
    >>> int(Z[-1].argmax())  # g(f(0)) = g(1)
    0
    """
    _names(n)
    scale = sharpness(n) if scale is None else scale
    _require.positive("scale", scale)
    u, none = clock(n), np.zeros
    word, in_f, in_g, first, second = np.split(np.eye(10), 5)
    place = np.concatenate([u @ in_f, u @ in_g, none((1, 10))])
    beta = scale * math.sqrt(2)  # the library divides by the root of the width
    looks = {
        "0": {"query": beta * word.T, "key": in_f.T, "value": word.T, "output": first},
        "1": {"query": beta * first.T, "key": in_g.T, "value": word.T, "output": second},
    }  # eq:composing-layers
    layers = {i: {"attention": {name: {"weight": W} for name, W in own.items()}} for i, own in looks.items()}
    return {"embeddings": {"word": u @ word, "position": place}, "layers": layers, "head": {"weight": second.T @ u.T}}


# one token of many ---------------------------------------------------------------------------------------------------


def sensitivity_bound(
    n: int,
    *,
    radius: Number,
    scores: Number,
    values: Number,
    layers: int = 1,
    slope: Number = 1.0,
) -> float:
    r"""How far a row moves at most when one other token of n is exchanged.

    .. math:: \delta_{l+1} = c\,\bigl((1 + b + 2abR_l^2)\,\delta_l + \tfrac1n\,4bR_l\,e^{2aR_l^2}\bigr),\qquad
              R_{l+1} = c\,(1 + b)\,R_l,\qquad \delta_0 = 0

    Parameters
    ----------
    n : rows, each of which sees all; >= 1.
    radius : :math:`R_0`, the length of the longest row that goes in, > 0.
    scores : a >= 0, the largest norm of a head's :math:`W_{QK}`.
    values : b >= 0, the sum of the norms of all heads' :math:`W_{OV}`.
    layers : L >= 1.
    slope : c > 0, how much what follows attention and its residual connection stretches a distance at most.

    Returns
    -------
    delta : of the rows that were not exchanged, after the last layer.

    Raises
    ------
    ValueError
        If a number is outside of its range.

    References
    ----------
    Hahn (2020), lemma 5, without constants. Chapter 9, eq:sensitivity-bound.

    Examples
    --------
    >>> round(sensitivity_bound(1000, radius=1.0, scores=1.0, values=1.0), 4)
    0.0296
    """
    _require.count("n", n)
    _require.count("layers", layers)
    for name, value in (("radius", radius), ("slope", slope)):
        _require.positive(name, value)
    for name, value in (("scores", scores), ("values", values)):
        _require.nonnegative(name, value)
    a, b, R, delta = scores, values, radius, 0.0
    for _ in range(layers):
        fresh = 4 * b * R * math.exp(2 * a * R * R) / n
        delta = slope * ((1 + b + 2 * a * b * R * R) * delta + fresh)  # eq:sensitivity-bound
        R = slope * (1 + b) * R
    return delta


def coin_floor(change: Number) -> float:
    r"""The least mean loss of parity over all texts, if one bit changes the logit by no more than D.

    .. math:: \log(1 + e^{-D/2}) \ge \log2 - \tfrac14D

    Parameters
    ----------
    change : D >= 0, for the difference of the logits of odd and even.

    Returns
    -------
    loss : in nats.

    Raises
    ------
    ValueError
        If D is negative.

    References
    ----------
    Chapter 9, eq:coin-floor.

    Examples
    --------
    >>> coin_floor(0.0) == math.log(2)
    True
    """
    _require.nonnegative("change", change)
    return math.log1p(math.exp(-change / 2))  # eq:coin-floor


# parity by hand ------------------------------------------------------------------------------------------------------


def _bits(bits):
    bits = np.asarray(bits)
    if bits.ndim < 1 or bits.shape[-1] < 1 or not np.isin(bits, (0, 1)).all():
        raise ValueError(f"bits has shape {bits.shape}; expected (…, n) zeros and ones, n >= 1")
    return np.concatenate([bits, np.zeros_like(bits[..., :1])], -1)  # and the end token, which is no one


def faint_parity(bits):
    r"""Parity by two layers of uniform attention with bounded weights: the sign is right, the size is not.

    .. math:: c = \operatorname{mean}_i b_i = \tfrac mN,\qquad
              t_i = \max\bigl(0, \tfrac1N - |c - \tfrac iN|\bigr),\qquad
              z = \operatorname{mean}_i(-1)^it_i = \frac{(-1)^m}{N^2}

    Parameters
    ----------
    bits : (..., n) zeros and ones, of which m are ones. An end token stands behind them, so N = n + 1 rows.

    Returns
    -------
    z : (...,), positive for an even number of ones.

    Raises
    ------
    ValueError
        If there is no bit, or something that is none.

    References
    ----------
    After Chiang and Cholak (2022), section 3. Chapter 9, eq:faint-parity.

    Examples
    --------
    >>> faint_parity(np.array([[1, 0, 1], [1, 0, 0]]))
    array([ 0.0625, -0.0625])
    """
    rows = _bits(bits)
    N, place = rows.shape[-1], np.arange(rows.shape[-1])
    c = rows.mean(-1, keepdims=True)  # the first layer
    ramp = partial(np.maximum, 0.0)
    t = ramp(c - place / N - 1 / N) - 2 * ramp(c - place / N) + ramp(c - place / N + 1 / N)  # a network of three units
    return ((-1.0) ** place * t).mean(-1)  # eq:faint-parity


def sharp_parity(bits, sharpness: Number = 3.0):
    r"""Parity by two layers whose scores grow with the square of the length: the size is right as well.

    .. math:: z = \sum_ip_i\,(-1)^i,\qquad p = \operatorname{softmax}_i\bigl(-\beta\,(m - i)^2\bigr)

    Parameters
    ----------
    bits : as of `faint_parity`; the first layer counts m, the second looks at the place of this number.
    sharpness : :math:`\beta > 0`; from 1.7 on the sign is right for every text.

    Returns
    -------
    z : (...,), positive for an even number of ones.

    Raises
    ------
    ValueError
        As `faint_parity`; and if the sharpness is not positive.

    References
    ----------
    Chapter 9, eq:sharp-parity.

    Examples
    --------
    >>> sharp_parity(np.array([[1, 0, 1], [1, 0, 0]])).round(3)
    array([ 0.819, -0.819])
    """
    rows = _bits(bits)
    _require.positive("sharpness", sharpness)
    N, place = rows.shape[-1], np.arange(rows.shape[-1])
    m = N * rows.mean(-1, keepdims=True)  # what the first layer found, times the length
    signs = np.broadcast_to((-1.0) ** place, rows.shape)[..., None]
    return summarise(-sharpness * (m - place) ** 2, signs)[1][..., 0]  # eq:sharp-parity
