"""Where the figures of `peers.py` are kept: a file a library in benchmarks/results/peers, a section a question."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "peers"


def read(name: str) -> dict[str, Any]:
    """All sections of a library; nothing where there is no file yet."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def keep(name: str, section: str, content: dict[str, Any]) -> None:
    """Replace a section of a library's file, with today's date."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    sections = read(name) | {section: {"when": dt.date.today().isoformat()} | content}
    text = json.dumps(sections, indent=1, ensure_ascii=False, sort_keys=True)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
