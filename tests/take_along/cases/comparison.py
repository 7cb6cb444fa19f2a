"""The three layers on one batch, and how much of a gradient arrives at each input."""

import torch


def example(own):
    layers = torch.nn.ModuleList([own.Recurrent(4), own.Convolution(4, 3, 2), own.Attention(4)])
    X = torch.randn(2, 9, 4)

    def all_three(X):
        return tuple(layer(X) for layer in layers)

    all_three.layers = layers
    return all_three, (X,)


def library(own, function, arguments):
    import attnmath.torch as at

    (X,), (recurrent, convolution, attention) = arguments, function.layers
    cell, conv = recurrent.cell, convolution.conv
    H = at.rnn(X, torch.zeros(2, 4), cell.weight_ih.T, cell.weight_hh.T, cell.bias_ih + cell.bias_hh)
    Y = at.causal_conv(X, conv.weight.permute(2, 1, 0).flip(0), conv.bias, 2)
    Q, K, V = attention.query(X), attention.key(X), attention.value(X)
    reached = [(own.arriving(layer, X) > 0).tolist() for layer in function.layers]
    assert reached[0] == reached[2] == [True] * 9 and reached[1] == [i in (4, 6, 8) for i in range(9)]
    return H, Y, at.attention(Q, K, V, at.causal_mask(9))
