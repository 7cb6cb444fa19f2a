"""Attention with a Gaussian kernel in the place of a dot product, with a mask and values that are transformed."""

import torch


def example(own):
    Q, K, V = torch.randn(2, 5, 3), torch.randn(2, 7, 3), torch.randn(2, 7, 4)
    mask = torch.rand(5, 7) < 0.6
    mask[1] = False
    return own.attention, (Q, K, V, own.nearness, torch.tanh, mask)


def library(own, function, arguments):
    import attnmath.torch as at

    Q, K, V, _, transform, mask = arguments
    S = -(torch.cdist(Q, K) ** 2) / 2
    P = at.softmax(S.masked_fill(~mask, -torch.inf), empty_rows="zero")
    plain = own.attention(Q, K, V, own.scaled_dot)[0]
    torch.testing.assert_close(plain, at.attention(Q, K, V))
    return P @ transform(V), P
