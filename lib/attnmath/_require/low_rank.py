"""What a projection along the keys is given."""


def slots(mask, m, r):
    """A mask is for the r slots: behind the projection there are no keys to be hidden one by one."""
    shape = tuple(getattr(mask, "shape", ()))
    if m != r and shape[-1:] == (m,):
        raise ValueError(
            f"mask has shape {shape} and hides keys, but E and F have mixed the m = {m} keys into r = {r} slots: give "
            "a mask of slots, (…, n, r), such as slot_mask(n, E, F) for a causal model"
        )


def rows(n, m):
    """At least one query, and a key for the first of them."""
    if not 1 <= n <= m:
        raise ValueError(
            f"n = {n} queries and m = {m} keys; a mask of slots needs 1 <= n <= m, because the last query stands at "
            "the last key: give at least as many keys as queries"
        )
