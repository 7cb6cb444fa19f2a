"""Two versions timed in one run: what their ratio is."""

import time


def ratio_of_times(benchmark, ratios, name, ours, theirs, goal, sizes, rounds=7):
    """Time the two in alternation; record and return the ratio of the shortest times."""
    other = []

    def before_each():
        start = time.process_time()
        theirs()
        other.append(time.process_time() - start)

    benchmark.pedantic(ours, setup=before_each, rounds=rounds, warmup_rounds=1)
    ratio = benchmark.stats.stats.min / min(other[1:])
    ratios.append({"name": name, "ratio": round(ratio, 3), "goal": goal, "sizes": sizes})
    return ratio
