import torch


def adjust(logits, temperature=1.0, k=None, p=1.0):
    """Three dials: logits (..., t) to log-probabilities, -inf for what is left out."""
    logits = logits / temperature
    if k is not None:
        least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    chances, place = logits.softmax(-1).sort(descending=True, stable=True)
    better = chances.cumsum(-1) - chances  # what the better tokens have together
    better[..., 0] = -1  # the best token stays
    out = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, place, better >= p)
    return logits.masked_fill(out, -torch.inf).log_softmax(-1)


@torch.no_grad()
def sample(model, ids, steps, end=None, greedy=False, **dials):
    """Continue ids (batch, n); model maps them to logits (batch, n, t)."""
    done = torch.zeros(len(ids), 1, dtype=torch.bool, device=ids.device)
    for _ in range(steps):
        logits = model(ids)[:, -1]
        new = logits.argmax(-1, keepdim=True)
        if not greedy:
            new = torch.multinomial(adjust(logits, **dials).exp(), 1)
        if end is not None:
            new = new.masked_fill(done, end)  # after its end a text stays as it is
            done = done | (new == end)
        ids = torch.cat([ids, new], -1)
    return ids


@torch.no_grad()
def beam_search(model, ids, steps, end, width=4, alpha=0.0):
    """The best continuation of ids (1, n) among width beginnings, and its score."""
    beam, ended = [(0.0, ids)], []
    for length in range(1, steps + 1):
        logp = model(torch.cat([text for _, text in beam]))[:, -1].log_softmax(-1)
        total = logp + logp.new_tensor([score for score, _ in beam])[:, None]
        scores, places = total.flatten().topk(min(2 * width, total.numel()))
        longer = []
        pairs = zip(scores.tolist(), places.tolist(), strict=True)
        for score, place in pairs:
            parent, token = divmod(place, logp.shape[-1])
            text = torch.cat([beam[parent][1], ids.new_tensor([[token]])], -1)
            if token == end or length == steps:
                ended.append((score / length**alpha, text))
            else:
                longer.append((score, text))
        beam = longer[:width]
    return max(ended, key=lambda pair: pair[0])[::-1]
