"""Features in the order of a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shortlist._phrases import count
from shortlist.data.features.feature_fields import Field
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Codes, Id, Vocabulary

if TYPE_CHECKING:
    from shortlist.data.features.table import Features


@dataclass(frozen=True, eq=False, repr=False)
class AlignedFeatures:
    """Features in the order of a vocabulary: row c of `rows` belongs to the id with code c.

    An id without features has a row in which every field is missing. Features of ids that are not in the vocabulary,
    such as new items, are in `cold`: `cold.ids`, `cold.rows`, `cold.rows_for(["new-1"])`.

    Attributes:
        vocabulary: the ids of the rows.
        fields: the fields, with `n_missing` counted over these rows.
        rows: the matrix.
        cold: the features of the ids that are not in the vocabulary.
        places: for each row its position in the original features; −1 for ids without features.
    """

    vocabulary: Vocabulary
    fields: tuple[Field, ...]
    rows: SparseRows
    cold: Features
    places: Codes

    def __len__(self) -> int:
        """The number of rows: one per id of the vocabulary."""
        return self.rows.n_rows

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return self.rows.n_columns

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.cold.feature_names

    @property
    def n_without(self) -> int:
        """The number of ids without features."""
        return int(self._is_without.sum())

    @property
    def without(self) -> list[Id]:
        """The ids without features."""
        return self.vocabulary.ids(np.flatnonzero(self._is_without))

    @property
    def _is_without(self) -> npt.NDArray[np.bool_]:
        return self.places < 0

    def __repr__(self) -> str:
        names = ", ".join(self.vocabulary.names)
        return (
            f"AlignedFeatures({count(len(self), 'id')} of {names} × {count(self.n_features, 'feature')}, "
            f"{count(self.n_without, 'id')} "
            f"without features (every field missing), {count(len(self.cold), 'cold row')} (ids not in the vocabulary))"
        )
