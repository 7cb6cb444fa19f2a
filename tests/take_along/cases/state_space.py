"""The block of chapters/take_along/state_space.py: its two forms, and the library's state space in its place."""

import torch


def example(own):
    block = own.S4D(6, states=4, longest=0.5)
    rows = torch.randn(2, 9, 6)

    def both(rows):
        state, out = 0, []
        for row in rows.unbind(-2):
            y, state = block.step(row, state)
            out.append(y)
        return block(rows), torch.stack(out, -2)

    both.block = block
    return both, (rows,)


def library(own, function, arguments):
    import attnmath.torch as at

    block, (rows,) = function.block, arguments
    A = torch.stack([-block.log_decay.exp(), block.frequency], -1)
    one = torch.zeros_like(A)
    one[..., 0] = 1
    U = at.layer_norm(rows, block.norm.weight, block.norm.bias, eps=block.norm.eps)
    Y = at.state_space(U, A, one, block.read, block.log_step.exp(), form="recurrence") + block.skip * U
    hidden = at.feed_forward(
        Y,
        {
            "up": {"weight": torch.eye(6), "bias": torch.zeros(6)},
            "down": {"weight": block.mix.weight.T, "bias": block.mix.bias},
        },
    )
    left, right = hidden.chunk(2, -1)
    out = rows + left * right.sigmoid()
    return out, out
