import torch


def data_parallel(model, loss_sum, parts):
    """The gradient of the mean loss of a batch whose parts lie on several processes.

    loss_sum(model, part) gives the sum of the losses of its tokens, and their number.
    """
    weights, grads, counts = list(model.parameters()), [], []
    for part in parts:  # at the same time, each with its own copy of the model
        loss, count = loss_sum(model, part)
        grads.append(torch.autograd.grad(loss, weights))
        counts.append(count)
    total = sum(counts)  # one all-reduce of a number
    return [sum(each) / total for each in zip(*grads, strict=True)]  # another one


def split_columns(W, processes):
    """Each process makes some of the outputs of X W; W is (d, f)."""
    return W.chunk(processes, dim=1)


def split_rows(W, processes):
    """Each process reads some of the inputs; the products are added."""
    return W.chunk(processes, dim=0)


def split_network(X, up, down, bias_up, bias_down, processes):
    """A feed-forward network with its hidden units split: one sum, at the end."""
    ups, downs = split_columns(up, processes), split_rows(down, processes)
    pieces = zip(ups, bias_up.chunk(processes), downs, strict=True)  # for each process
    partial = [torch.relu(X @ U + b) @ D for U, b, D in pieces]
    return sum(partial) + bias_down  # the all-reduce; the bias is added once
