"""Two versions timed in one run: what their ratio is."""

import time

REPEATS = 2  # how often a row that misses its goal is timed again before it is called missed


def ratio_of_times(benchmark, ratios, name, ours, theirs, goal, sizes, rounds=7):
    """Time the two in alternation; record and return the ratio of the shortest times.

    A row above its goal is timed again, since another program may have taken the cache in just these rounds. Rounds
    are added to those before, never dropped, so that a repeat can only replace a disturbed minimum, of either version.
    """
    other = []

    def before_each():
        start = time.process_time()
        theirs()
        other.append(time.process_time() - start)

    benchmark.pedantic(ours, setup=before_each, rounds=rounds, warmup_rounds=1)
    mine, other, repeats = benchmark.stats.stats.min, other[1:], 0
    while goal is not None and mine / min(other) > goal and repeats < REPEATS:
        repeats += 1
        for _ in range(rounds):
            before_each()
            start = time.process_time()
            ours()
            mine = min(mine, time.process_time() - start)
    ratio = mine / min(other)
    ratios.append({"name": name, "ratio": round(ratio, 3), "goal": goal, "repeats": repeats, "sizes": sizes})
    return ratio
