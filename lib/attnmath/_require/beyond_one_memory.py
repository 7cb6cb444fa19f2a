"""What a store beside a model asks: rows without nan, tokens of the vocabulary, probabilities, and a share of them."""

from numbers import Real

from attnmath._require.arrays import nonempty, shapes
from attnmath._require.losses import targets
from attnmath._require.numbers import count, positive


def store(Q, K, followed, vocabulary, temperature, keep):
    """Queries and keys of one width, a token for each key, and options in their domains."""
    sizes = shapes(Q=(Q, "... n k"), K=(K, "m k"))
    nonempty("K", K.shape, -2, sizes["m"], "key")
    nonempty("Q", Q.shape, -1, sizes["k"], "component")
    targets(followed, (sizes["m"],), None, name="followed", rows="row of K")
    count("vocabulary", vocabulary)
    positive("temperature", temperature)
    if keep is not None:
        count("keep", keep)


def finite(name, X, isfinite):
    """A distance to nan is nan, and a search takes it for the best or the worst of all."""
    if not bool(isfinite(X).all()):
        raise ValueError(f"{name} holds a number that is nan or infinite; it has no distance, so leave its row out")


def probabilities(name, P, isfinite):
    """Logits and logarithms have negative entries."""
    if not bool(((P >= 0) & isfinite(P)).all()):
        raise ValueError(
            f"{name} holds a number that is negative, nan or infinite; probabilities are expected, not logits or "
            "logarithms"
        )


def share(name, value):
    """A part of the whole; nan is none."""
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"{name} is {value!r}; it is the store's part of the mixture, >= 0 and <= 1")
