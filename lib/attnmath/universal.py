"""Transformers that are written down, not trained: a table of any function's values, read by attention.

Each stack has residual connections, networks with ReLU and no norm. A token's vector is a row of channels: the first is
the input with its position, the last but one is the token's context number, the last is the answer. If tokens have d
numbers, there are d inputs and d answers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attnmath import _require
from attnmath.numpy.activations import relu
from attnmath.numpy.attention import attention
from attnmath.numpy.feed_forward import feed_forward
from attnmath.numpy.multi_head import multi_head_attention

INPUT, CONTEXT, ANSWER = 0, -2, -1
SPACING = 2.0  # what a position adds to the number of its token: the numbers of two tokens can't be confused


@dataclass(frozen=True)
class Stack:
    """Layers for tokens of one number each, or of d numbers.

    Attributes
    ----------
    tokens : n.
    layers : each ``("attention", params)`` or ``("feed_forward", params)``, joined by residual connections.
    ready : after so many layers the context numbers are complete; the rest is the table of values.
    width : channels of a token.
    heads : of each attention.
    mask : (n, n), True = may attend; or True.
    numbers : d, of each token.
    """

    tokens: int
    layers: tuple
    ready: int
    width: int
    heads: int
    mask: object = True
    numbers: int = 1

    @property
    def context(self) -> int:
        """The channel of the context number."""
        return self.width - self.numbers - 1

    @property
    def answers(self) -> slice:
        """The channels of the answers, the last d."""
        return slice(self.width - self.numbers, self.width)


def run(stack: Stack, X, *, attend: Callable = attention, store: Callable | None = None, layers: int | None = None):
    r"""Pass numbers through a stack.

    .. math:: Z^0_i = (x_i + 2i,\ 0,\dots,0),\qquad Z^{l+1} = Z^l + F_l(Z^l)

    Parameters
    ----------
    stack : from `pair` or `star`.
    X : (..., n) numbers, one for each token, i from 0, or (..., n, d); the stacks are made for [0, 1].
    attend : the core, `attention` or `hard_attention`.
    store : what becomes of the stream whenever it is written, such as ``partial(rounded, bits=8)``.
    layers : stop after so many; None runs all.

    Returns
    -------
    Z : (..., n, width); the answers are ``Z[..., ANSWER]``, and those of d numbers ``Z[..., stack.answers]``.

    Raises
    ------
    ValueError
        If X does not have one number, or d, for each token.

    References
    ----------
    Chapter 9, eq:universal-stack.

    Examples
    --------
    >>> stack = pair(lambda x, y: (np.maximum(x, y), x * y), 4, scale=3.0)
    >>> run(stack, np.array([0.30, 0.80]))[:, ANSWER].round(4)
    array([0.875 , 0.3281])
    """
    X, n, d = np.asarray(X, float), stack.tokens, stack.numbers
    if X.shape[-1:] != (n,) if d == 1 else X.shape[-2:] != (n, d):
        wanted = f"{n} tokens, (..., {n})" if d == 1 else f"{n} tokens of {d} numbers, (..., {n}, {d})"
        raise ValueError(f"X has shape {X.shape}; this stack was built for {wanted}")
    store = store or (lambda Z: Z)
    X = X[..., None] if d == 1 else X
    Z = np.zeros((*X.shape[:-1], stack.width))
    Z[..., :d] = X + SPACING * np.arange(n)[:, None]
    Z = store(Z)
    for kind, params in stack.layers[:layers]:
        if kind == "attention":
            F, _ = multi_head_attention(Z, Z, Z, params, stack.heads, stack.mask, attend=attend)
        else:
            F, _ = feed_forward(Z, params, relu)
        Z = store(Z + F)  # eq:universal-stack
    return Z


def step(source: int, edge: float, ramp: float, heights: dict, width: int):
    r"""A feed-forward layer that adds heights to channels once a channel has passed an edge.

    .. math:: z_c \mathrel{+}= h_c\,\bigl(\max(0, t + 1) - \max(0, t)\bigr),\qquad t = (z_s - \text{edge})/\text{ramp}

    Parameters
    ----------
    source : s, the channel that is read.
    edge, ramp : nothing is added up to edge - ramp, everything from edge on, and a part in between.
    heights : ``{c: h_c}``.
    width : channels of a token.

    References
    ----------
    Chapter 9, eq:universal-step.

    Examples
    --------
    >>> _, params = step(0, 1.0, 0.5, {1: 10.0}, 2)
    >>> feed_forward(np.array([[0.5, 0.0], [0.75, 0.0], [3.0, 0.0]]), params, relu)[0][:, 1]
    array([ 0.,  5., 10.])
    """
    up, down = np.zeros((width, 2)), np.zeros((2, width))
    up[source] = 1 / ramp
    for channel, height in heights.items():
        down[:, channel] = height, -height  # eq:universal-step
    bias = np.array([1.0, 0.0]) - edge / ramp
    return "feed_forward", {"up": {"weight": up, "bias": bias}, "down": {"weight": down, "bias": np.zeros(width)}}


def merge(layers):
    """Put feed-forward layers side by side into one: right if none of them reads what another one writes.

    Parameters
    ----------
    layers : ``("feed_forward", params)``, of hidden widths f_1, f_2, …

    Returns
    -------
    One layer of the hidden width f_1 + f_2 + …

    Examples
    --------
    >>> layers = [step(0, k, 0.5, {1: 1.0}, 2) for k in (1.0, 2.0, 3.0)]
    >>> merge(layers)[1]["up"]["weight"].shape
    (2, 6)
    """
    if not layers or any(kind != "feed_forward" for kind, _ in layers):
        raise ValueError("layers are no feed-forward layers; merge the layers between two attentions")
    params = [p for _, p in layers]
    up = {"weight": np.concatenate([p["up"]["weight"] for p in params], 1)}
    up["bias"] = np.concatenate([p["up"]["bias"] for p in params])
    down = {"weight": np.concatenate([p["down"]["weight"] for p in params])}
    down["bias"] = np.sum([p["down"]["bias"] for p in params], 0)
    return "feed_forward", {"up": up, "down": down}


def shallow(stack: Stack) -> Stack:
    """The same function in few and wide layers: neighbours that read the same channel become one.

    Parameters
    ----------
    stack : from `pair` or `star`, whose layers between two attentions don't read what their neighbours write.

    Examples
    --------
    >>> stack = pair(lambda x, y: (x, y), 4)
    >>> len(stack.layers), len(shallow(stack).layers)
    (39, 3)
    """
    layers, waiting, ready = [], [], 0
    for number, layer in enumerate([*stack.layers, None]):
        alone = layer is None or layer[0] == "attention" or not _same_source(waiting, layer)
        if alone and waiting:
            layers.append(merge(waiting))
            waiting = []
        if number == stack.ready:
            ready = len(layers)
        if layer is not None:
            (layers if layer[0] == "attention" else waiting).append(layer)
    return replace(stack, layers=tuple(layers), ready=ready)


def _same_source(waiting, layer):
    return not waiting or all((waiting[0][1]["up"]["weight"].any(1) == layer[1]["up"]["weight"].any(1)).tolist())


def table(values, width: int, places=None):
    r"""The layers that turn a context number into the answer, one layer for each number from the second on.

    .. math:: v_0 + \sum_{j\ge1}(v_j - v_{j-1})\,r_j,\qquad r_j = 0 \text{ up to } u_j-\tfrac34 \text{ and } 1 \text{
              from } u_j-\tfrac14 \text{ on}

    Parameters
    ----------
    values : (m,) v, or (m, d); a number that is up to 1/4 away from u_j still gives v_j exactly.
    width : channels of a token.
    places : (m,) u, the context numbers in rising order, at least 1 apart; None is 0, 1, …, m - 1.

    References
    ----------
    Chapter 9, eq:universal-table.

    Examples
    --------
    >>> layers = table(np.array([5.0, 7.0, 4.0]), 2)
    >>> feed_forward(np.array([[0.2, 0.0], [1.0, 0.0], [1.8, 0.0]]), merge(layers)[1], relu)[0][:, 1]
    array([5., 7., 4.])
    """
    values = np.asarray(values, float)
    if len(values) < 2:
        raise ValueError(f"values has {len(values)} entries; a table needs at least 2")
    values = values.reshape(len(values), -1)
    places = np.arange(len(values)) if places is None else np.asarray(places, float)
    first = width - values.shape[1]
    layers = []
    for u, jump in zip(places[1:], np.diff(values, axis=0), strict=True):
        layers.append(step(first - 1, u - 0.25, 0.5, dict(enumerate(jump, first)), width))  # eq:universal-table
    layers[0][1]["down"]["bias"][first:] = values[0]
    return layers


def centres(n: int, cells: int):
    r"""The middle of each cell, in the order of the context numbers.

    .. math:: s = \sum_i c_i M^i \;\mapsto\; \bigl((c_0+\tfrac12)/M,\ \dots,\ (c_{n-1}+\tfrac12)/M\bigr)

    Returns
    -------
    (cells**n, n)

    Examples
    --------
    >>> centres(2, 2)
    array([[0.25, 0.25],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.75, 0.75]])
    """
    numbers = np.arange(cells**n)[:, None] // cells ** np.arange(n)
    return (numbers % cells + 0.5) / cells


def _values(f, n, cells, numbers=1):
    """The answers in the order of the context numbers: all of token 0, then all of token 1 and so on."""
    points = centres(n * numbers, cells)
    tokens = points.T if numbers == 1 else points.reshape(-1, n, numbers).swapaxes(0, 1)
    found = [np.broadcast_to(np.asarray(v, float), tokens[0].shape) for v in f(*tokens)]
    if len(found) != n:
        raise ValueError(f"f returns {len(found)} answers; expected {n}, one for each token")
    return np.concatenate(found)


def _edges(n, cells, band):
    """Where the number of a cell grows: (token, cell within the token, edge, ramp), in rising order."""
    for token in range(n):
        for cell in range(cells):
            if cell:
                yield token, cell, SPACING * token + cell / cells, band / cells
            elif token:
                yield token, 0, SPACING * token - 0.25, 0.5  # anywhere between two tokens


def pair(f: Callable, cells: int, *, scale: float | None = None, band: float = 1e-6) -> Stack:
    r"""A Transformer for two tokens that answers with the value of f at the middle of the input's cell.

    .. math:: u_i = M\,(\text{largest} - M) + \text{smallest} + iM^2

    One head fetches the largest cell number of both tokens, the other one the smallest; the second token's numbers
    start at M, so they are the second and the first token's.

    Parameters
    ----------
    f : ``f(x, y) -> (answers of the first token, answers of the second)``, on arrays.
    cells : M >= 2, cells of [0, 1].
    scale : of the scores; None is max(1, log(4 (M - 1))), from which on softmax answers as hard attention does.
    band : the share of [0, 1], in (0, 1), on which the number of the cell is still rising.

    Returns
    -------
    stack : width 4, two heads of size 1, hidden layers of 2, and 2 M^2 + 2 M - 1 layers, one of them attention.

    Raises
    ------
    ValueError
        If there are fewer than two cells, the band is not in (0, 1), the scale is not positive or f does not return
        two answers.

    References
    ----------
    The plan is that of Yun et al. (2020). Chapter 9, eq:universal-context.

    Examples
    --------
    >>> stack = pair(lambda x, y: (np.maximum(x, y), x * y), 4)
    >>> run(stack, np.array([0.30, 0.80]), layers=stack.ready)[:, CONTEXT].round(1)
    array([13., 29.])
    """
    _check(cells, band)
    width, M = 4, cells
    cell, context = 1, width + CONTEXT
    values = _values(f, 2, M)
    layers = []
    for token, number, edge, ramp in _edges(2, M, band):
        heights = {cell: 1.0, context: M**2.0} if token and not number else {cell: 1.0}
        layers.append(step(INPUT, edge, ramp, heights, width))
    scale = max(1.0, np.log(4 * (M - 1))) if scale is None else scale
    _require.positive("scale", scale)
    read = np.zeros((width, 2))
    read[cell] = 1.0
    write = np.zeros((2, width))
    write[:, context] = M, 1.0  # eq:universal-context
    ask = {"weight": np.zeros((width, 2)), "bias": np.array([scale, -scale])}
    output = {"weight": write, "bias": -(M**2.0) * (np.arange(width) == context)}
    layers.append(("attention", {"query": ask, "key": {"weight": read}, "value": {"weight": read}, "output": output}))
    return Stack(2, (*layers, *table(values, width)), len(layers), width, 2)


def _check(cells, band):
    _require.count("cells", cells)
    if cells < 2:
        raise ValueError(f"cells is {cells}; expected at least 2")
    if not 0 < band < 1:
        raise ValueError(f"band is {band!r}; it must lie in (0, 1)")


def star_mask(n: int):
    """Who sees whom in a star with self-loops: token 0, the hub, sees all; the others see themselves and the hub.

    Examples
    --------
    >>> star_mask(4).astype(int)
    array([[1, 1, 1, 1],
           [1, 1, 0, 0],
           [1, 0, 1, 0],
           [1, 0, 0, 1]])
    """
    mask = np.eye(n, dtype=bool)
    mask[0] = mask[:, 0] = True
    return mask


def star(f: Callable, n: int, cells: int, *, mask=None, numbers: int = 1, band: float = 1e-6) -> Stack:
    r"""The same for n tokens of d numbers and any pattern that contains a star, with equal weights.

    .. math:: u_i = \frac n{g_i}\sum_{j,k} c_{jk}M^{jd+k} + i\,n\,M^{nd}

    Token j writes its digits, the sum of c_jk M^(jd+k). The hub averages what all n tokens wrote, and the next
    attention hands n times this sum on. Token i averages over the g_i tokens that it sees, so it gets n / g_i of it.

    Parameters
    ----------
    f : ``f(x_0, …, x_{n-1}) -> n answers``, on arrays, (m,) each; with d > 1 numbers (m, d) each.
    n : tokens, >= 2.
    cells : M >= 2, cells of [0, 1].
    mask : (n, n), True = may attend; token 0 must see all and be seen by all. None is `star_mask`.
    numbers : d >= 1, of each token, and of each answer.
    band : the share of [0, 1], in (0, 1), on which the number of the cell is still rising.

    Returns
    -------
    stack : width 2 d + 4, one head of size 1, hidden layers of at most 2, and n M^(nd) + d (n M - 1) + 2 layers, two of
        them attention.

    Raises
    ------
    ValueError
        If there are fewer than two tokens or cells, the band is not in (0, 1), the mask has no such token 0 or f does
        not return n answers.

    References
    ----------
    Zaheer et al. (2020) and Yun et al. (2020) prove it with other constructions. Chapter 9, eq:universal-star.

    Examples
    --------
    >>> stack = star(lambda x, y, z: (x, y, z), 3, 2)
    >>> run(stack, np.array([0.1, 0.9, 0.6]))[:, ANSWER].round(4)
    array([0.25, 0.75, 0.75])
    >>> stack = star(lambda x, y: (x + y, y), 2, 2, mask=np.ones((2, 2), bool), numbers=2)
    >>> run(stack, np.array([[0.1, 0.9], [0.1, 0.1]]))[:, stack.answers].round(4)
    array([[0.5 , 1.  ],
           [0.25, 0.25]])
    """
    _check(cells, band)
    _require.count("n", n)
    _require.count("numbers", numbers)
    if n < 2:
        raise ValueError(f"n is {n}; a star needs a hub and at least one more token")
    mask = star_mask(n) if mask is None else np.asarray(mask, bool)
    if mask.shape != (n, n) or not (mask[0].all() and mask[:, 0].all()):
        raise ValueError(f"mask contains no star of {n} tokens; token 0 must see every token and be seen by every one")
    d, M, K = numbers, float(cells), float(cells) ** (n * numbers)
    width, (code, leaf, heard, context) = 2 * d + 4, range(d, d + 4)
    layers = []
    for k in range(d):
        for token, number, edge, ramp in _edges(n, cells, band):
            heights = {code: M ** (token * d + k)}
            if not number:  # this digit starts again at 0 with a new token
                heights = {code: -(M - 1) * M ** ((token - 1) * d + k)}
                heights |= {} if k else {leaf: float(token == 1), context: n * K}
            layers.append(step(k, edge, ramp, heights, width))
    layers.append(_mean(code, heard, n, width))  # the hub hears s, the others something else
    # Clean what was heard: max(0, h - large) - max(0, h) on a leaf is -h, and on the hub it is 0.
    up, down = np.zeros((width, 2)), np.zeros((2, width))
    up[heard], up[leaf, 0] = 1.0, -n * K
    down[:, heard] = 1.0, -1.0
    params = {"up": {"weight": up, "bias": np.zeros(2)}, "down": {"weight": down, "bias": np.zeros(width)}}
    layers.append(("feed_forward", params))
    layers.append(_mean(heard, context, n, width))  # token i gets n s / g_i  # eq:universal-star
    places = [n / g * np.arange(K) + i * n * K for i, g in enumerate(mask.sum(1))]
    answers = table(_values(f, n, cells, d), width, np.concatenate(places))
    return Stack(n, (*layers, *answers), len(layers), width, 1, mask, d)


def _mean(source, target, factor, width):
    """Attention with equal weights that adds a multiple of the mean of one channel to another."""
    zero, read, write = np.zeros((width, 1)), np.zeros((width, 1)), np.zeros((1, width))
    read[source], write[0, target] = 1.0, factor
    parts = {"query": zero, "key": zero, "value": read, "output": write}
    return "attention", {name: {"weight": weight} for name, weight in parts.items()}


def rounded(X, bits: int):
    r"""Numbers with so many significant bits, the nearest ones: 8 are bfloat16's, 11 float16's and 24 float32's.

    Parameters
    ----------
    X : any shape; the range of the exponent is not limited.
    bits : p >= 1.

    References
    ----------
    Chapter 9, pf:universal-bits.

    Examples
    --------
    >>> rounded(np.array([1.0, 255.0, 257.0, 0.3]), 8)
    array([  1.        , 255.        , 256.        ,   0.30078125])
    """
    _require.count("bits", bits)
    fraction, exponent = np.frexp(np.asarray(X, float))
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def distinct(stack: Stack, n: int, cells: int, **options) -> int:
    """How many context numbers a stack tells apart over all cells; a contextual mapping has n cells**(n d).

    Numbers that round to the same integer count once. The right ones are at least 1 apart, so they are told apart.

    Parameters
    ----------
    stack : from `pair` or `star`, better its `shallow` form.
    n, cells : as it was built.
    options : of `run`.

    References
    ----------
    Chapter 9, def-contextual-mapping.

    Examples
    --------
    >>> stack = shallow(pair(lambda x, y: (x, y), 4))
    >>> distinct(stack, 2, 4), distinct(stack, 2, 4, store=lambda Z: rounded(Z, 4))
    (32, 18)
    """
    X = centres(n * stack.numbers, cells)
    Z = run(stack, X if stack.numbers == 1 else X.reshape(-1, n, stack.numbers), layers=stack.ready, **options)
    return len(np.unique(np.rint(Z[..., stack.context])))
