"""Two towers, one for pictures and one for sentences, that are taught to give a pair the highest score."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Integer

from attnmath import _require
from attnmath._require import contrastive as _ask
from attnmath.numpy.bert import unit_norm
from attnmath.numpy.half import half_in_float32
from attnmath.numpy.losses import cross_entropy
from attnmath.numpy.transformer import decoder_only, logits
from attnmath.numpy.types import Array, Vjp, differentiable
from attnmath.numpy.vision_transformer import vision_transformer


@differentiable
@half_in_float32
def cosine_scores(
    U: Float[Array, "n d"], V: Float[Array, "m d"], log_scale: Float[Array, ""] | float
) -> tuple[Float[Array, "n m"], Vjp]:
    r"""The cosine of each row of U with each row of V, times a scale.

    .. math:: S_{ij} = e^{\tau}\,\hat u_i\cdot\hat v_j,\qquad \hat u = u/\lVert u\rVert

    Parameters
    ----------
    U, V : (n, d) and (m, d), such as vectors of pictures and of captions; no row is zero.
    log_scale : :math:`\tau`, one number of their dtype; :math:`e^{-\tau}` is the temperature.

    Returns
    -------
    S : (n, m), between :math:`-e^\tau` and :math:`e^\tau`.
    vjp : dS -> (dU, dV, dlog_scale).

    Raises
    ------
    ValueError
        If widths or dtypes differ, a row is zero, or the scale is too large for the dtype.

    References
    ----------
    Radford et al. (2021), figure 3: their ``logits``, with t for our tau. Chapter 8, eq:cosine-scores.

    Examples
    --------
    >>> S, vjp = cosine_scores(np.array([[3.0, 4.0]]), np.array([[2.0, 0.0], [0.0, 1.0]]), np.log(10.0))
    >>> S
    array([[6., 8.]])
    """
    _require.shapes(U=(U, "n d"), V=(V, "m d"))
    _ask.scale(log_scale, U.dtype)
    with np.errstate(over="ignore"):
        scale = np.exp(log_scale)
    _ask.finite_scale(log_scale, scale)
    (A, u_vjp), (B, v_vjp) = unit_norm(U), unit_norm(V)
    S = scale * (A @ B.T)  # eq:cosine-scores

    def vjp(dS):
        dU, dV = u_vjp(scale * (dS @ B)), v_vjp(scale * (dS.T @ A))
        return dU, dV, np.asarray((dS * S).sum())  # eq:cosine-scores-vjp

    return S, vjp


@differentiable
def matching_loss(S: Float[Array, "n m"]) -> tuple[Float[Array, ""], Vjp]:
    r"""The cross-entropy of finding row i's partner among the columns, and column i's among the rows: their mean.

    .. math:: L = -\frac1{2n}\sum_i\bigl(\log\operatorname{softmax}(S)_{ii}
              + \log\operatorname{softmax}(S^{\mathsf T})_{ii}\bigr)

    Parameters
    ----------
    S : (n, n) scores; row i and column i are a pair.

    Returns
    -------
    loss : () in nats.
    vjp : dloss -> dS.

    Raises
    ------
    ValueError
        If there are more rows than columns, or fewer, or none.

    References
    ----------
    Radford et al. (2021), figure 3; van den Oord et al. (2018), equation 4, for one half of it. Chapter 8,
    eq:contrastive-loss.

    Examples
    --------
    >>> loss, vjp = matching_loss(np.log([[3.0, 1.0], [1.0, 3.0]]))
    >>> loss.round(4), vjp(1.0)
    (np.float64(0.2877), array([[-0.125,  0.125],
           [ 0.125, -0.125]]))
    """
    _require.shapes(S=(S, "n m"))
    _ask.pairs(S)
    pairs = np.arange(len(S))
    (rows, rows_vjp), (columns, columns_vjp) = cross_entropy(S, pairs), cross_entropy(S.T, pairs)
    loss = np.asarray((rows + columns) / 2, S.dtype)  # eq:contrastive-loss

    def vjp(dloss):
        half = np.asarray(dloss, S.dtype) / 2
        return rows_vjp(half) + columns_vjp(half).T  # eq:contrastive-loss-vjp

    return loss, vjp


@differentiable
@half_in_float32
def contrastive_loss(
    U: Float[Array, "n d"], V: Float[Array, "m d"], log_scale: Float[Array, ""] | float
) -> tuple[Float[Array, ""], Vjp]:
    r"""CLIP's loss: `matching_loss` of `cosine_scores`.

    .. math:: L = \operatorname{matching}\bigl(e^\tau\,\hat U\hat V^{\mathsf T}\bigr)

    Parameters
    ----------
    U, V : (n, d), vectors of n pictures and of their captions; row i and row i are a pair, and no row is zero.
    log_scale : :math:`\tau`, one number of their dtype.

    Returns
    -------
    loss : () in nats; log n if all scores are alike.
    vjp : dloss -> (dU, dV, dlog_scale).

    Raises
    ------
    ValueError
        As `cosine_scores`, and if pictures and captions differ in number.

    References
    ----------
    Radford et al. (2021), figure 3. Chapter 8, eq:contrastive-loss.

    Examples
    --------
    >>> loss, vjp = contrastive_loss(np.eye(2), np.eye(2), np.log(3.0))
    >>> loss.round(4), vjp(1.0)[2].round(4)
    (np.float64(0.0486), np.float64(-0.1423))
    """
    S, scores_vjp = cosine_scores(U, V, log_scale)
    loss, loss_vjp = matching_loss(S)
    return loss, lambda dloss: scores_vjp(loss_vjp(dloss))


def end_of_text(ids: Integer[Array, "... n"], end: int | None = None) -> Integer[Array, "..."]:
    r"""Where each sentence ends: the place of the first token ``end``.

    .. math:: e = \min\{i : \mathrm{ids}_i = \mathrm{end}\}

    Parameters
    ----------
    ids : (..., n) token ids.
    end : the token that ends a sentence; None for the highest id of each sentence, as in the first CLIP, whose
        end-of-text token is the last of the vocabulary.

    Returns
    -------
    places : (...) integers. They have no gradient.

    Raises
    ------
    ValueError
        If a sentence has no such token.

    References
    ----------
    Radford et al. (2021), section 2.4. Chapter 8.

    Examples
    --------
    >>> end_of_text(np.array([[1, 5, 2, 0], [1, 7, 5, 2]]), 2)
    array([2, 3])
    """
    _require.integers(ids)
    _require.nonempty("ids", ids.shape, -1, ids.shape[-1], "token")
    if end is None:
        return np.asarray(ids.argmax(-1))
    _ask.ended(ids, (ids == end).any(-1))
    return np.asarray((ids == end).argmax(-1))


def row_at(places: Integer[Array, "..."], head: Callable = logits) -> Callable:
    r"""A head that looks at one row of each sentence.

    .. math:: \operatorname{head}'(X) = \operatorname{head}(X_e)

    Parameters
    ----------
    places : (...) integers, e, a row of each sentence, such as `end_of_text` gives.
    head : ``head(X, params) -> (Z, vjp)``, as `decoder_only` takes it.

    Returns
    -------
    A head of the same kind, whose Z is (..., 1, t).

    References
    ----------
    Radford et al. (2021), section 2.4. Chapter 8.

    Examples
    --------
    >>> X, params = np.array([[1.0, 2.0], [3.0, 4.0]]), {"embeddings": {"word": np.eye(2)}}
    >>> row_at(np.array(0))(X, params)[0]
    array([[1., 2.]])
    """
    where = places[..., None, None]

    def at_place(X, params):
        Z, head_vjp = head(np.take_along_axis(X, where, -2), params)

        def vjp(dZ):
            drow, dparams = head_vjp(dZ)
            dX = np.zeros_like(X)
            np.put_along_axis(dX, where, drow, -2)
            return dX, dparams

        return Z, vjp

    return at_place


@differentiable
def text_embedding(
    ids: Integer[Array, "... n"], params: dict, heads: int, *, end: int | None = None, **options
) -> tuple[Float[Array, "... t"], Vjp]:
    r"""One vector per sentence: what a causal Transformer has at the end-of-text token, through the head.

    .. math:: v = H_e W,\qquad H = \operatorname{decoder}(\operatorname{embedding}(\mathrm{ids}))

    Parameters
    ----------
    ids : (..., n) token ids; what follows the end is not looked at.
    params : as in `decoder_only`, with ``"head": {"weight" (d, t)}``, W.
    heads : h.
    end : as in `end_of_text`.
    options : further keywords of `decoder_only`.

    Returns
    -------
    V : (..., t).
    vjp : dV -> dparams.

    Raises
    ------
    ValueError
        As `decoder_only` and `end_of_text`.

    References
    ----------
    Radford et al. (2021), section 2.4. Chapter 8.

    Examples
    --------
    >>> from attnmath.shapes import decoder_only_shapes, random_tree
    >>> sizes = decoder_only_shapes(9, 4, 8, layers=1, positions=5) | {"head": {"weight": (4, 3)}}
    >>> params = random_tree(sizes, np.random.default_rng(0))
    >>> a, b = (text_embedding(np.array(ids), params, 2, end=2)[0] for ids in ([1, 5, 2, 0], [1, 5, 2, 8]))
    >>> a.shape, bool((a == b).all())
    ((3,), True)
    """
    H, decoder_vjp = decoder_only(ids, params, heads, head=row_at(end_of_text(ids, end)), **options)
    return H[..., 0, :], lambda dV: decoder_vjp(dV[..., None, :])


@differentiable
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
) -> tuple[Float[Array, "n m"], Vjp]:
    r"""The score of each picture with each sentence: two towers that meet in one product.

    .. math:: S = e^\tau\,\hat U\hat V^{\mathsf T},\qquad U = \operatorname{vision}(X),\quad V =
              \operatorname{text}(\mathrm{ids})

    Parameters
    ----------
    X : (n, c, y, x) pictures.
    ids : (m, w) token ids of sentences.
    params : ``{"picture", "text", "log_scale"}``: those of `vision_transformer`, whose head is CLIP's projection, those
        of `text_embedding`, and one number.
    heads : h, of both towers, or one number for each.
    mask : (m, w) boolean, True for a token; padding behind the end changes nothing, and needs no mask.
    size : the pixels along a patch's side.
    end : as in `end_of_text`.
    picture, text : further keywords of `vision_transformer` and of `decoder_only`.

    Returns
    -------
    S : (n, m); `matching_loss` of it is CLIP's loss.
    vjp : dS -> (dX, dparams).

    Raises
    ------
    ValueError
        As the towers and `cosine_scores`.

    References
    ----------
    Radford et al. (2021), section 2. Chapter 8.

    Examples
    --------
    >>> from attnmath.shapes import decoder_only_shapes, random_tree
    >>> from attnmath.vision_shapes import picture_embedding_shapes, vision_transformer_shapes
    >>> sizes = {"picture": vision_transformer_shapes(picture_embedding_shapes(4, 6), 6, 8, 1, 3, None)}
    >>> sizes["text"] = decoder_only_shapes(9, 4, 8, layers=1, positions=5) | {"head": {"weight": (4, 3)}}
    >>> params = random_tree(sizes, np.random.default_rng(0)) | {"log_scale": np.array(1.0)}
    >>> S, vjp = clip(np.ones((1, 1, 4, 4)), np.array([[1, 5, 2], [7, 2, 0]]), params, 2, size=2, end=2)
    >>> S.shape
    (1, 2)
    """
    _require.branches(params, ("picture", "text", "log_scale"))
    of_picture, of_text = heads if isinstance(heads, tuple) else (heads, heads)
    U, picture_vjp = vision_transformer(X, params["picture"], of_picture, size, **(picture or {}))
    V, text_vjp = text_embedding(ids, params["text"], of_text, end=end, mask=mask, **(text or {}))
    S, scores_vjp = cosine_scores(U, V, params["log_scale"])

    def vjp(dS):
        dU, dV, dscale = scores_vjp(dS)
        dX, dpicture = picture_vjp(dU)
        return dX, {"picture": dpicture, "text": text_vjp(dV), "log_scale": dscale}

    return S, vjp
