"""Sparsemax and 1.5-entmax: weights, attention under a mask, the loss, and their gradients."""

import torch


def example(own):
    torch.manual_seed(0)
    Q, K, V = torch.randn(2, 4, 3), torch.randn(2, 6, 3), torch.randn(2, 6, 5)
    mask = torch.ones(4, 6, dtype=torch.bool).tril(2)
    right = torch.tensor([[0, 1, 2, 3], [3, 2, 1, 5]])

    def outputs(Q, K, V):
        Q, K, V = (X.detach().requires_grad_() for X in (Q, K, V))
        found = []
        for alpha in (1.5, 2.0):
            O = own.entmax_attention(3 * Q, K, V, alpha, mask)
            loss = own.entmax_loss(2 * Q @ K.mT, right, alpha)
            (O.sin().sum() + loss.square().sum()).backward()
            found += [O.detach(), loss.detach(), Q.grad.clone(), K.grad.clone()]
        return found

    return outputs, (Q, K, V)


def library(own, function, arguments):
    from functools import partial
    from types import SimpleNamespace

    import attnmath.torch as at

    def attend(Q, K, V, alpha, mask):
        return at.entmax_attention(Q, K, V, mask, alpha=alpha)

    def loss(S, right, alpha):
        return at.fenchel_young_loss(S, torch.nn.functional.one_hot(right, S.shape[-1]).to(S), alpha)

    return example(SimpleNamespace(entmax_attention=attend, entmax_loss=partial(loss)))[0](*arguments)
