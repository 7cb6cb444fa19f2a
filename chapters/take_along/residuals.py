from torch import nn


class Residual(nn.Module):
    """x + f(norm(x)), or norm(x + f(x)) if the norm is to come last."""

    def __init__(self, f, d, norm_first=True, dropout=0.0):
        super().__init__()
        self.f, self.norm, self.norm_first = f, nn.LayerNorm(d), norm_first
        self.drop = nn.Dropout(dropout)

    def forward(self, X, **options):
        if self.norm_first:
            return X + self.drop(self.f(self.norm(X), **options))
        return self.norm(X + self.drop(self.f(X, **options)))


def stack(parts, d, norm_first=True):
    """Sublayers, one after the other; pre-norm needs one more norm at the end."""
    layers = [Residual(f, d, norm_first) for f in parts]
    return nn.Sequential(*layers, nn.LayerNorm(d) if norm_first else nn.Identity())


def start_small(last_maps, sublayers):
    """Divide the last map of each sublayer by the root of their number, as GPT-2 does.

    Then the sum of all corrections has at first the size of one of them.
    """
    for linear in last_maps:
        nn.init.normal_(linear.weight, std=0.02 / sublayers**0.5)
        nn.init.zeros_(linear.bias)
