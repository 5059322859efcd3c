"""Checks for settings and weights that have no effect: an error if that must be a mistake, else a warning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from shortlist._wording import Argument, Message
from shortlist.data.interactions import Interactions
from shortlist.errors import SettingError
from shortlist.objectives.weighting import is_stated


def defaults(model: Any) -> dict[str, Any]:
    """Return the defaults of the settings of a dataclass that have one."""
    return {setting.name: setting.default for setting in fields(model) if setting.default is not MISSING}


def refuse_unused(model: Any, unused: Mapping[str, str]) -> None:
    """Refuse settings in `unused` whose values differ from the defaults.

    `unused` maps each name to the end of the sentence "It has no effect …", such as "with biases=False".
    """
    default = defaults(model)
    for name, why in unused.items():
        if getattr(model, name) != default[name]:
            message = Message("{} has no effect {}", Argument(name, repr(getattr(model, name))), why)
            raise SettingError(message, code="no-effect", field=name, hint=f"omit {name}")


def unused_weights(model: Any, interactions: Interactions) -> list[str]:
    """Return warnings if the events have weights that the model ignores, unless the user asked it to."""
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
        Message(
            "{} are ignored: by default every observed pair counts 1. Pass {} or {} to {} to use them, or {} to ignore "
            "them without this warning",
            what,
            Argument("weighting", "'log'"),
            Argument("weighting", "'raw'"),
            type(model).__name__,
            Argument("weighting", "'binary'"),
        )
    ]


def unused_labels(model: Any) -> dict[str, str]:
    """Return `strength_as` as unused if every strength is 1, where weights and labels are the same."""
    if model.weighting != "binary":
        return {}
    binary, log, raw = (Argument("weighting", repr(how)) for how in ("binary", "log", "raw"))
    return {"strength_as": Message("with {}, only with {} or {}", binary, log, raw)}
