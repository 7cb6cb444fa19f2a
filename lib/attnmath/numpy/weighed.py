"""Any rule that turns scores into weights, as a core of attention."""

import numpy as np

from attnmath import _require
from attnmath.numpy.scoring_functions import scaled_dot_score
from attnmath.numpy.types import T, sum_to


def weighed(Q, K, V, mask, bias, scale, weigh):
    """Scaled scores, weights from ``weigh(S) -> (W, vjp)``, and the sum of the values with these weights.

    The vjp gives (dQ, dK, dV), then dbias if there is a bias, then what the vjp of ``weigh`` gives after dS.
    """
    sizes = _require.shapes(Q=(Q, "... n k"), K=(K, "... m k"), V=(V, "... m v"))
    _require.nonempty("K", K.shape, -2, sizes["m"], "key")
    queries = np.broadcast_to(Q, (*sizes["..."], *Q.shape[-2:]))  # a mask may have the leading axes that only V has
    S, score_vjp = scaled_dot_score(queries, K, scale=scale)
    _require.mask(mask, S.shape)
    _require.bias(bias, S.shape, Q)
    W, weigh_vjp = weigh(S if bias is None else S + bias)

    def vjp(dO):
        dV = T(W) @ dO
        dS = weigh_vjp(sum_to(dO @ T(V), W.shape))
        dS, *more = dS if isinstance(dS, tuple) else (dS,)
        dQ, dK = score_vjp(dS)
        dbias = () if bias is None else (sum_to(dS, bias.shape),)
        return sum_to(dQ, Q.shape), dK, sum_to(dV, V.shape), *dbias, *more

    return W @ V, vjp
