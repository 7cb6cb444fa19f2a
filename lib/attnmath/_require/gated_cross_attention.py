"""What gates, marks of pictures and gated layers are asked."""

from attnmath._require.arrays import floats


def gate(value, X):
    """One gate for the whole sub-layer, or one for each component, in X's dtype."""
    floats(X=X, gate=value)
    d = X.shape[-1]
    if tuple(value.shape) not in ((1,), (d,)):
        raise ValueError(
            f"gate has shape {tuple(value.shape)}; expected (1,), one gate for the sub-layer, or ({d},), one for each "
            "component of its rows"
        )


def marks(marks):
    """A boolean for each word."""
    if "bool" not in str(getattr(marks, "dtype", "")) or not len(marks.shape):
        kind, shape = getattr(marks, "dtype", type(marks).__name__), tuple(getattr(marks, "shape", ()))
        raise ValueError(
            f"marks has shape {shape} and dtype {kind}; expected booleans (..., n), True where a picture stands in the "
            "text: marks = ids == the picture's token"
        )


def shown(most, pictures):
    """A text marks no more pictures than it is given."""
    if most > pictures:
        raise ValueError(
            f"a text marks {most} pictures, but pictures = {pictures}; give the features of every picture that a "
            "text marks, in their order"
        )


def gated_layers(gated, layers):
    """Each gated layer stands in front of a layer of the language model."""
    unknown = sorted(set(gated) - set(layers))
    if unknown:
        raise ValueError(
            f"params['gated'] has the layers {', '.join(map(repr, unknown))}, which the language model has not; its "
            f"layers are {', '.join(map(repr, sorted(layers)))}"
        )
