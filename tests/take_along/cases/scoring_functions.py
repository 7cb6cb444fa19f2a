"""The four scores, on queries and keys of one width; the additive one without its bias is the book's."""

import torch

KINDS = ("dot", "bilinear", "additive", "cosine")


def example(own):
    scores = torch.nn.ModuleDict({kind: own.Score(kind, 6, 6, 5) for kind in KINDS})
    torch.nn.init.zeros_(scores["additive"].query.bias)
    Q, K = torch.randn(3, 4, 6), torch.randn(3, 7, 6)

    def all_four(Q, K):
        return tuple(scores[kind](Q, K) for kind in KINDS)

    all_four.scores = scores
    return all_four, (Q, K)


def library(own, function, arguments):
    import attnmath.torch as at

    Q, K = arguments
    scores = function.scores
    additive = scores["additive"]
    weights = additive.query.weight.T, additive.key.weight.T, additive.w.weight[0]
    unit = (x / x.norm(dim=-1, keepdim=True) for x in (Q, K))
    return (
        at.scaled_dot_score(Q, K),
        at.multiplicative_score(Q, K, scores["bilinear"].W),
        at.additive_score(Q, K, *weights),
        10 * at.dot_score(*unit),
    )
