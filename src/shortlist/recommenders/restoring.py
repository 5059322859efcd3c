"""Restore recommenders from what was stored, and refuse to store what could not be restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist._renamed import new_settings
from shortlist.data.id_index import IdIndex
from shortlist.data.mapped_ids import frame_of
from shortlist.data.vocabulary import Vocabulary, n_distinct
from shortlist.errors import SettingError, ShortlistError, StorageError
from shortlist.recommenders.unused_settings import defaults
from shortlist.storage.wrap_errors import reason

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender
    from shortlist.storage import StoredModel

_DAMAGE = (*(TypeError, ValueError, OverflowError, KeyError, IndexError, AttributeError, RuntimeError, ShortlistError),)
_INDEXES = tuple(f"{side}.{part}" for side in ("contexts", "items") for part in ("hashes", "codes"))
_DERIVED = ("popularity", "priority", *_INDEXES)  # arrays that follow from other parts of a stored model
RESERVED = (*_DERIVED, "seen.indptr", "seen.indices", "seen.values")  # names of arrays that every model may have


def kind_name(kind: type) -> str:
    """Return the name under which models of a class are stored; for a class of the user with its module."""
    ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}"


def require_loadable(
    path: str | PathLike[str], stored: StoredModel, restore: Callable[[StoredModel, str], object]
) -> None:
    """Refuse to save to `path` what `load` would refuse; `restore` builds the model as `load` does."""
    # Restoring takes parts out. What was just derived from other parts need not be checked against them.
    derived = tuple(f".{name}" for name in _DERIVED)  # of the stages of a `TwoStage`
    kept = [name for name in stored.arrays if name not in _DERIVED and not name.endswith(derived)]
    arrays = {name: stored.arrays[name] for name in kept}
    parts = replace(stored, arrays=arrays, tables=dict(stored.tables))
    try:
        restore(parts, f"this {stored.kind}")
    except ShortlistError as error:
        raise StorageError(
            f"cannot save to '{path}', because the model could not be loaded again: {error}",
            hint="fit it again; for your own class, compare state_dict and load_state_dict",
        ) from error


def restored(
    kind: type[Recommender], stored: StoredModel, path: str | PathLike[str], *, verify: bool = True
) -> Recommender:
    """Return the recommender that was stored.

    Args:
        kind: the class of the recommender.
        stored: its parts.
        path: the path for messages.
        verify: check all numbers and ids now. Otherwise index arrays are checked when they are first used, and wrong
            numbers give wrong answers.
    """
    try:
        model = _made(kind, stored.settings)
        model.restore_more(stored)
        if stored.tables.keys() != {"contexts", "items"}:
            names = ", ".join(sorted(stored.tables)) or "none"
            raise StorageError(f"it has the id tables {names:.200}; expected contexts and items")
        contexts, items = (_vocabulary(name, stored, verify) for name in ("contexts", "items"))
        model.restore(stored, contexts, items, verify)
        model.derived_ = {name: getattr(model, name) for name in _derived(stored, model)}
    except StorageError as error:
        raise error.prefixed(f"{path}: ", code="model-damaged") from None
    except _DAMAGE as error:  # also whatever the `load_state_dict` of a user's own class raises
        what = f"the settings, ids or arrays of this {stored.kind} are not usable"
        raise StorageError(f"{path}: {what}: {reason(error)}", code="model-damaged") from error
    return model


def _derived(stored: StoredModel, model: Recommender) -> list[str]:
    """Return the names of the settings that the fit derived from the data."""
    names = stored.extra.get("derived", [])
    if not isinstance(names, list) or not all(name in model.derivable for name in names):
        raise StorageError(f"its derived settings are {names!r:.200}; expected some of {[*model.derivable]}")
    if missing := [name for name in model.derivable if getattr(model, name) is None]:
        raise StorageError(f"{missing[0]} is None; a fitted {type(model).__name__} has a value")
    return names


def _made(kind: type[Recommender], settings: Mapping[str, Any]) -> Recommender:
    """Return a recommender with these settings, without settings that have no effect; earlier versions allowed them."""
    settings = new_settings(kind, settings, warn=False)
    try:
        return kind(**settings)
    except SettingError:
        bare = kind.__new__(kind)
        vars(bare).update(defaults(kind) | dict(settings))
        try:
            unused = bare.unused_settings()
        except (AttributeError, KeyError):
            unused = {}
        if not unused:
            raise
        return kind(**{name: value for name, value in settings.items() if name not in unused})


def _vocabulary(name: str, stored: StoredModel, verify: bool) -> Vocabulary:
    table = stored.tables[name]
    if name == "items" and len(table.schema) != 1:
        raise StorageError(f"ids of items have {len(table.schema)} columns; expected one")
    index = _index(name, stored, table.height)
    if not verify:
        return Vocabulary(table, index)
    frame = frame_of(table)
    if repeats := frame.height - n_distinct(frame):
        raise StorageError(f"ids of {name} are not distinct: {repeats:,} of {frame.height:,} are repeated")
    if index is not None:
        expected = Vocabulary(frame).index
        if not (np.array_equal(index.hashes, expected.hashes) and np.array_equal(index.codes, expected.codes)):
            raise StorageError(f"the index of {name} does not match their ids")
    return Vocabulary(table, index)


def _index(name: str, stored: StoredModel, height: int) -> IdIndex | None:
    """Remove the index of a vocabulary from the stored arrays, and return it."""
    hashes, codes = (stored.arrays.pop(f"{name}.{part}", None) for part in ("hashes", "codes"))
    if hashes is None and codes is None:
        return None
    for array, dtype in ((hashes, np.uint32), (codes, np.int32)):
        if array is None or array.dtype != dtype or array.shape != (height,):
            raise StorageError(f"the index of {name} does not have one hash and one code for each id")
    assert hashes is not None
    assert codes is not None
    return IdIndex(hashes, codes)
