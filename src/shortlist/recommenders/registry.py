"""The recommenders by name, for the command line and for storage."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING

from shortlist.errors import SettingError, StorageError
from shortlist.recommenders import RECOMMENDERS, restoring
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.restoring import kind_name

if TYPE_CHECKING:
    from shortlist.storage import StoredModel

REGISTRY = RECOMMENDERS


def recommender_class(name: str) -> type[Recommender]:
    """Return the class with this name, in any case: `ials` is `IALS`."""
    exact = {known.lower(): known for known in REGISTRY}.get(name.lower())
    if exact is None:
        near = difflib.get_close_matches(name.lower(), [known.lower() for known in REGISTRY], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SettingError(
            f"unknown recommender {name!r}; {hint}expected one of {', '.join(map(str.lower, REGISTRY))}",
            code="unknown-model",
            field="model",
        )
    kind: type[Recommender] = getattr(import_module(REGISTRY[exact]), exact)
    return kind


def own_classes(code: Iterable[type]) -> tuple[type[Recommender], ...]:
    """Return the user's own classes as a tuple; raise SettingError for anything else."""
    if isinstance(code, type | str) or not isinstance(code, Iterable):
        raise SettingError(f"code is {code!r:.80}; expected a list of classes of recommenders", field="code")
    kinds = tuple(code)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Recommender)):
            raise SettingError(f"code has {kind!r:.80}; expected classes of recommenders", field="code")
    return kinds


def stored_class(name: str, path: str | PathLike[str], code: Iterable[type] = ()) -> type[Recommender]:
    """Return the class of a stored recommender: one of Shortlist, or one of the user's classes in `code`.

    The file only names the class; it never decides what is imported.
    """
    for kind in own_classes(code):
        if name == kind_name(kind) or ("." in name and name.rpartition(".")[2] == kind.__name__):
            return kind
    if name in REGISTRY:
        return recommender_class(name)
    if "." in name:
        short = name.rpartition(".")[2]
        raise StorageError(
            f"{path} contains a model of your own class {name:.80}",
            code="model-unsupported",
            field="code",
            hint=f"pass the class: load(path, code=[{short:.80}])",
        )
    raise StorageError(
        f"{path} contains a {name!r:.80}, which this version of Shortlist does not know", code="model-unsupported"
    )


def restored(
    stored: StoredModel, path: str | PathLike[str], *, verify: bool = True, code: Iterable[type] = ()
) -> Recommender:
    """Return the recommender that was stored; see `restoring.restored`."""
    return restoring.restored(stored_class(stored.kind, path, code), stored, path, verify=verify)
