"""Attention with normed queries and keys, the cosine of its tokens, and the largest factor of a matrix."""

from tests.take_along.params import attention, scattered


def example(own):
    import torch

    attend = scattered(own.NormedAttention(6, 2))
    generator = torch.Generator().manual_seed(6)
    X, W = torch.randn(2, 4, 6, generator=generator), torch.randn(5, 3, generator=generator)

    def everything(X, W):
        return attend(X), own.cosine(X), own.spectral_norm(W)

    everything.attend = attend
    return everything, (X, W)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    (X, W), f = arguments, function.attend
    p = attention(f)

    def heads(X, name):
        Y = at.affine(X, p[name])
        return Y.unflatten(-1, (2, 3)).transpose(-2, -3)

    Q = at.rms_norm(heads(X, "query"), f.norm_query.weight)
    K = at.rms_norm(heads(X, "key"), f.norm_key.weight)
    O = at.attention(Q, K, heads(X, "value"))
    Y = at.affine(O.transpose(-2, -3).flatten(-2), p["output"])
    assert (f.scores(X).abs() <= f.bound()).all() and f.scores(X).abs().max() > 0.3 * f.bound()
    pairs = [torch.cosine_similarity(x[i], x[j], dim=0) for x in X for i in range(4) for j in range(i)]
    return Y.detach(), torch.stack(pairs).mean(), torch.linalg.matrix_norm(W, 2)
