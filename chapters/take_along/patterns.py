import torch


def describe(P, mask=None, window=2):
    """Means over the queries of maps P (..., n, n): the weight on the key before, on
    the key after, and in a window; the distance of query and key; the effective number
    of keys; and the sink, the key that gets most. mask (..., n): True for tokens."""
    n = P.shape[-1]
    real = P.new_ones(P.shape[:-1]) if mask is None else mask.expand(P.shape[:-1]).to(P)
    gap = torch.arange(n) - torch.arange(n)[:, None]  # key minus query

    def mean(x, rows=real):  # over the queries that count
        return (x * rows).sum(dim=-1) / rows.sum(dim=-1)

    def weight(chosen):
        return (P * chosen).sum(dim=-1)

    first, last = real.roll(1, -1), real.roll(-1, -1)  # is there a key before, after?
    first[..., 0], last[..., -1] = 0, 0
    information = -torch.where(P > 0, P, 1.0).log()
    columns = mean(P.mT, real[..., None, :])
    return {
        "previous": mean(weight(gap == -1), real * first),
        "next": mean(weight(gap == 1), real * last),
        "window": mean(weight(gap.abs() <= window)),
        "distance": mean(weight(gap.abs())),
        "keys": mean((P * information).sum(dim=-1).exp()),
        "sink": columns.amax(dim=-1),
        "sink's place": columns.argmax(dim=-1),
    }


def even(mask):
    """The map of a head that prefers nothing, for tokens mask (..., n)."""
    share = mask / mask.sum(dim=-1, keepdim=True)
    return share[..., None, :].expand(*mask.shape, mask.shape[-1])
