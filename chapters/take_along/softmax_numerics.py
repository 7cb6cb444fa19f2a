import torch


def logsumexp(S):
    """log of the sum of exponentials of each row (..., m); -inf if all are -inf."""
    t = S.amax(dim=-1, keepdim=True)
    t = t.masked_fill(t == -torch.inf, 0.0)  # -inf - (-inf) would be NaN
    return (t + torch.log(torch.exp(S - t).sum(dim=-1, keepdim=True))).squeeze(-1)


def log_softmax(S, tau=1.0):
    """Subtract first, divide by the temperature, and never take log of a softmax."""
    D = (S - S.amax(dim=-1, keepdim=True)) / tau
    return D - torch.log(torch.exp(D).sum(dim=-1, keepdim=True))


def softmax(S, tau=1.0):
    """Weights that sum to 1; 16-bit scores are shared out in 32 bits."""
    wide = S.float() if S.dtype in (torch.float16, torch.bfloat16) else S
    E = torch.exp((wide - wide.amax(dim=-1, keepdim=True)) / tau)
    return E / E.sum(dim=-1, keepdim=True)


# The gradients by hand: the gradient of the result comes in, that of S goes out.


def logsumexp_backward(S, dL):
    return softmax(S) * dL[..., None]


def log_softmax_backward(S, dl, tau=1.0):
    return (dl - softmax(S, tau) * dl.sum(dim=-1, keepdim=True)) / tau


def softmax_backward(P, dP, tau=1.0):
    return P * (dP - (P * dP).sum(dim=-1, keepdim=True)) / tau
