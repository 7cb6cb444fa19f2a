"""Two layers of attention without a network: what one row does to the last, and the bound."""


def example(own):
    import torch

    torch.manual_seed(1)
    layers = [[(0.3 * torch.randn(4, 4), 0.2 * torch.randn(4, 4)) for _ in range(2)] for _ in range(2)]
    X, new = torch.randn(7, 4), torch.randn(8, 4)

    def model(X):
        for heads in layers:
            X = X + sum((X @ QK @ X.mT).softmax(-1) @ X @ OV for QK, OV in heads)
        return X

    def probe(X):
        return own.moved_by_one(model, X, lambda count: new[:count]), torch.tensor(own.bound(layers, 7, 0.9, 1.1))

    probe.layers, probe.new = layers, new
    return probe, (X,)


def library(own, probe, arguments):
    import numpy as np

    import attnmath.numpy as an
    from attnmath import limits

    layers = [[tuple(W.double().numpy() for W in head) for head in heads] for heads in probe.layers]

    def last(X):
        for heads in layers:
            X = X + sum(an.attention(X @ QK, X, X @ OV, scale=1.0)[0] for QK, OV in heads)
        return X[-1]

    X, new, most = arguments[0].double().numpy(), probe.new.double().numpy(), np.zeros(7)
    for k in range(6):
        for row in new:
            Y = X.copy()
            Y[k] = row
            most[k] = max(most[k], np.linalg.norm(last(Y) - last(X)))
    norms = [[(np.linalg.norm(QK, 2), np.linalg.norm(OV, 2)) for QK, OV in heads] for heads in layers]
    delta, R = 0.0, 0.9  # layer by layer, as the norms differ
    for heads in norms:
        a, b = max(QK for QK, _ in heads), sum(OV for _, OV in heads)
        fresh = limits.sensitivity_bound(7, radius=R, scores=a, values=b, slope=1.1)
        delta, R = fresh + 1.1 * (1 + b + 2 * a * b * R * R) * delta, 1.1 * (1 + b) * R
    return most, delta
