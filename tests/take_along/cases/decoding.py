"""The dials, greedy search and beam search on a table of next tokens."""


def example(own):
    import torch

    table = torch.randn(6, 6, generator=torch.Generator().manual_seed(4)) * 2

    def all_of_it(table):
        def model(ids):
            return table[ids]

        ids = torch.tensor([[1], [2]])
        dials = own.adjust(table, temperature=0.7), own.adjust(table, k=3).exp(), own.adjust(table, p=0.8).exp()
        greedy = own.sample(model, ids, 5, greedy=True)
        best, score = own.beam_search(model, torch.tensor([[1]]), 5, 0, width=3)
        longer, higher = own.beam_search(model, torch.tensor([[1]]), 5, 0, width=3, alpha=1.0)
        return *dials, greedy, best, torch.tensor([score, higher]), longer

    return all_of_it, (table,)


def library(own, function, arguments):
    import numpy as np

    from attnmath.decoding import beam_search, greedy

    table = arguments[0].double().numpy()
    P = np.exp(table) / np.exp(table).sum(-1, keepdims=True)
    logP = np.log(P)

    def step(prefixes, rows, parents):
        return logP[prefixes[:, -1]]

    def endless(prefixes, rows, parents):  # a seventh token that is never drawn: no text ends
        return np.concatenate([logP[prefixes[:, -1]], np.full((len(prefixes), 1), -np.inf)], -1)

    def cut(keep):
        kept = np.where(keep, P, 0)
        return kept / kept.sum(-1, keepdims=True)

    rank = np.argsort(np.argsort(-P, axis=-1), axis=-1)
    before = np.array([[sum(q for q in row if q > p) for p in row] for row in P])
    warm = P ** (1 / 0.7)
    dials = np.log(warm / warm.sum(-1, keepdims=True)), cut(rank < 3), cut(before < 0.8)
    texts = [[first, *greedy(endless, first, 6, 1, 5)[0][0]] for first in (1, 2)]
    found = []
    for alpha in (0.0, 1.0):
        text, score = beam_search(step, 1, 0, 1, 3, 5, length_penalty=alpha)
        text = [1, *text[0]]
        found.append((np.array([text + [0] * (len(text) < 6)]), score[0]))
    return *dials, np.array(texts), found[0][0], np.array([found[0][1], found[1][1]]), found[1][0]
