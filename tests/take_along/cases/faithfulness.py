"""Scores of words by rollout, gradients and occlusion, and the test of each by deletion."""

import torch


def problem():
    torch.manual_seed(0)
    W, P = torch.randn(3, 4), torch.randn(2, 3, 5, 5).softmax(-1)
    X, nothing = torch.randn(5, 3), torch.randn(3)
    return W, P, X, nothing


def answer_of(W):
    return lambda X: torch.tanh(X @ W).sum(-2).square().sum(-1) / 4


def example(own):
    W, P, X, nothing = problem()
    f = answer_of(W)

    def scores(P, X):
        found = [own.rollout(P)[-1], own.gradient_x_input(f, X, nothing)]
        found += [own.integrated_gradients(f, X, nothing, points=400), own.occlusion(f, X, nothing)]
        return [*found, *(own.deletion_test(f, X, nothing, S)[None] for S in found)]

    return lambda P, X: torch.cat(scores(P, X)), (P, X)


def library(own, function, arguments):
    import numpy as np

    from attnmath import faithfulness as fa
    from attnmath.rollout import attention_rollout

    W, P, X, nothing = (Y.double() for Y in problem())
    f = answer_of(W)

    def gradient(Z):
        Z = torch.as_tensor(Z).requires_grad_()
        return torch.autograd.grad(f(Z).sum(), Z)[0].numpy()

    def answer(kept):
        return f(torch.where(torch.from_numpy(kept)[..., None], X, nothing)).numpy()

    x, b = X.numpy(), nothing.numpy()
    found = [attention_rollout(P.numpy())[-1], ((x - b) * gradient(x[None])[0]).sum(-1)]
    found += [fa.integrated_gradients(gradient, x, b).sum(-1), fa.occlusion(answer, 5)]
    curves = [fa.deletion_curve(answer, S, steps=5) for S in found]
    return np.concatenate([*found, [(c[0] - c[1:]).mean() for c in curves]])
