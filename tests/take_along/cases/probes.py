"""A probe, its control, and a small network whose middle is steered by the difference of two means."""

import torch


def data():
    torch.manual_seed(0)
    words, y = torch.randint(0, 40, (300,)), torch.randint(0, 3, (300,))
    X = torch.randn(40, 8)[words] + torch.randn(3, 8)[y]
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4))
    return words, y, X, model


def example(own):
    words, y, X, model = data()
    held = own.new_words(words)
    assert not set(words[held].tolist()) & set(words[~held].tolist())
    labels = own.control(words, y)
    assert all(len(labels[words == word].unique()) == 1 for word in words.unique())
    assert own.accuracy(X, y, held) > 0.7 > 0.5 > own.accuracy(X, labels, held)
    with own.steering(model[1], torch.ones(6), 1.0):
        assert not torch.equal(model(X[:2]), data()[-1](X[:2]))
    v = own.mean_difference(model[:2](X).detach(), y == 0)
    own.steering(model[1], v, -2.0).__enter__()
    return lambda X: (v, model(X).detach()), (X,)


def library(own, function, arguments):
    from attnmath import probes

    _, y, X, model = data()
    hidden = model[:2](X).detach().numpy()
    v = probes.mean_difference(hidden, (y == 0).numpy())
    moved = torch.from_numpy(probes.steered(hidden, v, -2.0))
    return v, model[2](moved)
