import torch


def two_orders(n):
    """Two orders of n rows which, applied in turn, make all n! orders."""
    shifted = torch.arange(n).roll(1)
    swapped = torch.arange(n)
    swapped[:2] = torch.tensor([1, 0])[:n]
    return swapped, shifted


def equivariance_error(f, X):
    """How far f(X[order]) is from f(X)[order], relative to f(X). X: (..., n, d)."""
    Y = f(X)
    errors = [f(X[..., p, :]) - Y[..., p, :] for p in two_orders(X.shape[-2])]
    return torch.stack([e.abs().amax() for e in errors]).amax() / Y.abs().amax()


def invariance_error(f, X):
    """How far f(X[order]) is from f(X), for an f that returns one vector (..., e)."""
    y = f(X)
    errors = [f(X[..., p, :]) - y for p in two_orders(X.shape[-2])]
    return torch.stack([e.abs().amax() for e in errors]).amax() / y.abs().amax()


def is_equivariant(f, X, roundings=1000):
    """Equal up to rounding? Put a model into eval mode first: dropout is not."""
    return bool(equivariance_error(f, X) < roundings * torch.finfo(X.dtype).eps)
