"""Six texts of four guesses each: how many are kept, and the law of the next token."""

import torch


def example(own):
    p, q = torch.randn(2, 6, 5, 7, dtype=torch.float64).softmax(-1)
    q[1] = p[1]  # the second text keeps all
    drafted, chance = torch.randint(7, (6, 4)), torch.rand(6, 4, dtype=torch.float64)

    def judged(p, q, drafted, chance):
        return [own.judge(*text) for text in zip(p, q, drafted, chance, strict=True)]

    return judged, (p, q[:, :4], drafted, chance)


def library(own, function, arguments):
    import numpy as np

    from attnmath import speculative

    class Tape(np.random.Generator):
        """A generator that reads its numbers from a list."""

        def __init__(self, numbers):
            super().__init__(np.random.PCG64(0))
            self.numbers = [*numbers, 0.5]

        def random(self):
            return self.numbers.pop(0)

    found = []
    for p, q, drafted, chance in zip(*(X.numpy() for X in arguments), strict=True):
        kept = len(speculative.verify(p, q, drafted.tolist(), Tape(chance))) - 1
        law = speculative.residual(p[kept], q[kept]) if kept < len(drafted) else p[kept]
        found.append((np.array([kept]), law))
    return found
