import math

import torch


def inverse_root(step, d, warmup, factor=1.0):
    """The first Transformer's rate: up in a line, then like one over the root."""
    return factor * d**-0.5 * min(step**-0.5, step * warmup**-1.5)


def cosine(step, peak, warmup, total, least=0.1):
    """Up in a straight line, then down half a cosine to `least` times the peak."""
    if step <= warmup:
        return peak * step / warmup
    part = min((step - warmup) / (total - warmup), 1.0)
    return peak * (least + (1 - least) * (1 + math.cos(math.pi * part)) / 2)


def stable(step, peak, warmup, decay, total):
    """Up, flat, and down in a straight line over the last `decay` steps."""
    return peak * max(min(step / warmup, 1.0, (total - step) / decay), 0.0)


def set_rate(optimiser, rate):
    """Before each step; the steps are counted from 1."""
    for group in optimiser.param_groups:
        group["lr"] = rate


@torch.no_grad()
def clip(weights, limit):
    """Shorten all gradients by one factor, to the norm `limit`; returns their norm."""
    grads = [w.grad for w in weights if w.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    if not norm.isfinite():
        raise ValueError(f"the norm of the gradients is {norm.item()}")
    for g in grads:
        g.mul_((limit / norm).clamp(max=1))
    return norm.item()
