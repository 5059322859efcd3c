"""The files of the study of defaults: a line a fit."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any


def text_of(settings: dict[str, Any]) -> str:
    """Settings as they stand in the file."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def read(path: Path) -> list[dict[str, str]]:
    """The lines of a study; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def keep(path: Path, line: dict[str, Any]) -> None:
    """Add a line to the file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, line.keys(), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(line)
