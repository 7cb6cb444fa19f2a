"""What every core made of a rule for the weights has in common."""

from functools import partial

import numpy as np
import pytest
import torch

import attnmath.numpy as an
import attnmath.torch as at
from attnmath.check import check_vjp, compare

CORES = {
    "entmax_attention": {"alpha": 1.5},
    "pointwise_attention": {"kind": "squared_relu"},
    "sinkhorn_attention": {"steps": 3},
}


@pytest.mark.parametrize("name", CORES)
def test_a_mask_may_have_axes_that_only_the_values_have(name, rng):
    """Two sets of values share their queries and keys, and each set has a mask of its own."""
    Q, K, V = rng.standard_normal((3, 4)), rng.standard_normal((5, 4)), rng.standard_normal((2, 5, 6))
    mask = rng.random((2, 3, 5)) < 0.7
    mask[..., 0] = True
    core = partial(getattr(an, name), mask=mask, **CORES[name])
    O, _ = core(Q, K, V)
    apart = [getattr(an, name)(Q, K, V[i], mask=mask[i], **CORES[name])[0] for i in (0, 1)]
    assert abs(apart[0] - apart[1]).max() > 0.1
    compare(O, np.stack(apart), name="O", atol=1e-14)
    check_vjp(core, Q, K, V, rng=rng)
    twin = getattr(at, name)(*map(torch.from_numpy, (Q, K, V)), mask=torch.from_numpy(mask), **CORES[name])
    compare(twin.numpy(), O, name="the twin", atol=1e-13)
