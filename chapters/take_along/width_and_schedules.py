import torch
from torch import nn


def kind(name, module):
    """A parameter is "input" (embeddings, norms, biases), "hidden" or "output"."""
    if name.endswith("bias") or isinstance(module, nn.Embedding | nn.LayerNorm):
        return "input"
    return "output" if getattr(module, "is_output", False) else "hidden"


def kinds(model):
    """All parameters with their kinds: (parameter, kind)."""
    for module in model.modules():
        for name, P in module.named_parameters(recurse=False):
            yield P, kind(name, module)


def mup_groups(model, rate, width, base, **options):
    """Groups for AdamW: the rate was tuned at the width base, this model is wider."""
    scale = {"input": 1.0, "hidden": base / width, "output": 1.0}
    groups = {
        name: {"params": [], "lr": rate * s} | options for name, s in scale.items()
    }
    for P, name in kinds(model):
        groups[name]["params"].append(P)
    return list(groups.values())


@torch.no_grad()
def mup_init(model, width, base, table=0.1):
    """First values: the output's are as widely spread as in the base model."""
    for P, name in kinds(model):
        if P.ndim == 2:  # nn.Linear has shape (out, in)
            rows = base if name == "output" else P.shape[1]
            P.normal_(0, table if name == "input" else rows**-0.5)


class Output(nn.Linear):
    """The last matrix, to the scores of tokens, with muP's multiplier base / width."""

    def __init__(self, width, words, base):
        super().__init__(width, words, bias=False)
        self.is_output, self.multiplier = True, base / width

    def forward(self, X):
        return self.multiplier * super().forward(X)


def warmup_stable_decay(step, total, warmup, decay):
    """What multiplies the rate at a step from 1 to total: up, level, and down to 0."""
    return max(min(step / warmup, 1.0, (total - step) / decay), 0.0)
