"""Six steps of a small problem in float16, from a scale at which the first gradients overflow."""


def example(own):
    import torch

    X = torch.tensor([[0.5, -1.0], [2.0, 0.25], [1.0, 1.0]])
    y = torch.tensor([1.0, 0.5, -2.0])

    def steps(X, y):
        w = torch.tensor([0.5, -0.25], requires_grad=True)
        optimiser, scaler = torch.optim.SGD([w], 0.1), own.LossScale(2.0**17, interval=2)

        def loss_of(copies):
            return ((X.half() @ copies[0]).float() - y).square().mean()

        taken, scales = [], []
        for _ in range(6):
            _, finite = own.mixed_step(loss_of, [w], optimiser, scaler)
            taken.append(float(finite))
            scales.append(scaler.scale)
        return w.detach(), torch.tensor(taken), torch.tensor(scales)

    return steps, (X, y)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at
    from attnmath.loss_scale import LossScale

    X, y = arguments
    w, scale = torch.tensor([0.5, -0.25]), LossScale(2.0**17, interval=2)
    taken, scales = [], []
    for _ in range(6):
        copy = w.half().requires_grad_()
        loss = ((X.half() @ copy).float() - y).square().mean()
        (g,) = torch.autograd.grad(at.scale_loss(loss, scale.scale), copy)
        grads, finite = at.unscale({"w": g}, scale.scale)
        if finite:
            w = w - 0.1 * grads["w"]
        scale = scale.update(finite)
        taken.append(float(finite))
        scales.append(scale.scale)
    assert 0 < sum(taken) < 6, "an overflow, and steps"
    return w, torch.tensor(taken), torch.tensor(scales)
