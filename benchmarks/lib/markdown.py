"""Text for docs/benchmarks.md: tables, figures, and where they were measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

GPU = "†"
MANY = 4  # rows that are not named one by one
SHORT = {
    "dim": "d",
    "regularization": "λ",
    "regularization_exponent": "ν",
    "unobserved_weight": "α₀",
    "unobserved_item_exponent": "ρ of items",
    "unobserved_context_exponent": "ρ of contexts",
    "neighbours": "k",
    "l1": "λ₁",
    "l2": "λ₂",
}


def provenance(rows: Iterable[tuple[str, dict[str, Any]]]) -> str:
    """When and on what the rows were measured, those with the same answer together; and how, where it took a GPU."""
    groups: dict[str, list[str]] = {}
    for name, row in rows:
        told = ", ".join(f"{package} {version}" for package, version in row["versions"].items())
        if row["device"]:
            said = f"{GPU} {row['when']} on {row['device']} ({row['machine']}); {told}; `{row['command']}`"
        else:
            said = f"{row['when']} on {row['machine']}; {told}"
        groups.setdefault(said, []).append(name)
    many = max(groups, key=lambda said: len(set(groups[said])))
    if len(set(groups[many])) > MANY:
        groups[many] = ["all others" if len(groups) > 1 else "all"]
    return "\n".join(f"* {'; '.join(dict.fromkeys(names))}: {said}" for said, names in groups.items())


def table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *lines])


def figure(value: float) -> str:
    """Four digits, without the zero in front.

    >>> figure(0.45304)
    '.4530'
    """
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.4f}").replace("-", "−")


def percent(value: float) -> str:
    return f"{100 * value:+.1f} %".replace("-", "−")


def signed(value: float) -> str:
    return ("+" if value >= 0 else "") + figure(value)


def number(value: Any) -> str:
    """A setting: three digits are enough to know it by; the file of settings has it whole."""
    if isinstance(value, float) and value >= 1000:
        return f"{value:,.0f}"
    if isinstance(value, float):
        return re.sub(r"^(-?)0\.", r"\1.", f"{value:.3g}").replace("-", "−")
    return str(value)
