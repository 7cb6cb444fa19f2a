"""Drawn values, the gradient of the surrogate for given draws, and a moved window, against the library."""

import torch


def example(own):
    def both(Q, K, V, W, w, choice):
        Q = Q.detach().requires_grad_()
        O, log_probability = own.hard_attention(Q, K, V, choice)
        loss = (O - 1).square().sum(-1)
        (dQ,) = torch.autograd.grad(own.surrogate(loss, log_probability), Q)
        return O, log_probability.detach(), dQ, own.local_attention(Q.detach(), K, V, W, w, width=3)

    Q, K, V = (torch.randn(2, n, 4).double() for n in (5, 9, 9))
    return both, (Q, K, V, torch.randn(4, 3).double(), torch.randn(3).double(), own.draw(Q, K, 3))


def library(own, function, arguments):
    import attnmath.torch as at

    Q, K, V, W, w, choice = arguments
    Q = Q.detach().requires_grad_()
    values = torch.stack([at.hard_attention(Q, K, V, choice=a) for a in choice])
    logs = torch.stack([at.choice_log_probability(Q, K, a) for a in choice])
    loss = (values - 1).square().sum(-1)
    lesson = sum((loss[i] - (loss.sum(0) - loss[i]) / 2).detach() * logs[i] for i in range(3)) / 3
    (dQ,) = torch.autograd.grad(lesson.sum(), Q)
    return values, logs.detach(), dQ, at.local_attention(Q.detach(), K, V, W, w, width=3)
