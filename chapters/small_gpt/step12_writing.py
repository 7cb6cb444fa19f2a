"""A small GPT, step 12 of 12: it writes."""

import torch
from torch import nn


def attention(Q, K, V, mask):
    S = Q @ K.mT / Q.shape[-1] ** 0.5  # scores: row i belongs to query i
    S = S.masked_fill(~mask, -torch.inf)  # True: may attend
    return S.softmax(dim=-1) @ V


class SelfAttention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(d, d), nn.Linear(d, d)
        self.value, self.output = nn.Linear(d, d), nn.Linear(d, d)

    def split(self, A):  # (..., n, d) becomes (..., heads, n, d / heads)
        return A.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, X):
        Q, K, V = self.query(X), self.key(X), self.value(X)
        n = X.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool).tril()  # nobody sees the future
        heads = attention(self.split(Q), self.split(K), self.split(V), mask)
        return self.output(heads.transpose(-3, -2).flatten(-2))  # side by side again


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(d), SelfAttention(d, heads)
        self.norm2, self.up = nn.LayerNorm(d), nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, X):
        X = X + self.attention(self.norm1(X))
        return X + self.down(nn.functional.gelu(self.up(self.norm2(X))))


class Embedding(nn.Module):
    def __init__(self, tokens, length, d):
        super().__init__()
        self.word, self.place = nn.Embedding(tokens, d), nn.Embedding(length, d)

    def forward(self, ids):
        return self.word(ids) + self.place(torch.arange(ids.shape[-1]))


class GPT(nn.Module):
    def __init__(self, tokens, length, d=32, heads=4, layers=2):
        super().__init__()
        self.embedding = Embedding(tokens, length, d)
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, tokens)

    def forward(self, ids):  # one row of logits for each place
        return self.out(self.norm(self.blocks(self.embedding(ids))))


def examples(number, n=5, letters=10):
    """Letters, the sign `letters`, and the same letters from last to first."""
    word = torch.randint(letters, (number, n))
    return torch.cat([word, torch.full((number, 1), letters), word.flip(1)], dim=1)


def loss_of(model, ids, first=6):
    """The mean cross-entropy of each next token, from place `first` on."""
    logits = model(ids[:, :-1])  # place i predicts token i + 1
    said, wanted = logits[:, first - 1 :], ids[:, first:]
    return nn.functional.cross_entropy(said.flatten(0, 1), wanted.flatten())


def train(model, steps, rate=3e-3, warmup=20):
    optimiser = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98))
    for step in range(steps):
        share = min((step + 1) / warmup, 1 - step / steps)  # up, then down to 0
        optimiser.param_groups[0]["lr"] = rate * share
        loss = loss_of(model, examples(128))  # new examples at every step
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:3}: loss {loss.item():.3f}")


@torch.no_grad()
def write(model, ids, number):
    for _ in range(number):
        likeliest = model(ids)[:, -1].argmax(-1)  # of the last place
        ids = torch.cat([ids, likeliest[:, None]], dim=1)
    return ids


if __name__ == "__main__":
    torch.manual_seed(0)
    model = GPT(tokens=11, length=10)
    train(model, steps=201)
    new = examples(1000)
    right = (write(model, new[:, :6], 5) == new).all(dim=1)
    print(f"{right.float().mean():.1%} of 1000 new words are written without a mistake")
