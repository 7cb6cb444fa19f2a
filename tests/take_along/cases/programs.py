"""A word is counted and turned round, and numbers with ties are sorted."""


def example(own):
    import numpy as np

    def run(numbers):
        turned = [ord(x) for x in own.backwards("attention")]
        return own.histogram("attention"), turned, own.sort(numbers)

    return run, (np.array([3.0, -1.5, 3.0, 8.0, 0.25, 3.0]),)


def library(own, run, arguments):
    import numpy as np

    from attnmath.programs import aggregate, histogram, run, select, selector_width, write, writer

    (x,), place = arguments, np.arange(6)
    pairs = list(zip(x, place, strict=True))
    rank = selector_width(select(pairs, pairs, lambda k, q: k < q))
    letters = "".join(sorted(set("attention")))
    counts = run(histogram(letters, 9), "^attention")[1:]
    turned = write(writer(letters, 30, backwards=True), "attention").rstrip("^")
    return np.array(counts), [ord(x) for x in turned], aggregate(select(rank, place, lambda k, q: k == q), x)
