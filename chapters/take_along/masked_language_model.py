import torch
from torch import nn
from torch.nn import functional as F


def blank(ids, mask_id, words, share=0.15, pad_id=0):
    """BERT's blanks for texts (b, n): what the model sees, which places it must name.

    Of each text 15 % of the tokens are chosen. On average 80 % of these become the
    mask, 10 % a random id (words[0] <= id < words[1]), and 10 % stay as they are.
    """
    free = ids != pad_id
    count = (share * free.sum(-1, keepdim=True) + 0.5).floor().clamp(min=1)
    order = torch.rand(ids.shape, device=ids.device).masked_fill(~free, 2.0)
    chosen = (order.argsort(-1).argsort(-1) < count) & free
    fate = torch.rand(ids.shape, device=ids.device)
    seen = ids.masked_fill(chosen & (fate < 0.8), mask_id)
    random = torch.randint(*words, ids.shape, device=ids.device)
    return torch.where(chosen & (fate >= 0.9), random, seen), chosen


class MaskedHead(nn.Module):
    """Scores of all tokens for rows (m, d), with the encoder's word vectors (t, d)."""

    def __init__(self, table):
        super().__init__()
        words, d = table.shape
        self.table, self.bias = table, nn.Parameter(torch.zeros(words))
        self.dense, self.norm = nn.Linear(d, d), nn.LayerNorm(d, eps=1e-12)

    def forward(self, H):
        return self.norm(F.gelu(self.dense(H))) @ self.table.T + self.bias


def masked_loss(encoder, head, ids, seen, chosen):
    H = encoder(seen)  # (b, n, d)
    return F.cross_entropy(head(H[chosen]), ids[chosen])  # the chosen places alone


def training_step(encoder, head, optimiser, ids, mask_id, words):
    seen, chosen = blank(
        ids, mask_id, words
    )  # other blanks each time that a text comes by
    loss = masked_loss(encoder, head, ids, seen, chosen)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()
