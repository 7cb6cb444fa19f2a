"""Problem set 4 and what people get wrong in it.

RIGHT    a second right answer to every exercise, written differently from the instructor's; it has to earn all points
WRONG    {exercise: {name: (description, {grade id: code})}}; each is RIGHT with a fault planted, and has to lose points
MESSAGE  {exercise: {name: words}}: what the first failed test has to say about that fault
"""

from functools import partial

from batteries.changes import changed

RIGHT = {
    "talk_answer": """\
def talking_heads(Q, K, V, A, B, mask):
    root = Q.shape[-1] ** 0.5
    S = Q @ np.swapaxes(K, -1, -2) / root
    Z = np.einsum("si,...inm->...snm", A, S)
    Z = np.where(mask, Z, -np.inf)
    E = np.exp(Z - Z.max(-1, keepdims=True))
    P = E / E.sum(-1, keepdims=True)
    R = np.einsum("cs,...snm->...cnm", B, P)

    def vjp(dO):
        outer = [a for a in range(S.ndim) if a != S.ndim - 3]
        dR = dO @ np.swapaxes(V, -1, -2)
        dV = np.swapaxes(R, -1, -2) @ dO
        dB = np.tensordot(dR, P, (outer, outer))
        dP = np.einsum("cs,...cnm->...snm", B, dR)
        dZ = P * (dP - (P * dP).sum(-1, keepdims=True))
        dA = np.tensordot(dZ, S, (outer, outer))
        dS = np.einsum("si,...snm->...inm", A, dZ) / root
        return dS @ K, np.swapaxes(dS, -1, -2) @ Q, dV, dA, dB

    return R @ V, vjp
""",
    "fused_answer": """\
def from_fused(weight, bias, heads, key_heads):
    per = heads // key_heads
    k = len(weight) // (heads + 2 * key_heads)
    rows = {"query": [], "key": [], "value": []}
    for block in range(heads + 2 * key_heads):
        place = block % (per + 2)
        name = "query" if place < per else ("key" if place == per else "value")
        rows[name] += range(block * k, (block + 1) * k)
    tree = {}
    for name, mine in rows.items():
        factor = k**-0.5 if name == "query" else 1.0
        tree[name] = {"weight": weight[mine].T * factor, "bias": bias[mine] * factor}
    return tree
""",
    "pool_answer": """\
def shared_keys(X, Wq, Wk, heads, key_heads):
    d, width = Wq.shape
    k, times = width // heads, heads // key_heads
    rows = X.reshape(-1, d)
    found = []
    for j in range(key_heads):
        G, right = 0, 0
        for i in range(j * times, (j + 1) * times):
            mine = slice(i * k, (i + 1) * k)
            Q = rows @ Wq[:, mine]
            gram = Q.T @ Q
            G = G + gram
            right = right + gram @ Wk[:, mine].T
        found.append((np.linalg.pinv(G, rcond=1e-10, hermitian=True) @ right).T)
    return np.concatenate(found, axis=1)
""",
    "narrow_answer": """\
def narrowest(params, heads):
    Wq, Wk, Wv, Wo = (params[name]["weight"] for name in ("query", "key", "value", "output"))
    bq, bv, bo = (params[name]["bias"] for name in ("query", "value", "output"))
    k, v = len(bq) // heads, len(bv) // heads
    forms, maps = [], []
    for i in range(heads):
        a, c = slice(i * k, (i + 1) * k), slice(i * v, (i + 1) * v)
        left = torch.cat([Wq[:, a], bq[None, a]])
        forms.append(torch.linalg.svd(left @ Wk[:, a].T / k**0.5, full_matrices=False))
        maps.append(torch.linalg.svd(Wv[:, c] @ Wo[c], full_matrices=False))

    def rank(parts):
        return max(1, max(int((s > 1e-10 * s[0]).sum()) for _, s, _ in parts))

    k, v = rank(forms), rank(maps)
    query = torch.cat([U[:, :k] * s[:k] * k**0.5 for U, s, _ in forms], 1)
    key = torch.cat([T[:k].T for _, _, T in forms], 1)
    value = torch.cat([U[:, :v] * s[:v] for U, s, _ in maps], 1)
    output = torch.cat([T[:v] for _, _, T in maps])
    return {
        "query": {"weight": query[:-1], "bias": query[-1]},
        "key": {"weight": key, "bias": torch.zeros_like(key[0])},
        "value": {"weight": value, "bias": torch.zeros_like(value[0])},
        "output": {"weight": output, "bias": bo + bv @ Wo},
    }
""",
    "gate_answer": """\
def gated_heads(H, X, Wg, bg, Wo):
    h, n, v = H.shape[-3:]
    G = 0.5 + 0.5 * np.tanh((X @ Wg + bg) / 2)
    G = np.swapaxes(G, -1, -2)[..., None]
    blocks = Wo.reshape(h, v, -1)
    C = H @ blocks
    batch = tuple(range(X.ndim - 2))

    def vjp(dO):
        dC = dO[..., None, :, :]
        dH = G * (dC @ np.swapaxes(blocks, -1, -2))
        dG = (C * dC).sum(-1, keepdims=True)
        dA = np.swapaxes((dG * G * (1 - G))[..., 0], -1, -2)
        dX = dA @ Wg.T
        dWg = (np.swapaxes(X, -1, -2) @ dA).sum(batch)
        dbg = dA.sum((*batch, -2))
        dWo = (np.swapaxes(G * H, -1, -2) @ dC).sum(batch).reshape(Wo.shape)
        return dH, dX, dWg, dbg, dWo

    return (G * C).sum(-3), vjp
""",
    "removal_form": """\
def removal(H, Wo, R, mask):
    b, h, _, v = H.shape
    g, M = np.zeros(h), np.zeros((h, h))
    for heads, rest, real in zip(H, R, mask):
        C = heads[:, real] @ Wo.reshape(h, v, -1)
        C = C.reshape(h, -1)
        g += C @ rest[real].ravel() / b
        M += C @ C.T / b
    return g, M
""",
    "removal_choice": """\
def cheapest(g, M, r):
    best, chosen = np.inf, None
    for heads in itertools.combinations(range(len(g)), r):
        a = list(heads)
        cost = M[np.ix_(a, a)].sum() / 2 - g[a].sum()
        if cost < best:
            best, chosen = cost, heads
    return chosen
""",
    "reverse_answer": """\
def reversible(layers, X1, X2):
    Y1, Y2 = X1, X2
    for f, g in layers:
        Y1 = Y1 + f(Y2)[0]
        Y2 = Y2 + g(Y1)[0]

    def vjp(dY1, dY2):
        A, B = Y1, Y2
        for f, g in reversed(layers):
            y, back = g(A)
            B = B - y
            dY1 = dY1 + back(dY2)
            y, back = f(B)
            A = A - y
            dY2 = dY2 + back(dY1)
        return dY1, dY2

    return (Y1, Y2), vjp
""",
    "cost_step": """\
def step_cost(d, h, g, k, m, texts, itemsize):
    weights = d * h * k + 2 * d * g * k + h * k * d
    cached = 2 * g * k * (m + 1)
    return {
        "flops": 2 * texts * weights + texts * h * (m + 1) * (2 * k + 2 * k),
        "weight_bytes": itemsize * weights,
        "cache_bytes": itemsize * texts * cached,
    }
""",
    "cost_balance": """\
def texts_to_outweigh(d, h, g, m):
    weights, cached = d * (h + g), (m + 1) * g
    return weights // cached + 1
""",
    "suspect_answer": """\
def diagnose(layer, d, heads):
    n, k = 5, d // heads
    X = torch.tensor(waves(0, n, d))
    names = ("query", "key", "value", "output")
    params = {
        name: {"weight": torch.tensor(waves(i, d, d)), "bias": torch.tensor(waves(9 + i, d))}
        for i, name in enumerate(names, 1)
    }

    def guess(fault):
        Y = [X @ params[name]["weight"] + params[name]["bias"] for name in names[:3]]
        if fault == "bias":
            Y[2] = X @ params["value"]["weight"]
        if fault == "no-swap":
            Q, K, V = (y.reshape(heads, n, k) for y in Y)
        elif fault == "interleaved":
            Q, K, V = (torch.stack([y[:, i::heads] for i in range(heads)]) for y in Y)
        else:
            Q, K, V = (torch.stack(y.split(k, 1)) for y in Y)
        if fault == "one-key":
            K = K[:1].expand_as(K)
        S = Q @ K.mT / (d if fault == "scale" else k) ** 0.5
        H = torch.softmax(S, -2 if fault == "axis" else -1) @ V
        merged = H.reshape(n, d) if fault in ("no-swap", "merge") else torch.cat(list(H), 1)
        return merged @ params["output"]["weight"] + params["output"]["bias"]

    found = layer(X, params).double()
    faults = ("right", "scale", "no-swap", "merge", "interleaved", "axis", "one-key", "bias")
    for fault in faults:
        if torch.allclose(found, guess(fault), rtol=1e-4, atol=1e-4):
            return fault
""",
}


def but(cell, *changes):
    return {cell: changed(RIGHT[cell], *changes)}


talk = partial(but, "talk_answer")
fused = partial(but, "fused_answer")
pool = partial(but, "pool_answer")
narrow = partial(but, "narrow_answer")
gate = partial(but, "gate_answer")
form = partial(but, "removal_form")
choice = partial(but, "removal_choice")
reverse = partial(but, "reverse_answer")
step = partial(but, "cost_step")
balance = partial(but, "cost_balance")
suspect = partial(but, "suspect_answer")
MASKED = "    Z = np.where(mask, Z, -np.inf)\n"
GRAM = "gram = Q.T @ Q"
SOLVED = "found.append((np.linalg.pinv(G, rcond=1e-10, hermitian=True) @ right).T)"
BACKWARD = """\
            y, back = g(A)
            B = B - y
            dY1 = dY1 + back(dY2)
            y, back = f(B)
            A = A - y
            dY2 = dY2 + back(dY1)
"""
COST = "M[np.ix_(a, a)].sum() / 2 - g[a].sum()"

WRONG = {
    "talk": {
        "first-transposed": ("A used the other way round", talk(('"si,...inm->...snm"', '"is,...inm->...snm"'))),
        "second-transposed": ("B used the other way round", talk(('"cs,...snm->...cnm"', '"sc,...snm->...cnm"'))),
        "exchanged": (
            "B mixes the scores and A the weights",
            talk(("    root =", "    A, B = B, A\n    root =")),
        ),
        "mask-first": (
            "masks the scores before they are mixed",
            talk((" / root\n    Z =", " / root\n    S = np.where(mask, S, -np.inf)\n    Z ="), (MASKED, "")),
        ),
        "mask-weights": (
            "masks the weights after softmax",
            talk((MASKED, ""), ("    P = E / E.sum(-1, keepdims=True)", "    P = mask * E / E.sum(-1, keepdims=True)")),
        ),
        "no-mask": ("ignores the mask", talk((MASKED, ""))),
        "no-scale": ("no division by the square root of the key width", talk(("Q.shape[-1] ** 0.5", "1.0"))),
        "normalised": (
            "normalises the mixed weights again",
            talk(("P)\n\n", "P)\n    R = R / R.sum(-1, keepdims=True)\n\n")),
        ),
        "one-mixing": ("mixes the scores only", talk((' = np.einsum("cs,...snm->...cnm", B, P)', " = P"))),
        "mixed-scores": (
            "mixes scores twice, softmax at the end",
            talk(
                ("    Z = np.where", '    Z = np.einsum("cs,...snm->...cnm", B, Z)\n    Z = np.where'),
                (' = np.einsum("cs,...snm->...cnm", B, P)', " = P"),
            ),
        ),
        "no-row-correction": (
            "gradient without the row correction of softmax",
            talk(("P * (dP - (P * dP).sum(-1, keepdims=True))", "P * dP")),
        ),
        "late-root": ("dQ and dK not divided by the square root", talk(("dZ) / root", "dZ)"))),
        "double-root": (
            "dA divided by the square root a second time",
            talk(("np.tensordot(dZ, S,", "np.tensordot(dZ / root, S,")),
        ),
        "unmixed-values": (
            "dV with the weights before the mixing",
            talk(("np.swapaxes(R, -1, -2)", "np.swapaxes(P, -1, -2)")),
        ),
        "unmixed-cotangent": (
            "the cotangent reaches the weights without being mixed back",
            talk(('np.einsum("cs,...cnm->...snm", B, dR)', "dR")),
        ),
        "mixed-meets": ("dB from the mixed weights", talk(("np.tensordot(dR, P,", "np.tensordot(dR, R,"))),
        "unstable": ("softmax without subtracting the maximum", talk(("Z - Z.max(-1, keepdims=True)", "Z"))),
        "stand-in": ("-1e4 for minus infinity", talk(("Z, -np.inf", "Z, -1e4"))),
        "large-stand-in": ("-1e9 for minus infinity", talk(("Z, -np.inf", "Z, -1e9"))),
        "start-low": (
            "subtracts a maximum that is never below -1e3",
            talk(("Z.max(-1, keepdims=True)", "np.maximum(Z.max(-1, keepdims=True), -1e3)")),
        ),
        "one-of-all": ("drops every axis of length 1", talk(("return R @ V, vjp", "return np.squeeze(R @ V), vjp"))),
        "keys-root": (
            "dK not divided by the square root",
            talk(("np.swapaxes(dS, -1, -2) @ Q", "np.swapaxes(dS, -1, -2) @ Q * root")),
        ),
        "a-untransposed": (
            "goes back through A instead of its transpose",
            talk(('"si,...snm->...inm", A, dZ', '"is,...snm->...inm", A, dZ')),
        ),
        "b-untransposed": (
            "goes back through B instead of its transpose",
            talk(('"cs,...cnm->...snm", B, dR', '"sc,...cnm->...snm", B, dR')),
        ),
        "no-batch": ("three axes only", talk(('"si,...inm->...snm", A, S', '"si,inm->snm", A, S'))),
        "mutates": (
            "scales the queries in place",
            talk(
                ("    S = Q @", "    Q /= root\n    S = Q @"),
                ("-2) / root\n    Z", "-2)\n    Z"),
                ("dZ) / root", "dZ) / root"),
            ),
        ),
    },
    "fused": {
        "packed": (
            "all queries first, then all keys, then all values",
            fused(
                ('"query" if place < per', '"query" if block < heads'),
                ('"key" if place == per', '"key" if block < heads + key_heads'),
            ),
        ),
        "triples": (
            "a query, a key and a value in turn, however many share a key",
            fused(("per = heads // key_heads", "per = 1")),
        ),
        "value-first": (
            "the value before the key",
            fused(('("key" if place == per else "value")', '("value" if place == per else "key")')),
        ),
        "key-first": (
            "key and value before the queries",
            fused(('"query" if place < per', '"query" if place > 1'), ("place == per", "place == 0")),
        ),
        "interleaved": (
            "the rows of the blocks interleaved",
            fused(("range(block * k, (block + 1) * k)", "range(block, len(weight), heads + 2 * key_heads)")),
        ),
        "tiled": (
            "neighbouring queries dealt out to different key heads",
            fused(
                (
                    "    return tree",
                    "    order = [j * per + i for i in range(per) for j in range(key_heads)]\n"
                    "    columns = [i * k + c for i in order for c in range(k)]\n"
                    '    tree["query"] = {leaf: Y[..., columns] for leaf, Y in tree["query"].items()}\n'
                    "    return tree",
                )
            ),
        ),
        "not-transposed": ("weights output by input, as they come", fused(("weight[mine].T", "weight[mine]"))),
        "reshaped": (
            "a reshape for the transpose",
            fused(("weight[mine].T", "weight[mine].reshape(weight.shape[1], -1)")),
        ),
        "no-factor": ("their scale left as it is", fused(("k**-0.5 if", "1.0 if"))),
        "inverse-factor": ("the factor the wrong way round", fused(("k**-0.5", "k**0.5"))),
        "whole-factor": ("divides by k where the square root is left", fused(("k**-0.5", "1 / k"))),
        "weight-only": ("the bias of the queries not divided", fused(("bias[mine] * factor", "bias[mine] * 1.0"))),
        "both-sides": (
            "queries and keys both divided",
            fused(('if name == "query"', 'if name != "value"')),
        ),
        "shares": (
            "views into the checkpoint",
            {
                "fused_answer": """\
def from_fused(weight, bias, heads, key_heads):
    per = heads // key_heads
    k = len(weight) // (heads + 2 * key_heads)
    W, b = weight.view(key_heads, per + 2, k, -1), bias.view(key_heads, per + 2, k)
    d, places = weight.shape[1], {"query": slice(per), "key": slice(per, per + 1), "value": slice(per + 1, None)}
    tree = {name: {"weight": W[:, at].reshape(-1, d).T, "bias": b[:, at].reshape(-1)} for name, at in places.items()}
    tree["query"] = {leaf: Y / k**0.5 for leaf, Y in tree["query"].items()}
    return tree
"""
            },
        ),
        "mutates": (
            "divides the checkpoint's own rows",
            fused(
                (
                    '        tree[name] = {"weight": weight[mine].T * factor, "bias": bias[mine] * factor}\n',
                    "        weight[mine] *= factor\n        bias[mine] *= factor\n"
                    '        tree[name] = {"weight": weight[mine].T, "bias": bias[mine]}\n',
                )
            ),
        ),
        "double": ("float64 whatever comes in", fused(("weight[mine].T", "weight[mine].T.double()"))),
        "half": (
            "float32 where float16 or bfloat16 comes in",
            fused(("weight[mine].T", "weight[mine].T.to(torch.promote_types(weight.dtype, torch.float32))")),
        ),
        "width-one": (
            "drops the axis of the columns where there is one",
            fused(('"weight": weight[mine].T * factor', '"weight": weight[mine].T.squeeze() * factor')),
        ),
    },
    "pool": {
        "mean": ("the mean of the key matrices", pool((GRAM, "gram = np.eye(k)"))),
        "first": (
            "the first key matrix of the group",
            pool(("range(j * times, (j + 1) * times)", "range(j * times, j * times + 1)")),
        ),
        "sizes": (
            "a mean weighted by the size of the queries, one number per head",
            pool((GRAM, "gram = (Q * Q).sum() * np.eye(k)")),
        ),
        "diagonal": (
            "a mean weighted column by column",
            pool((GRAM, "gram = np.diag((Q * Q).sum(0))")),
        ),
        "tiled": (
            "every g-th head in a group",
            pool(("range(j * times, (j + 1) * times)", "range(j, heads, key_heads)")),
        ),
        "one-group": (
            "one matrix for all heads, repeated",
            pool(("range(j * times, (j + 1) * times)", "range(heads)")),
        ),
        "keys-gram": ("weighted by the keys", pool(("rows @ Wq[:, mine]", "rows @ Wk[:, mine]"))),
        "weights-gram": (
            "weighted by the query matrices, not by the queries",
            pool((GRAM, "gram = Wq[:, mine].T @ Wq[:, mine]")),
        ),
        "centred": ("takes the mean query away first", pool((GRAM, "Q = Q - Q.mean(0)\n            gram = Q.T @ Q"))),
        "summed-queries": (
            "adds the queries of the heads, not their products",
            pool(
                ("G, right = 0, 0", "G, right, A, B = 0, 0, 0, 0"),
                (
                    "            G = G + gram\n            right = right + gram @ Wk[:, mine].T\n",
                    "            A, B = A + Q, B + Q @ Wk[:, mine].T\n            G, right = A.T @ A, A.T @ B\n",
                ),
                ("            gram = Q.T @ Q\n", ""),
            ),
        ),
        "times": ("divides the sum by the number of heads as well", pool(("@ right).T", "@ right).T / times"))),
        "inverse": (
            "an inverse that may not exist",
            pool((SOLVED, "found.append((np.linalg.inv(G) @ right).T)")),
        ),
        "ridge": (
            "a small ridge",
            pool(("np.linalg.pinv(G, rcond=1e-10, hermitian=True)", "np.linalg.inv(G + 1e-6 * np.eye(k))")),
        ),
        "small-ridge": (
            "a ridge of 1e-10",
            pool((SOLVED, "found.append(np.linalg.solve(G + 1e-10 * np.eye(k), right).T)")),
        ),
        "tiny-ridge": (
            "a ridge of 1e-12 times the sum of the squares",
            pool((SOLVED, "found.append(np.linalg.solve(G + 1e-12 * np.trace(G) * np.eye(k), right).T)")),
        ),
        "absolute-rank": (
            "an absolute threshold for the rank",
            pool(("rcond=1e-10", "rcond=1e-10 / np.abs(G).max()")),
        ),
        "coarse-rank": ("takes directions that are used little for unused", pool(("rcond=1e-10", "rcond=1e-5"))),
        "two-axes": (
            "expects rows, not one row alone",
            pool(("X.reshape(-1, d)", "X.reshape(-1, X.shape[-2], d).reshape(-1, d)")),
        ),
        "squeeze": (
            "drops every axis of length 1",
            pool(("return np.concatenate(found, axis=1)", "return np.squeeze(np.concatenate(found, axis=1))")),
        ),
        "first-sequence": (
            "the first sequence of the batch only",
            pool(("X.reshape(-1, d)", "X.reshape(-1, *X.shape[-2:])[0]")),
        ),
        "all-pairs": (
            "the equal weights of the rows in a matrix of all pairs of rows",
            pool(("gram = Q.T @ Q\n", "gram = Q.T @ np.eye(len(Q)) @ Q\n")),
        ),
    },
    "narrow": {
        "no-rescale": (
            "the division by the square root of the width forgotten",
            narrow((" / k**0.5, full", ", full"), ("s[:k] * k**0.5", "s[:k]")),
        ),
        "old-root": ("the new width's root left out", narrow(("s[:k] * k**0.5", "s[:k]"))),
        "split-root": ("the new width's root on the keys too", narrow(("T[:k].T for", "T[:k].T * k**0.5 for"))),
        "no-query-bias": ("no query bias", narrow(('bias": query[-1]', 'bias": 0 * query[-1]'))),
        "bias-after": (
            "the rank without the query bias",
            narrow(
                (
                    "    k, v = rank(forms), rank(maps)\n",
                    "    plain = [\n"
                    "        torch.linalg.svd(a @ b.T) for a, b in zip(Wq.split(k, 1), Wk.split(k, 1))\n"
                    "    ]\n"
                    "    k, v = rank(plain), rank(maps)\n",
                )
            ),
        ),
        "no-value-bias": ("the value bias dropped", narrow(("bo + bv @ Wo", "bo"))),
        "smallest": (
            "the smallest rank of the heads",
            narrow(("max(1, max(int(", "max(1, min(int(")),
        ),
        "first-head": ("the first head's rank", narrow(("for _, s, _ in parts))", "for _, s, _ in parts[:1]))"))),
        "as-wide": (
            "the old widths",
            narrow(("k, v = rank(forms), rank(maps)", "k, v = min(k, len(forms[0][1])), min(v, len(maps[0][1]))")),
        ),
        "factors": (
            "the ranks of the factors, not of their products",
            narrow(
                (
                    "    k, v = rank(forms), rank(maps)\n",
                    "    thin = lambda A, B: min(torch.linalg.matrix_rank(A), torch.linalg.matrix_rank(B)).item()\n"
                    "    aug = torch.cat([Wq, bq[None]])\n"
                    "    wq, wo = aug.split(k, 1), Wo.split(v)\n"
                    "    wk, wv = Wk.split(k, 1), Wv.split(v, 1)\n"
                    "    k = max(1, *(thin(a, b) for a, b in zip(wq, wk)))\n"
                    "    v = max(1, *(thin(a, b) for a, b in zip(wv, wo)))\n",
                )
            ),
        ),
        "not-zero": ("counts singular values that are rounding errors", narrow(("s > 1e-10 * s[0]", "s > 0"))),
        "absolute": ("an absolute threshold", narrow(("s > 1e-10 * s[0]", "s > 1e-6"))),
        "matrix-rank": (
            "the tolerance of matrix_rank, near 1e-15",
            narrow(
                (
                    "int((s > 1e-10 * s[0]).sum()) for _, s, _ in parts",
                    "int(torch.linalg.matrix_rank(U @ torch.diag(s) @ T)) for U, s, T in parts",
                )
            ),
        ),
        "coarse": ("a threshold of 1e-6 for 1e-10", narrow(("1e-10", "1e-6"))),
        "squares": (
            "the threshold for the squares of the singular values",
            narrow(("s > 1e-10 * s[0]", "s**2 > 1e-10 * s[0] ** 2")),
        ),
        "squeeze": (
            "drops every axis of length 1",
            narrow(("    k, v = len(bq)", "    Wq = Wq.squeeze()\n    k, v = len(bq)")),
        ),
        "one-scale": (
            "a threshold relative to the largest head",
            narrow(
                (
                    "        return max(1, max(int((s > 1e-10 * s[0]).sum()) for _, s, _ in parts))",
                    "        top = max(s[0] for _, s, _ in parts)\n"
                    "        return max(1, max(int((s > 1e-10 * top).sum()) for _, s, _ in parts))",
                )
            ),
        ),
        "width-zero": ("width 0 where nothing is left", narrow(("return max(1, max(", "return max(0, max("))),
        "twice": (
            "the singular values on both sides",
            narrow(("T[:v] for _, _, T", "s[:v, None] * T[:v] for _, s, T")),
        ),
        "mutates": ("adds to the caller's output bias", narrow(("bo + bv @ Wo", "bo.add_(bv @ Wo)"))),
    },
    "gate": {
        "softmax": (
            "gates that compete, by softmax over the heads",
            gate(
                (
                    "    G = 0.5 + 0.5 * np.tanh((X @ Wg + bg) / 2)\n",
                    "    E = np.exp(X @ Wg + bg)\n    G = E / E.sum(-1, keepdims=True)\n",
                )
            ),
        ),
        "no-bias": ("no bias in the gates", gate(("(X @ Wg + bg)", "(X @ Wg)"))),
        "tanh": ("tanh for the sigmoid", gate(("0.5 + 0.5 * np.tanh((X @ Wg + bg) / 2)", "np.tanh(X @ Wg + bg)"))),
        "mean-gate": (
            "one gate for all positions, the mean",
            gate(("[..., None]\n    blocks", "[..., None].mean(-2, keepdims=True)\n    blocks")),
        ),
        "wrong-axis": (
            "gates cut into heads without swapping axes",
            gate(("np.swapaxes(G, -1, -2)[..., None]", "G.reshape(*G.shape[:-2], h, n, 1)")),
        ),
        "wrong-merge": (
            "the rows of Wo interleaved",
            gate(("Wo.reshape(h, v, -1)", "np.swapaxes(Wo.reshape(v, h, -1), 0, 1)")),
        ),
        "no-slope": ("leaves out the derivative of the sigmoid", gate(("dG * G * (1 - G)", "dG"))),
        "slope-tanh": ("the derivative of tanh", gate(("dG * G * (1 - G)", "dG * (1 - G**2)"))),
        "gate-twice": ("the gate's gradient from gated outputs", gate(("(C * dC).sum", "(G * C * dC).sum"))),
        "not-transposed": ("dX through Wg instead of its transpose", gate(("dA @ Wg.T", "dA @ Wg"))),
        "ungated-heads": (
            "dH without the gates",
            gate(("dH = G * (dC", "dH = (dC"), ("-2))\n        dG", "-2)) + 0 * G\n        dG")),
        ),
        "ungated-output": ("dWo without the gates", gate(("np.swapaxes(G * H, -1, -2)", "np.swapaxes(H, -1, -2)"))),
        "last-position": (
            "the bias gradient of the last position",
            gate(("dA.sum((*batch, -2))", "dA[..., -1, :].sum(batch)")),
        ),
        "per-sequence": ("one gate matrix gradient per sequence", gate(("@ dA).sum(batch)", "@ dA)"))),
        "cut-off": (
            "cuts what goes into the sigmoid off at 15",
            gate(("np.tanh((X @ Wg + bg) / 2)", "np.tanh(np.clip(X @ Wg + bg, -15, 15) / 2)")),
        ),
        "one-position": (
            "drops the axis of the positions where there is one",
            gate(
                ("return (G * C).sum(-3), vjp", "O = (G * C).sum(-3)\n    return (O[..., 0, :] if n == 1 else O), vjp")
            ),
        ),
        "overflow": (
            "a sigmoid by exp(a) / (1 + exp(a))",
            gate(
                (
                    "    G = 0.5 + 0.5 * np.tanh((X @ Wg + bg) / 2)\n",
                    "    G = np.exp(X @ Wg + bg)\n    G = G / (1 + G)\n",
                )
            ),
        ),
        "mutates": (
            "gates the heads in place",
            gate(("np.swapaxes(G * H, -1, -2)", "np.swapaxes(np.multiply(H, G, out=H), -1, -2)")),
        ),
    },
    "removal": {
        "sum": ("a sum over the sequences", form((".ravel() / b", ".ravel()"), ("C.T / b", "C.T"))),
        "per-position": (
            "a mean over positions",
            form((".ravel() / b", ".ravel() / mask.sum()"), ("C.T / b", "C.T / mask.sum()")),
        ),
        "no-output-map": (
            "the heads' outputs before the output map",
            form(("C @ C.T / b", "(D := heads[:, real].reshape(h, -1)) @ D.T / b")),
        ),
        "no-interaction": ("no interactions between heads", form(("return g, M", "return g, np.diag(np.diag(M))"))),
        "half": ("half of the second derivative", form(("C @ C.T / b", "C @ C.T / b / 2"))),
        "sign": ("the sign of the gradient", form(("return g, M", "return -g, M"))),
        "absolute": ("the size of the gradient", form(("return g, M", "return np.abs(g), M"))),
        "interleaved": (
            "the rows of Wo interleaved",
            form(("Wo.reshape(h, v, -1)", "np.swapaxes(Wo.reshape(v, h, -1), 0, 1)")),
        ),
        "padding": ("positions of padding count", form(("zip(H, R, mask)", "zip(H, R, np.ones_like(mask))"))),
        "times-zero": (
            "multiplies padding by zero, nan or not",
            form(
                ("heads[:, real] @", "heads * real[:, None] @"),
                ("rest[real].ravel()", "(rest * real[:, None]).ravel()"),
            ),
        ),
        "only-nan": (
            "replaces nan and infinity and takes what is left for real",
            form(
                (
                    "    for heads",
                    "    H, R = np.where(np.isfinite(H), H, 0), np.where(np.isfinite(R), R, 0)\n"
                    "    mask = np.ones_like(mask)\n    for heads",
                )
            ),
        ),
        "at-the-left": (
            "takes the real positions to be the first",
            form(("heads[:, real]", "heads[:, : real.sum()]"), ("rest[real]", "rest[: real.sum()]")),
        ),
        "squeeze": ("drops every axis of length 1", form(("return g, M", "return np.squeeze(g), np.squeeze(M)"))),
        "start-at-number": (
            "starts the search for the least at 1e9",
            choice(("best, chosen = np.inf", "best, chosen = 1e9")),
        ),
        "tolerance": ("takes a gain below 1e-6 for none", choice(("cost < best", "cost < best - 1e-6"))),
        "ten-heads": ("looks at the first ten heads", choice(("range(len(g)), r", "range(min(len(g), 10)), r"))),
        "mutates": (
            "writes zeros into the caller's padding",
            form(
                ("        C = heads", "        heads[:, ~real] = 0\n        rest[~real] = 0\n        C = heads"),
            ),
        ),
        "singles": ("adds what each head costs alone", choice((COST, "(np.diag(M)[a] / 2 - g[a]).sum()"))),
        "linear": ("the gradient only", choice((COST, "-g[a].sum()"))),
        "not-halved": ("the interactions twice", choice((COST, "M[np.ix_(a, a)].sum() - g[a].sum()"))),
        "dearest": (
            "the most expensive heads",
            choice(("cost < best", "-cost < best"), ("best, chosen = cost", "best, chosen = -cost")),
        ),
        "kept": (
            "the heads that stay",
            choice(("return chosen", "return tuple(i for i in range(len(g)) if i not in chosen)")),
        ),
        "greedy": (
            "one head after the other, each the cheapest given those before",
            {
                "removal_choice": """\
def cheapest(g, M, r):
    chosen = []
    for _ in range(r):
        cost = {}
        for i in set(range(len(g))) - set(chosen):
            a = [*chosen, i]
            cost[i] = M[np.ix_(a, a)].sum() / 2 - g[a].sum()
        chosen.append(min(cost, key=cost.get))
    return tuple(sorted(chosen))
"""
            },
        ),
        "up-to": (
            "at most r heads, not exactly r",
            choice(
                (
                    "itertools.combinations(range(len(g)), r)",
                    "[s for q in range(r + 1) for s in itertools.combinations(range(len(g)), q)]",
                )
            ),
        ),
    },
    "reverse": {
        "keeps-all": (
            "keeps the vjp of every part",
            {
                "reverse_answer": """\
def reversible(layers, X1, X2):
    Y1, Y2, backs = X1, X2, []
    for f, g in layers:
        y, back_f = f(Y2)
        Y1 = Y1 + y
        y, back_g = g(Y1)
        Y2 = Y2 + y
        backs.append((back_f, back_g))

    def vjp(dY1, dY2):
        for back_f, back_g in reversed(backs):
            dY1 = dY1 + back_g(dY2)
            dY2 = dY2 + back_f(dY1)
        return dY1, dY2

    return (Y1, Y2), vjp
"""
            },
        ),
        "keeps-states": (
            "keeps the input of every layer, as checkpointing does",
            reverse(
                ("    Y1, Y2 = X1, X2\n", "    Y1, Y2, kept = X1, X2, []\n"),
                (
                    "    for f, g in layers:\n        Y1 = Y1",
                    "    for f, g in layers:\n        kept.append(Y2)\n        Y1 = Y1",
                ),
                ("for f, g in reversed(layers):", "for (f, g), B in zip(reversed(layers), reversed(kept)):"),
                ("            B = B - y\n", ""),
            ),
        ),
        "keeps-input": (
            "keeps the input of the chain and runs it again",
            {
                "reverse_answer": """\
def reversible(layers, X1, X2):
    def run():
        Y1, Y2, backs = X1, X2, []
        for f, g in layers:
            y, back_f = f(Y2)
            Y1 = Y1 + y
            y, back_g = g(Y1)
            Y2 = Y2 + y
            backs.append((back_f, back_g))
        return (Y1, Y2), backs

    def vjp(dY1, dY2):
        for back_f, back_g in reversed(run()[1]):
            dY1 = dY1 + back_g(dY2)
            dY2 = dY2 + back_f(dY1)
        return dY1, dY2

    return run()[0], vjp
"""
            },
        ),
        "parallel": (
            "the second half reads the first as it was before",
            reverse(
                (
                    "        Y1 = Y1 + f(Y2)[0]\n        Y2 = Y2 + g(Y1)[0]\n",
                    "        Y1, Y2 = Y1 + f(Y2)[0], Y2 + g(Y1)[0]\n",
                )
            ),
        ),
        "exchanged": (
            "f and g exchanged",
            reverse(("for f, g in layers:", "for g, f in layers:"), ("for f, g in reversed", "for g, f in reversed")),
        ),
        "forward-order": (
            "goes back through the layers in the order of the way there",
            reverse(("reversed(layers)", "layers")),
        ),
        "plus": ("adds where it has to subtract", reverse(("B = B - y", "B = B + y"), ("A = A - y", "A = A + y"))),
        "not-undone": (
            "takes every part at the outputs of the chain",
            reverse(("            B = B - y\n", ""), ("            A = A - y\n", "")),
        ),
        "half-undone": ("undoes the second half only", reverse(("            A = A - y\n", ""))),
        "old-cotangent": (
            "f meets the cotangent from before g",
            reverse(
                (
                    "            dY1 = dY1 + back(dY2)\n",
                    "            dOld, dY1 = dY1, dY1 + back(dY2)\n",
                ),
                ("dY2 + back(dY1)", "dY2 + back(dOld)"),
            ),
        ),
        "no-identity": (
            "forgets the path past the parts",
            reverse(("dY1 = dY1 + back", "dY1 = back"), ("dY2 = dY2 + back", "dY2 = back")),
        ),
        "no-g": ("nothing comes back through g", reverse(("            dY1 = dY1 + back(dY2)\n", ""))),
        "f-first": (
            "undoes f before g",
            reverse(
                (
                    BACKWARD,
                    """\
            y, back = f(B)
            A = A - y
            dY2 = dY2 + back(dY1)
            y, back = g(A)
            B = B - y
            dY1 = dY1 + back(dY2)
""",
                )
            ),
        ),
        "runs-twice": (
            "runs every part twice on the way back, for the value and for the vjp",
            reverse(
                ("            B = B - y\n", "            B = B - g(A)[0]\n"),
                ("            A = A - y\n", "            A = A - f(B)[0]\n"),
            ),
        ),
        "in-place": (
            "undoes the outputs in place",
            reverse(("B = B - y", "B -= y"), ("A = A - y", "A -= y")),
        ),
        "mutates": (
            "adds to the arguments in place",
            reverse(("Y1 = Y1 + f(Y2)[0]", "Y1 += f(Y2)[0]"), ("Y2 = Y2 + g(Y1)[0]", "Y2 += g(Y1)[0]")),
        ),
    },
    "cost": {
        "no-two": (
            "one operation for a multiplication and an addition",
            step(
                (
                    "2 * texts * weights + texts * h * (m + 1) * (2 * k + 2 * k)",
                    "texts * weights + texts * h * (m + 1) * 2 * k",
                )
            ),
        ),
        "no-output": ("no output projection", step((" + h * k * d", ""))),
        "all-heads": ("as many key heads as query heads in the projections", step(("2 * d * g * k", "2 * d * h * k"))),
        "keys-only": ("keys without values in the projections", step(("2 * d * g * k", "d * g * k"))),
        "few-scores": ("scores for the key heads only", step(("texts * h * (m + 1) * (2", "texts * g * (m + 1) * (2"))),
        "no-self": (
            "the new token does not attend to itself",
            step(("texts * h * (m + 1) * (2", "texts * h * m * (2")),
        ),
        "recomputed": (
            "projects the keys and values of all tokens again",
            step(("2 * texts * weights", "2 * texts * (weights + m * 2 * d * g * k)")),
        ),
        "weights-per-text": (
            "reads the weights once for each text",
            step(("itemsize * weights", "itemsize * texts * weights")),
        ),
        "one-text": ("operations of one text", step(("2 * texts * weights + texts * h", "2 * weights + h"))),
        "shared-cache": ("one cache for all texts", step(("itemsize * texts * cached", "itemsize * cached"))),
        "query-cache": ("a cache for every query head", step(("2 * g * k * (m + 1)", "2 * h * k * (m + 1)"))),
        "half-cache": ("keys without values in the cache", step(("cached = 2 * g", "cached = g"))),
        "no-write": (
            "does not write the new key and value",
            step(("cached = 2 * g * k * (m + 1)", "cached = 2 * g * k * m")),
        ),
        "numbers": (
            "counts numbers, not bytes",
            step(("itemsize * weights", "weights"), ("itemsize * texts * cached", "texts * cached")),
        ),
        "equal": ("the number at which both are equal", balance(("weights // cached + 1", "-(-weights // cached)"))),
        "floor": ("rounds down", balance((" // cached + 1", " // cached"))),
        "no-shared": ("key heads as many as query heads", balance(("d * (h + g)", "2 * d * h"))),
        "per-head": ("forgets that key heads share the cache", balance(("(m + 1) * g", "(m + 1) * h"))),
        "float": ("divides in floating point", balance(("weights // cached + 1", "int(weights / cached) + 1"))),
        "rounded": (
            "counts operations in floating point and makes a whole number of it",
            step(("2 * texts * weights", "int(2.0 * texts * weights)")),
        ),
        "rounded-weights": (
            "counts bytes of weights in floating point and makes a whole number of it",
            step(("itemsize * weights", "int(1.0 * itemsize * weights)")),
        ),
        "int64": ("multiplies in 64 bits", balance(("d * (h + g)", "int(np.int64(d) * np.int64(h + g))"))),
    },
    "suspect": {
        "no-biases": (
            "biases of zero",
            suspect(("torch.tensor(waves(9 + i, d))", "torch.zeros(d, dtype=torch.float64)")),
        ),
        "tiny": (
            "weights so small that attention is uniform",
            suspect(("torch.tensor(waves(0, n, d))", "1e-3 * torch.tensor(waves(0, n, d))")),
        ),
        "one-position": ("one position", suspect(("n, k = 5,", "n, k = 1,"))),
        "same-rows": (
            "rows that are all alike",
            suspect(("torch.tensor(waves(0, n, d))", "torch.tensor(waves(0, 1, d)).repeat(n, 1)")),
        ),
        "exact": (
            "no tolerance",
            suspect(("torch.allclose(found, guess(fault), rtol=1e-4, atol=1e-4)", "torch.equal(found, guess(fault))")),
        ),
        "double-tolerance": ("a tolerance for float64", suspect(("rtol=1e-4, atol=1e-4", "rtol=1e-9, atol=1e-9"))),
        "loose": ("a tolerance that lets faults pass", suspect(("rtol=1e-4, atol=1e-4", "rtol=0.5, atol=5"))),
        "two-heads": (
            "two heads whatever it is told",
            suspect(("    n, k = 5, d // heads", "    heads = 2\n    n, k = 5, d // heads")),
        ),
        "one-head": (
            "one head, with which no head can be mistaken",
            suspect(("    n, k = 5, d // heads", "    heads = 1\n    n, k = 5, d // heads")),
        ),
        "scale-up": ("looks for scores that are too large", suspect(("(d if fault", "(k / heads if fault"))),
        "last-key": ("expects the last head's keys in all heads", suspect(("K[:1].expand_as", "K[-1:].expand_as"))),
        "merge-split": (
            "expects the heads merged in interleaved order too",
            suspect(
                (
                    "        return merged",
                    '        if fault == "interleaved":\n'
                    "            merged = torch.stack(list(H), -1).reshape(n, d)\n        return merged",
                )
            ),
        ),
        "swap-merged": (
            "expects the axes to be swapped again after the wrong cut",
            suspect(('fault in ("no-swap", "merge")', 'fault == "merge"')),
        ),
        "weights-axis": (
            "transposes the weights instead of the axis of softmax",
            suspect(
                (
                    'torch.softmax(S, -2 if fault == "axis" else -1) @ V',
                    '(torch.softmax(S, -1).mT if fault == "axis" else torch.softmax(S, -1)) @ V',
                )
            ),
        ),
        "wrong-bias": (
            "looks for a missing query bias",
            suspect(
                ('            Y[2] = X @ params["value"]["weight"]', '            Y[0] = X @ params["query"]["weight"]')
            ),
        ),
        "never-right": ("never finds a layer right", suspect(('faults = ("right", "scale"', 'faults = ("scale"'))),
    },
}

MESSAGE = {
    "talk": {
        "first-transposed": "A is used the other way round",
        "second-transposed": "B is used the other way round",
        "exchanged": "you exchanged them",
        "mask-first": "mask the scores after they are mixed",
        "mask-weights": "before the second mixing",
        "no-mask": "your weights ignore the mask",
        "no-scale": "not divided by the square root",
        "normalised": "you normalised the mixed weights again",
        "one-mixing": "you mixed the scores only",
        "mixed-scores": "you mixed scores with it",
        "no-row-correction": "row correction",
        "late-root": "the square root is missing on the way back",
        "double-root": "you divided again",
        "unmixed-values": "those before the mixing",
        "unmixed-cotangent": "go back through B",
        "mixed-meets": "yours are the mixed ones",
        "unstable": "subtract each row's largest mixed score",
        "stand-in": "no finite number stands for -inf",
        "large-stand-in": "no finite number stands for -inf",
        "start-low": "subtract the row's own largest score",
        "one-of-all": "axes of length 1 stay",
        "keys-root": "on the way back to the keys",
        "a-untransposed": "back through the transpose of A",
        "b-untransposed": "back through the transpose of B",
        "mutates": "you changed your argument",
    },
    "fused": {
        "packed": "you read all queries first",
        "triples": "a group is two query heads",
        "value-first": "the key comes before the value",
        "key-first": "before the queries of a group",
        "interleaved": "yours takes every eighth row",
        "tiled": "you dealt them out in turn",
        "not-transposed": "transpose them",
        "reshaped": "a reshape is no transpose",
        "no-factor": "you left the rest out",
        "inverse-factor": "you multiply where you should divide",
        "whole-factor": "by the square root of k itself",
        "weight-only": "the bias has to be divided too",
        "both-sides": "you divided the keys too",
        "shares": "you returned a view of it",
        "mutates": "you changed your argument",
        "double": "keep the dtype",
        "half": "keep the dtype",
    },
    "pool": {
        "mean": "that is the mean, which ignores the queries",
        "first": "the first matrix of each group",
        "sizes": "by one number",
        "diagonal": "each column by itself",
        "tiled": "you took every g-th one",
        "one-group": "one matrix for all heads",
        "keys-gram": "you weighted with the keys",
        "weights-gram": "you weighted with the query matrices",
        "centred": "took the mean query away",
        "summed-queries": "add their squared errors",
        "times": "every entry is 0.5 times",
        "inverse": "the best W of least norm exists",
        "ridge": "the shared key matrices differs in 8 of 8 entries",
        "first-sequence": "you took the first sequence",
        "small-ridge": "no absolute tolerance",
        "tiny-ridge": "one direction is used little",
        "absolute-rank": "no absolute tolerance",
        "coarse-rank": "one direction is used little",
        "all-pairs": "an array of N² entries",
    },
    "narrow": {
        "no-rescale": "the new one divides by another root",
        "old-root": "the root of its own width",
        "split-root": "on one side only",
        "no-query-bias": "the query bias is part of the form",
        "bias-after": "your keys are too narrow",
        "no-value-bias": "it can move to the output",
        "smallest": "your keys are too narrow",
        "first-head": "your keys are too narrow",
        "as-wide": "widths k, v = (3, 3)",
        "factors": "widths k, v = (2, 2)",
        "not-zero": "take singular values of 1e-10 of the largest for 0",
        "absolute": "your widths are (3, 1), the least possible are (3, 3)",
        "one-scale": "your widths are (2, 1), the least possible are (2, 2)",
        "matrix-rank": "5e-11 times the largest singular value counts as 0",
        "coarse": "2e-10 times does not",
        "squares": "2e-10 times does not",
        "width-zero": "a layer of zeros keeps heads of width 1",
        "twice": "belong to one factor",
        "mutates": "you changed your argument",
    },
    "gate": {
        "softmax": "your gates compete",
        "no-bias": "your gates have no bias",
        "tanh": "your gates are tanh(a)",
        "mean-gate": "one gate for all positions",
        "wrong-axis": "swap the axes, do not reshape",
        "wrong-merge": "you took every h-th row",
        "no-slope": "it lacks the derivative of the sigmoid",
        "slope-tanh": "that is the derivative of tanh",
        "gate-twice": "before the gate, not after it",
        "not-transposed": "through the transpose of Wg",
        "ungated-heads": "passes its gate",
        "ungated-output": "yours are not gated",
        "last-position": "add up what they send",
        "per-sequence": "dWg for a batch of two sequences, which share Wg, bg and Wo, has shape (2, 2, 2)",
        "cut-off": "O for batch (2,)",
        "one-position": "axes of length 1 stay",
        "overflow": "inf / inf is nan",
        "mutates": "you changed your argument",
    },
    "removal": {
        "sum": "L is their mean",
        "per-position": "L is a mean over sequences",
        "no-output-map": "you compare the heads before it",
        "no-interaction": "interact",
        "half": "that is half of M",
        "sign": "the sign is wrong",
        "absolute": "you took absolute values",
        "interleaved": "you took every h-th row",
        "padding": "select the real positions",
        "times-zero": "0 times nan is nan",
        "mutates": "you changed your argument",
        "singles": "what each head costs alone",
        "only-nan": "real positions anywhere",
        "at-the-left": "real positions anywhere",
        "start-at-number": "one is the cheapest, however much it costs",
        "tolerance": "whatever the size of g and M",
        "ten-heads": "whatever the size of g and M",
        "linear": "the gradient only",
        "not-halved": "mind the half",
        "dearest": "the most expensive pair",
        "kept": "these are the heads that stay",
        "greedy": "the cheapest head first",
        "up-to": "two heads were asked for",
    },
    "reverse": {
        "keeps-all": "the backward pass called the 8 parts 0 times",
        "keeps-states": "arrays from inside the 4 layers",
        "keeps-input": "1 arrays from inside the 4 layers",
        "parallel": "g reads the new first half",
        "exchanged": "f and g are exchanged",
        "forward-order": "the last layer is the first on the way back",
        "plus": "to undo it, subtract",
        "not-undone": "undo the layers one by one",
        "half-undone": "you undo the second half only",
        "old-cotangent": "what g sends included",
        "no-identity": "the path past f and g is missing",
        "no-g": "nothing comes back through g",
        "f-first": "g was called last, so it is undone first",
        "runs-twice": "called the 8 parts 16 times",
        "in-place": "may not change Y1 and Y2",
        "mutates": "you changed your argument",
    },
    "cost": {
        "no-two": "are two operations",
        "no-output": "the output projection is missing",
        "all-heads": "g key heads to project",
        "keys-only": "two projections",
        "few-scores": "each of the h query heads has scores",
        "no-self": "attends to itself too",
        "recomputed": "only the new token is projected",
        "weights-per-text": "read once for all texts",
        "one-text": "every text has a token",
        "shared-cache": "a cache of its own",
        "query-cache": "the cache holds g heads",
        "half-cache": "both cached",
        "no-write": "are written",
        "numbers": "these are numbers, not bytes",
        "equal": "not yet larger",
        "floor": "you rounded down",
        "no-shared": "keys and values have g heads in the weights",
        "per-head": "the cache holds g heads",
        "float": "is not exact",
        "rounded": "count in whole numbers",
        "rounded-weights": "count in whole numbers",
        "int64": "is not exact",
    },
    "suspect": {
        "no-biases": "thrifty: the answer is 'bias', you say 'right'",
        "tiny": "lukewarm: the answer is 'scale', you say 'right'",
        "one-position": "choose inputs on which this fault shows",
        "same-rows": "choose inputs on which this fault shows",
        "exact": "float32 rounds, which is not a fault",
        "double-tolerance": "float32 rounds, which is not a fault",
        "loose": "choose inputs on which this fault shows",
        "two-heads": "with the right number of heads",
        "one-head": "with the right number of heads",
        "scale-up": "lukewarm: the answer is 'scale', you say None",
        "last-key": "the answer is 'one-key', you say None",
        "merge-split": "the answer is 'interleaved', you say None",
        "swap-merged": "hasty: the answer is 'no-swap', you say None",
        "weights-axis": "the answer is 'axis', you say None",
        "wrong-bias": "thrifty: the answer is 'bias', you say None",
        "never-right": "honest: the answer is 'right', you say None",
    },
}
