"""What a layer knows: the residual stream read by the model's own head or by a probe, controls, and removal."""

from itertools import pairwise
from math import comb

import numpy as np

from attnmath import _require
from attnmath._require import probes as require
from attnmath.numpy.normalisation import layer_norm
from attnmath.numpy.residuals import sublayer
from attnmath.numpy.transformer import decoder_only, logits

EPS = 1e-5  # of the last norm


def stream_writes(ids, params: dict, heads: int) -> dict:
    r"""What the embedding and each sub-layer of a pre-norm decoder write into the residual stream.

    .. math:: X^s = W^0 + W^1 + \dots + W^s

    Parameters
    ----------
    ids : (..., n) tokens.
    params : of `attnmath.numpy.transformer.decoder_only` with a last layer norm, as arrays.
    heads : h.

    Returns
    -------
    A dict of (..., n, d) by name, in order: ``"embedding"``, ``"0.attention"``, ``"0.feed_forward"``, and so on. The
    sum of the first s + 1 is the stream behind s sub-layers.

    Raises
    ------
    ValueError
        As `decoder_only`.

    References
    ----------
    Elhage et al. (2021). Chapter 9, eq:stream-writes.

    Examples
    --------
    >>> from attnmath import shapes
    >>> sizes = shapes.decoder_only_shapes(7, 4, 8, 1, 5, norm=layer_norm)
    >>> params = shapes.random_tree(sizes, np.random.default_rng(0))
    >>> {name: W.shape for name, W in stream_writes(np.array([3, 1]), params, 2).items()}
    {'embedding': (2, 4), '0.attention': (2, 4), '0.feed_forward': (2, 4)}
    """
    before: list = []

    def join(X, f, own, **options):
        before.append(X)
        return sublayer(X, f, own, norm_first=True, **options)

    ends: list = []

    def head(X, own):
        ends.append(X)
        return logits(X, own)

    bare = {name: own for name, own in params.items() if name != "norm"}  # so that the head meets the stream itself
    decoder_only(ids, bare, heads, join=join, head=head)
    streams = [*before, *ends]
    names = [f"{i}.{part}" for i in range(len(params["layers"])) for part in ("attention", "feed_forward")]
    writes = [Y - X for X, Y in pairwise(streams)]  # eq:stream-writes
    return {"embedding": streams[0]} | dict(zip(names, writes, strict=True))


def logit_lens(X, params: dict):
    r"""What the model would say if the stream ended here: the last norm and the head on a stream of any depth.

    .. math:: \operatorname{lens}(X) = \operatorname{head}(\operatorname{norm}(X))

    Parameters
    ----------
    X : (..., n, d) the residual stream behind some layer.
    params : of the model, with ``"norm"``, as arrays.

    Returns
    -------
    Z : (..., n, t) logits. Behind the last layer they are the model's own.

    Raises
    ------
    ValueError
        If there is no last norm, or widths disagree.

    References
    ----------
    nostalgebraist (2020). Chapter 9, eq:logit-lens.

    Examples
    --------
    >>> params = {"embeddings": {"word": np.eye(2)}, "norm": {"gain": np.ones(2), "bias": np.zeros(2)}}
    >>> logit_lens(np.array([[3.0, 1.0]]), params).round(3)
    array([[ 1., -1.]])
    """
    require.last_norm(params)
    Y, _ = layer_norm(X, params["norm"]["gain"], params["norm"]["bias"], EPS)
    return logits(Y, params)[0]  # eq:logit-lens


def direct_logits(writes: dict, params: dict) -> dict:
    r"""How much each write adds to the model's logits, with the divisor of the last norm held.

    .. math:: Z = \sum_s \frac{C W^s}{r}\,\operatorname{diag}(\gamma)\,W_U + \beta W_U,\qquad
              r = \sqrt{\tfrac1d\lVert C X\rVert^2 + \epsilon},\quad X = \sum_s W^s

    Parameters
    ----------
    writes : (..., n, d) by name, as `stream_writes` gives them. C subtracts the mean over the d components.
    params : of the model, with ``"norm"`` and without a bias of the head, as arrays.

    Returns
    -------
    A dict of (..., n, t) by name, and ``"bias"``, what the norm's bias adds. Their sum is the model's logits.

    Raises
    ------
    ValueError
        If there is no last norm, or the head has a bias.

    References
    ----------
    Elhage et al. (2021). Chapter 9, eq:direct-logits.

    Examples
    --------
    >>> params = {"embeddings": {"word": np.eye(2)}, "norm": {"gain": np.ones(2), "bias": np.zeros(2)}}
    >>> parts = direct_logits({"a": np.array([[3.0, 0.0]]), "b": np.array([[0.0, 1.0]])}, params)
    >>> {name: Z.round(2).tolist() for name, Z in parts.items()}
    {'a': [[1.5, -1.5]], 'b': [[-0.5, 0.5]], 'bias': [[0.0, 0.0]]}
    """
    require.last_norm(params)
    require.no_bias(params)
    gain, bias = params["norm"]["gain"], params["norm"]["bias"]
    centred = {name: W - W.mean(-1, keepdims=True) for name, W in writes.items()}
    X = sum(centred.values())
    r = np.sqrt((X * X).mean(-1, keepdims=True) + EPS)
    parts = {name: logits(W / r * gain, params)[0] for name, W in centred.items()}  # eq:direct-logits
    return parts | {"bias": logits(np.broadcast_to(bias, X.shape), params)[0]}


def with_silent_layers(params: dict, note) -> dict:
    r"""The same pre-norm decoder with two more layers at its end: one writes a note, the next one takes it back.

    .. math:: X \mapsto X + u \mapsto X + u - u

    Parameters
    ----------
    params : of `decoder_only`, pre-norm, as arrays.
    note : (d,) u.

    Returns
    -------
    params of a model with two more layers and the same logits on every text.

    References
    ----------
    Chapter 9, prop-lens-arbitrary.

    Examples
    --------
    >>> from attnmath import shapes
    >>> sizes = shapes.decoder_only_shapes(7, 4, 8, 1, 5, norm=layer_norm)
    >>> params = shapes.random_tree(sizes, np.random.default_rng(0))
    >>> longer = with_silent_layers(params, np.array([0.0, 0.0, 9.0, 0.0]))
    >>> X = sum(list(stream_writes(np.array([3, 1]), longer, 2).values())[:-1])
    >>> [float(row[2].round(2)) for row in X - sum(stream_writes(np.array([3, 1]), params, 2).values())]
    [9.0, 9.0]
    """
    from attnmath.tree import map_tree

    _require.shapes(note=(note, "d"), word=(params["embeddings"]["word"], "t d"))
    depth = len(params["layers"])
    silent = map_tree(np.zeros_like, params["layers"]["0"])
    layers = dict(params["layers"])
    for i, u in enumerate((note, -note)):
        network = silent["feed_forward"]
        down = network["down"] | {"bias": u.astype(network["down"]["bias"].dtype)}
        layers[str(depth + i)] = silent | {"feed_forward": network | {"down": down}}
    return params | {"layers": layers}


# probes --------------------------------------------------------------------------------------------------------------


def dichotomies(n: int, d: int, *, affine: bool = True) -> int:
    r"""In how many ways a linear probe can divide n points in general position into two classes.

    .. math:: C(n, D) = 2 \sum_{k=0}^{D-1} \binom{n-1}{k},\qquad D = d + 1\text{ with a bias, else } d

    Parameters
    ----------
    n : points, at least 1.
    d : their width, at least 1.
    affine : the probe has a bias.

    Returns
    -------
    The number; :math:`2^n`, all of them, if n <= D.

    Raises
    ------
    ValueError
        If a size is no count.

    References
    ----------
    Cover (1965), theorem 1. Chapter 9, eq:dichotomies.

    Examples
    --------
    >>> dichotomies(3, 2), dichotomies(4, 2), 2**4  # all of three points in the plane; not the crossed pairs of four
    (8, 14, 16)
    """
    for name, value in (("n", n), ("d", d)):
        _require.count(name, value)
        _require.positive(name, value)
    return 2 * sum(comb(n - 1, k) for k in range(d + affine))  # eq:dichotomies


def control_labels(words, labels, rng) -> np.ndarray:
    r"""Random labels that depend on the word alone: each type of word draws one of the given labels, with their shares.

    .. math:: c_i = \ell(w_i),\qquad \ell(w)\ \text{independent and uniform among the labels of all occurrences}

    Parameters
    ----------
    words : (n,) the word of each occurrence, strings or numbers.
    labels : (n,) of the task.
    rng : NumPy's generator.

    Returns
    -------
    c : (n,). Equal words have equal labels.

    Raises
    ------
    ValueError
        If the lengths differ or there is no word.

    References
    ----------
    Hewitt and Liang (2019). Chapter 9, eq:control-labels.

    Examples
    --------
    >>> words = ["the", "sum", "of", "the", "mean"]
    >>> control_labels(words, [1, 1, 1, 1, 2], np.random.default_rng(0)).tolist()  # "the" has one label
    [1, 1, 1, 1, 2]
    """
    words, labels = np.asarray(words), np.asarray(labels)
    require.occurrences(words, labels)
    _, which = np.unique(words, return_inverse=True)
    return rng.choice(labels, which.max() + 1)[which]  # eq:control-labels


def mean_directions(X, labels) -> np.ndarray:
    r"""An orthonormal basis of the differences between the means of classes.

    .. math:: \operatorname{span}\{\bar X_a - \bar X\}

    Parameters
    ----------
    X : (n, d).
    labels : (n,) k classes, k >= 2.

    Returns
    -------
    U : (d, r), r <= k - 1, its columns orthonormal.

    Raises
    ------
    ValueError
        If the lengths differ, there is one class only, or all means are equal.

    References
    ----------
    Chapter 9, eq:mean-directions.

    Examples
    --------
    >>> abs(mean_directions(np.array([[1.0, 0.0], [0.0, 0.0], [5.0, 0.0]]), [0, 0, 1])).tolist()
    [[1.0], [0.0]]
    """
    X, labels = np.asarray(X), np.asarray(labels)
    require.occurrences(X, labels)
    kinds = np.unique(labels)
    require.classes(kinds)
    means = np.stack([X[labels == kind].mean(0) for kind in kinds]) - X.mean(0)
    U, sizes, _ = np.linalg.svd(means.T, full_matrices=False)
    rank = (sizes > 1e-6 * max(abs(X).max(), 1e-300)).sum()
    require.different(rank)
    return U[:, : min(rank, len(kinds) - 1)]  # eq:mean-directions


def without(X, U, centre):
    r"""X with a subspace set to its value at the centre.

    .. math:: X - (X - \mu)\,U U^\top

    Parameters
    ----------
    X : (..., d).
    U : (d, r) orthonormal columns.
    centre : (d,) :math:`\mu`, the mean of the rows.

    Returns
    -------
    Y : (..., d).

    Raises
    ------
    ValueError
        If widths disagree, or the columns of U are not orthonormal.

    References
    ----------
    Chapter 9, eq:without.

    Examples
    --------
    >>> without(np.array([[3.0, 4.0]]), np.array([[1.0], [0.0]]), np.array([2.0, 0.0]))
    array([[2., 4.]])
    """
    _require.shapes(X=(X, "... d"), U=(U, "d r"), centre=(centre, "d"))
    require.orthonormal(U)
    return X - (X - centre) @ U @ U.T  # eq:without


# steering ------------------------------------------------------------------------------------------------------------


def mean_difference(X, labels) -> np.ndarray:
    r"""The way from the mean of the rows without a property to the mean of those with it.

    .. math:: v = \bar X_{\text{yes}} - \bar X_{\text{no}}

    Parameters
    ----------
    X : (n, d).
    labels : (n,) yes or no.

    Returns
    -------
    v : (d,).

    Raises
    ------
    ValueError
        If the lengths differ, or the labels are no yes or no, with at least one of each.

    References
    ----------
    Turner et al. (2023), for pairs of texts. Chapter 9, eq:mean-difference.

    Examples
    --------
    >>> mean_difference(np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 5.0]]), np.array([False, False, True]))
    array([0., 5.])
    """
    X, labels = np.asarray(X), np.asarray(labels)
    require.occurrences(X, labels)
    require.yes_or_no(labels)
    return X[labels].mean(0) - X[~labels].mean(0)  # eq:mean-difference


def steered(X, v, strength: float):
    r"""The same vector added to each row of the residual stream.

    .. math:: X + s\,v

    Parameters
    ----------
    X : (..., n, d) the stream behind some layer.
    v : (d,) a direction with its length.
    strength : s, negative for the other way; 0 leaves the stream as it is.

    Returns
    -------
    Y : (..., n, d).

    Raises
    ------
    ValueError
        If the widths disagree.

    References
    ----------
    Turner et al. (2023). Chapter 9, eq:steered.

    Examples
    --------
    >>> steered(np.array([[1.0, 2.0]]), np.array([0.0, 1.0]), -3.0)
    array([[ 1., -1.]])
    """
    _require.shapes(X=(X, "... d"), v=(v, "d"))
    return X + strength * v  # eq:steered
