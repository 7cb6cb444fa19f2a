"""The gradient of unequal parts, and a network of split hidden units."""


def example(own):
    import torch

    generator = torch.Generator().manual_seed(3)
    X, up, down, bias_up, bias_down = (
        torch.randn(*shape, generator=generator) for shape in ((7, 4), (4, 6), (6, 4), (6,), (4,))
    )
    targets = torch.tensor([0, 3, 1, 2, 2, 0, 1])
    model = torch.nn.Linear(4, 4)
    with torch.no_grad():
        for W in model.parameters():
            W.copy_(torch.randn(W.shape, generator=generator))

    def loss_sum(model, part):
        rows, wanted = part
        return torch.nn.functional.cross_entropy(model(rows), wanted, reduction="sum"), len(rows)

    def both(X, up, down, bias_up, bias_down):
        parts = [(X[:2], targets[:2]), (X[2:3], targets[2:3]), (X[3:], targets[3:])]
        gradients = own.data_parallel(model, loss_sum, parts)
        return *gradients, own.split_network(X, up, down, bias_up, bias_down, 3)

    both.model, both.targets = model, targets
    return both, (X, up, down, bias_up, bias_down)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    X, up, down, bias_up, bias_down = arguments
    weights = list(function.model.parameters())
    loss = at.cross_entropy(at.linear(X, weights[0].T, weights[1]), function.targets)
    tree = {"up": {"weight": up, "bias": bias_up}, "down": {"weight": down, "bias": bias_down}}
    return *torch.autograd.grad(loss, weights), at.feed_forward(X, tree, activation=at.relu)
