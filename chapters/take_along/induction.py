import torch
from torch import nn


class AttentionOnly(nn.Module):
    """Words, positions, causal attention with residual connections, logits."""

    def __init__(self, words, n, width=48, heads=4, layers=2):
        super().__init__()
        self.heads = heads
        self.word = nn.Parameter(0.3 * torch.randn(words, width))
        self.place = nn.Parameter(0.3 * torch.randn(n, width))
        # for each layer: queries, keys, values, output
        scale = torch.tensor([1, 1, 1, 0.5])[:, None, None] * width**-0.5
        draws = (scale * torch.randn(4, width, width) for _ in range(layers))
        self.maps = nn.ParameterList(draws)
        self.read = nn.Parameter(width**-0.5 * torch.randn(width, words))

    def forward(self, ids):
        """ids (b, n) -> logits (b, n, words), each layer's weights (b, heads, n, n)."""
        n, weights = ids.shape[-1], []
        X, future = self.word[ids] + self.place[:n], torch.ones(n, n).triu(1).bool()
        for maps in self.maps:
            parts = (X @ W for W in maps[:3])
            Q, K, V = (A.unflatten(-1, (self.heads, -1)).transpose(1, 2) for A in parts)
            S = Q @ K.mT / Q.shape[-1] ** 0.5
            P = S.masked_fill(future, -torch.inf).softmax(-1)
            X = X + (P @ V).transpose(1, 2).flatten(2) @ maps[3]
            weights.append(P)
        return X @ self.read, weights


def occurrence_scores(P, ids, count):
    """P (b, heads, n, n), ids (b, n) -> (heads, count): mean weights behind the first,
    …, the last earlier occurrence of the query's token, where it has `count` of them.
    The sum over them is the induction score of these rows."""
    n = ids.shape[-1]
    same = ids[:, :, None] == ids[:, None, :-1]  # is the token before j that of i?
    behind = nn.functional.pad(same, (1, 0)) & torch.ones(n, n).tril().bool()
    rows = behind.sum(-1) == count  # (b, n)
    number = behind.cumsum(-1) * behind  # 1 behind the first occurrence, …
    found = [(P * (number == r)[:, None]).sum(-1) for r in range(1, count + 1)]
    found = [(w * rows[:, None]).sum((0, 2)) / rows.sum() for w in found]
    return torch.stack(found, -1)
