"""Settings and weights that change nothing: refused where that is sure to be a mistake, else warned about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from shortlist.data.interactions import Interactions
from shortlist.errors import SettingError
from shortlist.objectives.weighting import is_stated


def defaults(model: Any) -> dict[str, Any]:
    """The settings of a dataclass that have a default, and what it is."""
    return {one.name: one.default for one in fields(model) if one.default is not MISSING}


def refuse_unused(model: Any, unused: Mapping[str, str]) -> None:
    """Refuse settings that differ from their defaults and change nothing; `unused` says why, by name."""
    usual = defaults(model)
    for name, why in unused.items():
        if getattr(model, name) != usual[name]:
            raise SettingError(f"{name} is {getattr(model, name)!r}, which changes nothing: {why}; leave {name} out")


def unused_weights(model: Any, interactions: Interactions) -> list[str]:
    """What to warn of where events have weights and the model ignores them, unless the user said that it should."""
    weighting = getattr(model, "weighting", None)
    if weighting != "binary" or is_stated(weighting) or interactions.columns.published:
        return []
    weights = interactions.weights
    if weights is not None and len(weights) and weights.min() < weights.max():
        what = f"the weights of column {interactions.columns.weight!r}"
    elif interactions.aggregate == "count":
        what = "the counts of repeated pairs (aggregate='count')"
    else:
        return []
    return [
        f"{what} are ignored: by default every observed pair counts 1. Pass weighting='log' or weighting='raw' to "
        f"{type(model).__name__} to use them, or weighting='binary' to keep it so"
    ]


def unused_labels(model: Any) -> dict[str, str]:
    """`strength_as` where every strength is 1: as a weight and as a label it is the same."""
    if model.weighting != "binary":
        return {}
    return {"strength_as": "with weighting='binary' every strength is 1; set weighting='log' or 'raw' too"}
