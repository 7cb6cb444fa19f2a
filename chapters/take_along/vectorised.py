import numpy as np


def attention(Q, K, V, mask=None):
    """Scaled dot-product attention and its gradient, by hand.

    Q: (..., n, k), K: (..., m, k), V: (..., m, v); mask: (..., n, m), True = may look.
    Returns the output (..., n, v), the weights (..., n, m), and a function that turns
    the gradient of the output into those of Q, K and V.
    """
    scale = Q.shape[-1] ** -0.5
    S = Q @ np.swapaxes(K, -1, -2) * scale  # row i holds the scores of query i
    if mask is not None:
        mask = np.broadcast_to(mask, S.shape)
        if not mask.any(axis=-1).all():
            raise ValueError("a query may look at no key")
        S = np.where(mask, S, -np.inf)
    E = np.exp(S - S.max(axis=-1, keepdims=True))  # no exponent is positive
    P = E / E.sum(axis=-1, keepdims=True)  # each row sums to 1
    O = P @ V

    def backward(dO):
        dP = dO @ np.swapaxes(V, -1, -2)
        dV = np.swapaxes(P, -1, -2) @ dO
        dS = P * (dP - (dO * O).sum(axis=-1, keepdims=True))  # rows sum to 0
        return dS @ K * scale, np.swapaxes(dS, -1, -2) @ Q * scale, dV

    return O, P, backward


def causal(n, m):
    """The last n of m positions ask: the diagonal ends at the bottom right."""
    return np.tri(n, m, m - n, dtype=bool)
