"""Any rule that turns scores into weights, as a core of attention."""

from attnmath import _require
from attnmath.torch.scoring_functions import scaled_dot_score


def weighed(Q, K, V, mask, bias, scale, weigh):
    """Scaled scores, weights from ``weigh(S)``, and the sum of the values with these weights."""
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    queries = Q.expand(*sizes["..."], *Q.shape[-2:])  # a mask may have the leading axes that only V has
    S = scaled_dot_score(queries, K, scale=scale)
    _require.mask(mask, S.shape)
    _require.bias(bias, S.shape, Q)
    return weigh(S if bias is None else S + bias) @ V
