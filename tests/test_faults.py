"""Every check is seen to fail: each row plants one fault in a copy of the library, and the component's cases must die.

The faults are the mistakes that people make: no scale, wrong axis, no row correction, a mask inverted, an unstable
softmax, a cotangent not summed. A fault that survives means that the cases of tests/cases.py look away.
"""

import importlib
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "lib" / "attnmath"

# file, right, wrong, and the component whose cases must see it
FAULTS = [
    ("numpy/softmax.py", "E = np.exp((S - top) / temperature)", "E = np.exp(S / temperature)", "softmax"),
    ("numpy/softmax.py", "P * (dP - (P * dP).sum(-1, keepdims=True)) / temperature", "P * dP / temperature", "softmax"),
    ("numpy/softmax.py", "(dP - (P * dP).sum(-1, keepdims=True)) / temperature", "(dP - (P * dP).sum(-1, keepdims=True))", "softmax"),
    ("numpy/softmax.py", "np.exp(logP) * dlogP.sum(-1, keepdims=True)", "np.exp(logP) * dlogP", "log_softmax"),
    ("numpy/softmax.py", "dL[..., None] * E / np.where", "E / np.where", "logsumexp"),
    ("numpy/scores.py", "c = sizes[\"k\"] ** -0.5", "c = 1 / sizes[\"k\"]", "scaled_dot_score"),
    ("numpy/scores.py", "c * (T(dS) @ Q)", "T(dS) @ Q", "scaled_dot_score"),
    ("numpy/scores.py", "dS @ K @ W.T", "dS @ K @ W.T / 2", "multiplicative_score"),
    ("numpy/scores.py", "(1 - H * H)", "(1 - H)", "additive_score"),
    ("numpy/attention.py", "else np.where(mask, S,", "else np.where(~mask, S,", "attention"),
    ("numpy/attention.py", "dV = T(P) @ dO  # eq", "dV = P.sum(-2)[..., None] * dO.mean(-2, keepdims=True)  # eq", "attention"),
    ("numpy/attention.py", "shrink * z + E.sum", "z + E.sum", "attention_chunked"),
    ("numpy/attention.py", "dS -= row[at]", "dS -= row[at] / z[at]", "attention_fused"),
    ("numpy/attention.py", "dV[i] += T(E)", "dV[i] = T(E)", "attention_fused"),
    ("numpy/attention.py", "z[z == 0] = 1", "pass", "attention_fused"),
    ("numpy/attention.py", "@ T(V[..., block, :]) - row)", "@ T(V[..., block, :]))", "attention_chunked"),
    ("numpy/attention.py", "dG, dP = T(P) @ dO, dO @ T(G)", "dG, dP = T(P) @ dO, dO @ T(V)[..., : G.shape[-1], :]", "general_attention"),
    ("numpy/layers.py", "dN - dN.mean(-1, keepdims=True) - N", "dN - N", "layer_norm"),
    ("numpy/layers.py", "N * (dN * N).mean(-1, keepdims=True)", "0 * N", "layer_norm"),
    ("numpy/layers.py", "dY * (Phi + X * phi)", "dY * Phi", "gelu"),
    ("numpy/layers.py", "dY @ W.T, rows.T @ dY, dY.sum(0)", "dY @ W.T, rows.T @ dY, dY.mean(0)", "linear"),
    ("numpy/multihead.py", "X = X.swapaxes(-2, -3)\n    return X.reshape", "return X.reshape", "multi_head_attention"),
    ("numpy/multihead.py", "np.repeat(X, times, -3)", "np.concatenate([X] * times, -3)", "multi_head_attention"),
    ("numpy/multihead.py", "*dX.shape[-2:]).sum(-3)", "*dX.shape[-2:]).mean(-3)", "multi_head_attention"),
    ("numpy/multihead.py", "j = i * counts[name] // heads", "j = i % counts[name]", "multi_head_sum"),
    ("numpy/multihead.py", "O, pieces = params[\"output\"][\"bias\"]", "O, pieces = heads * params[\"output\"][\"bias\"]", "multi_head_sum"),
    ("numpy/self_attention.py", "dQ @ Wq.T + dK @ Wk.T + dV @ Wv.T", "dQ @ Wq.T + dV @ Wv.T", "self_attention"),
    ("numpy/masks.py", "m - n)  # eq", "m - n + 1)  # eq", "self_attention"),
    ("numpy/convolution.py", "_delayed(X, s * dilation)", "_delayed(X, s)", "causal_conv"),
    ("numpy/convolution.py", "_advanced(dY @ Ws.T, s * dilation)", "_delayed(dY @ Ws.T, s * dilation)", "causal_conv"),
    ("numpy/softmax.py", "P * (information - H[..., None])", "P * information", "softmax_entropy"),
    ("torch/multihead.py", "X.repeat_interleave(times, -3)", "X.repeat(*[1] * (X.ndim - 3), times, 1, 1)", "multi_head_attention"),
    ("numpy/encoder.py", "return dsum + dQ + dK + dV", "return dQ + dK + dV", "encoder_layer"),
    ("numpy/embedding.py", "np.add.at(dtable, ids, dX)", "dtable[ids] = dX", "embedding"),
    ("numpy/bert.py", "return mask[..., None, None, :]", "return mask[..., None, :, None]", "bert"),
    ("numpy/bert.py", "- Y * (Y * dY).sum(-1, keepdims=True)", "", "unit_norm"),
    ("numpy/recurrent.py", "dh = dA[..., t, :] @ U.T", "dh = dA[..., t, :] @ U", "rnn"),
    ("torch/attention.py", "~torch.as_tensor(mask, device=S.device)", "torch.as_tensor(mask, device=S.device)", "attention"),
    ("torch/layers.py", "(C * C).mean(-1, keepdim=True)", "X.var(-1, keepdim=True)", "layer_norm"),
    ("torch/bert.py", "mask.to(H.dtype) / mask.sum", "mask / mask.sum", "mean_pool"),
]  # fmt: skip


OURS = ("attnmath", "cases", "witnesses")


@contextmanager
def library_in(folder):
    """The library, the cases and the witnesses, imported anew with the library of that folder; then as before."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in OURS}
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("cases"), importlib.import_module("witnesses")
    finally:
        sys.path.remove(str(folder))
        for name in list(sys.modules):
            if name.split(".")[0] in OURS:
                del sys.modules[name]
        sys.modules.update(before)


def deaths(component, folder):
    """How each case of the component dies, or nothing if it lives."""
    errors = []
    with library_in(folder) as (cases, witnesses):
        assert sys.modules["attnmath"].__file__.startswith(str(folder))
        for case in cases.CASES:
            if case.function == component:
                try:
                    witnesses.check_agreement(case, np.random.default_rng(1))
                    if case.circumstance not in witnesses.NO_DIFFERENCE:
                        witnesses.check_finite_difference(case, np.random.default_rng(1))
                except Exception as error:  # an overflow warning is a death as good as a wrong value
                    errors.append(f"{case.id}: {type(error).__name__}: {error}")
    return errors


@pytest.fixture
def copy(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    shutil.copytree(LIBRARY, tmp_path / "attnmath", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[3]}: {fault[2][:40]}")
def test_fault_is_seen(fault, copy):
    file, right, wrong, component = fault
    source = (copy / "attnmath" / file).read_text(encoding="utf-8")
    assert right in source, f"the line of this fault is gone from {file}: plant it anew"
    (copy / "attnmath" / file).write_text(source.replace(right, wrong), encoding="utf-8")
    assert deaths(component, copy), f"no case of {component} sees this fault"


def test_without_a_fault_nothing_dies(copy):
    assert [death for component in {fault[3] for fault in FAULTS} for death in deaths(component, copy)] == []
