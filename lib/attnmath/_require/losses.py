"""Targets, class weights and the options of a loss."""

from attnmath._require.arrays import floats


def smoothing(value):
    """The part of a target that is spread over all tokens."""
    if not 0 <= value <= 1:
        raise ValueError(f"smoothing is {value!r}; it is the part of the target that all tokens share, >= 0 and <= 1")


def targets(targets, shape, mask, name="targets", rows="row of Z"):
    """An integer for each row of logits, and booleans that say which rows count."""
    kind, shape = getattr(targets, "dtype", type(targets).__name__), tuple(shape)
    if "int" not in str(kind) or tuple(getattr(targets, "shape", "?")) != shape:
        raise ValueError(
            f"{name} has shape {getattr(targets, 'shape', None)} and dtype {kind}; "
            f"expected integers of shape {shape}, one for each {rows}"
        )
    if mask is not None and ("bool" not in str(getattr(mask, "dtype", None)) or tuple(mask.shape) != shape):
        raise ValueError(
            f"mask has shape {getattr(mask, 'shape', None)} and dtype {getattr(mask, 'dtype', type(mask).__name__)}; "
            f"expected booleans of shape {shape}, True for a position that counts"
        )


def within(targets, t, name="targets"):
    """Each target is the id of a token."""
    if not len(targets):
        return
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= t:
        raise ValueError(
            f"{name} holds {low if low < 0 else high}, which is not between 0 and t - 1 = {t - 1}"
            + ("; a position that shall not count is False in the mask" if name == "targets" else "")
        )


def weights(weights, Z, t):
    """A factor for each token, in the logits' dtype."""
    floats(Z=Z, weights=weights)
    if tuple(weights.shape) != (t,):
        raise ValueError(f"weights has shape {tuple(weights.shape)}; expected ({t},), one number for each token of Z")


def nonnegative_weights(weights):
    """No factor turns a loss into a gain."""
    if not bool((weights >= 0).all()):
        raise ValueError("weights holds a number that is not >= 0: a loss that grows as the prediction improves")


def a_mean(total):
    """The positions that count have a number, or a weight, to divide by."""
    if not total > 0:
        raise ValueError(
            "no position counts, so there is no mean: leave such a batch out, or take reduction='sum'; with weights, "
            "a target of weight 0 does not count"
        )


def no_token(row):
    """Raise for the first row of logits without a token."""
    raise ValueError(f"row {row} of the logits that count is -inf throughout: no token is left to choose")
