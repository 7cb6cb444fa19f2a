"""Scores with a bound, and what is said of them."""

import torch


def example(own):
    Q, K = 2 * torch.randn(3, 5, 16), 3 * torch.randn(3, 7, 16)

    def both(Q, K):
        S = own.scores(Q, K, cap=5.0)
        return S, *own.diagnose(S).values()

    return both, (Q, K)


def library(own, function, arguments):
    import attnmath.torch as at

    S = at.soft_cap(at.scaled_dot_score(*arguments), 5.0)
    P = at.softmax(S)
    top = P.amax(-1)
    norms = torch.linalg.matrix_norm(torch.diag_embed(P) - P[..., :, None] * P[..., None, :], 2)
    assert (norms <= 2 * top * (1 - top) + 1e-6).all() and (norms >= top * (1 - top) - 1e-6).all()
    spread = (S - S.mean(-1, keepdim=True)).square().mean().sqrt()
    return S, spread, top.median(), (top > 0.99).float().mean(), (2 * top * (1 - top)).median()
