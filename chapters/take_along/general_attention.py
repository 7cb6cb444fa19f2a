import torch


def attention(Q, K, V, score, transform=None, mask=None):
    """Attention with any score: outputs (..., n, v) and weights (..., n, m).

    score(q, k) gets queries (..., n, 1, d_q) and keys (..., 1, m, d_k), and returns
    the scores (..., n, m). In the mask, True means: this query may look at this key.
    A query that may look at no key gets zeros.
    """
    S = score(Q[..., :, None, :], K[..., None, :, :])
    if mask is None:
        P = S.softmax(dim=-1)
    else:
        mask = mask.expand(S.shape)
        some = mask.any(dim=-1, keepdim=True)  # -inf in a whole row would give NaN
        P = S.masked_fill(~mask & some, -torch.inf).softmax(dim=-1)
        P = P.masked_fill(~mask, 0.0)
    return P @ (V if transform is None else transform(V)), P


def scaled_dot(q, k):
    return (q * k).sum(dim=-1) / q.shape[-1] ** 0.5


def nearness(q, k, width=1.0):  # a Gaussian kernel: attention is then kernel regression
    return -((q - k) ** 2).sum(dim=-1) / (2 * width**2)
