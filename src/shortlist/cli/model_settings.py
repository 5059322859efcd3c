"""`--model NAME` and `--set NAME=VALUE`: create recommenders from text. No text is executed."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from shortlist._renamed import new_setting
from shortlist.errors import SettingError

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender


@dataclass(frozen=True)
class ConfigFile:
    """Contents of a `--config` file besides plain options: model settings, and lists of ids by option."""

    path: str = ""
    settings: Sequence[str] = ()
    lists: Mapping[str, list[str]] = field(default_factory=dict)


def make_models(names: Sequence[str], settings: Sequence[str], stored: ConfigFile) -> "list[Recommender]":
    """Create the named recommenders with their settings: `dim=64`, or with several models `ials.dim=64`.

    Args:
        names: names of the recommenders.
        settings: settings from the command line.
        stored: settings from a file. The command line wins, and settings of other models are ignored.
    """
    return [model(**values) for model, values in settings_of(names, settings, stored)]


def settings_of(
    names: Sequence[str], settings: Sequence[str], stored: ConfigFile
) -> "list[tuple[type[Recommender], dict[str, Any]]]":
    """Return the classes of the named recommenders with their settings; see `make_models`."""
    from shortlist.recommenders.registry import recommender_class

    classes = [recommender_class(name) for name in names]
    known = {model.__name__.lower(): model for model in classes}
    if len(known) < len(classes):
        raise SettingError(f"--model {', '.join(names)}: each model may be given only once", field="model")
    values: dict[str, dict[str, Any]] = {name: {} for name in known}
    for setting in settings:
        owner, name, text = _parts(setting, list(known))
        name = new_setting(known[owner], name)
        if name in values[owner]:
            raise SettingError(f"--set {setting}: {name} is set twice", field=name)
        values[owner][name] = typed(known[owner], name, text)
    from_file: set[tuple[str, str]] = set()
    for setting in stored.settings:
        try:
            model, dot, _ = setting.partition("=")[0].rpartition(".")
            if dot and recommender_class(model).__name__.lower() not in known:
                continue
            owner, name, text = _parts(setting, list(known))
            name = new_setting(known[owner], name)
            if (owner, name) in from_file:
                raise SettingError(f"--set {setting}: {name} is set twice", field=name)
            from_file.add((owner, name))
            values[owner].setdefault(name, typed(known[owner], name, text))
        except SettingError as error:
            raise error.prefixed(f"{stored.path}: ") from None
    return [(model, values[name]) for name, model in known.items()]


def _parts(setting: str, owners: list[str]) -> tuple[str, str, str]:
    left, equals, text = setting.partition("=")
    if not equals:
        raise SettingError(f"--set {setting}: expected NAME=VALUE, such as dim=64", field="set")
    owner, dot, name = left.strip().rpartition(".")
    if not dot and len(owners) > 1:
        raise SettingError(
            f"--set {setting}: there are several models",
            field="set",
            hint=f"name one, such as {owners[0]}.{left.strip()}={text}",
        )
    owner = owner.lower() if dot else owners[0]
    if owner not in owners:
        raise SettingError(f"--set {setting}: {owner!r} is not one of the models: {', '.join(owners)}", field="set")
    return owner, name, text.strip()


def typed(recommender: "type[Recommender]", name: str, text: str, prefix: str = "--set ") -> Any:
    """Convert the text to the type of the setting. The message about a wrong value starts with `prefix`."""
    names = [field.name for field in fields(recommender)]
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        message = f"{recommender.__name__} has no setting {name!r}{hint} It has: {', '.join(names)}"
        raise SettingError(message, code="unknown-setting", field=name)
    kind = get_type_hints(recommender)[name]
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    expected = []
    for member in kinds:
        try:
            return _read(member, text)
        except ValueError as error:
            expected.append(str(error))
    raise SettingError(f"{prefix}{name}={text}: expected {' or '.join(expected)}", field=name)


def _read(kind: Any, text: str) -> Any:
    """Convert the text to a type. The ValueError says what was expected."""
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"one of {', '.join(map(str, get_args(kind)))}")
        return text
    if kind is NoneType:
        if text.lower() != "none":
            raise ValueError("none")
        return None
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("true or false")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError({int: "an integer", float: "a number"}.get(kind, kind.__name__)) from None
