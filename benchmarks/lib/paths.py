"""Where the files of the benchmarks are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
DATA = ROOT / ".." / "shared" / "data"  # the default of --data
PAGE = ROOT / "docs" / "benchmarks.md"
SETTINGS = ROOT / "benchmarks" / "settings"
TRIALS = ROOT / "benchmarks" / "studies" / "trials"
RESULTS = ROOT / "benchmarks" / "results"
QUALITY, SPEED = RESULTS / "quality", RESULTS / "speed"
