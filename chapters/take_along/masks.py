import torch

# True means: this query may look at this key. Combine masks with &, before anything
# else, and put -inf into the scores once. nn.MultiheadAttention wants the opposite, ~M.


def causal(n, m=None):
    """(n, m): the last n of m positions ask; each sees itself and those before it."""
    m = n if m is None else m
    return torch.ones(n, m, dtype=torch.bool).tril(m - n)


def window(n, w, m=None):
    """(n, m): at most w positions to either side."""
    m = n if m is None else m
    gap = torch.arange(m) - torch.arange(m - n, m)[:, None]
    return gap.abs() <= w


def padding(lengths, m):
    """(b, 1, 1, m), for scores (b, heads, n, m): True for the first `lengths` keys."""
    return (torch.arange(m) < lengths[:, None])[:, None, None, :]


def documents(ids):
    """(b, 1, n, n): several texts in one row; a token sees those of its own text."""
    return (ids[:, :, None] == ids[:, None, :])[:, None]


def softmax(S, mask):
    """Weights of the allowed keys, and zeros for a query that may look at none."""
    mask = mask.expand(S.shape)
    S = S.masked_fill(~mask & mask.any(dim=-1, keepdim=True), -torch.inf)
    return S.softmax(dim=-1).masked_fill(~mask, 0.0)


def leaks(f, X):
    """How far an edit of the last row of X (n, d) moves earlier outputs: 0 is right."""
    edited = torch.cat([X[:-1], X[-1:] + 1])
    return (f(edited) - f(X)).abs().amax(dim=-1)[:-1]
