"""Every check is seen to fail: each row plants one fault in a library of its own, and the component's cases must die.

The faults are the mistakes that people make: no scale, wrong axis, no row correction, a mask inverted, an unstable
softmax, a cotangent not summed. A fault that survives means that the cases of tests/attnmath/cases look away.
"""

import importlib
import inspect
import sys
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType

import numpy as np
import pytest

import tests.attnmath

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "lib" / "attnmath"

# file, right, wrong, and the component whose cases must see it
FAULTS = [
    ("numpy/softmax.py", "E = np.exp((S - top) / temperature)", "E = np.exp(S / temperature)", "softmax"),
    ("numpy/softmax.py", "P * (dP - (P * dP).sum(-1, keepdims=True)) / temperature", "P * dP / temperature", "softmax"),
    ("numpy/softmax.py", "(dP - (P * dP).sum(-1, keepdims=True)) / temperature", "(dP - (P * dP).sum(-1, keepdims=True))", "softmax"),
    ("numpy/softmax.py", "np.exp(logP) * dlogP.sum(-1, keepdims=True)", "np.exp(logP) * dlogP", "log_softmax"),
    ("numpy/softmax.py", "dL[..., None] * (E / np.where", "(E / np.where", "logsumexp"),
    ("numpy/scoring_functions.py", "c = factor(scale, sizes[\"k\"])", "c = 1 / sizes[\"k\"]", "scaled_dot_score"),
    ("numpy/scoring_functions.py", "c * (T(dS) @ Q)", "T(dS) @ Q", "scaled_dot_score"),
    ("numpy/scoring_functions.py", "dS @ K @ W.T", "dS @ K @ W.T / 2", "multiplicative_score"),
    ("numpy/scoring_functions.py", "(1 - H * H)", "(1 - H)", "additive_score"),
    ("numpy/attention.py", "else np.where(mask, S,", "else np.where(~mask, S,", "attention"),
    ("numpy/attention.py", "dV = T(P) @ dO  # eq", "dV = P.sum(-2)[..., None] * dO.mean(-2, keepdims=True)  # eq", "attention"),
    ("numpy/attention.py", "shrink * z + E.sum", "z + E.sum", "attention_chunked"),
    ("numpy/attention.py", "dS -= row[at]", "dS -= row[at] / z[at]", "attention_fused"),
    ("numpy/attention.py", "dV[i] += T(E)", "dV[i] = T(E)", "attention_fused"),
    ("numpy/attention.py", "z[z == 0] = 1", "pass", "attention_fused"),
    ("numpy/attention.py", "@ T(V[..., block, :]) - row)", "@ T(V[..., block, :]))", "attention_chunked"),
    ("numpy/attention.py", "dG, dP = T(P) @ dO, dO @ T(G)", "dG, dP = T(P) @ dO, dO @ T(V)[..., : G.shape[-1], :]", "general_attention"),
    ("numpy/soft_cap.py", "dY * (1 - tanh * tanh)", "dY", "attention_weights"),
    ("numpy/soft_cap.py", "dY * (1 - tanh * tanh)", "dY * (1 - tanh)", "attention"),
    ("numpy/soft_cap.py", "bound * tanh", "tanh", "attention"),
    ("numpy/attention.py", "score_vjp(cap_vjp(dS))", "score_vjp(dS)", "attention"),
    ("numpy/attention.py", "K, scale=scale)", "K)", "attention"),
    ("numpy/attention.py", "queries = np.broadcast_to(Q, (*sizes[\"...\"], *Q.shape[-2:]))", "queries = Q", "attention"),
    ("numpy/attention.py", "c = factor(scale, sizes[\"k\"])", "c = factor(None, sizes[\"k\"])", "attention_fused"),
    ("numpy/attention.py", "S *= softcap", "pass", "attention_fused"),
    ("numpy/attention.py", "np.subtract(1, S * S,", "np.subtract(1, S,", "attention_fused"),
    ("numpy/attention.py", "dS *= buffers[2, : len(E), : E.shape[1]]", "pass", "attention_fused"),
    ("torch/soft_cap.py", "bound * torch.tanh(X / bound)", "bound * torch.tanh(X)", "attention"),
    ("torch/attention.py", "S = _capped(S, softcap)\n    S = _allow(S if bias is None else S + bias, mask)", "S = _allow(_capped(S if bias is None else S + bias, softcap), mask)", "attention_weights"),
    ("torch/attention.py", "queries = Q.expand(*sizes[\"...\"], *Q.shape[-2:])", "queries = Q", "attention"),
    ("torch/attention.py", "X.expand(*shape[:-2], *X.shape[-2:]) for", "X for", "attention_fused"),
    ("torch/attention.py", "bias=bias, empty_rows=empty_rows, scale=scale, softcap=softcap)\n    Q, K", "bias=bias, empty_rows=empty_rows, softcap=softcap)\n    Q, K", "attention_fused"),
    ("torch/attention.py", "is_causal=True, scale=c", "is_causal=True", "attention_fused"),
    ("torch/attention.py", "attn_mask=bias, scale=c", "attn_mask=bias", "attention_fused"),
    ("torch/scoring_functions.py", "factor(scale, sizes", "factor(None, sizes", "scaled_dot_score"),
    ("numpy/normalisation.py", "dN - dN.mean(-1, keepdims=True) - N", "dN - N", "layer_norm"),
    ("numpy/normalisation.py", "N * (dN * N).mean(-1, keepdims=True)", "0 * N", "layer_norm"),
    ("numpy/activations.py", "np.multiply(dY, Phi + X * phi, out)", "np.multiply(dY, Phi, out)", "gelu"),
    ("numpy/linear.py", "dY @ W.T, rows.T @ dY, dY.sum(0, total)", "dY @ W.T, rows.T @ dY, dY.mean(0)", "linear"),
    ("numpy/linear.py", "{\"weight\": dW} | ({\"bias\": db} if", "{\"weight\": dW} | ({\"bias\": 0 * db} if", "affine"),
    ("torch/linear.py", "return F.linear(X, W.T)\n", "return F.linear(X, W.T, W[0])\n", "affine"),
    ("numpy/activations.py", "dY * (X > 0)", "dY * (X >= 0)", "relu"),
    ("numpy/activations.py", "beta * Y * (1 - gate)", "Y * (1 - gate)", "swish"),
    ("numpy/activations.py", "np.exp(-beta * X)", "np.exp(-X)", "swish"),
    ("numpy/activations.py", "return swish(X)", "return swish(X, 1.702)", "silu"),
    ("numpy/activations.py", "out *= 3 * a * c", "out *= a * c", "gelu_tanh"),
    ("torch/activations.py", "approximate=\"tanh\"", "approximate=\"none\"", "gelu_tanh"),
    ("numpy/normalisation.py", "dN - N * (dN * N).mean(-1, keepdims=True))  # eq:rms", "dN - N * (dN * N).sum(-1, keepdims=True))  # eq:rms", "rms_norm"),
    ("numpy/normalisation.py", "(W * W).mean(-1, keepdims=True) + scaled_eps)", "(W * W).mean(-1, keepdims=True))", "rms_norm"),
    ("torch/normalisation.py", "(X * X).mean(-1, keepdim=True) + eps", "(X * X).sum(-1, keepdim=True) + eps", "rms_norm"),
    ("numpy/feed_forward.py", "activation_vjp(dH * U)", "activation_vjp(dH)", "gated_feed_forward"),
    ("numpy/feed_forward.py", "dX1 + dX2, {\"gate\"", "dX1, {\"gate\"", "gated_feed_forward"),
    ("torch/feed_forward.py", "G = activation(affine(X, params[\"gate\"]))\n    U = affine(X, params[\"up\"])", "G = activation(affine(X, params[\"up\"]))\n    U = affine(X, params[\"gate\"])", "gated_feed_forward"),
    ("numpy/multi_head.py", "X = X.swapaxes(-2, -3)\n    return X.reshape", "return X.reshape", "multi_head_attention"),
    ("numpy/cores.py", "np.repeat(X, times, -3)", "np.concatenate([X] * times, -3)", "multi_head_attention"),
    ("numpy/cores.py", "core_vjp(np.concatenate([dO, np.zeros(", "core_vjp(np.concatenate([0 * dO, np.zeros(", "recording"),
    ("numpy/cores.py", "- np.arange(first, m)) <= width", "- np.arange(first, m)) < width", "windowed"),
    ("numpy/cores.py", "+ m - n - np.arange(first, m)", "- np.arange(first, m)", "windowed"),
    ("numpy/cores.py", "rest[-1] = _behind(rest[-1], first, -1)", "rest[-1] = 0 * bias", "windowed"),
    ("numpy/cores.py", "near & cut(np.asarray(mask))", "near", "windowed"),
    ("numpy/cores.py", "np.concatenate([np.zeros(ahead, dX.dtype), dX], axis)", "np.concatenate([dX, np.zeros(ahead, dX.dtype)], axis)", "windowed"),
    ("torch/cores.py", "+ m - n - j).abs() <= width", "+ m - n - j) <= width", "windowed"),
    ("torch/cores.py", "options[\"bias\"] = cut(bias)", "pass", "windowed"),
    ("numpy/multi_head.py", "dY, dparams[f\"{name}_norm\"] = norm_vjp(dY)", "_, dparams[f\"{name}_norm\"] = norm_vjp(dY)", "multi_head_attention"),
    ("numpy/multi_head.py", "add(dparams[key], dvalue)", "dvalue", "multi_head_sum"),
    ("torch/multi_head.py", "Y = normalise(Y, params[f\"{name}_norm\"], norm)", "Y = normalise(Y, params[\"query_norm\"], norm)", "multi_head_attention"),
    ("numpy/residuals.py", "for name in reversed(vjps)", "for name in vjps", "block"),
    ("torch/residuals.py", "f=f, own=own: f(Z, own)", "f=f, own=params[\"first\"]: f(Z, own)", "block"),
    ("numpy/cores.py", "*dX.shape[-2:]).sum(-3)", "*dX.shape[-2:]).mean(-3)", "multi_head_attention"),
    ("numpy/multi_head.py", "j = i * counts[name] // heads", "j = i % counts[name]", "multi_head_sum"),
    ("numpy/multi_head.py", "O, pieces = params[\"output\"].get", "O, pieces = heads * params[\"output\"].get", "multi_head_sum"),
    ("numpy/self_attention.py", "dQ @ Wq.T + dK @ Wk.T + dV @ Wv.T", "dQ @ Wq.T + dV @ Wv.T", "self_attention"),
    ("numpy/masks.py", "m - n)  # eq", "m - n + 1)  # eq", "self_attention"),
    ("numpy/convolution.py", "_delayed(X, s * dilation)", "_delayed(X, s)", "causal_conv"),
    ("numpy/convolution.py", "_advanced(dY @ Ws.T, s * dilation)", "_delayed(dY @ Ws.T, s * dilation)", "causal_conv"),
    ("numpy/softmax.py", "P * (information - H[..., None])", "P * information", "softmax_entropy"),
    ("torch/cores.py", "X.repeat_interleave(times, -3)", "X.repeat(*[1] * (X.ndim - 3), times, 1, 1)", "multi_head_attention"),
    ("numpy/encoder.py", "return dQ + dK + dV, *rest", "return dQ, *rest", "encoder_layer"),
    ("numpy/residuals.py", "return dsum + dX, dparams", "return dX, dparams", "sublayer"),
    ("numpy/residuals.py", "return dY + dX, dparams", "return dX, dparams", "sublayer"),
    ("numpy/residuals.py", "Y = X + F  # eq", "Y = N + F  # eq", "sublayer"),
    ("numpy/attention.py", "part += sum_to(dS, part.shape)", "part[...] = sum_to(dS, part.shape)", "attention_fused"),
    ("numpy/attention.py", "sum_to(dS, bias.shape)", "dS.reshape(-1, *dS.shape[-2:])[0].reshape(bias.shape)", "attention_weights"),
    ("numpy/multi_head.py", "dY if turn_vjp is None else turn_vjp(dY), {}", "dY, {}", "multi_head_attention"),
    ("numpy/multi_head.py", "dbias[0][_head(bias, i)] += dheads[3]", "dbias[0][_head(bias, i)] = dheads[2].sum()", "multi_head_sum"),
    ("torch/multi_head.py", "name != \"value\" and turn", "name == \"query\" and turn", "multi_head_attention"),
    ("torch/attention.py", "bias.expand(shape).masked_fill(~allowed, -torch.inf)", "bias.expand(shape)", "attention_fused"),
    ("numpy/decoder.py", "return dQ, dparams, dK + dV", "return dQ, dparams, dV", "decoder_layer"),
    ("numpy/decoder.py", "None if memory is None else sum(dmemories)", "None if memory is None else dmemories[-1]", "decoder"),
    ("numpy/relative_positions.py", "near * (offset > 0)", "near * (offset >= 0)", "relative_bias"),
    ("numpy/relative_positions.py", "np.add.at(dtable, buckets, np.moveaxis(dB, 0, -1))", "dtable[buckets] = np.moveaxis(dB, 0, -1)", "relative_bias"),
    ("numpy/transformer.py", "= word_vjp(scale * dX)", "= word_vjp(dX)", "token_embedding"),
    ("numpy/transformer.py", "first[name] + branch}", "branch}", "decoder_only"),
    ("numpy/transformer.py", "first[name] + branch}", "branch}", "transformer"),
    ("torch/transformer.py", "params.get(\"source_embeddings\", params[\"embeddings\"])", "params[\"embeddings\"]", "transformer"),
    ("numpy/transformer.py", "encoder_vjp(dM)", "encoder_vjp(dX)", "transformer"),
    ("numpy/embedding.py", "np.add.at(dtable, ids, dX)", "dtable[ids] = dX", "embedding"),
    ("numpy/bert.py", "_require.keys(mask, ids)[..., None, None, :]", "_require.keys(mask, ids)[..., None, :, None]", "bert"),
    ("numpy/bert.py", "- Y * (Y * dY).sum(-1, keepdims=True)", "", "unit_norm"),
    ("numpy/recurrent.py", "dh = dA[..., t, :] @ U.T", "dh = dA[..., t, :] @ U", "rnn"),
    ("torch/attention.py", "~torch.as_tensor(mask, device=S.device)", "torch.as_tensor(mask, device=S.device)", "attention"),
    ("torch/normalisation.py", "gain, bias, eps)  # eq", "gain, None, eps)  # eq", "layer_norm"),
    ("torch/bert.py", "mask.to(W.dtype) / mask.sum", "mask / mask.sum", "mean_pool"),
    ("numpy/relative_positions.py", "frequencies, places)", "frequencies)", "rotary"),
    ("torch/relative_positions.py", "frequencies, places)", "frequencies)", "rotary"),
    ("numpy/transformer.py", "np.add.at(dpositions, places,", "dpositions.__setitem__(places,", "token_embedding"),
    ("numpy/transformer.py", "dX, dparams[\"norm\"] = norm_vjp(dX)", "_, dparams[\"norm\"] = norm_vjp(dX)", "token_embedding"),
    ("torch/transformer.py", "return table[places]", "return table[: ids.shape[-1]]", "token_embedding"),
    ("numpy/embedding.py", "if segments is None else segments", "if True else segments", "bert_embedding"),
    ("torch/embedding.py", "if places is None else places", "if True else places", "bert_embedding"),
    ("numpy/transformer.py", "dX[..., -1:, :] = drow", "dX[..., :1, :] = drow", "decoder_only"),
    ("torch/transformer.py", "head(X[..., -1:, :]", "head(X[..., :1, :]", "decoder_only"),
    ("numpy/soft_cap.py", "head_vjp(cap_vjp(dY))", "head_vjp(dY)", "decoder_only"),
    ("numpy/soft_cap.py", "(1 - tanh * tanh)", "(1 - tanh)", "soft_cap"),
    ("torch/soft_cap.py", "bound * torch.tanh(X / bound)", "torch.tanh(X / bound)", "soft_cap"),
    ("numpy/sandwich.py", "return dY + dX", "return dX", "sandwich"),
    ("numpy/sandwich.py", "normalise(F, params[\"after\"]", "normalise(F, params[\"before\"]", "sandwich"),
    ("torch/sandwich.py", "X + normalise(F", "normalise(X + F", "sandwich"),
    ("numpy/relative_positions.py", "(X[..., ::2], X[..., 1::2])", "(X[..., : half], X[..., half:])", "rotary"),
    ("numpy/relative_positions.py", "if pairing == \"half\" else (X", "if pairing != \"half\" else (X", "rotary"),
    ("numpy/relative_positions.py", "a * cos - b * sin, a * sin + b * cos", "a * cos + b * sin, b * cos - a * sin", "rotary"),
    ("numpy/relative_positions.py", "turn(dY, -sin)", "turn(dY, sin)", "rotary"),
    ("numpy/positions.py", "np.arange(0, width, 2) / width", "np.arange(width // 2) / width", "rotary"),
    ("numpy/positions.py", "places = start + np.arange(n)", "places = np.arange(n)", "rotary"),
    ("numpy/relative_positions.py", "np.arange(m) - row - (m - n)", "np.arange(m) - row", "relative_score"),
    ("numpy/relative_positions.py", "np.arange(m) - row - (m - n)", "row + (m - n) - np.arange(m)", "relative_score"),
    ("numpy/relative_positions.py", "c * (Q @ T(K) + R[..., row, at])", "c * (Q @ T(K)) + R[..., row, at]", "relative_score"),
    ("numpy/relative_positions.py", "c * (dS @ K + dR @ table)", "c * (dS @ K)", "relative_score"),
    ("numpy/relative_positions.py", "np.add.at(dR, (..., row, at), dS)", "dR[..., row, at] = dS", "relative_score"),
    ("torch/relative_positions.py", "torch.cat(Y, -1) if pairing", "torch.cat(Y[::-1], -1) if pairing", "rotary"),
    ("numpy/dropout.py", "np.asarray(1 / (1 - p), X.dtype)", "np.asarray(1, X.dtype)", "dropout"),
    ("numpy/dropout.py", "np.asarray(1 / (1 - p), X.dtype)", "np.asarray(1 / p, X.dtype)", "dropout"),
    ("numpy/dropout.py", "sum_to(factor * dY, X.shape)", "sum_to(dY, X.shape)", "dropout"),
    ("torch/dropout.py", "X * keep * (1 / (1 - p))", "X * keep", "dropout"),
    ("numpy/attention.py", "weights_vjp(drop_vjp(sum_to(dO @ T(V), P.shape)))", "weights_vjp(sum_to(dO @ T(V), P.shape))", "attention"),
    ("torch/attention.py", "P if drop is None else drop(P)", "P", "multi_head_attention"),
    ("numpy/residuals.py", "f_vjp(drop_vjp(dsum))", "f_vjp(dsum)", "encoder_layer"),
    ("numpy/residuals.py", "f_vjp(drop_vjp(dY))", "f_vjp(dY)", "encoder_layer"),
    ("numpy/transformer.py", "dX, dparams = drop_vjp(dX), {}", "dparams = {}", "token_embedding"),
    ("numpy/shaped.py", "allowed.sum(-1, keepdims=True)", "P.shape[-1]", "shaped_attention"),
    ("numpy/shaped.py", "O = V + D @ V", "O = D @ V", "shaped_attention"),
    ("numpy/shaped.py", "dO + T(D) @ dO", "dO + D @ dO", "shaped_attention"),
    ("numpy/shaped.py", "return dQ / temperature,", "return dQ,", "shaped_attention"),
    ("numpy/shaped.py", "weights_vjp(strength * sum_to", "weights_vjp(sum_to", "shaped_attention"),
    ("torch/shaped.py", "strength * (P - U)", "strength * P - U", "shaped_attention"),
    ("numpy/losses.py", "E = rows - top", "E = rows - 0 * top", "cross_entropy"),
    ("numpy/losses.py", "(1 - smoothing) * token + smoothing * (all", "token + smoothing * (all", "cross_entropy"),
    ("numpy/losses.py", "return E.mean(-1, dtype=sums)", "return E.sum(-1, dtype=sums) / (E.shape[-1] - 1)", "cross_entropy"),
    ("numpy/losses.py", "(total if reduction == \"mean\" else 1)", "1", "cross_entropy"),
    ("numpy/losses.py", "if weights is not None else len(y)", "if weights is not None else targets.size", "cross_entropy"),
    ("numpy/losses.py", "dloss / total if", "dloss / targets.size if", "cross_entropy"),
    ("numpy/losses.py", "        if smoothing:\n            G -=", "        if False:\n            G -=", "cross_entropy"),
    ("numpy/losses.py", "share * (1 - smoothing) * own", "share * own", "cross_entropy"),
    ("numpy/losses.py", "share * (1 - smoothing) * own", "share * (1 - smoothing)", "cross_entropy"),
    ("numpy/losses.py", "own.sum() if weights", "len(y) if weights", "cross_entropy"),
    ("numpy/losses.py", "token = own * (np.log(S) - right)", "token = np.log(S) - right", "cross_entropy"),
    ("numpy/losses.py", "weights.mean(dtype=sums)", "np.ones((), sums)", "cross_entropy"),
    ("numpy/losses.py", "(1 if weights is None else weights)", "1", "cross_entropy"),
    ("numpy/losses.py", "np.where(weights == 0, 0, weights * E)", "E", "cross_entropy"),
    ("numpy/losses.py", "else dloss[mask]", "else dloss[~mask].mean()", "cross_entropy"),
    ("numpy/losses.py", "dZ[mask] = G", "dZ[~mask] = G[:1]", "cross_entropy"),
    ("numpy/mixed_precision.py", "scaled = np.asarray(scale * loss)", "scaled = np.asarray(loss / scale)", "scale_loss"),
    ("numpy/mixed_precision.py", "return scale * dscaled", "return dscaled", "scale_loss"),
    ("torch/mixed_precision.py", "return scale * loss", "return loss", "scale_loss"),
    ("torch/losses.py", "return logP.mean(-1)", "return logP.sum(-1) / (logP.shape[-1] - 1)", "cross_entropy"),
    ("torch/losses.py", "torch.log_softmax(rows, -1, dtype=wide)", "torch.softmax(rows, -1, dtype=wide).log()", "cross_entropy"),
    ("torch/losses.py", "token = torch.where(counts, token, 0)", "pass", "cross_entropy"),
    ("torch/losses.py", "total = torch.where(counts, own, 0).sum()", "total = own.sum()", "cross_entropy"),
    ("torch/losses.py", "-own * logP", "-logP", "cross_entropy"),
    ("torch/losses.py", "(weights * torch.where", "(torch.where", "cross_entropy"),
    ("numpy/beyond_one_memory.py", "2 * A @ T(B)", "A @ T(B)", "store_distribution"),
    ("numpy/beyond_one_memory.py", "Q - centre, K - centre", "Q, K - centre", "store_distribution"),
    ("numpy/beyond_one_memory.py", "Q - centre, K - centre", "Q, K", "store_distribution"),
    ("numpy/beyond_one_memory.py", "np.add.at(P, (..., followed), W)", "P[..., followed] = W", "store_distribution"),
    ("numpy/beyond_one_memory.py", "S = np.where(_greatest(S, keep), S, -np.inf)", "pass", "store_distribution"),
    ("numpy/beyond_one_memory.py", "T(dS) @ A - dS.sum(-2)[..., None] * B", "T(dS) @ A", "store_distribution"),
    ("numpy/beyond_one_memory.py", "sum_to(2 * dK, K.shape)", "2 * dK.reshape(-1, *K.shape)[:1].sum(0)", "store_distribution"),
    ("numpy/beyond_one_memory.py", "return 2 * (dS @ B)", "return dS @ B", "store_distribution"),
    ("numpy/beyond_one_memory.py", "softmax(S, temperature)", "softmax(S)", "store_distribution"),
    ("torch/beyond_one_memory.py", "softmax(S, temperature)", "softmax(S, 1 / temperature)", "store_distribution"),
    ("torch/beyond_one_memory.py", "scatter_add(-1, tokens.expand_as(W), W)", "scatter(-1, tokens.expand_as(W), W)", "store_distribution"),
    ("numpy/beyond_one_memory.py", "(1 - weight) * model + weight * store", "weight * model + (1 - weight) * store", "store_mixture"),
    ("numpy/beyond_one_memory.py", "sum_to(weight * dP, store.shape)", "sum_to((1 - weight) * dP, store.shape)", "store_mixture"),
    ("torch/beyond_one_memory.py", "(1 - weight) * model + weight * store", "model + weight * store", "store_mixture"),
]  # fmt: skip


HELPERS = ("cases", "witnesses")


def is_ours(name):
    """Whether a module is the library's, or a helper that has imported it."""
    return name.split(".")[0] == "attnmath" or name in [f"tests.attnmath.{helper}" for helper in HELPERS]


@contextmanager
def in_place(modules):
    """These modules instead of those that the other tests share; what is imported meanwhile joins them.

    Without the check of shapes: a fault is to die of its values, and the check would take most of the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "meta_path", [f for f in sys.meta_path if not type(f).__module__.startswith("jaxtyping")])
        for name in filter(is_ours, list(sys.modules)):
            patch.delitem(sys.modules, name)
        for name in HELPERS:  # the package holds them too
            patch.delattr(tests.attnmath, name, raising=False)
        sys.modules.update(modules)
        try:
            yield tuple(importlib.import_module(f"tests.attnmath.{name}") for name in HELPERS)
        finally:
            for name in filter(is_ours, list(sys.modules)):
                modules[name] = sys.modules.pop(name)


@contextmanager
def planted(module, source):
    """The functions and methods of a module with the bodies that they have in this source; then as before.

    The functions stay the same objects, so whoever has imported one has the fault, and nothing is imported anew.
    """
    bodies = {code.co_qualname: code for code in codes(compile(source, module.__file__, "exec"))}
    before = {f: f.__code__ for f in functions(module)}
    try:
        for f in before:
            f.__code__ = bodies[f.__qualname__]
        yield
    finally:
        for f, code in before.items():
            f.__code__ = code


def codes(code):
    """The bodies in a module's code or a class's; not those inside a function, which come with it."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            if not inner.co_flags & inspect.CO_OPTIMIZED:  # a class
                yield from codes(inner)


def functions(module):
    """What a module defines, without decorators."""
    for value in vars(module).values():
        for member in vars(value).values() if isinstance(value, type) else [value]:
            f = inspect.unwrap(member) if callable(member) else member
            if isinstance(f, FunctionType) and f.__globals__ is vars(module):
                yield f


def dies(case, witnesses):
    """Whether a witness contradicts this case."""
    try:
        witnesses.check_agreement(case, np.random.default_rng(1))
        if case.circumstance not in witnesses.NO_DIFFERENCE:
            witnesses.check_finite_difference(case, np.random.default_rng(1))
    except Exception:  # an overflow warning is a death as good as a wrong value
        return True
    return False


@pytest.fixture(scope="module")
def modules():
    """The library, the cases and the witnesses, imported once more, so that a fault is in no other test's way."""
    found = {}
    with in_place(found):
        return found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[3]}: {fault[2][:40]}")
def test_fault_is_seen(fault, modules):
    file, right, wrong, component = fault
    source = (LIBRARY / file).read_text(encoding="utf-8")
    assert right in source, f"the line of this fault is gone from {file}: plant it anew"
    faulty = modules[f"attnmath.{file.removesuffix('.py').replace('/', '.')}"]
    with in_place(modules) as (cases, witnesses):
        own = [case for case in cases.CASES if case.function == component]
        with planted(faulty, source.replace(right, wrong)):
            assert any(dies(case, witnesses) for case in own), f"no case of {component} sees this fault"
        assert not dies(own[0], witnesses), "a fault is taken out again, and leaves nothing behind"


def test_without_a_fault_nothing_dies(modules):
    with in_place(modules) as (cases, witnesses):
        for component in {fault[3] for fault in FAULTS}:
            first = next(case for case in cases.CASES if case.function == component)
            assert not dies(first, witnesses), f"the first case of {component} dies in a library without fault"
