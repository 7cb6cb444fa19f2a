"""How processes side by side share the cores."""

import os


def share_cores(jobs: int) -> None:
    """Give each of several processes its share of the cores, unless the environment says otherwise.

    Two that take all of them each are slower than one after the other: threads of OpenMP spin while they wait.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
