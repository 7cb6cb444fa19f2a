"""A memory of twelve patterns, with cues of which a half is known."""


def example(own):
    import torch

    memory = own.Memory(torch.randn(12, 8), beta=6.0)
    known = torch.arange(8) < 5

    def recall(cue):
        y = memory(cue, known)
        return y, memory.weights(cue), memory.energy(cue), torch.tensor(own.Memory(memory.patterns).beta)

    recall.memory, recall.known = memory, known
    return recall, (torch.randn(3, 8),)


def library(own, recall, arguments):
    import numpy as np

    import attnmath.numpy as an
    from attnmath.hopfield import separation

    cue, P = (x.double().numpy() for x in (arguments[0], recall.memory.patterns))

    def of_length_one(X):
        return X / np.linalg.norm(X, axis=-1, keepdims=True)

    K = of_length_one(P - P.mean(0))
    x = of_length_one((cue - P.mean(0)) * recall.known.numpy())
    x, _ = an.hopfield(x, K, scale=6.0, steps=2)
    weights, _ = an.attention_weights(cue, K, scale=6.0)
    beta = np.log(11 / 0.01) / separation(K).min()
    return an.attention(x, K, P, scale=6.0)[0], weights, an.hopfield_energy(cue, K, scale=6.0)[0], beta
