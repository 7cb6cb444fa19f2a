"""Problem set 9 and what people get wrong in it; the parts are as in set6.py."""

from batteries.changes import changed

RIGHT = {
    "cap_answer": """\
def capped(S, cap):
    rows = S.reshape(-1, S.shape[-1])
    P = np.zeros(rows.shape)
    for s, p in zip(rows, P, strict=True):
        keys = np.flatnonzero(s > -np.inf)
        if cap * len(keys) < 1:
            raise ValueError(f"{len(keys)} keys with at most {cap} each")
        order = keys[np.argsort(-s[keys])]
        z = s[order] - s[order[0]]
        done = False
        for at in range(len(z) + 1):
            for out in range(at, len(z) + 1):
                inside = z[at:out]
                left = 1 - at * cap
                if len(inside) == 0:
                    if at * cap == 1:
                        p[order[:at]] = cap
                        done = True
                    continue
                tau = (inside.sum() - left) / len(inside)
                if inside[0] - tau > cap or inside[-1] - tau <= 0:
                    continue
                if at and z[at - 1] - tau < cap or out < len(z) and z[out] - tau > 0:
                    continue
                p[order[:at]] = cap
                near = s[order[at:out]] - s[order[at]]
                p[order[at:out]] = np.minimum(near - (near.sum() - left) / len(near), cap)
                done = True
                break
            if done:
                break
        if cap * len(keys) == 1:
            p[keys] = cap
    free = (P > 0) & (P < cap)

    def vjp(dP):
        flat = dP.reshape(P.shape)
        dS = np.zeros(P.shape)
        for g, on, d in zip(flat, free, dS, strict=True):
            if on.any():
                d[on] = g[on] - g[on].mean()
        return dS.reshape(S.shape)

    return P.reshape(S.shape), vjp
""",
    "quiet_answer": """\
def sink_for(S, t):
    X = np.array(S, dtype=float)
    heads = X.reshape(-1, *X.shape[-2:])
    n = heads.shape[1]
    answers = np.zeros(len(heads))
    slopes = np.zeros(heads.shape)
    for h, scores in enumerate(heads):
        alive = [i for i in range(n) if scores[i].max() > -np.inf]
        if t <= 0 or t * n >= len(alive):
            raise ValueError("out of reach")
        sums = np.array([np.logaddexp.reduce(scores[i]) for i in alive])
        b = sums.mean()
        low = sums.min() - 800
        high = sums.max() + 800
        for _ in range(300):
            b = 0.5 * (low + high)
            mean = (1 / (1 + np.exp(b - sums))).sum() / n
            if mean > t:
                low = b
            else:
                high = b
        answers[h] = b
        g = 1 / (1 + np.exp(b - sums))
        other = 1 / (1 + np.exp(sums - b))
        for i, s, w in zip(alive, sums, g * other / (g * other).sum()):
            slopes[h, i] = w * np.exp(scores[i] - s)

    def vjp(db):
        return (np.reshape(db, (-1, 1, 1)) * slopes).reshape(X.shape)

    return answers.reshape(X.shape[:-2]), vjp
""",
    "plan_answer": """\
def reading_plan(S, a, b, rounds):
    if bool((a < 0).any()) or bool((b < 0).any()):
        raise ValueError("a negative time")
    time = a.sum(dim=-1)
    books = b.sum(dim=-1)
    gap = (time - books).abs()
    if bool((gap > 1e-4 * time.maximum(books)).any()):
        raise ValueError("the times do not fit together")
    rows = torch.log(a).unsqueeze(-1)
    columns = torch.log(b).unsqueeze(-2)
    L = S
    up = torch.zeros_like(rows)
    down = torch.where(b.unsqueeze(-2) > 0, torch.zeros_like(columns), columns)
    for k in range(rounds):
        up = rows - (L + down).logsumexp(dim=-1, keepdim=True)
        down = columns - (L + up).logsumexp(dim=-2, keepdim=True)
    P = torch.exp(L + up + down)
    missing = P.sum(dim=-1) - a
    wrong = 0.5 * missing.abs().sum(dim=-1) / time
    return P, wrong
""",
    "clinics_answer": """\
def choose(X, v, clinics, widths):
    points = [np.array(x, dtype=float) for x in X]
    n = len(points)
    if len(set(clinics)) < 2:
        raise ValueError("one clinic")
    errors = []
    freedom = []
    for h in widths:
        total = 0.0
        trace = 0.0
        for i in range(n):
            scores = np.array([-0.5 * (((points[i] - y) / h) ** 2).sum() for y in points])
            keep = np.array([g != clinics[i] for g in clinics])
            w = np.exp(scores[keep] - scores[keep].max())
            w = w / w.sum()
            guess = w @ np.array(v, dtype=float)[keep]
            total += (v[i] - guess) ** 2
            trace += 1 / np.exp(scores).sum()
        errors.append(total / n)
        freedom.append(trace)
    order = sorted(range(len(widths)), key=lambda k: (errors[k], -widths[k]))
    return np.array(errors), np.array(freedom), widths[order[0]]
""",
    "settle_answer": """\
def layers_until(A, X, share):
    A = np.array(A, dtype=float)
    Y = np.array(X, dtype=float)
    if (Y.max(axis=0) == Y.min(axis=0)).all() or share == 1:
        return 0
    d = A.sum(axis=1)
    w = d / d.sum()
    Y = Y - (w[:, None] * Y).sum(axis=0)
    M = A / np.sqrt(np.outer(d, d))
    lam, U = np.linalg.eigh(M)
    C = U.T @ (Y * np.sqrt(w)[:, None])
    energy = (C * C).sum(axis=1)
    whole = energy.sum()
    logs = np.log(np.clip(np.abs(lam), 1e-300, 1.0))

    def small(t):
        left = (np.exp(2 * t * logs) * energy).sum()
        return left <= share * share * whole

    t = 1
    while not small(t):
        t = 2 * t
        if t > 2 * 10**9:
            return None
    low = t // 2
    while t - low > 1:
        m = (t + low) // 2
        if small(m):
            t = m
        else:
            low = m
    return t if t <= 10**9 else None
""",
    "recall_answer": """\
def recall(K, x, known, counts, beta, steps):
    there = torch.nonzero(counts > 0).flatten()
    patterns = K[there]
    often = counts[there]
    state = x.clone()
    states = []
    energies = []
    for step in range(steps + 1):
        z = beta * torch.einsum("...d,nd->...n", state, patterns) + torch.log(often)
        top = z.max(dim=-1, keepdim=True).values
        e = torch.exp(z - top)
        total = e.sum(dim=-1)
        states.append(state)
        energies.append(0.5 * (state**2).sum(dim=-1) - (top[..., 0] + torch.log(total)) / beta)
        p = e / total[..., None]
        state = torch.where(known, state, p @ patterns)
    return torch.stack(states), torch.stack(energies)
""",
    "wait_answer": """\
def until_near(a, b, beta, start, end):
    from scipy.integrate import quad

    if start >= end:
        return 0.0, 0.0
    if start == -1:
        return math.inf, 0.0

    def speeds(g):
        few = math.exp(-beta * (1 - g))
        return b * few / (a + b * few), a * few / (b + a * few)

    def dt(y):
        one, two = speeds(math.tanh(y))
        return 1 / (one + two)

    def dphi(y):
        g = math.tanh(y)
        one, two = speeds(g)
        return one / (one + two) / math.cosh(y)

    edges = np.linspace(math.atanh(start), math.atanh(end), 200)
    time = 0.0
    turned = 0.0
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        time += quad(dt, low, high, epsabs=0, epsrel=1e-9)[0]
        turned += quad(dphi, low, high, epsabs=0, epsrel=1e-9)[0]
    return time, turned
""",
    "partner_answer": """\
def look_back(t, n, partner):
    width = t + n
    late = 15.0
    top = late * n + 30.0
    token_token = np.zeros((t, t))
    place_place = np.zeros((n, n))
    for x in range(t):
        for y in range(t):
            if y == partner[x] and y > 0:
                token_token[x, y] = 2 * top
    token_token[:, 0] = top
    for i in range(n):
        for j in range(n):
            place_place[i, j] = late * j
        place_place[i, i] -= 5 * top
    QK = np.zeros((width, width))
    QK[:t, :t] = token_token
    QK[t:, t:] = place_place
    OV = np.concatenate([np.zeros((t, n)), np.eye(n)], axis=0)
    return QK, OV
""",
    "lead_answer": """\
def mean_lead(P, ids, lengths):
    heads = P.shape[1]
    leads = []
    for b in range(P.shape[0]):
        text = ids[b, : int(lengths[b])].tolist()
        for i in range(len(text)):
            behind = [j for j in range(1, i + 1) if text[j - 1] == text[i]]
            rest = [j for j in range(1, i + 1) if text[j - 1] != text[i]]
            if behind and rest:
                row = P[b, :, i, :].to(torch.float64)
                leads.append(row[:, behind].mean(dim=-1) - row[:, rest].mean(dim=-1))
    if not leads:
        return torch.full((heads,), float("nan"), dtype=P.dtype)
    return torch.stack(leads).mean(dim=0).to(P.dtype)
""",
    "doubt_answer": """\
def breaks(claim, n):
    if claim == "a":
        x = np.linspace(0, 0.1, n)
        x[0] = -30
        v = np.where(np.arange(n) < 2, 0.0, 1.0)
        return x, v
    if claim == "b":
        X = np.zeros((n, 3))
        X[0, 1] = 10.0
        X[1, 1] = 5.0
        z = np.zeros(n)
        z[0] = 0.8
        z[1] = -2.0
        return X, z
    K = np.zeros((n, 3))
    K[:, 0] = -1.0
    for row, degrees in enumerate([0.0, 10.0, -30.0]):
        K[row] = [math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0]
    return K, 12.0, 32.0
""",
}


def fault(exercise, *changes):
    """The right answer to an exercise with words exchanged."""
    return {f"{exercise}_answer": changed(RIGHT[f"{exercise}_answer"], *changes)}


WRONG = {
    "cap": {
        "no-cap": (
            "computes sparsemax and forgets the cap",
            fault(
                "cap",
                (" if inside[0] - tau > cap or inside[-1] - tau <= 0", " if inside[-1] - tau <= 0"),
                ("np.minimum(near - (near.sum() - left) / len(near), cap)", "inside - tau"),
            ),
        ),
        "clip-after": (
            "cuts sparsemax at the cap and leaves the rest lost",
            fault("cap", (" if inside[0] - tau > cap or inside[-1] - tau <= 0", " if inside[-1] - tau <= 0")),
        ),
        "renormalise": (
            "cuts sparsemax at the cap and divides by the sum",
            {
                "cap_answer": """\
def capped(S, cap):
    import attnmath.numpy as an

    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    P = np.minimum(an.sparsemax(S)[0], cap)
    P = P / P.sum(-1, keepdims=True)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "evenly": (
            "shares out what is cut off evenly among all other keys",
            {
                "cap_answer": """\
def capped(S, cap):
    import attnmath.numpy as an

    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    P = an.sparsemax(S)[0]
    over = P > cap
    rest = np.where(over, P - cap, 0).sum(-1, keepdims=True)
    P = np.where(over, cap, P + rest / np.maximum((~over).sum(-1, keepdims=True), 1))
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "once": (
            "cuts once, then takes sparsemax of the others with what is left, without the cap",
            {
                "cap_answer": """\
def capped(S, cap):
    import attnmath.numpy as an

    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    P = an.sparsemax(S)[0]
    over = P > cap
    left = 1 - cap * over.sum(-1, keepdims=True)
    Q = an.sparsemax(np.where(over, -np.inf, S) / left, empty_rows="zero")[0] * left
    P = np.where(over, cap, Q)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "softmax": (
            "cuts softmax and shares out by the weights",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    E = np.exp(S - S.max(-1, keepdims=True))
    P = E / E.sum(-1, keepdims=True)
    for _ in range(200):
        P = np.minimum(P, cap)
        over = P >= cap
        rest = 1 - np.where(over, cap, 0).sum(-1, keepdims=True)
        P = np.where(over, cap, P / np.maximum(np.where(over, 0, P).sum(-1, keepdims=True), 1e-300) * rest)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "support-with-cap": (
            "lets keys at the cap take part in the gradient",
            fault("cap", ("free = (P > 0) & (P < cap)", "free = P > 0")),
        ),
        "all-free": (
            "takes the mean over all keys in the gradient",
            fault("cap", ("d[on] = g[on] - g[on].mean()", "d[on] = g[on] - g.mean()")),
        ),
        "no-mean": (
            "leaves the mean out of the gradient",
            fault("cap", ("d[on] = g[on] - g[on].mean()", "d[on] = g[on]")),
        ),
        "softmax-vjp": (
            "uses the Jacobian of softmax",
            fault(
                "cap",
                ("zip(flat, free, dS, strict=True)", "zip(flat, P, dS, strict=True)"),
                ("d[on] = g[on] - g[on].mean()", "d[:] = on * (g - on @ g)"),
            ),
        ),
        "finite-stand-in": (
            "puts -1e4 in the place of -inf",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * S.shape[-1] < 1):
        raise ValueError("too few keys")
    Z = np.where(np.isfinite(S), S, -1e4)
    Z = Z - Z.max(-1, keepdims=True)
    low = np.full(Z[..., :1].shape, -cap - 2e6)
    high = np.full(low.shape, 0.0)
    for _ in range(200):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "tolerant": (
            "lets a cap pass that is a little too small",
            fault("cap", ("if cap * len(keys) < 1:", "if cap * len(keys) < 1 - 1e-6:")),
        ),
        "small-is-nothing": (
            "sets very small weights to 0",
            fault("cap", ("    free = (P > 0) & (P < cap)", "    P[P < 1e-6] = 0\n    free = (P > 0) & (P < cap)")),
        ),
        "not-shifted": (
            "does not subtract the largest score",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    Z = S - 0
    low = np.full(Z[..., :1].shape, -3e6)
    high = np.full(low.shape, 3e6)
    for _ in range(200):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "few-halvings": (
            "halves the interval 25 times",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    Z = S - S.max(-1, keepdims=True)
    low = np.full(Z[..., :1].shape, -cap - 1.0)
    high = np.full(low.shape, 0.0)
    for _ in range(25):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "short-interval": (
            "starts with an interval that is too short for a small cap",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    Z = S - S.max(-1, keepdims=True)
    low = np.full(Z[..., :1].shape, -1.0)
    high = np.full(low.shape, 0.0)
    for _ in range(200):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "absolute": (
            "looks for the threshold between -1e3 and 1e3",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    Z = S - 0
    low = np.full(Z[..., :1].shape, -1e3)
    high = np.full(low.shape, 1e3)
    for _ in range(200):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "free-rounded": (
            "calls keys free whose weight is a rounding error from the cap",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    Z = S - S.max(-1, keepdims=True)
    low = np.full(Z[..., :1].shape, -cap - 1e7)
    high = np.full(low.shape, 0.0)
    for _ in range(200):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 1e-3) & (P < cap - 1e-3)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "counts-masked": (
            "counts keys of score minus infinity among those that may help",
            fault("cap", ("if cap * len(keys) < 1:", "if cap * len(s) < 1:")),
        ),
        "refuses-equal": (
            "refuses a row whose keys are just enough",
            fault("cap", ("if cap * len(keys) < 1:", "if cap * len(keys) <= 1:")),
        ),
        "never-refuses": ("does not refuse", fault("cap", ("if cap * len(keys) < 1:", "if False:"))),
        "changes": (
            "changes the scores",
            fault(
                "cap",
                (
                    "rows = S.reshape(-1, S.shape[-1])",
                    ("S -= S.max(-1, keepdims=True)\n    rows = S.reshape(-1, S.shape[-1])"),
                ),
            ),
        ),
        "two-axes": (
            "works for matrices only",
            fault(
                "cap",
                (
                    "rows = S.reshape(-1, S.shape[-1])",
                    ("if S.ndim != 2:\n        raise TypeError('two axes')\n    rows = S"),
                ),
            ),
        ),
        "from-zero": (
            "starts the largest score at 0",
            {
                "cap_answer": """\
def capped(S, cap):
    if (cap * np.isfinite(S).sum(-1) < 1).any():
        raise ValueError("too few keys")
    Z = S - np.maximum(S.max(-1, keepdims=True), 0.0)
    low = np.full(Z[..., :1].shape, -cap - 1.0)
    high = np.full(low.shape, 0.0)
    for _ in range(200):
        t = (low + high) / 2
        more = np.clip(Z - t, 0, cap).sum(-1, keepdims=True) >= 1
        low, high = np.where(more, t, low), np.where(more, high, t)
    t = low
    P = np.clip(Z - t, 0, cap)
    free = (P > 0) & (P < cap)

    def vjp(dP):
        n = np.maximum(free.sum(-1, keepdims=True), 1)
        return np.where(free, dP - np.where(free, dP, 0).sum(-1, keepdims=True) / n, 0)

    return P, vjp
"""
            },
        ),
        "no-rows": (
            "takes the largest of no rows",
            fault(
                "cap",
                (
                    "rows = S.reshape(-1, S.shape[-1])",
                    ("rows = S.reshape(-1, S.shape[-1])\n    rows[np.isfinite(rows)].max()"),
                ),
            ),
        ),
        "near-cap": (
            "calls keys whose weight is nearly the cap keys at the cap",
            fault("cap", ("free = (P > 0) & (P < cap)", "free = (P > 0) & (P < cap - 1e-3)")),
        ),
        "lowest-at-cap": (
            "lets the lowest of the keys at the cap move where these have the whole sum",
            fault(
                "cap",
                (
                    "    free = (P > 0) & (P < cap)\n",
                    (
                        "    free = (P > 0) & (P < cap)\n"
                        "    just = cap * (rows > -np.inf).sum(-1, keepdims=True) == 1\n"
                        "    lowest = rows == np.where(P > 0, rows, np.inf).min(-1, keepdims=True)\n"
                        "    free |= lowest & ~just & ~free.any(-1, keepdims=True)\n"
                    ),
                ),
            ),
        ),
        "from-the-largest": (
            "measures the free keys from the largest score, which may lie far above them",
            fault("cap", ("near = s[order[at:out]] - s[order[at]]", "near = inside")),
        ),
    },
    "quiet": {
        "first-share": (
            "asks for the share of the sink instead of that of the keys",
            fault("quiet", ("if mean > t:", "if mean > 1 - t:")),
        ),
        "sum": (
            "makes the sum of the shares t",
            fault(
                "quiet", ("mean = (1 / (1 + np.exp(b - sums))).sum() / n", "mean = (1 / (1 + np.exp(b - sums))).sum()")
            ),
        ),
        "live-only": (
            "takes the mean over queries that have a key",
            fault(
                "quiet", ("mean = (1 / (1 + np.exp(b - sums))).sum() / n", "mean = (1 / (1 + np.exp(b - sums))).mean()")
            ),
        ),
        "mean-lse": (
            "uses one gate at the mean of the sums",
            fault(
                "quiet",
                (
                    "mean = (1 / (1 + np.exp(b - sums))).sum() / n",
                    "mean = len(sums) / n / (1 + np.exp(b - sums.mean()))",
                ),
            ),
        ),
        "all-in-one": (
            "uses the share of the sums of all queries",
            fault(
                "quiet",
                (
                    "mean = (1 / (1 + np.exp(b - sums))).sum() / n",
                    "mean = 1 / (1 + np.exp(b - np.logaddexp.reduce(sums)) * n)",
                ),
            ),
        ),
        "max-score": (
            "puts the largest score in the place of the sum",
            fault(
                "quiet",
                (
                    "sums = np.array([np.logaddexp.reduce(scores[i]) for i in alive])",
                    "sums = np.array([scores[i].max() for i in alive])",
                ),
            ),
        ),
        "exponential": (
            "returns the exponential of b",
            fault("quiet", ("return answers.reshape", "return np.exp(answers).reshape")),
        ),
        "negative": ("returns minus b", fault("quiet", ("return answers.reshape", "return -answers.reshape"))),
        "equal-queries": (
            "lets all queries move the sink alike",
            fault("quiet", ("g * other / (g * other).sum()", "np.ones(len(g)) / len(g)")),
        ),
        "gate-only": (
            "weighs the queries by their gates",
            fault("quiet", ("g * other / (g * other).sum()", "g / g.sum()")),
        ),
        "no-division": (
            "does not divide by the slope of the mean",
            fault("quiet", ("g * other / (g * other).sum()", "g * other / n")),
        ),
        "minus": (
            "has the wrong sign in the gradient",
            fault("quiet", ("(np.reshape(db, (-1, 1, 1)) * slopes)", "(-np.reshape(db, (-1, 1, 1)) * slopes)")),
        ),
        "sink-weights": (
            "uses the weights with the sink in the gradient",
            fault(
                "quiet",
                (
                    "slopes[h, i] = w * np.exp(scores[i] - s)",
                    "slopes[h, i] = w * np.exp(scores[i] - s) / (1 + np.exp(b - s))",
                ),
            ),
        ),
        "uniform-keys": (
            "spreads a query's gradient evenly over its keys",
            fault("quiet", ("slopes[h, i] = w * np.exp(scores[i] - s)", "slopes[h, i] = w / len(scores[i])")),
        ),
        "one-head": (
            "takes one head only",
            fault("quiet", ("heads = X.reshape(-1, *X.shape[-2:])", "heads = X[None] if X.ndim == 2 else X")),
        ),
        "few-halvings": (
            "halves the interval 31 times",
            fault(
                "quiet",
                ("sums.min() - 800", "sums.min() - 20"),
                ("sums.max() + 800", "sums.max() + 20"),
                ("for _ in range(300):", "for _ in range(31):"),
            ),
        ),
        "naive": (
            "computes the exponentials of the scores themselves",
            fault("quiet", ("np.logaddexp.reduce(scores[i])", "np.log(np.exp(scores[i]).sum())")),
        ),
        "short-bracket": (
            "looks for the sink as if every query had a key",
            fault(
                "quiet",
                ("low = sums.min() - 800", "low = sums.min() - np.log(t / (1 - t))"),
                ("high = sums.max() + 800", "high = sums.max() - np.log(t / (1 - t))"),
            ),
        ),
        "one-sink": (
            "finds one sink for all heads",
            fault(
                "quiet",
                ("heads = X.reshape(-1, *X.shape[-2:])", "heads = X.reshape(1, -1, X.shape[-1])"),
                ("return answers.reshape(X.shape[:-2]), vjp", "return np.full(X.shape[:-2], answers[0]), vjp"),
            ),
        ),
        "forty-steps": ("halves the interval 30 times", fault("quiet", ("range(300)", "range(30)"))),
        "from-zero": (
            "looks for b between -50 and 50",
            fault("quiet", ("low = sums.min() - 800", "low = -50.0"), ("high = sums.max() + 800", "high = 50.0")),
        ),
        "no-limit": ("refuses only what is not between 0 and 1", fault("quiet", ("t * n >= len(alive)", "t >= 1"))),
        "limit-passed": (
            "accepts a share that needs a sink of minus infinity",
            fault("quiet", ("t * n >= len(alive)", "t * n > len(alive)")),
        ),
        "every-head": (
            "refuses only if no head has a sink",
            fault(
                "quiet",
                (
                    '            raise ValueError("out of reach")',
                    (
                        "            if len(heads) == 1:\n"
                        '                raise ValueError("out of reach")\n'
                        "            continue"
                    ),
                ),
            ),
        ),
        "zero-share": ("accepts a share of 0", fault("quiet", ("if t <= 0 or", "if t < 0 or"))),
        "empty-nan": (
            "lets a query without keys become nan",
            fault("quiet", ("alive = [i for i in range(n) if scores[i].max() > -np.inf]", "alive = list(range(n))")),
        ),
        "stand-in": (
            "puts -1e3 in the place of minus infinity",
            fault("quiet", ("X = np.array(S, dtype=float)", "X = np.maximum(np.array(S, dtype=float), -1e3)")),
        ),
        "changes": (
            "changes the scores",
            fault("quiet", ("X = np.array(S, dtype=float)", ("X = np.asarray(S)\n    X[X < -1e300] = -1e300"))),
        ),
        "integers": (
            "keeps the type of the scores",
            fault("quiet", ("slopes = np.zeros(heads.shape)", "slopes = np.zeros(heads.shape, np.asarray(S).dtype)")),
        ),
    },
    "plan": {
        "columns-first": (
            "sets the columns first",
            fault(
                "plan",
                (
                    (
                        "        up = rows - (L + down).logsumexp(dim=-1, keepdim=True)\n"
                        "        down = columns - (L + up).logsumexp(dim=-2, keepdim=True)"
                    ),
                    (
                        "        down = columns - (L + up).logsumexp(dim=-2, keepdim=True)\n"
                        "        up = rows - (L + down).logsumexp(dim=-1, keepdim=True)"
                    ),
                ),
            ),
        ),
        "rows-last": (
            "sets the rows once more in the end",
            fault(
                "plan",
                (
                    "    P = torch.exp(L + up + down)",
                    ("    up = rows - (L + down).logsumexp(dim=-1, keepdim=True)\n    P = torch.exp(L + up + down)"),
                ),
            ),
        ),
        "one-more": ("does one round more", fault("plan", ("range(rounds)", "range(rounds + 1)"))),
        "one-less": (
            "does one round less",
            fault("plan", ("for k in range(rounds):", "for k in range(max(rounds - 1, 1)):")),
        ),
        "rows-one": ("gives every reader the time 1", fault("plan", ("up = rows - (L + down)", "up = -(L + down)"))),
        "columns-even": (
            "gives all books the same time",
            fault(
                "plan", ("down = columns - (L + up)", "down = columns.exp().mean(-1, keepdim=True).log() - (L + up)")
            ),
        ),
        "swapped": (
            "exchanges the axes",
            fault(
                "plan",
                (
                    "(L + down).logsumexp(dim=-1, keepdim=True)",
                    "(L + down).logsumexp(dim=-2, keepdim=True).mean(-1, keepdim=True)",
                ),
            ),
        ),
        "softmax-scaled": (
            "multiplies a softmax by the times of the readers",
            fault("plan", ("    P = torch.exp(L + up + down)", "    P = L.softmax(-1) * a.unsqueeze(-1) + 0 * down")),
        ),
        "at-once": (
            "sets rows and columns from the same table",
            fault(
                "plan",
                (
                    "down = columns - (L + up).logsumexp(dim=-2, keepdim=True)",
                    "down = columns - (L + old).logsumexp(dim=-2, keepdim=True)",
                ),
                ("        up = rows", ("        old = up\n        up = rows")),
            ),
        ),
        "forgets": (
            "forgets the v of the last round",
            fault(
                "plan",
                (
                    "up = rows - (L + down).logsumexp(dim=-1, keepdim=True)",
                    "up = rows - L.logsumexp(dim=-1, keepdim=True)",
                ),
            ),
        ),
        "no-half": ("forgets the half in the share", fault("plan", ("wrong = 0.5 * missing", "wrong = missing"))),
        "not-share": (
            "does not divide by the time",
            fault("plan", ("missing.abs().sum(dim=-1) / time", "missing.abs().sum(dim=-1)")),
        ),
        "mean": (
            "takes the mean of the misses",
            fault("plan", ("missing.abs().sum(dim=-1) / time", "(missing / a).abs().nan_to_num().mean(dim=-1)")),
        ),
        "signed": ("forgets the absolute values", fault("plan", ("missing.abs().sum(dim=-1)", "missing.sum(dim=-1)"))),
        "plain-exponentials": (
            "works with exponentials",
            {
                "plan_answer": """\
def reading_plan(S, a, b, rounds):
    if (a < 0).any() or (b < 0).any():
        raise ValueError("negative")
    if ((a.sum(-1) - b.sum(-1)).abs() > 1e-4 * torch.maximum(a.sum(-1), b.sum(-1))).any():
        raise ValueError("sums")
    P = S.exp()
    for _ in range(rounds):
        P = P * (a / P.sum(-1))[..., :, None]
        P = P * (b / P.sum(-2))[..., None, :]
    return P, (P.sum(-1) - a).abs().sum(-1) / 2 / a.sum(-1)
"""
            },
        ),
        "shifted-exponentials": (
            "works with exponentials, shifted by the row's largest score",
            {
                "plan_answer": """\
def reading_plan(S, a, b, rounds):
    if (a < 0).any() or (b < 0).any():
        raise ValueError("negative")
    if ((a.sum(-1) - b.sum(-1)).abs() > 1e-4 * torch.maximum(a.sum(-1), b.sum(-1))).any():
        raise ValueError("sums")
    P = (S - S.amax(-1, keepdim=True)).exp()
    for _ in range(rounds):
        P = P * (a / P.sum(-1).clamp_min(1e-38))[..., :, None]
        P = P * (b / P.sum(-2).clamp_min(1e-38))[..., None, :]
    return P, (P.sum(-1) - a).abs().sum(-1) / 2 / a.sum(-1)
"""
            },
        ),
        "small-number": (
            "adds a small number to the times",
            fault("plan", ("torch.log(a)", "torch.log(a + 1e-6)"), ("torch.log(b)", "torch.log(b + 1e-6)")),
        ),
        "clamped-times": (
            "puts a floor under the times",
            fault(
                "plan",
                ("torch.log(a)", "torch.log(a.clamp_min(1e-5))"),
                ("torch.log(b)", "torch.log(b.clamp_min(1e-5))"),
            ),
        ),
        "tiny-times": (
            "puts the smallest numbers in the place of no time",
            fault(
                "plan",
                ("torch.log(a)", "torch.log(a.clamp_min(1e-30))"),
                ("torch.log(b)", "torch.log(b.clamp_min(1e-30))"),
            ),
        ),
        "idle-rows": (
            "lets readers without time take part in the columns",
            fault(
                "plan",
                (
                    "rows - (L + down).logsumexp(dim=-1, keepdim=True)",
                    ("torch.where(rows > -math.inf, rows, 0) - (L + down).logsumexp(dim=-1, keepdim=True)"),
                ),
                ("    missing = P", ("    P = P * (a > 0).unsqueeze(-1)\n    missing = P")),
            ),
        ),
        "idle-columns": (
            "lets books without time take part in the first round",
            fault(
                "plan",
                ("torch.where(b.unsqueeze(-2) > 0, torch.zeros_like(columns), columns)", "torch.zeros_like(columns)"),
            ),
        ),
        "double-infinity": (
            "subtracts infinities in the gradient",
            fault(
                "plan",
                (
                    "    P = torch.exp(L + up + down)",
                    ("    P = torch.exp(L + up + down)\n    P = P * (up - up.detach()).exp()"),
                ),
            ),
        ),
        "detached": (
            "cuts the gradient of u and v",
            fault("plan", ("    P = torch.exp(L + up + down)", "    P = torch.exp(L + up.detach() + down.detach())")),
        ),
        "no-check": (
            "does not compare the sums",
            fault("plan", ("if bool((gap > 1e-4 * time.maximum(books)).any()):", "if False:")),
        ),
        "all-check": (
            "compares the sums of all tables together",
            fault(
                "plan",
                (
                    "if bool((gap > 1e-4 * time.maximum(books)).any()):",
                    "if bool(((time - books).sum().abs() > 1e-4 * time.sum()).any()):",
                ),
            ),
        ),
        "absolute-check": (
            "compares the sums with an absolute number",
            fault("plan", ("if bool((gap > 1e-4 * time.maximum(books)).any()):", "if bool((gap > 1e-4).any()):")),
        ),
        "tight-check": (
            "compares the sums with a smaller tolerance",
            fault(
                "plan", ("if bool((gap > 1e-4 * time.maximum(books)).any()):", "if not torch.allclose(time, books):")
            ),
        ),
        "loose-check": (
            "compares the sums with a larger tolerance",
            fault(
                "plan",
                (
                    "if bool((gap > 1e-4 * time.maximum(books)).any()):",
                    "if bool((gap > 1e-3 * time.maximum(books)).any()):",
                ),
            ),
        ),
        "negative": (
            "accepts negative times",
            fault("plan", ("if bool((a < 0).any()) or bool((b < 0).any()):", "if False:")),
        ),
        "double": ("returns float64", fault("plan", (("    L = S\n"), ("    L = S.double()\n")))),
        "one-fits": (
            "accepts several tables if one of them fits",
            fault(
                "plan",
                (
                    "if bool((gap > 1e-4 * time.maximum(books)).any()):",
                    "if bool((gap > 1e-4 * time.maximum(books)).all()):",
                ),
            ),
        ),
        "rescaled": (
            "gives the books the sum of the readers first",
            fault("plan", ("columns = torch.log(b)", "columns = torch.log(b * (time / books).unsqueeze(-1))")),
        ),
        "small-is-none": (
            "takes times below a millionth for no time",
            fault(
                "plan",
                ("    rows = torch.log(a)", "    a, b = a * (a > 1e-6), b * (b > 1e-6)\n    rows = torch.log(a)"),
            ),
        ),
    },
    "clinics": {
        "only-itself": (
            "leaves out the patient only",
            fault("clinics", ("keep = np.array([g != clinics[i] for g in clinics])", "keep = np.arange(n) != i")),
        ),
        "nobody": (
            "leaves nobody out",
            fault("clinics", ("keep = np.array([g != clinics[i] for g in clinics])", "keep = np.ones(n, bool)")),
        ),
        "same-clinic": (
            "predicts from the same clinic",
            fault(
                "clinics",
                (
                    "keep = np.array([g != clinics[i] for g in clinics])",
                    "keep = np.array([g == clinics[i] for g in clinics])",
                ),
            ),
        ),
        "own-weight": (
            "divides the residual by one minus the own weight",
            {
                "clinics_answer": """\
def choose(X, v, clinics, widths):
    X, v = np.asarray(X, float), np.asarray(v, float)
    if len(set(clinics)) < 2:
        raise ValueError("one clinic")
    D = ((X[:, None] - X[None]) ** 2).sum(-1)
    same = np.array([[a == b for a in clinics] for b in clinics])
    errors, freedom = [], []
    for h in widths:
        P = np.exp(-D / (2 * h * h))
        P = P / P.sum(-1, keepdims=True)
        R = (v - P @ v) / (1 - (P * same).sum(-1))
        errors.append((R**2).mean())
        freedom.append(np.trace(P))
    errors = np.array(errors)
    best = max(h for h, e in zip(widths, errors, strict=True) if e == errors.min())
    return errors, np.array(freedom), best
"""
            },
        ),
        "not-renormalised": (
            "masks the weights and does not divide again",
            fault("clinics", (("w = w / w.sum()\n"), ("w = np.exp(scores[keep]) / np.exp(scores).sum()\n"))),
        ),
        "no-half": (
            "leaves out the factor one half",
            fault("clinics", ("-0.5 * (((points[i] - y)", "-1.0 * (((points[i] - y)")),
        ),
        "h-once": (
            "divides by the bandwidth once",
            fault("clinics", ("(((points[i] - y) / h) ** 2).sum()", "((points[i] - y) ** 2).sum() / h")),
        ),
        "distance": (
            "uses the distance instead of its square",
            fault("clinics", ("(((points[i] - y) / h) ** 2).sum()", "(((points[i] - y) / h) ** 2).sum() ** 0.5")),
        ),
        "root": (
            "returns the root of the mean square",
            fault("clinics", ("errors.append(total / n)", "errors.append((total / n) ** 0.5)")),
        ),
        "sum": (
            "returns the sum of the squares",
            fault("clinics", ("errors.append(total / n)", "errors.append(total)")),
        ),
        "absolute": ("takes absolute errors", fault("clinics", ("(v[i] - guess) ** 2", "abs(v[i] - guess)"))),
        "mean-of-clinics": (
            "takes the mean over clinics of the mean errors",
            fault(
                "clinics",
                (
                    "total += (v[i] - guess) ** 2",
                    "total += n * (v[i] - guess) ** 2 / len(set(clinics)) / clinics.count(clinics[i])",
                ),
            ),
        ),
        "freedom-left-out": (
            "computes the degrees of freedom without the clinic",
            fault("clinics", ("trace += 1 / np.exp(scores).sum()", "trace += 1 / (1 + np.exp(scores[keep]).sum())")),
        ),
        "freedom-mean": (
            "returns the mean of the own weights",
            fault("clinics", ("freedom.append(trace)", "freedom.append(trace / n)")),
        ),
        "freedom-rest": (
            "returns n minus the degrees of freedom",
            fault("clinics", ("freedom.append(trace)", "freedom.append(n - trace)")),
        ),
        "index": ("returns the place of the best bandwidth", fault("clinics", ("widths[order[0]]", "order[0]"))),
        "most-free": (
            "returns the bandwidth with the largest error",
            fault("clinics", ("widths[order[0]]", "widths[order[-1]]")),
        ),
        "sorted-widths": (
            "returns errors in the order of growing bandwidths",
            fault("clinics", ("for h in widths:", ("widths = sorted(widths)\n    for h in widths:"))),
        ),
        "short-names": (
            "compares the first letters of the clinics only",
            fault(
                "clinics",
                ("[g != clinics[i] for g in clinics]", "[g[:5] != clinics[i][:5] for g in clinics]"),
                ("w = w / w.sum()", "w = w / max(w.sum(), 1e-300)"),
                ("scores[keep].max()", "scores[keep].max(initial=-1e300)"),
            ),
        ),
        "finite-stand-in": (
            "puts -1e9 in the place of the scores of the own clinic",
            fault(
                "clinics",
                (
                    "w = np.exp(scores[keep] - scores[keep].max())",
                    "z = np.where(keep, scores, -1e9)\n            w = np.exp(z - z.max())",
                ),
                ("guess = w @ np.array(v, dtype=float)[keep]", "guess = w @ np.array(v, dtype=float)"),
            ),
        ),
        "smallest-tie": (
            "takes the smallest of bandwidths with equal errors",
            fault("clinics", ("(errors[k], -widths[k])", "(errors[k], widths[k])")),
        ),
        "first-tie": (
            "takes the first of bandwidths with equal errors",
            fault("clinics", ("key=lambda k: (errors[k], -widths[k])", "key=lambda k: errors[k]")),
        ),
        "underflow": (
            "divides the weights by a sum that underflows",
            fault("clinics", ("w = np.exp(scores[keep] - scores[keep].max())", "w = np.exp(scores[keep])")),
        ),
        "guard": (
            "adds a small number to a sum that underflows",
            fault(
                "clinics",
                ("w = np.exp(scores[keep] - scores[keep].max())", "w = np.exp(scores[keep])"),
                (("w = w / w.sum()\n"), ("w = w / (w.sum() + 1e-12)\n")),
            ),
        ),
        "whole-maximum": (
            "subtracts the largest score of all patients",
            fault("clinics", ("scores[keep].max())", "scores.max())")),
        ),
        "products": (
            "computes distances from dot products",
            fault(
                "clinics",
                (
                    "scores = np.array([-0.5 * (((points[i] - y) / h) ** 2).sum() for y in points])",
                    (
                        "scores = np.array([-0.5 * (points[i] @ points[i] - 2 * points[i] @ y + y @ y) / h**2\n"
                        " for y in points])"
                    ),
                ),
            ),
        ),
        "no-check": (
            "returns nan for a single clinic",
            fault(
                "clinics",
                (
                    'raise ValueError("one clinic")',
                    ("return np.full((2, len(widths)), math.nan)[0], np.full(len(widths), math.nan), widths[0]"),
                ),
            ),
        ),
        "centres": (
            "changes the measurements",
            fault("clinics", ("    points = [", ("    X -= X.mean(0).astype(X.dtype)\n    points = ["))),
        ),
        "integer-sums": (
            "keeps the integers of the numbers",
            fault(
                "clinics",
                (
                    "guess = w @ np.array(v, dtype=float)[keep]",
                    "guess = np.asarray(w @ np.array(v)[keep]).astype(np.asarray(v).dtype)",
                ),
            ),
        ),
        "close-tie": (
            "calls errors equal that differ by less than a part in 100,000",
            fault("clinics", ("(errors[k], -widths[k])", "(not np.isclose(errors[k], min(errors)), -widths[k])")),
        ),
        "floor": (
            "puts a floor under the bandwidths",
            fault("clinics", ("for h in widths:", "for h in np.maximum(widths, 1e-6):")),
        ),
    },
    "settle": {
        "bound": (
            "uses the bound of the theorem",
            fault(
                "settle",
                ("left = (np.exp(2 * t * logs) * energy).sum()", "left = np.exp(2 * t * np.sort(logs)[-2]) * whole"),
            ),
        ),
        "plain-mean": (
            "measures from the plain mean",
            fault("settle", ("Y = Y - (w[:, None] * Y).sum(axis=0)", "Y = Y - Y.mean(axis=0)")),
        ),
        "plain-norm": ("measures without the shares", fault("settle", ("Y * np.sqrt(w)[:, None]", "Y"))),
        "half-power": (
            "forgets that norms are squared in time",
            fault("settle", ("np.exp(2 * t * logs)", "np.exp(t * logs)")),
        ),
        "half-share": (
            "forgets that norms are squared in the goal",
            fault("settle", ("share * share * whole", "share * whole")),
        ),
        "first-column": (
            "looks at the first column only",
            fault("settle", ("energy = (C * C).sum(axis=1)", "energy = C[:, 0] ** 2")),
        ),
        "each-column": (
            "waits for the slowest column",
            fault(
                "settle",
                (
                    "return left <= share * share * whole",
                    (
                        "left = np.exp(2 * t * logs) @ (C * C)\n"
                        "        return (left <= share * share * (C * C).sum(axis=0)).all()"
                    ),
                ),
            ),
        ),
        "heat": (
            "uses the heat kernel",
            fault("settle", ("logs = np.log(np.clip(np.abs(lam), 1e-300, 1.0))", "logs = np.minimum(lam, 1.0) - 1")),
        ),
        "positive-only": ("takes negative eigenvalues for 0", fault("settle", ("np.abs(lam)", "np.maximum(lam, 0)"))),
        "not-normalised": (
            "uses eigenvalues of A",
            fault("settle", ("M = A / np.sqrt(np.outer(d, d))", "M = A / d.max()")),
        ),
        "energy-fall": (
            "measures by the Dirichlet energy",
            fault("settle", ("energy = (C * C).sum(axis=1)", "energy = ((1 - lam)[:, None] * C * C).sum(axis=1)")),
        ),
        "from-raw": (
            "compares with the values, not with their distance from the mean",
            fault("settle", ("whole = energy.sum()", "whole = (w[:, None] * np.array(X, dtype=float) ** 2).sum()")),
        ),
        "off-by-one": (
            "returns one layer too few",
            fault("settle", ("return t if t <= 10**9 else None", "return t - 1 if t <= 10**9 else None")),
        ),
        "not-zero": (
            "never answers 0 for a share of 1",
            fault(
                "settle",
                ("(Y.max(axis=0) == Y.min(axis=0)).all() or share == 1", "(Y.max(axis=0) == Y.min(axis=0)).all()"),
            ),
        ),
        "stops-early": ("gives up after a million layers", fault("settle", ("if t > 2 * 10**9:", "if t > 10**6:"))),
        "no-limit": (
            "does not know the limit of layers",
            fault("settle", ("return t if t <= 10**9 else None", "return t"), ("t > 2 * 10**9", "t > 10**13")),
        ),
        "loop": (
            "goes through the layers, ten thousand at most",
            {
                "settle_answer": """\
def layers_until(A, X, share):
    A, X = np.asarray(A, float), np.asarray(X, float)
    P = A / A.sum(1, keepdims=True)
    w = A.sum(1) / A.sum()
    far = X - w @ X
    first = (w[:, None] * far**2).sum()
    for t in range(10000):
        if (w[:, None] * far**2).sum() <= share**2 * first:
            return t
        far = P @ far
"""
            },
        ),
        "drops-one": (
            "leaves out one eigenvalue of size 1 and one of minus 1",
            fault(
                "settle",
                (
                    "logs = np.log(np.clip(np.abs(lam), 1e-300, 1.0))",
                    ("logs = np.log(np.clip(np.where(np.abs(lam) > 1 - 1e-9, 0, np.abs(lam)), 1e-300, 1.0))"),
                ),
            ),
        ),
        "minus-infinity": (
            "returns infinity for never",
            fault("settle", (("            return None\n"), ("            return math.inf\n"))),
        ),
        "equal-nan": (
            "does not look for equal values",
            fault(
                "settle",
                ("if (Y.max(axis=0) == Y.min(axis=0)).all() or share == 1:", "if share == 1:"),
                (("        t = 2 * t\n"), ("        t = 2 * t\n        if whole < 1e-300:\n            return None\n")),
            ),
        ),
        "float-answer": (
            "returns a float",
            fault("settle", ("return t if t <= 10**9 else None", "return float(t) if t <= 10**9 else None")),
        ),
        "centres": (
            "changes the values",
            fault(
                "settle",
                (
                    "Y = np.array(X, dtype=float)",
                    ("X -= X.mean(axis=0).astype(X.dtype)\n    Y = np.array(X, dtype=float)"),
                ),
            ),
        ),
        "solve-formula": (
            "solves for the slowest direction that takes part",
            fault(
                "settle",
                (
                    ("    t = 1\n"),
                    (
                        "    k = np.argmax(np.where(energy > 1e-9 * whole, logs, -9e9))\n"
                        "    if logs[k] > -1e-12:\n"
                        "        return None\n"
                        "    return max(0, math.ceil(math.log(share * math.sqrt(whole / energy[k])) / logs[k]))\n"
                        "    t = 1\n"
                    ),
                ),
            ),
        ),
        "no-swing": (
            "leaves out the patterns that swing",
            fault(
                "settle", ("    whole = energy.sum()\n", "    energy[lam < -1 + 1e-9] = 0\n    whole = energy.sum()\n")
            ),
        ),
        "nearly-equal": (
            "calls values equal whose differences are small",
            fault("settle", ("(Y.max(axis=0) == Y.min(axis=0)).all()", "(Y.max(axis=0) - Y.min(axis=0) < 1e-8).all()")),
        ),
        "integer-matrix": (
            "writes the scaled matrix with the integers of A",
            fault(
                "settle",
                ("A = np.array(A, dtype=float)", "A = np.array(A)"),
                ("M = A / np.sqrt(np.outer(d, d))", "M = (A / np.sqrt(np.outer(d, d))).astype(A.dtype)"),
            ),
        ),
        "small-parts": (
            "leaves out patterns with a small part in the start",
            fault(
                "settle",
                ("    whole = energy.sum()\n", "    whole = energy.sum()\n    energy[energy < 1e-12 * whole] = 0\n"),
            ),
        ),
    },
    "recall": {
        "moves-all": (
            "changes known components too",
            fault("recall", ("torch.where(known, state, p @ patterns)", "p @ patterns")),
        ),
        "moves-known": (
            "changes the known components instead",
            fault("recall", ("torch.where(known, state, p @ patterns)", "torch.where(known, p @ patterns, state)")),
        ),
        "end-only": (
            "puts the known components back in the end only",
            fault(
                "recall",
                ("torch.where(known, state, p @ patterns)", "p @ patterns"),
                (
                    "return torch.stack(states),",
                    ("states = [torch.where(known, x, s) for s in states]\n    return torch.stack(states),"),
                ),
            ),
        ),
        "scores-known": (
            "compares the known components only",
            fault("recall", ('("...d,nd->...n", state, patterns)', '("...d,nd->...n", state * known, patterns)')),
        ),
        "scores-unknown": (
            "compares the unknown components only",
            fault("recall", ('("...d,nd->...n", state, patterns)', '("...d,nd->...n", state * ~known, patterns)')),
        ),
        "starts-at-zero": (
            "starts the unknown components at 0",
            fault("recall", ("state = x.clone()", "state = x * known")),
        ),
        "no-counts": ("ignores the counts in the weights", fault("recall", ("+ torch.log(often)", "+ 0 * often"))),
        "counts-times": (
            "multiplies the scores by the counts",
            fault("recall", ("+ torch.log(often)", "* 1"), ("z = beta *", "z = beta * often *")),
        ),
        "counts-not-log": ("adds the counts to the scores", fault("recall", ("+ torch.log(often)", "+ often"))),
        "beta-count": (
            "multiplies the logarithm of the counts by beta",
            fault("recall", ("+ torch.log(often)", "+ beta * torch.log(often)")),
        ),
        "counts-energy": (
            "counts in the weights only",
            fault(
                "recall",
                (
                    ("energies.append(0.5 * (state**2).sum(dim=-1) - (top[..., 0] + torch.log(total)) / beta)"),
                    (
                        "alone = torch.logsumexp(z - torch.log(often), -1)\n"
                        "        energies.append(0.5 * (state**2).sum(dim=-1) - alone / beta)"
                    ),
                ),
            ),
        ),
        "no-half": ("forgets the half in the energy", fault("recall", ("0.5 * (state**2)", "1.0 * (state**2)"))),
        "no-beta": (
            "does not divide the logarithm by beta",
            fault("recall", ("+ torch.log(total)) / beta)", "+ torch.log(total)))")),
        ),
        "plus": ("adds the logarithm", fault("recall", ("sum(dim=-1) - (top", "sum(dim=-1) + (top"))),
        "unknown-energy": (
            "takes the energy of unknown components",
            fault("recall", ("0.5 * (state**2)", "0.5 * (state**2 * ~known)")),
        ),
        "mean-of-values": (
            "moves half of the way",
            fault(
                "recall",
                (
                    "torch.where(known, state, p @ patterns)",
                    "torch.where(known, state, 0.5 * state + 0.5 * (p @ patterns))",
                ),
            ),
        ),
        "late-energy": (
            "gives each state the energy of the state before",
            fault(
                "recall",
                (
                    "return torch.stack(states), torch.stack(energies)",
                    "return torch.stack(states), torch.stack(energies[:1] + energies[:-1])",
                ),
            ),
        ),
        "steps-only": (
            "leaves out the start",
            fault(
                "recall",
                (
                    "return torch.stack(states), torch.stack(energies)",
                    "return torch.stack(states[1:]), torch.stack(energies[1:])",
                ),
            ),
        ),
        "overflow": (
            "computes exponentials without a shift",
            fault("recall", ("top = z.max(dim=-1, keepdim=True).values", "top = torch.zeros_like(z[..., :1])")),
        ),
        "floor-zero": (
            "starts the largest score at 0",
            fault(
                "recall",
                ("top = z.max(dim=-1, keepdim=True).values", "top = z.max(dim=-1, keepdim=True).values.clamp_min(0)"),
            ),
        ),
        "nan-patterns": (
            "keeps patterns that were not stored",
            fault("recall", ("there = torch.nonzero(counts > 0).flatten()", "there = torch.arange(len(counts))")),
        ),
        "finite-stand-in": (
            "puts -1e4 in the place of the logarithm of 0",
            fault(
                "recall",
                ("there = torch.nonzero(counts > 0).flatten()", "there = torch.arange(len(counts))"),
                ("patterns = K[there]", "patterns = K.nan_to_num(0, 0, 0)"),
                ("torch.log(often)", "torch.log(often).clamp_min(-1e4)"),
            ),
        ),
        "small-counts": (
            "adds a small number to the counts",
            fault(
                "recall",
                ("there = torch.nonzero(counts > 0).flatten()", "there = torch.arange(len(counts))"),
                ("torch.log(often)", "torch.log(often + 1e-9)"),
            ),
        ),
        "whole-counts": (
            "rounds the counts",
            fault("recall", ("often = counts[there]", "often = counts[there].round().clamp_min(1)")),
        ),
        "small-dropped": ("drops patterns with a small count", fault("recall", ("counts > 0", "counts > 1e-6"))),
        "one-state": (
            "takes one state only",
            fault("recall", ('("...d,nd->...n", state, patterns)', '("d,nd->n", state, patterns)')),
        ),
        "blend": (
            "blends with a mask of numbers",
            fault(
                "recall",
                ("torch.where(known, state, p @ patterns)", "state + (~known) * (p @ patterns - state) + known * 1e-9"),
            ),
        ),
        "double": (
            "returns float64",
            fault(
                "recall",
                ("state = x.clone()", "state, patterns, often = x.double(), patterns.double(), often.double()"),
            ),
        ),
    },
    "wait": {
        "equal": (
            "takes both clusters for equally large",
            fault(
                "wait",
                ("return b * few / (a + b * few), a * few / (b + a * few)", "return few / (1 + few), few / (1 + few)"),
            ),
        ),
        "swapped": (
            "exchanges the clusters",
            fault(
                "wait",
                (
                    "return b * few / (a + b * few), a * few / (b + a * few)",
                    "return a * few / (b + a * few), b * few / (a + b * few)",
                ),
            ),
        ),
        "only-first": ("moves the first cluster only", fault("wait", ("return 1 / (one + two)", "return 1 / one"))),
        "each-once": (
            "counts the weight of one word of the other cluster",
            fault(
                "wait",
                (
                    "return b * few / (a + b * few), a * few / (b + a * few)",
                    "return few / (a + b * few), few / (b + a * few)",
                ),
            ),
        ),
        "no-softmax": (
            "does not divide by the sum of the exponentials",
            fault("wait", ("return b * few / (a + b * few), a * few / (b + a * few)", "return b * few, a * few")),
        ),
        "without-own": (
            "divides by the other cluster's exponentials only",
            fault(
                "wait", ("return b * few / (a + b * few), a * few / (b + a * few)", "return b / (a + b), a / (a + b)")
            ),
        ),
        "no-sine": (
            "forgets that the pull has a part along the circle only",
            fault("wait", ("return 1 / (one + two)", "return 1 / (one + two) / math.cosh(y)")),
        ),
        "cosines": (
            "adds up cosines instead of angles",
            fault("wait", ("return one / (one + two) / math.cosh(y)", "return one / (one + two) / math.cosh(y) ** 2")),
        ),
        "half-way": (
            "gives the first cluster half of the angle",
            fault("wait", ("return one / (one + two) / math.cosh(y)", "return 0.5 / math.cosh(y)")),
        ),
        "share-of-sizes": (
            "divides the angle by the sizes",
            fault("wait", ("return one / (one + two) / math.cosh(y)", "return b / (a + b) / math.cosh(y)")),
        ),
        "double": ("counts the time twice", fault("wait", ("    return time, turned", "    return 2 * time, turned"))),
        "degrees": (
            "returns degrees",
            fault("wait", ("    return time, turned", "    return time, math.degrees(turned)")),
        ),
        "whole-angle": (
            "returns the angle of both",
            fault("wait", ("return one / (one + two) / math.cosh(y)", "return 1 / math.cosh(y)")),
        ),
        "angle-left": (
            "returns the angle that is left",
            fault("wait", ("    return time, turned", "    return time, math.acos(end)")),
        ),
        "negative-sign": (
            "uses minus beta",
            fault("wait", ("few = math.exp(-beta * (1 - g))", "few = math.exp(beta * (1 - g))")),
        ),
        "euler": (
            "takes small steps in time, until time 50",
            {
                "wait_answer": """\
def until_near(a, b, beta, start, end):
    if start >= end:
        return 0.0, 0.0
    theta, goal, t, turned, h = math.acos(start), math.acos(end), 0.0, 0.0, 1e-3
    while theta > goal:
        if t > 50:
            return math.inf, turned
        few = math.exp(-beta * (1 - math.cos(theta)))
        one, two = b * few / (a + b * few) * math.sin(theta), a * few / (b + a * few) * math.sin(theta)
        step = min(h, (theta - goal) / (one + two + 1e-300))
        theta, turned, t = theta - step * (one + two), turned + step * one, t + step
    return t, turned
"""
            },
        ),
        "grid": (
            "adds up a thousand cosines",
            {
                "wait_answer": """\
def until_near(a, b, beta, start, end):
    if start >= end:
        return 0.0, 0.0
    if start == -1:
        return math.inf, 0.0
    g = np.linspace(start, end, 1001)
    g = (g[1:] + g[:-1]) / 2
    e = np.exp(beta * (1 - g))
    one, two = b / (a * e + b), a / (b * e + a)
    dg = (end - start) / 1000
    time = (dg / (1 - g**2) / (one + two)).sum()
    return float(time), float((dg / np.sqrt(1 - g**2) * one / (one + two)).sum())
"""
            },
        ),
        "start-clipped": (
            "treats a start below -0.999 as rest",
            fault("wait", ("    if start == -1:", "    if start < -0.999:")),
        ),
        "underflow": (
            "guards a denominator with a small number",
            fault("wait", ("return 1 / (one + two)", "return 1 / (one + two + 1e-30)")),
        ),
        "nan-opposite": (
            "divides by zero for opposite clusters",
            fault(
                "wait",
                (("    if start == -1:\n        return math.inf, 0.0\n"), ("    start = max(start, -1 + 1e-12)\n")),
            ),
        ),
        "opposite-first": (
            "lets opposite clusters rest first, then compares",
            fault("wait", (("    if start >= end:\n        return 0.0, 0.0\n"), "")),
        ),
        "clipped": (
            "keeps the cosine away from 1 and -1",
            fault(
                "wait",
                (
                    "    def speeds(g):",
                    ("    start, end = max(start, -1 + 1e-6), min(end, 1 - 1e-6)\n\n    def speeds(g):"),
                ),
            ),
        ),
        "exponentials": (
            "computes the exponentials of the scores",
            fault(
                "wait",
                (
                    (
                        "few = math.exp(-beta * (1 - g))\n"
                        "        return b * few / (a + b * few), a * few / (b + a * few)"
                    ),
                    (
                        "near, far = math.exp(min(beta, 300)), math.exp(max(beta * g, -60.0))\n"
                        "        return b * far / (a * near + b * far), a * far / (b * near + a * far)"
                    ),
                ),
            ),
        ),
    },
    "partner": {
        "no-late": (
            "does not prefer later places",
            fault("partner", ("place_place[i, j] = late * j", "place_place[i, j] = 0.0")),
        ),
        "first": (
            "prefers earlier places",
            fault(
                "partner",
                ("place_place[i, j] = late * j", "place_place[i, j] = -late * j"),
                ("token_token[x, y] = 2 * top", "token_token[x, y] = 4 * top"),
            ),
        ),
        "itself": (
            "lets a place look at itself",
            fault("partner", ("place_place[i, i] -= 5 * top", "place_place[i, i] -= 0.0")),
        ),
        "itself-without": (
            "forbids the place itself only where it is no partner",
            fault("partner", ("place_place[i, i] -= 5 * top", "place_place[i, i] -= 1.2 * top")),
        ),
        "turned": (
            "exchanges who asks and who answers",
            fault("partner", ("QK[:t, :t] = token_token", "QK[:t, :t] = token_token.T")),
        ),
        "no-start": (
            "gives the start no score of its own",
            fault("partner", ("token_token[:, 0] = top", "token_token[:, 0] = 0.0")),
        ),
        "start-wins": (
            "makes the start as strong as a partner",
            fault("partner", ("token_token[:, 0] = top", "token_token[:, 0] = 4 * top")),
        ),
        "same-token": (
            "looks for the same token",
            fault("partner", ("if y == partner[x] and y > 0:", "if y == x and y > 0:")),
        ),
        "behind": (
            "says the place behind the partner",
            fault("partner", ("np.eye(n)], axis=0)", "np.eye(n, k=1)], axis=0)")),
        ),
        "token": (
            "hands over the token",
            fault(
                "partner",
                (
                    "np.concatenate([np.zeros((t, n)), np.eye(n)], axis=0)",
                    "np.concatenate([np.eye(t, n), np.zeros((n, n))], axis=0)",
                ),
            ),
        ),
        "both": (
            "hands over token and place",
            fault(
                "partner",
                (
                    "np.concatenate([np.zeros((t, n)), np.eye(n)], axis=0)",
                    "np.concatenate([np.eye(t, n), np.eye(n)], axis=0)",
                ),
            ),
        ),
        "weak-late": ("prefers later places too little", fault("partner", ("late = 15.0", "late = 3.0"))),
        "weak-match": (
            "lets the start beat an early partner",
            fault("partner", ("token_token[x, y] = 2 * top", "token_token[x, y] = top - 40.0")),
        ),
        "weak-start": (
            "lets a late place beat the start",
            fault("partner", ("token_token[:, 0] = top", "token_token[:, 0] = 30.0")),
        ),
        "zero-partner": (
            "adds a score for the start as a partner, and forgets that no one else matches",
            fault("partner", ("if y == partner[x] and y > 0:", "if y == partner[x] or partner[x] == 0 and y == x:")),
        ),
        "small-texts": (
            "scales with the number of kinds",
            fault("partner", ("top = late * n + 30.0", "top = late * t + 30.0")),
        ),
        "inverse": (
            "reads the list of partners the other way round for pairs",
            fault("partner", ("if y == partner[x] and y > 0:", "if (y == partner[x] or x == partner[y]) and y > 0:")),
        ),
        "huge": ("uses numbers that are too large", fault("partner", ("late = 15.0", "late = 1e5"))),
        "infinite": (
            "forbids with minus infinity",
            fault("partner", ("place_place[i, i] -= 5 * top", "place_place[i, i] = -np.inf")),
        ),
        "integers": ("returns integers", fault("partner", ("    return QK, OV", "    return QK.astype(int), OV"))),
        "changes": (
            "changes the list of partners",
            fault("partner", ("width = t + n", ("width = t + n\n    partner[0] = 0"))),
        ),
        "loud": ("multiplies the output", fault("partner", ("np.eye(n)], axis=0)", "1.01 * np.eye(n)], axis=0)"))),
        "fixed-fine": (
            "forbids the place itself by a number that is too small for a long text",
            fault("partner", ("= 2 * top\n", "= top + 3 * late\n"), ("-= 5 * top", "-= 800.0")),
        ),
    },
    "lead": {
        "sums": (
            "subtracts sums instead of means",
            fault(
                "lead",
                (
                    "row[:, behind].mean(dim=-1) - row[:, rest].mean(dim=-1)",
                    "row[:, behind].sum(dim=-1) - row[:, rest].sum(dim=-1)",
                ),
            ),
        ),
        "sum-first": (
            "sums over the places behind",
            fault("lead", ("row[:, behind].mean(dim=-1) -", "row[:, behind].sum(dim=-1) -")),
        ),
        "no-control": ("does not subtract", fault("lead", (" - row[:, rest].mean(dim=-1)", ""))),
        "uniform": ("subtracts uniform weights", fault("lead", ("row[:, rest].mean(dim=-1)", "1 / (i + 1)"))),
        "with-zero": (
            "counts place 0 among the others",
            fault(
                "lead",
                (
                    "rest = [j for j in range(1, i + 1) if text[j - 1] != text[i]]",
                    "rest = [j for j in range(0, i + 1) if j == 0 or text[j - 1] != text[i]]",
                ),
            ),
        ),
        "all-places": (
            "takes the mean over all places as the control",
            fault(
                "lead",
                ("rest = [j for j in range(1, i + 1) if text[j - 1] != text[i]]", "rest = list(range(1, i + 1))"),
            ),
        ),
        "same-token": (
            "looks at the same token instead of what stands behind it",
            fault(
                "lead",
                ("if text[j - 1] == text[i]]", "if text[j] == text[i]]"),
                ("if text[j - 1] != text[i]]", "if text[j] != text[i]]"),
            ),
        ),
        "next-token": (
            "looks before the occurrence",
            fault(
                "lead",
                (
                    "behind = [j for j in range(1, i + 1) if text[j - 1] == text[i]]",
                    "behind = [j for j in range(1, i) if text[j + 1] == text[i]]",
                ),
                (
                    "rest = [j for j in range(1, i + 1) if text[j - 1] != text[i]]",
                    "rest = [j for j in range(1, i) if text[j + 1] != text[i]]",
                ),
            ),
        ),
        "per-text": (
            "takes the mean of the texts",
            fault(
                "lead",
                (
                    "    return torch.stack(leads).mean(dim=0).to(P.dtype)",
                    "    return torch.stack(per).mean(dim=0).to(P.dtype)",
                ),
                (("    leads = []\n"), ("    leads = []\n    per = []\n")),
                (
                    "                leads.append(",
                    (
                        "                if leads and owner == b:\n"
                        "                    mine.append(0)\n"
                        "                else:\n"
                        "                    mine = [0]\n"
                        "                    total = 0\n"
                        "                    per.append(0)\n"
                        "                owner = b\n"
                        "                leads.append("
                    ),
                ),
                (
                    ("row[:, rest].mean(dim=-1))\n"),
                    (
                        "row[:, rest].mean(dim=-1))\n"
                        "                total = total + leads[-1]\n"
                        "                per[-1] = total / len(mine)\n"
                    ),
                ),
            ),
        ),
        "all-rows": (
            "divides by all rows",
            fault("lead", ("torch.stack(leads).mean(dim=0)", "torch.stack(leads).sum(dim=0) / lengths.sum()")),
        ),
        "empty-rest": (
            "counts rows in which all places are behind",
            fault(
                "lead",
                (("            if behind and rest:\n"), ("            if behind:\n")),
                ("row[:, rest].mean(dim=-1)", "row[:, rest].sum(dim=-1) / max(len(rest), 1)"),
            ),
        ),
        "empty-behind": (
            "counts rows without an earlier token",
            fault(
                "lead",
                (("            if behind and rest:\n"), ("            if rest:\n")),
                ("row[:, behind].mean(dim=-1)", "row[:, behind].sum(dim=-1) / max(len(behind), 1)"),
            ),
        ),
        "padding": (
            "counts padded rows",
            fault("lead", ("text = ids[b, : int(lengths[b])].tolist()", "text = ids[b].tolist()")),
        ),
        "without-itself": (
            "leaves out the place itself",
            fault("lead", ("behind = [j for j in range(1, i + 1)", "behind = [j for j in range(1, i)")),
        ),
        "last-only": (
            "looks at the last occurrence only",
            fault(
                "lead",
                (
                    "                row = P",
                    ("                rest, behind = rest, behind[-1:]\n                row = P"),
                ),
            ),
        ),
        "not-causal": (
            "counts places behind the row",
            fault(
                "lead",
                ("behind = [j for j in range(1, i + 1)", "behind = [j for j in range(1, len(text))"),
                ("rest = [j for j in range(1, i + 1)", "rest = [j for j in range(1, len(text))"),
            ),
        ),
        "zero": ("returns 0 if no row counts", fault("lead", ('float("nan")', "0.0"))),
        "nan-times-zero": (
            "leaves rows that do not count out by a factor",
            {
                "lead_answer": """\
def mean_lead(P, ids, lengths):
    n = ids.shape[-1]
    place = torch.arange(n)
    seen = ((place[None, :] <= place[:, None]) & (place >= 1))[None] & (place < lengths[:, None])[:, :, None]
    J = torch.zeros(*ids.shape, n, dtype=torch.bool)
    J[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    J, R = J & seen, ~J & seen
    counts = (J.any(-1) & R.any(-1))[:, None]
    W = P.double()
    a = (W * J[:, None]).sum(-1) / J.sum(-1).clamp_min(1)[:, None]
    b = (W * R[:, None]).sum(-1) / R.sum(-1).clamp_min(1)[:, None]
    return (((a - b) * counts).sum((0, 2)) / counts.sum()).to(P.dtype)
"""
            },
        ),
        "factor-behind": (
            "leaves places out by a factor",
            {
                "lead_answer": """\
def mean_lead(P, ids, lengths):
    n = ids.shape[-1]
    place = torch.arange(n)
    seen = ((place[None, :] <= place[:, None]) & (place >= 1))[None] & (place < lengths[:, None])[:, :, None]
    J = torch.zeros(*ids.shape, n, dtype=torch.bool)
    J[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    J, R = J & seen, ~J & seen
    counts = (J.any(-1) & R.any(-1))[:, None]
    W = P.double()
    a = (W * J[:, None]).sum(-1) / J.sum(-1).clamp_min(1)[:, None]
    b = torch.where(R[:, None], W, 0).sum(-1) / R.sum(-1).clamp_min(1)[:, None]
    return (torch.where(counts, a - b, 0).sum((0, 2)) / counts.sum()).to(P.dtype)
"""
            },
        ),
        "factor-rest": (
            "leaves the control's places out by a factor",
            {
                "lead_answer": """\
def mean_lead(P, ids, lengths):
    n = ids.shape[-1]
    place = torch.arange(n)
    seen = ((place[None, :] <= place[:, None]) & (place >= 1))[None] & (place < lengths[:, None])[:, :, None]
    J = torch.zeros(*ids.shape, n, dtype=torch.bool)
    J[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    J, R = J & seen, ~J & seen
    counts = (J.any(-1) & R.any(-1))[:, None]
    W = P.double()
    a = torch.where(J[:, None], W, 0).sum(-1) / J.sum(-1).clamp_min(1)[:, None]
    b = (W * R[:, None]).sum(-1) / R.sum(-1).clamp_min(1)[:, None]
    return (torch.where(counts, a - b, 0).sum((0, 2)) / counts.sum()).to(P.dtype)
"""
            },
        ),
        "factor-rows": (
            "leaves rows out by a factor",
            {
                "lead_answer": """\
def mean_lead(P, ids, lengths):
    n = ids.shape[-1]
    place = torch.arange(n)
    seen = ((place[None, :] <= place[:, None]) & (place >= 1))[None] & (place < lengths[:, None])[:, :, None]
    J = torch.zeros(*ids.shape, n, dtype=torch.bool)
    J[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    J, R = J & seen, ~J & seen
    counts = (J.any(-1) & R.any(-1))[:, None]
    W = P.double()
    a = torch.where(J[:, None], W, 0).sum(-1) / J.sum(-1).clamp_min(1)[:, None]
    b = torch.where(R[:, None], W, 0).sum(-1) / R.sum(-1).clamp_min(1)[:, None]
    return (((a - b) * counts).sum((0, 2)) / counts.sum()).to(P.dtype)
"""
            },
        ),
        "all-heads": (
            "lets a nan of one head spoil all",
            {
                "lead_answer": """\
def mean_lead(P, ids, lengths):
    n = ids.shape[-1]
    place = torch.arange(n)
    seen = ((place[None, :] <= place[:, None]) & (place >= 1))[None] & (place < lengths[:, None])[:, :, None]
    J = torch.zeros(*ids.shape, n, dtype=torch.bool)
    J[:, :, 1:] = ids[:, :, None] == ids[:, None, :-1]
    J, R = J & seen, ~J & seen
    counts = (J.any(-1) & R.any(-1))[:, None]
    W = P.double()
    a = torch.where(J[:, None], W, 0).sum(-1) / J.sum(-1).clamp_min(1)[:, None]
    b = torch.where(R[:, None], W, 0).sum(-1) / R.sum(-1).clamp_min(1)[:, None]
    score = torch.where(counts, a - b, 0).sum((0, 2)) / counts.sum()
    return torch.where(score.isnan().any(), score.new_tensor(math.nan), score).to(P.dtype)
"""
            },
        ),
        "nan-to-zero": (
            "replaces every nan by 0",
            fault(
                "lead",
                (("    heads = P.shape[1]\n"), ("    heads = P.shape[1]\n    P = P.nan_to_num(0.0)\n")),
                ('float("nan")', "0.0"),
            ),
        ),
        "double": (
            "returns float64",
            fault("lead", ("torch.stack(leads).mean(dim=0).to(P.dtype)", "torch.stack(leads).mean(dim=0)")),
        ),
        "running": (
            "adds up rows one by one in float32",
            fault(
                "lead",
                ("row = P[b, :, i, :].to(torch.float64)", "row = P[b, :, i, :]"),
                (
                    "    return torch.stack(leads).mean(dim=0).to(P.dtype)",
                    (
                        "    total = torch.zeros(heads, dtype=P.dtype)\n"
                        "    for x in leads:\n"
                        "        total = total + x\n"
                        "    return total / len(leads)"
                    ),
                ),
            ),
        ),
        "changes": (
            "overwrites the padding",
            fault("lead", (("    heads = P.shape[1]\n"), ("    heads = P.shape[1]\n    P[P.isnan()] = 0\n"))),
        ),
        "lost-empty": (
            "fails without texts",
            fault("lead", (("    heads = P.shape[1]\n"), ("    heads = P[0].shape[0]\n"))),
        ),
    },
    "doubt": {
        "a-near": ("takes points that are all alike", fault("doubt", (("        x[0] = -30\n"), ""))),
        "a-far": (
            "takes points that are all far from each other",
            fault("doubt", ("x = np.linspace(0, 0.1, n)", "x = 20.0 * np.arange(n)")),
        ),
        "a-values": (
            "takes values above 1",
            fault("doubt", ("v = np.where(np.arange(n) < 2, 0.0, 1.0)", "v = np.where(np.arange(n) < 2, 0.0, 7.0)")),
        ),
        "a-tokens": (
            "breaks it for the last two tokens",
            fault("doubt", (("        return x, v\n"), ("        return x[::-1], v[::-1]\n"))),
        ),
        "a-start-apart": (
            "starts with values that are apart",
            fault("doubt", ("v = np.where(np.arange(n) < 2, 0.0, 1.0)", "v = np.where(np.arange(n) == 0, 0.0, 1.0)")),
        ),
        "a-three": (
            "gives three tokens whatever n is",
            fault(
                "doubt",
                (
                    (
                        "x = np.linspace(0, 0.1, n)\n"
                        "        x[0] = -30\n"
                        "        v = np.where(np.arange(n) < 2, 0.0, 1.0)"
                    ),
                    ("x = np.array([-30.0, 0.0, 0.1])\n        v = np.array([0.0, 0.0, 1.0])"),
                ),
            ),
        ),
        "a-few": (
            "heats one token only, which is lost among many",
            fault("doubt", ("v = np.where(np.arange(n) < 2, 0.0, 1.0)", "v = np.where(np.arange(n) == 2, 1.0, 0.0)")),
        ),
        "a-infinite": ("puts a point at infinity", fault("doubt", ("x[0] = -30", "x[0] = -np.inf"))),
        "b-eigenvector": (
            "takes an eigenvector of P",
            fault(
                "doubt",
                (
                    ("        return X, z\n"),
                    (
                        "        E = np.exp(X @ X.T)\n"
                        "        P = E / E.sum(-1, keepdims=True)\n"
                        "        values, U = np.linalg.eig(P)\n"
                        "        return X, U[:, np.argmin(values.real)].real\n"
                    ),
                ),
            ),
        ),
        "b-sign": ("takes z with equal signs", fault("doubt", ("z[1] = -2.0", "z[1] = 2.0"))),
        "b-zero": ("returns z = 0", fault("doubt", ("z[0] = 0.8", "z[0] = 0.0"), ("z[1] = -2.0", "z[1] = 0.0"))),
        "b-weak": (
            "takes vectors that are too short",
            fault("doubt", ("X[0, 1] = 10.0", "X[0, 1] = 2.0"), ("X[1, 1] = 5.0", "X[1, 1] = 1.0")),
        ),
        "b-crowd": (
            "forgets the others, who take weight in a crowd",
            fault("doubt", ("X[0, 1] = 10.0", "X[0, 1] = 3.2"), ("X[1, 1] = 5.0", "X[1, 1] = 1.6")),
        ),
        "b-flat": (
            "returns X without the second axis",
            fault("doubt", (("        return X, z\n"), ("        return X[:, 1], z\n"))),
        ),
        "b-antisymmetric": (
            "uses other keys than queries",
            fault(
                "doubt",
                (("        return X, z\n"), ("        return np.concatenate([X, -X], 1)[:, :4] * [1, 0, 0, 1], z\n")),
            ),
        ),
        "c-swapped": ("exchanges low and high", fault("doubt", ("return K, 12.0, 32.0", "return K, 32.0, 12.0"))),
        "c-lengths": (
            "takes patterns of different lengths",
            fault("doubt", ("return K, 12.0, 32.0", ("K[0] *= 0.5\n    return K, 0.1, 9.0"))),
        ),
        "c-symmetric": (
            "takes patterns on both sides at equal angles",
            fault("doubt", ("[0.0, 10.0, -30.0]", "[0.0, 30.0, -30.0]")),
        ),
        "c-opposite": ("takes an opposite pattern", fault("doubt", ("[0.0, 10.0, -30.0]", "[0.0, 180.0, 180.0]"))),
        "c-late": (
            "takes both beta where nothing cancels any more",
            fault("doubt", ("return K, 12.0, 32.0", "return K, 60.0, 90.0")),
        ),
        "c-early": (
            "takes small numbers, which work for three patterns only",
            fault(
                "doubt", ("[0.0, 10.0, -30.0]", "[0.0, 20.0, -60.0]"), ("return K, 12.0, 32.0", "return K, 3.0, 8.0")
            ),
        ),
        "c-huge": ("takes a beta of a million", fault("doubt", ("return K, 12.0, 32.0", "return K, 12.0, 1e6"))),
        "c-integer": (
            "returns a matrix of three rows",
            fault("doubt", ("    return K, 12.0, 32.0", "    return K[:3], 12.0, 32.0")),
        ),
    },
}

MESSAGE = {
    "cap": {
        "no-cap": "no weight is above the cap",
        "clip-after": "what the cap takes from one key goes to the others: the weights sum to 1",
        "renormalise": "what is cut off is not shared out by dividing by the sum",
        "evenly": "what is cut off does not go to all other keys alike: a new threshold decides",
        "once": "after the first keys are cut, others may come to the cap",
        "softmax": "the nearest point to the scores, not a softmax with a cap",
        "support-with-cap": "a key at the cap does not move",
        "all-free": "the mean runs over the keys that can move",
        "no-mean": "raising all free scores alike changes no weight: subtract a mean",
        "softmax-vjp": "this is the Jacobian of softmax",
    },
    "quiet": {
        "first-share": "t is the share of the real keys, not that of the sink",
        "sum": "the mean over the queries is t, not their sum",
        "live-only": "a query without a key counts among the n queries",
        "mean-lse": "the mean of the gates is not the gate of the mean",
        "all-in-one": "each query has its own denominator",
        "max-score": "all keys of a query stand in its denominator, not only the best",
        "exponential": "b is asked for, not its exponential",
        "negative": "the sign of b",
        "equal-queries": "a gate that is nearly open or shut hardly moves the sink",
        "gate-only": "the slope of a gate is g (1 - g)",
        "no-division": "the condition also depends on b: divide by the sum of the slopes",
        "minus": "larger scores need a larger sink",
        "sink-weights": "the derivative of log-sum-exp is the softmax without the sink",
        "uniform-keys": "within a query the gradient goes to the keys like softmax",
    },
    "plan": {
        "columns-first": "a round sets the rows first and the columns last",
        "rows-last": "after the last round the columns are right, not the rows",
        "one-more": "one round too many",
        "one-less": "this is the table after one round: go on from the last v",
        "rows-one": "the rows have the sums a",
        "columns-even": "the columns have the sums b, and these differ",
        "swapped": "u belongs to rows: sum over the books",
        "softmax-scaled": "the columns were not set at all",
        "at-once": "the columns are set with the new u",
        "forgets": "this is the table after one round: go on from the last v",
        "no-half": "what is missing in one row is too much in another: count it once",
        "not-share": "the share is divided by all reading time",
        "mean": "the sum of what is missing over the sum of the times",
        "signed": "without absolute values what is missing and what is too much cancel",
    },
    "clinics": {
        "only-itself": "leave out the whole clinic, not only the patient",
        "nobody": "the patient took part in its own prediction",
        "same-clinic": "predict from the other clinics",
        "own-weight": "the division works for the patient alone, not for a clinic",
        "not-renormalised": "the weights of the other clinics sum to 1",
        "no-half": "the exponent has a half in front",
        "h-once": "the bandwidth is squared",
        "distance": "the distance is squared",
        "root": "the mean square itself, not its root",
        "sum": "the mean over the patients, not the sum",
        "absolute": "errors are squared",
        "mean-of-clinics": "every patient counts once, not every clinic",
        "freedom-left-out": "the degrees of freedom belong to all patients, with their own clinics",
        "freedom-mean": "the degrees of freedom are a sum",
        "freedom-rest": "the sum of the own weights, not what is left",
        "index": "the bandwidth is asked for, not its place",
        "most-free": "the smallest error is wanted",
        "sorted-widths": "errors stand in the order of the widths that were given",
    },
    "settle": {
        "bound": "this is the bound with the second eigenvalue; the values may have little of it",
        "plain-mean": "the values end at the mean with the shares, not at the plain one",
        "plain-norm": "tokens count in the norm by their shares",
        "half-power": "each eigenvalue stands in the squared norm with the power 2 t",
        "half-share": "the share belongs to the distance, not to its square",
        "first-column": "all columns count",
        "heat": "a layer multiplies by the eigenvalue, not by e to the eigenvalue minus 1",
        "positive-only": "negative eigenvalues swing: their absolute value counts",
        "not-normalised": "divide by the row sums of both tokens",
        "energy-fall": "the distance from the mean is asked for, not the energy",
        "from-raw": "compare with the first distance from the mean",
        "off-by-one": "the first layer at which it holds",
    },
    "recall": {
        "moves-all": "known components stay",
        "moves-known": "the unknown components move, not the known ones",
        "end-only": "known components stay in all steps, and the weights see them",
        "scores-known": "unknown components take part in the scores",
        "scores-unknown": "known components take part in the scores",
        "starts-at-zero": "unknown components begin with what stands in the cue",
        "no-counts": "a pattern that was stored more often weighs more",
        "counts-times": "a count multiplies the exponential, not the score",
        "counts-not-log": "beside the score stands the logarithm of the count",
        "beta-count": "the logarithm of the count is not multiplied by beta",
        "counts-energy": "the counts stand in the energy too",
        "no-half": "half the square of the state's length",
        "no-beta": "the logarithm is divided by beta",
        "plus": "the logarithm is subtracted",
        "unknown-energy": "known components belong to the length of the state",
        "mean-of-values": "a step goes the whole way to the best state",
        "late-energy": "each energy belongs to the state in the same place",
    },
    "wait": {
        "equal": "the clusters differ in size",
        "swapped": "this is the angle of the b words",
        "only-first": "both clusters move",
        "each-once": "a cluster pulls with the weights of all its words",
        "no-softmax": "weights are divided by their sum",
        "without-own": "beta plays a part: the own cluster stands in the denominator",
        "no-sine": "the pull along the circle has a factor of the sine",
        "cosines": "an angle is asked for, not a cosine",
        "half-way": "the small cluster turns farther than half of the way",
        "share-of-sizes": "the share of the way is not the share of the words",
        "double": "twice the time",
        "degrees": "radians, not degrees",
        "whole-angle": "how far the first cluster turns, not both together",
        "angle-left": "how far it has turned, not what is left",
        "negative-sign": "near words weigh more than distant ones",
    },
    "partner": {
        "no-late": "of several partners the last one wins: you share the weight",
        "first": "of several partners the last one wins, not the first",
        "itself": "a token must not look at itself",
        "itself-without": "a token that is its own partner still looks at an earlier one",
        "turned": "the row of QK belongs to the token that looks",
        "no-start": "a token without a partner before it looks at the start",
        "start-wins": "the start wins only if there is no partner",
        "same-token": "look for the partner, not for the token itself",
        "behind": "O says the place itself, not the one behind it",
        "token": "O says the place, not the token",
        "both": "O has the place alone, without the token",
    },
    "lead": {
        "sums": "a lead is a difference of means over places",
        "sum-first": "the mean over the places behind an earlier token, not the sum",
        "no-control": "the control is missing",
        "uniform": "the control is the other places of the same row, not uniform weights",
        "with-zero": "place 0 belongs to neither",
        "all-places": "the control has the other places only",
        "same-token": "places behind an earlier occurrence, not the occurrences",
        "next-token": "the place behind the earlier token, not the one before it",
        "per-text": "every row counts once, not every text",
        "all-rows": "divide by the rows that count",
        "empty-rest": "a row without other places does not count",
        "empty-behind": "a row without an earlier token does not count",
        "padding": "padded rows do not count",
        "without-itself": "the place itself may stand behind an earlier one",
        "last-only": "all places behind earlier tokens, not only the last",
        "not-causal": "a row sees the places up to its own",
    },
    "doubt": {
        "a-near": "claim a: the two values are not far enough apart after the layer",
        "a-far": "claim a: the two values are not far enough apart after the layer",
        "a-values": "claim a: the values lie between 0 and 1",
        "a-tokens": "claim a: the two values are not far enough apart after the layer",
        "a-start-apart": "claim a: the two values are not far enough apart after the layer",
        "a-three": "claim a: x and v have the shape (n,)",
        "a-infinite": "claim a: all numbers are finite",
        "b-eigenvector": "claim b: z P z is not far enough below 0",
        "b-sign": "claim b: z P z is not far enough below 0",
        "b-zero": "claim b: z is too short",
        "b-weak": "claim b: z P z is not far enough below 0",
        "b-flat": "claim b: X has the shape (n, d) and z the shape (n,)",
        "b-antisymmetric": "claim b: z P z is not far enough below 0",
        "c-swapped": "claim c: low is larger than 0 and smaller than high",
        "c-lengths": "claim c: the rows have length 1",
        "c-symmetric": "claim c: the error at high is not larger than at low by enough",
        "c-opposite": "claim c: the error at high is not larger than at low by enough",
        "c-late": "claim c: the error at high is not larger than at low by enough",
        "c-huge": "claim c: all numbers are finite",
    },
}
