import numpy as np


def layer_norm(X, gain, bias, eps=1e-5):
    """The rows of X (..., d) at mean 0 and spread 1; and the gradient, to be called."""
    centred = X - X.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    normal = centred * scale

    def gradient(dY):  # of the loss, as Y has it: gives those of X, gain and bias
        rows = tuple(range(X.ndim - 1))
        dN = dY * gain
        dX = dN - dN.mean(-1, keepdims=True)  # no part along (1, ..., 1)
        dX = scale * (dX - normal * (dN * normal).mean(-1, keepdims=True))
        return dX, (dY * normal).sum(rows), dY.sum(rows)

    return normal * gain + bias, gradient


def rms_norm(X, gain, eps=1e-6):
    """The rows of X (..., d) divided by their root mean square; and the gradient."""
    scale = 1 / np.sqrt((X**2).mean(-1, keepdims=True) + eps)
    normal = X * scale

    def gradient(dY):
        dN = dY * gain
        dX = scale * (dN - normal * (dN * normal).mean(-1, keepdims=True))
        return dX, (dY * normal).sum(tuple(range(X.ndim - 1)))

    return normal * gain, gradient
