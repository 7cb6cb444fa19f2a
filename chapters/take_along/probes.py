import torch
from torch.nn.functional import one_hot


def accuracy(X, y, held, ridge=1.0):
    """A linear probe for labels y (n,) of rows X (n, d), tried on the rows `held` (n,).

    It is least squares to one-hot labels, which has a formula. Try several `ridge`.
    """
    X = (X - X[~held].mean(0)) / (X[~held].std(0) + 1e-6)
    X = torch.cat([X, torch.ones_like(X[:, :1])], -1)
    A, Y = X[~held], one_hot(y[~held], int(y.max()) + 1).to(X)
    I = torch.eye(X.shape[1]).to(X)
    W = torch.linalg.solve(A.T @ A + ridge * I, A.T @ Y)
    return ((X[held] @ W).argmax(-1) == y[held]).float().mean()


def control(words, y):
    """Random labels that depend on the word alone: only to be learned by heart."""
    types, which = words.unique(return_inverse=True)
    return y[torch.randint(len(y), types.shape)][which]


def new_words(words, share=1 / 3):
    """Rows to hold out so that no word stands on both sides."""
    types, which = words.unique(return_inverse=True)
    return (torch.rand(types.shape) < share)[which]


def mean_difference(X, yes):
    """From the mean row without a property to that with it: (n, d), (n,) -> (d,)."""
    return X[yes].mean(0) - X[~yes].mean(0)


class steering:
    """`with steering(model.layers[3], v, 2.0): ...` adds 2 v to the module's output.

    Compare with random vectors of the same length, and with those of random labels.
    """

    def __init__(self, module, v, strength):
        self.module, self.push = module, strength * v

    def move(self, module, inputs, output):
        if isinstance(output, tuple):  # the stream is its first part
            return (output[0] + self.push.to(output[0]), *output[1:])
        return output + self.push.to(output)

    def __enter__(self):
        self.handle = self.module.register_forward_hook(self.move)

    def __exit__(self, *error):
        self.handle.remove()
