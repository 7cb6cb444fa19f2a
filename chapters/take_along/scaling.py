import torch


def scores(Q, K, scale=None, cap=None):
    """Scores (..., n, m) of queries (..., n, d_k) and keys (..., m, d_k).

    scale: 1 / sqrt(d_k) by default, d_k the width of one head. cap: a bound on |S|.
    """
    S = Q @ K.mT * (Q.shape[-1] ** -0.5 if scale is None else scale)
    return S if cap is None else cap * torch.tanh(S / cap)


def diagnose(S, sure=0.99):
    """Is a head saturated? Four numbers about its scores (..., n, m), none masked.

    spread: the standard deviation of the scores within a row. It is near 1 at the
      start if queries and keys have independent entries of mean 0 and variance 1.
    largest: the median of the largest weights. An even share is 1 / m.
    saturated: the share of rows whose largest weight is above `sure`.
    passes: the median bound on the gradient that softmax lets through, at most 1/2.
    """
    top = S.softmax(dim=-1).amax(dim=-1)
    return {
        "spread": S.var(dim=-1, correction=0).mean().sqrt(),
        "largest": top.median(),
        "saturated": (top > sure).to(S.dtype).mean(),
        "passes": (2 * top * (1 - top)).median(),
    }
