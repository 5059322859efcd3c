"""Golden answers in today's names: those of the version that wrote them are translated by `shortlist._renamed`."""

from __future__ import annotations

from typing import Any

from shortlist import _renamed

SETTINGS = {old: new for table in _renamed.SETTINGS.values() for old, new in table.items()}


def today(value: Any) -> Any:
    """Return a document with today's names of settings, metrics, classes and keys."""
    if isinstance(value, dict):
        return {_name(key): today(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [today(inner) for inner in value]
    return _name(value) if isinstance(value, str) else value


def _name(text: str) -> str:
    metric, at, n = text.partition("@")
    if at and metric in _renamed.METRICS:
        return f"{_renamed.METRICS[metric]}@{n}"
    for old, new in _renamed.PARTS.items():
        text = text.replace(f"{old}(", f"{new}(")
    return SETTINGS.get(text, text)
