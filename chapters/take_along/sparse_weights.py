import torch


def threshold(z, power):
    """tau with sum(max(z - tau, 0) ** power) = 1 in each row (..., m); power 1 or 2."""
    z = z.sort(-1, descending=True).values
    k = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    mean = z.cumsum(-1) / k  # of the k largest
    if power == 1:
        tau = mean - 1 / k
    else:
        spread = (z * z).cumsum(-1) / k - mean * mean
        tau = mean - (1 / k - spread).clamp(min=0).sqrt()
    size = (tau < z).sum(-1, keepdim=True)  # so many keys get a weight
    return tau.gather(-1, size - 1)


class Entmax(torch.autograd.Function):
    """Weights with exact zeros: alpha = 2 is sparsemax, 1.5 is nearer to softmax."""

    @staticmethod
    def forward(ctx, S, alpha):
        power = {1.5: 2, 2.0: 1}[float(alpha)]
        z = (alpha - 1) * (S - S.amax(-1, keepdim=True))
        z = z.clamp(min=-1)  # a key that trails by more is out, a masked one too
        P = (z - threshold(z, power)).clamp(min=0) ** power
        ctx.save_for_backward(P)
        ctx.alpha = alpha
        return P

    @staticmethod
    def backward(ctx, dP):
        (P,) = ctx.saved_tensors
        s = torch.where(P > 0, P ** (2 - ctx.alpha), 0)  # 0: the key is out
        mean = (s * dP).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)
        return s * (dP - mean), None


def entmax_attention(Q, K, V, alpha=1.5, mask=None):
    """Q (..., n, d), K (..., m, d), V (..., m, v); mask: True where it may look."""
    S = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    S = S if mask is None else S.masked_fill(~mask, -torch.inf)
    return Entmax.apply(S, alpha) @ V


def entmax_loss(S, right, alpha=1.5):
    """For training, since a logarithm of 0 learns nothing: (..., m), (...) -> (...)."""
    P = Entmax.apply(S.detach(), alpha)  # so the gradient is P minus the right answer
    entropy = (P - P**alpha).sum(-1) / (alpha * (alpha - 1))
    return (P * S).sum(-1) + entropy - S.gather(-1, right[..., None])[..., 0]
