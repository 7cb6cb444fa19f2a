import torch


def cross_entropy(logits, targets, pad=None, smoothing=0.0):
    """The mean surprise at the targets (...) by logits (..., t); pad does not count.

    With smoothing, each target is mixed with an even guess among all t tokens.
    """
    counts = targets >= 0 if pad is None else targets != pad
    logp = logits.float().log_softmax(-1)
    own = logp.gather(-1, targets.masked_fill(~counts, 0)[..., None])[..., 0]
    token = -(1 - smoothing) * own - smoothing * logp.mean(-1)
    return token.masked_fill(~counts, 0).sum() / counts.sum()


def next_token_loss(model, ids, pad=None, smoothing=0.0):
    """Each position answers for the next one; model maps ids (batch, n) to logits."""
    return cross_entropy(model(ids[:, :-1]), ids[:, 1:], pad, smoothing)


def leaks(model, t, n, steps=100, rate=1e-2, batch=32):
    """Trained on even tokens, late loss minus log t; far below 0 is a leak."""
    optimiser, losses = torch.optim.Adam(model.parameters(), rate), []
    for _ in range(steps):
        loss = next_token_loss(model, torch.randint(t, (batch, n)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    late = losses[-steps // 4 :]
    return sum(late) / len(late) - torch.tensor(float(t)).log().item()
