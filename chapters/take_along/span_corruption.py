import numpy as np


def pieces(total, parts, rng):
    """Lengths >= 1 of this sum, all lists equally likely: walls in some of the gaps."""
    walls = np.sort(rng.permutation(total - 1)[: parts - 1] + 1)
    return np.diff(np.concatenate([[0], walls, [total]]))


def span_mask(n, rng, share=0.15, mean=3.0):
    """(n,) booleans, True where T5 cuts: kept and cut pieces take turns."""
    k = min(max(round(share * n), 1), n - 1)  # tokens that are cut
    s = min(max(round(k / mean), 1), k, n - k)  # in so many spans
    lengths = np.stack([pieces(n - k, s, rng), pieces(k, s, rng)], -1)
    return np.repeat(np.tile([False, True], s), lengths.ravel())


def corrupt(ids, mask, sentinel):
    """Input and target of a text (n,); sentinel, sentinel + 1, ... stand in no text."""
    begins = mask & ~np.concatenate([[False], mask[:-1]])
    s = begins.sum()
    source = np.where(begins, sentinel + np.cumsum(begins) - 1, ids)[~mask | begins]
    marks = sentinel + np.arange(s)
    target = np.insert(ids[mask], np.flatnonzero(begins[mask]), marks)
    return source, np.append(target, sentinel + s)  # the last sentinel ends the target


def restore(source, target, sentinel):
    """The text again: for each sentinel of the input, what the target tells of it."""
    first, *kept = np.split(source, np.flatnonzero(source >= sentinel))
    spans = np.split(target, np.flatnonzero(target >= sentinel))[1:-1]
    for span, part in zip(spans, kept, strict=True):  # each begins with its sentinel
        first = np.concatenate([first, span[1:], part[1:]])
    return first
