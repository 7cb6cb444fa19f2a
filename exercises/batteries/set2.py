"""Problem set 2 and what people get wrong in it.

RIGHT    a second right answer to every exercise, written differently from the instructor's; it has to earn all points
WRONG    {exercise: {name: (description, {grade id: code})}}; each is RIGHT with a fault planted, and has to lose points
MESSAGE  {exercise: {name: words}}: what the first failed test has to say about that fault
"""

from functools import partial

from batteries.changes import changed

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
    L, O = torch.stack([L1, L2]), torch.stack([O1, O2])
    nothing = torch.isneginf(L)
    share = torch.softmax(torch.where(nothing.all(0), 0, L), 0)[..., None]
    O = torch.where(nothing[..., None], 0, O)
    return (share * O).sum(0), torch.logsumexp(L, 0)
""",
}


def but(cell, *changes):
    return {cell: changed(RIGHT[cell], *changes)}


heads = partial(but, "heads_answer")
distance = partial(but, "distance_answer")
window = partial(but, "window_answer")
sink = partial(but, "sink_answer")
repair = partial(but, "repair_answer")
flops = partial(but, "flops_answer")
lean = partial(but, "lean_answer")
merge = partial(but, "merge_answer")
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
        "small-temperature": (
            "a temperature of 1e-9 in the place of 0",
            heads(("np.where(hard, 1, tau)", "np.maximum(tau, 1e-9)"), ("np.where(hard, S == 0, E)", "E")),
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
        "one-query": (
            "drops the axis of the queries where there is one",
            heads(("return P @ V", "O = P @ V\n    return O[..., 0, :] if O.shape[-2] == 1 else O")),
        ),
        "small-is-zero": ("takes temperatures below 1e-8 for 0", heads(("tau == 0", "tau < 1e-8"))),
        "nearly-equal": ("at temperature 0 a tolerance for equal scores", heads(("S == 0", "S > -1e-12"))),
        "reciprocal": (
            "multiplies by 1 over the temperature, which may overflow",
            heads(("S / np.where(hard, 1, tau)", "S * (1 / np.where(hard, 1, tau))")),
        ),
        "cut-off": ("cuts the scores off at -1e3", heads(("np.exp(S /", "np.exp(np.maximum(S, -1e3) /"))),
        "start-low": (
            "subtracts a maximum that is never below -1e3",
            heads(("S.max(axis=-1, keepdims=True)", "np.maximum(S.max(axis=-1, keepdims=True), -1e3)")),
        ),
        "half": (
            "float16 becomes float32",
            heads(("return P @ V", "return (P @ V).astype(np.result_type(Q, np.float32))")),
        ),
        "limit-float64": (
            "float64 where a temperature is 0",
            heads(("return P @ V", "return (P @ V).astype(float if hard.any() else Q.dtype)")),
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
        "one-query": (
            "drops the axis of the queries where there is one",
            distance(("return P, vjp", "return (P[..., 0, :] if P.shape[-2] == 1 else P), vjp")),
        ),
        "half": (
            "float16 becomes float32",
            distance(("    gap =", "    Q, K = (X.astype(np.result_type(X, np.float32)) for X in (Q, K))\n    gap =")),
        ),
        "no-batch": ("two axes only", distance(("np.swapaxes(K, -1, -2)", "K.T"))),
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
                "window_answer": "def window_mask(n, m, width, dilation=1, sinks=0):\n"
                "    return torch.ones(n, m, dtype=torch.bool)\n"
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
        "unshifted": (
            "shifts the scores by their maximum, but not the sink",
            sink(
                ("np.maximum(S.max(-1, keepdims=True), b)", "S.max(-1, keepdims=True)"),
                ("L = top + np.log(np.exp(b - top)", "L = top + np.log(np.exp(b)"),
                ("np.exp(b - L)", "np.exp(b + top - L)"),
            ),
        ),
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
        "stand-in": (
            "-1e4 for minus infinity",
            sink(("    top =", "    S = np.where(np.isneginf(S), -1e4, S)\n    top =")),
        ),
        "half": (
            "float16 becomes float32",
            sink(("    top =", "    S = S.astype(np.result_type(S, np.float32))\n    top =")),
        ),
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
        "squeeze": ("drops every axis of length 1 of the entropy", repair(("H[..., 0]", "H.squeeze()"))),
        "start-1e3": ("the maximum starts at -1e3", repair(("-np.inf", "-1e3"))),
        "start-1e9": ("the maximum starts at -1e9", repair(("-np.inf", "-1e9"))),
        "no-batch": ("two axes only", repair(("np.swapaxes(K[..., part, :], -1, -2)", "K[..., part, :].T"))),
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
        "squeeze": (
            "drops the axis of a single vector",
            but("variance_measure", ("zip(X, p):\n        for", "zip(X.squeeze(), p):\n        for")),
        ),
        "enumerates": (
            "lists all vectors instead of predicting",
            {
                "variance_predict": """\
def predicted_variance(d, r):
    X, p = sign_vectors(d, r)
    return p @ (X @ X.T) ** 2 @ p
"""
            },
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
        "rounded": (
            "counts in floating point and makes whole numbers of it",
            flops(('"attention": 2 * heads * n * m * k + 2 *', '"attention": int(2.0 * heads * n * m * k) + 2 *')),
        ),
        "rounded-bytes": (
            "counts bytes in floating point and makes whole numbers of it",
            flops(("itemsize * heads * n * m,", "int(itemsize * float(heads * n * m)),")),
        ),
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
                    "        S = A.new_empty(len(A), len(B))\n"
                    "        for i in range(len(A)):\n"
                    "            S[i] = torch.tanh(A[i] + B) @ w\n"
                    "        return S",
                    "        return torch.tanh(A[:, None] + B) @ w",
                )
            ),
        ),
        "keeps-all": (
            "keeps every block of hidden units for the backward pass",
            lean(
                (
                    "            S[i] = torch.tanh(A[i] + B) @ w\n",
                    "            ctx.H = [*getattr(ctx, 'H', []), torch.tanh(A[i] + B)]\n"
                    "            S[i] = ctx.H[i] @ w\n",
                ),
                ("            H = torch.tanh(A[i] + B)\n            D", "            H = ctx.H[i]\n            D"),
            ),
        ),
        "float64": (
            "computes in float64 whatever came in",
            lean(("A.new_empty(len(A), len(B))", "torch.empty(len(A), len(B), dtype=torch.float64)")),
        ),
        "last-dw": ("keeps only the last query's part of dw", lean(("dw += dS", "dw = dS"))),
        "one-query": (
            "drops the axis of the queries where there is one",
            lean(("        return S", "        return S[0] if len(S) == 1 else S")),
        ),
        "one-unit": (
            "drops the axis of the hidden units where there is one",
            lean(("torch.tanh(A[i] + B) @ w", "torch.tanh(A[i] + B).squeeze() @ w")),
        ),
        "half": (
            "float16 becomes float32",
            lean(
                (
                    "A.new_empty(len(A), len(B))",
                    "A.new_empty(len(A), len(B), dtype=torch.promote_types(A.dtype, torch.float32))",
                )
            ),
        ),
    },
    "merge": {
        "average": ("the mean of the two outputs", merge(("(share * O).sum(0)", "O.mean(0)"))),
        "swapped": ("each output with the other's share", merge(("(share * O)", "(share.flip(0) * O)"))),
        "linear": (
            "shares in proportion to L instead of its exponential",
            merge(("torch.softmax(torch.where(nothing.all(0), 0, L), 0)[..., None]", "(L / L.sum(0))[..., None]")),
        ),
        "undivided": (
            "multiplies by the sums and does not divide by the new one",
            merge(("torch.softmax(torch.where(nothing.all(0), 0, L), 0)", "L.exp()")),
        ),
        "sum": ("adds the logarithms", merge(("torch.logsumexp(L, 0)", "L.sum(0)"))),
        "maximum": ("the larger of the two logarithms", merge(("torch.logsumexp(L, 0)", "L.amax(0)"))),
        "overflow": ("exponentiates without a shift", merge(("torch.logsumexp(L, 0)", "L.exp().sum(0).log()"))),
        "nan-leak": (
            "multiplies an output that is to be ignored by 0",
            merge(("torch.where(nothing[..., None], 0, O)", "O")),
        ),
        "both-empty": ("subtracts -inf from -inf", merge(("torch.where(nothing.all(0), 0, L)", "L"))),
        "coarse": (
            "takes the shares from the merged L, which float16 has rounded",
            merge(
                (
                    "torch.softmax(torch.where(nothing.all(0), 0, L), 0)",
                    "torch.where(nothing, 0, (L - torch.logsumexp(L, 0)).exp())",
                )
            ),
        ),
        "float32": (
            "computes and returns float32",
            merge(
                ("torch.stack([L1, L2])", "torch.stack([L1, L2]).float()"),
                ("torch.stack([O1, O2])", "torch.stack([O1, O2]).float()"),
            ),
        ),
        "mutates": (
            "clears the empty rows of its argument in place",
            merge(("    L, O", "    O1.masked_fill_(torch.isneginf(L1)[..., None], 0)\n    L, O")),
        ),
        "no-batch": ("two axes only", merge(("0, L), 0)[..., None]", "0, L), 0)[:, :, None]"))),
        "stand-in": (
            "-1e4 for minus infinity",
            merge(("torch.where(nothing.all(0), 0, L)", "torch.where(nothing, -1e4, L)")),
        ),
        "one-query": (
            "drops the axis of the queries where there is one",
            merge(
                ("return (share * O).sum(0), torch", "O = (share * O).sum(0)\n    return O.squeeze(-2), torch"),
            ),
        ),
        "finite-half": (
            "the lowest float16 for minus infinity",
            merge(
                (
                    "torch.logsumexp(L, 0)",
                    "torch.logsumexp(L, 0).clamp(min=-65504 if L.dtype == torch.float16 else -math.inf)",
                )
            ),
        ),
        "larger-half": (
            "the larger of the two logarithms, in half precision only",
            merge(("torch.logsumexp(L, 0)", "(torch.logsumexp(L, 0) if L.dtype == torch.float64 else L.amax(0))")),
        ),
    },
}

MESSAGE = {
    "heads": {
        "no-scale": "not divided by the square root of the key width",
        "wrong-axis": "sum to 1 over the queries, axis -2; normalise over the keys, axis -1",
        "multiplies": "you multiply by the temperature",
        "along-keys": "your temperatures run along the keys",
        "zero-division": "take the limit instead",
        "small-temperature": "one score leads by 1e-10",
        "first-maximum": "equally large scores share the weight",
        "unstable": "scores of ±10⁴ give nan or inf",
        "divides-first": "subtract the maximum first, divide afterwards",
        "float64": "float32 went in, float64 came out",
        "no-batch": "your code raised ValueError",
        "one-query": "which keeps its axis of length 1",
        "small-is-zero": "a small temperature is not 0",
        "nearly-equal": "without a tolerance",
        "reciprocal": "1 over it is infinite",
        "cut-off": "cut no score off",
        "start-low": "subtract the row's own largest score",
        "half": "float16 went in, float32 came out",
        "limit-float64": "float32 went in, float64 came out, with a temperature of 0 among others",
        "mutates": "you changed your argument",
    },
    "distance": {
        "sign": "minus the squared distance",
        "no-half": "the factor 1/2 is missing",
        "sigma": "divide by 2σ²",
        "not-squared": "it should be its square",
        "no-key-norm": "norms of the keys are missing",
        "wrong-axis": "sum to 1 over the queries, axis -2; normalise over the keys, axis -1",
        "no-row-correction": "the row correction is missing",
        "no-column-term": "the columns of dS do not sum to 0",
        "gradient-scale": "the factor 1/σ² is missing",
        "unstable": "scores of -10⁴ give nan",
        "one-query": "axes of length 1 stay",
        "half": "float16 went in, P is float32",
        "three-axes": "multiply the square out instead",
    },
    "window": {
        "inverted": "your mask is inverted",
        "top-left": "they are the last n of the m positions",
        "too-wide": "one key too many",
        "future-sinks": "a sink that lies in the future is open",
        "no-sinks": "the sinks are ignored",
        "no-dilation": "the dilation is ignored",
        "short-reach": "width counts keys, not positions",
        "additive": "masks are boolean",
        "square": "has shape (7, 7); expected (2, 7)",
    },
    "sink": {
        "plain": "the sink takes no share",
        "one": "it should be b",
        "unshifted": "but not from b",
        "wrong-axis": "you normalise over axis -2",
        "no-row-correction": "the row correction is missing",
        "normalised-correction": "as if they summed to 1",
        "db-sign": "the sign is wrong",
        "db-rows": "one number that all rows share",
        "db-cancels": "where the sink's share is 1e-20",
        "stand-in": "no finite number stands for -inf",
        "half": "float16 went in; P is float32",
        "mutates": "you changed your argument",
    },
    "repair": {
        "as-given": "what the broken function returns",
        "start-left": "with all scores near -1000",
        "shrink-left": "the old sum is relative to the old maximum",
        "entropy-left": "log P_j = s_j - t - log z",
        "no-shrink": "never scaled to the new maximum",
        "shrink-up": "a larger maximum makes the old terms smaller",
        "last-block": "the incomplete last block is dropped",
        "bits": "in bits",
        "all-at-once": "work block by block",
        "entropy-axis": "expected one entropy per query",
        "squeeze": "one query keeps its axis of length 1",
        "start-1e3": "the maximum is that of no scores",
        "start-1e9": "that is no finite number",
    },
    "variance": {
        "no-mean": "subtract the square of the mean",
        "uniform": "weigh each pair by its probability",
        "same-draw": "sum over all pairs",
        "deviation": "the variance is asked for",
        "only-centred": "your mean is always 0",
        "independent": "two entries of one vector are correlated",
        "one-covariance": "a product of two covariances",
        "no-diagonal": "treat i = j apart",
        "entries-as-r": "it is q_i and q_j that are not",
        "half-the-pairs": "every pair i ≠ j twice",
        "enumerates": "your code raised",
    },
    "flops": {
        "no-two": "are two operations",
        "n-for-m": "made of the m rows of the context",
        "d-for-c": "the context has width c",
        "grouped-scores": "every query head scores every key",
        "all-heads-keys": "for kv_heads heads only",
        "no-output": "the output projection is missing",
        "k-for-v": "values have width v",
        "self-attention": "you count n keys",
        "numbers-not-bytes": "each takes itemsize bytes",
        "cache-heads": "heads that share them share the memory",
        "float": "whole numbers",
        "rounded": "count in whole numbers, not in floats",
        "rounded-bytes": "count in whole numbers, not in floats",
    },
    "lean": {
        "no-tanh": "the derivative of tanh is missing",
        "not-squared": "1 - tanh²; yours is 1 - tanh",
        "no-w": "the weights w are missing",
        "overwrites": "dB: only the last query's part",
        "swapped": "expected those of A, B, w in this order",
        "no-dw": "no gradient for w",
        "cotangent-ones": "the cotangent dS is ignored",
        "full": "handle one query at a time",
        "keeps-all": "keep A, B, w and compute again",
        "float64": "float32 went in",
        "last-dw": "dw: only the last query's part",
        "one-query": "has shape (4,); expected (1, 4)",
        "half": "float16 went in, S is torch.float32",
    },
    "merge": {
        "average": "the plain mean of the halves",
        "swapped": "each half has the other's share",
        "linear": "L is a logarithm",
        "undivided": "not divided by e^L1 + e^L2",
        "sum": "add the sums, then take the logarithm",
        "maximum": "larger than both",
        "overflow": "subtract the larger logarithm",
        "nan-leak": "0 * nan is nan",
        "coarse": "lie 16 apart",
        "stand-in": "no finite number stands for -inf",
        "one-query": "one query keeps its axis of length 1",
        "finite-half": "L in float16 where both halves are empty is not -inf",
        "float32": "float64 went in",
        "mutates": "you changed your argument",
    },
}
