"""Token ids."""


def integers(ids):
    """Ids are an array of integers."""
    if not hasattr(ids, "shape") or "int" not in str(getattr(ids, "dtype", "")):
        raise ValueError(f"ids has dtype {getattr(ids, 'dtype', type(ids).__name__)}; token ids are integers")


def inside(ids, vocabulary):
    """Every id, of a type that holds the vocabulary's size too, is that of a token."""
    bad = (ids < 0) | (ids >= vocabulary)
    if bool(bad.any()):
        # argwhere is spelled differently in the two worlds; flatten and unravel by hand instead
        flat = bad.reshape(-1).tolist().index(True)
        where = []
        for size in reversed(tuple(ids.shape)):
            where.insert(0, flat % size)
            flat //= size
        where = tuple(where)
        raise ValueError(
            f"ids[{', '.join(map(str, where))}] = {int(ids[where])} is outside the vocabulary of {vocabulary} tokens"
        )
