"""What every benchmark prints beside its figures, the rules it measures by, and where a ratio is kept for the board."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lib.paths import ROOT, SPEED

# The defaults of models that learn by sampling when most figures were measured. Scripts name them, so that a change of
# defaults changes no figure.
PLAIN_SGD: dict[str, Any] = {"optimizer": "sgd", "schedule": "constant", "init": "random", "init_scale": 0.1}


def machine() -> str:
    """How many cores of what."""
    model = platform.machine()
    with Path("/proc/cpuinfo").open() as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    cores = len(os.sched_getaffinity(0))
    return f"{cores} core{'s' * (cores > 1)} of {model}"


def versions(*packages: str) -> dict[str, str]:
    """Of Python, Shortlist, NumPy and these."""
    installed = {name: importlib.metadata.version(name) for name in ("shortlist", "numpy", *packages)}
    return {"python": platform.python_version()} | installed


def describe(*packages: str) -> None:
    told = ", ".join(f"{name} {version}" for name, version in versions(*packages).items())
    print(f"{platform.machine()}, {machine()}, {told}")


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
        ratios = sorted(quotients(values, seconds[bound]))
        print(
            f"{name:<34}{statistics.median(values):>10.3f}{min(values):>8.3f}{max(values):>8.3f}"
            f"   {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


def quotients(values: list[float], others: list[float]) -> list[float]:
    """Ratios within a turn."""
    return [value / other for value, other in zip(values, others)]


def module() -> str:
    """Return the name of the script that runs, such as benchmarks.speed.ials."""
    parts = Path(sys.argv[0]).resolve().with_suffix("").parts
    return ".".join(parts[len(ROOT.parts) :]).removesuffix(".__main__")


def command() -> str:
    """What was typed, as anyone can type it again: with FOLDER for the folder of the data, and without a log."""
    words = [module(), *(word for word in sys.argv[1:] if word != "--record")]
    if "--json" in words:
        at = words.index("--json")
        del words[at : at + 2]
    for k, word in enumerate(words[:-1]):
        if word == "--data":
            words[k + 1] = "FOLDER"
    return f"python -m {shlex.join(words)}"


def about(*packages: str) -> dict[str, Any]:
    """When, on what and how something was measured."""
    return {
        "when": dt.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(*packages),
        "command": command(),
        "device": None,
    }


def record(
    name: str,
    *,
    question: str,
    ours: str,
    against: str,
    what: str,
    ratios: list[float],
    packages: tuple[str, ...] = (),
) -> None:
    """Keep a ratio for the board of docs/benchmarks.md: a file of results/speed, which a later run replaces.

    Args:
        name: of the file.
        question: what was done, and on what.
        ours: what of Shortlist was measured.
        against: the peer or the bound.
        what: the ratio in words, such as "time / bound" or "peer's time / ours".
        ratios: one a turn; the board has their median and range.
        packages: whose versions matter beside Shortlist and NumPy.
    """
    row = {
        "question": question,
        "ours": ours,
        "against": against,
        "what": what,
        "ratio": statistics.median(ratios),
        "low": min(ratios) if len(ratios) > 1 else None,
        "high": max(ratios) if len(ratios) > 1 else None,
        "runs": len(ratios),
        **about(*packages),
    }
    SPEED.mkdir(parents=True, exist_ok=True)
    (SPEED / f"{name}.json").write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
