import torch


def judge(p, q, drafted, chance):
    """How many drafted tokens are kept, and the law of the token behind them.

    p: (g + 1, t) probabilities of the target. q: (g, t) those from which the tokens
    were drawn, after temperature and truncation. chance: g uniform numbers, 0 to 1.
    """
    one = torch.arange(len(drafted), device=q.device), drafted
    kept = (chance * q[one] < p[:-1][one]).long().cumprod(0).sum(0, keepdim=True)
    q = torch.cat([q, torch.zeros_like(p[:1])])  # nothing is taken off behind the last
    rest = (p[kept] - q[kept]).clamp_min(0)[0]
    return kept, rest / rest.sum()


@torch.no_grad()
def speculate(target, draft, ids, limit, guesses=4, law=lambda z: z.softmax(-1)):
    """Append limit tokens, distributed as the target's own, to ids (n,).

    Both models map ids (1, n) to logits (1, n, t). Temperature and top-k belong into
    law, which both models pass. Returns the ids and the number of target calls.
    """
    calls, end = 0, len(ids) + limit
    while len(ids) < end:
        text, q = ids, []
        for _ in range(min(guesses, end - len(ids) - 1)):
            q.append(law(draft(text[None])[0, -1]))
            text = torch.cat([text, torch.multinomial(q[-1], 1)])
        g, calls = len(q), calls + 1
        p = law(target(text[None])[0, -g - 1 :])  # (g + 1, t), in one call
        q = torch.stack(q) if q else p[:0]
        kept, rest = judge(p, q, text[len(ids) :], torch.rand(g, device=p.device))
        ids = torch.cat([text[: len(ids) + int(kept)], torch.multinomial(rest, 1)])
    return ids, calls
