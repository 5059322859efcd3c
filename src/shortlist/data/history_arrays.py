"""Ordered histories as named arrays, as models store them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._kernel_views import for_kernels
from shortlist.data.histories import Histories
from shortlist.data.sparse_rows import COUNT, LATEST, SUM
from shortlist.errors import StorageError

HISTORIES = "histories."  # before the names of these arrays
_TYPES: dict[str, Any] = {"indptr": np.int64, "items": np.int32, "times": np.float64, "weights": np.float32}


def ordered_arrays(histories: Histories) -> dict[str, npt.NDArray[Any]]:
    """Return ordered histories as arrays by name."""
    arrays = {name: getattr(histories, name) for name in _TYPES}
    arrays["merge"] = np.array(histories.merge, np.int64)
    return {f"{HISTORIES}{name}": array for name, array in arrays.items() if array is not None}


def histories_of_arrays(arrays: dict[str, npt.NDArray[Any]], n_rows: int, n_items: int) -> Histories:
    """Take ordered histories out of `arrays` and return them; raise StorageError if they are damaged."""
    parts = {name: arrays.pop(f"{HISTORIES}{name}", None) for name in (*_TYPES, "merge")}
    merge = parts.pop("merge")
    indptr, items = parts["indptr"], parts["items"]
    if merge is None or indptr is None or items is None or merge.shape or int(merge) not in (SUM, COUNT, LATEST):
        raise _damaged("it has no indptr, items or merge")
    shapes = {"indptr": (n_rows + 1,), **dict.fromkeys(("items", "times", "weights"), (len(items),))}
    for name, array in parts.items():
        if array is not None and (array.dtype != _TYPES[name] or array.shape != shapes[name]):
            raise _damaged(f"{name} is {array.dtype} {array.shape}; expected {np.dtype(_TYPES[name])} {shapes[name]}")
    if indptr[0] != 0 or indptr[-1] != len(items) or (indptr[1:] < indptr[:-1]).any():
        raise _damaged("its rows do not cover its events")
    if len(items) and not 0 <= items.min() <= items.max() < n_items:
        raise _damaged(f"its items go from {items.min()} to {items.max()}; expected 0 to {n_items - 1}")
    times, weights = (None if array is None else for_kernels(array) for array in (parts["times"], parts["weights"]))
    return Histories(for_kernels(indptr), for_kernels(items), times, weights, n_items, int(merge))


def _damaged(problem: str) -> StorageError:
    return StorageError(f"the model's ordered histories cannot be used: {problem}", code="model-damaged")
