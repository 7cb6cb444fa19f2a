"""Self-attention with and without a causal mask, and the mean of its rows."""

import torch


def example(own):
    W, X = torch.randn(3, 4, 4), torch.randn(2, 5, 4)

    def head(X, mask=None):
        Q, K, V = (X @ w for w in W)
        S = Q @ K.mT / 2
        return (S if mask is None else S.masked_fill(~mask, -torch.inf)).softmax(-1) @ V

    def three(X):
        past = torch.ones(5, 5, dtype=torch.bool).tril()
        return torch.stack(
            [
                own.equivariance_error(head, X),
                own.equivariance_error(lambda X: head(X, past), X),
                own.invariance_error(lambda X: head(X).mean(-2), X),
                own.invariance_error(lambda X: head(X, past).mean(-2), X),
            ]
        )

    three.W = W
    return three, (X,)


def library(own, function, arguments):
    import attnmath.torch as at

    (X,) = arguments
    swapped, shifted = [1, 0, 2, 3, 4], [4, 0, 1, 2, 3]
    assert [p.tolist() for p in own.two_orders(5)] == [swapped, shifted]
    assert own.is_equivariant(lambda X: at.self_attention(X, *function.W), X)
    O = at.self_attention(X, *function.W, at.causal_mask(5))
    moved = [at.self_attention(X[:, p], *function.W, at.causal_mask(5)) for p in (swapped, shifted)]
    rows = max((one - O[:, p]).abs().max() for one, p in zip(moved, (swapped, shifted), strict=True))
    means = max((one.mean(-2) - O.mean(-2)).abs().max() for one in moved)
    return torch.stack([rows * 0, rows / O.abs().max(), means * 0, means / O.mean(-2).abs().max()])
