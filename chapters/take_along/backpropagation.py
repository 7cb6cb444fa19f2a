import numpy as np


def attention(Q, K, V, mask=None):
    """Attention of Q (..., n, k) to K (..., m, k), V (..., m, v); and its gradient.

    mask is True where a query may look; each query needs one key that it may see.
    """
    scale = 1 / np.sqrt(Q.shape[-1])
    S = Q @ K.swapaxes(-1, -2) * scale
    if mask is not None:
        S = np.where(mask, S, -np.inf)
    E = np.exp(S - S.max(axis=-1, keepdims=True))
    P = E / E.sum(axis=-1, keepdims=True)

    def gradient(dO):  # of the loss, as O has it: gives those of Q, K and V
        dV = P.swapaxes(-1, -2) @ dO
        dP = dO @ V.swapaxes(-1, -2)
        dS = P * (dP - (P * dP).sum(-1, keepdims=True))  # each row sums to 0
        dQ = dS @ K * scale
        dK = dS.swapaxes(-1, -2) @ Q * scale
        return dQ, dK, dV

    return P @ V, gradient
