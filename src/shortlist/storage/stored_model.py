"""The parts of a model that are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from shortlist.data.mapped_ids import MappedIds


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model as plain data that can be written to disk.

    Attributes:
        kind: The registered name of the model's class, such as "IALS".
        settings: JSON values only: None, bool, int, finite float, str, and lists and string-keyed dicts of these.
        arrays: NumPy arrays by name: bool, int8 to int64, uint8 to uint64 or float16 to float64, of any shape; floats
            must be finite. `load_model` returns read-only views of the mapped file.
        tables: Tables of context and item ids by name, with integer or string columns without nulls. Contexts that are
            tuples take several columns. `load_model` returns tables that become frames when they are needed.
        extra: Other small JSON data, such as a summary of the training.
    """

    kind: str
    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    tables: dict[str, pl.DataFrame | MappedIds]
    extra: dict[str, Any] = field(default_factory=dict)
