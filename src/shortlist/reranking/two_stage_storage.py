"""Storage of a `TwoStage`: one model directory with the parts of each model under a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.features.table import Features
from shortlist.data.mapped_ids import frame_of
from shortlist.errors import SettingError, ShortlistError, StorageError
from shortlist.recommenders import registry
from shortlist.recommenders.base import Recommender
from shortlist.reranking.base import Reranker, check_reranker
from shortlist.reranking.candidate_features import Extra, check_extra
from shortlist.reranking.lambdamart import LambdaMART
from shortlist.reranking.pair_digests import PairDigests
from shortlist.reranking.reranker_state import RerankerState
from shortlist.storage import StoredModel
from shortlist.storage.wrap_errors import reason

if TYPE_CHECKING:
    from shortlist.reranking.two_stage import TwoStage

Restore: TypeAlias = Callable[[StoredModel, "str | PathLike[str]"], Recommender]
KIND = "TwoStage"
_PAIRS, _OF_TEXTS = "pairs", "learnt"  # arrays of digests: of this version, and of earlier ones
_KEYS = {
    "candidates",
    "first",
    "models",
    "reranker",
    "item_features",
    "context_features",
    "extra",
    "training",
    "clicks",
}


def stored_of(two: TwoStage) -> StoredModel:
    """Return the stored form of a `TwoStage`."""
    stored = StoredModel(KIND, {}, {}, {})
    candidate_features = two.candidate_features
    names = two.feature_names_ or ()
    described: dict[str, Any] = {
        "candidates": two.candidates,
        "first": _add(stored, "first", two.first),
        "models": [{"name": name, **_add(stored, f"model{k}", model)} for k, (name, model) in _further_models(two)],
        "reranker": None,
        "extra": candidate_features.extra is not None,
        "training": two.training_,
        "clicks": two.reranker_state.clicks,
    }
    if type(two.reranker) is LambdaMART:
        described["reranker"] = {"kind": "LambdaMART", "settings": two.reranker.settings()}
        stored.arrays.update({f"reranker.{name}": array for name, array in two.reranker.arrays().items()})
    for side in ("item_features", "context_features"):
        features: Features | None = getattr(candidate_features, side)
        described[side] = None
        if features is not None:
            parts = features.to_parts(f"{side}.")
            described[side] = parts.settings
            stored.arrays.update(parts.arrays)
            stored.tables.update(parts.tables)
    stored.settings.update(described)
    pairs = two.reranker_state.pairs
    stored.arrays[_OF_TEXTS if pairs.of_texts else _PAIRS] = pairs.values
    stored.tables["feature_names"] = pl.DataFrame({"name": list(names)}, schema={"name": pl.String})
    return stored


def restored(
    make: Callable[..., TwoStage],
    stored: StoredModel,
    path: str | PathLike[str],
    *,
    reranker: Reranker | None = None,
    extra: Extra | None = None,
    verify: bool = True,
    code: Iterable[type] = (),
) -> TwoStage:
    """Restore a `TwoStage`, made by `make`, from its stored form; raise StorageError if its parts do not fit together.

    `code` has the user's own classes that the parts may be made of.
    """
    if stored.kind != KIND:
        raise StorageError(
            f"{path} holds a {stored.kind!r:.80}, not a TwoStage",
            code="model-unsupported",
            field="path",
            hint="load it with shortlist.load",
        )
    settings = stored.settings
    if settings.keys() != _KEYS:
        raise StorageError(
            f"{path}: the settings are {sorted(settings)!r:.200}; expected {sorted(_KEYS)}", code="model-damaged"
        )
    custom = (("reranker", settings["reranker"] is None, reranker), ("extra", settings["extra"], extra))
    for name, needed, given in custom:
        if needed and given is None:
            raise SettingError(
                f"{path}: {name} is Python code, which is not stored",
                hint=f"pass it again: TwoStage.load(path, {name}=…)",
                field=name,
            )
        if not needed and given is not None:
            raise SettingError(
                f"{path}: it was saved without a custom {name}", hint=f"load it without {name}=", field=name
            )
    if reranker is not None:
        check_reranker(reranker)
    check_extra(extra)
    try:
        return _restored(make, stored, path, reranker, extra, partial(registry.restored, verify=verify, code=code))
    except StorageError as error:
        prefix = "" if str(error).startswith(str(path)) else f"{path}: "
        raise error.prefixed(prefix, code="model-damaged") from None
    except (KeyError, TypeError, ValueError, OverflowError, ShortlistError) as error:
        raise StorageError(f"{path}: its two stages are not usable: {reason(error)}", code="model-damaged") from error


def _restored(
    make: Callable[..., TwoStage],
    stored: StoredModel,
    path: str | PathLike[str],
    reranker: Reranker | None,
    extra: Extra | None,
    restore: Restore,
) -> TwoStage:
    settings = stored.settings
    rest = StoredModel(stored.kind, {}, dict(stored.arrays), dict(stored.tables))  # parts not yet read
    table = rest.tables.pop("feature_names", None)
    if table is None or table.schema != pl.Schema({"name": pl.String}):
        raise StorageError("it has no feature names")
    names = tuple(frame_of(table)["name"].to_list())
    of_texts = _OF_TEXTS in rest.arrays
    pairs = rest.arrays.pop(_OF_TEXTS if of_texts else _PAIRS, None)
    if pairs is None or pairs.dtype != np.uint64 or pairs.ndim != 1:
        raise StorageError("it has no digests of its training pairs")
    if reranker is None:
        reranker = _reranker(settings["reranker"], _pop_prefix(rest.arrays, "reranker."), names)
    sides = {}
    for side in ("item_features", "context_features"):
        if settings[side] is not None:
            arrays, tables = _pop_prefix(rest.arrays, f"{side}."), _pop_prefix(rest.tables, f"{side}.")
            sides[side] = Features.from_parts(settings[side], arrays, tables)
    first = _model(rest, "first", settings["first"], path, restore)
    models = {
        entry["name"]: _model(rest, f"model{k}", entry, path, restore) for k, entry in enumerate(settings["models"])
    }
    if rest.arrays or rest.tables:
        odd = ", ".join(sorted([*rest.arrays, *rest.tables]))
        raise StorageError(f"it has unexpected parts: {odd:.200}")
    two = make(
        first,
        reranker,
        candidates=settings["candidates"],
        models=models,
        item_features=sides.get("item_features"),
        context_features=sides.get("context_features"),
        extra=extra,
    )
    if type(settings["clicks"]) is not bool:
        raise StorageError(f"clicks is {settings['clicks']!r:.80}; expected true or false")
    counts = _counts(settings["training"])
    two.adopt_state(RerankerState(two.reranker, names, counts, PairDigests(pairs, of_texts), settings["clicks"]))
    return two


def _further_models(two: TwoStage) -> enumerate[tuple[str, Recommender]]:
    return enumerate(two.candidate_features.models.items())


def _add(stored: StoredModel, prefix: str, model: Recommender) -> dict[str, Any]:
    """Add a model's arrays and tables under a prefix. Return its other facts, for the settings."""
    part = model.to_stored()
    stored.arrays.update({f"{prefix}.{name}": array for name, array in part.arrays.items()})
    stored.tables.update({f"{prefix}.{name}": table for name, table in part.tables.items()})
    return {"kind": part.kind, "settings": part.settings, "extra": part.extra}


def _model(
    rest: StoredModel, prefix: str, entry: Mapping[str, Any], path: str | PathLike[str], restore: Restore
) -> Recommender:
    arrays, tables = _pop_prefix(rest.arrays, f"{prefix}."), _pop_prefix(rest.tables, f"{prefix}.")
    kind, settings, extra = entry["kind"], entry["settings"], entry["extra"]
    if not (isinstance(kind, str) and isinstance(settings, dict) and isinstance(extra, dict)):
        raise StorageError(f"a stage is {entry!r:.80}; expected the name of a recommender and its settings")
    return restore(StoredModel(kind, settings, arrays, tables, extra), path)


def _reranker(entry: Mapping[str, Any], arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...]) -> LambdaMART:
    if entry["kind"] != "LambdaMART":
        raise StorageError(
            f"its reranker is a {entry['kind']!r:.80}, which this version of Shortlist does not know",
            code="model-unsupported",
        )
    return LambdaMART.restored(entry["settings"], arrays, names)


def _pop_prefix(parts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Remove the parts whose names have this prefix, and return them by their names without it."""
    return {name.removeprefix(prefix): parts.pop(name) for name in [*parts] if name.startswith(prefix)}


def _counts(training: Any) -> dict[str, int]:
    if not isinstance(training, dict) or not all(type(count) is int for count in training.values()):
        raise StorageError(f"training is {training!r:.80}; expected counts", field="training")
    return training
