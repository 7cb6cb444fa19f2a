"""Scores of a thousand, with their gradients, at two temperatures."""

import torch


def example(own):
    S = 3 * torch.randn(4, 7) + 1000
    d = torch.randn(4, 7)

    def everything(S):
        P = own.softmax(S, 0.5)
        forward = own.logsumexp(S), own.log_softmax(S, 0.5), P
        back = (
            own.logsumexp_backward(S, d[:, 0]),
            own.log_softmax_backward(S, d, 0.5),
            own.softmax_backward(P, d, 0.5),
        )
        return forward + back

    everything.d = d
    return everything, (S,)


def library(own, function, arguments):
    import attnmath.numpy as an

    S, d = arguments[0].double().numpy(), function.d.double().numpy()
    empty = torch.full((2, 3), -torch.inf)
    assert (own.logsumexp(empty) == -torch.inf).all()
    half = own.softmax(torch.full((4096,), 12.0, dtype=torch.float16))
    assert abs(half.sum().item() - 1) < 1e-5
    (L, lse), (ell, log_softmax), (P, softmax) = an.logsumexp(S), an.log_softmax(S, 0.5), an.softmax(S, 0.5)
    return L, ell, P, lse(d[:, 0]), log_softmax(d), softmax(d)
