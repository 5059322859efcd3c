"""What every benchmark prints beside its figures, and the rules it measures by."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable


def describe(*packages: str) -> None:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("shortlist", "numpy", *packages))
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} CPUs, Python {platform.python_version()}, {versions}")


def interleaved(runs: int, **contestants: Callable[[], object]) -> dict[str, list[float]]:
    """Seconds of each contestant, run in turns so that a noisy machine hits all of them alike; one warm-up each."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(runs + 1):
        for name, run in contestants.items():
            began = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def table(seconds: dict[str, list[float]], bound: str) -> None:
    """Median, spread, and the ratio to the bound: the median over turns of the ratio within a turn."""
    print(f"{'':<34}{'median s':>10}{'min':>8}{'max':>8}   ratio to {bound}")
    for name, values in seconds.items():
        ratios = sorted(value / base for value, base in zip(values, seconds[bound]))
        print(
            f"{name:<34}{statistics.median(values):>10.3f}{min(values):>8.3f}{max(values):>8.3f}"
            f"   {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
