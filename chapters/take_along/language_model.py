import math

import torch
from torch.nn import functional as F


def batch(row, context, size):
    """Random windows of a row (n,): what is read and what follows, (size, context)."""
    starts = torch.randint(len(row) - context, (size, 1), device=row.device)
    rows = row[starts + torch.arange(context + 1, device=row.device)]
    return rows[:, :-1], rows[:, 1:]


@torch.no_grad()
def bits_per_byte(model, row, count, context, stride):
    """The bits that a model of logits (b, n, t) needs for row[1:], divided by count.

    count: the bytes that row[1:] stands for. Windows overlap, and each token is counted
    once, with context - stride tokens before it (or all there are).
    """
    total, done = 0.0, 1  # row[0] only begins the text
    while done < len(row):
        end = min(max(done + stride, context + 1), len(row))
        window = row[max(0, end - context - 1) : end]
        loss = F.cross_entropy(
            model(window[None, :-1])[0], window[1:], reduction="none"
        )
        total += loss[-(end - done) :].sum().item()
        done = end
    return total / math.log(2) / count


def nucleus(logits, mass=0.9, temperature=1.0):
    """Probabilities (b, t): of the likeliest tokens that hold so much together."""
    p = torch.softmax(logits / temperature, -1)
    p, order = p.sort(-1, descending=True)
    p = p * (p.cumsum(-1) - p < mass)  # a token stays while those before hold less
    return torch.zeros_like(p).scatter(-1, order, p / p.sum(-1, keepdim=True))


@torch.no_grad()
def sample(model, ids, steps, context, end=None, **options):
    """Go on with one text of ids (n,), until the end token or so many tokens later."""
    for _ in range(steps):
        p = nucleus(model(ids[None, -context:])[:, -1], **options)
        new = torch.multinomial(p[0], 1)
        ids = torch.cat([ids, new])
        if end is not None and new.item() == end:
            break
    return ids
