"""Every check is seen to fail: each row plants one fault in a copy of the library, and the component's cases must die.

The faults are the mistakes that people make: no scale, wrong axis, no row correction, a mask inverted, an unstable
softmax, a cotangent not summed. A fault that survives means that the cases of tests/cases.py look away.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "lib" / "attnmath"

# file, right, wrong, and the component whose cases must see it
FAULTS = [
    ("numpy/softmax.py", "E = np.exp(X - top)", "E = np.exp(X)", "softmax"),
    ("numpy/softmax.py", "P * (dP - (P * dP).sum(-1, keepdims=True)) / temperature", "P * dP / temperature", "softmax"),
    ("numpy/softmax.py", "(dP - (P * dP).sum(-1, keepdims=True)) / temperature", "(dP - (P * dP).sum(-1, keepdims=True))", "softmax"),
    ("numpy/softmax.py", "np.exp(logP) * dlogP.sum(-1, keepdims=True)", "np.exp(logP) * dlogP", "log_softmax"),
    ("numpy/softmax.py", "dL[..., None] * E / np.where", "E / np.where", "logsumexp"),
    ("numpy/scores.py", "c = sizes[\"k\"] ** -0.5", "c = 1 / sizes[\"k\"]", "scaled_dot_score"),
    ("numpy/scores.py", "c * (T(dS) @ Q)", "T(dS) @ Q", "scaled_dot_score"),
    ("numpy/scores.py", "dS @ K @ W.T", "dS @ K @ T(W).T.T", "multiplicative_score"),
    ("numpy/scores.py", "(1 - H * H)", "(1 - H)", "additive_score"),
    ("numpy/attention.py", "S = np.where(mask, S,", "S = np.where(~mask, S,", "attention"),
    ("numpy/attention.py", "dV = T(P) @ dO  # eq", "dV = P.sum(-2)[..., None] * dO.mean(-2, keepdims=True)  # eq", "attention"),
    ("numpy/attention.py", "shrink * z + E.sum", "z + E.sum", "attention_chunked"),
    ("numpy/attention.py", "@ T(V[..., block, :]) - row)", "@ T(V[..., block, :]))", "attention_chunked"),
    ("numpy/attention.py", "dG, dP = T(P) @ dO, dO @ T(G)", "dG, dP = T(P) @ dO, dO @ T(V)[..., : G.shape[-1], :]", "general_attention"),
    ("numpy/layers.py", "dN - dN.mean(-1, keepdims=True) - N", "dN - N", "layer_norm"),
    ("numpy/layers.py", "N * (dN * N).mean(-1, keepdims=True)", "0 * N", "layer_norm"),
    ("numpy/layers.py", "dY * (Phi + X * phi)", "dY * Phi", "gelu"),
    ("numpy/layers.py", "dY @ W.T, T(X) @ dY, dY", "dY @ W.T, T(X) @ dY, dY / 2", "linear"),
    ("numpy/multihead.py", "X = X.swapaxes(-2, -3)\n    return X.reshape", "return X.reshape", "multi_head_attention"),
    ("numpy/encoder.py", "return dsum + dQ + dK + dV", "return dQ + dK + dV", "encoder_layer"),
    ("numpy/embedding.py", "np.add.at(dtable, ids, dX)", "dtable[ids] = dX", "embedding"),
    ("numpy/bert.py", "return mask[..., None, None, :]", "return mask[..., None, :, None]", "bert"),
    ("numpy/bert.py", "- Y * (Y * dY).sum(-1, keepdims=True)", "", "unit_norm"),
    ("numpy/recurrent.py", "dh = dA[..., t, :] @ U.T", "dh = dA[..., t, :] @ U", "rnn"),
    ("torch/attention.py", "~torch.as_tensor(mask, device=S.device)", "torch.as_tensor(mask, device=S.device)", "attention"),
    ("torch/layers.py", "(C * C).mean(-1, keepdim=True)", "X.var(-1, keepdim=True)", "layer_norm"),
    ("torch/bert.py", "mask.to(H.dtype) / mask.sum", "mask / mask.sum", "mean_pool"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[3]}: {fault[2][:40]}")
def test_fault_is_seen(fault, tmp_path):
    file, right, wrong, component = fault
    copy = tmp_path / "attnmath"
    shutil.copytree(LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = (copy / file).read_text(encoding="utf-8")
    assert right in source, f"the line of this fault is gone from {file}: plant it anew"
    (copy / file).write_text(source.replace(right, wrong), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", str(ROOT / "tests" / "test_twins.py"), "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "no:xdist", "-k", f"(agree and {component}) or (finite and {component})"],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert str(copy) in done.stdout or "AssertionError" in done.stdout, "it failed, but not for the fault"
