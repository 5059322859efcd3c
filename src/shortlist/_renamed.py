"""Old names of public settings, methods and classes. They work for one more version, with a warning.

Saved models, checkpoints and studies with old names load without a warning, because users cannot change them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

from shortlist.errors import SettingError, ShortlistWarning

# Settings, by class; subclasses inherit them.
SETTINGS: dict[str, dict[str, str]] = {
    "SGDFactorization": {"horizon": "schedule_epochs"},
    "FactorizationMachine": {"within": "same_side_pairs"},
    "HNSWIndex": {"links": "M", "effort": "ef_construction", "breadth": "ef_search"},
}
# Methods and read-only attributes, by class.
METHODS: dict[str, dict[str, str]] = {"SGDFactorization": {"composition": "recipe"}, "Evaluation": {"figure": "text"}}
# Names in modules that users import from.
NAMES: dict[str, dict[str, str]] = {
    "shortlist": {"Written": "BatchResult", "Warmed": "WarmUpResult"},
    "metrics": {"untrained": "cold_share"},
    "sampling": {"Everything": "AllItems", "Negatives": "BoundSampler", "Tables": "SamplerTables"},
    "tuning": {
        "Contest": "TunedComparison",
        "Grows": "Increasing",
        "Whole": "Integer",
        "contest": "compare_tuned",
    },
}
# Parts in the text of a setting, such as sampler="Everything()".
PARTS: dict[str, str] = {"Everything": "AllItems"}
METRICS: dict[str, str] = {"untrained": "cold_share"}


def new_setting(owner: type, name: str) -> str:
    """Return the current name of a setting; warn if the name is old."""
    new = _table(SETTINGS, owner).get(name)
    if new is None:
        return name
    _warn(f"the setting {name} of {owner.__name__}", new)
    return new


def new_settings(owner: type, settings: Mapping[str, Any], *, warn: bool = True) -> dict[str, Any]:
    """Return settings under their current names.

    Args:
        owner: the class they are for.
        settings: by name; both names of one setting are refused.
        warn: whether old names warn; not for settings that come from a saved model.
    """
    table = _table(SETTINGS, owner)
    renamed: dict[str, Any] = {}
    for name, value in settings.items():
        new = table.get(name, name)
        if new != name and new in settings:
            raise SettingError(
                f"{name} and {new} are the old and the new name of one setting", field=name, hint=f"pass {new} alone"
            )
        if new != name and warn:
            _warn(f"the setting {name} of {owner.__name__}", new)
        renamed[new] = _with_new_parts(value, warn=warn) if isinstance(value, str) else value
    return renamed


def new_metric(name: str) -> str:
    """Return the current name of a metric; warn if the name is old."""
    new = METRICS.get(name)
    if new is None:
        return name
    _warn(f"the metric {name}", new)
    return new


def name_in(module: str, name: str) -> str:
    """Return the current name of a name that a module no longer has, with a warning; else raise AttributeError."""
    new = NAMES.get(module.removeprefix("shortlist."), {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    _warn(f"{module}.{name}", f"{module}.{new}")
    return new


def attribute_of(owner: type, name: str) -> str:
    """Return the current name of an old setting or method of an object, with a warning; else raise AttributeError."""
    new = (_table(SETTINGS, owner) | _table(METHODS, owner)).get(name)
    if new is None:
        raise AttributeError(f"{owner.__name__!r} object has no attribute {name!r}")
    _warn(f"{owner.__name__}.{name}", new)
    return new


def _table(tables: Mapping[str, dict[str, str]], owner: type) -> dict[str, str]:
    merged: dict[str, str] = {}
    for base in owner.__mro__:
        merged |= tables.get(base.__name__, {})
    return merged


def _with_new_parts(text: str, *, warn: bool) -> str:
    for old, new in PARTS.items():
        changed = re.sub(rf"^\s*{old}\b(?=\s*(\(|$))", new, text, flags=re.IGNORECASE)
        if changed != text and warn:
            _warn(old, new)
        text = changed
    return text


def _warn(old: str, new: str) -> None:
    message = f"{old} is now called {new}; the old name will stop working in the next version"
    warnings.warn(message, ShortlistWarning, stacklevel=4)
