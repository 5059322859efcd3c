"""Two stages on disk: the parts of each model under a prefix, in one directory of the storage's format."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.features.table import Features
from shortlist.errors import SettingError, ShortlistError, StorageError
from shortlist.recommenders import registry
from shortlist.recommenders.base import Recommender
from shortlist.reranking.base import Reranker, check_reranker
from shortlist.reranking.candidate_features import Extra, check_extra
from shortlist.reranking.lambdamart import LambdaMART
from shortlist.reranking.reranker_state import RerankerState
from shortlist.reranking.two_stage import TwoStage
from shortlist.storage import StoredModel
from shortlist.storage.wrap_errors import reason

KIND = "TwoStage"
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
    """Both stages taken apart."""
    stored = StoredModel(KIND, {}, {}, {})
    candidate_features = two.candidate_features
    names = two.feature_names_ or ()
    described: dict[str, Any] = {
        "candidates": two.candidates,
        "first": _add(stored, "first", two.first),
        "models": [{"name": name, **_add(stored, f"model{k}", model)} for k, (name, model) in _numbered(two)],
        "reranker": None,
        "extra": candidate_features.extra is not None,
        "training": two.training_,
        "clicks": two._reranker_state.clicks,
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
    stored.arrays["learnt"] = two._reranker_state.pairs
    stored.tables["feature_names"] = pl.DataFrame({"name": list(names)}, schema={"name": pl.String})
    return stored


def restored(
    stored: StoredModel,
    path: str | PathLike[str],
    *,
    reranker: Reranker | None = None,
    extra: Extra | None = None,
) -> TwoStage:
    """Both stages from what was taken apart; StorageError where the parts do not fit together."""
    if stored.kind != KIND:
        raise StorageError(f"{path} holds a {stored.kind!r:.80}, not two stages; load it with shortlist.load")
    said = stored.settings
    if said.keys() != _KEYS:
        raise StorageError(f"{path}: its settings are {sorted(said)!r:.200}; expected {sorted(_KEYS)}")
    for name, ours, given in (("reranker", said["reranker"] is None, reranker), ("extra", said["extra"], extra)):
        if ours and given is None:
            raise SettingError(f"{path}: its {name} is code, which is not stored; TwoStage.load(path, {name}=…)")
        if not ours and given is not None:
            raise SettingError(f"{path}: it was saved without a {name} of one's own; load it without {name}=")
    if reranker is not None:
        check_reranker(reranker)
    check_extra(extra)
    try:
        return _put_together(stored, path, reranker, extra)
    except StorageError as error:
        text = str(error)
        raise StorageError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    except (KeyError, TypeError, ValueError, OverflowError, ShortlistError) as error:
        raise StorageError(f"{path}: its two stages are not usable: {reason(error)}") from error


def _put_together(
    stored: StoredModel, path: str | PathLike[str], reranker: Reranker | None, extra: Extra | None
) -> TwoStage:
    said = stored.settings
    left = StoredModel(stored.kind, {}, dict(stored.arrays), dict(stored.tables))
    frame = left.tables.pop("feature_names", None)
    if frame is None or frame.columns != ["name"] or frame.dtypes != [pl.String]:
        raise StorageError("it lacks the names of its features")
    names = tuple(frame["name"].to_list())
    learnt = left.arrays.pop("learnt", None)
    if learnt is None or learnt.dtype != np.uint64 or learnt.ndim != 1:
        raise StorageError("it lacks the digests of what it learnt from")
    if reranker is None:
        reranker = _reranker(said["reranker"], _taken(left.arrays, "reranker."), names)
    sides = {}
    for side in ("item_features", "context_features"):
        if said[side] is not None:
            arrays, tables = _taken(left.arrays, f"{side}."), _taken(left.tables, f"{side}.")
            sides[side] = Features.from_parts(said[side], arrays, tables)
    first = _model(left, "first", said["first"], path)
    models = {one["name"]: _model(left, f"model{k}", one, path) for k, one in enumerate(said["models"])}
    if left.arrays or left.tables:
        odd = ", ".join(sorted([*left.arrays, *left.tables]))
        raise StorageError(f"it has parts that belong to neither stage: {odd:.200}")
    two = TwoStage(
        first,
        reranker,
        candidates=said["candidates"],
        models=models,
        item_features=sides.get("item_features"),
        context_features=sides.get("context_features"),
        extra=extra,
    )
    if type(said["clicks"]) is not bool:
        raise StorageError(f"whether it learnt from clicks is {said['clicks']!r:.80}; expected true or false")
    two._take(RerankerState(two.reranker, names, _counts(said["training"]), learnt.copy(), said["clicks"]))
    return two


def _numbered(two: TwoStage) -> enumerate[tuple[str, Recommender]]:
    return enumerate(two.candidate_features.models.items())


def _add(stored: StoredModel, prefix: str, model: Recommender) -> dict[str, Any]:
    """Put a model's arrays and tables under a prefix; what remains to be said of it."""
    own = model._stored()
    stored.arrays.update({f"{prefix}.{name}": array for name, array in own.arrays.items()})
    stored.tables.update({f"{prefix}.{name}": table for name, table in own.tables.items()})
    return {"kind": own.kind, "settings": own.settings, "extra": own.extra}


def _model(left: StoredModel, prefix: str, said: Mapping[str, Any], path: str | PathLike[str]) -> Recommender:
    arrays, tables = _taken(left.arrays, f"{prefix}."), _taken(left.tables, f"{prefix}.")
    kind, settings, extra = said["kind"], said["settings"], said["extra"]
    if not (isinstance(kind, str) and isinstance(settings, dict) and isinstance(extra, dict)):
        raise StorageError(f"a stage is {said!r:.80}; expected the name of a recommender, and its settings")
    return registry.restored(StoredModel(kind, settings, arrays, tables, extra), path)


def _reranker(said: Mapping[str, Any], arrays: dict[str, npt.NDArray[Any]], names: tuple[str, ...]) -> LambdaMART:
    if said["kind"] != "LambdaMART":
        raise StorageError(f"its reranker is a {said['kind']!r:.80}, which this version of Shortlist does not know")
    return LambdaMART.restored(said["settings"], arrays, names)


def _taken(parts: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Those with this prefix, without it; they are taken out."""
    return {name.removeprefix(prefix): parts.pop(name) for name in [*parts] if name.startswith(prefix)}


def _counts(found: Any) -> dict[str, int]:
    if not isinstance(found, dict) or not all(type(count) is int for count in found.values()):
        raise StorageError(f"what it learnt from is {found!r:.80}; expected counts")
    return found
