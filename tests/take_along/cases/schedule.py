"""Three schedules, and gradients that are clipped or short enough."""


def example(own):
    import torch

    def everything(a, b):
        steps = range(1, 41)
        rates = (
            [own.inverse_root(s, 16, 8, 0.5) for s in steps],
            [own.cosine(s, 0.2, 8, 40) for s in steps],
            [own.stable(s, 0.2, 8, 12, 40) for s in steps],
        )
        clipped = []
        for limit in (0.5, 50.0):
            weights = [torch.zeros_like(x).requires_grad_() for x in (a, b)]
            for w, g in zip(weights, (a, b), strict=True):
                w.grad = g.clone()
            norm = own.clip(weights, limit)
            clipped += [*(w.grad for w in weights), torch.tensor(norm)]
        return *(torch.tensor(rate) for rate in rates), *clipped

    return everything, (torch.tensor([[3.0, 1.0]]), torch.tensor([4.0, -2.0]))


def library(own, function, arguments):
    import numpy as np

    import attnmath.torch as at
    from attnmath.schedules import warmup, warmup_stable_decay

    steps = np.arange(1, 41)
    half = 0.02 + 0.18 * np.cos(np.pi * np.maximum(steps - 8, 0) / 64) ** 2
    rates = (
        np.array([warmup(s, 16, 8, 0.5) for s in steps.tolist()]),
        np.where(steps < 8, 0.025 * steps, half),
        np.array([warmup_stable_decay(s, 0.2, 8, 12, 40) for s in steps.tolist()]),
    )
    clipped = []
    for limit in (0.5, 50.0):
        tree, norm = at.clip_by_norm(dict(zip("ab", arguments, strict=True)), limit)
        clipped += [tree["a"], tree["b"], np.asarray(float(norm))]
    return *rates, *clipped
