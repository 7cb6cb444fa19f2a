"""PyTorch's FlexAttention with a mask as its rule, value and gradients: a reference for every sparse pattern.

On a CPU `flex_attention` refuses inputs that need a gradient: "FlexAttention does not support backward on CPU". The
refusal is a check in front; its backward for tensors without a compiled kernel (`sdpa_dense_backward`) is there and
runs once the check is lifted.
"""

import numpy as np
import pytest
import torch
from torch.nn.attention import flex_attention as module


def flex_both_ways(Q, K, V, dO, allowed):
    """O and its three cotangents, as arrays, of heads (batch, h, n, k); allowed is (n, m)."""
    allowed = torch.from_numpy(np.asarray(allowed))
    rule = module.create_block_mask(lambda b, h, i, j: allowed[i, j], None, None, *allowed.shape, device="cpu")
    leaves = [torch.from_numpy(X).requires_grad_() for X in (Q, K, V)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_validate_device", lambda *tensors: None)
        O = module.flex_attention(*leaves, block_mask=rule)
    return O.detach().numpy(), *(dX.numpy() for dX in torch.autograd.grad(O, leaves, torch.from_numpy(dO)))
