"""Three queries at the end of seven positions, with gradients."""

import numpy as np


def example(own):
    rng = np.random.default_rng(5)
    Q, K, V = (rng.standard_normal(shape) for shape in ((2, 3, 4), (2, 7, 4), (2, 7, 5)))
    dO = rng.standard_normal((2, 3, 5))

    def there_and_back(Q, K, V):
        O, P, backward = own.attention(Q, K, V, own.causal(3, 7))
        return O, P, *backward(dO)

    there_and_back.dO = dO
    return there_and_back, (Q, K, V)


def library(own, function, arguments):
    import attnmath.numpy as an

    mask = an.causal_mask(3, 7)
    O, vjp = an.attention(*arguments, mask)
    return O, an.attention_weights(*arguments[:2], mask)[0], *vjp(function.dO)
