"""The trials of a study: a CSV file of benchmarks/studies/trials, a line a trial."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

NO_SETTINGS = ("trial", "start", "state", "seconds", "fit_seconds")  # columns of a study that are about the trial


def trials(path: Path) -> list[dict[str, Any]]:
    """Every trial of a study, with its settings as numbers and words; none where there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


def best(study: list[dict[str, Any]], metric: str) -> dict[str, Any]:
    """The settings of the best trial that was carried through; of equal ones the first."""
    winner = max(complete(study, metric), key=lambda trial: trial[metric])
    return settings_of(winner)


def settings_of(trial: dict[str, Any]) -> dict[str, Any]:
    """What of a trial are settings."""
    return {name: value for name, value in trial.items() if "@" not in name and name not in NO_SETTINGS}


def complete(study: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Trials that came to their end, from nothing and not from another model; old studies have no others."""
    ended = [trial for trial in study if trial.get("state", "complete") == "complete" and "start" not in trial]
    return [trial for trial in ended if metric in trial]


def _value(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
