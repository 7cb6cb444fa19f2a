"""The loss of two towers, each a linear map."""

from tests.take_along.params import scattered


def example(own):
    import torch
    from torch import nn

    model = scattered(own.TwoTowers(nn.Linear(7, 6), nn.Linear(5, 4), 6, 4, width=3))
    model.log_scale.data.fill_(1.5)

    def scores_and_loss(pictures, captions):
        scores = model(pictures, captions)
        return scores, own.clip_loss(scores)

    scores_and_loss.model = model
    return scores_and_loss, (torch.randn(8, 7), torch.randn(8, 5))


def library(own, function, arguments):
    import numpy as np

    import attnmath.numpy as an

    model, scale = function.model, np.array(1.5)
    towers = ((model.pictures, model.from_picture), (model.captions, model.from_caption))
    U, V = (into(tower(X)).detach().double().numpy() for (tower, into), X in zip(towers, arguments, strict=True))
    scores = an.cosine_scores(U, V, scale)[0]
    assert (own.classify(model, *arguments).numpy() == scores.argmax(-1)).all()
    return scores, an.contrastive_loss(U, V, scale)[0]
