"""CLIP: two towers, one space, and a loss that matches pictures with their captions."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class TwoTowers(nn.Module):
    """Scores of n pictures with m captions: cosines times a learned scale.

    `pictures` and `captions` are any modules that give vectors (n, p) and (m, q).
    """

    def __init__(self, pictures, captions, p, q, width=64, temperature=0.07):
        super().__init__()
        self.pictures, self.captions = pictures, captions
        self.from_picture = nn.Linear(p, width, bias=False)
        self.from_caption = nn.Linear(q, width, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))

    def forward(self, pictures, captions):
        u = self.from_picture(self.pictures(pictures))  # (n, width)
        v = self.from_caption(self.captions(captions))  # (m, width)
        cosines = F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).T  # (n, m)
        scale = self.log_scale.clamp(max=math.log(100)).exp()  # 100 at most, as in CLIP
        return scale * cosines


def clip_loss(scores):
    """Picture i belongs to caption i: both ask for their own among all of the batch."""
    own = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


@torch.no_grad()
def classify(model, pictures, sentences):
    """For each picture the number of the sentence that fits best."""
    return model(pictures, sentences).argmax(-1)
