"""Attention within a pattern, a rule on positions, at the price of its tiles."""

import torch


def window(width, ends=0):
    """Each token sees `width` neighbours on both sides; the first `ends` see all."""
    return lambda i, j: ((i - j).abs() <= width) | (i < ends) | (j < ends)


def causal_window(width, sinks=0):
    """Each token sees itself, the last `width` tokens, and the first `sinks` tokens."""
    return lambda i, j: (j <= i) & ((i - j <= width) | (j < sinks))


def tiles(sees, n, size):
    """Which blocks of keys each block of queries needs, (blocks, blocks)."""
    at = torch.arange(n)
    pad = (0, -n % size, 0, -n % size)
    mask = torch.nn.functional.pad(sees(at[:, None], at), pad)
    return mask.unflatten(0, (-1, size)).unflatten(2, (-1, size)).any(3).any(1)


def sparse_attention(Q, K, V, sees, size=64):
    """Q, K, V (..., n, d) -> (..., n, d). Every token must see at least one key."""
    n, rows = Q.shape[-2], []
    for a, needed in enumerate(tiles(sees, n, size)):
        i = torch.arange(a * size, min(a * size + size, n), device=Q.device)
        blocks = needed.nonzero().ravel().to(Q.device)
        j = (blocks[:, None] * size + torch.arange(size, device=Q.device)).ravel()
        j = j[j < n]  # the last block may be short
        mask = sees(i[:, None], j)  # (queries of the block, keys that they need)
        rows.append(
            torch.nn.functional.scaled_dot_product_attention(
                Q[..., i, :], K[..., j, :], V[..., j, :], attn_mask=mask
            )
        )
    return torch.cat(rows, -2)
