"""The result of `explain`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.vocabulary import Codes, Id, Vocabulary


@dataclass(frozen=True, eq=False)
class Explanation:
    """The contributions of history items to the score of an item, the largest first.

    `contributions[k]` belongs to `ids[k]`. The contributions and `rest`, which is the sum over the items that are not
    listed, add up to `score` except for rounding.
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
        """Return a frame with one row per item of the history: the item and its `contribution`."""
        column = self._items.take(self._codes).to_series()
        name = "contribution" if column.name != "contribution" else "contribution_"
        return pl.DataFrame([column, pl.Series(name, self.contributions)])

    def __len__(self) -> int:
        return len(self.contributions)

    def __repr__(self) -> str:
        ids = [str(id_) for id_ in self.ids]
        width = max(map(len, [*ids, "the rest"]), default=0)
        lines = [f"{self._items.names[0]} {self.item} has the score {self.score:.4f}, the sum of"]
        lines += [f"  {id_:<{width}}  {value:+.4f}" for id_, value in zip(ids, self.contributions)]
        if self.rest:
            lines.append(f"  {'the rest':<{width}}  {self.rest:+.4f}")
        return "\n".join(lines) if len(lines) > 1 else lines[0].replace(", the sum of", ": the history is empty")
