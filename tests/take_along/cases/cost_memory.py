"""Causal attention in blocks of three, of five queries at the end of eleven positions, with gradients."""

import torch


def example(own):
    Q, K, V = torch.randn(2, 5, 4), torch.randn(2, 11, 4), torch.randn(2, 11, 6)
    dO = torch.randn(2, 5, 6)

    def there_and_back(Q, K, V):
        O, L = own.attention_in_blocks(Q, K, V, block=3, causal=True)
        return O, L, *own.backward(Q, K, V, O, L, dO, block=4, causal=True)

    there_and_back.dO = dO
    return there_and_back, (Q, K, V)


def library(own, function, arguments):
    import attnmath.numpy as an
    import attnmath.torch as at

    mask = at.causal_mask(5, 11)
    O, vjp = an.attention(*(x.double().numpy() for x in arguments), mask.numpy())
    S = at.scaled_dot_score(*arguments[:2]).masked_fill(~mask, -torch.inf)
    whole = own.attention_in_blocks(*arguments)[0]
    torch.testing.assert_close(whole, at.attention(*arguments))
    return O, at.logsumexp(S), *vjp(function.dO.double().numpy())
