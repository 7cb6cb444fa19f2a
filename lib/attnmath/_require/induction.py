"""What heads that are patched, paths through a model and scores of heads are given."""


def by_head(patches):
    """Weights by the number of the head."""
    if not isinstance(patches, dict):
        raise ValueError(f"patches is a {type(patches).__name__}; expected a dict of weights by the number of the head")


def patches(patches, output, values):
    """Weights for heads that exist, one row for each query and one column for each key."""
    heads, n, m = output[-3] if len(output) > 2 else 0, output[-2], values[-2]
    for a, P in patches.items():
        if a not in range(heads):
            raise ValueError(f"patches names the head {a!r}, but there are {heads} heads, numbered from 0")
        shape = tuple(getattr(P, "shape", ()))
        if shape[-2:] != (n, m):
            raise ValueError(
                f"patches[{a}] has shape {shape}; expected weights of {n} queries for {m} keys, (…, {n}, {m})"
            )


def plain(own, layer):
    """Maps without biases and as many heads of keys as of queries, so that each path is a product of matrices."""
    biased = [name for name, leaf in own.items() if "bias" in leaf]
    if biased:
        raise ValueError(f"layer {layer} has a bias in {biased[0]!r}; paths are products of matrices: leave biases out")
    widths = [own[name]["weight"].shape[-1] for name in ("query", "key")]
    if widths[0] != widths[1]:
        raise ValueError(
            f"layer {layer} has queries of width {widths[0]} and keys of width {widths[1]}; paths need as many heads "
            "of keys as of queries"
        )


def weights(P, ids):
    """Weights of heads on the tokens of texts."""
    shape, texts = tuple(P.shape), tuple(ids.shape)
    if len(shape) < 3 or len(texts) < 1 or shape[-2:] != texts[-1:] * 2 or shape[:-3] not in ((), texts[:-1]):
        raise ValueError(f"P has shape {shape} and ids {texts}; expected (…, h, n, n) and (…, n)")


def repeats(rows):
    """A score of induction is a mean over tokens that came before."""
    if rows == 0:
        raise ValueError("no token of ids comes twice in its text, so there is nothing to score: give repeated text")
