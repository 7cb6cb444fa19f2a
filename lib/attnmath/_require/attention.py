"""Options of attention and of its masks."""

import math

from attnmath._require.numbers import positive


def factor(scale, k):
    """What multiplies the dot products of queries and keys of k components; None is one over the root of k."""
    if scale is None:
        return k**-0.5
    _finite("scale", scale, "None divides by the root of the keys' width")
    return scale


def softcap(softcap):
    """A bound that scores approach; None bounds nothing."""
    if softcap is not None:
        _finite("softcap", softcap, "None leaves the scores as they are")


def _finite(name, value, otherwise):
    positive(name, value)
    if math.isinf(value):
        raise ValueError(f"{name} is {value!r}; it must be a finite number, and {otherwise}")


def window_sizes(n, m):
    """At least one query, and for each of them the key at its own position."""
    if not 1 <= n <= m:
        raise ValueError(
            f"n = {n} queries and m = {m} keys; a window needs 1 <= n <= m, because the last query stands at the last "
            "key and each earlier one a key before: give at least as many keys as queries"
        )
