"""`--config FILE`: options from a TOML file, as if they were typed; what is typed wins.

    threads = 2                 # for every command that has such an option
    context = "user"

    [fit]                       # for one command: its options by their long names, its arguments by theirs
    data = "events.csv"
    item = "product"
    out = "models/shop"

    [fit.set]                   # settings of the model, or of several: [evaluate.set.ials]
    dim = 128

Paths are taken as if typed, so relative ones from the current folder. Values go through the same checks as typed ones.
Nothing is evaluated.
"""

import difflib
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

import typer

from shortlist.cli.failures import UsageError
from shortlist.cli.model_settings import ConfigFile

_MOST_BYTES = 1 << 20
_MOST_BITS = 128
_SETTINGS = "set"
_NOT_IN_FILES = ("config", "help")
_METRICS = "metrics"  # typed with commas between, so a list is as good
_IDS = ("allow", "deny")  # so too, but ids may hold commas: a list of them is handed on as it is
_WORDS: list[tuple[Any, str]] = [
    (bool, "true or false"),
    (str, "text"),
    (int | float, "a number"),
    (datetime, "a time"),
    (date, "a date"),
    (list, "a list"),
    (dict, "a table"),
]


def read_config(ctx: typer.Context, value: str | None) -> str | None:
    """Make what the file says the defaults of the command that runs."""
    if value is None or ctx.resilient_parsing:
        return value
    parameters = {name: _by_key(command) for name, command in ctx.find_root().command.commands.items()}  # type: ignore[attr-defined]
    here, found = str(ctx.info_name), _parsed(value)
    shared = {key: content for key, content in found.items() if key not in parameters}
    tables = {key: content for key, content in found.items() if key in parameters}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _refused(f"{value}: {name!r} is {_kind(table)}; expected a table of that command's options, [{name}]")
        _refuse_strange(table, parameters[name], f"{value}: [{name}] has no key", "its keys are")
    _refuse_strange(
        shared,
        [*parameters, *(key for keys in parameters.values() for key in keys)],
        f"{value}: there is no command and no option",
        "for all commands there are",
    )
    options = {_plain(key) for keys in parameters.values() for key, one in keys.items() if one.opts[0].startswith("-")}
    own = parameters[here]
    values = {
        _plain(key): content
        for key, content in shared.items()
        # MODEL is an argument of some commands and --model an option of others: the key for all is the option
        if _plain(key) in own and (own[_plain(key)].opts[0].startswith("-") or _plain(key) not in options)
    }
    values |= {_plain(key): content for key, content in tables.get(here, {}).items()}
    settings = _settings(values.pop(_SETTINGS, []), value, here)
    lists = {
        key: [_typed(one, f"{value}: {key}") for one in values.pop(key)]
        for key in _IDS
        if isinstance(values.get(key), list)
    }
    ctx.obj.stored = ConfigFile(value, settings, lists)
    ctx.default_map = {own[key].name: _checked(ctx, own[key], content, key, value) for key, content in values.items()}
    return value


def _parsed(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _refused(f"{path} cannot be read: {error.strerror or error}; expected a TOML file") from error
    if len(raw) > _MOST_BYTES:
        raise _refused(f"{path} has more than {_MOST_BYTES:,} bytes; expected a small TOML file of options")
    try:
        found = tomllib.loads(raw.decode("utf-8-sig") + "\n")  # so that an error in the last line has its number too
    except UnicodeDecodeError:
        raise _refused(f"{path} is not UTF-8 text; expected a TOML file") from None
    except RecursionError:
        raise _refused(f"{path} is nested too deeply; expected a small TOML file of options") from None
    except tomllib.TOMLDecodeError as error:
        hint = '; text needs quotes, as in item = "product"' if "Invalid value" in str(error) else ""
        raise _refused(f"{path} is not TOML: {error}{hint}") from None
    except ValueError:  # of Python, which reads no integer of more than some thousand digits
        raise _too_long(path) from None
    if _has_long_integer(found):
        raise _too_long(path)
    return found


def _has_long_integer(content: Any) -> bool:
    """Whether an integer is too long for anything: of thousands of digits, Python would not even print it."""
    if isinstance(content, int):
        return content.bit_length() > _MOST_BITS
    members = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return any(map(_has_long_integer, members))


def _too_long(path: str) -> typer.BadParameter:
    return _refused(f"{path} has an integer of more than {_MOST_BITS} bits; a longer id must be text, in quotes")


def _by_key(command: Any) -> dict[str, Any]:
    """A command's parameters by their keys: the long name of an option, the name of an argument."""
    keyed = {}
    for one in command.params:
        key = _plain(max(one.opts, key=len).lstrip("-"))
        if key not in _NOT_IN_FILES:
            keyed[key] = one
    return keyed


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _refuse_strange(keys: Iterable[str], known: Iterable[str], complaint: str, introduction: str) -> None:
    known = list(dict.fromkeys(known))
    for key in keys:
        if _plain(key) not in known:
            near = difflib.get_close_matches(_plain(key), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; {introduction} {', '.join(known)}"
            raise _refused(f"{complaint} {key!r}{hint}")


def _checked(ctx: typer.Context, parameter: Any, content: Any, key: str, path: str) -> Any:
    """The value as it would have been typed, once it has passed the checks that it would have had to pass then."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(content, bool):
            raise _refused(f"{path}: {key} is {_kind(content)}; expected true or false")
        return content
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        several = content if isinstance(content, list) else [content]
        value: Any = [_typed(one, f"{path}: {key}") for one in several]
    elif key == _METRICS and isinstance(content, list):
        value = ",".join(_typed(one, f"{path}: {key}") for one in content)
    else:
        value = _typed(content, f"{path}: {key}")
    try:
        parameter.process_value(ctx, value)
    except UsageError as error:
        raise _refused(f"{path}: {key} is {content!r:.60}: {error.message}") from None
    return value


def _typed(content: Any, where: str) -> str:
    """A value as text."""
    if isinstance(content, bool) or not isinstance(content, str | int | float | date | time):
        raise _refused(f"{where} is {_kind(content)}; expected text or a number")
    return str(content)


def _settings(content: Any, path: str, command: str) -> list[str]:
    """`--set`, from a list of NAME=VALUE or from tables."""
    if isinstance(content, dict):
        return list(_from_tables(content, f"{path}: [{command}.{_SETTINGS}]"))
    several = content if isinstance(content, list) else [content]
    strange = [one for one in several if not isinstance(one, str)]
    if strange:
        raise _refused(f'{path}: set is {_kind(strange[0])}; expected a table, or a list such as ["dim=64"]')
    return several


def _from_tables(table: Mapping[str, Any], where: str, owner: str = "") -> Iterable[str]:
    for name, content in table.items():
        if isinstance(content, dict) and not owner:
            yield from _from_tables(content, where, f"{name}.")
        elif isinstance(content, bool):
            yield f"{owner}{name}={str(content).lower()}"
        else:
            yield f"{owner}{name}={_typed(content, f'{where} {owner}{name}')}"


def _kind(content: Any) -> str:
    """What a value is, in words."""
    word = next((word for kind, word in _WORDS if isinstance(content, kind)), type(content).__name__)
    return word if isinstance(content, dict | list) else f"{content!r:.60} ({word})"


def _refused(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--config")
