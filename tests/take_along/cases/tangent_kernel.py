"""A layer with eight heads: its kernel, the forecast of 30 steps, and how the training keeps to it."""

HEADS, RATE, STEPS = 8, 0.05, 30


def example(own):
    import torch

    class Layer(torch.nn.Module):
        """As in eq:many-heads."""

        def __init__(self):
            super().__init__()
            shapes = {"query": (6, 32), "key": (6, 32), "value": (6, 32), "output": (32, 1)}
            self.own = torch.nn.ParameterDict({name: torch.randn(shape) for name, shape in shapes.items()})

        def forward(self, X):
            Q, K, V = (X @ self.own[name] / 6**0.5 for name in ("query", "key", "value"))
            Q, K, V = (A.unflatten(-1, (HEADS, 4)).transpose(1, 2) for A in (Q[:, -1:], K, V))
            H = (Q @ K.mT / 2).softmax(-1) @ V  # (m, heads, 1, 4)
            return (H.transpose(1, 2).flatten(1) @ self.own["output"])[:, 0] / 32**0.5

    layer, trained = Layer(), Layer()
    trained.load_state_dict(layer.state_dict())
    X, y = torch.randn(4, 5, 6), torch.tensor([1.0, -1, 1, -1])
    for _ in range(STEPS):
        trained.zero_grad()
        (0.5 * (trained(X) - y) ** 2).sum().backward()
        with torch.no_grad():
            for p in trained.parameters():
                p -= RATE * p.grad

    def look(X, y):
        K = own.kernel(layer, X)
        return (
            K,
            own.forecast(K, layer(X).detach() - y, STEPS, RATE),
            torch.tensor(own.linearity(layer, trained, X, y, RATE, STEPS)),
        )

    look.layer, look.trained = layer, trained
    return look, (X, y)


def library(own, look, arguments):
    from functools import partial

    import numpy as np

    from attnmath.tangent_kernel import descend, linear_change, many_heads, moved, tangent_kernel

    X, y = (A.double().numpy() for A in arguments)
    theta = {name: {"weight": W.detach().double().numpy()} for name, W in look.layer.own.items()}
    model = partial(many_heads, heads=HEADS)
    K, (f, _) = tangent_kernel(model, theta, X), model(X, theta)
    change = linear_change(K, f - y, [STEPS], rate=RATE)[0]
    after, path = descend(model, theta, X, y, RATE, STEPS, watch=(STEPS,))
    return K, change, np.array([abs(f + change - path[0]).max(), moved(theta, after)])
