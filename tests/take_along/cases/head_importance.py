"""The output with two heads closed, and the slopes of the gates."""

from tests.take_along.params import attention, scattered


def example(own):
    import torch

    layer, X = scattered(own.GatedHeads(12, 3)), torch.randn(2, 4, 12)
    layer.gates.data = torch.tensor([1.0, 0.5, 0.0])
    return layer, (X,)


def library(own, layer, arguments):
    import numpy as np

    import attnmath.numpy as an
    from attnmath.heads import gate_gradients, gate_heads
    from attnmath.tree import map_tree

    X = arguments[0].double().numpy()
    params = map_tree(lambda W: W.double().numpy(), attention(layer, ("query", "key", "value", "out")))
    gates = layer.gates.detach().double().numpy()
    O, _ = an.multi_head_attention(X, X, X, gate_heads(params, gates), 3)
    out, vjp = an.multi_head_attention(X, X, X, params, 3)
    slopes = np.abs(gate_gradients(params, vjp(np.ones_like(out))[3], 3))
    layer.gates.data = layer.gates.data * 0 + 1
    np.testing.assert_allclose(own.importance([layer], [layer(arguments[0]).sum()])[0].numpy(), slopes, rtol=1e-4)
    return O
