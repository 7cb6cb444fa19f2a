"""Dropout of entries and of whole examples, and attention with dropped weights."""


def example(own):
    import torch

    entry, path, attend = own.Dropout(0.3), own.Dropout(0.5, front=1), own.Attention(0.4)
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randn(4, 3, 5, generator=generator) for _ in range(3)]

    def drops(Q, K, V):
        return entry(Q), path(K), attend(Q, K, V), attend.eval()(Q, K, V), attend.train()(V, K, V)

    return drops, tuple(rows)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    Q, K, V = arguments
    torch.manual_seed(0)  # the same masks again, as arguments

    def draw(*shape, p):
        return torch.rand(shape) >= p

    def drop(P):
        return at.dropout(P, draw(4, 3, 3, p=0.4), 0.4)

    one = at.dropout(Q, draw(4, 3, 5, p=0.3), 0.3)
    two = at.dropout(K, draw(4, 1, 1, p=0.5).expand(4, 3, 5), 0.5)
    three = at.attention(Q, K, V, drop=drop)
    plain = at.attention(Q, K, V)
    last = at.attention(V, K, V, drop=drop)
    return one, two, three, plain, last
