"""Problem set 6 and what people get wrong in it.

RIGHT    a second right answer to every exercise, written differently from the instructor's; it has to earn all points
WRONG    {exercise: {name: (description, {grade id: code})}}; each is RIGHT with a fault planted, and has to lose points
MESSAGE  {exercise: {name: words}}: what the first failed test has to say about that fault
"""

from functools import partial

from batteries.changes import changed

RIGHT = {
    "unseen_answer": """\
def unseen_logits(X, E, targets, mask, size, zeta):
    where = np.flatnonzero(mask)
    H, y, c = X[where], targets[where], len(where)
    log_sum = np.full(c, -np.inf, X.dtype)
    for k in range(0, len(E), size):
        Z = H @ E[k : k + size].T
        top = Z.max(-1)
        log_sum = np.logaddexp(log_sum, top + np.log(np.exp(Z - top[:, None]).sum(-1)))
    target = np.einsum("id,id->i", H, E[y])
    losses = log_sum - target + zeta * log_sum * log_sum
    loss = losses.mean()

    def vjp(dloss):
        each = X.dtype.type(dloss / c)
        weight = each * (1 + 2 * zeta * log_sum)
        dH, dE = np.zeros_like(H), np.zeros_like(E)
        np.subtract.at(dE, y, each * H)
        for k in range(0, len(E), size):
            P = np.exp(H @ E[k : k + size].T - log_sum[:, None]) * weight[:, None]
            dH += P @ E[k : k + size]
            dE[k : k + size] += P.T @ H
        dX = np.zeros_like(X)
        dX[where] = dH - each * E[y]
        return dX, dE

    return loss, vjp
""",
    "distil_answer": """\
def distil(Z, R, T, mask):
    S, U = Z[mask] / T, R[mask] / T
    log_p = S - S.max(-1, keepdims=True)
    log_p = log_p - np.log(np.exp(log_p).sum(-1, keepdims=True))
    log_q = U - U.max(-1, keepdims=True)
    log_q = log_q - np.log(np.exp(log_q).sum(-1, keepdims=True))
    p, q = np.exp(log_p), np.exp(log_q)
    gap = np.where(q > 0, log_q, 0) - log_p
    kl = (q * gap).sum(-1, keepdims=True)
    c = len(kl)
    loss = T**2 * kl.sum() / c

    def vjp(dloss):
        each = X_type(dloss * T / c)
        dZ, dR = np.zeros_like(Z), np.zeros_like(R)
        dZ[mask] = each * (p - q)
        dR[mask] = each * q * (gap - kl)
        return dZ, dR

    X_type = Z.dtype.type
    return X_type(loss), vjp
""",
    "factored_answer": """\
def factored_step(w, g, state, lr, beta, eps):
    t = state["step"] + 1
    square = g * g + eps
    rows = beta * state["rows"] + (1 - beta) * square.mean(-1)
    columns = beta * state["columns"] + (1 - beta) * square.mean(-2)
    r, c = rows / (1 - beta**t), columns / (1 - beta**t)
    middle = r.mean(-1)[..., None, None]
    v = r[..., :, None] * c[..., None, :] / middle
    u = g / v.sqrt()
    length = (u * u).mean((-2, -1), keepdim=True).sqrt()
    u = u / length.clamp(min=1)
    size = (w * w).mean((-2, -1), keepdim=True).sqrt().clamp(min=1e-3)
    return w - lr * size * u, {"step": t, "rows": rows, "columns": columns}
""",
    "repair_answer": """\
def gathered_step(loss_sum, params, batches, scale, limit, lr):
    names = list(params)
    leaves = {name: params[name].detach().clone().requires_grad_() for name in names}
    tokens = sum(int((y != -100).sum()) for _, y in batches)
    grads = [torch.zeros_like(params[name]) for name in names]
    for X, y in batches:
        loss = scale * loss_sum(leaves, X, y) / tokens
        parts = torch.autograd.grad(loss, list(leaves.values()))
        grads = [total + part for total, part in zip(grads, parts)]
    if not all(bool(g.isfinite().all()) for g in grads):
        return dict(params), scale / 2
    grads = [g / scale for g in grads]
    norm = sum(float((g * g).sum()) for g in grads) ** 0.5
    factor = min(1.0, limit / norm) if norm else 1.0
    return {name: params[name] - lr * factor * g for name, g in zip(names, grads)}, scale
""",
    "jump_predict": """\
def predict_wait(r, s, beta2, share):
    if r >= share:
        return 0
    log_beta = math.log1p(beta2 - 1)
    seen = -math.expm1(s * log_beta)
    gap = (share**2 - r**2) * seen
    return math.ceil(math.log1p(gap / (1 - share**2)) / -log_beta)
""",
    "jump_measure": """\
def measure_wait(G, s, betas, share):
    b1, b2 = betas
    m, v = np.zeros(G.shape[1]), np.zeros(G.shape[1])
    wait, longest = np.full(G.shape[1], -1), np.zeros(G.shape[1])
    for t, g in enumerate(G, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        root = np.sqrt(v / (1 - b2**t))
        move = np.abs(m / (1 - b1**t)) / root
        if t > s:
            longest = np.maximum(longest, move)
        there = (t >= s) & (wait < 0) & (root >= share * np.abs(G[-1]))
        wait = np.where(there, t - s, wait)
    return wait, longest
""",
    "paths_answer": """\
def drop_paths(X, keep, p, layers):
    L = len(layers)
    chances = [1 - p * (l + 1) / L for l in range(L)]
    Y, backs = X.copy(), []
    for f, on, chance in zip(layers, keep, chances):
        F, back = f(Y[on])
        backs.append(back)
        Y[on] = Y[on] + F / chance

    def vjp(dY):
        dX, found = dY.copy(), [None] * L
        for l in reversed(range(L)):
            on = keep[l]
            dZ, found[l] = backs[l](dX[on] / chances[l])
            dX[on] = dX[on] + dZ
        return dX, found

    return Y, vjp
""",
    "halves_split": """\
def split(w):
    bits = w.view(torch.int32).to(torch.int64)
    high = (bits + 2**15) // 2**16
    low = bits - high * 2**16
    return high.to(torch.int16).view(torch.bfloat16), low.to(torch.int16)
""",
    "halves_step": """\
def halves_step(high, low, update):
    bits = high.view(torch.int16).to(torch.int64) * 2**16 + low.to(torch.int64)
    w = bits.to(torch.int32).view(torch.float32)
    w = w + update
    bits = w.view(torch.int32).to(torch.int64)
    new = (bits + 2**15) // 2**16
    return new.to(torch.int16).view(torch.bfloat16), (bits - new * 2**16).to(torch.int16)
""",
    "must_answer": """\
def beam_with(step, start, end, token, width, limit):
    beams = {False: [(0.0, (start,))], True: []}
    found, best = None, -np.inf
    for _ in range(limit):
        rows = [(score, prefix, has) for has in (False, True) for score, prefix in beams[has]]
        logp = step(np.array([prefix for _, prefix, _ in rows]))
        grown = {False: [], True: []}
        for (score, prefix, has), row in zip(rows, logp):
            total = score + row
            if has and total[end] > best:
                found, best = list(prefix[1:]), float(total[end])
            for y in range(len(row)):
                if y != end and total[y] > -np.inf:
                    grown[has or y == token].append((total[y], (*prefix, y)))
        beams = {has: sorted(grown[has], reverse=True)[:width] for has in grown}
        ahead = max([score for beam in beams.values() for score, _ in beam], default=-np.inf)
        if ahead <= best:
            break
    return found, best
""",
    "ranks_bytes": """\
def rank_bytes(sizes, k, stage):
    whole, piece = sum(sizes), sum((s + k - 1) // k for s in sizes)
    total = 0
    for cost, shared_from in ((2, 3), (2, 2), (4, 1), (8, 1)):
        total += cost * (piece if stage >= shared_from else whole)
    return total
""",
    "ranks_sends": """\
def rank_sends(sizes, k, stage, m):
    piece = sum((s + k - 1) // k for s in sizes)
    rounds = {0: 2, 1: 2, 2: m + 1, 3: 3 * m}[stage]
    return rounds * (k - 1) * piece * 2
""",
}


def but(cell, *changes):
    """The right answer of a cell with a fault planted."""
    return {cell: changed(RIGHT[cell], *changes)}


unseen = partial(but, "unseen_answer")
distil = partial(but, "distil_answer")
factored = partial(but, "factored_answer")
repair = partial(but, "repair_answer")
predict = partial(but, "jump_predict")
measure = partial(but, "jump_measure")
paths = partial(but, "paths_answer")
split = partial(but, "halves_split")
joined = partial(but, "halves_step")
must = partial(but, "must_answer")
held = partial(but, "ranks_bytes")
sends = partial(but, "ranks_sends")


def running(start):
    """The largest logit so far begins with `start`, and a sum relative to it."""
    return unseen(
        ("log_sum = np.full(c, -np.inf, X.dtype)", f"high, total = np.full(c, {start}, X.dtype), np.zeros(c, X.dtype)"),
        (
            MERGED,
            "new = np.maximum(high, top)\n"
            "        total = total * np.exp(high - new) + np.exp(Z - new[:, None]).sum(-1)\n"
            "        high = new",
        ),
        ("    target = np.einsum", "    log_sum = high + np.log(total)\n    target = np.einsum"),
    )


def from_p(log_p):
    """The logarithm of the student's distribution is taken from the distribution."""
    return distil(
        ("p, q = np.exp(log_p), np.exp(log_q)\n", f"p, q = np.exp(log_p), np.exp(log_q)\n    log_p = {log_p}\n")
    )


def forbidden(number):
    """A number stands for the teacher's -inf."""
    return distil(("R[mask] / T", f"np.where(R == -np.inf, R.dtype.type({number}), R)[mask] / T"))


def unscaled(*changes):
    return repair(
        ("loss = scale * loss_sum(leaves, X, y) / tokens", "loss = loss_sum(leaves, X, y) / tokens"), *changes
    )


def root(guarded):
    return measure(("root = np.sqrt(v / (1 - b2**t))", f"root = {guarded}"))


MERGED = "log_sum = np.logaddexp(log_sum, top + np.log(np.exp(Z - top[:, None]).sum(-1)))"
FLAT_BACK = "each * (1 + 2 * zeta * log_sum)"
MEANS_LEFT = (
    "loss = scale * loss_sum(leaves, X, y) / tokens",
    "loss = scale * loss_sum(leaves, X, y) / (y != -100).sum() / len(batches)",
)
CLIP_LEFT = ("limit / norm) if", "limit / (scale * norm)) if")
LAST_LEFT = ("all(bool(g.isfinite().all()) for g in grads)", "bool(grads[-1].isfinite().all())")
TRUNCATED = ("(bits + 2**15) // 2**16", "bits // 2**16")
CHOSEN = """\
def chosen(grown, width):
    both = sorted([(*h, has) for has in grown for h in grown[has]], reverse=True)[:width]
    return [[h[:2] for h in both if h[2] == has] for has in (False, True)]


"""

WRONG = {
    "unseen": {
        "all-positions": ("the mask ignored", unseen(("np.flatnonzero(mask)", "np.arange(len(X))"))),
        "over-n": ("divides by all positions", unseen(("losses.mean()", "losses.sum() / len(X)"))),
        "no-square": ("the penalty without its square", unseen(("zeta * log_sum * log_sum", "zeta * log_sum"))),
        "square-of-mean": (
            "the square of the mean",
            unseen(("loss = losses.mean()", "loss = (log_sum - target).mean() + zeta * log_sum.mean() ** 2")),
        ),
        "no-penalty-back": ("the penalty has no gradient", unseen((FLAT_BACK, "each * (1 + 0 * log_sum)"))),
        "half-penalty-back": (
            "the 2 of the penalty's gradient lost",
            unseen((FLAT_BACK, "each * (1 + zeta * log_sum)")),
        ),
        "targets-weighted": (
            "the penalty's weight on the target's part too",
            unseen(("each * H)", "weight[:, None] * H)"), ("each * E[y]", "weight[:, None] * E[y]")),
        ),
        "short-chunk": (
            "the last, shorter piece of the vocabulary left out",
            unseen(
                ("    log_sum = np.full", "    E = E[: len(E) - len(E) % size]\n    log_sum = np.full"),
                ("    where = ", "    whole = E\n    where = "),
                ("E[y])\n    losses", "whole[y])\n    losses"),
                ("np.zeros_like(E)", "np.zeros_like(whole)"),
                ("each * E[y]", "each * whole[y]"),
            ),
        ),
        "own-maximum": (
            "sums of pieces added without a common maximum",
            unseen((MERGED, "log_sum = top + np.log(np.exp(log_sum) + np.exp(Z - top[:, None]).sum(-1))")),
        ),
        "overwritten": (
            "positions with the same token overwrite each other",
            unseen(("np.subtract.at(dE, y, each * H)", "dE[y] -= each * H")),
        ),
        "no-maximum": (
            "exponentials without the maximum",
            unseen((MERGED, "log_sum = np.logaddexp(log_sum, np.log(np.exp(Z).sum(-1)))")),
        ),
        "no-cotangent": ("the cotangent ignored", unseen(("dloss / c", "1.0 / c"))),
        "short-dx": ("dX of the counted rows only", unseen(("return dX, dE", "return dX[where], dE"))),
        "keeps": (
            "keeps the logits for the way back",
            unseen(
                ("    log_sum = np.full", "    pieces = {}\n    log_sum = np.full"),
                ("Z = H @ E[k : k + size].T\n", "Z = pieces[k] = H @ E[k : k + size].T\n"),
                ("np.exp(H @ E[k : k + size].T - ", "np.exp(pieces[k] - "),
            ),
        ),
        "double": (
            "float64 whatever comes in",
            unseen(("H, y, c = X[where]", "X, E = X.astype(float), E.astype(float)\n    H, y, c = X[where]")),
        ),
        "from-0": ("the largest logit so far begins with 0", running("0")),
        "from-100": ("the largest logit so far begins with -100", running("-100")),
        "from-1000": ("the largest logit so far begins with -1000", running("-1e3")),
    },
    "distil": {
        "reversed": ("the student's distribution in front", distil(("kl = (q * gap)", "kl = (p * -gap)"))),
        "no-square": ("the square of T forgotten", distil(("T**2 * kl.sum()", "kl.sum()"))),
        "t-once": ("T instead of its square", distil(("T**2 * kl.sum()", "T * kl.sum()"))),
        "cross-entropy": (
            "the cross-entropy, without the teacher's entropy",
            distil(("T**2 * kl.sum()", "T**2 * (-q * log_p).sum()")),
        ),
        "hot-student": ("the student is not cooled", distil(("Z[mask] / T, R", "Z[mask], R"))),
        "over-all": ("divides by all positions", distil(("c = len(kl)", "c = mask.size"))),
        "sum": ("a sum instead of a mean", distil(("c = len(kl)", "c = 1"))),
        "dz-square": ("dZ with the square of T", distil(("each * (p - q)", "each * T * (p - q)"))),
        "dz-no-t": ("dZ without T", distil(("each * (p - q)", "each / T * (p - q)"))),
        "dr-no-centre": ("dR without the mean", distil(("q * (gap - kl)", "q * gap"))),
        "dr-mirror": ("dR taken for minus dZ", distil(("each * q * (gap - kl)", "each * (q - p)"))),
        "dr-zero": ("the teacher taken for a constant", distil(("each * q * (gap - kl)", "0"))),
        "forbidden": ("0 log 0 is nan", distil(("np.where(q > 0, log_q, 0)", "log_q"))),
        "multiplied-mask": (
            "rows multiplied by the mask",
            distil(("dZ, dR = np.zeros_like(Z), np.zeros_like(R)", "dZ, dR = 0 * Z, 0 * R")),
        ),
        "double": (
            "float64 whatever comes in",
            distil(("S, U = Z", "Z, R = Z.astype(float), R.astype(float)\n    S, U = Z")),
        ),
        "log-plus": ("the logarithm of p + 1e-30", from_p("np.log(p + 1e-30)")),
        "log-least": (
            "the logarithm of p, or of the least float",
            from_p("np.log(np.maximum(p, np.finfo(p.dtype).tiny))"),
        ),
        "quotient": (
            "the logarithm of the quotient q / p",
            distil(("np.where(q > 0, log_q, 0) - log_p", "np.log(np.where(q > 0, q / p, 1))")),
        ),
        "cut-off": (
            "logits cut off at 500",
            distil(("Z[mask] / T, R[mask] / T", "np.clip(Z[mask] / T, -500, 500), np.maximum(R[mask] / T, -500)")),
        ),
        "minus-1e4": ("-1e4 for the teacher's -inf", forbidden("-1e4")),
        "minus-1e9": ("-1e9 for the teacher's -inf", forbidden("-1e9")),
    },
    "factored": {
        "rows-only": (
            "the rows' means only",
            factored(("r[..., :, None] * c[..., None, :] / middle", "r[..., :, None]")),
        ),
        "sums": (
            "sums instead of means in the state",
            factored(
                ("square.mean(-1)", "square.sum(-1)"),
                ("square.mean(-2)", "square.sum(-2)"),
                ("r.mean(-1)", "r.sum(-1)"),
            ),
        ),
        "no-correction": (
            "no correction of the start",
            factored(("rows / (1 - beta**t), columns / (1 - beta**t)", "rows, columns")),
        ),
        "twice-corrected": ("corrects twice", factored(("middle = r.mean", "middle = rows.mean"))),
        "late-correction": (
            "the correction one step behind",
            factored(
                (
                    "rows / (1 - beta**t), columns / (1 - beta**t)",
                    "rows / (1 - beta ** max(t - 1, 1)), columns / (1 - beta ** max(t - 1, 1))",
                )
            ),
        ),
        "kept-corrected": (
            "keeps the corrected moments",
            factored(('"rows": rows, "columns": columns', '"rows": r, "columns": c')),
        ),
        "no-middle": ("does not divide by the mean", factored((" / middle", ""))),
        "no-root": ("divides by v itself", factored(("v.sqrt()", "v"))),
        "no-clip": ("the update is not clipped", factored(("length.clamp(min=1)", "1"))),
        "always-clip": ("short updates are made longer", factored(("length.clamp(min=1)", "length"))),
        "clip-norm": (
            "clips by the norm",
            factored(("(u * u).mean((-2, -1), keepdim=True)", "(u * u).sum((-2, -1), keepdim=True)")),
        ),
        "absolute": ("the step is not relative to the weights", factored(("lr * size * u", "lr * u"))),
        "no-floor": ("weights of 0 stay 0", factored((".sqrt().clamp(min=1e-3)", ".sqrt()"))),
        "one-stack": (
            "one mean for the whole stack",
            factored(("(u * u).mean((-2, -1), keepdim=True)", "(u * u).mean()")),
        ),
        "mutates": ("changes the state in place", factored(('beta * state["rows"] +', 'state["rows"].mul_(beta) +'))),
        "guarded-root": ("1e-12 added to the root", factored(("v.sqrt()", "(v.sqrt() + 1e-12)"))),
        "guarded-moment": ("the second moment is 1e-16 at least", factored(("v.sqrt()", "v.clamp(min=1e-16).sqrt()"))),
        "guarded-middle": ("1e-12 added to the mean", factored((" / middle", " / (middle + 1e-12)"))),
    },
    "repair": {
        "untouched": ("all three faults left", repair(MEANS_LEFT, CLIP_LEFT, LAST_LEFT)),
        "means-left": ("the mean of means left", repair(MEANS_LEFT)),
        "clip-left": ("the scaled gradient still clipped", repair(CLIP_LEFT)),
        "last-left": ("the last leaf still speaks for all", repair(LAST_LEFT)),
        "means-clip": ("means and clipping left", repair(MEANS_LEFT, CLIP_LEFT)),
        "means-last": ("means and the last leaf left", repair(MEANS_LEFT, LAST_LEFT)),
        "clip-last": ("clipping and the last leaf left", repair(CLIP_LEFT, LAST_LEFT)),
        "sum": ("divides by no number of tokens", repair((" / tokens", ""))),
        "positions": ("counts targets of padding too", repair(("int((y != -100).sum())", "y.numel()"))),
        "scaled": (
            "steps along the scaled gradient",
            repair(("grads = [g / scale for g in grads]", "grads = list(grads)")),
        ),
        "unlimited": ("never clips", repair(("min(1.0, limit / norm) if norm else 1.0", "1.0"))),
        "always": ("makes short gradients longer", repair(("min(1.0, limit / norm)", "limit / norm"))),
        "no-halving": ("the scale stays after an overflow", repair(("scale / 2", "scale"))),
        "any-finite": ("skips only if no leaf is finite", repair(("not all(bool", "not any(bool"))),
        "mutates": (
            "changes the caller's weights",
            repair(("params[name] - lr * factor * g", "params[name].sub_(lr * factor * g)")),
        ),
        "unscaled": ("scales nothing", unscaled(("grads = [g / scale for g in grads]", "grads = list(grads)"))),
        "scaled-gradient": (
            "scales the gradient instead of the loss",
            unscaled(("total + part for", "total + scale * part for")),
        ),
        "last-piece": (
            "looks at the gradients of the last piece",
            repair(("isfinite().all()) for g in grads)", "isfinite().all()) for g in parts)")),
        ),
        "no-norm": ("divides by a norm of 0", repair((" if norm else 1.0", ""))),
        "guarded-norm": (
            "1e-6 added to the norm",
            repair(("limit / norm) if norm else 1.0", "limit / (norm + 1e-6))")),
        ),
    },
    "jump": {
        "uncorrected": (
            "the second moment without its correction",
            predict(("gap = (share**2 - r**2) * seen", "gap = share**2 - r**2 * seen")),
        ),
        "long-past": ("an infinitely long past", predict(("(share**2 - r**2) * seen", "share**2 - r**2"))),
        "not-squared": (
            "means of magnitudes instead of squares",
            predict(("(share**2 - r**2)", "(share - r)"), ("(1 - share**2)", "(1 - share)")),
        ),
        "no-past": ("the small gradients taken for zero", predict(("(share**2 - r**2)", "share**2"))),
        "rounded-down": ("one step early", predict(("math.ceil", "math.floor"))),
        "one-late": ("counts one step too many", predict(("return math.ceil", "return 1 + math.ceil"))),
        "root-decays": ("half the rate, as if the root decayed", predict(("/ -log_beta", "/ -log_beta * 2"))),
        "negative": ("negative if it is there already", predict(("r >= share", "r > 2 * share"))),
        "measured-uncorrected": ("measures without the correction", measure(("v / (1 - b2**t)", "v"))),
        "from-start": ("counts from the first step", measure(("t - s, wait", "t, wait"))),
        "after-jump": ("does not look before the jump", measure(("(t >= s) &", "(t > s) &"))),
        "never-last": (
            "the number of steps if it never happens",
            measure(("return wait, longest", "return np.where(wait < 0, len(G) - s, wait), longest")),
        ),
        "any-time": ("steps before the jump count too", measure(("if t > s:", "if t > 0:"))),
        "signed": ("the largest signed move", measure(("np.abs(m / (1 - b1**t))", "(m / (1 - b1**t))"))),
        "first-uncorrected": (
            "the first moment without its correction",
            measure(("np.abs(m / (1 - b1**t))", "np.abs(m)")),
        ),
        "guarded-root": ("1e-12 added to the root", root("np.sqrt(v / (1 - b2**t)) + 1e-12")),
        "guarded-moment": ("1e-30 added to the second moment", root("np.sqrt(v / (1 - b2**t) + 1e-30)")),
        "one-number": (
            "a number instead of an array for one weight",
            measure(("return wait, longest", "return wait.squeeze(), longest.squeeze()")),
        ),
    },
    "paths": {
        "no-scale": ("kept branches are not enlarged", paths(("F / chance", "F"))),
        "inverse": ("kept branches made smaller", paths(("F / chance", "F * chance"))),
        "same-chance": ("one probability for all layers", paths(("1 - p * (l + 1) / L", "1 - p"))),
        "from-zero": ("the first layer is never dropped", paths(("p * (l + 1) / L", "p * l / max(L - 1, 1)"))),
        "dropped-kept": (
            "keeps what is to be dropped",
            paths(("Y, backs = X.copy(), []", "keep = ~keep\n    Y, backs = X.copy(), []")),
        ),
        "scaled-path": ("enlarges the residual path as well", paths(("Y[on] + F / chance", "(Y[on] + F) / chance"))),
        "all-read-x": ("all layers read X", paths(("f(Y[on])", "f(X[on])"))),
        "no-scale-back": ("the gradient of a kept branch is not enlarged", paths(("dX[on] / chances[l]", "dX[on]"))),
        "scale-behind": (
            "the gradients of the parameters are not enlarged",
            paths(
                (
                    "dZ, found[l] = backs[l](dX[on] / chances[l])",
                    "dZ, found[l] = backs[l](dX[on])\n            dZ = dZ / chances[l]",
                )
            ),
        ),
        "no-path": ("no gradient along the residual path", paths(("dX[on] = dX[on] + dZ", "dX[on] = dZ"))),
        "dropped-lost": (
            "dropped sequences get no gradient",
            paths(("            dX[on] = dX[on] + dZ", "            dX[~on] = 0\n            dX[on] = dX[on] + dZ")),
        ),
        "forwards": (
            "goes back through the layers in the wrong order",
            paths(("in reversed(range(L))", "in range(L)")),
        ),
        "computes-all": (
            "runs the layers on all sequences",
            paths(
                ("f(Y[on])", "f(Y.copy())"),
                ("Y[on] + F / chance", "Y[on] + F[on] / chance"),
                ("backs[l](dX[on] / chances[l])", "backs[l](dX * on[:, None, None] / chances[l])"),
                ("dX[on] + dZ", "dX[on] + dZ[on]"),
            ),
        ),
        "mutates": ("adds to X itself", paths(("Y, backs = X.copy(), []", "Y, backs = X, []"))),
        "mutates-cotangent": ("adds to the cotangent itself", paths(("dY.copy()", "dY"))),
        "in-place": (
            "divides what a layer returned in place",
            paths(("Y[on] = Y[on] + F / chance", "F /= chance\n        Y[on] = Y[on] + F")),
        ),
        "wide-layers": (
            "float64 on the way, the right dtype at the end",
            paths(("X.copy(), []", "X.astype(float), []"), ("return Y, vjp", "return Y.astype(X.dtype), vjp")),
        ),
        "wide-cotangents": (
            "float64 on the way back",
            paths(("dY.copy()", "dY.astype(float)"), ("return dX, found", "return dX.astype(dY.dtype), found")),
        ),
        "wide-factors": (
            "factors of NumPy's float64",
            paths(("[1 - p * (l + 1) / L for l in range(L)]", "1 - p * np.arange(1, L + 1) / L")),
        ),
        "double": ("float64 whatever comes in", paths(("X.copy(), []", "X.astype(float), []"))),
    },
    "halves": {
        "truncated": (
            "the upper 16 bits as they stand",
            split(TRUNCATED, ("low.to(torch.int16)", "(low - 2**16 * (low >= 2**15)).to(torch.int16)")),
        ),
        "to-even": (
            "rounds ties to even, and the remainder overflows",
            split(("high = (bits + 2**15) // 2**16", "high = w.bfloat16().view(torch.int16).to(torch.int64)")),
        ),
        "clipped": (
            "rounds ties to even, and clips the remainder",
            split(
                ("high = (bits + 2**15) // 2**16", "high = w.bfloat16().view(torch.int16).to(torch.int64)"),
                ("low.to(torch.int16)", "low.clamp(-(2**15), 2**15 - 1).to(torch.int16)"),
            ),
        ),
        "ties-inwards": ("ties towards zero", split(("(bits + 2**15) // 2**16", "(bits + 2**15 - 1) // 2**16"))),
        "remainder": (
            "the rest as a number instead of bits",
            split(("low.to(torch.int16)", "(w - w.bfloat16().float()).bfloat16()")),
        ),
        "wrong-sign": ("the remainder's sign", split(("low = bits - high * 2**16", "low = high * 2**16 - bits"))),
        "no-remainder": ("the remainder is always 0", split(("low = bits - high * 2**16", "low = 0 * bits"))),
        "half": ("float16 instead of bfloat16", split(("high.to(torch.int16).view(torch.bfloat16)", "w.half()"))),
        "wide": ("the remainder as int32", split(("low.to(torch.int16)", "low.to(torch.int32)"))),
        "forgets-low": ("adds to the upper half only", joined((" + low.to(torch.int64)", ""))),
        "unsigned": (
            "takes the lower half for unsigned",
            joined(("low.to(torch.int64)", "(low.to(torch.int64) & 0xFFFF)")),
        ),
        "sum-of-floats": (
            "adds in bfloat16",
            joined(("w = w + update", "w = (w.bfloat16() + update.bfloat16()).float()")),
        ),
        "low-left": ("leaves the lower half as it was", joined(("(bits - new * 2**16).to(torch.int16)", "low"))),
        "step-truncates": ("splits by cutting off", joined(TRUNCATED)),
        "mutates": ("empties the caller's lower half", joined(("w = w + update", "w = w + update\n    low.zero_()"))),
        "step-to-even": (
            "rounds ties to even after a step",
            joined(("new = (bits + 2**15) // 2**16", "new = w.bfloat16().view(torch.int16).to(torch.int64)")),
        ),
    },
    "must": {
        "plain": (
            "an ordinary beam, of the whole width",
            must(
                (
                    "{has: sorted(grown[has], reverse=True)[:width] for has in grown}",
                    "dict(zip((False, True), chosen(grown, width)))",
                ),
                ("def beam_with", CHOSEN + "def beam_with"),
            ),
        ),
        "twice-plain": (
            "one beam of twice the width",
            must(
                (
                    "{has: sorted(grown[has], reverse=True)[:width] for has in grown}",
                    "dict(zip((False, True), chosen(grown, 2 * width)))",
                ),
                ("def beam_with", CHOSEN + "def beam_with"),
            ),
        ),
        "any-end": ("a sequence may end without the token", must(("if has and total", "if total"))),
        "start-counts": (
            "the start symbol counts as the token",
            must(("{False: [(0.0, (start,))], True: []}", "{start == token: [(0.0, (start,))], start != token: []}")),
        ),
        "only-last": ("a later token makes it forget", must(("grown[has or y == token]", "grown[y == token]"))),
        "once": (
            "the token may not come twice",
            must(("if y != end and", "if y != end and not (has and y == token) and")),
        ),
        "first": ("the first complete sequence wins", must(("if ahead <= best:", "if found is not None:"))),
        "limit-late": ("the end symbol not counted", must(("range(limit)", "range(limit + 1)"))),
        "worst": ("keeps the least probable", must(("reverse=True", "reverse=False"))),
        "mean": (
            "the mean of the logarithms",
            must(
                (
                    "if has and total[end] > best:",
                    "total[end] = total[end] / len(prefix)\n            if has and total[end] > best:",
                )
            ),
        ),
        "ends-go-on": ("goes on behind the end", must(("if y != end and total", "if total"))),
        "narrow": ("half the width for each beam", must(("[:width]", "[: max(width // 2, 1)]"))),
        "with-start": ("the start symbol in the answer", must(("list(prefix[1:])", "list(prefix)"))),
        "never-stops": (
            "asks for more when nothing can overtake",
            must(("        if ahead <= best:\n", "        if ahead == -np.inf:\n")),
        ),
        "row-by-row": (
            "one call for each prefix",
            must(
                (
                    "step(np.array([prefix for _, prefix, _ in rows]))",
                    "[step(np.array([prefix]))[0] for _, prefix, _ in rows]",
                )
            ),
        ),
        "from-1000": (
            "the best logarithm so far begins with -1000",
            must(
                ("found, best = None, -np.inf", "found, best = None, -1e3"),
                ("return found, best", "return found, best if found else -np.inf"),
            ),
        ),
        "below-1e9": ("takes -1e9 for impossible", must(("total[y] > -np.inf", "total[y] > -1e9"))),
    },
    "ranks": {
        "divided": (
            "divides the sum, not each tensor",
            held(("sum((s + k - 1) // k for s in sizes)", "(sum(sizes) + k - 1) // k")),
        ),
        "floor": ("rounds down", held(("(s + k - 1) // k", "s // k"))),
        "all-shared": ("everything shared at every stage", held(("if stage >= shared_from", "if stage"))),
        "no-master": ("forgets the float32 weights", held(("(4, 1), ", ""))),
        "late-original": ("originals shared from stage 2 on", held(("(4, 1)", "(4, 2)"))),
        "stages-swapped": ("stage 2 shares the copy", held(("(2, 3), (2, 2)", "(2, 2), (2, 2)"))),
        "wide-gradient": ("gradients of four bytes", held(("(2, 3), (2, 2)", "(2, 3), (4, 2)"))),
        "k-messages": ("a piece to itself", sends(("(k - 1)", "k"))),
        "one-way": ("half of the ring", sends(("{0: 2, 1: 2,", "{0: 1, 1: 1,"))),
        "no-m": ("the number of micro-batches ignored", sends(("m + 1", "2"), ("3 * m", "3"))),
        "always-m": ("stages 0 and 1 reduce at every micro-batch", sends(("{0: 2, 1: 2,", "{0: 2 * m, 1: m + 1,"))),
        "gathered-each": ("stage 2 gathers at every micro-batch", sends(("m + 1", "2 * m"))),
        "one-gather": ("stage 3 gathers once for both passes", sends(("3 * m", "2 * m"))),
        "elements": ("elements, not bytes", sends((" * piece * 2", " * piece"))),
        "whole": ("whole tensors instead of pieces", sends(("(s + k - 1) // k", "s"))),
        "rounded": ("a quotient in floating point", held(("(s + k - 1) // k", "math.ceil(s / k)"))),
        "int64": (
            "NumPy's integers of 64 bits",
            sends(
                (
                    "sum((s + k - 1) // k for s in sizes)",
                    "int(np.sum([(s + k - 1) // k for s in sizes], dtype=np.int64))",
                )
            ),
        ),
    },
}

MESSAGE = {
    "unseen": {
        "all-positions": "positions where the mask is False do not count",
        "over-n": "divide by the number of positions that count",
        "no-square": "the penalty is zeta times the square of the logarithm",
        "square-of-mean": "square first, then take the mean over the positions",
        "no-penalty-back": "the penalty depends on the logits too",
        "half-penalty-back": "the derivative of the square has a factor 2",
        "targets-weighted": "the penalty acts on the sum of exponentials, not on the target's logit",
        "short-chunk": "five tokens in pieces of two: the last piece has one",
        "own-maximum": "sums of two pieces can only be added relative to the same maximum",
        "overwritten": "token 2 is the target of two positions, and each adds its part",
        "no-maximum": "take the largest out",
        "no-cotangent": "multiply by the cotangent",
        "short-dx": "one row for every row of X, zero where it does not count",
        "keeps": "you keep them",
        "double": "keep the dtype",
        "from-0": "begins with -inf, not with a number",
        "from-100": "begins with -inf, not with a number",
        "from-1000": "begins with -inf, not with a number",
    },
    "distil": {
        "reversed": "the teacher's distribution stands in front of the logarithm",
        "no-square": "the factor is the square of T; it is missing",
        "t-once": "the factor is the square of T; yours is T",
        "cross-entropy": "that is the cross-entropy; subtract the teacher's entropy",
        "hot-student": "the student is cooled as well",
        "over-all": "divide by the number of positions that count",
        "sum": "take the mean over the positions that count, not the sum",
        "dz-square": "the chain rule takes one T away",
        "dz-no-t": "the chain rule takes one T away, not both",
        "dr-no-centre": "a shift of all of the teacher's logits changes nothing, so a row of dR sums to 0",
        "dr-mirror": "the loss is not symmetric: dR is not minus dZ",
        "dr-zero": "the teacher learns too",
        "forbidden": "0 log 0 is 0",
        "multiplied-mask": "hold nan, and get 0",
        "double": "keep the dtype",
        "log-plus": "take it from the logits, not from p",
        "log-least": "take it from the logits, not from p",
        "quotient": "take it from the logits, not from p",
        "cut-off": "take it from the logits, not from p",
        "minus-1e4": "no number can stand for -inf",
        "minus-1e9": "no number can stand for -inf",
    },
    "factored": {
        "rows-only": "the columns take part in v",
        "sums": "rows and columns are means, not sums",
        "no-correction": "the moments began as zeros, which has to be corrected",
        "twice-corrected": "v is corrected once: correct the mean in its denominator as well",
        "late-correction": "this is step 3: the exponent counts the present step",
        "kept-corrected": "the state holds the moments before the correction",
        "no-middle": "the product of two means has the unit of the fourth power: divide by the mean of a",
        "no-root": "divide by the root of v",
        "no-clip": "an update is too large: its root mean square may be 1 at most",
        "always-clip": "an update that is shorter than 1 stays as it is",
        "clip-norm": "the root of the mean square, not the norm, may be 1 at most",
        "absolute": "the step is relative to the size of the weights",
        "no-floor": "weights of 0 move as if their size were 0.001",
        "one-stack": "each matrix of a stack is clipped by itself",
        "mutates": "you changed your argument",
        "guarded-root": "no other number to a quotient",
        "guarded-moment": "no other number to a quotient",
        "guarded-middle": "no other number to a quotient",
    },
    "repair": {
        "untouched": "two faults or three are left: tokens of short pieces weigh more, and what is clipped is scaled",
        "means-left": "a fault is left: tokens of short pieces weigh more",
        "clip-left": "a fault is left: the norm of the scaled gradient is compared with the limit",
        "last-left": "and you step along it",
        "means-clip": "two faults or three are left: tokens of short pieces weigh more, and what is clipped is scaled",
        "means-last": "a fault is left: tokens of short pieces weigh more",
        "clip-last": "a fault is left: the norm of the scaled gradient is compared with the limit",
        "sum": "the loss is a mean over the tokens that count",
        "positions": "targets of -100 do not count",
        "scaled": "the step has to be divided by the scale",
        "unlimited": "the gradient has to be clipped",
        "always": "a short gradient stays as it is",
        "no-halving": "halve it",
        "any-finite": "and you step along it",
        "mutates": "you changed your argument",
        "unscaled": "multiply the loss by the scale before you differentiate it",
        "scaled-gradient": "multiply the loss by the scale before you differentiate it",
        "last-piece": "their sum is not finite",
        "no-norm": "by which nothing can be divided",
        "guarded-norm": "you added 1e-6 to the norm, as PyTorch does",
    },
    "jump": {
        "uncorrected": "the second moment is corrected for its start",
        "long-past": "40 steps are not an infinite past",
        "not-squared": "the second moment is a mean of squares",
        "no-past": "the small gradients before the jump count as well",
        "rounded-down": "n is a whole number, at which the share is reached",
        "one-late": "step s + n, so the first large gradient has n = 1",
        "root-decays": "the square decays with beta2, not the root",
        "negative": "n is not negative",
        "measured-uncorrected": "the second moment is corrected for its start",
        "from-start": "n counts from step s",
        "after-jump": "the share may be reached at step s, with n = 0",
        "never-last": "what does not happen is -1",
        "any-time": "only the steps after s count",
        "signed": "its magnitude, not its value",
        "first-uncorrected": "the first moment is corrected as well",
        "guarded-root": "epsilon is 0",
        "guarded-moment": "epsilon is 0",
        "one-number": "has shape ()",
    },
    "paths": {
        "no-scale": "what is kept is divided by the probability of being kept",
        "inverse": "divide by the probability of being kept, do not multiply",
        "same-chance": "the probability grows with the depth",
        "from-zero": "the first of L layers is dropped with probability p / L",
        "dropped-kept": "True means kept",
        "scaled-path": "the residual path is not enlarged",
        "all-read-x": "a layer reads what the layer before has written",
        "no-scale-back": "on the way back a kept branch is enlarged as well",
        "scale-behind": "the factor belongs to what enters the layer's vjp",
        "no-path": "the residual path carries the gradient too",
        "dropped-lost": "a dropped sequence passes its gradient on, unchanged",
        "forwards": "the way back goes from the last layer to the first",
        "computes-all": "was given 4 sequences",
        "mutates": "you changed your argument",
        "mutates-cotangent": "you changed your argument",
        "in-place": "you changed your argument",
        "wide-layers": "a layer was given float64",
        "wide-cotangents": "a layer got back a cotangent in float64",
        "wide-factors": "a layer got back a cotangent in float64",
        "double": "keep the dtype of float32 rows",
    },
    "halves": {
        "truncated": "high is rounded, not cut off",
        "to-even": "a tie goes to the bfloat16 further from 0; yours go to the even one",
        "clipped": "a tie goes to the bfloat16 further from 0; yours go to the even one",
        "ties-inwards": "a tie goes to the bfloat16 further from 0; yours go to the nearer one",
        "remainder": "bits, not a number",
        "wrong-sign": "the bits of w are those of high, shifted, plus low",
        "no-remainder": "the lower bits are lost",
        "half": "it is a bfloat16",
        "wide": "it is an int16",
        "forgets-low": "the lower halves take part in the sum",
        "unsigned": "the lower halves have a sign",
        "sum-of-floats": "add in float32",
        "low-left": "the lower halves change as well",
        "step-truncates": "high is rounded, not cut off",
        "mutates": "you changed your argument",
        "step-to-even": "after a step, too, a tie goes",
    },
    "must": {
        "plain": "each of the two beams has its own width; you share one",
        "twice-plain": "the two beams are kept apart; yours compete for the places",
        "any-end": "only a sequence that contains the token is complete",
        "start-counts": "the start symbol is no token of the sequence",
        "only-last": "a prefix that contained the token once contains it for good",
        "once": "the token may come more than once",
        "first": "the first complete sequence need not be the best",
        "limit-late": "the end is one of the tokens that are limited",
        "worst": "keep the most probable prefixes",
        "mean": "look for the largest sum of logarithms, not their mean",
        "ends-go-on": "nothing follows the end",
        "narrow": "each beam keeps width prefixes, not half of that",
        "with-start": "leave out the start symbol",
        "never-stops": "no open prefix has more",
        "row-by-row": "asked once for each length",
        "from-1000": "only -inf is impossible",
        "below-1e9": "only -inf is impossible",
    },
    "ranks": {
        "divided": "each tensor is cut by itself",
        "floor": "what does not divide is padded",
        "all-shared": "not everything is shared out at every stage",
        "no-master": "four bytes are missing: there are an original and two moments, of four bytes each",
        "late-original": "the originals are shared out with the moments",
        "stages-swapped": "the copies are shared out at stage 3",
        "wide-gradient": "gradients have 16 bits",
        "k-messages": "a device sends nothing to itself",
        "one-way": "at stages 0 and 1 something is gathered, too",
        "no-m": "from stage 2 on every micro-batch sends",
        "always-m": "at stages 0 and 1 gradients travel once in a step",
        "gathered-each": "at stage 2 the copies are gathered once in a step",
        "one-gather": "at stage 3 the copies are gathered twice for a micro-batch",
        "elements": "an entry has two bytes",
        "whole": "a message is a piece, not a tensor",
        "rounded": "floats and int64 are not",
        "int64": "floats and int64 are not",
    },
}
