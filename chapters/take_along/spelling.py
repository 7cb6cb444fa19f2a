import torch
import torch.nn.functional as F


def edits(a, b):
    """The fewest symbols to change, insert or delete to make a into b."""
    row = list(range(len(b) + 1))  # from nothing to each beginning of b
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            changed = before + (x != y)
            before, row[j] = row[j], min(changed, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def error_rates(said, references):
    """Edits to 100 reference symbols, and wrong words in 100."""
    distance = length = wrong = 0
    for guess, several in zip(said, references, strict=True):
        closest = min(several, key=lambda spoken: edits(guess, spoken))
        distance, length = distance + edits(guess, closest), length + len(closest)
        wrong += edits(guess, closest) > 0
    return 100 * distance / length, 100 * wrong / len(said)


def train_step(model, optimiser, source, target, pad=0, limit=1.0):
    """One step; target (batch, m) has a start and an end symbol."""
    logits = model(source, target[:, :-1])
    loss = F.cross_entropy(logits.mT, target[:, 1:], ignore_index=pad)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimiser.step()
    return loss.item()


@torch.no_grad()
def say(model, source, start, end, limit=20):
    """The most probable next symbol, again and again, for a batch of sources."""
    said = torch.full((len(source), 1), start)
    for _ in range(limit):
        said = torch.cat([said, model(source, said)[:, -1:].argmax(-1)], 1)
        if (said == end).any(1).all():
            break
    texts = [row[1:] for row in said.tolist()]
    return [text[: text.index(end)] if end in text else text for text in texts]
