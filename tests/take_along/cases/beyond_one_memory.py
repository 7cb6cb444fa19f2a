"""A store in blocks, its bound, and a mixture, against the library's three functions."""

import torch


def example(own):
    def all_three(Q, K, V, followed, model):
        own.search.__defaults__ = (16,)  # blocks of 16 keys
        return *own.retrieve(Q, K, V, 5), own.next_token(Q, K, followed, model, 0.2, 3.0, 7)

    Q, K, V = (torch.randn(n, 4).double() for n in (3, 50, 50))
    return all_three, (Q, K, V, torch.randint(0, 6, (50,)), torch.rand(3, 6).double().softmax(-1))


def library(own, function, arguments):
    import attnmath.torch as at

    Q, K, V, followed, model = arguments
    scores = (Q @ K.T / 2).topk(5, -1).values
    store = at.store_distribution(Q, K, followed, 6, temperature=3.0, keep=7)
    mixed = at.store_mixture(model, store, 0.2)
    return at.top_k_attention(Q, K, V, keep=5), at.dropped_weight_bound(scores, 45), mixed
