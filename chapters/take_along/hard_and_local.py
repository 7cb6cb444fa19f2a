"""Hard attention with an unbiased gradient, and a window that moves (local-p)."""

import torch


def draw(Q, K, draws=2):
    """Keys drawn by the attention weights, (draws, ..., n)."""
    P = (Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1)
    a = torch.multinomial(P.flatten(0, -2), draws, replacement=True)
    return a.T.unflatten(1, P.shape[:-1])


def hard_attention(Q, K, V, choice):
    """Q (..., n, k), K (..., m, k), V (..., m, v), choice (draws, ..., n).

    Returns the drawn values (draws, ..., n, v) and the log-probability of each draw.
    """
    logP = (Q @ K.mT / Q.shape[-1] ** 0.5).log_softmax(-1)
    logP = logP.expand(len(choice), *logP.shape)
    V = V.expand(*logP.shape[:-2], *V.shape[-2:])
    O = torch.take_along_dim(V, choice[..., None], -2)
    return O, torch.take_along_dim(logP, choice[..., None], -1)[..., 0]


def surrogate(loss, log_probability):
    """What to call backward on; both (draws, ...), at least two draws.

    Each draw is compared with the mean of the others, never with itself.
    """
    others = (loss.sum(0) - loss) / (len(loss) - 1)
    lesson = (loss - others).detach() * log_probability
    return (loss + lesson).mean(0).sum()  # the first term trains what comes after V


def local_attention(Q, K, V, W, w, width=10):
    """A window around a place that the query predicts; W (k, a), w (a)."""
    m = K.shape[-2]
    place = m * ((Q @ W).tanh() @ w).sigmoid()  # (..., n), between 0 and m
    away = torch.arange(m, device=Q.device) - place[..., None]
    S = (Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(away.abs() > width, -torch.inf)
    return S.softmax(-1) * torch.exp(-2 * (away / width) ** 2) @ V
