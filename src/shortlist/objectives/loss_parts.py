"""A loss in named parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn


class LossParts(Mapping[str, float]):
    """The parts of a loss by name. It never changes; `total` is their sum, and a part is an attribute too.

    >>> loss = LossParts(observed=2.0, regularizer=0.5)
    >>> loss.total, loss.observed, dict(loss)
    (2.5, 2.0, {'observed': 2.0, 'regularizer': 0.5})
    """

    _parts: dict[str, float]

    def __init__(self, parts: Mapping[str, float] | None = None, /, **named: float) -> None:
        values = {name: float(value) for name, value in {**(parts or {}), **named}.items()}
        if not values or "total" in values:
            raise ValueError(f"the parts of a loss are {', '.join(values) or 'missing'}; expected names except 'total'")
        vars(self)["_parts"] = values

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return sum(self._parts.values())

    def __getitem__(self, name: str) -> float:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __getattr__(self, name: str) -> float:
        parts: dict[str, float] = vars(self).get("_parts", {})
        if name not in parts:
            raise AttributeError(f"the loss has no part {name!r}; it has {', '.join(parts)}", name=name, obj=self)
        return parts[name]

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("the parts of a loss cannot be changed", name=name, obj=self)

    def __hash__(self) -> int:
        return hash(frozenset(self._parts.items()))

    def __repr__(self) -> str:
        return f"LossParts({', '.join(f'{name}={value!r}' for name, value in self._parts.items())})"
