"""What `explain` returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.vocabulary import Codes, Id, Vocabulary


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why an item has its score: what each item of the history adds to it, the most first.

    `ids` and `contributions` go together; with `rest`, which is what the items not listed add, the contributions sum
    to `score` up to rounding.
    """

    item: Id
    score: float
    contributions: npt.NDArray[np.float64]
    rest: float
    _items: Vocabulary
    _codes: Codes

    @property
    def ids(self) -> list[Id]:
        """The items of the history."""
        return self._items.ids(self._codes)

    def to_polars(self) -> pl.DataFrame:
        """A row for each item of the history: the item and its `contribution`."""
        column = self._items.take(self._codes).to_series()
        name = "contribution" if column.name != "contribution" else "contribution_"
        return pl.DataFrame([column, pl.Series(name, self.contributions)])

    def __len__(self) -> int:
        return len(self.contributions)

    def __repr__(self) -> str:
        ids = [str(one) for one in self.ids]
        width = max(map(len, [*ids, "the rest"]), default=0)
        lines = [f"{self._items.names[0]} {self.item} has the score {self.score:.4f}, of which"]
        lines += [f"  {one:<{width}}  {value:+.4f}" for one, value in zip(ids, self.contributions)]
        if self.rest:
            lines.append(f"  {'the rest':<{width}}  {self.rest:+.4f}")
        return "\n".join(lines) if len(lines) > 1 else lines[0].replace(", of which", ": there is no history")
