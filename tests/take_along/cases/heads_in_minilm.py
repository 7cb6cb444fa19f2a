"""Scores of six random heads."""


def example(own):
    import numpy as np

    P = np.random.default_rng(3).dirichlet(np.full(7, 0.4), (6, 7))
    return own.kinds_of_heads, (P, (0, 6))


def library(own, function, arguments):
    import numpy as np

    from attnmath import patterns

    P, special = arguments
    offsets = {"before": -1, "itself": 0, "behind": 1}
    found = {kind: patterns.offset_score(P, offset) for kind, offset in offsets.items()}
    found |= {"special": patterns.column_score(P, np.isin(np.arange(7), special))}
    entropy = patterns.entropy(P)
    entropy = entropy.mean(-1) if entropy.ndim == 2 else entropy
    names = own.name_heads(own.kinds_of_heads(np.eye(4)[None], (0,)))
    assert names.tolist() == ["itself"]
    return found | {"entropy": entropy / np.log(7)}
