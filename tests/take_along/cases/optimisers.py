"""Three steps on a matrix, which is decayed, and a vector, which is not."""


def example(own):
    import torch

    W, b, X = (torch.randn(s, generator=torch.Generator().manual_seed(8)) for s in ((3, 2), (2,), (5, 3)))

    def steps(W, b, X):
        W, b = (x.clone().requires_grad_() for x in (W, b))
        optimiser = own.AdamW([W, b], 0.1, (0.9, 0.98), 1e-9, decay=0.2)
        for _ in range(3):
            optimiser.zero_grad()
            ((X @ W + b) ** 2).mean().backward()
            optimiser.step()
        return W.detach(), b.detach()

    return steps, (W, b, X)


def library(own, function, arguments):
    import torch

    import attnmath.torch as at

    W, b, X = arguments
    trees = [{"x": W}, {"x": b}]
    states = [at.adam_state(tree) for tree in trees]
    for _ in range(3):
        leaves = [tree["x"].clone().requires_grad_() for tree in trees]
        grads = torch.autograd.grad(((X @ leaves[0] + leaves[1]) ** 2).mean(), leaves)
        for i, decay in enumerate((0.2, 0.0)):
            trees[i], states[i] = at.adam(trees[i], {"x": grads[i]}, states[i], 0.1, weight_decay=decay)
    return trees[0]["x"], trees[1]["x"]
