"""What linear attention asks of a mask, of features and of their sums."""

from attnmath._require.arrays import shapes
from attnmath._require.numbers import choice, positive
from attnmath._require.scores import causal_sizes

FORMS = ("parallel", "recurrent", "chunked")


def options(form, chunk, causal, n, m):
    """One of the three forms, a chunk of at least one key, and for a causal one a key for each query."""
    choice("form", form, FORMS)
    positive("chunk", chunk)
    if int(chunk) != chunk:
        raise ValueError(f"chunk is {chunk!r}; it must be a whole number of keys")
    if causal:
        causal_sizes(n, m)


def features(FQ, FK):
    """A feature map keeps the rows and gives queries and keys the same number of features."""
    shapes(**{"feature(Q)": (FQ, "... n f"), "feature(K)": (FK, "... m f")})


def separable(seen):
    """Only masks of keys, and causal ones, can be honoured by sums over keys."""
    if not seen:
        raise ValueError(
            "mask is neither a mask of keys (equal rows), nor causal, nor both together; a sum over keys can honour no "
            "other: use form='parallel', which holds all n x m products, or softmax attention"
        )


def can_be_read(readable):
    """A mask with a row for each query has to be looked at."""
    if not readable:
        raise ValueError(
            "mask has a row for each query, and its values cannot be looked at here; pass causal=True and a mask of "
            "keys (..., 1, m), or form='parallel'"
        )


def no_sum_of_zero(row):
    """Raise for the first query whose weights would be 0 / 0."""
    raise ValueError(
        f"row {row} has no weights: its features times those of the keys that it sees sum to 0. Let it see a key, use "
        "a positive feature such as elu_plus_one, or pass normalise=False"
    )
