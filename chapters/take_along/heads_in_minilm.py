import numpy as np


def kinds_of_heads(P, special=(0,)):
    """How each head spends its weight. P (..., n, n): maps of attention, rows sum to 1.

    special: the columns of [CLS], [SEP] or whatever every text has.
    Returns means over the queries: the weight on the word before, itself, behind, on
    special columns, and the entropy as a share of log n.
    """
    P = np.asarray(P, float)
    n = P.shape[-1]

    def beside(offset):  # the weight on the word at this distance, where there is one
        return np.diagonal(P, offset, -2, -1).mean(-1)

    logs = np.log(np.where(P > 0, P, 1))  # 0 log 0 is 0
    return {
        "before": beside(-1),
        "itself": beside(0),
        "behind": beside(1),
        "special": P[..., list(special)].sum(-1).mean(-1),
        "entropy": -(P * logs).sum(-1).mean(-1) / np.log(n),
    }


def name_heads(scores, least=0.5):
    """A name for each head: the kind with most weight, if that is at least half."""
    kinds = ["before", "itself", "behind", "special"]
    stacked = np.stack([scores[kind] for kind in kinds])
    best, value = stacked.argmax(0), stacked.max(0)
    return np.where(value >= least, np.array(kinds)[best], "none of these")
