"""An autoencoder after a few steps of training, and what it explains."""

import torch


def example(own):
    torch.manual_seed(0)
    X = 3 * torch.rand(60, 12) * (torch.rand(60, 12) < 0.2) @ torch.randn(12, 5)
    model = own.train(own.SparseAutoencoder(5, 9, 2), X, steps=30, batch=20)
    return lambda X: (model(X).detach(), *own.report(model, X)), (X,)


def library(own, function, arguments):
    import attnmath.torch as at
    from attnmath.superposition_study import explained

    (X,) = arguments
    torch.manual_seed(0)
    torch.rand(60, 12), torch.rand(60, 12), torch.randn(12, 5)
    model = own.train(own.SparseAutoencoder(5, 9, 2), X, steps=30, batch=20)
    params = [P.detach() for P in (model.E, model.a, model.D, model.c)]
    Y, Z = at.sparse_autoencoder(X, *params, top=2), at.sparse_code(X - params[3], *params[:2], top=2)
    return Y, explained(Y, X), (Z == 0).all(0).float().mean()
