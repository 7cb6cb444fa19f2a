"""The larger number and the product, by a written Transformer with 64 cells for each token."""


def example(own):
    import torch

    stack = own.Written(lambda x, y: (torch.maximum(x, y), x * y), 8)
    return stack, (torch.rand(50, 2),)


def library(own, stack, arguments):
    import numpy as np

    from attnmath.universal import ANSWER, pair, run, shallow

    written = shallow(pair(lambda x, y: (np.maximum(x, y), x * y), 8, band=1e-4))
    return run(written, arguments[0].double().numpy())[..., ANSWER]
