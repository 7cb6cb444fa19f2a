import torch
from torch.func import functional_call, jacrev


def gradients(model, X):
    """The gradient of each of m outputs by all parameters: (m, parameters).

    model: an nn.Module with one output for each input, (m, ...) -> (m,).
    """
    params = {name: p.detach() for name, p in model.named_parameters()}
    J = jacrev(lambda own: functional_call(model, own, (X,)))(params)
    return torch.cat([leaf.flatten(1) for leaf in J.values()], 1)


def kernel(model, X, Z=None):
    """The empirical tangent kernel, (m, l): how a step on z moves the output for x."""
    J = gradients(model, X)
    return J @ (J if Z is None else gradients(model, Z)).T


def forecast(K, error, steps, rate, cross=None):
    """How the linearised model's outputs change in so many steps of gradient descent.

    K (m, m): kernel of the training inputs; error (m,): first outputs less targets;
    cross (l, m): kernel of other inputs with them. The loss is half the squared error.
    """
    values, vectors = torch.linalg.eigh(K)
    left = (1 - rate * values) ** steps - 1
    small = values <= 1e-6 * values.max()
    shares = torch.where(small, -rate * steps, left / torch.where(small, 1.0, values))
    change = vectors @ (shares * (vectors.T @ error))
    return (K if cross is None else cross) @ change


def linearity(model, trained, X, y, rate, steps):
    """How far training ends from its forecast, and how far the weights moved.

    trained: a copy of the model after so many steps of gradient descent.
    """
    with torch.no_grad():
        f, end = model(X), trained(X)
        apart = (f + forecast(kernel(model, X), f - y, steps, rate) - end).abs().max()
        flat = torch.nn.utils.parameters_to_vector
        old, new = flat(model.parameters()), flat(trained.parameters())
    return apart.item(), ((new - old).norm() / old.norm()).item()
