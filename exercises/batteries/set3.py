"""Problem set 3 and what people get wrong in it.

RIGHT    a second right answer to every exercise, written differently from the instructor's; it has to earn all points
WRONG    {exercise: {name: (description, {grade id: code})}}; each is RIGHT with a fault planted, and has to lose points
MESSAGE  {exercise: {name: words}}: what the first failed test has to say about that fault
"""

from functools import partial

from batteries.changes import changed

RIGHT = {
    "shared_answer": """\
def shared_attention(X, W, Wv):
    n, root = X.shape[-2], W.shape[1] ** 0.5
    Q, V = X @ W, X @ Wv
    size = np.linalg.norm(Q, axis=-1, keepdims=True)
    K = Q / size
    allowed = np.arange(n)[:, None] > np.arange(n)
    allowed[0, 0] = True
    S = np.where(allowed, Q @ np.swapaxes(K, -1, -2) / root, -np.inf)
    E = np.exp(S - S.max(-1, keepdims=True))
    P = E / E.sum(-1, keepdims=True)

    def vjp(dO):
        dV = np.swapaxes(P, -1, -2) @ dO
        dP = dO @ np.swapaxes(V, -1, -2)
        dS = P * (dP - (P * dP).sum(-1, keepdims=True)) / root
        dK = np.swapaxes(dS, -1, -2) @ Q
        dQ = dS @ K + (dK - K * (K * dK).sum(-1, keepdims=True)) / size
        dX = dQ @ W.T + dV @ Wv.T
        batch = tuple(range(X.ndim - 2))
        dW = (np.swapaxes(X, -1, -2) @ dQ).sum(batch)
        return dX, dW, (np.swapaxes(X, -1, -2) @ dV).sum(batch)

    return P @ V, vjp
""",
    "pack_answer": """\
def packed(ids, end):
    b, n = ids.shape
    mask = torch.zeros(b, 1, n, n, dtype=torch.bool)
    positions = torch.zeros(b, n, dtype=torch.long)
    for r, row in enumerate(ids.tolist()):
        start = 0
        for i, token in enumerate(row):
            mask[r, 0, i, start : i + 1] = True
            positions[r, i] = i - start
            if token == end:
                start = i + 1
    return mask, positions
""",
    "decode_answer": """\
def decode(Q, K, V, cache, width):
    K, V = (np.concatenate([old, new], axis=-2) for old, new in zip(cache, (K, V)))
    t, m = Q.shape[-2], K.shape[-2]
    back = np.arange(m - t, m)[:, None] - np.arange(m)
    S = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
    S = np.where((back >= 0) & (back < width), S, -np.inf)
    E = np.exp(S - S.max(-1, keepdims=True))
    O = E / E.sum(-1, keepdims=True) @ V
    keep = max(m - width + 1, 0)
    return O, (K[..., keep:, :], V[..., keep:, :])
""",
    "translate_answer": """\
def for_torch(mask, b, heads, n, m, dtype):
    full = mask.expand(b, heads, n, m)
    empty = ~full.any(-1)
    additive = torch.zeros(b, heads, n, m, dtype=dtype)
    additive[~full & ~empty[..., None]] = -torch.inf
    return additive.reshape(b * heads, n, m), empty
""",
    "cost_answer": """\
def window_cost(n, width, first, heads, k, v, itemsize, causal):
    most = width + 1 + first
    ramp = min(n, most)
    pairs = ramp * (ramp + 1) // 2 + (n - ramp) * most
    pairs = pairs if causal else 2 * pairs - n
    return {
        "pairs": pairs,
        "flops": 2 * heads * pairs * k + 2 * heads * pairs * v,
        "weights_bytes": itemsize * heads * pairs,
    }
""",
    "distance_measure": """\
def mean_distance(P, lengths):
    total = count = 0
    for maps, length in zip(P, lengths):
        i = np.arange(length)
        total = total + (maps[:, :length, :length] * abs(i[:, None] - i)).sum((-1, -2))
        count += length
    return total / count
""",
    "distance_predict": """\
def predicted_distance(n, causal):
    if causal:
        return (n - 1) / 4
    return (n - 1 / n) / 3
""",
    "spread_answer": """\
def spread(S, mask):
    allowed = np.broadcast_to(mask, S.shape)
    S = np.where(allowed, S, -np.inf)
    X = S - S.max(-1, keepdims=True)
    logP = X - np.log(np.exp(X).sum(-1, keepdims=True))
    P = np.exp(logP)
    logP = np.where(allowed, logP, 0)
    H = -(P * logP).sum(-1)
    count = allowed.sum(-1)
    full = np.where(count > 1, np.log(count), np.inf)

    def vjp(dR):
        return -P * (logP + H[..., None]) * (dR / full)[..., None]

    return H / full, vjp
""",
    "gate_answer": """\
def gated_rnn(X, h0, A, U, b, W):
    H, F, C = [h0], [], X @ W
    for t in range(X.shape[-2]):
        f = 0.5 + 0.5 * np.tanh((X[..., t, :] @ A + H[-1] @ U + b) / 2)
        F.append(f)
        H.append(f * H[-1] + (1 - f) * C[..., t, :])

    def vjp(dH):
        g, dX = np.zeros_like(h0), np.zeros_like(X)
        dA, dU, db, dW, batch = 0, 0, 0, 0, tuple(range(h0.ndim - 1))
        for t in reversed(range(len(F))):
            x, f, h = X[..., t, :], F[t], H[t]
            g = g + dH[..., t, :]
            da = g * (h - C[..., t, :]) * f * (1 - f)
            dc = g * (1 - f)
            dX[..., t, :] = da @ A.T + dc @ W.T
            dA = dA + np.tensordot(x, da, (batch, batch))
            dU = dU + np.tensordot(h, da, (batch, batch))
            db = db + da.sum(batch)
            dW = dW + np.tensordot(x, dc, (batch, batch))
            g = g * f + da @ U.T
        return dX, g, dA, dU, db, dW

    return np.stack(H[1:], -2), vjp
""",
    "leak_answer": """\
def first_leak(f, X):
    X = X.detach().clone().requires_grad_()
    Y = f(X)
    if not Y.requires_grad:
        return None
    for i in range(len(X)):
        seen = torch.zeros(len(X), dtype=torch.bool)
        for y in Y[i]:
            (g,) = torch.autograd.grad(y, X, retain_graph=True)
            seen |= (g != 0).any(-1)
        for j in range(i + 1, len(X)):
            if seen[j]:
                return i, j
    return None
""",
}


def but(cell, *changes):
    return {cell: changed(RIGHT[cell], *changes)}


shared = partial(but, "shared_answer")
pack = partial(but, "pack_answer")
decode = partial(but, "decode_answer")
translate = partial(but, "translate_answer")
cost = partial(but, "cost_answer")
measure = partial(but, "distance_measure")
predict = partial(but, "distance_predict")
spread = partial(but, "spread_answer")
gate = partial(but, "gate_answer")
leak = partial(but, "leak_answer")
RAMP = "ramp * (ramp + 1) // 2 + (n - ramp) * most"
CACHE = "(K[..., keep:, :], V[..., keep:, :])"
ADDITIVE = "return additive.reshape(b * heads, n, m), empty"

WRONG = {
    "shared": {
        "no-unit": ("keys keep their length", shared(("K = Q / size", "K, size = Q, np.inf"))),
        "unit-queries": (
            "queries are brought to length 1 too",
            shared(("Q @ np.swapaxes(K, -1, -2) / root, -np.inf", "K @ np.swapaxes(K, -1, -2) / root, -np.inf")),
        ),
        "no-scale": ("no division by the square root of the key width", shared(("W.shape[1] ** 0.5", "1.0"))),
        "sees-itself": ("a position also attends to itself", shared(("[:, None] > np", "[:, None] >= np"))),
        "not-causal": (
            "a position attends to all others, later ones too",
            shared(("[:, None] > np", "[:, None] != np")),
        ),
        "first-nan": ("the first position may attend to nothing", shared(("    allowed[0, 0] = True\n", ""))),
        "query-part": (
            "the matrix gets its gradient as a maker of queries only",
            shared(("dQ = dS @ K + (dK - K * (K * dK).sum(-1, keepdims=True)) / size", "dQ = dS @ K")),
        ),
        "key-part": (
            "the matrix gets its gradient as a maker of keys only",
            shared(("dQ = dS @ K + ", "dQ = ")),
        ),
        "no-projection": (
            "differentiates the division by the length as if the length were constant",
            shared((" - K * (K * dK).sum(-1, keepdims=True)) / size", ") / size")),
        ),
        "no-division": (
            "gradient of the keys not divided by the length of the query",
            shared(("(dK - K * (K * dK).sum(-1, keepdims=True)) / size", "(dK - K * (K * dK).sum(-1, keepdims=True))")),
        ),
        "no-row-correction": (
            "gradient without the row correction of softmax",
            shared(("P * (dP - (P * dP).sum(-1, keepdims=True))", "P * dP")),
        ),
        "no-value-path": ("dX without the path through the values", shared((" + dV @ Wv.T", ""))),
        "per-sequence": (
            "one gradient of the matrix for each sequence of the batch",
            shared(("@ dQ).sum(batch)", "@ dQ)")),
        ),
        "unstable": ("softmax without subtracting the maximum", shared(("S - S.max(-1, keepdims=True)", "S"))),
        "stand-in": ("-1e4 for minus infinity", shared(("root, -np.inf)", "root, -1e4)"))),
        "large-stand-in": ("-1e9 for minus infinity", shared(("root, -np.inf)", "root, -1e9)"))),
        "start-low": (
            "subtracts a maximum that is never below -1e3",
            shared(("S.max(-1, keepdims=True)", "np.maximum(S.max(-1, keepdims=True), -1e3)")),
        ),
        "guarded-length": (
            "adds 1e-12 to the length of a query",
            shared(("np.linalg.norm(Q, axis=-1, keepdims=True)", "np.linalg.norm(Q, axis=-1, keepdims=True) + 1e-12")),
        ),
        "least-length": (
            "takes no length below 1e-30",
            shared(
                (
                    "np.linalg.norm(Q, axis=-1, keepdims=True)",
                    "np.maximum(np.linalg.norm(Q, axis=-1, keepdims=True), 1e-30)",
                )
            ),
        ),
        "one-position": (
            "drops the axis of the positions where there is one",
            shared(("return P @ V, vjp", "O = P @ V\n    return (O[..., 0, :] if n == 1 else O), vjp")),
        ),
        "untransposed": ("dX through Wv instead of its transpose", shared(("dV @ Wv.T", "dV @ Wv"))),
        "no-batch": ("two axes only", shared(("Q @ np.swapaxes(K, -1, -2) / root", "Q @ K.T / root"))),
    },
    "pack": {
        "causal": ("causal, across the documents", pack(("start : i + 1", ": i + 1"))),
        "both-ways": (
            "a document's positions see the later ones of the same document",
            pack(
                (
                    "    return mask, positions",
                    "    return (mask | mask.mT), positions",
                )
            ),
        ),
        "end-opens": (
            "the end token opens the next document",
            pack(
                (
                    "            mask[r, 0",
                    "            if token == end:\n                start = i\n            mask[r, 0",
                ),
                ("            if token == end:\n                start = i + 1\n", ""),
            ),
        ),
        "end-alone": (
            "the end token belongs to no document",
            pack(("start : i + 1] = True", "i if token == end else start : i + 1] = True")),
        ),
        "end-unseen": (
            "no position may attend to an end token",
            pack(("return mask,", "return mask & (ids != end)[:, None, None],")),
        ),
        "strict": ("a position does not see itself", pack(("start : i + 1]", "start : i]"))),
        "one-boundary": ("stops at the second document", pack(("if token == end:", "if token == end and start == 0:"))),
        "one-row": (
            "the first row's documents in every row",
            pack(("enumerate(ids.tolist())", "enumerate([ids[0].tolist()] * b)")),
        ),
        "inverted": ("True where a position may not attend", pack(("return mask,", "return ~mask,"))),
        "no-head-axis": ("no axis for the heads", pack(("return mask,", "return mask[:, 0],"))),
        "no-restart": ("positions run on through the row", pack(("= i - start", "= i"))),
        "from-one": ("positions from 1", pack(("= i - start", "= i - start + 1"))),
        "document-number": (
            "the number of the document for the position",
            pack(("= i - start", "= row[:i].count(end)")),
        ),
        "additive": (
            "a float mask of 0 and -inf",
            pack(("return mask,", "return torch.where(mask, 0.0, -torch.inf),")),
        ),
        "numpy": ("a NumPy array", pack(("return mask,", "return mask.numpy(),"))),
        "end-restarts": (
            "positions begin again at the end token",
            pack(("= i - start", "= i - max([k for k in range(i + 1) if row[k] == end], default=0)")),
        ),
        "end-zero": (
            "an end token has the position 0",
            pack(("= i - start", "= 0 if token == end else i - start")),
        ),
        "small-integers": (
            "positions in the type of the token numbers, which may be int8",
            pack(
                (
                    "            positions[r, i] = i - start\n",
                    "            positions[r, i] = (i - start + 128) % 256 - 128\n",
                )
            ),
        ),
    },
    "decode": {
        "top-left": ("counts the queries from the first key on", decode(("np.arange(m - t, m)", "np.arange(t)"))),
        "no-window": ("no limit to how far back a query looks", decode((" & (back < width)", ""))),
        "too-wide": ("one key too many", decode(("back < width", "back <= width"))),
        "narrow": ("one key too few", decode(("back < width", "back < max(width - 1, 1)"))),
        "sees-ahead": ("queries of a chunk see its later keys", decode(("(back >= 0)", "(back >= -t)"))),
        "cuts-first": (
            "cuts keys to the window before the chunk's first query has read them",
            decode(("    t, m =", "    K, V = K[..., -width:, :], V[..., -width:, :]\n    t, m =")),
        ),
        "own-keys": (
            "the chunk attends to its own keys only",
            decode(("(back >= 0)", "(back >= 0) & (np.arange(m) >= m - t)")),
        ),
        "cache-width": (
            "keeps a position that no later query sees",
            decode(("max(m - width + 1, 0)", "max(m - width, 0)")),
        ),
        "keeps-all": ("the cache grows without end", decode(("max(m - width + 1, 0)", "0"))),
        "minus-zero": (
            "a slice from -0 keeps everything when the window is 1",
            decode((CACHE, "(K[..., -(width - 1) :, :], V[..., -(width - 1) :, :])")),
        ),
        "forgets": (
            "the new cache holds positions of this chunk only",
            decode(("max(m - width + 1, 0)", "max(m - width + 1, m - t)")),
        ),
        "stand-in": ("-1e4 for minus infinity", decode(("S, -np.inf", "S, -1e4"))),
        "large-stand-in": ("-1e9 for minus infinity", decode(("S, -np.inf", "S, -1e9"))),
        "start-low": (
            "subtracts a maximum that is never below -1e3",
            decode(("S.max(-1, keepdims=True)", "np.maximum(S.max(-1, keepdims=True), -1e3)")),
        ),
        "one-query": (
            "drops the axis of the positions where there is one",
            decode(("    keep =", "    O = O[..., 0, :] if t == 1 else O\n    keep =")),
        ),
        "no-batch": ("two axes only", decode(("np.swapaxes(K, -1, -2)", "K.T"))),
        "no-scale": ("no division by the square root of the key width", decode((" / np.sqrt(Q.shape[-1])", ""))),
        "unstable": ("softmax without subtracting the maximum", decode(("S - S.max(-1, keepdims=True)", "S"))),
        "mutates": (
            "scales the queries in place",
            decode(
                ("    S = Q @", "    Q /= np.sqrt(Q.shape[-1])\n    S = Q @"),
                (" / np.sqrt(Q.shape[-1])\n    S = np", "\n    S = np"),
            ),
        ),
    },
    "translate": {
        "inverted": ("forbids what is allowed", translate(("additive[~full &", "additive[full &"))),
        "boolean": (
            "a boolean mask, True = ignore",
            translate((ADDITIVE, "return (additive < 0).reshape(b * heads, n, m), empty")),
        ),
        "heads-first": (
            "numbers the heads first, the sequences within them",
            translate((ADDITIVE, "return additive.transpose(0, 1).reshape(b * heads, n, m), empty")),
        ),
        "large": ("-1e9 for minus infinity", translate(("= -torch.inf", "= -1e9"))),
        "lowest": (
            "the lowest number of the type for minus infinity",
            translate(("-torch.inf", "torch.finfo(dtype).min")),
        ),
        "times-inf": (
            "0 times infinity is nan",
            translate(
                ("additive[~full & ~empty[..., None]] = -torch.inf", "additive = (~full).to(dtype) * -torch.inf")
            ),
        ),
        "empty-left": ("rows without a key stay minus infinity", translate((" & ~empty[..., None]", ""))),
        "partly-empty": ("rows that lack some key count as empty", translate(("~full.any(-1)", "~full.all(-1)"))),
        "not-empty": ("marks the rows that do have a key", translate((ADDITIVE, ADDITIVE.replace("empty", "~empty")))),
        "float32": ("float32 whatever is asked for", translate(("dtype=dtype", "dtype=torch.float32"))),
        "four-axes": ("sequences and heads on two axes", translate((ADDITIVE, "return additive, empty"))),
        "all-heads": (
            "a row is empty only if it is so in every head",
            translate((ADDITIVE, ADDITIVE + ".all(1, keepdim=True).expand_as(empty)")),
        ),
        "numpy": ("a NumPy array", translate((ADDITIVE, ADDITIVE + ".numpy()"))),
        "one-query": (
            "drops the axis of the queries where there is one",
            translate((ADDITIVE, ADDITIVE + "[..., 0] if n == 1 else empty")),
        ),
        "two-axes": (
            "expects a mask of two axes at least",
            translate(("full = mask", "mask = mask[..., :, :m]\n    full = mask")),
        ),
    },
    "cost": {
        "no-borders": ("every position sees a whole window", cost((RAMP, "n * most"))),
        "no-self": ("a position does not see itself", cost(("width + 1 + first", "width + first"))),
        "twice-diagonal": (
            "both directions, a position's pair with itself counted twice",
            cost(("2 * pairs - n", "2 * pairs")),
        ),
        "always-causal": ("ignores that an encoder looks ahead", cost(("pairs if causal else 2 * pairs - n", "pairs"))),
        "dense": ("all pairs, window or not", cost((RAMP, "n * (n + 1) // 2"))),
        "no-first": ("ignores the first positions", cost(("width + 1 + first", "width + 1"))),
        "overlap": (
            "counts the first positions again where the window holds them",
            cost(("width + 1 + first", "width + 1"), (RAMP, RAMP + " + n * first")),
        ),
        "one-way": (
            "the first positions are seen by all but do not see all",
            cost(
                (
                    "2 * pairs - n",
                    "n + 2 * n * min(width, n - 1) - min(width, n - 1) * (min(width, n - 1) + 1)\\\n"
                    "        + sum(max(n - 1 - j - width, 0) for j in range(first))",
                )
            ),
        ),
        "no-two": (
            "counts a multiplication and an addition as one",
            cost(("2 * heads * pairs * k + 2 * heads", "heads * pairs * k + heads")),
        ),
        "k-for-v": ("takes values to be as wide as keys", cost(("heads * pairs * v", "heads * pairs * k"))),
        "one-head": (
            "counts one head",
            cost(("2 * heads * pairs * k + 2 * heads", "2 * pairs * k + 2"), ("itemsize * heads", "itemsize")),
        ),
        "dense-bytes": ("stores all pairs", cost(("itemsize * heads * pairs", "itemsize * heads * n * n"))),
        "float": ("floating-point counts", cost(("// 2", "/ 2"))),
        "rounded": (
            "counts pairs in floating point and makes a whole number of it",
            cost(("ramp * (ramp + 1) // 2", "int(ramp * (ramp + 1) / 2)")),
        ),
        "rounded-flops": (
            "counts operations in floating point and makes a whole number of it",
            cost(
                (
                    "2 * heads * pairs * k + 2 * heads * pairs * v",
                    "int(2.0 * heads * pairs * (k + v))",
                )
            ),
        ),
        "rounded-bytes": (
            "counts bytes in floating point and makes a whole number of it",
            cost(("itemsize * heads * pairs", "int(float(itemsize) * heads * pairs)")),
        ),
    },
    "distance": {
        "padded-queries": (
            "padding counts as queries",
            measure(("        i = np", "        length = P.shape[-1]\n        i = np")),
        ),
        "per-sequence": (
            "the mean of the sequences' means",
            measure((".sum((-1, -2))", ".sum((-1, -2)) / length"), ("count += length", "count += 1")),
        ),
        "signed": ("distances with their sign", measure(("abs(i[:, None] - i)", "(i[:, None] - i)"))),
        "squared": ("squares of the distances", measure(("abs(i[:, None] - i)", "(i[:, None] - i) ** 2"))),
        "one-number": ("sums over the heads", measure((".sum((-1, -2))", ".sum()"))),
        "padded-length": ("divides by the padded length", measure(("count += length", "count += P.shape[-1]"))),
        "largest-weight": (
            "the distance of the key with the largest weight",
            measure(
                (
                    "(maps[:, :length, :length] * abs(i[:, None] - i)).sum((-1, -2))",
                    "abs(i - maps[:, :length].argmax(-1)).sum(-1)",
                )
            ),
        ),
        "times-zero": (
            "multiplies the rows of padding by zero, nan or not",
            measure(
                ("        i = np.arange(length)\n", "        i = np.arange(P.shape[-1])\n"),
                (
                    "(maps[:, :length, :length] * abs(i[:, None] - i))",
                    "(maps * abs(i[:, None] - i) * (i < length)[:, None])",
                ),
            ),
        ),
        "limit": ("the limits for long sequences", predict(("(n - 1) / 4", "n / 4"), ("(n - 1 / n) / 3", "n / 3"))),
        "last-query": ("the last query's distance for all of them", predict(("(n - 1) / 4", "(n - 1) / 2"))),
        "pairs-alike": ("the mean over pairs, not over queries", predict(("(n - 1) / 4", "(n - 1) / 3"))),
        "not-itself": (
            "leaves out the position itself, at distance 0",
            predict(("(n - 1) / 4", "(n + 1) / 4"), ("(n - 1 / n) / 3", "(n + 1) / 3")),
        ),
        "exchanged": ("encoder and decoder exchanged", predict(("if causal", "if not causal"))),
        "only-nan": (
            "takes nan out, and multiplies what else the padding holds by zero",
            measure(
                ("        i = np.arange(length)\n", "        i = np.arange(P.shape[-1])\n"),
                (
                    "(maps[:, :length, :length] * abs(i[:, None] - i))",
                    "(np.where(np.isnan(maps), 0, maps) * abs(i[:, None] - i) * (i < length)[:, None])",
                ),
            ),
        ),
        "sums": (
            "a sum over the queries in the place of a formula",
            predict(("(n - 1) / 4", "np.arange(n).mean() / 2")),
        ),
        "limit-when-long": (
            "the limit for sequences of a hundred and more",
            predict(("(n - 1 / n) / 3", "(n - 1 / n * (n < 100)) / 3")),
        ),
    },
    "spread": {
        "not-divided": (
            "the entropy itself",
            spread(("np.where(count > 1, np.log(count), np.inf)", "np.ones(count.shape)")),
        ),
        "log-m": (
            "divides by the logarithm of the number of all keys",
            spread(("np.log(count)", "np.log(S.shape[-1])")),
        ),
        "divides-by-count": ("divides by the number of keys", spread(("np.log(count)", "count"))),
        "perplexity": (
            "the effective number of keys over their number",
            spread(("return H / full", "return np.exp(H) / count")),
        ),
        "one-key": (
            "0 / 0 where one key is allowed",
            spread(("np.where(count > 1, np.log(count), np.inf)", "np.log(count)")),
        ),
        "no-mask": ("ignores the mask", spread(("np.broadcast_to(mask, S.shape)", "np.ones(S.shape, bool)"))),
        "zero-scores": ("masked scores become 0 instead of minus infinity", spread(("S, -np.inf)\n", "S, 0)\n"))),
        "log-zero": ("0 times the logarithm of 0", spread(("    logP = np.where(allowed, logP, 0)\n", ""))),
        "no-row-correction": (
            "gradient without the part through the sum of the exponentials",
            spread(("logP + H[..., None]", "logP + 1")),
        ),
        "sign": ("gradient with the wrong sign", spread(("return -P", "return P"))),
        "undivided-gradient": ("gradient of the entropy itself", spread(("(dR / full)", "dR"))),
        "ones": ("ignores the cotangent", spread(("dR / full", "1 / full"))),
        "adds-mask": (
            "adds -1e9 to what is masked, whatever stands there",
            spread(("np.where(allowed, S, -np.inf)", "S + np.where(allowed, 0, -1e9)")),
        ),
        "stand-in": ("-1e4 for minus infinity", spread(("S, -np.inf)\n", "S, -1e4)\n"))),
        "large-stand-in": ("-1e9 for minus infinity", spread(("S, -np.inf)\n", "S, -1e9)\n"))),
        "start-low": (
            "subtracts a maximum that is never below -1e3",
            spread(("S.max(-1, keepdims=True)", "np.maximum(S.max(-1, keepdims=True), -1e3)")),
        ),
        "guarded-log": (
            "adds 1e-12 to a weight before its logarithm",
            spread(("    P = np.exp(logP)\n", "    P = np.exp(logP)\n    logP = np.log(P + 1e-12)\n")),
        ),
        "least-weight": (
            "takes the logarithm of no weight below 1e-10",
            spread(("    P = np.exp(logP)\n", "    P = np.exp(logP)\n    logP = np.log(np.maximum(P, 1e-10))\n")),
        ),
        "guarded-count": (
            "adds 1e-10 to the logarithm of the number of keys",
            spread(("np.where(count > 1, np.log(count), np.inf)", "np.log(count) + 1e-10")),
        ),
        "one-query": (
            "drops the axis of the queries where there is one",
            spread(("return H / full, vjp", "return np.squeeze(H / full), vjp")),
        ),
        "no-batch": (
            "counts the allowed keys as if there were two axes",
            spread(("allowed.sum(-1)", "allowed.sum(1)")),
        ),
        "log-of-weights": (
            "the logarithm of weights that have underflowed",
            spread(("    P = np.exp(logP)\n", "    P = np.exp(logP)\n    logP = np.log(P)\n")),
        ),
        "unstable": ("softmax without subtracting the maximum", spread(("S - S.max(-1, keepdims=True)", "S"))),
        "mutates": (
            "writes minus infinity into the caller's scores",
            spread(("    S = np.where(allowed, S, -np.inf)\n", "    S[~allowed] = -np.inf\n")),
        ),
    },
    "gate": {
        "gate-swapped": (
            "the gate lets in what it should keep",
            gate(("f * H[-1] + (1 - f) * C", "(1 - f) * H[-1] + f * C")),
        ),
        "no-start": ("starts at 0 whatever h0 is", gate(("H, F, C = [h0]", "H, F, C = [0 * h0]"))),
        "blind-gate": ("the gate does not see the state", gate((" + H[-1] @ U", ""))),
        "no-carry": ("nothing flows back along the carried state", gate(("g * f + da @ U.T", "da @ U.T"))),
        "no-gate-path": ("nothing flows back through the gate", gate(("g * f + da @ U.T", "g * f"))),
        "no-later": ("forgets the later steps", gate(("g = g + dH", "g = dH"))),
        "same-time": ("meets the state after the step", gate(("np.tensordot(h, da", "np.tensordot(H[t + 1], da"))),
        "no-candidate": ("the gate's gradient leaves out the new value", gate(("(h - C[..., t, :])", "h"))),
        "no-slope": ("leaves out the derivative of the sigmoid", gate((" * f * (1 - f)\n", "\n"))),
        "slope-tanh": ("the derivative of tanh for that of the sigmoid", gate((" * f * (1 - f)\n", " * (1 - f**2)\n"))),
        "no-gate-dx": ("dX without the gate", gate(("da @ A.T + dc @ W.T", "dc @ W.T"))),
        "no-value-dx": ("dX without the new value", gate(("da @ A.T + dc @ W.T", "da @ A.T"))),
        "last-step": ("the first step's part only", gate(("dA = dA + ", "dA = "), ("dW = dW + ", "dW = "))),
        "per-sequence": ("one bias gradient per sequence", gate(("da.sum(batch)", "da"))),
        "overflow": (
            "a sigmoid by exp(x) / (1 + exp(x))",
            gate(
                (
                    "f = 0.5 + 0.5 * np.tanh((X[..., t, :] @ A + H[-1] @ U + b) / 2)",
                    "f = np.exp(X[..., t, :] @ A + H[-1] @ U + b)\n        f = f / (1 + f)",
                )
            ),
        ),
        "cut-off": (
            "cuts what goes into the sigmoid off at 15",
            gate(
                (
                    "(X[..., t, :] @ A + H[-1] @ U + b) / 2",
                    "np.clip(X[..., t, :] @ A + H[-1] @ U + b, -15, 15) / 2",
                )
            ),
        ),
        "one-step": (
            "drops the axis of the steps where there is one",
            gate(("return np.stack(H[1:], -2)", "return np.stack(H[1:], -2) if len(F) > 1 else H[1]")),
        ),
        "u-transposed": ("the state meets the transpose of U", gate(("H[-1] @ U", "H[-1] @ U.T"))),
        "u-untransposed": ("goes back through U instead of its transpose", gate(("da @ U.T", "da @ U"))),
        "a-untransposed": ("dX through A instead of its transpose", gate(("da @ A.T", "da @ A"))),
        "w-untransposed": ("dX through W instead of its transpose", gate(("dc @ W.T", "dc @ W"))),
    },
    "leak": {
        "sum": (
            "differentiates the sum of a row's outputs, which may cancel",
            leak(("for y in Y[i]:", "for y in [Y[i].sum()]:")),
        ),
        "sum-inputs": (
            "adds the derivatives by a row's inputs, which may cancel",
            leak(("(g != 0).any(-1)", "g.sum(-1) != 0")),
        ),
        "tolerance": ("takes small derivatives for zero", leak(("(g != 0)", "(g.abs() > 1e-8)"))),
        "tiny-tolerance": ("takes derivatives below 1e-300 for zero", leak(("(g != 0)", "(g.abs() > 1e-300)"))),
        "squares": (
            "adds the squares of derivatives, which underflow",
            leak(("(g != 0).any(-1)", "(g * g).sum(-1) > 0")),
        ),
        "one-column": (
            "drops every axis of length 1 of the output",
            leak(("for y in Y[i]:", "for y in Y.squeeze()[i]:")),
        ),
        "itself": ("takes a position's own input for a leak", leak(("range(i + 1, len(X))", "range(i, len(X))"))),
        "past": ("looks at the past", leak(("range(i + 1, len(X))", "range(i)"))),
        "last-key": (
            "the last of the inputs that leak",
            leak(("range(i + 1, len(X))", "reversed(range(i + 1, len(X)))")),
        ),
        "next-only": (
            "looks one position ahead only",
            leak(("range(i + 1, len(X))", "range(i + 1, min(i + 2, len(X)))")),
        ),
        "first-column": ("looks at a row's first output only", leak(("for y in Y[i]:", "for y in Y[i][:1]:"))),
        "order": ("returns (j, i)", leak(("return i, j", "return j, i"))),
        "constant": (
            "asks for the gradient of a constant",
            leak(("    if not Y.requires_grad:\n        return None\n", "")),
        ),
        "nan": (
            "puts nan in and looks where it comes out: 0 times nan is nan",
            {
                "leak_answer": """\
def first_leak(f, X):
    found = []
    for j in range(len(X)):
        probe = X.clone()
        probe[j] = torch.nan
        found += [(i, j) for i in range(j) if f(probe)[i].isnan().any()]
    return min(found, default=None)
"""
            },
        ),
        "difference": (
            "changes an input a little and compares with a tolerance",
            {
                "leak_answer": """\
def first_leak(f, X):
    found = []
    for j in range(len(X)):
        probe = X.clone()
        probe[j] += 1e-3
        found += [(i, j) for i in range(j) if not torch.allclose(f(probe)[i], f(X)[i])]
    return min(found, default=None)
"""
            },
        ),
        "last-input": (
            "changes the last input only",
            {
                "leak_answer": """\
def first_leak(f, X):
    J = torch.autograd.functional.jacobian(f, X)
    leaks = (J[:, :, -1] != 0).any(-1).any(-1)[:-1].nonzero()
    return (leaks[0].item(), len(X) - 1) if len(leaks) else None
"""
            },
        ),
        "smallest-j": (
            "the smallest j, not the smallest i",
            {
                "leak_answer": """\
def first_leak(f, X):
    J = torch.autograd.functional.jacobian(f, X)
    pairs = (J != 0).any(3).any(1).triu(1).mT.nonzero().tolist()
    return (pairs[0][1], pairs[0][0]) if pairs else None
"""
            },
        ),
    },
}

MESSAGE = {
    "shared": {
        "no-unit": "your keys are the queries",
        "unit-queries": "you brought the queries to length 1 too",
        "no-scale": "not divided by the square root",
        "sees-itself": "your positions attend to themselves",
        "not-causal": "your positions attend to later ones",
        "first-nan": "the first position has no earlier one",
        "query-part": "the part that comes through the keys is missing",
        "key-part": "the part that comes through the queries is missing",
        "no-projection": "take the part along k_j out of dK",
        "no-division": "divided by the length of the query",
        "no-row-correction": "row correction",
        "no-value-path": "the path through the values",
        "stand-in": "no finite number stands for -inf",
        "large-stand-in": "no finite number stands for -inf",
        "start-low": "subtract the row's own largest score",
        "guarded-length": "add nothing to their length",
        "least-length": "add nothing to their length",
        "one-position": "axes of length 1 stay",
        "untransposed": "back through the transpose of Wv",
        "per-sequence": "dW for a batch of two sequences, which share the matrices, has shape (2, 2, 3)",
        "unstable": "subtract each row's largest score",
    },
    "pack": {
        "causal": "lets a document see those before it",
        "both-ways": "sees later ones of its own document",
        "end-opens": "it closes its own",
        "end-alone": "your end token sees only itself",
        "end-unseen": "nobody sees your end tokens",
        "strict": "do not see themselves",
        "one-boundary": "you stop at the second document",
        "one-row": "every row has the first row's documents",
        "inverted": "True = may attend",
        "no-head-axis": "expected (b, 1, n, n)",
        "no-restart": "begin again with each document",
        "from-one": "begin with 1",
        "document-number": "the number of the document",
        "additive": "return a torch tensor of booleans",
        "numpy": "return a torch tensor of booleans",
        "end-restarts": "begin again at end",
        "end-zero": "your end tokens have the position 0",
        "small-integers": "count in int64",
    },
    "decode": {
        "top-left": "it comes after the cache",
        "no-window": "look back without limit",
        "too-wide": "one too wide",
        "narrow": "one too narrow",
        "sees-ahead": "keys of the chunk that come after them",
        "cuts-first": "before the first query of the chunk has read them",
        "own-keys": "the chunk does not see the cache",
        "cache-width": "your cache holds [3, 3]",
        "keeps-all": "your cache holds [4, 4]",
        "minus-zero": "with width 1 your cache holds [2, 2]",
        "forgets": "later queries see",
        "stand-in": "no finite number stands for -inf",
        "large-stand-in": "no finite number stands for -inf",
        "start-low": "subtract the row's own largest score",
        "one-query": "axes of length 1 stay",
        "no-scale": "not divided by the square root",
        "unstable": "subtract each row's largest score",
        "mutates": "you changed your argument",
    },
    "translate": {
        "inverted": "you forbid what our mask allows",
        "boolean": "a mask to be added",
        "heads-first": "sequence 0 with all its heads comes first",
        "large": "a finite number that large scores outweigh",
        "lowest": "a finite number that large scores outweigh",
        "times-inf": "0 times infinity is nan",
        "empty-left": "a row without a key is -inf throughout",
        "partly-empty": "rows that lack only some keys",
        "not-empty": "True and False are exchanged",
        "float32": "of the given dtype",
        "four-axes": "expected (b * heads, n, m)",
        "all-heads": "empty in one head and not in another",
        "numpy": "expected a torch tensor",
        "one-query": "axes of length 1 stay",
        "two-axes": "your code raised IndexError",
    },
    "cost": {
        "no-borders": "there is nothing before the start",
        "no-self": "also attends to itself",
        "twice-diagonal": "pair with itself twice",
        "always-causal": "an encoder also looks ahead",
        "dense": "the window limits them",
        "no-first": "seen from everywhere",
        "overlap": "you count them twice",
        "one-way": "also attend to everything",
        "no-two": "are two operations",
        "k-for-v": "values have width v",
        "one-head": "you count one head",
        "dense-bytes": "only the pairs of the window are stored",
        "float": "counts are whole numbers",
        "rounded": "count in whole numbers",
        "rounded-flops": "count in whole numbers",
        "rounded-bytes": "count in whole numbers",
    },
    "distance": {
        "padded-queries": "rows of padding count as queries",
        "per-sequence": "the mean of the sequences' means",
        "signed": "take |i - j|",
        "squared": "you square the distances",
        "one-number": "expected one distance per head",
        "padded-length": "you divide by the padded length",
        "largest-weight": "the distance of the largest weight",
        "times-zero": "0 times nan or infinity is nan",
        "limit": "limits for long sequences",
        "last-query": "is the last query's",
        "pairs-alike": "a mean over pairs",
        "not-itself": "you leave out the position itself",
        "exchanged": "decoder and encoder are exchanged",
        "only-nan": "0 times nan or infinity is nan",
        "sums": "your code raised MemoryError",
        "limit-when-long": "the encoder's distance, exactly",
    },
    "spread": {
        "not-divided": "that is the entropy",
        "log-m": "you divide by log m",
        "divides-by-count": "divide by its logarithm",
        "perplexity": "that is e^H",
        "one-key": "not 0 / 0",
        "no-mask": "your weights ignore the mask",
        "zero-scores": "forbidden scores became 0",
        "log-zero": "not 0 * log 0",
        "no-row-correction": "the weights of a row are not free",
        "sign": "the sign is wrong",
        "undivided-gradient": "that is the gradient of the entropy",
        "ones": "you ignore the cotangent",
        "adds-mask": "with 1e300 behind the mask",
        "log-of-weights": "R with scores of ±10⁴ is nan or inf",
        "stand-in": "R with scores near -10⁴",
        "large-stand-in": "no finite number stands for -inf",
        "start-low": "R with scores near -10⁴ is nan or inf",
        "guarded-log": "R without a mask",
        "least-weight": "no smallest weight",
        "guarded-count": "R without a mask",
        "one-query": "R with one query",
        "unstable": "R with scores of ±10⁴ is nan or inf",
        "mutates": "you changed your argument",
    },
    "gate": {
        "gate-swapped": "lets in what it should keep",
        "no-start": "h0 is given",
        "blind-gate": "your gate does not see the state",
        "no-carry": "along the carried state",
        "no-gate-path": "nothing flows back through the gate",
        "no-later": "add what comes from later",
        "same-time": "U meets h_(t-1)",
        "no-candidate": "da leaves out the new value",
        "no-slope": "lacks the derivative of the sigmoid",
        "slope-tanh": "that is the derivative of tanh",
        "no-gate-dx": "the path through the gate is missing",
        "no-value-dx": "the path through the new value is missing",
        "cut-off": "gates of size 1e+04",
        "one-step": "axes of length 1 stay",
        "u-transposed": "you took the transpose of U",
        "u-untransposed": "back through the transpose of U",
        "a-untransposed": "back through the transpose of A",
        "w-untransposed": "back through the transpose of W",
        "last-step": "the steps share the matrix",
        "per-sequence": "db for a batch of two sequences, which share A, U, b and W, has shape (2, 2)",
        "overflow": "inf / inf is nan",
    },
    "leak": {
        "sum": "added derivatives may cancel",
        "sum-inputs": "added derivatives may cancel",
        "tolerance": "small derivatives count",
        "tiny-tolerance": "the first leak is (3, 4); you found None",
        "squares": "the first leak is (3, 4); you found None",
        "itself": "a layer may read those",
        "past": "a layer may read those",
        "last-key": "not at the smallest j",
        "next-only": "not at the smallest i",
        "first-column": "you found None",
        "order": "that is (j, i)",
        "constant": "what does not depend on X leaks nothing",
        "nan": "0 times nan is nan",
        "difference": "small derivatives count",
        "last-input": "not at the smallest j",
        "smallest-j": "the first leak is (1, 5)",
    },
}
