"""Rotary positions stretched for longer texts, and a cache of fixed size."""

import math

import torch
import torch.nn.functional as F


def frequencies(k, base=10_000.0):  # radians for each position and pair
    return base ** (-torch.arange(0, k, 2, dtype=torch.float64) / k)


def ntk(omega, s):
    j = torch.arange(len(omega), dtype=omega.dtype)
    return omega * s ** (-j / (len(omega) - 1))


def yarn(omega, s, trained, slow=1, fast=32):
    """Stretch what turned at most `slow` times in training, keep what turned `fast`."""
    turns = trained * omega / (2 * math.pi)
    keep = ((turns - slow) / (fast - slow)).clip(0, 1)
    return omega * (keep + (1 - keep) / s)


def yarn_scale(k, s):  # of the scores, instead of 1 / sqrt(k)
    return (0.1 * math.log(s) + 1) ** 2 / k**0.5


def rotate(X, omega, start=0):
    """Turn neighbouring components of (..., n, k); row 0 stands at position `start`."""
    place = torch.arange(start, start + X.shape[-2], dtype=omega.dtype)
    angle = (place[:, None] * omega).to(X.device)
    cos, sin = angle.cos().to(X.dtype), angle.sin().to(X.dtype)
    a, b = X[..., ::2], X[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class SinkCache:
    """Attend row by row to the first `sinks` rows, the last `width` and itself."""

    def __init__(self, omega, sinks=4, width=124):
        self.omega, self.sinks, self.width, self.rows = omega, sinks, width, None

    def attend(self, q, k, v, scale=None):  # each (..., 1, width of a head), not turned
        K, V = self.rows or (k[..., :0, :], v[..., :0, :])
        K, V = torch.cat([K, k], -2), torch.cat([V, v], -2)
        m = K.shape[-2]  # positions are counted in the cache
        gone = max(0, m - self.sinks - self.width)
        keep = [i for i in range(m) if not 0 <= i - self.sinks < gone]
        self.rows = K[..., keep, :], V[..., keep, :]
        Q, K = rotate(q, self.omega, m - 1), rotate(K, self.omega)
        return F.scaled_dot_product_attention(Q, K, V, scale=scale)
