"""The recommenders by name: what the command line offers and what `load` may make."""

from __future__ import annotations

import difflib
from importlib import import_module
from os import PathLike
from typing import Any

from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import SettingError, ShortlistError, StorageError
from shortlist.recommenders.base import Recommender

REGISTRY: dict[str, str] = {
    "EASE": "shortlist.recommenders.ease",
    "IALS": "shortlist.recommenders.ials",
    "Popularity": "shortlist.recommenders.popularity",
}


def recommender_class(name: str) -> type[Recommender]:
    """The class of that name, however it is written: `ials` is `IALS`."""
    exact = {known.lower(): known for known in REGISTRY}.get(name.lower())
    if exact is None:
        near = difflib.get_close_matches(name.lower(), [known.lower() for known in REGISTRY], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SettingError(f"no recommender is called {name!r}; {hint}there are {', '.join(REGISTRY)}")
    found: type[Recommender] = getattr(import_module(REGISTRY[exact]), exact)
    return found


def load(path: str | PathLike[str]) -> Any:
    """Read a model that `save` wrote; it answers without the data it was fitted on. Nothing in it is executed."""
    from shortlist.storage import load_model

    stored = load_model(path)
    if stored.kind not in REGISTRY:
        raise StorageError(f"{path} holds a {stored.kind!r}, which this version of Shortlist does not know")
    if not {"contexts", "items"} <= set(stored.tables):
        raise StorageError(f"{path} lacks the ids of contexts or items")
    try:
        model = recommender_class(stored.kind)(**stored.settings)
        contexts, items = (Vocabulary(stored.tables[name]) for name in ("contexts", "items"))
        model._restore(stored.arrays, contexts, items)
    except StorageError as error:
        raise StorageError(f"{path}: {error}") from None
    except (TypeError, ShortlistError) as error:
        raise StorageError(f"{path}: the settings or ids of this {stored.kind} are not usable: {error}") from error
    return model
