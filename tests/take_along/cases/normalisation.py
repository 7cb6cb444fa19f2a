"""Both norms with their gradients."""


def example(own):
    import numpy as np

    rng = np.random.default_rng(2)
    X, dY, gain, bias = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 3, 5)), *rng.standard_normal((2, 5))

    def both(X, dY, gain, bias):
        (Y, back), (Z, again) = own.layer_norm(X, gain, bias), own.rms_norm(X, gain)
        return Y, *back(dY), Z, *again(dY)

    return both, (X, dY, gain, bias)


def library(own, function, arguments):
    import attnmath.numpy as an

    X, dY, gain, bias = arguments
    (Y, back), (Z, again) = an.layer_norm(X, gain, bias), an.rms_norm(X, gain)
    return Y, *back(dY), Z, *again(dY)
