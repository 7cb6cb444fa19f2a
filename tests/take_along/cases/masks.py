"""All masks at once, on scores of two sequences and three heads."""

import torch


def example(own):
    S, lengths = torch.randn(2, 3, 4, 6), torch.tensor([6, 2])

    def weights(S, lengths):
        mask = own.causal(4, 6) & own.window(4, 2, 6) & own.padding(lengths, 6)
        return mask.float(), own.softmax(S, mask)

    return weights, (S, lengths)


def library(own, function, arguments):
    import attnmath.torch as at

    S, lengths = arguments
    mask = at.causal_mask(4, 6) & at.window_mask(4, 2, 6) & at.padding_mask(lengths, 6)[:, None]
    texts = torch.tensor([[0, 0, 1, 1, 1]])
    assert own.documents(texts).sum().item() == 4 + 9
    W, X = torch.randn(3, 4, 4), torch.randn(5, 4)
    assert (own.leaks(lambda X: at.self_attention(X, *W, own.causal(5)), X) == 0).all()
    assert (own.leaks(lambda X: at.self_attention(X, *W), X) > 0).all()
    masked = S.masked_fill(~mask, -torch.inf)
    return mask.float(), at.softmax(masked, empty_rows="zero")
