"""How much is lost when a matrix of weights is replaced by one of rank r: at best, and by a random projection.

``python -m attnmath.low_rank`` measures it on the 72 heads of MiniLM, as Chapter 7 does.
"""

import argparse
from functools import partial

import numpy as np

from attnmath import _require


def best_error(P, r: int):
    r"""The smallest Frobenius distance from P to a matrix of rank r.

    .. math:: \min_{\operatorname{rank} X \le r} \|P - X\| = \Bigl(\sum_{i > r} \sigma_i^2\Bigr)^{1/2}

    Parameters
    ----------
    P : (..., n, m) a matrix, such as weights of attention.
    r : the rank, >= 0.

    Returns
    -------
    error : (...), 0 from r = min(n, m) on. Divide by ``np.linalg.norm(P, axis=(-2, -1))`` for a share.

    Raises
    ------
    ValueError
        If P is no array of floats with two axes, or r is negative.

    References
    ----------
    Eckart and Young (1936). Chapter 7, thm-eckart-young.

    Examples
    --------
    >>> float(best_error(np.diag([3.0, 2.0, 1.0]), 1).round(4))
    2.2361
    """
    _require.shapes(P=(P, "... n m"))
    _require.nonnegative("r", r)
    return np.sqrt((np.linalg.svd(P, compute_uv=False)[..., r:] ** 2).sum(-1))  # eq:best-rank


def projection_error(P, V, r: int, fourth: float = 3.0):
    r"""The mean square of what a random projection to r slots adds to attention's output, exactly.

    .. math:: \mathbb E\|P S^\top S V - P V\|^2 =
              \frac1r\Bigl(\|P\|^2\|V\|^2 + \|PV\|^2 + (\kappa - 3)\sum_j \|P_{:j}\|^2\|V_j\|^2\Bigr)

    Parameters
    ----------
    P : (..., n, m) weights, which do not depend on the projection.
    V : (..., m, v) values, which do not depend on it either.
    r : the slots, >= 1. S (r, m) has independent entries of mean 0 and variance 1/r.
    fourth : the fourth moment :math:`\kappa` of :math:`\sqrt r\,S_{aj}`: 3 for a Gaussian, 1 for signs.

    Returns
    -------
    error : (...) the mean of the squared Frobenius norm.

    Raises
    ------
    ValueError
        If shapes disagree, r is not an integer >= 1, or the fourth moment is below 1.

    References
    ----------
    Chapter 7, thm-projection-error.

    Examples
    --------
    One weight of 1 on one value of 1: a product of signs is exact, and one of Gaussians is not.

    >>> one = np.ones((1, 1))
    >>> float(projection_error(one, one, 4, fourth=1.0)), float(projection_error(one, one, 4))
    (0.0, 0.5)
    """
    _require.shapes(P=(P, "... n m"), V=(V, "... m v"))
    _require.count("r", r)
    if not fourth >= 1:
        raise ValueError(f"fourth is {fourth!r}; a fourth moment is at least 1, the square of the variance")
    columns, rows = (P**2).sum(-2), (V**2).sum(-1)
    output = ((P @ V) ** 2).sum((-2, -1))
    return (
        columns.sum(-1) * rows.sum(-1) + output + (fourth - 3) * (columns * rows).sum(-1)
    ) / r  # eq:projection-error


def measured(ranks, n: int = 256) -> dict[int, list[float]]:
    """What copies of low rank do to the outputs of MiniLM's 72 heads on a news text.

    Parameters
    ----------
    ranks : the ranks r; each divides n.
    n : tokens of the text, at most 256.

    Returns
    -------
    table : for each rank the medians over the heads of ``|O' - O| / |O|``: for the best copy of the weights, for
        Linformer with the means of n / r neighbours, and for a random projection (root of the mean square).

    Raises
    ------
    ValueError
        If a rank does not divide n.
    FileNotFoundError
        If the weights of MiniLM are not installed.
    """
    import attnmath.numpy as an
    from attnmath import corpus, minilm

    for r in ranks:
        if r < 1 or n % r:
            raise ValueError(f"a rank is {r!r}; give divisors of {n}, the number of tokens")
    model = minilm.load()
    ids, _ = model.encode(corpus.lee().background[:12], max_tokens=n)
    ids = ids[[i for i in range(12) if ids[i].all()][:1]]
    X, heads = an.bert_embedding(ids, model.params["embeddings"], 1e-12)[0], []
    join = partial(an.sublayer, norm=partial(an.layer_norm, eps=1e-12))
    for layer in model.params["layers"].values():
        leaves = [layer["attention"][name] for name in ("query", "key", "value")]
        heads.append([an.split_heads(an.affine(X, leaf)[0], model.heads)[0] for leaf in leaves])
        X, _ = an.encoder_layer(X, layer, model.heads, join=join)
    Q, K, V = np.array(heads, float).swapaxes(0, 1)
    P, _ = an.attention_weights(Q, K)
    O, (U, s, W) = P @ V, np.linalg.svd(P)
    size, table = np.linalg.norm(O, axis=(-2, -1)), {}
    for r in ranks:
        copy = (U[..., :r] * s[..., None, :r]) @ W[..., :r, :] @ V
        means = np.kron(np.eye(r), np.full(n // r, r / n))
        pooled, _ = an.linformer_attention(Q, K, V, means, means)
        errors = [np.linalg.norm(Y - O, axis=(-2, -1)) for Y in (copy, pooled)] + [projection_error(P, V, r) ** 0.5]
        table[r] = [float(np.median(error / size)) for error in errors]
    return table


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m attnmath.low_rank", description=measured.__doc__.partition("\n")[0]
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128], help="divisors of 256")
    try:
        table = measured(parser.parse_args(arguments).ranks)
    except ValueError as error:
        parser.error(str(error))
    print("   r  best copy  means  random projection   (median of 72 heads)")
    for r, (best, mean, random) in table.items():
        print(f"{r:4}{best:>11.0%}{mean:>7.0%}{random:>19.0%}")


if __name__ == "__main__":
    main()
