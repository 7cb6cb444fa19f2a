import torch


def rollout(P, residual=0.5):
    """Weights (layers, heads, n, n) -> (n, n): what share of row i came from j."""
    R = eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    for layer in P.mean(1):
        R = ((1 - residual) * layer + residual * eye) @ R
    return R


# Below, f maps vectors of the words (b, n, d) to answers (b,), X (n, d) are the vectors
# of one text, and `nothing` (d,) stands for a word that is taken out.


def gradient(f, X):
    X = X.detach().requires_grad_()
    return torch.autograd.grad(f(X).sum(), X)[0]


def gradient_x_input(f, X, nothing):
    return ((X - nothing) * gradient(f, X[None])[0]).sum(-1)


def integrated_gradients(f, X, nothing, points=32):
    """Scores (n,) that add up to f(text) - f(nothing), up to the error of the sum."""
    t = (torch.arange(points).to(X) + 0.5) / points
    line = nothing + t[:, None, None] * (X - nothing)
    return ((X - nothing) * gradient(f, line).mean(0)).sum(-1)


def without(f, X, nothing, gone):
    """The answers if words are taken out: gone (b, n), True or False -> (b,)."""
    with torch.no_grad():
        return f(torch.where(gone[..., None], nothing, X))


def occlusion(f, X, nothing):
    one = torch.eye(len(X), dtype=torch.bool, device=X.device)
    return without(f, X, nothing, one[:1] & ~one[:1]) - without(f, X, nothing, one)


def deletion_test(f, X, nothing, scores):
    """The mean fall of the answer if words are taken out by falling score.

    Compare it with that of random scores, and of a simple rule such as torch.arange(n).
    """
    rank = scores.argsort(descending=True).argsort()
    taken = torch.arange(len(X) + 1, device=X.device)
    curve = without(f, X, nothing, rank < taken[:, None])
    return (curve[0] - curve[1:]).mean()
