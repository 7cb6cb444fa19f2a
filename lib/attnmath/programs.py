"""Programs for a Transformer: three words in which they are thought, and weights that a small compiler makes of them.

A compiled program is a dict of parameters. Any Transformer of the library with ReLU networks and without norms runs it,
in both worlds; `logits` puts that Transformer together. All programs have one head in each layer.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import attnmath.numpy as an
from attnmath import _require
from attnmath._require import programs as require
from attnmath.wiring import PROJECTIONS

START, SEPARATOR = "^", "|"
STATES = ("balanced", "open", "broken")

# the language --------------------------------------------------------------------------------------------------------


def select(keys, queries, predicate):
    """Which keys each query selects: a square of truth values, queries down and keys across.

    Parameters
    ----------
    keys, queries : n values each, one for each place of a text.
    predicate : ``predicate(key, query)``, true if this query selects this key.

    Returns
    -------
    (n, n) of bool.

    References
    ----------
    Weiss, Goldberg and Yahav (2021). Chapter 9, def-rasp.

    Examples
    --------
    >>> select("aab", "aab", lambda k, q: k == q).astype(int)
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    return np.array([[bool(predicate(k, q)) for k in keys] for q in queries])


def aggregate(selector, values):
    """The mean of the values at the selected places, 0 where nothing is selected.

    Parameters
    ----------
    selector : (n, n) of bool, from `select`.
    values : n numbers.

    Returns
    -------
    (n,) numbers.

    References
    ----------
    Weiss, Goldberg and Yahav (2021). Chapter 9, def-rasp.

    Examples
    --------
    >>> aggregate(np.array([[True, True], [False, True]]), [1, 5])
    array([3., 5.])
    """
    return selector @ np.asarray(values, float) / np.maximum(selector_width(selector), 1)


def selector_width(selector):
    """How many keys each query selects.

    Examples
    --------
    >>> selector_width(select("aab", "aab", lambda k, q: k == q))
    array([2, 2, 1])
    """
    return selector.sum(-1)


# the compiler --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Weights, and what goes in and comes out.

    ``params`` are those of `decoder_only` with one head, ReLU networks and `bare_sublayer`, the keys of its twin's
    ``state_dict``; ``tokens`` are the characters by their numbers, and ``answers`` what each logit stands for.
    """

    params: dict
    tokens: str
    answers: tuple
    causal: bool
    parts: dict


def stream(**widths: int) -> dict:
    """Parts of the residual stream by name: for each the rows that write into its columns.

    Examples
    --------
    >>> stream(token=2, share=1)["share"]
    array([[0., 0., 1.]])
    """
    rows = np.eye(sum(widths.values()))
    return dict(zip(widths, np.split(rows, np.cumsum(list(widths.values()))[:-1]), strict=True))


def head(parts: dict, scores: dict, moves: dict) -> dict:
    r"""The weights of one head from the scores that it is to give and the parts that it is to move.

    .. math:: s_{ij} = \sum_{q, k} q_i\, M_{qk}\, k_j,\qquad \text{target}_i = \sum_j P_{ij}\,\text{source}_j\, M

    Parameters
    ----------
    parts : from `stream`.
    scores : ``{(part of the query, part of the key): M}``; empty for scores of 0.
    moves : ``{(source, target): M}``.

    Returns
    -------
    params : of `multi_head_attention` with one head; the root of the width is multiplied into the queries.

    References
    ----------
    Chapter 9, eq:compiled-head.

    Examples
    --------
    >>> parts = stream(token=2, seen=2)
    >>> own = head(parts, {("token", "token"): 3 * np.eye(2)}, {("token", "seen"): np.eye(2)})
    >>> X = np.eye(2, 4)
    >>> an.multi_head_attention(X, X, X, own, 1)[0].round(3)
    array([[0.   , 0.   , 0.953, 0.047],
           [0.   , 0.   , 0.047, 0.953]])
    """
    d = next(iter(parts.values())).shape[1]
    width = sum(parts[q].shape[0] for q, _ in scores) or 1
    query, key = np.zeros((d, width)), np.zeros((d, width))
    at = 0
    for (q, k), M in scores.items():
        columns = slice(at, at := at + parts[q].shape[0])
        query[:, columns] += np.sqrt(width) * parts[q].T  # eq:compiled-head
        key[:, columns] += parts[k].T @ np.asarray(M).T
    value = np.concatenate([parts[source].T @ M for (source, _), M in moves.items()], -1)
    output = np.concatenate([parts[target] for _, target in moves])
    return {name: {"weight": W} for name, W in zip(PROJECTIONS, (query, key, value, output), strict=True)}


def network(parts: dict, steps: list) -> dict:
    r"""The weights of a ReLU network of steps, two hidden units each.

    .. math:: \operatorname{step}(x) = \operatorname{relu}(ax + \tfrac12) - \operatorname{relu}(ax - \tfrac12)
              = \min(1, \max(0, ax + \tfrac12))

    Parameters
    ----------
    parts : from `stream`.
    steps : a tuple ``(reads, offset, a, target)`` for each: x is the sum of ``reads[part]`` times the part, plus the
        offset, and the step of x is added to ``target``, a row of the stream. No steps add nothing.

    Returns
    -------
    params : of `feed_forward` with the activation `relu`.

    References
    ----------
    Chapter 9, eq:compiled-step.

    Examples
    --------
    >>> parts = stream(x=1, big=1)
    >>> params = network(parts, [({"x": [1.0]}, -2.0, 10.0, parts["big"][0])])
    >>> an.feed_forward(np.array([[1.9, 0.0], [2.0, 0.0], [2.1, 0.0]]), params, an.relu)[0][:, 1]
    array([0. , 0.5, 1. ])
    """
    d = next(iter(parts.values())).shape[1]
    up, bias, down = (
        np.zeros((d, 2 * len(steps) or 1)),
        np.zeros(2 * len(steps) or 1),
        np.zeros((2 * len(steps) or 1, d)),
    )
    for i, (reads, offset, a, target) in enumerate(steps):
        row = sum(np.asarray(row) @ parts[part] for part, row in reads.items())
        for unit, half, sign in ((2 * i, 0.5, 1), (2 * i + 1, -0.5, -1)):
            up[:, unit], bias[unit] = a * row, a * offset + half  # eq:compiled-step
            down[unit] = sign * target
    return {"up": {"weight": up, "bias": bias}, "down": {"weight": down, "bias": np.zeros(d)}}


def _program(parts, embeddings, layers, answer, **known):
    """A program from its parts; a layer is a pair of a head and the steps of a network."""
    layers = {
        str(i): {"attention": own, "feed_forward": network(parts, steps)} for i, (own, steps) in enumerate(layers)
    }
    params = {"embeddings": embeddings, "layers": layers, "head": {"weight": answer}}
    return Program(params, parts=parts, **known)


# four programs -------------------------------------------------------------------------------------------------------


def histogram(letters: str, most: int, *, sharpness: float = 20.0) -> Program:
    r"""How often does my letter occur in this text? One layer.

    .. math:: w_i = \frac{1}{1 + c_i + m_i e^{-\beta}}

    Parameters
    ----------
    letters : different characters; the start token ^ comes in front of a text.
    most : N, the highest count that is told apart; the network has 2 N hidden units.
    sharpness : :math:`\beta > 0`, the score of an equal letter and of the start; all others have 0.

    Returns
    -------
    A program whose answers are 0, 1, …, N; the start token's own is 0. With c equal and m other letters the weight on
    the start token is w, and the answer is right for c < N exactly if :math:`m e^{-\beta} < 1/2`.

    Raises
    ------
    ValueError
        If a letter comes twice or is ^, most is no count or the sharpness not positive.

    References
    ----------
    Weiss, Goldberg and Yahav (2021), "histogram" with a start token. Chapter 9, thm-program-histogram.

    Examples
    --------
    >>> run(histogram("eir", 5), "^eerie")
    [0, 3, 3, 1, 1, 3]
    """
    require.letters(letters, START)
    _require.count("most", most)
    _require.positive("sharpness", sharpness)
    t = len(letters) + 1
    parts = stream(token=t, one=1, share=1, at_least=most)
    start = np.eye(t)[:1]
    same = np.eye(t) - start.T @ start
    own = head(
        parts,
        {("token", "token"): sharpness * (same + np.ones((t, 1)) @ start)},  # an equal letter, and the start
        {("token", "share"): start.T},
    )
    steps = [
        ({"share": [-1.0]}, 1 / (k + 0.5), 2 * (k + 0.25) * (k + 0.5), parts["at_least"][k - 1])
        for k in range(1, most + 1)
    ]  # eq:program-histogram
    counts = np.eye(most, most + 1, 1) - np.eye(most, most + 1)  # k counts if at least k, and not k + 1
    answer = parts["at_least"].T @ counts + np.outer(parts["one"], np.eye(most + 1)[0])
    word = parts["token"] + parts["one"]
    known = {"tokens": START + letters, "answers": tuple(range(most + 1)), "causal": False}
    return _program(parts, {"word": word}, [(own, steps)], answer, **known)


def brackets(depth: int, most: int) -> Program:
    r"""Are the brackets so far balanced, and never deeper than D? Two layers.

    .. math:: \bar b_i = \frac{b_i}{i+1},\qquad r_i = \frac1{i+1}

    Parameters
    ----------
    depth : D, how many brackets may be open at once.
    most : N; texts of up to 2 N tokens, the start token among them, are judged without any error.

    Returns
    -------
    A program that says at each place "balanced", "open" (something may still close it) or "broken". All its weights of
    attention are even, so no sharpness is needed.

    Raises
    ------
    ValueError
        If depth or most is no count.

    References
    ----------
    Weiss, Goldberg and Yahav (2021) and Yao et al. (2021) have such programs. Chapter 9, thm-program-brackets.

    Examples
    --------
    >>> run(brackets(2, 8), "^(())")
    ['balanced', 'open', 'open', 'open', 'balanced']
    >>> run(brackets(1, 8), "^(())")[-1]
    'broken'
    """
    _require.count("depth", depth)
    _require.count("most", most)
    parts = stream(token=3, one=1, balance=1, share=1, open=1, broken=1, ever=1, dead=1)
    start, step = np.array([[1.0], [0.0], [0.0]]), np.array([[0.0], [1.0], [-1.0]])
    first = head(parts, {}, {("token", "balance"): step, ("token", "share"): start})
    a = 2.0 * most
    steps = [
        ({"balance": [1.0], "share": [-0.5]}, 0.0, a, parts["open"][0]),  # b >= 1
        ({"balance": [-1.0], "share": [-0.5]}, 0.0, a, parts["broken"][0]),  # b <= -1
        ({"balance": [1.0], "share": [-depth - 0.5]}, 0.0, a, parts["broken"][0]),  # b >= D + 1
    ]  # eq:program-brackets
    second = head(parts, {}, {("broken", "ever"): np.eye(1)})
    once = [({"ever": [1.0], "share": [-0.5]}, 0.0, a, parts["dead"][0])]  # one of the i + 1 places, or more
    answer = (
        np.outer(parts["one"], [1.0, 0.0, 0.0])
        + np.outer(parts["open"], [-1.0, 1.0, 0.0])
        + np.outer(parts["dead"], [-2.0, -2.0, 1.0])
    )
    known = {"tokens": START + "()", "answers": STATES, "causal": True}
    layers = [(first, steps), (second, once)]
    return _program(parts, {"word": parts["token"] + parts["one"]}, layers, answer, **known)


def writer(letters: str, places: int, *, backwards: bool = False, sharpness: tuple = (30.0, 20.0), gain: float = 10.0):
    r"""Write the word before the separator once more, or backwards, letter by letter. Two layers.

    .. math:: s_{ij} = \beta_2\,(2 t_i j - j^2),\qquad t_i = i - s + 1\ \text{ or }\ 2s - i - 1

    Parameters
    ----------
    letters : different characters, none of them ``^`` or ``|``.
    places : the longest text with ``^``, ``|`` and what is written; the width does not depend on it.
    backwards : write the word backwards.
    sharpness : :math:`\beta_1, \beta_2 > 0`, of the head that looks at the separator and of the head that looks at
        place t; the first must grow with the logarithm of the length.
    gain : :math:`\gamma > 0`, the logit of a letter that has all the attention.

    Returns
    -------
    A program whose answers are the tokens; after the word it says ``|``, or ``^`` if it writes backwards.

    Raises
    ------
    ValueError
        If a letter comes twice or is ``^`` or ``|``, places is no count, or a number is not positive.

    References
    ----------
    Weiss, Goldberg and Yahav (2021), "reverse". Chapter 9, eq:program-writer, thm-program-writer.

    Examples
    --------
    >>> again = writer("abc", 12)
    >>> write(again, "cab"), write(writer("abc", 12, backwards=True), "cab")
    ('cab|', 'bac^')
    """
    require.letters(letters, START + SEPARATOR)
    _require.count("places", places)
    for name, value in (("sharpness[0]", sharpness[0]), ("sharpness[1]", sharpness[1]), ("gain", gain)):
        _require.positive(name, value)
    tokens = START + letters + SEPARATOR
    t = len(tokens)
    parts = stream(token=t, one=1, place=1, square=1, end=1, answer=t)
    last, one = np.eye(t)[-1:], np.eye(1)
    first = head(parts, {("one", "token"): sharpness[0] * last}, {("place", "end"): one})
    of_end, of_place = (2.0, -1.0) if backwards else (-1.0, 1.0)
    asked = {"end": of_end, "place": of_place, "one": of_place}  # t, linear in what the place knows
    moves = {("token", "answer"): gain * np.eye(t)}
    second = _towards(parts, asked, sharpness[1], moves)  # eq:program-writer
    i = np.arange(places)[:, None]
    position = parts["one"] + i * parts["place"] + i * i * parts["square"]
    known = {"tokens": tokens, "answers": tuple(tokens), "causal": True}
    layers = [(first, []), (second, [])]
    return _program(parts, {"word": parts["token"], "position": position}, layers, parts["answer"].T, **known)


def _towards(parts, asked, beta, moves):
    """A head whose score is highest at the place t that is asked for: beta (2 t j - j^2)."""
    parts = parts | {"asked": sum(factor * parts[name] for name, factor in asked.items())}
    scores = {("asked", "place"): 2 * beta * np.eye(1), ("one", "square"): -beta * np.eye(1)}
    return head(parts, scores, moves)


# running them --------------------------------------------------------------------------------------------------------


def numbers(program: Program, text: str):
    """A text as the numbers of its tokens.

    Raises
    ------
    ValueError
        If it has a character that the program does not know, or does not begin with ^.

    Examples
    --------
    >>> numbers(brackets(1, 4), "^()")
    array([0, 1, 2])
    """
    require.text(text, program.tokens)
    return np.array([program.tokens.index(character) for character in text])


def logits(program: Program, ids, world=an, **options):
    """Run a program in the library's Transformer.

    Parameters
    ----------
    program : with parameters of the world, see `attnmath.torch.modules.from_numpy`.
    ids : (..., n) tokens by number.
    world : `attnmath.numpy` or `attnmath.torch`.
    options : of `encoder`, such as a core ``attend``, a ``record``, or another ``join`` than `bare_sublayer`.

    Returns
    -------
    (..., n, answers), without a vjp.

    Raises
    ------
    ValueError
        If there are more tokens than the program has places for.

    Examples
    --------
    >>> program = histogram("ab", 3)
    >>> logits(program, numbers(program, "^aab")).round(2) + 0.0
    array([[1., 0., 0., 0.],
           [0., 0., 1., 0.],
           [0., 0., 1., 0.],
           [0., 1., 0., 0.]])
    """
    params, n = program.params, ids.shape[-1]
    if "position" in params["embeddings"]:
        require.length(n, len(params["embeddings"]["position"]))
    X = _value(world.token_embedding(ids, params["embeddings"]))
    mask = world.causal_mask(n) if program.causal else True
    relus = partial(world.feed_forward, activation=world.relu)
    parts = {"join": world.bare_sublayer, "feed_forward": relus} | options
    Y = _value(world.encoder(X, {"layers": params["layers"]}, 1, mask, **parts))
    return _value(world.logits(Y, params))


def _value(made):
    """What a function returns in either world: NumPy's have a vjp beside it."""
    return made[0] if isinstance(made, tuple) else made


def with_norms(program: Program, size: float = 1e6) -> Program:
    r"""The same program for layers with pre-norm and layer norm: all of its stream twice, and two large constants.

    .. math:: x \mapsto (x, -x, M, -M),\qquad \operatorname{norm}(x, -x, M, -M) = \frac{(x, -x, M, -M)}
              {\sqrt{1 + \lVert x\rVert^2 / M^2}}\quad\text{with all gains } \frac{M}{\sqrt{d + 1}}

    Parameters
    ----------
    program : for `bare_sublayer`.
    size : M, much larger than the rows of the stream.

    Returns
    -------
    A program of width 2 d + 2, for `logits` with ``join=partial(world.sublayer, norm_first=True)``.

    Raises
    ------
    ValueError
        If the size is not positive.

    References
    ----------
    Chapter 9, lem-program-norm.

    Examples
    --------
    >>> program = with_norms(histogram("ab", 3))
    >>> run(program, "^aab", join=partial(an.sublayer, norm_first=True))
    [0, 2, 2, 1]
    """
    _require.positive("size", size)
    d = program.params["head"]["weight"].shape[0]
    read = np.eye(2 * d + 2, d)
    writes = np.eye(d, 2 * d + 2) - np.eye(d, 2 * d + 2, d)
    constants = np.concatenate([np.zeros(2 * d), [size, -size]])
    norm = {"gain": np.full(2 * d + 2, size / np.sqrt(d + 1)), "bias": np.zeros(2 * d + 2)}

    def layer(own):
        heads, net = own["attention"], own["feed_forward"]
        reads = {name: {"weight": read @ heads[name]["weight"]} for name in ("query", "key", "value")}
        up = net["up"] | {"weight": read @ net["up"]["weight"]}
        return {
            "attention": reads | {"output": {"weight": heads["output"]["weight"] @ writes}},
            "attention_norm": norm,
            "feed_forward": {"up": up, "down": {name: leaf @ writes for name, leaf in net["down"].items()}},
            "feed_forward_norm": norm,
        }

    tables = {name: table @ writes for name, table in program.params["embeddings"].items()}
    params = {
        "embeddings": tables | {"word": tables["word"] + constants},
        "layers": {i: layer(own) for i, own in program.params["layers"].items()},
        "head": {"weight": read @ program.params["head"]["weight"]},
    }
    parts = {name: rows @ writes for name, rows in program.parts.items()}
    return replace(program, params=params, parts=parts)


def run(program: Program, text: str, **options) -> list:
    """What a program answers at each place of a text.

    Examples
    --------
    >>> run(brackets(3, 8), "^())(")
    ['balanced', 'open', 'balanced', 'broken', 'broken']
    """
    return [program.answers[k] for k in logits(program, numbers(program, text), **options).argmax(-1)]


def write(program: Program, word: str, **options) -> str:
    """Let a `writer` write, each letter behind those that it has written, until it writes its end.

    Examples
    --------
    >>> write(writer("abc", 20, backwards=True), "abca")
    'acba^'
    """
    require.word(word, program.tokens[1:-1])
    text = START + word + SEPARATOR
    written = ""
    for _ in range(len(word) + 1):
        written += run(program, text + written, **options)[-1]
        if written[-1] in (START, SEPARATOR):
            break
    return written


def writer_error(n: int, backwards: bool = False, sharpness: tuple = (30.0, 20.0)) -> tuple[float, float]:
    r"""How far a `writer` misses the place that it asks for, and the most that it attends to other places.

    .. math:: \xi = \frac{a\,s(s+1)/2}{e^{\beta_1} + s},\qquad \delta = \frac{2}{e^{\beta_2(1 - 2\xi)} - 1}

    Parameters
    ----------
    n : letters of the word; the separator stands at s = n + 1.
    backwards, sharpness : as in `writer`; a is 2 backwards, else 1.

    Returns
    -------
    xi, delta : the first for the first letter that is written, where it is largest; it must be less than 1/2. The
        second is infinite if it is not.

    References
    ----------
    Chapter 9, eq:program-writer-error, thm-program-writer.

    Examples
    --------
    >>> xi, delta = writer_error(10)
    >>> f"{xi:.1e} {delta:.1e}"
    '6.2e-12 4.1e-09'
    """
    s = n + 1
    xi = (2 if backwards else 1) * s * (s + 1) / 2 / (np.exp(sharpness[0]) + s)
    if xi >= 0.5:
        return float(xi), float("inf")
    return float(xi), float(2 / np.expm1(sharpness[1] * (1 - 2 * xi)))  # eq:program-writer-error
