"""The copying circuit: weights that go on with a repetition, the paths of an attention-only model, scores of heads.

A path names, from the input to the logits, the heads through which it goes, each as (layer, head).
"""

import numpy as np

from attnmath import _require
from attnmath._require import induction as require
from attnmath.numpy.induction import attention_only
from attnmath.numpy.transformer import token_embedding
from attnmath.numpy.types import T

START = 0  # the token in front of each text, which comes nowhere else


def repeated(rng, count: int, n: int, vocabulary: int, periods: tuple[int, int] = (5, 15)):
    """Texts that repeat a random beginning: a start token, then different tokens in random order, again and again.

    Parameters
    ----------
    rng : NumPy's generator.
    count : texts.
    n : tokens of a text, the start token among them.
    vocabulary : t, the start token among them; the highest period is less.
    periods : the lowest and the highest number of different tokens; each text draws its own.

    Returns
    -------
    ids : (count, n) integers; 0 is the start token.

    Raises
    ------
    ValueError
        If the periods are not 1 <= low <= high < vocabulary.

    Examples
    --------
    >>> repeated(np.random.default_rng(3), 2, 9, 8, (3, 4)).tolist()
    [[0, 6, 7, 3, 6, 7, 3, 6, 7], [0, 7, 1, 5, 2, 7, 1, 5, 2]]
    """
    low, high = periods
    if not 1 <= low <= high < vocabulary:
        raise ValueError(f"periods are {periods} and vocabulary {vocabulary}; expected 1 <= low <= high < vocabulary")
    ids = np.full((count, n), START)
    for row in ids:
        row[1:] = np.resize(1 + rng.permutation(vocabulary - 1)[: rng.integers(low, high + 1)], n - 1)
    return ids


def after_earlier(ids):
    r"""Which keys stand behind an earlier occurrence of the query's token.

    .. math:: M_{ij} = [\,1 \le j \le i,\ x_{j-1} = x_i\,]

    Parameters
    ----------
    ids : (..., n) integers.

    Returns
    -------
    M : (..., n, n) of bool.

    Examples
    --------
    >>> after_earlier(np.array([7, 8, 7]))[2]  # the last 7 looks for what came after the first
    array([False,  True, False])
    """
    n = ids.shape[-1]
    found = np.zeros((*ids.shape, n), bool)
    found[..., 1:] = ids[..., :, None] == ids[..., None, :-1]
    return found & np.tri(n, dtype=bool)


def induction_score(P, ids):
    r"""How much each head attends, from a token that came before, to what stood behind it.

    .. math:: s_a = \operatorname{mean}_i \sum_j M_{ij} P^a_{ij}\quad\text{over the rows } i \text{ of } M
              \text{ that are not empty}

    Parameters
    ----------
    P : (..., h, n, n) weights of h heads on texts, or (h, n, n), the same on all.
    ids : (..., n) the texts.

    Returns
    -------
    s : (h,), from 0 to 1. Compare it with the score of `uniform` weights.

    Raises
    ------
    ValueError
        If shapes disagree, or no token comes twice.

    References
    ----------
    Olsson et al. (2022), "prefix matching"; they score random tokens repeated. Chapter 9, eq:induction-score.

    Examples
    --------
    >>> ids = np.array([[0, 5, 6, 5, 6]])
    >>> induction_score(uniform(5), ids)  # 1 of 4 keys from the second 5, and 1 of 5 from the second 6
    array([0.225])
    """
    require.weights(P, ids)
    M = after_earlier(ids)
    rows = M.any(-1)
    require.repeats(rows.sum())
    there = (P * M[..., None, :, :]).sum(-1)  # (..., h, n)
    return np.moveaxis(there, -2, 0)[:, rows].mean(-1)  # eq:induction-score


def occurrence_scores(P, ids, count: int):
    r"""How `induction_score` divides among the earlier occurrences, where there are so many of them.

    .. math:: s_a^{(r)} = \operatorname{mean}_i P^a_{i,\,j_r(i)}\quad\text{over the rows } i
              \text{ whose token occurred exactly } c \text{ times before}

    Parameters
    ----------
    P, ids : as in `induction_score`.
    count : c >= 1.

    Returns
    -------
    s : (h, c) weights on the places :math:`j_1 < \dots < j_c` behind the first, the second, …, the last occurrence.

    Raises
    ------
    ValueError
        If shapes disagree, count is no count, or no token came so often before.

    References
    ----------
    Chapter 9, sec-first-or-last.

    Examples
    --------
    >>> ids = np.array([[0, 5, 6, 5, 7, 5]])
    >>> occurrence_scores(uniform(6), ids, 2)  # the last 5 looks at 6 and 7, and at four other keys
    array([[0.16666667, 0.16666667]])
    """
    require.weights(P, ids)
    _require.count("count", count)
    M = after_earlier(ids)
    rows = M.sum(-1) == count
    require.repeats(rows.sum())
    number = M.cumsum(-1) * M  # 1 behind the first occurrence, 2 behind the second, …
    parts = [(P * (number == r)[..., None, :, :]).sum(-1) for r in range(1, count + 1)]
    return np.stack([np.moveaxis(part, -2, 0)[:, rows].mean(-1) for part in parts], -1)


def previous_score(P):
    r"""How much each head attends to the token before, on average over all rows but the first.

    .. math:: \operatorname{mean}_{i \ge 1} P^a_{i,\,i-1}

    Parameters
    ----------
    P : (..., h, n, n) weights.

    Returns
    -------
    s : (h,).

    Examples
    --------
    >>> previous_score(uniform(3))  # the mean of 1/2 and 1/3
    array([0.41666667])
    """
    before = np.diagonal(P, -1, -2, -1)  # (..., h, n - 1)
    return before.reshape(-1, *before.shape[-2:]).mean((0, -1))  # eq:previous-score


def uniform(n: int):
    """Weights of one head that attends to all tokens so far alike, (1, n, n): the baseline of a score.

    Examples
    --------
    >>> uniform(2)
    array([[[1. , 0. ],
            [0.5, 0.5]]])
    """
    return (np.tri(n) / np.arange(1, n + 1)[:, None])[None]


# paths ---------------------------------------------------------------------------------------------------------------


def circuits(own: dict, heads: int):
    r"""The two matrices by which a head acts: who attends to whom, and what it does to whom it attends.

    .. math:: W_{QK}^a = W_Q^a (W_K^a)^\top / \sqrt{k},\qquad W_{OV}^a = W_V^a W_O^a

    Parameters
    ----------
    own : parameters of one `multi_head_attention` without biases.
    heads : h.

    Returns
    -------
    QK, OV : (h, d, d) each, of a rank at most that of a head's width.

    Raises
    ------
    ValueError
        If there is a bias, or there are fewer heads of keys than of queries.

    References
    ----------
    Elhage et al. (2021), whose W_OV is transposed, as their rows are columns. Chapter 9, eq:circuits.

    Examples
    --------
    >>> one = {"weight": np.array([[2.0]])}
    >>> QK, OV = circuits(dict.fromkeys(["query", "key", "value", "output"], one), 1)
    >>> QK.item(), OV.item()
    (4.0, 4.0)
    """
    require.plain(own, "of the heads")
    query, key, value = (np.stack(np.split(own[name]["weight"], heads, -1)) for name in ("query", "key", "value"))
    output = np.stack(np.split(own["output"]["weight"], heads, 0))
    return query @ T(key) / np.sqrt(query.shape[-1]), value @ output  # eq:circuits


def stream_paths(ids, params: dict, heads: int, layers: int) -> dict:
    r"""What each path through the first layers of an attention-only model brings to the residual stream.

    .. math:: X^{(a_1, \dots, a_r)} = P^{a_r}\cdots P^{a_1}\, X^0\, W_{OV}^{a_1}\cdots W_{OV}^{a_r}

    Parameters
    ----------
    ids, params, heads : as in `attention_only`, without biases.
    layers : how many of the layers.

    Returns
    -------
    A dict: (..., n, d) by path. Their sum is what the next layer sees.

    Raises
    ------
    ValueError
        As `circuits` and `attention_only`.

    References
    ----------
    Elhage et al. (2021). Chapter 9, eq:stream-paths.

    Examples
    --------
    >>> list(stream_paths(np.array([0, 1]), copying_circuit(3, 2), 1, layers=2))
    [(), ((0, 0),), ((1, 0),), ((0, 0), (1, 0))]
    """
    record: dict = {}
    attention_only(ids, params, heads, record=record)
    streams = {(): token_embedding(ids, params["embeddings"])[0]}
    for i in range(layers):
        _, OV = circuits(params["layers"][str(i)]["attention"], heads)
        P = record["layers"][str(i)]["attention"]["weights"]
        through = {
            (*path, (i, a)): P[..., a, :, :] @ (X @ OV[a])  # eq:stream-paths
            for path, X in streams.items()
            for a in range(heads)
        }
        streams |= through
    return streams


def logit_paths(ids, params: dict, heads: int) -> dict:
    r"""The logits of an attention-only model as a sum over paths, with the weights that the heads have on this text.

    .. math:: Z = \sum_{\text{paths } (a_1, \dots, a_r)} P^{a_r}\cdots P^{a_1}\, X^0\,
              W_{OV}^{a_1}\cdots W_{OV}^{a_r}\, W_U

    Parameters
    ----------
    ids, params, heads : as in `attention_only`, without biases.

    Returns
    -------
    A dict: (..., n, t) logits by path, () being the direct one. There are :math:`(1 + h)^L` paths, and their sum is Z.

    Raises
    ------
    ValueError
        As `circuits` and `attention_only`.

    References
    ----------
    Elhage et al. (2021), "path expansion". Chapter 9, eq:logit-paths.

    Examples
    --------
    >>> params = copying_circuit(4, 5)
    >>> paths = logit_paths(np.array([0, 2, 3, 2]), params, 1)
    >>> {path: float(Z[-1, 3].round(2)) for path, Z in paths.items()}  # who says that 3 comes next
    {(): 0.0, ((0, 0),): 0.0, ((1, 0),): 10.0, ((0, 0), (1, 0)): 0.0}
    """
    head = params["head"]["weight"] if "head" in params else T(params["embeddings"]["word"])
    streams = stream_paths(ids, params, heads, len(params["layers"]))
    return {path: X @ head for path, X in streams.items()}  # eq:logit-paths


def score_paths(ids, params: dict, heads: int, layer: int, head: int) -> dict:
    r"""The scores of one head as a sum over pairs of paths, one to the query and one to the key.

    .. math:: S = \sum_{p, q} X^p\, W_{QK}\,(X^q)^\top

    Parameters
    ----------
    ids, params, heads : as in `logit_paths`.
    layer, head : whose scores.

    Returns
    -------
    A dict: (..., n, n) scores by (path to the query, path to the key), before the mask. Paths through heads on the side
    of the key only are K-composition, on the side of the query only Q-composition.

    Raises
    ------
    ValueError
        As `logit_paths`.

    References
    ----------
    Elhage et al. (2021), "composition of attention heads". Chapter 9, eq:score-paths.

    Examples
    --------
    >>> ids, params = np.array([0, 2, 3, 2]), copying_circuit(4, 5)
    >>> parts = score_paths(ids, params, 1, layer=1, head=0)
    >>> {pair: float(S[-1, 2].round(2)) for pair, S in parts.items() if abs(S[-1, 2]) > 0.01}
    {((), ((0, 0),)): 20.0}
    """
    QK, _ = circuits(params["layers"][str(layer)]["attention"], heads)
    streams = stream_paths(ids, params, heads, layer)
    return {(p, q): X @ QK[head] @ T(Y) for p, X in streams.items() for q, Y in streams.items()}  # eq:score-paths


# weights by hand -----------------------------------------------------------------------------------------------------


def copying_circuit(vocabulary: int, n: int, *, previous: float = 20.0, match: float = 20.0, gain: float = 10.0):
    r"""The weights of two layers of attention, one head each, that vote on what came after the token before.

    .. math:: \text{stream} = [\,\text{token}\mid\text{place}\mid\text{token before}\mid\text{answer}\,]

    Parameters
    ----------
    vocabulary : t, the start token 0 among them.
    n : the longest text.
    previous : :math:`\beta_1 > 0`, the score of the token before in the first layer; all others have 0.
    match : :math:`\beta_2 > 0`, the score in the second layer of a key that stands behind the query's token. The start
        token has half of it, and is looked at if there is no such key.
    gain : :math:`\gamma > 0`, the logit of a token that has all the attention.

    Returns
    -------
    params : of `attention_only` with one head, of width 3 t + n.

    Raises
    ------
    ValueError
        If a size is no count or a score not positive.

    References
    ----------
    Elhage et al. (2021), "induction heads". Chapter 9, eq:copying-circuit.

    Examples
    --------
    >>> Z, _ = attention_only(np.array([0, 4, 2, 5, 4, 2]), copying_circuit(6, 8), 1)
    >>> Z[-1].round(2) + 0.0
    array([ 0.,  0.,  0.,  0.,  0., 10.])
    """
    t = vocabulary
    _require.count("vocabulary", t)
    _require.count("n", n)
    for name, value in (("previous", previous), ("match", match), ("gain", gain)):
        _require.positive(name, value)
    token, place, before, answer = np.split(np.eye(3 * t + n), np.cumsum([t, n, t]))
    start, words = token[START], np.diag(np.arange(t) != START).astype(float)
    first = {
        "query": place[1:].T @ np.eye(n)[:-1] * previous * np.sqrt(n),
        "key": place.T,
        "value": token.T,
        "output": before,
    }
    asks = words + 0.5 * np.eye(t)[START]  # for its token, and half as much for the start
    second = {
        "query": token.T @ asks * match * np.sqrt(t),
        "key": before.T @ words + np.outer(start, np.eye(t)[START]),
        "value": token.T @ words,
        "output": gain * answer,
    }  # eq:copying-circuit
    layers = {str(i): {"attention": _weights(own)} for i, own in enumerate((first, second))}
    return {"embeddings": {"word": token, "position": place}, "layers": layers, "head": {"weight": answer.T}}


def _weights(maps):
    return {name: {"weight": W} for name, W in maps.items()}


def copying_error(n: int, previous: float = 20.0, match: float = 20.0) -> tuple[float, float]:
    r"""The most that `copying_circuit` attends elsewhere, in its first and in its second layer.

    .. math:: \varepsilon = \frac{n-1}{e^{\beta_1} + n - 1},\qquad
              \delta = (n-1)\,e^{-\beta_2 (1/2 - \varepsilon)}

    Parameters
    ----------
    n : tokens of a text.
    previous, match : as in `copying_circuit`.

    Returns
    -------
    epsilon, delta : the second is a bound if the first is at most 1/2.

    References
    ----------
    Chapter 9, thm-copying-circuit.

    Examples
    --------
    >>> epsilon, delta = copying_error(32)
    >>> f"{epsilon:.1e} {delta:.1e}"
    '6.4e-08 1.4e-03'
    """
    epsilon = (n - 1) / (np.exp(previous) + n - 1)
    return float(epsilon), float((n - 1) * np.exp(-match * (0.5 - epsilon)))  # eq:copying-error


def two_gates(sharpness: float = 20.0):
    r"""One layer with two heads that says, for the texts x1 x2 x3 x4 a, what stood behind the a before.

    The tokens are a, b, c, d; x1 and x3 are a and b in some order, x2 and x4 are c or d. Each head reads one of x2 and
    x4, and turns away if the token that it may look at besides is an a.

    Parameters
    ----------
    sharpness : by how much the score of an a beats that of the token that is read, > 0.

    Returns
    -------
    params : of `attention_only` with two heads; the last row's largest logit is that of c or of d.

    References
    ----------
    Chapter 9, lem-two-gates.

    Examples
    --------
    >>> a, b, c, d = range(4)
    >>> Z, _ = attention_only(np.array([[a, c, b, d, a], [b, c, a, d, a]]), two_gates(), 2)
    >>> Z[:, -1].argmax(-1)  # c in the first text, d in the second
    array([2, 3])
    """
    _require.positive("sharpness", sharpness)
    token, place, answer = np.split(np.eye(13), [4, 9])
    never, s = -10.0 * sharpness, float(sharpness)
    reads = ([never, s, 0.0, never, never], [0.0, never, never, s, never])  # a score for each place, half of an a's
    keys = [token[0] * 2 * s + np.asarray(scores) @ place for scores in reads]
    query = np.ones((4, 1)) * np.eye(1)
    own = {
        "query": token.T @ np.hstack([query, query]),
        "key": np.stack(keys, -1),
        "value": np.hstack([token[2:].T] * 2),
        "output": np.vstack([answer[2:]] * 2),
    }
    embeddings = {"word": token, "position": place}
    return {"embeddings": embeddings, "layers": {"0": {"attention": _weights(own)}}, "head": {"weight": answer.T}}
