"""Problem set 8 and what people get wrong in it; the parts are as in set6.py."""

from batteries.changes import changed

RIGHT = {
    "pairs_answer": """\
def learn(words, most):
    spelt = {word: [word[i : i + 1] for i in range(len(word))] for word in words}
    merges = []
    for _ in range(most):
        worth = {}
        for word, tokens in spelt.items():
            free = {}
            for i in range(len(tokens) - 1):
                pair = tokens[i], tokens[i + 1]
                if free.get(pair, 0) <= i:
                    worth[pair] = worth.get(pair, 0) + words[word]
                    free[pair] = i + 2
        order = sorted(worth, key=lambda p: (-worth[p], -len(p[0]) - len(p[1]), p))
        if not order or worth[order[0]] < 2:
            break
        best = order[0]
        merges.append(best)
        for word, tokens in spelt.items():
            i = 0
            while i + 1 < len(tokens):
                if (tokens[i], tokens[i + 1]) == best:
                    tokens[i : i + 2] = [best[0] + best[1]]
                i += 1
    return merges, spelt
""",
    "bits_answer": """\
def bits_per_byte(score, ids, sizes, length, step):
    n = len(ids)
    if not any(sizes):
        raise ValueError("no bytes: there is nothing to divide by")
    ends = list(range(min(length, n), n, step)) + [n]
    nats = np.zeros(n)
    scored = 0
    for end in ends:
        start = max(end - length, 0)
        values = score(ids[start:end])
        nats[scored:end] = -np.array(values, dtype=float)[scored - start :]
        scored = end
    return nats.sum() / np.log(2) / sum(sizes)
""",
    "kneser_answer": """\
def kneser_ney(texts, size, discount):
    if discount <= 0 or discount >= 1:
        raise ValueError(f"a discount of {discount}")
    count = {}
    for text in texts:
        for u, w in zip(text, text[1:]):
            count[u, w] = count.get((u, w), 0) + 1
    before, after, total = [0] * size, [0] * size, [0] * size
    for (u, w), times in count.items():
        after[u] += 1
        before[w] += 1
        total[u] += times
    pairs = sum(before)
    different = sum(b > 0 for b in before)
    if pairs:
        q = [(max(b - discount, 0) + discount * different / size) / pairs for b in before]
    else:
        q = [1 / size] * size
    table = np.zeros((size, size))
    for u in range(size):
        for w in range(size):
            if total[u]:
                kept = max(count.get((u, w), 0) - discount, 0)
                table[u, w] = (kept + discount * after[u] * q[w]) / total[u]
            else:
                table[u, w] = q[w]
    return table
""",
    "nucleus_answer": """\
def nucleus(logits, p, temperature):
    rows = logits.reshape(-1, logits.shape[-1])
    out = torch.zeros_like(rows)
    for row, result in zip(rows.tolist(), out, strict=True):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))
        top = float(row[order[0]])
        chances = [math.exp(float(row[i]) - top) for i in order]
        total = math.fsum(chances)
        kept = []
        reached = 0.0
        for i, chance in zip(order, chances, strict=True):
            if kept and p < 1 and reached >= p * total:
                break
            if row[i] > -math.inf:
                kept.append(i)
            reached += chance
        if temperature == 0:
            kept = kept[:1]
            weights = [1.0]
        else:
            weights = [math.exp((float(row[i]) - top) / temperature) for i in kept]
        for i, weight in zip(kept, weights, strict=True):
            result[i] = weight / math.fsum(weights)
    return out.reshape(logits.shape)
""",
    "patches_answer": """\
def patch_rows(X, A, b, s, t):
    H, W, C = X.shape[-3:]
    if min(H, W) < s:
        raise ValueError("the picture is smaller than a square")
    down, across = (H - s) // t + 1, (W - s) // t + 1
    windows = np.lib.stride_tricks.sliding_window_view(X, (s, s), axis=(-3, -2))
    windows = np.moveaxis(windows[..., ::t, ::t, :, :, :], -3, -1)
    P = windows.reshape(*X.shape[:-3], down * across, s * s * C)
    P = P - P.mean(-1, keepdims=True)
    Y = np.einsum("...np,pd->...nd", P, A) + b

    def vjp(dY):
        dA = np.einsum("bnp,bnd->pd", P.reshape(-1, *P.shape[-2:]), dY.reshape(-1, *dY.shape[-2:]))
        db = dY.reshape(-1, dY.shape[-1]).sum(0)
        dP = np.einsum("...nd,pd->...np", dY, A)
        dP = dP - dP.mean(-1, keepdims=True)
        squares = dP.reshape(*X.shape[:-3], down, across, s, s, C)
        dX = np.zeros_like(X)
        for u in range(s):
            for v in range(s):
                place = (..., slice(u, u + t * down - t + 1, t), slice(v, v + t * across - t + 1, t), slice(None))
                dX[place] += squares[..., u, v, :]
        return dX, dA, db

    return Y, vjp
""",
    "captions_answer": """\
def contrast(X, Y, classes, tau):
    B = X.shape[0]
    lengths = [np.sqrt((M * M).sum(1))[:, None] for M in (X, Y)]
    x, y = X / lengths[0], Y / lengths[1]
    cosines = x @ y.T
    scale = X.dtype.type(math.exp(tau))
    S = scale * cosines
    T = np.zeros_like(S)
    for i in range(B):
        right = np.flatnonzero(classes == classes[i])
        T[i, right] = 1 / len(right)
    P = np.exp(S - S.max(1, keepdims=True))
    P = P / P.sum(1, keepdims=True)
    R = np.exp(S - S.max(0, keepdims=True))
    R = R / R.sum(0, keepdims=True)
    by_caption = np.logaddexp.reduce(S, axis=1)[:, None] - S
    by_picture = np.logaddexp.reduce(S, axis=0)[None, :] - S
    L = (T * (by_caption + by_picture)).sum() / (2 * B)

    def vjp(dL):
        dS = (X.dtype.type(dL) / (2 * B)) * ((P - T) + (R - T))
        dC = scale * dS
        dx, dy = dC @ y, dC.T @ x
        dX = (dx - (dx * x).sum(1)[:, None] * x) / lengths[0]
        dY = (dy - (dy * y).sum(1)[:, None] * y) / lengths[1]
        return dX, dY, float((dC * cosines).sum())

    return L, vjp
""",
    "coupled_answer": """\
def coupled_step(x, h, c, W, U, b, p):
    d = c.shape[-1]
    z = np.einsum("...n,nk->...k", x, W) + np.einsum("...d,dk->...k", h, U) + b

    def gate(y):
        e = np.exp(-np.abs(y))
        return np.where(y > 0, 1 / (1 + e), e / (1 + e)).astype(y.dtype)

    f = gate(z[..., :d] + 1)
    g = np.tanh(z[..., 2 * d :])
    new = g + f * (c - g)
    o = gate(z[..., d : 2 * d] + p * new)
    t = np.tanh(new)

    def vjp(dh, dc):
        dz = np.zeros_like(z)
        dz[..., d : 2 * d] = dh * t * o * (1 - o)
        dnew = dc + dh * o * (1 - t**2)
        dnew = dnew + dz[..., d : 2 * d] * p
        dz[..., :d] = dnew * (c - g) * f * (1 - f)
        dz[..., 2 * d :] = dnew * (1 - f) * (1 - g**2)
        axes = tuple(range(z.ndim - 1))
        dW = np.tensordot(x, dz, (axes, axes))
        dU = np.tensordot(h, dz, (axes, axes))
        db = dz.sum(axes)
        dp = (dz[..., d : 2 * d] * new).sum(axes)
        return dz @ W.T, dz @ U.T, dnew * f, dW, dU, db, dp

    return (o * t, new), vjp
""",
    "triangle_answer": """\
def triangles(A, B, known):
    n = A.shape[-2]
    seen = known.clone()
    seen[..., range(n), range(n)] = False
    first = A.masked_fill(~seen[..., None], 0)
    second = B.masked_fill(~seen[..., None], 0)
    total = torch.einsum("...ikc,...jkc->...ijc", first, second)
    weight = seen.to(A.dtype)
    count = torch.einsum("...ik,...jk->...ij", weight, weight)
    none = count == 0
    return total / torch.where(none, torch.ones_like(count), count)[..., None]
""",
    "descent_answer": """\
def predictions(X, y, Q, mask, rates, decay):
    clean = np.zeros_like(X)
    clean[mask] = X[mask]
    goal = np.zeros_like(y)
    goal[mask] = y[mask]
    rows = np.concatenate([Q, clean], axis=-2)
    scores = np.einsum("...rd,...md->...rm", rows, clean)
    n = Q.shape[-2]
    count = np.maximum(np.count_nonzero(mask, axis=-1), 1)[..., None]
    guess = np.zeros(rows.shape[:-1], X.dtype)
    history = [guess[..., :n]]
    for rate in rates:
        left = (goal - guess[..., n:]) / count
        guess = guess * (1 - rate * decay) + rate * np.einsum("...rm,...m->...r", scores, left)
        guess = guess.astype(X.dtype)
        history.append(guess[..., :n])
    return np.stack(history)
""",
    "adapters_answer": """\
def merge(W, adapters):
    if not all(part in range(3) for part, *_ in adapters):
        raise ValueError("a part must be 0, 1 or 2")
    wide = []
    for part, A, B, alpha, w in adapters:
        s = alpha * w / max(A.shape[1], 1) ** 0.5
        wide.append((part, A.astype(np.float64), B.astype(np.float64), s))
    parts = [P.astype(np.float64) for P in np.split(W, 3, axis=1)]
    for part, A, B, s in wide:
        parts[part] = parts[part] + s * A @ B
    M = np.concatenate(parts, 1).astype(W.dtype)

    def vjp(dM):
        grads = np.split(dM.astype(np.float64), 3, axis=1)
        factors = []
        for part, A, B, s in wide:
            G = grads[part]
            factors.append(((s * G @ B.T).astype(W.dtype), (s * A.T @ G).astype(W.dtype)))
        return np.array(dM), factors

    return M, vjp
""",
    "valleys_answer": """\
def valleys(N, C, L):
    N, C, L = (np.array(X, dtype=float) for X in (N, C, L))
    budgets = sorted(set(C.tolist()))
    x = np.log(N)
    middle = {b: x[C == b].mean() for b in budgets}
    z = x - np.array([middle[b] for b in C.tolist()])
    design = np.zeros((len(x), 2 * len(budgets) + 1))
    for i, b in enumerate(budgets):
        own = C == b
        design[own, 2 * i] = 1
        design[own, 2 * i + 1] = z[own]
    design[:, -1] = z * z
    solution = np.linalg.lstsq(design, L, rcond=None)[0]
    q = solution[-1]
    if not q > 0:
        raise ValueError("no valley")
    m = np.array([middle[b] - solution[2 * i + 1] / (2 * q) for i, b in enumerate(budgets)])
    if len(budgets) < 2:
        return np.exp(m), float("nan")
    a = np.polyfit(np.log(budgets), m, 1)[0]
    return np.exp(m), a
""",
}


def fault(exercise, *changes):
    """The right answer to an exercise with words exchanged."""
    return {f"{exercise}_answer": changed(RIGHT[f"{exercise}_answer"], *changes)}


WRONG = {
    "pairs": {
        "overlapping": ("counts pairs that overlap", fault("pairs", ("if free.get(pair, 0) <= i:", "if True:"))),
        "each-word-once": (
            "counts every word once",
            fault("pairs", ("worth.get(pair, 0) + words[word]", "worth.get(pair, 0) + 1")),
        ),
        "types": ("counts a pair once a word", fault("pairs", ("if free.get(pair, 0) <= i:", "if pair not in free:"))),
        "first-seen": (
            "takes the first of equal pairs",
            fault("pairs", ("key=lambda p: (-worth[p], -len(p[0]) - len(p[1]), p)", "key=lambda p: -worth[p]")),
        ),
        "no-length": ("takes the smallest pair of equal ones", fault("pairs", ("-len(p[0]) - len(p[1]), p)", "p)"))),
        "shortest": (
            "takes the shortest token of equal ones",
            fault("pairs", ("-len(p[0]) - len(p[1]), p)", "len(p[0]) + len(p[1]), p)")),
        ),
        "largest": (
            "takes the largest pair of equal ones",
            fault(
                "pairs",
                (
                    "order = sorted(worth, key=lambda p: (-worth[p], -len(p[0]) - len(p[1]), p))",
                    ("order = sorted(sorted(worth, reverse=True), key=lambda p: (-worth[p], -len(p[0]) - len(p[1])))"),
                ),
            ),
        ),
        "to-one": (
            "goes on while a pair would make one replacement",
            fault("pairs", ("worth[order[0]] < 2", "worth[order[0]] < 1")),
        ),
        "until-two": ("stops at two replacements", fault("pairs", ("worth[order[0]] < 2", "worth[order[0]] <= 2"))),
        "once-a-word": (
            "replaces once a word",
            fault(
                "pairs",
                (
                    "                    tokens[i : i + 2] = [best[0] + best[1]]",
                    "                    tokens[i : i + 2] = [best[0] + best[1]]\n                    break",
                ),
            ),
        ),
        "from-right": (
            "replaces from the right",
            fault(
                "pairs",
                (
                    (
                        "            i = 0\n"
                        "            while i + 1 < len(tokens):\n"
                        "                if (tokens[i], tokens[i + 1]) == best:\n"
                        "                    tokens[i : i + 2] = [best[0] + best[1]]\n"
                        "                i += 1"
                    ),
                    (
                        "            i = len(tokens) - 2\n"
                        "            while i >= 0:\n"
                        "                if tuple(tokens[i : i + 2]) == best:\n"
                        "                    tokens[i : i + 2] = [best[0] + best[1]]\n"
                        "                i -= 1"
                    ),
                ),
            ),
        ),
        "one-less": ("makes one merge too few", fault("pairs", ("for _ in range(most):", "for _ in range(most - 1):"))),
        "joined": (
            "returns merged tokens instead of pairs",
            fault("pairs", ("return merges, spelt", "return [a + b for a, b in merges], spelt")),
        ),
        "across": (
            "lets tokens cross words",
            {
                "pairs_answer": """\
def learn(words, most):
    tokens = [bytes([b]) for word, count in words.items() for _ in range(count) for b in word]
    merges = []
    for _ in range(most):
        worth = {}
        free = {}
        for i, pair in enumerate(zip(tokens, tokens[1:], strict=False)):
            if free.get(pair, 0) <= i:
                worth[pair] = worth.get(pair, 0) + 1
                free[pair] = i + 2
        order = sorted(worth, key=lambda p: (-worth[p], -len(p[0]) - len(p[1]), p))
        if not order or worth[order[0]] < 2:
            break
        merges.append(order[0])
        i = 0
        while i + 1 < len(tokens):
            if (tokens[i], tokens[i + 1]) == order[0]:
                tokens[i : i + 2] = [tokens[i] + tokens[i + 1]]
            i += 1
    spelt = {}
    for word in words:
        spelt[word] = [word[i : i + 1] for i in range(len(word))]
        for a, b in merges:
            i = 0
            while i + 1 < len(spelt[word]):
                if (spelt[word][i], spelt[word][i + 1]) == (a, b):
                    spelt[word][i : i + 2] = [a + b]
                i += 1
    return merges, spelt
"""
            },
        ),
        "drops-empty": ("leaves out empty words", fault("pairs", ("for word in words}", "for word in words if word}"))),
        "strings": (
            "works on characters",
            fault(
                "pairs",
                (
                    "spelt = {word: [word[i : i + 1] for i in range(len(word))] for word in words}",
                    "spelt = {word: [c.encode() for c in word.decode(errors='replace')] for word in words}",
                ),
            ),
        ),
        "changes": (
            "uses up the counts",
            fault("pairs", ("    spelt = {word:", "    words.setdefault(b'', 1)\n    spelt = {word:")),
        ),
        "joined-tie": (
            "last tie broken by the merged token instead of the tuple",
            {
                "pairs_answer": """\
def replace(tokens, pair):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def learn(words, most):
    spelt = {w: [w[i:i + 1] for i in range(len(w))] for w in words}
    merges = []
    while len(merges) < most:
        worth = {}
        for w, tokens in spelt.items():
            for pair in set(zip(tokens, tokens[1:])):
                made = len(tokens) - len(replace(tokens, pair))
                worth[pair] = worth.get(pair, 0) + made * words[w]
        if not worth:
            break
        best = min(worth, key=lambda q: (-worth[q], -len(q[0] + q[1]), q[0] + q[1]))
        if worth[best] < 2:
            break
        merges.append(best)
        spelt = {w: replace(tokens, best) for w, tokens in spelt.items()}
    return merges, spelt
"""
            },
        ),
        "look-around": (
            "regular expression with look-around on tokens joined by spaces: only words that hold white space break",
            {
                "pairs_answer": """\
import re


def learn(words, most):
    text = {w: b" ".join(bytes([v]) for v in w) for w in words}
    merges = []

    def pattern(a, b):
        return re.compile(rb"(?<!\\S)" + re.escape(a + b" " + b) + rb"(?!\\S)")

    while len(merges) < most:
        worth = {}
        for w, t in text.items():
            tokens = t.split()
            for pair in set(zip(tokens, tokens[1:])):
                worth[pair] = worth.get(pair, 0) + len(pattern(*pair).findall(t)) * words[w]
        if not worth or max(worth.values()) < 2:
            break
        best = min(worth, key=lambda q: (-worth[q], -len(q[0] + q[1]), q))
        merges.append(best)
        made = best[0] + best[1]
        text = {w: pattern(*best).sub(lambda m: made, t) for w, t in text.items()}
    return merges, {w: t.split() for w, t in text.items()}
"""
            },
        ),
        "characters": (
            "length of the tie in characters (utf-8 decoded) instead of bytes",
            {
                "pairs_answer": """\
def replace(tokens, pair):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def learn(words, most):
    spelt = {w: [w[i:i + 1] for i in range(len(w))] for w in words}
    merges = []
    while len(merges) < most:
        worth = {}
        for w, tokens in spelt.items():
            for pair in set(zip(tokens, tokens[1:])):
                made = len(tokens) - len(replace(tokens, pair))
                worth[pair] = worth.get(pair, 0) + made * words[w]
        if not worth:
            break
        best = min(worth, key=lambda q: (-worth[q], -len((q[0] + q[1]).decode('utf-8', 'replace')), q))
        if worth[best] < 2:
            break
        merges.append(best)
        spelt = {w: replace(tokens, best) for w, tokens in spelt.items()}
    return merges, spelt
"""
            },
        ),
        "half-of-all": (
            "a count of 1 for pairs of equal tokens as half of all (a,a) in the word, rounded up, instead of per run",
            {
                "pairs_answer": """\
def replace(tokens, pair):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def learn(words, most):
    spelt = {w: [w[i:i + 1] for i in range(len(w))] for w in words}
    merges = []
    while len(merges) < most:
        worth = {}
        for w, tokens in spelt.items():
            for pair in set(zip(tokens, tokens[1:])):
                made = sum(t == pair for t in zip(tokens, tokens[1:]))
                if pair[0] == pair[1]:
                    made = (made + 1) // 2
                worth[pair] = worth.get(pair, 0) + made * words[w]
        if not worth:
            break
        best = min(worth, key=lambda q: (-worth[q], -len(q[0] + q[1]), q))
        if worth[best] < 2:
            break
        merges.append(best)
        spelt = {w: replace(tokens, best) for w, tokens in spelt.items()}
    return merges, spelt
"""
            },
        ),
        "lower-case": (
            "decides ties among pairs as lower-case text instead of bytes",
            {
                "pairs_answer": """\
def replace(tokens, pair):
    out, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(tokens[i])
            i += 1
    return out


def learn(words, most):
    spelt = {w: [w[i:i + 1] for i in range(len(w))] for w in words}
    merges = []
    while len(merges) < most:
        worth = {}
        for w, tokens in spelt.items():
            for pair in set(zip(tokens, tokens[1:])):
                made = len(tokens) - len(replace(tokens, pair))
                worth[pair] = worth.get(pair, 0) + made * words[w]
        if not worth:
            break
        low = {q: tuple(v.decode('latin-1').lower() for v in q) for q in worth}
        best = min(worth, key=lambda q: (-worth[q], -len(q[0] + q[1]), low[q], q))
        if worth[best] < 2:
            break
        merges.append(best)
        spelt = {w: replace(tokens, best) for w, tokens in spelt.items()}
    return merges, spelt
"""
            },
        ),
    },
    "bits": {
        "nats": ("forgets to divide by log 2", fault("bits", (" / np.log(2)", ""))),
        "times": ("multiplies by log 2", fault("bits", (" / np.log(2)", " * np.log(2)"))),
        "per-token": (
            "divides by the number of tokens",
            fault("bits", ("/ np.log(2) / sum(sizes)", "/ np.log(2) / n")),
        ),
        "mean-of-means": (
            "takes the mean of each token's bits for a byte",
            fault(
                "bits",
                (
                    "return nats.sum() / np.log(2) / sum(sizes)",
                    "return np.mean(nats / np.maximum(sizes, 1)) / np.log(2)",
                ),
            ),
        ),
        "sign": ("has the sign of a logarithm", fault("bits", ("= -np.array", "= np.array"))),
        "again": (
            "counts tokens of each window again",
            fault(
                "bits",
                (
                    "        nats[scored:end] = -np.array(values, dtype=float)[scored - start :]",
                    "        nats[start:end] += -np.array(values, dtype=float)",
                ),
            ),
        ),
        "last-window": (
            "lets the last window score its tokens again",
            fault(
                "bits",
                (
                    "        nats[scored:end] = -np.array(values, dtype=float)[scored - start :]",
                    "        nats[start:end] = -np.array(values, dtype=float)",
                ),
            ),
        ),
        "chunks": (
            "cuts the text into windows without overlap",
            fault(
                "bits",
                ("list(range(min(length, n), n, step))", "list(range(min(length, n), n, length))"),
                ("start = max(end - length, 0)", "start = scored"),
            ),
        ),
        "short-context": (
            "lets a window hold only the new tokens",
            fault("bits", ("start = max(end - length, 0)", "start = scored")),
        ),
        "drop-first": ("leaves out the first token", fault("bits", ("return nats.sum()", "return nats[1:].sum()"))),
        "drop-rest": (
            "leaves out the last, shorter step",
            fault("bits", ("list(range(min(length, n), n, step)) + [n]", "list(range(min(length, n), n + 1, step))")),
        ),
        "last-short": (
            "lets the last window be shorter",
            fault(
                "bits",
                (
                    "start = max(end - length, 0)",
                    "start = max(ends[ends.index(end) - 1] + step - length, 0) if end != ends[0] else 0",
                ),
            ),
        ),
        "step-first": (
            "begins with a window of one step",
            fault("bits", ("list(range(min(length, n), n, step))", "list(range(min(step, n), n, step))")),
        ),
        "begins-at-step": (
            "lets windows begin at multiples of the step and end at the text's end",
            fault("bits", ("start = max(end - length, 0)", "start = max(end - length, 0) // step * step")),
        ),
        "an-empty-window": (
            "calls for a window without a new token",
            fault("bits", ("range(min(length, n), n, step)", "range(min(length, n), n + 1, step)")),
        ),
        "no-error": ("returns nan for a text without bytes", fault("bits", ("if not any(sizes):", "if False:"))),
        "zero-is-one": (
            "counts a token without a byte as one byte",
            fault("bits", ("/ sum(sizes)", "/ sum(max(s, 1) for s in sizes)")),
        ),
        "drops-empty": (
            "leaves out the bits of tokens without a byte",
            fault("bits", ("return nats.sum()", "return (nats * (np.array(sizes) > 0)).sum()")),
        ),
        "everything-at-once": (
            "scores the whole text in one window",
            fault(
                "bits",
                ("list(range(min(length, n), n, step)) + [n]", "[n]"),
                ("start = max(end - length, 0)", "start = 0"),
            ),
        ),
        "single": ("adds in half precision", fault("bits", ("nats = np.zeros(n)", "nats = np.zeros(n, np.float16)"))),
        "cached": (
            "caches the scores of equal windows, so score is called less often",
            {
                "bits_answer": """\
import numpy as np


def bits_per_byte(score, ids, sizes, length, step):
    total = sum(sizes)
    if total == 0:
        raise ValueError("no bytes")
    n = len(ids)
    nats, done = 0.0, 0
    cache = {}
    end = min(length, n)
    while done < n:
        begin = max(end - length, 0)
        key = tuple(ids[begin:end])
        if key not in cache:
            cache[key] = np.asarray(score(list(key)), dtype=np.float64)
        logp = cache[key]
        nats -= logp[done - begin:].sum()
        done = end
        end = min(end + step, n)
    return float(nats / np.log(2) / total)
"""
            },
        ),
    },
    "kneser": {
        "counts-below": (
            "takes counts of words for q",
            fault("kneser", ("        before[w] += 1\n", "        before[w] += times\n")),
        ),
        "followers-below": (
            "counts what follows in q",
            fault("kneser", ("        before[w] += 1\n", "        before[u] += 1\n")),
        ),
        "after-swapped": (
            "counts the words before in the weight",
            fault("kneser", ("discount * after[u] * q[w]", "discount * before[u] * q[w]")),
        ),
        "no-discount": (
            "discounts nothing and mixes",
            fault("kneser", ("max(count.get((u, w), 0) - discount, 0)", "count.get((u, w), 0)")),
        ),
        "no-weight": ("gives out one discount", fault("kneser", ("discount * after[u] * q[w]", "discount * q[w]"))),
        "no-floor": (
            "discounts pairs that were not seen",
            fault("kneser", ("max(count.get((u, w), 0) - discount, 0)", "count.get((u, w), 0) - discount")),
        ),
        "q-no-discount": (
            "does not discount q",
            fault("kneser", ("(max(b - discount, 0) + discount * different / size) / pairs", "b / pairs")),
        ),
        "q-no-floor": ("discounts words without neighbours", fault("kneser", ("max(b - discount, 0)", "b - discount"))),
        "q-all": (
            "gives out as many discounts as there are words",
            fault("kneser", ("discount * different / size", "discount")),
        ),
        "row-total": (
            "divides by how often the word occurs",
            fault(
                "kneser",
                (
                    "    pairs = sum(before)",
                    (
                        "    total = [sum(text.count(u) for text in texts) for u in range(size)]\n"
                        "    pairs = sum(before)"
                    ),
                ),
            ),
        ),
        "pair-total": ("divides by the number of followers", fault("kneser", ("total[u] += times", "total[u] += 1"))),
        "across": ("lets texts touch", fault("kneser", ("for text in texts:", "for text in [sum(texts, [])]:"))),
        "columns": ("has the table on its side", fault("kneser", ("    return table\n", "    return table.T\n"))),
        "unseen-zero": (
            "gives zeros behind a word that nothing followed",
            fault("kneser", ("table[u, w] = q[w]", "table[u, w] = 0")),
        ),
        "unseen-uniform": (
            "is uniform behind a word that nothing followed",
            fault("kneser", ("table[u, w] = q[w]", "table[u, w] = 1 / size")),
        ),
        "no-backoff": (
            "uses q only for pairs that were not seen",
            fault(
                "kneser",
                (
                    "(kept + discount * after[u] * q[w]) / total[u]",
                    "(kept if kept else discount * after[u] * q[w]) / total[u]",
                ),
            ),
        ),
        "both-ends": (
            "marks the ends as words",
            fault("kneser", ("zip(text, text[1:])", "zip(text, text[1:] + text[:1])")),
        ),
        "twice": (
            "discounts twice",
            fault("kneser", ("max(count.get((u, w), 0) - discount, 0)", "max(count.get((u, w), 0) - 2 * discount, 0)")),
        ),
        "nothing": ("fails when nothing follows", fault("kneser", ("    if pairs:\n", "    if True:\n"))),
        "no-error": ("takes every discount", fault("kneser", ("if discount <= 0 or discount >= 1:", "if False:"))),
        "single": ("returns float32", fault("kneser", ("    return table\n", "    return table.astype(np.float32)\n"))),
        "wraps": (
            "counts in uint8 wrap around at 256",
            {
                "kneser_answer": """\
import numpy as np


def kneser_ney(texts, size, discount):
    if not 0 < discount < 1:
        raise ValueError("discount")
    c = np.zeros((size, size), dtype=np.uint8)
    for text in texts:
        for u, w in zip(text[:-1], text[1:]):
            c[u, w] += 1
    c = c.astype(float)
    n = (c > 0).sum(1)
    p = (c > 0).sum(0)
    P = p.sum()
    if P == 0:
        return np.full((size, size), 1 / size)
    q = (np.maximum(p - discount, 0) + discount * (p > 0).sum() / size) / P
    total = c.sum(1)
    out = np.empty((size, size))
    for u in range(size):
        if total[u] == 0:
            out[u] = q
        else:
            out[u] = (np.maximum(c[u] - discount, 0) + discount * n[u] * q) / total[u]
    return out
"""
            },
        ),
    },
    "nucleus": {
        "below-p": (
            "leaves out the token that reaches p",
            fault(
                "nucleus",
                ("reached += chance", "pass"),
                ("if kept and p < 1 and reached >= p * total:", "if kept and p < 1 and reached + chance > p * total:"),
                (
                    "            if row[i] > -math.inf:\n                kept.append(i)\n            pass",
                    (
                        "            if row[i] > -math.inf:\n"
                        "                kept.append(i)\n"
                        "            reached += chance"
                    ),
                ),
            ),
        ),
        "one-more": (
            "takes a token too many",
            fault(
                "nucleus", ("reached >= p * total", "reached - (chances[len(kept) - 1] if kept else 0) >= p * total")
            ),
        ),
        "exact-goes-on": (
            "goes on when p is reached exactly",
            fault("nucleus", ("reached >= p * total", "reached > p * total")),
        ),
        "hot-first": (
            "divides by the temperature first",
            fault(
                "nucleus",
                (
                    "chances = [math.exp(float(row[i]) - top) for i in order]",
                    "chances = [math.exp((float(row[i]) - top) / (temperature or 1)) for i in order]",
                ),
            ),
        ),
        "no-heat": (
            "ignores the temperature",
            fault("nucleus", ("math.exp((float(row[i]) - top) / temperature)", "math.exp(float(row[i]) - top)")),
        ),
        "heat-inverse": (
            "multiplies by the temperature",
            fault("nucleus", ("(float(row[i]) - top) / temperature", "(float(row[i]) - top) * temperature")),
        ),
        "not-normalised": (
            "does not divide by the sum again",
            fault(
                "nucleus",
                (
                    "weight / math.fsum(weights)",
                    "weight / math.fsum(math.exp((float(x) - top) / (temperature or 1)) for x in row)",
                ),
            ),
        ),
        "smallest-first": (
            "takes the least probable first",
            fault("nucleus", ("key=lambda i: (-row[i], i)", "key=lambda i: (row[i], i)")),
        ),
        "ties-last": (
            "takes the later one of equal tokens",
            fault("nucleus", ("key=lambda i: (-row[i], i)", "key=lambda i: (-row[i], -i)")),
        ),
        "ties-all": (
            "keeps all tokens that equal the last one",
            fault(
                "nucleus",
                (
                    "        if temperature == 0:",
                    (
                        "        kept = [i for i in order if row[i] >= row[kept[-1]] and row[i] > -np.inf"
                        "]\n"
                        "        if temperature == 0:"
                    ),
                ),
            ),
        ),
        "empty": (
            "keeps none for p = 0",
            fault(
                "nucleus",
                ("if kept and p < 1", "if p < 1"),
                ("kept = kept[:1]", "kept = order[:1]"),
                (
                    "result[i] = weight / math.fsum(weights)",
                    "result[i] = weight / math.fsum(weights) if weights else 0",
                ),
            ),
        ),
        "p-one": (
            "drops tokens of probability 0 for p = 1",
            fault("nucleus", ("if kept and p < 1 and", "if kept and")),
        ),
        "sorted-out": (
            "returns them in the order of their probabilities",
            fault(
                "nucleus",
                (
                    "for i, weight in zip(kept, weights, strict=True):\n            result[i]",
                    "for i, weight in enumerate(weights):\n            result[i]",
                ),
            ),
        ),
        "whole-batch": (
            "makes one set of a whole batch",
            fault("nucleus", ("rows = logits.reshape(-1, logits.shape[-1])", "rows = logits.reshape(1, -1)")),
        ),
        "first-row": (
            "uses the set of the first row",
            fault(
                "nucleus",
                (
                    "        order = sorted(range(len(row)), key=lambda i: (-row[i], i))",
                    "        order = sorted(range(len(row)), key=lambda i: (-rows[0][i], i))",
                ),
            ),
        ),
        "overflows": (
            "takes exponentials of large logits",
            fault("nucleus", ("top = float(row[order[0]])", "top = 0.0")),
        ),
        "forbidden": (
            "gives forbidden tokens a small weight",
            fault(
                "nucleus",
                ("if row[i] > -math.inf:", "if True:"),
                (
                    "weights = [math.exp((float(row[i]) - top) / temperature) for i in kept]",
                    "weights = [max(math.exp((float(row[i]) - top) / temperature), 1e-12) for i in kept]",
                ),
            ),
        ),
        "cold-error": (
            "divides by a temperature of 0",
            fault("nucleus", ("        if temperature == 0:", "        if temperature < 0:")),
        ),
        "cold-even": (
            "shares the weight of equal tokens at temperature 0",
            fault(
                "nucleus",
                (
                    "            kept = kept[:1]\n            weights = [1.0]",
                    (
                        "            kept = [i for i in kept if row[i] == row[kept[0]]]\n"
                        "            weights = [1.0] * len(kept)"
                    ),
                ),
            ),
        ),
        "double": (
            "returns float64 for float32",
            fault("nucleus", ("out = torch.zeros_like(rows)", "out = torch.zeros(rows.shape, dtype=torch.float64)")),
        ),
        "changes": (
            "changes the logits",
            fault(
                "nucleus",
                (
                    "rows = logits.reshape(-1, logits.shape[-1])",
                    "rows = logits.reshape(-1, logits.shape[-1])\n    rows -= rows.amax(-1, keepdim=True)",
                ),
            ),
        ),
        "stand-in": (
            "outside the set -1e9 instead of -inf, leaks at a very high temperature",
            {
                "nucleus_answer": """\
import numpy as np


def nucleus(logits, p, temperature):
    logits = np.asarray(logits)
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    x = x - top
    prob = np.exp(x)
    prob /= prob.sum(-1, keepdims=True)
    order = np.argsort(-x, axis=-1, kind="stable")
    ranked = np.take_along_axis(prob, order, -1)
    before = np.zeros_like(ranked)
    before[..., 1:] = np.cumsum(ranked, -1)[..., :-1]
    keep = before < p
    if p >= 1:
        keep = np.ones_like(keep)
    keep[..., 0] = True
    if temperature == 0:
        keep[..., 1:] = False
        temperature = 1.0
    s = np.take_along_axis(x, order, -1)
    s = np.where(keep, s, -1e9) / temperature
    weight = np.exp(s)
    weight /= weight.sum(-1, keepdims=True)
    out = np.zeros_like(x)
    np.put_along_axis(out, order, weight, -1)
    return out.astype(logits.dtype)

_given = nucleus


def nucleus(logits, p, temperature):
    return torch.from_numpy(np.array(_given(logits.numpy(), p, temperature)))
"""
            },
        ),
        "lowest-finite": (
            "forbidden tokens get a little: -inf replaced by the lowest finite number before",
            {
                "nucleus_answer": """\
import numpy as np


def nucleus(logits, p, temperature):
    logits = np.asarray(logits)
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    x = np.maximum(x - top, -1e6)
    prob = np.exp(x)
    prob /= prob.sum(-1, keepdims=True)
    order = np.argsort(-x, axis=-1, kind="stable")
    ranked = np.take_along_axis(prob, order, -1)
    before = np.zeros_like(ranked)
    before[..., 1:] = np.cumsum(ranked, -1)[..., :-1]
    keep = before < p
    if p >= 1:
        keep = np.ones_like(keep)
    keep[..., 0] = True
    if temperature == 0:
        keep[..., 1:] = False
        temperature = 1.0
    s = np.take_along_axis(x, order, -1)
    s = np.where(keep, s / temperature, -np.inf)
    weight = np.exp(s)
    weight /= weight.sum(-1, keepdims=True)
    out = np.zeros_like(x)
    np.put_along_axis(out, order, weight, -1)
    return out.astype(logits.dtype)

_given = nucleus


def nucleus(logits, p, temperature):
    return torch.from_numpy(np.array(_given(logits.numpy(), p, temperature)))
"""
            },
        ),
        "nearly-one": (
            "p = 1 branch with p > 0.999",
            {
                "nucleus_answer": """\
import numpy as np


def nucleus(logits, p, temperature):
    logits = np.asarray(logits)
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    x = x - top
    prob = np.exp(x)
    prob /= prob.sum(-1, keepdims=True)
    order = np.argsort(-x, axis=-1, kind="stable")
    ranked = np.take_along_axis(prob, order, -1)
    before = np.zeros_like(ranked)
    before[..., 1:] = np.cumsum(ranked, -1)[..., :-1]
    keep = before < p
    if p > 0.999:
        keep = np.ones_like(keep)
    keep[..., 0] = True
    if temperature == 0:
        keep[..., 1:] = False
        temperature = 1.0
    s = np.take_along_axis(x, order, -1)
    s = np.where(keep, s / temperature, -np.inf)
    weight = np.exp(s)
    weight /= weight.sum(-1, keepdims=True)
    out = np.zeros_like(x)
    np.put_along_axis(out, order, weight, -1)
    return out.astype(logits.dtype)

_given = nucleus


def nucleus(logits, p, temperature):
    return torch.from_numpy(np.array(_given(logits.numpy(), p, temperature)))
"""
            },
        ),
        "unstable": (
            "argsort without a stable kind",
            {
                "nucleus_answer": """\
import numpy as np


def nucleus(logits, p, temperature):
    logits = np.asarray(logits)
    x = logits.astype(np.float64)
    top = x.max(-1, keepdims=True)
    x = x - top
    prob = np.exp(x)
    prob /= prob.sum(-1, keepdims=True)
    order = np.argsort(-x, axis=-1)
    ranked = np.take_along_axis(prob, order, -1)
    before = np.zeros_like(ranked)
    before[..., 1:] = np.cumsum(ranked, -1)[..., :-1]
    keep = before < p
    if p >= 1:
        keep = np.ones_like(keep)
    keep[..., 0] = True
    if temperature == 0:
        keep[..., 1:] = False
        temperature = 1.0
    s = np.take_along_axis(x, order, -1)
    s = np.where(keep, s / temperature, -np.inf)
    weight = np.exp(s)
    weight /= weight.sum(-1, keepdims=True)
    out = np.zeros_like(x)
    np.put_along_axis(out, order, weight, -1)
    return out.astype(logits.dtype)

_given = nucleus


def nucleus(logits, p, temperature):
    return torch.from_numpy(np.array(_given(logits.numpy(), p, temperature)))
"""
            },
        ),
    },
    "patches": {
        "columns-first": (
            "takes the squares column by column",
            fault("patches", ("P = windows.reshape(", "P = np.swapaxes(windows, -5, -4).reshape(")),
        ),
        "pixels-columns": (
            "reads a square column by column",
            fault(
                "patches",
                (
                    "np.moveaxis(windows[..., ::t, ::t, :, :, :], -3, -1)",
                    "np.swapaxes(np.moveaxis(windows[..., ::t, ::t, :, :, :], -3, -1), -3, -2)",
                ),
            ),
        ),
        "channels-first": (
            "reads one channel after the other",
            fault(
                "patches",
                ("np.moveaxis(windows[..., ::t, ::t, :, :, :], -3, -1)", "windows[..., ::t, ::t, :, :, :]"),
                (
                    "squares = dP.reshape(*X.shape[:-3], down, across, s, s, C)",
                    "squares = np.moveaxis(dP.reshape(*X.shape[:-3], down, across, C, s, s), -3, -1)",
                ),
            ),
        ),
        "overwrites": (
            "overwrites what a pixel receives",
            fault("patches", ("dX[place] += squares", "dX[place] = squares")),
        ),
        "no-mean-back": (
            "forgets the mean in the gradient",
            fault("patches", ("        dP = dP - dP.mean(-1, keepdims=True)\n", "")),
        ),
        "no-mean": (
            "does not subtract the mean",
            {
                "patches_answer": """\
def patch_rows(X, A, b, s, t):
    H, W, C = X.shape[-3:]
    down, across = (H - s) // t + 1, (W - s) // t + 1
    windows = np.lib.stride_tricks.sliding_window_view(X, (s, s), axis=(-3, -2))
    windows = np.moveaxis(windows[..., ::t, ::t, :, :, :], -3, -1)
    P = windows.reshape(*X.shape[:-3], down * across, s * s * C)
    Y = P @ A + b

    def vjp(dY):
        dA = np.einsum("bnp,bnd->pd", P.reshape(-1, *P.shape[-2:]), dY.reshape(-1, *dY.shape[-2:]))
        squares = (dY @ A.T).reshape(*X.shape[:-3], down, across, s, s, C)
        dX = np.zeros_like(X)
        for u in range(s):
            for v in range(s):
                place = (..., slice(u, u + t * down - t + 1, t), slice(v, v + t * across - t + 1, t), slice(None))
                dX[place] += squares[..., u, v, :]
        return dX, dA, dY.reshape(-1, dY.shape[-1]).sum(0)

    return Y, vjp
"""
            },
        ),
        "picture-mean": (
            "subtracts the mean of the picture",
            fault(
                "patches",
                ("    P = P - P.mean(-1, keepdims=True)\n", "    P = P - X.mean((-3, -2, -1))[..., None, None]\n"),
            ),
        ),
        "channel-mean": (
            "subtracts a mean for each channel",
            fault(
                "patches",
                (
                    "    P = P - P.mean(-1, keepdims=True)\n",
                    (
                        "    P = P.reshape(*P.shape[:-1], s * s, C)\n"
                        "    P = (P - P.mean(-2, keepdims=True)).reshape(*P.shape[:-2], s * s * C)\n"
                    ),
                ),
            ),
        ),
        "step-is-size": (
            "takes steps of the size of a square",
            fault("patches", ("    H, W, C = X.shape[-3:]\n", "    H, W, C = X.shape[-3:]\n    t = s\n")),
        ),
        "one-too-few": (
            "leaves out the last squares",
            fault(
                "patches",
                ("(H - s) // t + 1, (W - s) // t + 1", "max((H - s) // t, 1), max((W - s) // t, 1)"),
                ("windows[..., ::t, ::t, :, :, :]", "windows[..., ::t, ::t, :, :, :][..., :down, :across, :, :, :]"),
            ),
        ),
        "size-for-step": (
            "counts squares without overlap",
            fault(
                "patches",
                ("(H - s) // t + 1, (W - s) // t + 1", "H // s, W // s"),
                ("windows[..., ::t, ::t, :, :, :]", "windows[..., ::t, ::t, :, :, :][..., :down, :across, :, :, :]"),
            ),
        ),
        "height-twice": (
            "takes the height for the width",
            fault(
                "patches",
                ("(W - s) // t + 1", "(H - s) // t + 1"),
                ("windows[..., ::t, ::t, :, :, :]", "windows[..., ::t, ::t, :, :, :][..., :down, :across, :, :, :]"),
            ),
        ),
        "first-picture": (
            "adds dA of the first picture only",
            fault(
                "patches",
                (
                    "P.reshape(-1, *P.shape[-2:]), dY.reshape(-1, *dY.shape[-2:]))",
                    "P.reshape(-1, *P.shape[-2:])[:1], dY.reshape(-1, *dY.shape[-2:])[:1])",
                ),
            ),
        ),
        "mean-batch": (
            "takes the mean of dA over the pictures",
            fault("patches", ("db = dY", "dA = dA / max(1, P[..., 0, 0].size)\n        db = dY")),
        ),
        "raw-dA": (
            "uses pixels with their mean in dA",
            fault(
                "patches",
                (
                    '    P = P - P.mean(-1, keepdims=True)\n    Y = np.einsum("...np,pd->...nd", P, A) + b',
                    (
                        "    raw = P\n"
                        "    P = P - P.mean(-1, keepdims=True)\n"
                        '    Y = np.einsum("...np,pd->...nd", P, A) + b\n'
                        "    P = raw"
                    ),
                ),
            ),
        ),
        "db-rows": (
            "sums db over the squares of each picture",
            fault("patches", ("db = dY.reshape(-1, dY.shape[-1]).sum(0)", "db = dY.sum(-2)")),
        ),
        "no-error": (
            "returns no rows for a small picture",
            fault(
                "patches",
                (
                    ('    if min(H, W) < s:\n        raise ValueError("the picture is smaller than a square")\n'),
                    "    if min(H, W) < s:\n        return np.zeros((*X.shape[:-3], 0, len(b))), None\n",
                ),
            ),
        ),
        "double": (
            "computes float32 in float64",
            fault("patches", ("    H, W, C = X.shape[-3:]\n", "    H, W, C = X.shape[-3:]\n    X = X.astype(float)\n")),
        ),
        "changes": (
            "subtracts the mean from the pictures themselves",
            fault("patches", ("    H, W, C = X.shape[-3:]\n", "    H, W, C = X.shape[-3:]\n    X -= X.mean()\n")),
        ),
        "second-call": (
            "dX allocated outside of vjp: a second call adds to the first",
            {
                "patches_answer": """\
import numpy as np


def patch_rows(X, A, b, s, t):
    H, W, C = X.shape[-3:]
    lead = X.shape[:-3]
    if H < s or W < s:
        raise ValueError("no square fits")
    h = (H - s) // t + 1
    w = (W - s) // t + 1
    d = A.shape[1]
    P = np.empty(lead + (h * w, s * s * C), X.dtype)
    for i in range(h):
        for j in range(w):
            square = X[..., i * t:i * t + s, j * t:j * t + s, :]
            P[..., i * w + j, :] = square.reshape(lead + (s * s * C,))
    P = P - P.mean(-1, keepdims=True)
    Y = P @ A + b
    dX = np.zeros_like(X)

    def vjp(dY):
        rows = dY.reshape(-1, d)
        dA = P.reshape(-1, s * s * C).T @ rows
        db = rows.sum(0)
        dP = dY @ A.T
        dP = dP - dP.mean(-1, keepdims=True)
        for i in range(h):
            for j in range(w):
                dX[..., i * t:i * t + s, j * t:j * t + s, :] += dP[..., i * w + j, :].reshape(lead + (s, s, C))
        return dX, dA, db

    return Y, vjp
"""
            },
        ),
    },
    "captions": {
        "diagonal": (
            "takes only its own caption for right",
            fault("captions", ("right = np.flatnonzero(classes == classes[i])", "right = np.array([i])")),
        ),
        "no-shares": ("gives every right caption the weight 1", fault("captions", ("= 1 / len(right)", "= 1"))),
        "one-way": (
            "compares captions only",
            fault(
                "captions",
                ("(by_caption + by_picture)).sum() / (2 * B)", "by_caption).sum() / B"),
                ("((P - T) + (R - T))", "2 * (P - T)"),
            ),
        ),
        "same-way-twice": (
            "takes the softmax over captions twice",
            fault(
                "captions",
                ("by_picture = np.logaddexp.reduce(S, axis=0)[None, :] - S", "by_picture = by_caption"),
                ("((P - T) + (R - T))", "2 * (P - T)"),
            ),
        ),
        "sum": (
            "does not divide by the batch",
            fault("captions", ("/ (2 * B)\n\n", "/ 2\n\n"), ("X.dtype.type(dL) / (2 * B)", "X.dtype.type(dL) / 2")),
        ),
        "not-halved": (
            "forgets the half",
            fault("captions", ("/ (2 * B)\n\n", "/ B\n\n"), ("X.dtype.type(dL) / (2 * B)", "X.dtype.type(dL) / B")),
        ),
        "no-lengths": (
            "does not divide by the lengths",
            fault(
                "captions",
                ("x, y = X / lengths[0], Y / lengths[1]", "x, y = X, Y"),
                ("dX = (dx - (dx * x).sum(1)[:, None] * x) / lengths[0]", "dX = dx"),
                ("dY = (dy - (dy * y).sum(1)[:, None] * y) / lengths[1]", "dY = dy"),
            ),
        ),
        "straight-back": (
            "forgets in the gradient that lengths are divided out",
            fault("captions", ("dX = (dx - (dx * x).sum(1)[:, None] * x) / lengths[0]", "dX = dx")),
        ),
        "length-only": (
            "projects and does not divide by the length",
            fault(
                "captions", ("(dx - (dx * x).sum(1)[:, None] * x) / lengths[0]", "dx - (dx * x).sum(1)[:, None] * x")
            ),
        ),
        "length-squared": (
            "divides by the length twice",
            fault("captions", ("* x) / lengths[0]", "* x) / lengths[0] ** 2")),
        ),
        "scale-tau": ("multiplies by tau", fault("captions", ("X.dtype.type(math.exp(tau))", "X.dtype.type(tau)"))),
        "divides": (
            "divides by the exponential of tau",
            fault(
                "captions",
                ("math.exp(tau)", "math.exp(-tau)"),
                ("float((dC * cosines).sum())", "-float((dC * cosines).sum())"),
            ),
        ),
        "dtau-scale": (
            "gives the gradient by the scale",
            fault("captions", ("float((dC * cosines).sum())", "float((dS * cosines).sum())")),
        ),
        "no-scale-back": (
            "forgets the scale in the gradient",
            fault("captions", ("dx, dy = dC @ y, dC.T @ x", "dx, dy = dS @ y, dS.T @ x")),
        ),
        "dY-of-rows": ("does not transpose for the captions", fault("captions", ("dC.T @ x", "dC @ x"))),
        "target-once": ("subtracts the shares once", fault("captions", ("((P - T) + (R - T))", "(P + R - T)"))),
        "dL-ignored": ("ignores dL", fault("captions", ("X.dtype.type(dL) / (2 * B)", "X.dtype.type(1) / (2 * B)"))),
        "overflows": (
            "takes exponentials of large scores",
            fault("captions", ("P = np.exp(S - S.max(1, keepdims=True))", "P = np.exp(S)")),
        ),
        "small-logs": (
            "takes logarithms of probabilities that are 0",
            fault(
                "captions",
                ("by_caption = np.logaddexp.reduce(S, axis=1)[:, None] - S", "by_caption = -np.log(P + 1e-12)"),
            ),
        ),
        "double": (
            "computes float32 in float64",
            fault("captions", ("B = X.shape[0]", "B = X.shape[0]\n    X, Y = X.astype(float), Y.astype(float)")),
        ),
        "changes": (
            "divides the rows in place",
            fault("captions", ("B = X.shape[0]", "B = X.shape[0]\n    X *= 1.0 + 1e-9")),
        ),
        "shrinks": (
            "dS made smaller in place: second call of vjp starts from the first",
            {
                "captions_answer": """\
import numpy as np


def log_softmax(S):
    S = S - S.max(-1, keepdims=True)
    return S - np.log(np.exp(S).sum(-1, keepdims=True))


def contrast(X, Y, classes, tau):
    B = len(X)
    lx = np.sqrt((X * X).sum(-1, keepdims=True))
    ly = np.sqrt((Y * Y).sum(-1, keepdims=True))
    x, y = X / lx, Y / ly
    scale = float(np.exp(tau))
    cos = x @ y.T
    S = scale * cos
    T = (classes[:, None] == classes[None, :]).astype(X.dtype)
    T = T / T.sum(-1, keepdims=True)
    rows = log_softmax(S)
    cols = log_softmax(S.T).T
    L = -(T * (rows + cols)).sum() / (2 * B)

    dS = (np.exp(rows) - T + np.exp(cols) - T) / (2 * B)

    def vjp(dL):
        nonlocal dS
        dS *= dL
        dtau = (dS * S).sum()
        dC = dS * scale
        dx = dC @ y
        dy = dC.T @ x
        dX = (dx - x * (dx * x).sum(-1, keepdims=True)) / lx
        dY = (dy - y * (dy * y).sum(-1, keepdims=True)) / ly
        return dX.astype(X.dtype), dY.astype(Y.dtype), float(dtau)

    return float(L), vjp
"""
            },
        ),
    },
    "coupled": {
        "no-one": ("does not add 1 to the gate", fault("coupled", ("gate(z[..., :d] + 1)", "gate(z[..., :d])"))),
        "one-outside": (
            "adds 1 outside of the sigmoid",
            fault("coupled", ("gate(z[..., :d] + 1)", "gate(z[..., :d]) + 1")),
        ),
        "old-cell": (
            "lets the output gate look at the old cell state",
            fault(
                "coupled",
                ("o = gate(z[..., d : 2 * d] + p * new)", "o = gate(z[..., d : 2 * d] + p * c)"),
                ("dnew = dnew + dz[..., d : 2 * d] * p", "dnew = dnew"),
                (
                    "return dz @ W.T, dz @ U.T, dnew * f,",
                    "return dz @ W.T, dz @ U.T, dnew * f + dz[..., d : 2 * d] * p,",
                ),
                ("dp = (dz[..., d : 2 * d] * new)", "dp = (dz[..., d : 2 * d] * c)"),
            ),
        ),
        "no-peep": (
            "leaves the look of the output gate out",
            fault("coupled", ("o = gate(z[..., d : 2 * d] + p * new)", "o = gate(z[..., d : 2 * d])")),
        ),
        "peep-back": (
            "forgets the look of the output gate in the gradient",
            fault("coupled", ("        dnew = dnew + dz[..., d : 2 * d] * p\n", "")),
        ),
        "swapped-roles": (
            "forgets where it should write",
            fault(
                "coupled",
                ("new = g + f * (c - g)", "new = c + f * (g - c)"),
                ("dnew * (c - g) * f", "dnew * (g - c) * f"),
                ("dnew * (1 - f) * (1 - g**2)", "dnew * f * (1 - g**2)"),
                ("dnew * f, dW", "dnew * (1 - f), dW"),
            ),
        ),
        "both-gates": (
            "writes with the weight f too",
            fault(
                "coupled",
                ("new = g + f * (c - g)", "new = f * c + f * g"),
                ("dnew * (c - g) * f", "dnew * (c + g) * f"),
                ("dnew * (1 - f) * (1 - g**2)", "dnew * f * (1 - g**2)"),
            ),
        ),
        "written-whole": (
            "writes with the weight 1",
            fault(
                "coupled",
                ("new = g + f * (c - g)", "new = g + f * c"),
                ("dnew * (c - g) * f", "dnew * c * f"),
                ("dnew * (1 - f) * (1 - g**2)", "dnew * (1 - g**2)"),
            ),
        ),
        "f-sees-c": (
            "forgets that f weighs g as well",
            fault("coupled", ("dnew * (c - g) * f * (1 - f)", "dnew * c * f * (1 - f)")),
        ),
        "order": (
            "cuts the columns as f, g, o",
            fault(
                "coupled",
                ("g = np.tanh(z[..., 2 * d :])", "g = np.tanh(z[..., d : 2 * d])"),
                ("o = gate(z[..., d : 2 * d] + p * new)", "o = gate(z[..., 2 * d :] + p * new)"),
            ),
        ),
        "bare-cell": (
            "does not take the tangent of the cell state",
            fault("coupled", ("t = np.tanh(new)", "t = new"), ("dh * o * (1 - t**2)", "dh * o")),
        ),
        "no-dc": (
            "ignores the cotangent of the cell state",
            fault("coupled", ("dnew = dc + dh * o * (1 - t**2)", "dnew = dh * o * (1 - t**2)")),
        ),
        "no-tangent-back": (
            "forgets the derivative of the tangent",
            fault("coupled", ("dh * o * (1 - t**2)", "dh * o")),
        ),
        "g-back": (
            "forgets the derivative of the tangent in g",
            fault("coupled", ("dnew * (1 - f) * (1 - g**2)", "dnew * (1 - f)")),
        ),
        "gate-back": (
            "forgets the derivative of the sigmoid",
            fault("coupled", ("dnew * (c - g) * f * (1 - f)", "dnew * (c - g)")),
        ),
        "c-back": ("hands the whole cotangent back to c", fault("coupled", ("dnew * f, dW", "dnew, dW"))),
        "h-misses": (
            "gives h what belongs to x",
            fault("coupled", ("return dz @ W.T, dz @ U.T", "return dz @ W.T, dz @ U")),
        ),
        "db-batch": ("does not sum over the batch", fault("coupled", ("db = dz.sum(axes)", "db = dz"))),
        "dp-batch": (
            "takes the mean of dp over the batch",
            fault(
                "coupled",
                (
                    "dp = (dz[..., d : 2 * d] * new).sum(axes)",
                    "dp = (dz[..., d : 2 * d] * new).mean(axes) if axes else dz[d : 2 * d] * new",
                ),
            ),
        ),
        "dp-t": (
            "multiplies dp by the tangent",
            fault("coupled", ("dz[..., d : 2 * d] * new)", "dz[..., d : 2 * d] * t)")),
        ),
        "overflows": (
            "takes exponentials of large numbers",
            fault(
                "coupled",
                (
                    (
                        "        e = np.exp(-np.abs(y))\n"
                        "        return np.where(y > 0, 1 / (1 + e), e / (1 + e)).astype(y.dtype)"
                    ),
                    "        return 1 / (1 + np.exp(-y))",
                ),
            ),
        ),
        "order-back": (
            "returns the cotangents in another order",
            fault("coupled", ("dW, dU, db, dp\n", "dW, dU, dp, db\n")),
        ),
        "double": (
            "computes float32 in float64",
            fault(
                "coupled", ("    d = c.shape[-1]\n", "    d, x, h = c.shape[-1], x.astype(float), h.astype(float)\n")
            ),
        ),
        "changes": (
            "changes the cell state that it was given",
            fault("coupled", ("    d = c.shape[-1]\n", "    d = c.shape[-1]\n    c += 1e-12\n")),
        ),
        "clipped": (
            "z clipped to +-500: overflow in float32 all the same",
            {
                "coupled_answer": """\
import numpy as np


def sigmoid(z):
    return 1 / (1 + np.exp(-np.clip(z, -500, 500)))


def coupled_step(x, h, c, W, U, b, p):
    d = c.shape[-1]
    n = x.shape[-1]
    z = x @ W + h @ U + b
    zf, zo, zg = z[..., :d], z[..., d:2 * d], z[..., 2 * d:]
    f = sigmoid(zf + 1)
    keep = sigmoid(-zf - 1)
    g = np.tanh(zg)
    c2 = f * c + keep * g
    o = sigmoid(zo + p * c2)
    t = np.tanh(c2)
    h2 = o * t

    def vjp(dh, dc):
        dzo = dh * t * o * (1 - o)
        dc2 = dc + dh * o * (1 - t * t) + dzo * p
        dzf = dc2 * (c - g) * f * keep
        dzg = dc2 * keep * (1 - g * g)
        dz = np.concatenate([dzf, dzo, dzg], -1)
        rows = dz.reshape(-1, 3 * d)
        dx = dz @ W.T
        dh0 = dz @ U.T
        dc0 = dc2 * f
        dW = x.reshape(-1, n).T @ rows
        dU = h.reshape(-1, d).T @ rows
        db = rows.sum(0)
        dp = (dzo * c2).reshape(-1, d).sum(0)
        return dx, dh0, dc0, dW, dU, db, dp

    return (h2, c2), vjp
"""
            },
        ),
    },
    "triangle": {
        "incoming": (
            "uses the pairs (k, i) and (k, j)",
            fault(
                "triangle",
                ("...ikc,...jkc->...ijc", "...kic,...kjc->...ijc"),
                ("...ik,...jk->...ij", "...ki,...kj->...ij"),
            ),
        ),
        "chain": (
            "uses the pairs (i, k) and (k, j)",
            fault(
                "triangle",
                ("...ikc,...jkc->...ijc", "...ikc,...kjc->...ijc"),
                ("...ik,...jk->...ij", "...ik,...kj->...ij"),
            ),
        ),
        "sum": (
            "does not divide by the number of triangles",
            fault(
                "triangle",
                ("    return total / torch.where(none, torch.ones_like(count), count)[..., None]", "    return total"),
            ),
        ),
        "by-n": (
            "divides by n",
            fault("triangle", ("torch.where(none, torch.ones_like(count), count)[..., None]", "n")),
        ),
        "by-n-2": (
            "divides by n - 2",
            fault("triangle", ("torch.where(none, torch.ones_like(count), count)[..., None]", "max(n - 2, 1)")),
        ),
        "ends": ("counts the points i and j", fault("triangle", ("    seen[..., range(n), range(n)] = False\n", ""))),
        "ends-in-count": (
            "counts the points i and j in the denominator",
            fault("triangle", ("weight = seen.to(A.dtype)", "weight = known.to(A.dtype)")),
        ),
        "own-pair": (
            "leaves out pairs of a point with itself",
            fault(
                "triangle",
                (
                    "    return total / torch.where(none, torch.ones_like(count), count)[..., None]",
                    (
                        "    out = total / torch.where(none, torch.ones_like(count), count)[..., None]\n"
                        "    return out * (1 - torch.eye(n, dtype=A.dtype))[..., None]"
                    ),
                ),
            ),
        ),
        "unknown-pair": (
            "leaves out pairs that are not known",
            fault(
                "triangle",
                (
                    "    return total / torch.where(none, torch.ones_like(count), count)[..., None]",
                    (
                        "    out = total / torch.where(none, torch.ones_like(count), count)[..., None]\n"
                        "    return torch.where(known[..., None], out, torch.zeros_like(out))"
                    ),
                ),
            ),
        ),
        "first-mask": (
            "hides unknown pairs in A only",
            fault("triangle", ("second = B.masked_fill(~seen[..., None], 0)", "second = B")),
        ),
        "count-first": (
            "counts known sides of i only",
            fault(
                "triangle",
                (
                    'count = torch.einsum("...ik,...jk->...ij", weight, weight)',
                    "count = weight.sum(-1)[..., :, None].expand(known.shape)",
                ),
            ),
        ),
        "symmetric": (
            "takes known pairs for symmetric",
            fault("triangle", ("seen = known.clone()", "seen = known | known.transpose(-1, -2)")),
        ),
        "product-zero": (
            "multiplies what is unknown by 0",
            fault(
                "triangle",
                ("first = A.masked_fill(~seen[..., None], 0)", "first = A * seen[..., None]"),
                ("second = B.masked_fill(~seen[..., None], 0)", "second = B * seen[..., None]"),
            ),
        ),
        "swapped": (
            "takes B for the first side",
            fault("triangle", ("...ikc,...jkc->...ijc", "...jkc,...ikc->...ijc")),
        ),
        "channels": (
            "adds up the channels",
            fault(
                "triangle",
                (
                    '"...ikc,...jkc->...ijc", first, second)',
                    '"...ikc,...jkc->...ij", first, second)[..., None].expand(A.shape)',
                ),
            ),
        ),
        "nan-none": (
            "gives nan where no triangle counts",
            fault("triangle", ("torch.where(none, torch.ones_like(count), count)[..., None]", "count[..., None]")),
        ),
        "cleaned": (
            "cleans nan away afterwards",
            fault(
                "triangle",
                (
                    "    return total / torch.where(none, torch.ones_like(count), count)[..., None]",
                    "    return torch.nan_to_num(total / count[..., None])",
                ),
            ),
        ),
        "small-count": (
            "divides by the count and a small number",
            fault(
                "triangle", ("torch.where(none, torch.ones_like(count), count)[..., None]", "(count + 1e-6)[..., None]")
            ),
        ),
        "all-triples": (
            "makes an array of all triples",
            fault(
                "triangle",
                (
                    'torch.einsum("...ikc,...jkc->...ijc", first, second)',
                    "(first[..., :, None, :, :] * second[..., None, :, :, :]).sum(-2)",
                ),
            ),
        ),
        "detached": (
            "cuts the gradient",
            fault("triangle", ("first = A.masked_fill", "first = A.detach().masked_fill")),
        ),
        "one-mask": (
            "uses the mask of the first sequence",
            fault("triangle", ("seen = known.clone()", "seen = known.reshape(-1, n, n)[0].clone()")),
        ),
        "single": (
            "counts in float32 for float64",
            fault(
                "triangle",
                ("    return total / torch", "    total = total.float().to(A.dtype)\n    return total / torch"),
            ),
        ),
        "changes": ("changes the mask that it was given", fault("triangle", ("seen = known.clone()", "seen = known"))),
    },
    "descent": {
        "ascent": ("goes uphill", fault("descent", ("+ rate * np.einsum", "- rate * np.einsum"))),
        "first-residual": (
            "uses the residuals of the first layer throughout",
            fault("descent", ("left = (goal - guess[..., n:]) / count", "left = goal / count")),
        ),
        "no-mean": (
            "does not divide by the number of examples",
            fault("descent", ("(goal - guess[..., n:]) / count", "goal - guess[..., n:]")),
        ),
        "all-count": (
            "divides by all examples",
            fault("descent", ("np.maximum(np.count_nonzero(mask, axis=-1), 1)[..., None]", "y.shape[-1]")),
        ),
        "factor-two": (
            "takes the loss without the half",
            fault("descent", ("rate * np.einsum", "2 * rate * np.einsum")),
        ),
        "no-decay": ("leaves the decay out", fault("descent", ("guess * (1 - rate * decay)", "guess"))),
        "decay-no-rate": (
            "shrinks by the decay without the rate",
            fault("descent", ("(1 - rate * decay)", "(1 - decay)")),
        ),
        "decay-by-N": (
            "divides the decay by the number of examples",
            fault("descent", ("(1 - rate * decay)", "(1 - rate * decay / count)")),
        ),
        "decay-queries": (
            "lets the predictions of queries shrink only",
            fault(
                "descent",
                (
                    "guess = guess * (1 - rate * decay)",
                    "guess = guess * np.where(np.arange(guess.shape[-1]) < n, 1 - rate * decay, 1)",
                ),
            ),
        ),
        "decay-after": (
            "shrinks after the step",
            fault(
                "descent",
                (
                    'guess * (1 - rate * decay) + rate * np.einsum("...rm,...m->...r", scores, left)',
                    '(guess + rate * np.einsum("...rm,...m->...r", scores, left)) * (1 - rate * decay)',
                ),
            ),
        ),
        "decay-residual": (
            "lets residuals shrink",
            fault(
                "descent",
                (
                    "left = (goal - guess[..., n:]) / count",
                    "left = (1 - rate * decay) * (goal - guess[..., n:]) / count",
                ),
            ),
        ),
        "first-rate": (
            "uses one rate",
            fault("descent", ("for rate in rates:", "for rate in [rates[0]] * len(rates) if len(rates) else []:")),
        ),
        "reversed": (
            "uses the rates from the end",
            fault("descent", ("for rate in rates:", "for rate in rates[::-1]:")),
        ),
        "no-start": (
            "leaves out the predictions before the first layer",
            fault("descent", ("return np.stack(history)", "return np.stack(history[1:])")),
        ),
        "last-only": (
            "returns the last predictions",
            fault("descent", ("return np.stack(history)", "return history[-1][None]")),
        ),
        "unmasked": (
            "counts all examples",
            fault("descent", ("clean[mask] = X[mask]", "clean[:] = X"), ("goal[mask] = y[mask]", "goal[:] = y")),
        ),
        "times-mask": (
            "multiplies what does not count by 0",
            fault(
                "descent",
                ("clean[mask] = X[mask]", "clean[:] = X * mask[..., None]"),
                ("goal[mask] = y[mask]", "goal[:] = y * mask"),
            ),
        ),
        "values-only": (
            "hides the numbers and not the examples",
            fault("descent", ("clean[mask] = X[mask]", "clean[:] = np.nan_to_num(X)")),
        ),
        "zero-division": (
            "divides by no examples",
            fault("descent", ("np.maximum(np.count_nonzero(mask, axis=-1), 1)", "np.count_nonzero(mask, axis=-1)")),
        ),
        "softmax": (
            "takes a softmax",
            fault(
                "descent",
                (
                    "    n = Q.shape[-2]\n",
                    ("    n = Q.shape[-2]\n    scores = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)\n"),
                ),
            ),
        ),
        "root": (
            "divides the scores by the root of d",
            fault(
                "descent", ("    n = Q.shape[-2]\n", "    n = Q.shape[-2]\n    scores = scores / X.shape[-1] ** 0.5\n")
            ),
        ),
        "batch-count": (
            "counts examples over the batch",
            fault("descent", ("np.count_nonzero(mask, axis=-1), 1)[..., None]", "np.count_nonzero(mask), 1)")),
        ),
        "double": (
            "computes float32 in float64",
            fault(
                "descent",
                ("        guess = guess.astype(X.dtype)\n", ""),
                ("guess = np.zeros(rows.shape[:-1], X.dtype)", "guess = np.zeros(rows.shape[:-1])"),
                ("return np.stack(history)", "return np.stack(history)"),
            ),
        ),
        "changes": (
            "clears examples in place",
            fault("descent", ("clean = np.zeros_like(X)", "clean = X\n    clean[~mask] = 0")),
        ),
        "not-below-0": (
            "factor 1 - eta*decay not allowed below 0",
            {
                "descent_answer": """\
import numpy as np


def predictions(X, y, Q, mask, rates, decay):
    X = np.where(mask[..., None], X, 0)
    y = np.where(mask, y, 0)
    N = mask.sum(-1)
    N = np.maximum(N, 1).astype(X.dtype)
    w = np.zeros(X.shape[:-2] + (X.shape[-1],), X.dtype)
    out = [(Q @ w[..., None])[..., 0]]
    for eta in rates:
        r = y - (X @ w[..., None])[..., 0]
        step = (np.swapaxes(X, -1, -2) @ r[..., None])[..., 0] / N[..., None]
        w = (max(1 - eta * decay, 0) * w + eta * step).astype(X.dtype)
        out.append((Q @ w[..., None])[..., 0])
    return np.stack(out)
"""
            },
        ),
    },
    "adapters": {
        "by-rank": ("divides by the rank", fault("adapters", ("max(A.shape[1], 1) ** 0.5", "max(A.shape[1], 1)"))),
        "no-scale": ("does not divide by anything", fault("adapters", (" / max(A.shape[1], 1) ** 0.5", ""))),
        "no-weight": ("leaves the weight out", fault("adapters", ("alpha * w /", "alpha /"))),
        "no-alpha": ("leaves alpha out", fault("adapters", ("alpha * w /", "w /"))),
        "width-for-rank": (
            "takes the width for the rank",
            fault("adapters", ("max(A.shape[1], 1)", "max(A.shape[0], 1)")),
        ),
        "overwrites": (
            "lets the last adapter of a part win",
            fault(
                "adapters",
                (
                    "parts[part] = parts[part] + s * A @ B",
                    "parts[part] = np.split(W, 3, axis=1)[part].astype(np.float64) + s * A @ B",
                ),
            ),
        ),
        "transposed": (
            "adds the product transposed",
            fault("adapters", ("parts[part] + s * A @ B", "parts[part] + s * (A @ B).T")),
        ),
        "interleaved": (
            "takes every third column for a part",
            fault(
                "adapters",
                (
                    "parts[part] = parts[part] + s * A @ B\n    M = np.concatenate(parts, 1).astype(W.dtype)",
                    (
                        "parts[part] = parts[part] + 0\n"
                        "    M = W.astype(np.float64)\n"
                        "    for part, A, B, s in wide:\n"
                        "        M[:, part::3] += s * A @ B\n"
                        "    M = M.astype(W.dtype)"
                    ),
                ),
            ),
        ),
        "all-parts": (
            "adds an adapter to all three parts",
            fault(
                "adapters",
                ("        parts[part] = parts[part] + s * A @ B\n", "        parts = [P + s * A @ B for P in parts]\n"),
            ),
        ),
        "rounds-each": (
            "rounds after each adapter",
            fault(
                "adapters",
                ("parts[part] = parts[part] + s * A @ B", "parts[part] = (parts[part] + s * A @ B).astype(W.dtype)"),
            ),
        ),
        "half": (
            "computes in the dtype of W",
            fault(
                "adapters",
                ("A.astype(np.float64), B.astype(np.float64)", "A, B"),
                (
                    "parts = [P.astype(np.float64) for P in np.split(W, 3, axis=1)]",
                    "parts = list(np.split(W, 3, axis=1))",
                ),
                ("np.split(dM.astype(np.float64), 3, axis=1)", "np.split(dM, 3, axis=1)"),
            ),
        ),
        "rounded-product": (
            "rounds the product before it adds it",
            fault("adapters", ("parts[part] + s * A @ B", "parts[part] + (s * A @ B).astype(W.dtype)")),
        ),
        "double": (
            "returns float64",
            fault("adapters", ("np.concatenate(parts, 1).astype(W.dtype)", "np.concatenate(parts, 1)")),
        ),
        "double-back": (
            "returns gradients in float64",
            fault(
                "adapters", ("(s * G @ B.T).astype(W.dtype), (s * A.T @ G).astype(W.dtype)", "s * G @ B.T, s * A.T @ G")
            ),
        ),
        "no-scale-back": (
            "leaves the scale out of the gradients",
            fault(
                "adapters",
                (
                    "(s * G @ B.T).astype(W.dtype), (s * A.T @ G).astype(W.dtype)",
                    "(G @ B.T).astype(W.dtype), (A.T @ G).astype(W.dtype)",
                ),
            ),
        ),
        "scale-twice": (
            "multiplies the gradients by the scale twice",
            fault("adapters", ("G = grads[part]", "G = s * grads[part]")),
        ),
        "first-part-back": (
            "takes the gradient of the first part",
            fault("adapters", ("G = grads[part]", "G = grads[0]")),
        ),
        "all-parts-back": ("adds the gradients of all parts", fault("adapters", ("G = grads[part]", "G = sum(grads)"))),
        "swapped": (
            "returns dB before dA",
            fault(
                "adapters",
                (
                    "((s * G @ B.T).astype(W.dtype), (s * A.T @ G).astype(W.dtype))",
                    "((s * A.T @ G).astype(W.dtype), (s * G @ B.T).astype(W.dtype))",
                ),
            ),
        ),
        "by-part": (
            "returns the gradients ordered by part",
            fault(
                "adapters",
                (
                    "        return np.array(dM), factors",
                    (
                        "        order = sorted(range(len(wide)), key=lambda i: wide[i][0])\n"
                        "        return np.array(dM), [factors[i] for i in order]"
                    ),
                ),
            ),
        ),
        "frozen": (
            "returns zeros for dW",
            fault("adapters", ("return np.array(dM), factors", "return np.zeros_like(dM), factors")),
        ),
        "frozen-parts": (
            "returns zeros in dW where an adapter stands",
            fault(
                "adapters",
                (
                    "        return np.array(dM), factors",
                    (
                        "        dW = np.array(dM)\n"
                        "        for part, *_ in wide:\n"
                        "            dW[:, part * len(W) : (part + 1) * len(W)] = 0\n"
                        "        return dW, factors"
                    ),
                ),
            ),
        ),
        "in-place": (
            "changes W",
            fault(
                "adapters",
                (
                    "    M = np.concatenate(parts, 1).astype(W.dtype)\n",
                    "    M = np.concatenate(parts, 1).astype(W.dtype)\n    W[:] = M\n",
                ),
            ),
        ),
        "rank-zero": (
            "divides by the root of 0",
            fault(
                "adapters",
                ("max(A.shape[1], 1) ** 0.5", "np.float64(A.shape[1]) ** 0.5"),
                ("parts[part] + s * A @ B", "parts[part] + s * (A @ B)"),
            ),
        ),
        "first-rank": (
            "takes the rank of the first adapter for all",
            fault("adapters", ("max(A.shape[1], 1) ** 0.5", "max(adapters[0][1].shape[1], 1) ** 0.5")),
        ),
        "negative-part": ("counts parts from the end", fault("adapters", ("part in range(3)", "part in range(-3, 3)"))),
        "too-late": (
            "raises no error for a part that is not there",
            fault(
                "adapters",
                ("part in range(3)", "True"),
                ("parts[part] = parts[part] + s * A @ B", "parts[part % 3] = parts[part % 3] + s * A @ B"),
                ("G = grads[part]", "G = grads[part % 3]"),
            ),
        ),
        "weight-forward": (
            "leaves the weight out of the gradients",
            fault(
                "adapters",
                (
                    "for part, A, B, s in wide:\n            G = grads[part]",
                    (
                        "for (part, A, B, s), (*_, w) in zip(wide, adapters, strict=True):\n"
                        "            G = grads[part] / w if w else grads[part]"
                    ),
                ),
            ),
        ),
        "whole-part": (
            "casts p with int() before the check",
            {
                "adapters_answer": """\
def merge(W, adapters):
    d = W.shape[0]
    for ad in adapters:
        if int(ad[0]) not in (0, 1, 2):
            raise ValueError("p must be 0, 1 or 2")
    M = np.array(W, dtype=np.float64)
    for p, A, B, alpha, w in adapters:
        r = A.shape[1]
        if r == 0:
            continue
        s = w * alpha / math.sqrt(r)
        M[:, int(p) * d:(int(p) + 1) * d] += s * (A.astype(np.float64) @ B.astype(np.float64))

    def vjp(dM):
        G = np.asarray(dM, dtype=np.float64)
        factors = []
        for p, A, B, alpha, w in adapters:
            r = A.shape[1]
            if r == 0:
                factors.append((np.zeros_like(A), np.zeros_like(B)))
                continue
            s = w * alpha / math.sqrt(r)
            g = G[:, int(p) * d:(int(p) + 1) * d]
            dA = s * (g @ B.astype(np.float64).T)
            dB = s * (A.astype(np.float64).T @ g)
            factors.append((dA.astype(W.dtype), dB.astype(W.dtype)))
        return dM.copy(), factors

    return M.astype(W.dtype), vjp
"""
            },
        ),
        "rank-zero-part": (
            "skips rank-0 adapters before p is checked",
            {
                "adapters_answer": """\
def merge(W, adapters):
    d = W.shape[0]
    for ad in adapters:
        if ad[1].shape[1] > 0 and ad[0] not in (0, 1, 2):
            raise ValueError("p must be 0, 1 or 2")
    M = np.array(W, dtype=np.float64)
    for p, A, B, alpha, w in adapters:
        r = A.shape[1]
        if r == 0:
            continue
        s = w * alpha / math.sqrt(r)
        M[:, p * d:(p + 1) * d] += s * (A.astype(np.float64) @ B.astype(np.float64))

    def vjp(dM):
        G = np.asarray(dM, dtype=np.float64)
        factors = []
        for p, A, B, alpha, w in adapters:
            r = A.shape[1]
            if r == 0:
                factors.append((np.zeros_like(A), np.zeros_like(B)))
                continue
            s = w * alpha / math.sqrt(r)
            g = G[:, p * d:(p + 1) * d]
            dA = s * (g @ B.astype(np.float64).T)
            dB = s * (A.astype(np.float64).T @ g)
            factors.append((dA.astype(W.dtype), dB.astype(W.dtype)))
        return dM.copy(), factors

    return M.astype(W.dtype), vjp
"""
            },
        ),
        "single": (
            "computes float16 problems in float32 instead of float64",
            {
                "adapters_answer": """\
def merge(W, adapters):
    d = W.shape[0]
    acc = np.float32 if W.dtype == np.float16 else np.float64
    keep = []
    M = W.astype(acc)
    for p, A, B, alpha, w in adapters:
        if p not in (0, 1, 2):
            raise ValueError("p must be 0, 1 or 2")
        r = A.shape[1]
        s = acc(w * alpha / math.sqrt(r)) if r else acc(0)
        A, B = A.astype(acc), B.astype(acc)
        M[:, p * d:(p + 1) * d] += s * (A @ B)
        keep.append((p, A, B, s))

    def vjp(dM):
        G = dM.astype(acc)
        factors = []
        for p, A, B, s in keep:
            g = G[:, p * d:(p + 1) * d]
            factors.append(((s * (g @ B.T)).astype(W.dtype), (s * (A.T @ g)).astype(W.dtype)))
        return G.astype(W.dtype), factors

    return M.astype(W.dtype), vjp
"""
            },
        ),
    },
    "valleys": {
        "own-shapes": (
            "fits each valley a shape of its own",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    N, C, L = (np.array(X, dtype=float) for X in (N, C, L))
    budgets = sorted(set(C.tolist()))
    m = []
    for b in budgets:
        x, y = np.log(N[C == b]), L[C == b]
        if len(set(x.tolist())) < 3:
            m.append(x[np.argmin(y)])
            continue
        z = x.mean()
        p2, p1, _ = np.polyfit(x - z, y, 2)
        if p2 <= 0:
            raise ValueError("no valley")
        m.append(z - p1 / (2 * p2))
    m = np.array(m)
    a = np.polyfit(np.log(budgets), m, 1)[0] if len(budgets) > 1 else math.nan
    return np.exp(m), a
"""
            },
        ),
        "mean-shape": (
            "fits each valley alone and takes the mean of the q",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    N, C, L = (np.array(X, dtype=float) for X in (N, C, L))
    budgets = sorted(set(C.tolist()))
    qs, slopes, centres = [], [], []
    for b in budgets:
        x, y = np.log(N[C == b]), L[C == b]
        z = x.mean()
        centres.append(z)
        if len(set(x.tolist())) < 3:
            slopes.append(None)
            continue
        p2, p1, _ = np.polyfit(x - z, y, 2)
        qs.append(p2)
        slopes.append(p1)
    q = np.mean(qs)
    if q <= 0:
        raise ValueError("no valley")
    for i, b in enumerate(budgets):
        x, y = np.log(N[C == b]) - centres[i], L[C == b]
        slopes[i] = np.polyfit(x, y - q * x * x, 1)[0]
    m = np.array(centres) - np.array(slopes) / (2 * q)
    a = np.polyfit(np.log(budgets), m, 1)[0] if len(budgets) > 1 else math.nan
    return np.exp(m), a
"""
            },
        ),
        "own-heights-missing": (
            "gives all valleys one height",
            fault("valleys", ("        design[own, 2 * i] = 1\n", "        design[own, 0] = 1\n")),
        ),
        "one-slope": (
            "gives all valleys one middle, seen from their mean",
            fault(
                "valleys",
                ("        design[own, 2 * i + 1] = z[own]\n", "        design[own, 1] = z[own]\n"),
                ("solution[2 * i + 1]", "solution[1]"),
            ),
        ),
        "sizes": (
            "fits a parabola in N instead of its logarithm",
            fault(
                "valleys",
                ("x = np.log(N)", "x = N / N.mean()"),
                ("return np.exp(m), a", "return m * N.mean(), a"),
                ("return np.exp(m), float", "return m * N.mean(), float"),
                ("np.polyfit(np.log(budgets), m, 1)", "np.polyfit(np.log(budgets), np.log(np.abs(m) * N.mean()), 1)"),
            ),
        ),
        "sign": (
            "has the middle on the wrong side",
            fault("valleys", ("middle[b] - solution", "middle[b] + solution")),
        ),
        "no-two": ("forgets the 2 of the derivative", fault("valleys", ("/ (2 * q)", "/ q"))),
        "uncentred": ("forgets the shift", fault("valleys", ("m = np.array([middle[b] - ", "m = np.array([0 - "))),
        "logs": (
            "returns the middles and not the sizes",
            fault("valleys", ("return np.exp(m), a", "return m, a"), ("return np.exp(m), float", "return m, float")),
        ),
        "tens": (
            "takes logarithms to base 10 and e for the size",
            fault("valleys", ("x = np.log(N)", "x = np.log10(N)")),
        ),
        "lowest-run": (
            "takes the lowest run of each budget",
            fault(
                "valleys",
                (
                    ("m = np.array([middle[b] - solution[2 * i + 1] / (2 * q) for i, b in enumerate(budgets)])"),
                    "m = np.array([x[C == b][np.argmin(L[C == b])] for b in budgets])",
                ),
            ),
        ),
        "runs-count": (
            "lets every run count in the exponent",
            fault(
                "valleys",
                (
                    "np.polyfit(np.log(budgets), m, 1)[0]",
                    "np.polyfit(np.log(C), [m[budgets.index(b)] for b in C.tolist()], 1)[0]",
                ),
            ),
        ),
        "inverse": (
            "returns the inverse exponent",
            fault("valleys", ("np.polyfit(np.log(budgets), m, 1)[0]", "np.polyfit(m, np.log(budgets), 1)[0]")),
        ),
        "through-zero": (
            "fits a line through the origin",
            fault(
                "valleys",
                ("np.polyfit(np.log(budgets), m, 1)[0]", "(np.log(budgets) @ m) / (np.log(budgets) @ np.log(budgets))"),
            ),
        ),
        "two-ends": (
            "takes the exponent from the first and the last budget",
            fault(
                "valleys", ("np.polyfit(np.log(budgets), m, 1)[0]", "(m[-1] - m[0]) / np.log(budgets[-1] / budgets[0])")
            ),
        ),
        "raw-budget": (
            "fits against the budget, not its logarithm",
            fault("valleys", ("np.polyfit(np.log(budgets), m, 1)", "np.polyfit(budgets, m, 1)")),
        ),
        "appearance": (
            "lists budgets in the order of the runs",
            fault("valleys", ("sorted(set(C.tolist()))", "list(dict.fromkeys(C.tolist()))")),
        ),
        "falling": (
            "lists budgets in decreasing order",
            fault("valleys", ("sorted(set(C.tolist()))", "sorted(set(C.tolist()), reverse=True)")),
        ),
        "no-error": (
            "returns the top of a hill",
            fault("valleys", ('    if not q > 0:\n        raise ValueError("no valley")\n', "")),
        ),
        "nonzero": ("only refuses q = 0", fault("valleys", ("if not q > 0", "if q == 0"))),
        "one-budget": ("gives the exponent 0 for one budget", fault("valleys", ('float("nan")', "0.0"))),
        "one-budget-error": (
            "fails with one budget",
            fault(
                "valleys",
                ('    if len(budgets) < 2:\n        return np.exp(m), float("nan")\n', ""),
                (
                    "np.polyfit(np.log(budgets), m, 1)[0]",
                    (
                        "np.linalg.solve(np.array([[len(m), np.log(budgets).sum()], [np.log(budgets).sum("
                        "), (np.log(budgets) ** 2).sum()]]), np.array([m.sum(), np.log(budgets) @ m]))[1]"
                    ),
                ),
            ),
        ),
        "normal-equations": (
            "solves the normal equations without a shift",
            fault(
                "valleys",
                (
                    "z = x - np.array([middle[b] for b in C.tolist()])",
                    "z = x\n    middle = dict.fromkeys(budgets, 0.0)",
                ),
                ("np.linalg.lstsq(design, L, rcond=None)[0]", "np.linalg.solve(design.T @ design, design.T @ L)"),
            ),
        ),
        "ridge": (
            "adds a small number for safety",
            fault(
                "valleys",
                (
                    "np.linalg.lstsq(design, L, rcond=None)[0]",
                    "np.linalg.solve(design.T @ design + 1e-6 * np.eye(design.shape[1]), design.T @ L)",
                ),
            ),
        ),
        "log-loss": (
            "fits the logarithm of the loss",
            fault("valleys", ("np.linalg.lstsq(design, L,", "np.linalg.lstsq(design, np.log(L),")),
        ),
        "drops-pairs": (
            "leaves out budgets with two sizes",
            fault(
                "valleys",
                (
                    "budgets = sorted(set(C.tolist()))",
                    "budgets = [b for b in sorted(set(C.tolist())) if len(set(N[C == b].tolist())) > 2]",
                ),
                (
                    "    x = np.log(N)\n",
                    ("    keep = np.isin(C, budgets)\n    N, C, L = N[keep], C[keep], L[keep]\n    x = np.log(N)\n"),
                ),
            ),
        ),
        "whole-numbers": (
            "rounds the sizes",
            fault(
                "valleys",
                ("return np.exp(m), a", "return np.round(np.exp(m)), a"),
                ("return np.exp(m), float", "return np.round(np.exp(m)), float"),
            ),
        ),
        "sorted-sizes": (
            "returns the best sizes sorted by themselves instead of by budget",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, dtype=np.float64))
    C = np.asarray(C, dtype=np.float64)
    L = np.asarray(L, dtype=np.float64)
    budgets, idx = np.unique(C, return_inverse=True)
    num = den = 0.0
    fits = []
    for b in range(len(budgets)):
        xb, Lb = x[idx == b], L[idx == b]
        c = xb.mean()
        z, y = xb - c, Lb - Lb[0]
        y = y - y.mean()
        zz = z @ z
        slope = z @ y / zz
        u = z * z - (z * z).mean()
        bend = z @ u / zz
        res = u - bend * z
        num += res @ y
        den += res @ res
        fits.append((c, slope, bend))
    q = num / den
    if not q > 0:
        raise ValueError("the runs make no valley")
    m = np.array([c - (slope - q * bend) / (2 * q) for c, slope, bend in fits])
    if len(budgets) == 1:
        return np.exp(m), float("nan")
    t = np.log(budgets)
    t = t - t.mean()
    return np.sort(np.exp(m)), float(t @ (m - m.mean()) / (t @ t))
"""
            },
        ),
        "plain": (
            "raises only if q < 0, so q = 0 (all losses equal) gives nan or inf instead of a ValueError",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, dtype=np.float64))
    C = np.asarray(C, dtype=np.float64)
    L = np.asarray(L, dtype=np.float64)
    budgets, idx = np.unique(C, return_inverse=True)
    num = den = 0.0
    fits = []
    for b in range(len(budgets)):
        xb, Lb = x[idx == b], L[idx == b]
        c = xb.mean()
        z, y = xb - c, Lb - Lb[0]
        y = y - y.mean()
        zz = z @ z
        slope = z @ y / zz
        u = z * z - (z * z).mean()
        bend = z @ u / zz
        res = u - bend * z
        num += res @ y
        den += res @ res
        fits.append((c, slope, bend))
    q = num / den
    if q < 0:
        raise ValueError("the runs make no valley")
    m = np.array([c - (slope - q * bend) / (2 * q) for c, slope, bend in fits])
    if len(budgets) == 1:
        return np.exp(m), float("nan")
    t = np.log(budgets)
    t = t - t.mean()
    return np.exp(m), float(t @ (m - m.mean()) / (t @ t))
"""
            },
        ),
        "threshold": (
            "treats a small q as no valley (threshold 1e-4)",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, dtype=np.float64))
    C = np.asarray(C, dtype=np.float64)
    L = np.asarray(L, dtype=np.float64)
    budgets, idx = np.unique(C, return_inverse=True)
    num = den = 0.0
    fits = []
    for b in range(len(budgets)):
        xb, Lb = x[idx == b], L[idx == b]
        c = xb.mean()
        z, y = xb - c, Lb - Lb[0]
        y = y - y.mean()
        zz = z @ z
        slope = z @ y / zz
        u = z * z - (z * z).mean()
        bend = z @ u / zz
        res = u - bend * z
        num += res @ y
        den += res @ res
        fits.append((c, slope, bend))
    q = num / den
    if q < 1e-4:
        raise ValueError("the runs make no valley")
    m = np.array([c - (slope - q * bend) / (2 * q) for c, slope, bend in fits])
    if len(budgets) == 1:
        return np.exp(m), float("nan")
    t = np.log(budgets)
    t = t - t.mean()
    return np.exp(m), float(t @ (m - m.mean()) / (t @ t))
"""
            },
        ),
        "each-alone": (
            "raises a ValueError if any single budget bends downwards by itself",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, dtype=np.float64))
    C = np.asarray(C, dtype=np.float64)
    L = np.asarray(L, dtype=np.float64)
    budgets, idx = np.unique(C, return_inverse=True)
    num = den = 0.0
    fits = []
    for b in range(len(budgets)):
        xb, Lb = x[idx == b], L[idx == b]
        c = xb.mean()
        z, y = xb - c, Lb - Lb[0]
        y = y - y.mean()
        zz = z @ z
        slope = z @ y / zz
        u = z * z - (z * z).mean()
        bend = z @ u / zz
        res = u - bend * z
        if len(np.unique(xb)) > 2 and res @ y <= 0:
            raise ValueError("no valley")
        num += res @ y
        den += res @ res
        fits.append((c, slope, bend))
    q = num / den
    if not q > 0:
        raise ValueError("the runs make no valley")
    m = np.array([c - (slope - q * bend) / (2 * q) for c, slope, bend in fits])
    if len(budgets) == 1:
        return np.exp(m), float("nan")
    t = np.log(budgets)
    t = t - t.mean()
    return np.exp(m), float(t @ (m - m.mean()) / (t @ t))
"""
            },
        ),
        "merged-runs": (
            "averages the losses of runs of the same size and budget first",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, dtype=np.float64))
    C = np.asarray(C, dtype=np.float64)
    L = np.asarray(L, dtype=np.float64)
    budgets, idx = np.unique(C, return_inverse=True)
    num = den = 0.0
    fits = []
    for b in range(len(budgets)):
        xb, inv = np.unique(x[idx == b], return_inverse=True)
        Lb = np.bincount(inv, weights=L[idx == b]) / np.bincount(inv)
        c = xb.mean()
        z, y = xb - c, Lb - Lb[0]
        y = y - y.mean()
        zz = z @ z
        slope = z @ y / zz
        u = z * z - (z * z).mean()
        bend = z @ u / zz
        res = u - bend * z
        num += res @ y
        den += res @ res
        fits.append((c, slope, bend))
    q = num / den
    if not q > 0:
        raise ValueError("the runs make no valley")
    m = np.array([c - (slope - q * bend) / (2 * q) for c, slope, bend in fits])
    if len(budgets) == 1:
        return np.exp(m), float("nan")
    t = np.log(budgets)
    t = t - t.mean()
    return np.exp(m), float(t @ (m - m.mean()) / (t @ t))
"""
            },
        ),
        "clipped": (
            "clips every middle to the range of sizes tried in its budget",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, dtype=np.float64))
    C = np.asarray(C, dtype=np.float64)
    L = np.asarray(L, dtype=np.float64)
    budgets, idx = np.unique(C, return_inverse=True)
    num = den = 0.0
    fits = []
    for b in range(len(budgets)):
        xb, Lb = x[idx == b], L[idx == b]
        c = xb.mean()
        z, y = xb - c, Lb - Lb[0]
        y = y - y.mean()
        zz = z @ z
        slope = z @ y / zz
        u = z * z - (z * z).mean()
        bend = z @ u / zz
        res = u - bend * z
        num += res @ y
        den += res @ res
        fits.append((c, slope, bend, xb.min(), xb.max()))
    q = num / den
    if not q > 0:
        raise ValueError("the runs make no valley")
    m = np.array([np.clip(c - (slope - q * bend) / (2 * q), lo, hi) for c, slope, bend, lo, hi in fits])
    if len(budgets) == 1:
        return np.exp(m), float("nan")
    t = np.log(budgets)
    t = t - t.mean()
    return np.exp(m), float(t @ (m - m.mean()) / (t @ t))
"""
            },
        ),
        "nearly-equal": (
            "takes budgets within a relative 1e-5 for one (np.isclose) instead of equal numbers only",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    x = np.log(np.asarray(N, float))
    C, L = np.asarray(C, float), np.asarray(L, float)
    budgets = []
    for c in np.sort(C):
        if not budgets or not np.isclose(c, budgets[-1]):
            budgets.append(c)
    budgets = np.array(budgets)
    K = len(budgets)
    X = np.zeros((len(x), 2 * K + 1))
    shift = np.zeros(K)
    for j, b in enumerate(budgets):
        k = np.isclose(C, b)
        shift[j] = x[k].mean()
        z = x[k] - shift[j]
        X[k, j], X[k, K + j], X[k, -1] = 1.0, z, z * z
    theta = np.linalg.lstsq(X, L - L.mean(), rcond=None)[0]
    q = theta[-1]
    if q <= 0:
        raise ValueError("no valley")
    m = shift - theta[K:2 * K] / (2 * q)
    a = np.polyfit(np.log(budgets), m, 1)[0] if K > 1 else float("nan")
    return np.exp(m), a
"""
            },
        ),
        "whole-logs": (
            "fills the centred logarithms into an array made with zeros_like(N)",
            {
                "valleys_answer": """\
def valleys(N, C, L):
    budgets, idx = np.unique(C, return_inverse=True)
    K = len(budgets)
    z = np.zeros_like(N)
    shift = np.zeros(K)
    for b in range(K):
        lx = np.log(N[idx == b])
        shift[b] = lx.mean()
        z[idx == b] = lx - shift[b]
    hot = np.eye(K)[idx]
    X = np.hstack([hot, hot * z[:, None], z[:, None] ** 2])
    theta = np.linalg.lstsq(X, L - L[0], rcond=None)[0]
    q = theta[-1]
    if not q > 0:
        raise ValueError("no valley")
    m = shift - theta[K:2 * K] / (2 * q)
    if K == 1:
        return np.exp(m), float("nan")
    return np.exp(m), float(np.polyfit(np.log(budgets), m, 1)[0])
"""
            },
        ),
    },
}

MESSAGE = {
    "pairs": {
        "overlapping": "in aaa only one pair can be replaced",
        "each-word-once": "a word that occurs 7 times counts 7 times",
        "types": "a pair may stand several times in a word",
        "first-seen": "of equal pairs take the longest merged token, then the smallest pair",
        "no-length": "of equal pairs the longest merged token comes first",
        "shortest": "of equal pairs the longest merged token comes first, not the shortest",
        "largest": "of pairs that are equal in all else the smallest is taken",
        "to-one": "a pair that would make one replacement is not merged",
        "until-two": "two replacements are enough for a merge",
        "once-a-word": "all places of the pair are replaced",
        "one-less": "as many merges as are asked for, if there are so many",
    },
    "bits": {
        "nats": "a bit is log 2 nats",
        "times": "a bit is log 2 nats: divide",
        "per-token": "divide by the bytes, not by the tokens",
        "mean-of-means": "all bits divided by all bytes",
        "sign": "bits are positive",
        "again": "every token counts once",
        "last-window": "the first window that holds a token scores it",
        "chunks": "windows overlap",
        "short-context": "a window holds tokens that were scored already",
        "drop-first": "the first token counts as well",
        "drop-rest": "the last window ends at the end of the text",
        "last-short": "the last window holds as many tokens as the others",
        "step-first": "the first window holds the first tokens, as many as fit",
        "everything-at-once": "a window holds at most length tokens",
    },
    "kneser": {
        "counts-below": "q counts the different words before w, not how often w occurs",
        "followers-below": "q counts the different words before w, not those behind it",
        "after-swapped": "the weight of q counts the words that follow u",
        "no-discount": "what q gives out must be taken from the counts",
        "no-weight": "every pair that was seen gives away one discount",
        "no-floor": "a count of 0 gives nothing away",
        "q-no-discount": "q is discounted too",
        "q-no-floor": "a word that was never second gives nothing away",
        "q-all": "only words that were seen second give a discount away",
        "row-total": "a word at the end of a text is followed by nothing",
        "pair-total": "divide by how often something follows u",
        "across": "words of different texts are no neighbours",
        "columns": "row u is for the words behind u",
        "unseen-zero": "behind a word that nothing followed the model is q",
        "unseen-uniform": "behind a word that nothing followed the model is q, which is not uniform",
        "no-backoff": "q is mixed into every word",
        "both-ends": "the first word does not follow the last",
        "twice": "one discount for each pair",
    },
    "nucleus": {
        "below-p": "the token that reaches p belongs to the set",
        "one-more": "the set ends with the token that reaches p",
        "hot-first": "the set is chosen at temperature 1",
        "no-heat": "inside the set the temperature counts",
        "heat-inverse": "logits are divided by the temperature",
        "not-normalised": "the tokens of the set share all of the weight",
        "ties-last": "of equal logits the smaller index comes first",
        "empty": "at least one token is kept",
        "sorted-out": "every token keeps its place",
        "cold-even": "at temperature 0 all of the weight is on the first token",
    },
    "patches": {
        "columns-first": "squares are taken row by row",
        "pixels-columns": "a square is read row by row",
        "channels-first": "of a pixel all channels are read before the next pixel",
        "overwrites": "a pixel receives something from every square that contains it",
        "no-mean-back": "the mean depends on every pixel of the square",
        "no-mean": "the mean of the square is subtracted",
        "picture-mean": "each square has its own mean",
        "channel-mean": "the mean is taken over all numbers of the square",
        "step-is-size": "the step is t, not the size of a square",
        "one-too-few": "a square that still fits counts",
    },
    "captions": {
        "diagonal": "every caption of the same class is right",
        "no-shares": "the right captions share the weight 1",
        "one-way": "the loss has two halves: captions of a picture and pictures of a caption",
        "sum": "the loss is a mean over the batch",
        "not-halved": "the two halves are averaged",
        "no-lengths": "rows are divided by their lengths",
        "straight-back": "the gradient is at right angles to its row, because the length does not count",
        "length-only": "a long row moves its direction less: divide by the length",
        "scale-tau": "the scale is the exponential of tau",
        "divides": "scores are multiplied by the exponential of tau",
        "dtau-scale": "the gradient is asked for by tau, not by its exponential",
        "no-scale-back": "scores are the scale times cosines",
        "dY-of-rows": "a caption collects over the pictures: dS transposed",
        "target-once": "both softmaxes have the shares subtracted",
        "dL-ignored": "the gradient is multiplied by dL",
    },
    "coupled": {
        "no-one": "1 is added before the sigmoid",
        "one-outside": "1 is added inside the sigmoid",
        "old-cell": "the output gate looks at the new cell state",
        "no-peep": "the output gate has p, which looks at the new cell state",
        "peep-back": "the new cell state is used three times: the output gate looks at it too",
        "swapped-roles": "f keeps the old state and 1 - f writes",
        "both-gates": "what is written has the weight 1 - f",
        "written-whole": "what is written has the weight 1 - f, not 1",
        "f-sees-c": "f stands before c and, as 1 - f, before g",
        "order": "the columns are those of f, o and g, in this order",
        "bare-cell": "h' is the output gate times the tangent of the cell state",
        "no-dc": "the new cell state is handed on: its own cotangent counts",
        "no-tangent-back": "the tangent has the derivative 1 - tanh squared",
        "g-back": "g is a tangent too: it has the derivative 1 - g squared",
        "gate-back": "the sigmoid has the derivative f (1 - f)",
        "c-back": "c has the weight f",
        "dp-t": "the output gate looks at the cell state itself",
    },
    "triangle": {
        "incoming": "the sides are (i, k) and (j, k)",
        "chain": "the second side is (j, k), not (k, j)",
        "sum": "divide by the number of triangles that count",
        "by-n": "divide by the number of triangles that count, not by n",
        "by-n-2": "divide by the number of triangles that count, which is n - 1 for i = j",
        "ends": "k is neither i nor j",
        "own-pair": "the pair (i, i) has triangles too: k is not i",
        "unknown-pair": "the pair (i, j) itself need not be known",
        "first-mask": "both sides must be known",
        "count-first": "both sides must be known to be counted",
        "symmetric": "known need not be symmetric",
        "swapped": "A has the side (i, k), B the side (j, k)",
        "channels": "channels stay apart",
    },
    "descent": {
        "ascent": "a step goes down: add the residuals",
        "first-residual": "after a step the residuals of the examples are others",
        "no-mean": "the loss is a mean over the examples",
        "all-count": "divide by the number of examples that count",
        "factor-two": "the loss has a half in front",
        "no-decay": "the weights shrink at every step",
        "decay-no-rate": "the weights shrink by the rate times the decay",
        "decay-by-N": "the decay does not depend on the number of examples",
        "decay-queries": "the predictions of the examples shrink too",
        "decay-after": "only the old weights shrink, not the new step",
        "first-rate": "every layer has its own rate",
        "reversed": "layer 0 comes first",
        "unmasked": "examples that do not count have no influence",
        "values-only": "an example that does not count is no example: its prediction is not pulled to 0",
        "softmax": "there is no softmax: the dot products are the weights",
        "root": "dot products are not divided by the root of d",
    },
    "adapters": {
        "by-rank": "rank-stabilised: divide by the root of the rank",
        "no-scale": "the product is divided by the root of the rank",
        "no-weight": "each adapter has a weight",
        "no-alpha": "each adapter has a constant alpha",
        "width-for-rank": "the rank is the number of A's columns",
        "overwrites": "adapters of one part are added",
        "transposed": "AB is added, not its transpose",
        "interleaved": "a part is d columns that stand side by side",
        "all-parts": "an adapter changes its own part only",
        "no-scale-back": "the factors' gradients have the scale and the weight",
        "scale-twice": "the scale stands once in a gradient",
        "first-part-back": "the gradient comes from the adapter's own part, not from the queries'",
        "all-parts-back": "the gradient comes from the adapter's own part, not from all three",
        "frozen": "W is asked for its gradient too: M contains W",
        "frozen-parts": "M contains W, so dW is dM",
        "first-rank": "each adapter has its own rank",
    },
    "valleys": {
        "own-shapes": "one q serves all budgets",
        "mean-shape": "q is chosen with all runs at once, not as a mean over budgets",
        "own-heights-missing": "each budget has its own height",
        "one-slope": "each budget has its own middle",
        "sizes": "the parabola is one in ln N",
        "sign": "the middle lies at minus the slope over 2 q",
        "no-two": "the derivative of q z squared is 2 q z",
        "uncentred": "x was shifted before the fit: shift the middle back",
        "logs": "best sizes are asked for: take the exponential",
        "tens": "natural logarithms",
        "lowest-run": "the bottom of the fitted valley, not the lowest run",
        "runs-count": "every budget counts once in the exponent",
        "inverse": "the exponent of the size as a power of the budget",
        "through-zero": "k is chosen too",
        "two-ends": "least squares over all budgets",
        "raw-budget": "the law is a line in ln C",
        "appearance": "budgets stand in increasing order, not in that of the runs",
        "falling": "budgets stand in increasing order",
        "log-loss": "the parabola is one of the loss, not of its logarithm",
        "drops-pairs": "with one q for all, two sizes are enough for a budget",
    },
}
