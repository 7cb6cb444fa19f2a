"""What wraps a core of attention: heads that share keys, a record of the weights, a cache, a window.

A core is ``attend(Q, K, V, mask=…) -> O`` on heads, (..., h, n, k), (..., h, m, k) and (..., h, m, v). Each function
here takes a core and returns one, so that models, layers and heads never learn which they have.
"""

import torch

from attnmath import _require
from attnmath.cache import KeyValueCache


def share_heads(X, times: int):
    """Repeat each key or value head for the queries of its group: (..., g, m, k) to (..., g times, m, k)."""
    return X if times == 1 else X.repeat_interleave(times, -3)  # eq:grouped-heads


def grouped(core):
    """Let groups of query heads share the heads of keys and values.

    Parameters and source as in `attnmath.numpy.cores.grouped`.

    Examples
    --------
    >>> from attnmath.torch.attention import attention
    >>> grouped(attention)(torch.ones(6, 3, 4), torch.ones(2, 5, 4), torch.ones(2, 5, 4)).shape
    torch.Size([6, 3, 4])
    """
    if getattr(core, "shares_heads", False):
        return core

    def attend(Q, K, V, **options):
        times = Q.shape[-3] // K.shape[-3]
        return core(Q, share_heads(K, times), share_heads(V, times), **options)

    attend.shares_heads = True
    return attend


def recording(core, into: dict):
    r"""Write down the weights with which a core attends.

    .. math:: P\,[V, I] = [O, P]

    Parameters as in `attnmath.numpy.cores.recording`.

    Examples
    --------
    >>> from attnmath.torch.attention import attention
    >>> seen = {}
    >>> O = recording(attention, seen)(torch.zeros(1, 2), torch.ones(2, 2), torch.tensor([[1.0], [3.0]]))
    >>> seen["weights"]
    tensor([[0.5000, 0.5000]])
    """

    def attend(Q, K, V, **options):
        v, m = V.shape[-1], K.shape[-2]
        identity = torch.eye(m, dtype=V.dtype, device=V.device).expand(*V.shape[:-1], m)
        both = core(Q, K, torch.cat([V, identity], -1), **options)
        into["weights"] = both[..., v:]
        return both[..., :v]

    return attend


class cached:
    """Keep keys and values: new ones join those of earlier rows, and the core attends to all.

    Parameters and attributes as in `attnmath.numpy.cores.cached`; it is called under ``torch.no_grad()``.

    Examples
    --------
    >>> from attnmath.torch.attention import attention
    >>> attend, X = cached(attention, KeyValueCache()), torch.ones(1, 1, 2)
    >>> [attend(X, X, value * X)[0, 0, 0].item() for value in (1, 3)], attend.start
    ([1.0, 2.0], 2)
    """

    shares_heads = True

    def __init__(self, core, cache: KeyValueCache):
        self.core, self.cache = grouped(core), cache

    @property
    def start(self) -> int:
        return self.cache.length

    def __call__(self, Q, K=None, V=None, **options):
        K, V = self.cache.kept if K is None else self.cache.append(K, V)
        return self.core(Q, K, V, **options)


def windowed(core, width: int):
    r"""Let each query see the keys at most ``width`` steps away, and leave out those that no query sees.

    .. math:: M_{ij} = [\,|i + m - n - j| \le w\,]

    Parameters, errors and source as in `attnmath.numpy.cores.windowed`.

    Examples
    --------
    >>> from attnmath.torch.attention import attention
    >>> windowed(attention, 1)(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([[1.0], [2.0], [4.0]]))
    tensor([[3.]])
    """
    _require.nonnegative("width", width)

    def attend(Q, K, V, mask=True, bias=None, **options):
        n, m = Q.shape[-2], K.shape[-2]
        first = max(0, m - n - width)

        def cut(X):
            return X[..., first:] if X.shape[-1:] == (m,) else X

        i, j = torch.arange(n, device=Q.device), torch.arange(first, m, device=Q.device)
        near = (i[:, None] + m - n - j).abs() <= width
        near = near if mask is True else near & cut(torch.as_tensor(mask, device=Q.device))
        if bias is not None:
            options["bias"] = cut(bias)
        return core(Q, K[..., first:, :], V[..., first:, :], mask=near, **options)

    return attend
