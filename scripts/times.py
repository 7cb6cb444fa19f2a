"""Where the time of a run went, stored as JSON with the machine's cores and the date."""

import json
import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path


class Times:
    """The stages of one run, in order, rewritten after each, so that a run that breaks off tells its own."""

    def __init__(self, target: Path):
        self.target, self.stages = target, []

    @contextmanager
    def stage(self, title: str):
        """Measure what happens inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(title, time.perf_counter() - start)

    def add(self, title: str, seconds: float, result: str = "") -> None:
        self.stages.append({"title": title, "seconds": round(seconds, 1), "result": result})
        told = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "cores": os.cpu_count(),
            "stages": self.stages,
        }
        self.target.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
