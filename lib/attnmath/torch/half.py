"""16 bits in, 16 bits out, and float32 between; and what autocast makes of attention's arguments."""

import functools
from collections.abc import Callable
from contextlib import nullcontext

import torch

from attnmath._cast import first_dtype, float_parameters, recast

_HALVES = (torch.float16, torch.bfloat16)


def half_in_float32(f: Callable) -> Callable:
    """Have a function compute float16 and bfloat16 arguments in float32, and round its value once, at the end.

    Parameters and limits as in `attnmath.numpy.half.half_in_float32`. Autocast, which would round the products between,
    is off meanwhile.

    Examples
    --------
    >>> @half_in_float32
    ... def mean_square(X: "Float[]"):
    ...     return (X * X).mean() / 8
    >>> mean_square(torch.full((3,), 300, dtype=torch.float16))  # although a square is 90000
    tensor(11248., dtype=torch.float16)
    """
    parameters = float_parameters(f)

    @functools.wraps(f)
    def component(*args, **options):
        dtype = first_dtype(parameters[0], args, options)
        if dtype not in _HALVES:
            return f(*args, **options)
        kinds = set()

        def wide(X):
            kinds.add(X.dtype)
            return X.to(torch.float32)

        wide_args, wide_options = recast(parameters, args, options, wide)
        if len(kinds) > 1:  # f itself names the argument that does not fit
            return f(*args, **options)
        device = (args[0] if args else options[parameters[0][0]]).device.type
        with torch.autocast(device, enabled=False) if _autocast_in(device) else nullcontext():
            return f(*wide_args, **wide_options).to(dtype)

    return component


def cast_by_autocast(f: Callable) -> Callable:
    """Have a function's arguments cast as autocast casts those of ``F.scaled_dot_product_attention``, the bias too.

    Outside of autocast nothing is done; float64 is not cast, because autocast leaves it alone.

    Examples
    --------
    >>> @cast_by_autocast
    ... def first(X: "Float[]", Y: "Float[]"):
    ...     return X.dtype, Y.dtype
    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     first(torch.ones(1), torch.ones(1, dtype=torch.bfloat16))
    (torch.bfloat16, torch.bfloat16)
    """
    parameters = float_parameters(f)

    @functools.wraps(f)
    def component(*args, **options):
        first = args[0] if args else options.get(parameters[0][0])
        device = first.device.type if isinstance(first, torch.Tensor) else "cpu"
        if not _autocast_in(device):
            return f(*args, **options)
        dtype = torch.get_autocast_dtype(device)

        def cast(X):
            return X.to(dtype) if X.dtype in (torch.float32, *_HALVES) else X

        args, options = recast(parameters, args, options, cast)
        return f(*args, **options)

    return component


def _autocast_in(device):
    """Whether autocast is on for this kind of device; there are kinds, such as "meta", that know none."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
