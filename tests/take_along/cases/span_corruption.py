"""A text is cut where a mask says, and put together again; the masks have the library's numbers of cuts."""

import numpy as np


def example(own):
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 90, 60)

    def there_and_back(ids, masks):
        found = []
        for mask in masks:
            source, target = own.corrupt(ids, mask, 100)
            found += [source, target, own.restore(source, target, 100)]
        return found

    masks = [own.span_mask(60, rng, share, mean) for share, mean in ((0.15, 3.0), (0.4, 2.0), (0.5, 1.0))]
    return there_and_back, (ids, [*masks, ~masks[0]])


def library(own, function, arguments):
    from attnmath import spans

    ids, masks = arguments
    for mask, plan in zip(masks, ((0.15, 3.0), (0.4, 2.0), (0.5, 1.0)), strict=False):
        begins = mask & ~np.concatenate([[False], mask[:-1]])
        assert (mask.sum(), begins.sum()) == spans.span_counts(60, *plan)
    some = {own.span_mask(7, np.random.default_rng(i), 0.4, 1.5).tobytes() for i in range(300)}
    all_ = {spans.span_mask(7, 0.4, 1.5, np.random.default_rng(i)).tobytes() for i in range(300)}
    assert some == all_, "the same masks can be drawn"
    found = []
    for mask in masks:
        pair = spans.corrupt(ids, mask, range(100, 160)[: int(np.diff(np.r_[0, mask]).clip(0).sum()) + 1])
        found += [*pair, ids]
    return found
