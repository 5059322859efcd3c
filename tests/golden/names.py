"""Golden answers in today's names: those of the version that wrote them are translated by one table."""

from __future__ import annotations

from typing import Any


def today(value: Any) -> Any:
    """Return a document with today's names of settings, metrics, classes and keys."""
    return value
