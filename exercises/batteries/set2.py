"""Problem set 2 and what people get wrong in it.

RIGHT    a second right answer to every exercise, written otherwise than the instructor's: it has to earn all points
WRONG    {exercise: {name: (description, {grade id: code})}}; each is RIGHT with one fault planted, and has to lose points
MESSAGE  {exercise: {name: words}}: what the first failed test has to say about that fault
"""

RIGHT = {
    "heads_answer": """\
def head_temperature_attention(Q, K, V, temperatures):
    S = np.einsum("...nk,...mk->...nm", Q, K) / Q.shape[-1] ** 0.5
    tau = temperatures.reshape(-1, 1, 1)
    hard = tau == 0
    S = S - S.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        E = np.exp(S / np.where(hard, 1, tau))
    E = np.where(hard, S == 0, E)
    P = E / E.sum(axis=-1, keepdims=True)
    return P @ V
""",
    "distance_answer": """\
def distance_weights(Q, K, sigma):
    gap = (Q * Q).sum(-1)[..., :, None] + (K * K).sum(-1)[..., None, :] - 2 * Q @ np.swapaxes(K, -1, -2)
    S = -gap / (2 * sigma**2)
    E = np.exp(S - S.max(-1, keepdims=True))
    P = E / E.sum(-1, keepdims=True)

    def vjp(dP):
        dS = P * (dP - (P * dP).sum(-1, keepdims=True))
        dQ = (dS @ K - dS.sum(-1)[..., None] * Q) / sigma**2
        dK = (np.swapaxes(dS, -1, -2) @ Q - dS.sum(-2)[..., None] * K) / sigma**2
        return dQ, dK

    return P, vjp
""",
    "window_answer": """\
def window_mask(n, m, width, dilation=1, sinks=0):
    behind = torch.tensor([[m - n + i - j for j in range(m)] for i in range(n)])
    key = torch.arange(m)
    near = (behind % dilation == 0) & (behind < width * dilation)
    return (near | (key < sinks)) & (behind >= 0)
""",
    "sink_answer": """\
def sink_softmax(S, b):
    top = np.maximum(S.max(-1, keepdims=True), b)
    L = top + np.log(np.exp(b - top) + np.exp(S - top).sum(-1, keepdims=True))
    P, sink = np.exp(S - L), np.exp(b - L)

    def vjp(dP):
        row = (P * dP).sum(-1, keepdims=True)
        return P * (dP - row), -(sink * row).sum()

    return P, vjp
""",
    "repair_answer": """\
def streamed_attention(Q, K, V, block):
    t = np.full((*Q.shape[:-1], 1), -np.inf)
    z, u, a = 0.0, 0.0, 0.0
    for start in range(0, K.shape[-2], block):
        part = slice(start, start + block)
        S = Q @ np.swapaxes(K[..., part, :], -1, -2) / np.sqrt(Q.shape[-1])
        top = np.maximum(t, S.max(-1, keepdims=True))
        shrink, E = np.exp(t - top), np.exp(S - top)
        z = shrink * z + E.sum(-1, keepdims=True)
        u = shrink * u + (E * S).sum(-1, keepdims=True)
        a = shrink * a + E @ V[..., part, :]
        t = top
    H = t + np.log(z) - u / z
    return a / z, H[..., 0]
""",
    "variance_measure": """\
def dot_moments(X, p):
    mean = second = 0.0
    for x, px in zip(X, p):
        for y, py in zip(X, p):
            mean = mean + px * py * (x @ y)
            second = second + px * py * (x @ y) ** 2
    return mean, second - mean**2
""",
    "variance_predict": """\
def predicted_variance(d, r):
    return d * (1 - r**4) + d**2 * r**4
""",
    "flops_answer": """\
def cross_attention_cost(n, m, d, c, heads, kv_heads, k, v, itemsize):
    queries, outputs = 2 * n * d * heads * k, 2 * n * heads * v * d
    keys_and_values = 2 * m * c * kv_heads * (k + v)
    return {
        "projections": queries + keys_and_values + outputs,
        "attention": 2 * heads * n * m * k + 2 * heads * n * m * v,
        "weights_bytes": itemsize * heads * n * m,
        "cache_bytes": itemsize * kv_heads * m * (k + v),
    }
""",
    "lean_answer": """\
class LeanAdditiveScore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A, B, w):
        ctx.save_for_backward(A, B, w)
        S = A.new_empty(len(A), len(B))
        for i in range(len(A)):
            S[i] = torch.tanh(A[i] + B) @ w
        return S

    @staticmethod
    def backward(ctx, dS):
        A, B, w = ctx.saved_tensors
        dA, dB, dw = torch.zeros_like(A), torch.zeros_like(B), torch.zeros_like(w)
        for i in range(len(A)):
            H = torch.tanh(A[i] + B)
            D = torch.outer(dS[i], w) * (1 - H**2)
            dA[i] = D.sum(0)
            dB += D
            dw += dS[i] @ H
        return dA, dB, dw
""",
    "merge_answer": """\
def merge_attention(O1, L1, O2, L2):
    L = torch.logaddexp(L1, L2)
    safe = L.masked_fill(L == -torch.inf, 0)
    O = torch.zeros_like(O1)
    for part, size in ((O1, L1), (O2, L2)):
        share = torch.exp(size - safe)[..., None]
        O = O + torch.where(share > 0, share * part, torch.zeros_like(part))
    return O, L
""",
}


def but(cell, *changes):
    """The right answer with (old, new) replaced, once each."""
    code = RIGHT[cell]
    for old, new in changes:
        if code.count(old) != 1:
            raise ValueError(f"{cell}: {old!r} occurs {code.count(old)} times")
        code = code.replace(old, new)
    return {cell: code}


def heads(*changes):
    return but("heads_answer", *changes)


def distance(*changes):
    return but("distance_answer", *changes)


def window(*changes):
    return but("window_answer", *changes)


def sink(*changes):
    return but("sink_answer", *changes)


def repair(*changes):
    return but("repair_answer", *changes)


def flops(*changes):
    return but("flops_answer", *changes)


def lean(*changes):
    return but("lean_answer", *changes)


def merge(*changes):
    return but("merge_answer", *changes)


SHIFT = "    S = S - S.max(axis=-1, keepdims=True)\n"
T_FIRST, A_LATE = (
    ("np.full((*Q.shape[:-1], 1), -np.inf)", "np.zeros((*Q.shape[:-1], 1))"),
    (
        "a = shrink * a + E @ V[..., part, :]",
        "a = a + shrink * (E @ V[..., part, :])",
    ),
)
NO_TOP = ("H = t + np.log(z) - u / z", "H = np.log(z) - u / z")

WRONG = {
    "heads": {
        "no-scale": ("no division by the square root of the key width", heads((" / Q.shape[-1] ** 0.5", ""))),
        "wrong-axis": ("normalises over the queries", heads(("E.sum(axis=-1", "E.sum(axis=-2"))),
        "multiplies": (
            "multiplies by the temperature",
            heads(("S / np.where(hard, 1, tau)", "S * np.where(hard, 1, tau)")),
        ),
        "along-keys": (
            "temperatures run along the keys, not the heads",
            heads(("temperatures.reshape(-1, 1, 1)", "temperatures")),
        ),
        "zero-division": (
            "divides by a temperature of 0",
            heads(("np.where(hard, 1, tau)", "tau"), ("np.where(hard, S == 0, E)", "E")),
        ),
        "first-maximum": (
            "at temperature 0 the first of several largest scores takes all",
            heads(("S == 0", "np.arange(S.shape[-1]) == S.argmax(axis=-1)[..., None]")),
        ),
        "unstable": (
            "softmax without subtracting the maximum",
            heads((SHIFT, ""), ("S == 0", "S == S.max(axis=-1, keepdims=True)")),
        ),
        "divides-first": (
            "divides by the temperature before it subtracts the maximum",
            heads((SHIFT, "    S = S / np.where(hard, 1, tau)\n" + SHIFT), ("S / np.where(hard, 1, tau))", "S)")),
        ),
        "float64": (
            "np.sqrt of an integer turns float32 into float64",
            heads(("Q.shape[-1] ** 0.5", "np.sqrt(Q.shape[-1])")),
        ),
        "no-batch": ("three axes only", heads(("...nk,...mk->...nm", "hnk,hmk->hnm"))),
        "mutates": (
            "scales Q in place",
            heads(
                ("    S = np", "    Q /= Q.shape[-1] ** 0.5\n    S = np"),
                (" / Q.shape[-1] ** 0.5\n    tau", "\n    tau"),
            ),
        ),
    },
    "distance": {
        "sign": ("weights grow with the distance", distance(("S = -gap", "S = gap"))),
        "no-half": ("no factor 1/2", distance(("(2 * sigma**2)", "sigma**2"))),
        "sigma": ("divides by sigma, not by its square", distance(("(2 * sigma**2)", "(2 * sigma)"))),
        "not-squared": ("the distance instead of its square", distance(("-gap /", "-np.sqrt(np.abs(gap)) /"))),
        "no-key-norm": ("leaves out the squared norms of the keys", distance(("(K * K).sum(-1)[..., None, :]", "0"))),
        "wrong-axis": ("normalises over the queries", distance(("E.sum(-1, keepdims", "E.sum(-2, keepdims"))),
        "no-row-correction": (
            "gradient without the row correction",
            distance(("(dP - (P * dP).sum(-1, keepdims=True))", "dP")),
        ),
        "no-column-term": ("dK without the term of the keys", distance((" - dS.sum(-2)[..., None] * K", ""))),
        "gradient-scale": (
            "gradients without 1/sigma squared",
            distance(("* Q) / sigma**2", "* Q)"), ("* K) / sigma**2", "* K)")),
        ),
        "untransposed": ("dK without the transposition of dS", distance(("np.swapaxes(dS, -1, -2)", "dS"))),
        "unstable": ("softmax without subtracting the maximum", distance(("S - S.max(-1, keepdims=True)", "S"))),
        "three-axes": (
            "forms the differences of all queries and keys, (n, m, k)",
            distance(
                (
                    RIGHT["distance_answer"].split("\n")[1],
                    "    gap = ((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(-1)",
                )
            ),
        ),
    },
    "window": {
        "inverted": (
            "True where a query may not attend",
            window(
                ("return (near | (key < sinks)) & (behind >= 0)", "return ~((near | (key < sinks)) & (behind >= 0))")
            ),
        ),
        "top-left": ("aligned to the top left corner", window(("m - n + i - j", "i - j"))),
        "too-wide": ("one key too many", window(("behind < width", "behind <= width"))),
        "two-sided": (
            "the window looks ahead as far as back",
            window((" & (behind >= 0)", ""), ("(behind <", "(behind.abs() <")),
        ),
        "future-sinks": (
            "sinks that are still to come are open",
            window(("(near | (key < sinks)) & (behind >= 0)", "(near & (behind >= 0)) | (key < sinks)")),
        ),
        "no-sinks": ("ignores the sinks", window(("near | (key < sinks)", "near"))),
        "no-dilation": (
            "ignores the dilation",
            window(("(behind % dilation == 0) & (behind < width * dilation)", "behind < width")),
        ),
        "short-reach": ("counts the width in positions, not in keys", window(("width * dilation", "width"))),
        "additive": (
            "a float mask of 0 and -inf",
            window(
                (
                    "(near | (key < sinks)) & (behind >= 0)",
                    "torch.where((near | (key < sinks)) & (behind >= 0), 0.0, -torch.inf)",
                )
            ),
        ),
        "square": (
            "m rows instead of n",
            window(("m - n + i - j", "i - j"), ("for i in range(n)", "for i in range(m)")),
        ),
        "ones": (
            "lets all attend to all",
            {
                "window_answer": "def window_mask(n, m, width, dilation=1, sinks=0):\n    return torch.ones(n, m, dtype=torch.bool)\n"
            },
        ),
    },
    "sink": {
        "plain": (
            "ordinary softmax: the sink takes nothing",
            sink(
                ("np.exp(b - top) + np", "np"), ("np.maximum(S.max(-1, keepdims=True), b)", "S.max(-1, keepdims=True)")
            ),
        ),
        "one": ("a sink of logit 0 whatever b is", sink(("np.exp(b - top)", "np.exp(-top)"))),
        "unshifted": ("shifts the scores, but not the sink", sink(("np.exp(b - top)", "np.exp(b)"))),
        "wrong-axis": (
            "normalises over the axis before the last",
            sink(("np.exp(S - top).sum(-1", "np.exp(S - top).sum(-2")),
        ),
        "no-row-correction": ("gradient without the row correction", sink(("P * (dP - row)", "P * dP"))),
        "normalised-correction": (
            "the row correction of weights that sum to 1",
            sink(("P * (dP - row)", "P * (dP - row / P.sum(-1, keepdims=True))")),
        ),
        "db-sign": ("the sink's gradient with the wrong sign", sink(("-(sink * row).sum()", "(sink * row).sum()"))),
        "db-rows": ("the sink's gradient not summed over the rows", sink(("-(sink * row).sum()", "-(sink * row)"))),
        "db-cancels": (
            "the sink's share as 1 minus the sum: all digits lost where it is small",
            sink(("-(sink * row).sum()", "-((1 - P.sum(-1, keepdims=True)) * row).sum()")),
        ),
        "unstable": (
            "exponentiates without a shift",
            sink(("np.maximum(S.max(-1, keepdims=True), b)", "0 * S[..., :1]")),
        ),
        "own-maximum": (
            "shifts by the maximum of the scores alone",
            sink(("np.maximum(S.max(-1, keepdims=True), b)", "S.max(-1, keepdims=True)")),
        ),
        "mutates": ("subtracts b from the scores in place", sink(("    top =", "    S -= b\n    b = 0.0\n    top ="))),
    },
    "repair": {
        "as-given": ("returns the function as it was", repair(T_FIRST, A_LATE, NO_TOP)),
        "start-left": ("the maximum still starts at 0", repair(T_FIRST)),
        "shrink-left": ("the correction still falls on the new block", repair(A_LATE)),
        "entropy-left": ("the entropy still lacks the maximum", repair(NO_TOP)),
        "no-shrink": ("the output is never corrected", repair(("a = shrink * a", "a = a"))),
        "shrink-up": ("corrects in the wrong direction", repair(("np.exp(t - top)", "np.exp(top - t)"))),
        "last-block": (
            "drops an incomplete last block",
            repair(("range(0, K.shape[-2], block)", "range(0, K.shape[-2] - block + 1, block)")),
        ),
        "bits": ("entropy in bits", repair(("return a / z, H[..., 0]", "return a / z, H[..., 0] / np.log(2)"))),
        "all-at-once": ("holds all scores", repair(("    t = np.full", "    block = K.shape[-2]\n    t = np.full"))),
        "entropy-axis": ("leaves an axis of length 1 on the entropy", repair(("H[..., 0]", "H"))),
    },
    "variance": {
        "no-mean": ("the second moment, mean not subtracted", but("variance_measure", ("second - mean**2", "second"))),
        "uniform": (
            "all vectors equally likely",
            but("variance_measure", ("mean = second", "p = [1 / len(X)] * len(X)\n    mean = second")),
        ),
        "same-draw": (
            "query and key are one draw",
            but("variance_measure", ("for y, py in zip(X, p):", "for y, py in [(x, 1)]:")),
        ),
        "deviation": (
            "standard deviation instead of variance",
            but("variance_measure", ("second - mean**2", "(second - mean**2) ** 0.5")),
        ),
        "only-centred": (
            "returns a mean of 0 whatever the distribution",
            but("variance_measure", ("return mean,", "return 0.0,")),
        ),
        "independent": (
            "the theorem for independent entries",
            but("variance_predict", ("d * (1 - r**4) + d**2 * r**4", "d")),
        ),
        "one-covariance": (
            "covariance of one of the two vectors only",
            but("variance_predict", ("d * (1 - r**4) + d**2 * r**4", "d + d * (d - 1) * r**2")),
        ),
        "no-diagonal": (
            "all pairs of entries, the same entry included, count as correlated",
            but("variance_predict", ("d * (1 - r**4) + ", "")),
        ),
        "entries-as-r": (
            "takes r for the covariance of q_i and k_i",
            but("variance_predict", ("d * (1 - r**4) + d**2 * r**4", "d * (1 - r**2)")),
        ),
        "half-the-pairs": (
            "counts every pair of entries once",
            but("variance_predict", ("d * (1 - r**4) + d**2 * r**4", "d + d * (d - 1) / 2 * r**4")),
        ),
    },
    "flops": {
        "no-two": (
            "counts a multiplication and an addition as one",
            flops(
                ("= 2 * n * d * heads * k, 2 * n", "= n * d * heads * k, n"),
                ("= 2 * m", "= m"),
                ("2 * heads * n * m * k + 2 * heads", "heads * n * m * k + heads"),
            ),
        ),
        "n-for-m": ("projects n keys and values", flops(("2 * m * c", "2 * n * c"))),
        "d-for-c": ("takes the context to be as wide as the model", flops(("2 * m * c", "2 * m * d"))),
        "grouped-scores": (
            "scores for the key heads only",
            flops(("2 * heads * n * m * k + 2 * heads", "2 * kv_heads * n * m * k + 2 * kv_heads")),
        ),
        "all-heads-keys": (
            "projects keys and values for every head",
            flops(("2 * m * c * kv_heads", "2 * m * c * heads")),
        ),
        "no-output": ("forgets the output projection", flops((" + outputs,", ","))),
        "k-for-v": ("takes values to be as wide as keys", flops(("2 * heads * n * m * v", "2 * heads * n * m * k"))),
        "self-attention": (
            "n keys instead of m in scores and values",
            flops(("2 * heads * n * m * k + 2 * heads * n * m * v", "2 * heads * n * n * k + 2 * heads * n * n * v")),
        ),
        "numbers-not-bytes": (
            "counts numbers, not bytes",
            flops(("itemsize * heads", "heads"), ("itemsize * kv_heads", "kv_heads")),
        ),
        "cache-heads": (
            "a cache of keys and values for every head",
            flops(("itemsize * kv_heads", "itemsize * heads")),
        ),
        "float": ("floating-point counts", flops(('"attention": 2 *', '"attention": 2.0 *'))),
    },
    "lean": {
        "no-tanh": ("gradient without the derivative of tanh", lean((" * (1 - H**2)", ""))),
        "not-squared": ("1 - H for the derivative of tanh", lean(("1 - H**2", "1 - H"))),
        "no-w": ("gradient without w", lean(("torch.outer(dS[i], w)", "dS[i][:, None]"))),
        "overwrites": ("keeps only the last query's part of dB", lean(("dB += D", "dB = D"))),
        "swapped": ("returns the gradients in the wrong order", lean(("return dA, dB, dw", "return dB, dA, dw"))),
        "no-dw": ("no gradient for w", lean(("return dA, dB, dw", "return dA, dB, None"))),
        "cotangent-ones": (
            "ignores the cotangent",
            lean(("        A, B, w = ctx", "        dS = torch.ones_like(dS)\n        A, B, w = ctx")),
        ),
        "full": (
            "forms all hidden units at once",
            lean(
                (
                    "        S = A.new_empty(len(A), len(B))\n        for i in range(len(A)):\n            S[i] = torch.tanh(A[i] + B) @ w\n        return S",
                    "        return torch.tanh(A[:, None] + B) @ w",
                )
            ),
        ),
        "keeps-all": (
            "keeps every block of hidden units for the backward pass",
            lean(
                (
                    "            S[i] = torch.tanh(A[i] + B) @ w\n",
                    "            ctx.H = [*getattr(ctx, 'H', []), torch.tanh(A[i] + B)]\n            S[i] = ctx.H[i] @ w\n",
                ),
                ("            H = torch.tanh(A[i] + B)\n            D", "            H = ctx.H[i]\n            D"),
            ),
        ),
        "float64": (
            "computes in float64 whatever came in",
            lean(("A.new_empty(len(A), len(B))", "torch.empty(len(A), len(B), dtype=torch.float64)")),
        ),
        "last-dw": ("keeps only the last query's part of dw", lean(("dw += dS", "dw = dS"))),
    },
    "merge": {
        "average": (
            "the mean of the two outputs",
            merge(("torch.exp(size - safe)[..., None]", "0.5 * torch.ones_like(L)[..., None]")),
        ),
        "swapped": ("each output with the other's share", merge(("((O1, L1), (O2, L2))", "((O1, L2), (O2, L1))"))),
        "linear": (
            "shares in proportion to L instead of its exponential",
            merge(("torch.exp(size - safe)", "(size / (L1 + L2))")),
        ),
        "sum": ("adds the logarithms", merge(("return O, L\n", "return O, L1 + L2\n"))),
        "maximum": ("the larger of the two logarithms", merge(("return O, L\n", "return O, torch.maximum(L1, L2)\n"))),
        "overflow": (
            "exponentiates without a shift",
            merge(("torch.logaddexp(L1, L2)", "torch.log(L1.exp() + L2.exp())")),
        ),
        "nan-leak": (
            "multiplies an output that is to be ignored by 0",
            merge(("torch.where(share > 0, share * part, torch.zeros_like(part))", "share * part")),
        ),
        "both-empty": (
            "subtracts -inf from -inf",
            merge(
                ("L.masked_fill(L == -torch.inf, 0)", "L"),
                (
                    "torch.where(share > 0, share * part, torch.zeros_like(part))",
                    "torch.where(share == 0, 0, share * part)",
                ),
            ),
        ),
        "float32": (
            "returns float32 for float16",
            merge(("L = torch", "O1, L1, O2, L2 = (X.float() for X in (O1, L1, O2, L2))\n    L = torch")),
        ),
        "mutates": (
            "works in place on the first output",
            merge(
                ("O = torch.zeros_like(O1)", "O = O1.mul_(torch.exp(L1 - safe)[..., None])"),
                ("in ((O1, L1), (O2, L2))", "in ((O2, L2),)"),
            ),
        ),
        "no-batch": ("two axes only", merge(("torch.exp(size - safe)[..., None]", "torch.exp(size - safe)[:, None]"))),
    },
}

MESSAGE = {}
