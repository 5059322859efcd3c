"""What is kept of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model taken apart into what can be written down.

    Attributes:
        kind: The registered name of the class that can put it together again, such as "IALS".
        settings: JSON values only: None, bool, int, finite float, str, and lists and string-keyed dicts of these.
        arrays: Numbers by name: bool, int8 to int64, uint8 to uint64, float16 to float64, any shape, floats finite.
            `load_model` returns them read-only, as views of one buffer: keep a copy of the one you need if the
            others should be freed.
        tables: Ids of contexts and items by name: integer or string columns without nulls; a context that is a tuple
            is several columns.
        extra: Small JSON facts besides the settings, such as a summary of the training.
    """

    kind: str
    settings: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    tables: dict[str, pl.DataFrame]
    extra: dict[str, Any] = field(default_factory=dict)
