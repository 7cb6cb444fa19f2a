"""Both kinds of positions, behind three tokens of a cache."""

from tests.take_along.params import scattered


def example(own):
    import torch

    models = [scattered(own.WithPositions(9, 6, 8, learned)) for learned in (True, False)]

    def both(ids):
        return [model(ids, 3) for model in models]

    both.models = models
    return both, (torch.tensor([[3, 1, 4], [1, 5, 8]]),)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    (ids,), (learned, formula) = arguments, function.models
    tables = {"word": learned.word.weight, "position": learned.place.weight}
    waves = at.sinusoidal_positions(8, 6).float()
    words = {"word": formula.word.weight.detach()}
    found = [at.token_embedding(ids, tables, start=3), at.token_embedding(ids, words, 6**0.5, waves, start=3)]
    assert torch.allclose(own.sinusoids(5, 6, start=3), waves[3:], atol=1e-6)
    return [X.detach() for X in found]
