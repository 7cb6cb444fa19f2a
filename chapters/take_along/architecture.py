import torch
from torch import nn


class Layer(nn.Module):
    """A layer of an encoder, or of a decoder if cross is True; the norm comes first."""

    def __init__(self, d, heads, f, cross=False):
        super().__init__()
        self.attend = nn.MultiheadAttention(d, heads, batch_first=True)
        self.look = nn.MultiheadAttention(d, heads, batch_first=True) if cross else None
        self.network = nn.Sequential(nn.Linear(d, f), nn.GELU(), nn.Linear(f, d))
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3 if cross else 2))

    def forward(self, X, pad=None, later=None, M=None, M_pad=None):
        Z = self.norms[0](X)
        X = X + self.attend(Z, Z, Z, key_padding_mask=pad, attn_mask=later)[0]
        if self.look is not None:
            X = X + self.look(self.norms[2](X), M, M, key_padding_mask=M_pad)[0]
        return X + self.network(self.norms[1](X))


class Transformer(nn.Module):
    """Logits for each target token; token 0 is padding, behind the text."""

    def __init__(self, tokens, d=64, heads=4, f=256, layers=2, longest=256):
        super().__init__()
        self.word, self.place = nn.Embedding(tokens, d), nn.Embedding(longest, d)
        stacks = [
            [Layer(d, heads, f, cross) for _ in range(layers)] for cross in (0, 1)
        ]
        self.encoder, self.decoder = map(nn.ModuleList, stacks)
        self.norm_source, self.norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.head = nn.Linear(d, tokens)

    def embed(self, ids):
        return self.word(ids) + self.place(
            torch.arange(ids.shape[1], device=ids.device)
        )

    def forward(self, source, target):  # (b, m) and (b, n) ids
        n, pad, M, X = (
            target.shape[1],
            source == 0,
            self.embed(source),
            self.embed(target),
        )
        later = torch.ones(n, n, dtype=torch.bool, device=X.device).triu(1)
        for layer in self.encoder:
            M = layer(M, pad)
        M = self.norm_source(M)
        for layer in self.decoder:
            X = layer(X, None, later, M, pad)
        return self.head(self.norm(X))  # (b, n, tokens)
