"""Results that are more than a ratio: kept as JSON in benchmarks/results, read for the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.lib.machine import about
from benchmarks.lib.paths import RESULTS

FOLD_IN, MULTILINEAR = RESULTS / "fold_in", RESULTS / "multilinear"
RERANKING, RETRIEVAL, SLATES = RESULTS / "reranking", RESULTS / "retrieval", RESULTS / "slates"


def store(
    name: str, content: dict[str, Any], folder: Path, packages: tuple[str, ...] = ("scipy", "numba", "polars")
) -> None:
    """Keep a result, with when and on what it was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content | about(*packages), indent=1, ensure_ascii=False) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def stored(name: str, folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return result
