"""Problem set 5 and what people get wrong in it.

RIGHT    a second right answer to every exercise, written differently from the instructor's; it has to earn all points
WRONG    {exercise: {name: (description, {grade id: code})}}; each is RIGHT with a fault planted, and has to lose points
MESSAGE  {exercise: {name: words}}: what the first failed test has to say about that fault
"""

from functools import partial

from batteries.changes import changed

RIGHT = {
    "patches_answer": """\
def turn_patches(X, P, base=100.0):
    n, k = X.shape[-2:]
    exponent = 4 * np.arange(k // 4) / k
    omega = 1 / base**exponent
    row, column = P[:, :1] * omega, P[:, 1:] * omega
    angles = np.stack([row, column], -1).reshape(n, k // 2)
    cos, sin = np.cos(angles).astype(X.dtype), np.sin(angles).astype(X.dtype)
    a, b = X[..., 0::2], X[..., 1::2]
    Y = np.empty_like(X)
    Y[..., 0::2] = a * cos - b * sin
    Y[..., 1::2] = a * sin + b * cos

    def vjp(dY):
        da, db = dY[..., 0::2], dY[..., 1::2]
        dX = np.empty_like(dY)
        dX[..., 0::2] = da * cos + db * sin
        dX[..., 1::2] = db * cos - da * sin
        dangles = db * Y[..., 0::2] - da * Y[..., 1::2]
        dangles = dangles.reshape(-1, n, k // 4, 2).sum(0)
        return dX, (dangles * omega[:, None]).sum(1)

    return Y, vjp
""",
    "smooth_answer": """\
def smooth_bias(table, tau, n, m):
    _, c, h = table.shape
    query, key = np.arange(n)[:, None] + m - n, np.arange(m)
    distance, after = np.abs(key - query), key > query
    scale = tau[:, None, None]
    u = np.minimum(np.log1p(distance / scale) / np.log(2), c - 1)
    low = np.minimum(u.astype(int), c - 1)
    high = np.minimum(low + 1, c - 1)
    w = u - low
    side, heads = after.astype(int), np.arange(h)[:, None, None]
    near, far = table[side, low, heads], table[side, high, heads]
    B = (near + w * (far - near)).astype(table.dtype)

    def vjp(dB):
        dtable = np.zeros_like(table)
        for anchor, share in ((low, 1 - w), (high, w)):
            np.add.at(dtable, (side, anchor, heads), share * dB)
        du = dB * (far - near) * (u < c - 1)
        dtau = du * -distance / (scale * (scale + distance)) / np.log(2.0)
        return dtable, dtau.sum((1, 2)).astype(tau.dtype)

    return B, vjp
""",
    "partial_answer": """\
def partial_rms_norm(X, gain, p, eps=1e-6):
    d = X.shape[-1]
    wide = np.float32 if X.dtype == np.float16 else X.dtype
    share = np.where(np.arange(d) < p, 1 / p, 0).astype(wide)
    Z = X.astype(wide)
    r = ((Z * Z) @ share + eps)[..., None] ** -0.5
    N = r * Z
    Y = gain * N

    def vjp(dY):
        dN = gain * dY.astype(wide)
        along = (dN * N).sum(-1, keepdims=True)
        dX = r * (dN - share * N * along)
        dgain = (dY * N).reshape(-1, d).sum(0)
        return dX.astype(X.dtype), dgain.astype(gain.dtype)

    return Y.astype(X.dtype), vjp
""",
    "slim_answer": """\
def one_less(params, eps):
    d = params["embeddings"]["word"].shape[1]
    eye = torch.eye(d, dtype=torch.float64)
    U = torch.linalg.qr(torch.cat([torch.ones(d, 1, dtype=torch.float64), eye[:, :-1]], 1))[0][:, 1:]
    factor = (d / (d - 1)) ** 0.5
    gain = {"gain": torch.full((d - 1,), factor, dtype=torch.float64)}

    def writer(leaf):
        return {"weight": leaf["weight"] @ U, "bias": leaf["bias"] @ U}

    def reader(leaf, norm):
        old = leaf["weight"]
        new = U.T @ (norm["gain"].unsqueeze(1) * old)
        return {"weight": new, "bias": norm["bias"] @ old + leaf.get("bias", 0)}

    slim = {"embeddings": {name: rows @ U for name, rows in params["embeddings"].items()}, "layers": {}, "norm": gain}
    for number, layer in params["layers"].items():
        first, second = layer["attention_norm"], layer["feed_forward_norm"]
        block = {name: reader(layer["attention"][name], first) for name in ("query", "key", "value")}
        block["output"] = writer(layer["attention"]["output"])
        network = {"up": reader(layer["feed_forward"]["up"], second), "down": writer(layer["feed_forward"]["down"])}
        norms = {"attention_norm": gain, "feed_forward_norm": gain}
        slim["layers"][number] = {"attention": block, "feed_forward": network, **norms}
    head = params["head"] if "head" in params else {"weight": params["embeddings"]["word"].T}
    slim["head"] = reader(head, params["norm"])
    return slim, eps * d / (d - 1)
""",
    "parallel_answer": """\
def parallel_block(X, gain, bias, a, b, f, g, eps=1e-5):
    C = X - X.mean(-1, keepdims=True)
    r = 1 / np.sqrt((C * C).mean(-1, keepdims=True) + eps)
    H = r * C
    N = gain * H + bias
    F, f_back = f(N)
    G, g_back = g(N)
    axes = tuple(range(X.ndim - 1))

    def vjp(dY):
        dF, dG = a * dY, b * dY
        one, df = f_back(dF)
        two, dg = g_back(dG)
        dN = one + two
        dgain, dbias = (dN * H).sum(axes), dN.sum(axes)
        dH = gain * dN
        dX = dY + r * (dH - dH.mean(-1, keepdims=True) - H * (dH * H).mean(-1, keepdims=True))
        da, db = (dY * F).sum(axes), (dY * G).sum(axes)
        return dX, dgain, dbias, da, db, df, dg

    return X + a * F + b * G, vjp
""",
    "repair_answer": """\
def sandwich_layer(X, M, params, heads, lengths):
    n, m = X.shape[1], M.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    real = (torch.arange(m) < lengths[:, None])[:, None, None, :]

    def norm(Z, number):
        Z = Z / (Z.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        return Z * params[f"norm_{number}"]["gain"]

    N = norm(X, 1)
    S = at.multi_head_attention(N, N, N, params["self"], heads, causal)
    A = X + norm(S, 2)
    T = at.multi_head_attention(norm(A, 3), M, M, params["cross"], heads, real)
    C = A + norm(T, 4)
    H = norm(C, 5) @ params["up"]["weight"] + params["up"]["bias"]
    H = H.clamp(min=0) @ params["down"]["weight"] + params["down"]["bias"]
    return C + norm(H, 6)
""",
    "alike_predict": """\
def predict_alike(n, layers, s, t, c, norm_first):
    v, cosines = 1.0, [c]
    for _ in range(layers):
        mean = (v / n + c * (n - 1) / n) / v
        v, c = v + s**2 * mean, c + s**2 * mean
        if not norm_first:
            v, c = 1.0, c / v
        v, c = v + t**2, c + t**2 * c / v
        if not norm_first:
            v, c = 1.0, c / v
        cosines.append(c / v)
    return np.array(cosines)
""",
    "alike_measure": """\
def measure_alike(X, W, V, s, t, norm_first):
    n = len(X)
    cosines = []
    for l in range(len(W) + 1):
        squares = (X * X).sum()
        cosines.append(((X.sum(0) ** 2).sum() - squares) / (n - 1) / squares)
        if l == len(W):
            break
        Z = X / np.sqrt((X * X).mean()) if norm_first else X
        X = X + s * Z.mean(0) @ W[l]
        X = X if norm_first else X / np.sqrt((X * X).mean())
        Z = X / np.sqrt((X * X).mean()) if norm_first else X
        X = X + t * Z @ V[l]
        X = X if norm_first else X / np.sqrt((X * X).mean())
    return np.array(cosines)
""",
    "thin_answer": """\
def thin_model(ids, A, B, body):
    V, (r, d) = len(A), B.shape
    flat = ids.reshape(-1)
    root = d**0.5
    looked = A[flat]
    X = root * (looked @ B)
    Y, body_back = body(X.reshape(*ids.shape, d))
    rows = Y.reshape(-1, d)
    H = rows @ B.T
    Z = H @ A.T

    def vjp(dZ):
        dZ = dZ.reshape(-1, V)
        dA = dZ.T @ H
        dH = dZ @ A
        dB = dH.T @ rows
        dY = dH @ B
        dX, dbody = body_back(dY.reshape(Y.shape))
        dX = root * dX.reshape(-1, d)
        dB = dB + looked.T @ dX
        np.add.at(dA, flat, dX @ B.T)
        return dA, dB, dbody

    return Z.reshape(*ids.shape, V), vjp
""",
    "budget_parameters": """\
def translator_parameters(V, d, h, k, f, encoder, decoder, buckets, tied):
    tables = V * d if tied else 2 * V * d
    attention = 3 * d * h * k + h * k * d
    network = 2 * d * f + f * d
    encoder_layer = attention + network + 2 * d
    decoder_layer = 2 * attention + network + 3 * d
    biases = 2 * buckets * h
    ends = 2 * d
    return tables + encoder * encoder_layer + decoder * decoder_layer + biases + ends
""",
    "budget_flops": """\
def translation_flops(V, d, h, k, f, encoder, decoder, m, n):
    e = h * k
    encode = m * (2 * 4 * d * e + 2 * 3 * d * f) + 4 * m * m * e
    memory = m * 2 * 2 * d * e
    rows = n * (2 * 4 * d * e + 2 * 2 * d * e + 2 * 3 * d * f)
    seen = n * (n + 1) // 2
    attend = 4 * e * seen + 4 * e * n * m
    logits = n * 2 * V * d
    return encoder * encode + decoder * (memory + rows + attend) + logits
""",
}


def but(cell, *changes):
    return {cell: changed(RIGHT[cell], *changes)}


patches = partial(but, "patches_answer")
smooth = partial(but, "smooth_answer")
part = partial(but, "partial_answer")
slim = partial(but, "slim_answer")
parallel = partial(but, "parallel_answer")
repair = partial(but, "repair_answer")
predict = partial(but, "alike_predict")
measure = partial(but, "alike_measure")
thin = partial(but, "thin_answer")
count = partial(but, "budget_parameters")
flops = partial(but, "budget_flops")


def masked_with(number):
    """The attention by hand, with a number in the masks in the place of -inf."""
    by_hand = f"""\
def by_hand(Q, K, V, params, heads, mask):
    def cut(X, name):
        X = X @ params[name]["weight"] + params[name]["bias"]
        return X.unflatten(-1, (heads, -1)).transpose(-3, -2)

    q, k, v = cut(Q, "query"), cut(K, "key"), cut(V, "value")
    S = torch.where(mask, q @ k.mT / q.shape[-1] ** 0.5, {number})
    O = (torch.softmax(S, -1) @ v).transpose(-3, -2).flatten(-2)
    return O @ params["output"]["weight"] + params["output"]["bias"]


def sandwich_layer"""
    return repair(
        ("def sandwich_layer", by_hand),
        ("at.multi_head_attention(N, N, N", "by_hand(N, N, N"),
        ("at.multi_head_attention(norm(A, 3), M", "by_hand(norm(A, 3), M"),
    )


def measured(rho, squares="squares)"):
    """The root of the mean square, written `rho`, and the division by the squares."""
    code = RIGHT["alike_measure"].replace("np.sqrt((X * X).mean())", rho)
    return {"alike_measure": changed(code, ("/ (n - 1) / squares)", f"/ (n - 1) / {squares}"))}


ANGLES = "row, column = P[:, :1] * omega, P[:, 1:] * omega"
STACKED = "np.stack([row, column], -1).reshape(n, k // 2)"
FORWARD = (("a * cos - b * sin", "a * cos + b * sin"), ("a * sin + b * cos", "b * cos - a * sin"))
WHERE = "np.where(np.arange(d) < p, 1 / p, 0)"
BASIS = "torch.linalg.qr(torch.cat([torch.ones(d, 1, dtype=torch.float64), eye[:, :-1]], 1))[0][:, 1:]"
NORM_LEFT = ("mean(-1, keepdim=True)", "mean((-2, -1), keepdim=True)")
PADDING_LEFT = ("(m) < lengths", "(m) <= lengths")
NETWORK_LEFT = ("norm(C, 5)", "norm(A, 5)")
MEAN = "        mean = (v / n + c * (n - 1) / n) / v\n"
ATTENDED = "        v, c = v + s**2 * mean, c + s**2 * mean\n"
FED = "        v, c = v + t**2, c + t**2 * c / v\n"
RENORMED = "        if not norm_first:\n            v, c = 1.0, c / v\n"

WRONG = {
    "patches": {
        "axes-swapped": (
            "row and column exchanged",
            patches((ANGLES, "row, column = P[:, 1:] * omega, P[:, :1] * omega")),
        ),
        "halves": (
            "the first half of the pairs for the row, the second for the column",
            patches((STACKED, "np.concatenate([row, column], -1)")),
        ),
        "one-ladder": (
            "one ladder of frequencies for all pairs, as in one dimension",
            patches((STACKED, "np.tile(P, k // 4) * base ** (-2 * np.arange(k // 2) / k)")),
        ),
        "slow-ladder": (
            "the frequencies fall half as fast",
            patches(("4 * np.arange(k // 4)", "2 * np.arange(k // 4)")),
        ),
        "late-ladder": (
            "the frequencies counted from 1",
            patches(("np.arange(k // 4) / k", "np.arange(1, k // 4 + 1) / k")),
        ),
        "backwards": ("turns the other way", patches(*FORWARD)),
        "half-pairs": (
            "pairs component i with i + k / 2",
            patches(
                ("X[..., 0::2], X[..., 1::2]", "X[..., : k // 2], X[..., k // 2 :]"),
                ("Y[..., 0::2] = a", "Y[..., : k // 2] = a"),
                ("Y[..., 1::2] = a", "Y[..., k // 2 :] = a"),
            ),
        ),
        "summed": (
            "all pairs turned by row plus column",
            patches((ANGLES, "row = column = P.sum(1, keepdims=True) * omega")),
        ),
        "rounded": ("whole positions", patches((ANGLES, "P = np.rint(P)\n    " + ANGLES))),
        "not-back": (
            "the cotangent is turned forwards",
            patches(("da * cos + db * sin", "da * cos - db * sin"), ("db * cos - da * sin", "db * cos + da * sin")),
        ),
        "slope-sign": (
            "dP with the wrong sign",
            patches(("db * Y[..., 0::2] - da * Y[..., 1::2]", "da * Y[..., 1::2] - db * Y[..., 0::2]")),
        ),
        "slope-input": (
            "dP from X instead of Y",
            patches(("db * Y[..., 0::2] - da * Y[..., 1::2]", "db * a - da * b")),
        ),
        "no-frequency": (
            "dP without the frequencies",
            patches(("(dangles * omega[:, None]).sum(1)", "dangles.sum(1)")),
        ),
        "slope-swapped": (
            "the columns of dP exchanged",
            patches(("(dangles * omega[:, None]).sum(1)", "(dangles * omega[:, None]).sum(1)[:, ::-1]")),
        ),
        "mean": ("dP averaged over the leading axes", patches((".sum(0)", ".mean(0)"))),
        "per-sequence": (
            "dP not summed over the leading axes",
            patches(
                ("dangles.reshape(-1, n, k // 4, 2).sum(0)", "dangles.reshape(*dangles.shape[:-1], k // 4, 2)"),
                ("(dangles * omega[:, None]).sum(1)", "(dangles * omega[:, None]).sum(-2)"),
            ),
        ),
        "single": (
            "angles in the precision of X",
            patches((ANGLES, "P, omega = P.astype(X.dtype), omega.astype(X.dtype)\n    " + ANGLES)),
        ),
        "double": ("float64 whatever comes in", patches(("np.empty_like(X)", "np.empty(X.shape)"))),
        "mutates": (
            "turns X in place",
            patches(("    Y = np.empty_like(X)\n", "    Y, a, b = X, a.copy(), b.copy()\n")),
        ),
        "spoils-output": (
            "writes the gradient over its own output",
            patches(("        return dX, (dangles", "        Y[...] = dX\n        return dX, (dangles")),
        ),
    },
    "smooth": {
        "natural": ("the natural logarithm", smooth((" / np.log(2), c - 1)", ", c - 1)"))),
        "steps": ("the lower anchor only, as in buckets", smooth(("w = u - low", "w = 0 * u"))),
        "nearest": (
            "the nearest anchor only",
            smooth(("np.minimum(u.astype(int), c - 1)", "np.rint(u).astype(int)"), ("w = u - low", "w = 0 * u")),
        ),
        "exchanged": (
            "the shares of the two anchors exchanged",
            smooth(("near + w * (far - near)", "far + w * (near - far)")),
        ),
        "no-one": (
            "the logarithm of the distance without the 1",
            smooth(("np.log1p(distance / scale)", "np.log(np.maximum(distance / scale, 1))")),
        ),
        "sides": ("before and after exchanged", smooth(("key > query", "key < query"))),
        "zero-after": ("the query's own position counts as after", smooth(("key > query", "key >= query"))),
        "no-offset": ("the first query at the first key", smooth((" + m - n", ""))),
        "times": ("multiplies by tau", smooth(("log1p(distance / scale)", "log1p(distance * scale)"))),
        "one-tau": ("the tau of the first head for all", smooth(("tau[:, None, None]", "tau[:1, None, None]"))),
        "early-end": (
            "the last anchor is never reached",
            smooth((" / np.log(2), c - 1)", " / np.log(2), max(c - 2, 0))")),
        ),
        "no-edge": ("reads an anchor behind the last", smooth(("np.minimum(low + 1, c - 1)", "low + 1"))),
        "lower-only": ("the gradient to the lower anchor only", smooth(("((low, 1 - w), (high, w))", "((low, 1.0),)"))),
        "plain-shares": (
            "both anchors receive the whole cotangent",
            smooth(("((low, 1 - w), (high, w))", "((low, 1.0), (high, 1.0))")),
        ),
        "not-added": (
            "pairs that share an anchor overwrite each other",
            smooth(
                (
                    "np.add.at(dtable, (side, anchor, heads), share * dB)",
                    "dtable[np.broadcast_arrays(side, anchor, heads)[0], anchor, heads] += share * dB",
                )
            ),
        ),
        "tau-sign": ("dtau with the wrong sign", smooth(("du * -distance", "du * distance"))),
        "tau-log": ("dtau without the 1 / ln 2", smooth((" / np.log(2.0)", ""))),
        "tau-chain": (
            "dtau without the inner part of the logarithm's derivative",
            smooth(("(scale * (scale + distance))", "scale**2")),
        ),
        "tau-beyond": (
            "a slope beyond the last anchor",
            smooth(
                ("np.minimum(u.astype(int), c - 1)", "np.minimum(u.astype(int), max(c - 2, 0))"), (" * (u < c - 1)", "")
            ),
        ),
        "tau-shared": ("one dtau for all heads", smooth(("dtau.sum((1, 2))", "np.full_like(tau, dtau.sum())"))),
        "heads-last": (
            "the axis of the heads at the end",
            smooth(("return B, vjp", "return np.moveaxis(B, 0, -1), vjp")),
        ),
        "double": (
            "float64 whatever comes in",
            smooth(("(near + w * (far - near)).astype(table.dtype)", "near + w * (far - near)")),
        ),
        "mutates": (
            "multiplies the cotangent in place",
            smooth(("du = dB * (far - near) * (u < c - 1)", "dB *= (far - near) * (u < c - 1)\n        du = dB")),
        ),
        "no-query-before": (
            "queries before the first key moved to it",
            smooth(("np.arange(n)[:, None] + m - n", "np.maximum(np.arange(n)[:, None] + m - n, 0)")),
        ),
        "tau-dtype": (
            "the bias in the dtype of tau",
            smooth(("near)).astype(table.dtype)", "near)).astype(tau.dtype)")),
        ),
        "dtau-dtype": ("dtau in the dtype of the table", smooth(("astype(tau.dtype)", "astype(table.dtype)"))),
        "guarded-unit": ("1e-12 added to tau", smooth(("distance / scale)", "distance / (scale + 1e-12))"))),
    },
    "partial": {
        "all": ("the statistic of all components", part((WHERE, "np.full(d, 1 / d)"))),
        "sum": ("a sum instead of a mean", part(("1 / p, 0)", "1, 0)"))),
        "over-d": ("divides by d", part(("1 / p, 0)", "1 / d, 0)"))),
        "last": ("the last p components", part(("np.arange(d) < p", "np.arange(d) >= d - p"))),
        "one-more": ("one component too many", part(("np.arange(d) < p", "np.arange(d) <= p"))),
        "part-only": ("only the first p are normalised", part(("N = r * Z", "N = np.where(share > 0, r * Z, Z)"))),
        "centred": (
            "subtracts the mean, as layer norm does",
            part(("    r = ((Z", "    Z = Z - (Z @ share)[..., None]\n    r = ((Z")),
        ),
        "eps-outside": (
            "eps added to the root",
            part(("((Z * Z) @ share + eps)[..., None] ** -0.5", "1 / (np.sqrt((Z * Z) @ share) + eps)[..., None]")),
        ),
        "no-eps": ("no eps", part((" + eps)", ")"))),
        "gain-part": ("the gain on the first p only", part(("Y = gain * N", "Y = np.where(share > 0, gain, 1) * N"))),
        "no-correction": ("the statistic taken for a constant", part(("dN - share * N * along", "dN"))),
        "correct-all": ("the correction reaches all components", part(("share * N * along", "N * along / p"))),
        "along-part": (
            "the correction counts the first p outputs only",
            part(("(dN * N).sum(-1", "(dN * N)[..., :p].sum(-1")),
        ),
        "over-d-back": ("the correction divided by d", part(("share * N * along", "share * p / d * N * along"))),
        "no-gain-back": ("the gain forgotten on the way back", part(("gain * dY.astype(wide)", "dY.astype(wide)"))),
        "correct-plus": ("the correction added", part(("dN - share", "dN + share"))),
        "dgain-input": ("dgain from X", part(("(dY * N).reshape", "(dY * Z).reshape"))),
        "dgain-last": ("dgain of the last row", part((".reshape(-1, d).sum(0)", ".reshape(-1, d)[-1]"))),
        "dgain-batch": ("dgain not summed over the batch", part((".reshape(-1, d).sum(0)", ".sum(-2)"))),
        "half": ("squares in float16", part(("np.float32 if X.dtype == np.float16 else X.dtype", "X.dtype"))),
        "wide": ("returns the wider dtype", part(("return Y.astype(X.dtype), vjp", "return Y, vjp"))),
        "mutates": (
            "normalises in place",
            part(("X.astype(wide)\n", "X.astype(wide, copy=False)\n"), ("N = r * Z", "N = np.multiply(r, Z, out=Z)")),
        ),
        "half-rows": (
            "adds up dgain in float16",
            part(("(dY * N).reshape(-1, d)", "(dY * N).astype(X.dtype).reshape(-1, d)")),
        ),
        "half-components": (
            "adds up a row's correction in float16",
            part(("(dN * N).sum(-1", "(dN * N).astype(X.dtype).sum(-1")),
        ),
        "half-root": (
            "rounds the factor to float16",
            part(("[..., None] ** -0.5", "[..., None] ** -0.5\n    r = r.astype(X.dtype).astype(wide)")),
        ),
        "dgain-dtype": ("dgain in the dtype of X", part(("dgain.astype(gain.dtype)", "dgain.astype(X.dtype)"))),
    },
    "slim": {
        "same-eps": ("eps as it was", slim(("eps * d / (d - 1)", "eps"))),
        "inverse-eps": ("eps changed the wrong way", slim(("eps * d / (d - 1)", "eps * (d - 1) / d"))),
        "no-factor": ("the factor of the width forgotten", slim(("(d / (d - 1)) ** 0.5", "1.0"))),
        "inverse-factor": ("the factor upside down", slim(("(d / (d - 1)) ** 0.5", "(1 - 1 / d) ** 0.5"))),
        "no-root": ("the factor without its root", slim(("(d / (d - 1)) ** 0.5", "d / (d - 1)"))),
        "drop-last": ("leaves out the last component", slim((BASIS, "eye[:, :-1]"))),
        "with-ones": (
            "a basis that holds the direction of ones",
            slim((BASIS, BASIS.replace("[:, 1:]", "[:, :-1]"))),
        ),
        "not-orthonormal": (
            "differences of neighbours for a basis",
            slim((BASIS, "eye[:, :-1] - eye[:, 1:]")),
        ),
        "no-gain": ("the gains left out", slim(('norm["gain"].unsqueeze(1) * old', "old"))),
        "no-bias": ("the norms' biases left out", slim(('norm["bias"] @ old + leaf', '0 * norm["bias"] @ old + leaf'))),
        "scaled-bias": (
            "the gain on the bias too",
            slim(('norm["bias"] @ old', '(norm["gain"] * norm["bias"]) @ old')),
        ),
        "centred-bias": ("the bias projected", slim(('norm["bias"] @ old', 'norm["bias"] @ U @ new'))),
        "lost-bias": ("the readers' own biases lost", slim((' + leaf.get("bias", 0)', ""))),
        "silent-writers": (
            "the writers' biases lost",
            slim(('"bias": leaf["bias"] @ U', '"bias": 0 * leaf["bias"] @ U')),
        ),
        "one-norm": (
            "the first norm of a layer for both its sub-layers",
            slim(
                (
                    'layer["attention_norm"], layer["feed_forward_norm"]',
                    'layer["attention_norm"], layer["attention_norm"]',
                )
            ),
        ),
        "still-tied": (
            "leaves the head to the new table",
            slim(('    slim["head"] = reader(head, params["norm"])\n', "")),
        ),
        "bare-head": (
            "the head without the last norm's gain and bias",
            slim(('slim["head"] = reader(head, params["norm"])', 'slim["head"] = {"weight": U.T @ head["weight"]}')),
        ),
        "always-tied": (
            "makes the head from the table even if there is one",
            slim(
                (
                    'params["head"] if "head" in params else {"weight": params["embeddings"]["word"].T}',
                    '{"weight": params["embeddings"]["word"].T}',
                )
            ),
        ),
        "no-positions": (
            "the table of positions forgotten",
            slim(
                (
                    'for name, rows in params["embeddings"].items()}',
                    'for name, rows in params["embeddings"].items() if name == "word"}',
                )
            ),
        ),
        "as-wide": (
            "centres the weights and stays at width d",
            slim(
                (BASIS, "eye - 1 / d"),
                ("(d / (d - 1)) ** 0.5", "1.0"),
                ("(d - 1,)", "(d,)"),
                ("eps * d / (d - 1)", "eps"),
            ),
        ),
        "mutates": (
            "multiplies the caller's weights by the gain",
            slim(
                (
                    '        new = U.T @ (norm["gain"].unsqueeze(1) * old)\n',
                    "        keep = old.clone()\n"
                    '        new = U.T @ old.mul_(norm["gain"].unsqueeze(1))\n'
                    "        old = keep\n",
                )
            ),
        ),
        "least-eps": ("eps is 1e-8 at least", slim(("eps * d / (d - 1)\n", "max(eps, 1e-8) * d / (d - 1)\n"))),
    },
    "parallel": {
        "in-turn": (
            "g reads the rows after f's branch",
            parallel(("g(N)", "g(an.layer_norm(X + a * F, gain, bias, eps)[0])")),
        ),
        "own-input": ("g reads X without the norm", parallel(("g(N)", "g(X)"))),
        "normed-path": ("the sum starts from the normalised rows", parallel(("return X + a", "return N + a"))),
        "no-scale": ("the branches are not scaled", parallel(("X + a * F + b * G", "X + F + G"))),
        "scales-swapped": ("a and b exchanged", parallel(("X + a * F + b * G", "X + b * F + a * G"))),
        "scaled-input": (
            "scales what the branches read",
            parallel(("f(N)", "f(a * N)"), ("g(N)", "g(b * N)"), ("X + a * F + b * G", "X + F + G")),
        ),
        "no-path": ("the residual path is missing on the way back", parallel(("dY + r * (dH", "r * (dH"))),
        "path-twice": ("the residual path counted for each branch", parallel(("dY + r * (dH", "2 * dY + r * (dH"))),
        "one-branch": ("only f's branch reaches X", parallel(("dN = one + two", "dN = one"))),
        "unscaled-back": (
            "the cotangents reach the branches unscaled",
            parallel(("dF, dG = a * dY, b * dY", "dF, dG = dY, dY")),
        ),
        "scaled-late": (
            "the cotangents scaled behind the branches",
            parallel(("dF, dG = a * dY, b * dY", "dF, dG = dY, dY"), ("dN = one + two", "dN = a * one + b * two")),
        ),
        "scale-meets-norm": (
            "da and db from what the branches read",
            parallel(("(dY * F).sum(axes), (dY * G)", "(dY * N).sum(axes), (dY * N)")),
        ),
        "scale-twice": (
            "da from the scaled branch",
            parallel(("(dY * F).sum(axes), (dY * G)", "(dY * a * F).sum(axes), (dY * b * G)")),
        ),
        "norm-sees-sum": (
            "the norm's gradients with the residual path added first",
            parallel(("dN = one + two", "dN = one + two + dY"), ("dY + r * (dH", "r * (dH")),
        ),
        "no-norm-back": (
            "the norm is left out on the way back",
            parallel(
                (
                    "dX = dY + r * (dH - dH.mean(-1, keepdims=True) - H * (dH * H).mean(-1, keepdims=True))",
                    "dX = dY + dH",
                )
            ),
        ),
        "per-sequence": (
            "da and db not summed over the batch",
            parallel(("(dY * F).sum(axes), (dY * G).sum(axes)", "(dY * F).sum(-2), (dY * G).sum(-2)")),
        ),
        "again": (
            "runs the branches again on the way back",
            parallel(
                ("one, df = f_back(dF)", "one, df = f(N)[1](dF)"), ("two, dg = g_back(dG)", "two, dg = g(N)[1](dG)")
            ),
        ),
        "in-place": (
            "adds to an array that belongs to f",
            parallel(("dN = one + two", "one += two\n        dN = one")),
        ),
        "mutates": (
            "adds the branches to X itself",
            parallel(("    return X + a * F + b * G, vjp", "    X += a * F + b * G\n    return X, vjp")),
        ),
        "order": ("the gradients of the branches exchanged", parallel(("da, db, df, dg", "da, db, dg, df"))),
        "divided": (
            "da and db divided by a and b",
            parallel(
                (
                    "da, db = (dY * F).sum(axes), (dY * G).sum(axes)",
                    "with np.errstate(all='ignore'):\n"
                    "            da, db = (dY * (a * F)).sum(axes) / a, (dY * (b * G)).sum(axes) / b",
                )
            ),
        ),
        "divided-guarded": (
            "da and db divided by a + 1e-12 and b + 1e-12",
            parallel(
                (
                    "da, db = (dY * F).sum(axes), (dY * G).sum(axes)",
                    "da, db = (dY * a * F).sum(axes) / (a + 1e-12), (dY * b * G).sum(axes) / (b + 1e-12)",
                )
            ),
        ),
        "adds-up": (
            "adds up dgain from one backward pass to the next",
            parallel(
                ("    def vjp(dY):\n", "    total = np.zeros_like(gain)\n\n    def vjp(dY):\n        nonlocal total\n"),
                ("        dH = gain * dN\n", "        dH, total = gain * dN, total + dgain\n"),
                ("return dX, dgain", "return dX, total"),
            ),
        ),
    },
    "repair": {
        "untouched": ("all three faults left", repair(NORM_LEFT, PADDING_LEFT, NETWORK_LEFT)),
        "norm-left": ("the norm still looks at all positions", repair(NORM_LEFT)),
        "padding-left": ("one row of padding still attended to", repair(PADDING_LEFT)),
        "network-left": ("the network still reads A", repair(NETWORK_LEFT)),
        "norm-padding": ("norm and padding left", repair(NORM_LEFT, PADDING_LEFT)),
        "norm-network": ("norm and network left", repair(NORM_LEFT, NETWORK_LEFT)),
        "padding-network": ("padding and network left", repair(PADDING_LEFT, NETWORK_LEFT)),
        "no-causal": ("the causal mask dropped", repair(('params["self"], heads, causal)', 'params["self"], heads)'))),
        "strict": ("a position may not attend to itself", repair((".tril()", ".tril(-1)"))),
        "short": ("one real row of the memory lost", repair(("(m) < lengths", "(m) < (lengths - 1)"))),
        "longest": (
            "the longest length for all",
            repair(
                ("lengths[:, None])", "lengths.max())[None]"),
                ("[:, None, None, :]\n", "[:, None, None, :].expand(len(X), 1, 1, m)\n"),
            ),
        ),
        "layer-norm": (
            "subtracts the mean",
            repair(("        Z = Z / ", "        Z = Z - Z.mean(-1, keepdim=True)\n        Z = Z / ")),
        ),
        "post": (
            "norms the sums",
            repair(
                ("X + norm(S, 2)", "norm(X + S, 2)"),
                ("A + norm(T, 4)", "norm(A + T, 4)"),
                ("C + norm(H, 6)", "norm(C + H, 6)"),
            ),
        ),
        "one-slice": (
            "leaves out the norms behind the sub-layers",
            repair(("X + norm(S, 2)", "X + S"), ("A + norm(T, 4)", "A + T"), ("C + norm(H, 6)", "C + H")),
        ),
        "short-cut": ("the cross-attention's residual starts from X", repair(("A + norm(T, 4)", "X + norm(T, 4)"))),
        "normed-memory": (
            "norms the memory as well",
            repair(("norm(A, 3), M, M,", "norm(A, 3), norm(M, 3), norm(M, 3),")),
        ),
        "mutates": ("adds to X itself", repair(("A = X + norm(S, 2)", "A = X.add_(norm(S, 2))"))),
        "minus-1e4": ("-1e4 in the masks", masked_with("-1e4")),
        "minus-1e9": ("-1e9 in the masks", masked_with("-1e9")),
    },
    "alike": {
        "not-squared": (
            "s and t not squared",
            predict((ATTENDED, ATTENDED.replace("s**2", "s")), (FED, FED.replace("t**2", "t"))),
        ),
        "full-mean": (
            "the mean of the rows taken for as long as a row",
            predict(("(v / n + c * (n - 1) / n) / v", "1.0")),
        ),
        "own-only": ("the mean of independent rows", predict(("(v / n + c * (n - 1) / n) / v", "1 / n"))),
        "others-only": ("the own row left out of the mean", predict(("(v / n + c * (n - 1) / n) / v", "c / v"))),
        "no-norm": (
            "the sub-layers read rows that are not normalised",
            predict(("* (n - 1) / n) / v", "* (n - 1) / n)"), (FED, "        v, c = v + t**2 * v, c + t**2 * c\n")),
        ),
        "own-message": (
            "each row gets a message of its own",
            predict((ATTENDED, "        v, c = v + s**2 * mean, c\n")),
        ),
        "same-network": (
            "the network adds the same to all rows",
            predict((FED, "        v, c = v + t**2, c + t**2\n")),
        ),
        "independent-network": ("the network adds independent rows", predict((FED, "        v, c = v + t**2, c\n"))),
        "always-first": (
            "pre-norm whatever is asked for",
            predict(("    v, cosines = 1.0, [c]\n", "    norm_first = True\n    v, cosines = 1.0, [c]\n")),
        ),
        "always-after": (
            "post-norm whatever is asked for",
            predict(("    v, cosines = 1.0, [c]\n", "    norm_first = False\n    v, cosines = 1.0, [c]\n")),
        ),
        "no-cosine": ("the products, not divided by the squares", predict(("append(c / v)", "append(c)"))),
        "no-start": ("the first entry left out", predict(("np.array(cosines)", "np.array(cosines[1:])"))),
        "network-first": (
            "the network before the attention",
            predict((MEAN + ATTENDED + RENORMED + FED, FED + RENORMED + MEAN + ATTENDED)),
        ),
        "mean-of-cosines": (
            "the mean of the cosines of the pairs",
            measure(
                (
                    "        cosines.append(((X.sum(0) ** 2).sum() - squares) / (n - 1) / squares)\n",
                    "        U = X / np.sqrt((X * X).sum(-1, keepdims=True))\n"
                    "        cosines.append(((U.sum(0) ** 2).sum() - n) / (n - 1) / n)\n",
                )
            ),
        ),
        "with-itself": (
            "counts the pairs of a row with itself",
            measure(("((X.sum(0) ** 2).sum() - squares) / (n - 1)", "(X.sum(0) ** 2).sum() / n")),
        ),
        "all-pairs": (
            "forms all products of two rows",
            measure(("((X.sum(0) ** 2).sum() - squares)", "((X @ X.T).sum() - squares)")),
        ),
        "row-norm": (
            "every row divided by its own length",
            measure(
                (
                    "        Z = X / np.sqrt((X * X).mean()) if norm_first else X\n        X = X + s",
                    "        Z = X / np.sqrt((X * X).mean(-1, keepdims=True)) if norm_first else X\n        X = X + s",
                ),
            ),
        ),
        "old-rows": (
            "the network reads the rows before the attention",
            measure(
                (
                    "        Z = X / np.sqrt((X * X).mean()) if norm_first else X\n        X = X + t",
                    "        X = X + t",
                )
            ),
        ),
        "no-measured-norm": (
            "no norm before the sub-layers",
            measure(
                (
                    "        Z = X / np.sqrt((X * X).mean()) if norm_first else X\n        X = X + s * Z",
                    "        X = X + s * X",
                ),
                (
                    "        Z = X / np.sqrt((X * X).mean()) if norm_first else X\n        X = X + t * Z",
                    "        X = X + t * X",
                ),
            ),
        ),
        "spread": (
            "sums of squares for the size",
            measure(
                (
                    "        Z = X / np.sqrt((X * X).mean()) if norm_first else X\n        X = X + t",
                    "        Z = X / np.sqrt((X * X).sum()) if norm_first else X\n        X = X + t",
                )
            ),
        ),
        "mutates": (
            "adds to X itself",
            measure(("        X = X + s * Z.mean(0) @ W[l]\n", "        X += s * Z.mean(0) @ W[l]\n")),
        ),
        "guarded-rho": ("1e-12 added to the mean square", measured("np.sqrt((X * X).mean() + 1e-12)")),
        "guarded-squares": (
            "1e-12 added to the squares",
            measured("np.sqrt((X * X).mean())", "(squares + 1e-12))"),
        ),
    },
    "thin": {
        "no-root": ("the factor of the input forgotten", thin(("d**0.5", "1.0"))),
        "root-r": ("the root of r for that of d", thin(("d**0.5", "r**0.5"))),
        "root-both": ("the factor at the head too", thin(("H = rows @ B.T", "H = root * (rows @ B.T)"))),
        "head-reads-input": ("the head reads X", thin(("rows = Y.reshape(-1, d)", "rows = X"))),
        "no-head-A": ("A receives nothing from the head", thin(("dA = dZ.T @ H", "dA = np.zeros_like(A)"))),
        "no-lookup-A": ("A receives nothing from the lookup", thin(("        np.add.at(dA, flat, dX @ B.T)\n", ""))),
        "no-head-B": ("B receives nothing from the head", thin(("dB = dH.T @ rows", "dB = np.zeros_like(B)"))),
        "no-lookup-B": ("B receives nothing from the lookup", thin(("dB = dB + looked.T @ dX", "dB = dB"))),
        "not-added": (
            "a token that occurs twice counts once",
            thin(("np.add.at(dA, flat, dX @ B.T)", "dA[flat] += dX @ B.T")),
        ),
        "late-root": ("the factor missing on the way back", thin(("dX = root * dX.reshape", "dX = dX.reshape"))),
        "root-once": (
            "the factor missing in the lookup's part of dB",
            thin(("dB = dB + looked.T @ dX", "dB = dB + looked.T @ dX / root")),
        ),
        "past-body": (
            "the cotangent goes past the body",
            thin(("dX, dbody = body_back(dY.reshape(Y.shape))", "dX, dbody = dY, body_back(dY.reshape(Y.shape))[1]")),
        ),
        "head-twice": (
            "the head's part counted twice in the tokens of the text",
            thin(("np.add.at(dA, flat, dX @ B.T)", "np.add.at(dA, flat, dX @ B.T + H)")),
        ),
        "whole-table": (
            "forms the table of V rows of width d",
            thin(("X = root * (looked @ B)", "X = root * (A @ B)[flat]")),
        ),
        "whole-head": ("forms the table for the head", thin(("Z = H @ A.T", "Z = rows @ (A @ B).T"))),
        "whole-gradient": (
            "forms the gradient of the whole table",
            thin(("dB = dH.T @ rows", "dB = A.T @ (dZ.T @ rows)")),
        ),
        "lookup-table": (
            "adds up the lookup in a table of V rows of width d",
            thin(
                (
                    "np.add.at(dA, flat, dX @ B.T)",
                    "full = np.zeros((V, d))\n        np.add.at(full, flat, dX)\n        dA = dA + full @ B.T",
                )
            ),
        ),
        "again": (
            "runs the body a second time",
            thin(("dX, dbody = body_back(", "dX, dbody = body(X.reshape(*ids.shape, d))[1](")),
        ),
        "mutates": (
            "scales B in place",
            thin(("    X = root * (looked @ B)\n", "    B *= root\n    X = looked @ B\n")),
        ),
        "adds-up": (
            "adds up dB from one backward pass to the next",
            thin(
                ("    def vjp(dZ):\n", "    total = np.zeros_like(B)\n\n    def vjp(dZ):\n        nonlocal total\n"),
                ("dB = dB + looked.T @ dX", "dB = total = total + dB + looked.T @ dX"),
            ),
        ),
    },
    "budget": {
        "two-tables": (
            "a table for each language",
            count(("V * d if tied else 2 * V * d", "2 * V * d if tied else 3 * V * d")),
        ),
        "always-tied": ("the head is always the table", count(("V * d if tied else 2 * V * d", "V * d"))),
        "plain-network": ("two matrices in the network", count(("2 * d * f + f * d", "d * f + f * d"))),
        "no-cross": ("one attention in a decoder layer", count(("2 * attention + network", "attention + network"))),
        "two-norms": ("two norms in a decoder layer", count(("3 * d\n", "2 * d\n"))),
        "norm-biases": (
            "norms with biases",
            count(
                ("network + 2 * d", "network + 4 * d"),
                ("network + 3 * d", "network + 6 * d"),
                ("ends = 2 * d", "ends = 4 * d"),
            ),
        ),
        "no-ends": ("no norm at the end of a stack", count(("ends = 2 * d", "ends = 0"))),
        "bias-per-layer": (
            "a table of offsets in each layer",
            count(("2 * buckets * h", "(encoder + decoder) * buckets * h")),
        ),
        "one-bias": ("one table of offsets for both stacks", count(("2 * buckets * h", "buckets * h"))),
        "bias-per-model": (
            "a table of offsets for the cross-attention too",
            count(("2 * buckets * h", "3 * buckets * h")),
        ),
        "bias-no-heads": ("one offset for all heads", count(("2 * buckets * h", "2 * buckets"))),
        "narrow-heads": ("heads taken for d wide together", count(("3 * d * h * k + h * k * d", "4 * d * d"))),
        "no-two": (
            "a multiplication and an addition counted as one",
            flops(
                ("    return encoder * encode", "    return (encoder * encode"),
                ("(memory + rows + attend) + logits", "(memory + rows + attend) + logits) // 2"),
            ),
        ),
        "memory-per-step": (
            "keys and values of the memory projected at every step",
            flops(("memory = m * 2", "memory = n * m * 2")),
        ),
        "no-memory": ("keys and values of the memory left out", flops(("memory = m * 2 * 2 * d * e", "memory = 0"))),
        "recomputed": ("no cache for the target", flops(("rows = n * (2 * 4", "rows = n * (n + 1) // 2 * (2 * 4"))),
        "square": ("every step reads n keys", flops(("n * (n + 1) // 2", "n * n"))),
        "without-itself": ("a token does not read its own key", flops(("n * (n + 1) // 2", "n * (n - 1) // 2"))),
        "encode-per-step": (
            "encodes the source at every step",
            flops(("encoder * encode +", "n * encoder * encode +")),
        ),
        "one-logit": ("logits at the last step only", flops(("logits = n * 2 * V * d", "logits = 2 * V * d"))),
        "no-logits": ("no logits", flops(("logits = n * 2 * V * d", "logits = 0"))),
        "no-cross-scores": ("the products with the memory left out", flops((" + 4 * e * n * m", ""))),
        "half-encoder": ("the encoder's attention taken for causal", flops(("4 * m * m * e", "2 * m * (m + 1) * e"))),
        "scores-only": (
            "scores without the sums of the values",
            flops(("4 * e * seen + 4 * e * n * m", "2 * e * seen + 2 * e * n * m"), ("4 * m * m * e", "2 * m * m * e")),
        ),
        "float": ("a quotient in floating point", flops(("n * (n + 1) // 2", "int(n * (n + 1) / 2)"))),
        "float-parameters": ("parameters counted in floating point", count(("2 * d * f + f * d", "int(3.0 * d * f)"))),
        "float-source": ("the source's pairs in floating point", flops(("4 * m * m * e", "int(4.0 * m * m * e)"))),
    },
}

MESSAGE = {
    "patches": {
        "axes-swapped": "row and column are exchanged",
        "halves": "half of the components in one piece",
        "one-ladder": "a ladder of its own",
        "slow-ladder": "fall half as fast",
        "late-ladder": "l counts from 0",
        "backwards": "you turn the other way",
        "half-pairs": "you paired i with i + k / 2",
        "summed": "row plus column",
        "rounded": "you rounded them",
        "not-back": "by minus the angle",
        "slope-sign": "a db - b da",
        "slope-input": "after the turn; yours are those of X",
        "no-frequency": "the frequency is missing",
        "slope-swapped": "its columns are exchanged",
        "mean": "you took their mean",
        "per-sequence": "so add them up",
        "single": "in float32, base 100, positions up to 1e+06",
        "spoils-output": "you changed it",
        "double": "keep the dtype of X",
        "mutates": "you changed your argument",
    },
    "smooth": {
        "natural": "the logarithm has base 2",
        "steps": "these are steps",
        "nearest": "that is the nearest anchor",
        "exchanged": "the shares are exchanged",
        "no-one": "1 + distance / tau",
        "sides": "before and after are exchanged",
        "zero-after": "the query's own position belongs to s = 0",
        "no-offset": "yours stands at key i",
        "times": "divide by it",
        "one-tau": "every head has its own tau",
        "early-end": "one anchor early",
        "no-edge": "out of bounds",
        "lower-only": "the upper anchor has its share",
        "plain-shares": "its share of dB, not all of it",
        "not-added": "overwrite each other",
        "tau-sign": "a larger unit makes distances smaller",
        "tau-log": "a factor 1 / ln 2",
        "tau-chain": "1 / (1 + x)",
        "tau-beyond": "beyond the last anchor",
        "tau-shared": "yours are added up",
        "heads-last": "the axis of the heads comes first",
        "double": "keep the dtype of the table",
        "mutates": "you changed your argument",
        "no-query-before": "where query 0 stands before key 0",
        "tau-dtype": "keep the dtype of the table",
        "dtau-dtype": "a gradient has the dtype of its argument",
        "guarded-unit": "tau about 1e-12",
    },
    "partial": {
        "all": "RMSNorm of all components",
        "sum": "take their mean",
        "over-d": "divided by p, not by d",
        "last": "the last p components",
        "one-more": "one component too many",
        "part-only": "not only the first p",
        "centred": "you subtracted the mean",
        "eps-outside": "eps belongs under the root",
        "no-eps": "eps is missing",
        "gain-part": "multiplies all of them",
        "no-correction": "you took r for a constant",
        "correct-all": "the others get no correction",
        "along-part": "runs over all of them",
        "over-d-back": "and so does its derivative",
        "no-gain-back": "meets the gain first",
        "correct-plus": "the correction is subtracted",
        "dgain-input": "yours met X",
        "dgain-last": "the gain serves all rows",
        "dgain-batch": "of a batch (2, 2, 5)",
        "half": "so add up in float32",
        "wide": "keep the dtype",
        "mutates": "you changed your argument",
        "half-rows": "its sums stop at 2048",
        "half-components": "the sum over 512 components in float16 is inf",
        "half-root": "round at the end, not before",
        "dgain-dtype": "dgain is float16",
    },
    "slim": {
        "same-eps": "it has to change with it",
        "inverse-eps": "you changed eps the wrong way",
        "no-factor": "a mean over d - 1 is not a mean over d",
        "inverse-factor": "upside down",
        "no-root": "lacks its root",
        "drop-last": "the mean is no component",
        "with-ones": "your basis holds the direction of ones",
        "not-orthonormal": "but not orthonormal",
        "no-gain": "you left the gains of the norms out",
        "no-bias": "you left the biases of the norms out",
        "scaled-bias": "the gain does not multiply it",
        "centred-bias": "the bias of a norm is not centred",
        "lost-bias": "have biases of their own",
        "silent-writers": "the maps that write have biases",
        "one-norm": "each sub-layer has its own norm",
        "still-tied": "slim has no head",
        "bare-head": "the head reads behind the last norm",
        "always-tied": "a model with a head of its own",
        "no-positions": "the table of positions writes, too",
        "as-wide": "your residual rows have width 4",
        "mutates": "you changed your argument",
        "least-eps": "eps=1e-12",
    },
    "parallel": {
        "in-turn": "yours waits for f",
        "own-input": "yours reads X",
        "normed-path": "the sum starts from X",
        "no-scale": "not scaled by a and b",
        "scales-swapped": "a belongs to f and b to g",
        "scaled-input": "not what they read",
        "no-path": "the residual path is missing",
        "path-twice": "you counted it twice",
        "one-branch": "yours comes from f alone",
        "unscaled-back": "a times dY",
        "scaled-late": "a times dY",
        "scale-meets-norm": "you took what f reads",
        "scale-twice": "its gradient does not contain a",
        "norm-sees-sum": "goes past the norm",
        "no-norm-back": "leads through the norm",
        "per-sequence": "expected (4,)",
        "again": "once each vjp is enough",
        "in-place": "you changed your argument",
        "mutates": "you changed your argument",
        "order": "the parameters of g",
        "divided": "divide by neither a nor b",
        "divided-guarded": "a[0] = b[-1] = 0",
        "adds-up": "in a second backward pass",
    },
    "repair": {
        "untouched": "what the broken layer returns",
        "norm-left": "one fault is left: the first row",
        "padding-left": "one fault is left: one row of padding",
        "network-left": "one fault is left: the network",
        "norm-padding": "two faults are left: the first row depends on X's last one, and padding",
        "norm-network": "two faults are left: the first row depends on X's last one, and the network",
        "padding-network": "two faults are left: padding is attended to",
        "no-causal": "is gone now",
        "short": "the last real row of the memory is lost",
        "longest": "where each sequence has a length of its own",
        "layer-norm": "you subtract the mean",
        "post": "the residual path is free",
        "one-slice": "the norms behind the sub-layers were right",
        "short-cut": "starts from A",
        "normed-memory": "the memory is read as it is",
        "mutates": "you changed your argument",
        "minus-1e4": "no number can stand for -inf",
        "minus-1e9": "no number can stand for -inf",
    },
    "alike": {
        "not-squared": "get their squares",
        "full-mean": "the mean of the rows is shorter than a row",
        "own-only": "there are n (n - 1) of them",
        "others-only": "a row is one of the rows of the mean",
        "no-norm": "divide by v what goes into them",
        "own-message": "the same message",
        "same-network": "not their squares",
        "independent-network": "one matrix V serves all rows",
        "always-first": "you give pre-norm in both cases",
        "always-after": "that is post-norm",
        "no-cosine": "divide the products by the squares",
        "no-start": "the start counts too",
        "network-first": "the attention comes first",
        "mean-of-cosines": "the mean of the pairs' cosines",
        "with-itself": "a row and itself are no pair",
        "all-pairs": "an array of n² entries",
        "row-norm": "one rho serves all rows",
        "old-rows": "the network reads the normalised rows",
        "no-measured-norm": "that is post-norm",
        "spread": "the root of a mean",
        "mutates": "you changed your argument",
        "guarded-rho": "there is no epsilon",
        "guarded-squares": "there is no epsilon",
    },
    "thin": {
        "no-root": "the factor of the input is missing",
        "root-r": "yours is that of r",
        "root-both": "belongs to the input only",
        "head-reads-input": "the head reads Y",
        "no-head-A": "dA: the head's part is missing",
        "no-lookup-A": "dA: the lookup's part is missing",
        "no-head-B": "dB: the head's part is missing",
        "no-lookup-B": "dB: the lookup's part is missing",
        "not-added": "token 3 occurs twice",
        "late-root": "so is its cotangent",
        "root-once": "is missing in the lookup's part",
        "past-body": "yours went past it",
        "head-twice": "is counted twice",
        "whole-table": "an array of V d entries",
        "whole-head": "an array of V d entries",
        "whole-gradient": "an array of V d entries",
        "lookup-table": "an array of V d entries",
        "again": "once each is enough",
        "mutates": "you changed your argument",
        "adds-up": "dB in a second backward pass",
    },
    "budget": {
        "two-tables": "share one table",
        "always-tied": "the head is a matrix of its own",
        "plain-network": "three matrices",
        "no-cross": "two attentions",
        "two-norms": "three sub-layers",
        "norm-biases": "a gain and no bias",
        "no-ends": "one more norm at its end",
        "bias-per-layer": "share one table of offsets",
        "one-bias": "each of the two stacks",
        "bias-per-model": "the cross-attention has no table",
        "bias-no-heads": "every head has its own offsets",
        "narrow-heads": "h k wide together, not d",
        "no-two": "are two operations",
        "memory-per-step": "made once, at the start",
        "no-memory": "have to be made",
        "recomputed": "in the cache",
        "square": "not to n",
        "without-itself": "attends to itself too",
        "encode-per-step": "the source is encoded once",
        "one-logit": "every step needs logits",
        "no-logits": "the logits are missing",
        "no-cross-scores": "the attention of the target to the memory",
        "half-encoder": "the encoder is not causal",
        "scores-only": "two products",
        "float": "keep it whole",
        "float-parameters": "whole numbers are exact",
        "float-source": "m = 10¹⁸ - 1 your count is off",
    },
}
