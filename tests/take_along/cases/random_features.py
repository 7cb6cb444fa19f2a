"""With a shift, padded and causal, against the library's core."""

import torch


def example(own):
    def both(Q, K, V, W, shift, keys):
        masked = own.performer(Q, K, V, W, shift, keys=keys)
        return masked, own.performer(Q, K, V, W, shift, causal=True, chunk=5), own.measured_shift(Q, K)

    Q, K, V = 0.7 * torch.randn(3, 2, 13, 4).double()
    keys = torch.arange(13) < torch.tensor([[13], [9]])
    W = own.directions(10, 4).double()
    return both, (Q, K, V, W, own.measured_shift(Q, K), keys)


def library(own, function, arguments):
    import attnmath.torch as at

    Q, K, V, W, _, keys = arguments
    P, _ = at.attention_weights(Q, K), None
    shift = -(Q + P @ K).mean(-2, keepdim=True)
    masked = at.performer_attention(Q, K + shift, V, keys[:, None], directions=W)
    return masked, at.performer_attention(Q, K + shift, V, directions=W, causal=True), shift
