"""`--config FILE`: read options from a TOML file. Options on the command line win.

    threads = 2                 # for every command with this option
    context = "user"

    [fit]                       # for one command: long option names and argument names
    data = "events.csv"
    item = "product"
    out = "models/shop"

    [fit.set]                   # model settings; with several models: [evaluate.set.ials]
    dim = 128

Relative paths start from the current folder. Values pass the same checks as on the command line. Nothing in the file is
executed.
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
_METRICS = "metrics"  # comma-separated on the command line, so a list is accepted too
_IDS = ("allow", "deny")  # a list is accepted too, and kept as a list, because ids may contain commas
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
    """Use the values of the file as defaults of the current command."""
    if value is None or ctx.resilient_parsing:
        return value
    parameters = {name: _by_key(subcommand) for name, subcommand in ctx.find_root().command.commands.items()}  # type: ignore[attr-defined]
    command, content = str(ctx.info_name), _parsed(value)
    shared = {key: entry for key, entry in content.items() if key not in parameters}
    tables = {key: entry for key, entry in content.items() if key in parameters}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise _refused(
                f"{value}: {name!r} is {_kind(table)}; expected a table [{name}] of options for that command"
            )
        _refuse_unknown(table, parameters[name], f"{value}: [{name}] has no key", "its keys are")
    _refuse_unknown(
        shared,
        [*parameters, *(key for keys in parameters.values() for key in keys)],
        f"{value}: unknown command or option",
        "the known ones are",
    )
    options = {_plain(key) for keys in parameters.values() for key, param in keys.items() if _is_option(param)}
    accepted = parameters[command]
    values = {
        _plain(key): entry
        for key, entry in shared.items()
        # MODEL is an argument of some commands, --model an option of others. A shared key means the option.
        if _plain(key) in accepted and (_is_option(accepted[_plain(key)]) or _plain(key) not in options)
    }
    values |= {_plain(key): entry for key, entry in tables.get(command, {}).items()}
    settings = _settings(values.pop(_SETTINGS, []), value, command)
    lists = {
        key: [_typed(entry, f"{value}: {key}") for entry in values.pop(key)]
        for key in _IDS
        if isinstance(values.get(key), list)
    }
    ctx.obj.stored = ConfigFile(value, settings, lists)
    ctx.default_map = {
        accepted[key].name: _checked(ctx, accepted[key], entry, key, value) for key, entry in values.items()
    }
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
        content = tomllib.loads(raw.decode("utf-8-sig") + "\n")  # with \n, errors in the last line have a line number
    except UnicodeDecodeError:
        raise _refused(f"{path} is not UTF-8 text; expected a TOML file") from None
    except RecursionError:
        raise _refused(f"{path} is nested too deeply; expected a small TOML file of options") from None
    except tomllib.TOMLDecodeError as error:
        hint = '; put text in quotes, such as item = "product"' if "Invalid value" in str(error) else ""
        raise _refused(f"{path} is not TOML: {error}{hint}") from None
    except ValueError:  # Python refuses integers of thousands of digits
        raise _too_long(path) from None
    if _has_long_integer(content):
        raise _too_long(path)
    return content


def _has_long_integer(content: Any) -> bool:
    """Return whether any integer is too long. Python refuses to print integers of thousands of digits."""
    if isinstance(content, int):
        return content.bit_length() > _MOST_BITS
    members = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return any(map(_has_long_integer, members))


def _too_long(path: str) -> typer.BadParameter:
    return _refused(f"{path} has an integer of more than {_MOST_BITS} bits; put longer ids in quotes")


def _by_key(command: Any) -> dict[str, Any]:
    """Return a command's parameters by key: the long name of an option, or the name of an argument."""
    keyed = {}
    for param in command.params:
        key = _plain(max(param.opts, key=len).lstrip("-"))
        if key not in _NOT_IN_FILES:
            keyed[key] = param
    return keyed


def _is_option(param: Any) -> bool:
    return bool(param.opts[0].startswith("-"))


def _plain(key: str) -> str:
    return key.replace("-", "_")


def _refuse_unknown(keys: Iterable[str], known: Iterable[str], complaint: str, introduction: str) -> None:
    known = list(dict.fromkeys(known))
    for key in keys:
        if _plain(key) not in known:
            near = difflib.get_close_matches(_plain(key), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; {introduction} {', '.join(known)}"
            raise _refused(f"{complaint} {key!r}{hint}")


def _checked(ctx: typer.Context, parameter: Any, content: Any, key: str, path: str) -> Any:
    """Return the value as it would be typed, after the checks of the command line."""
    if getattr(parameter, "is_flag", False):
        if not isinstance(content, bool):
            raise _refused(f"{path}: {key} is {_kind(content)}; expected true or false")
        return content
    if getattr(parameter, "multiple", False) or parameter.nargs == -1:
        entries = content if isinstance(content, list) else [content]
        value: Any = [_typed(entry, f"{path}: {key}") for entry in entries]
    elif key == _METRICS and isinstance(content, list):
        value = ",".join(_typed(entry, f"{path}: {key}") for entry in content)
    else:
        value = _typed(content, f"{path}: {key}")
    try:
        parameter.process_value(ctx, value)
    except UsageError as error:
        raise _refused(f"{path}: {key} is {content!r:.60}: {error.message}") from None
    return value


def _typed(content: Any, where: str) -> str:
    """Return a value as text."""
    if isinstance(content, bool) or not isinstance(content, str | int | float | date | time):
        raise _refused(f"{where} is {_kind(content)}; expected text or a number")
    return str(content)


def _settings(content: Any, path: str, command: str) -> list[str]:
    """Return the values for `--set`, from a list of NAME=VALUE or from tables."""
    if isinstance(content, dict):
        return list(_from_tables(content, f"{path}: [{command}.{_SETTINGS}]"))
    entries = content if isinstance(content, list) else [content]
    invalid = [entry for entry in entries if not isinstance(entry, str)]
    if invalid:
        raise _refused(f'{path}: set is {_kind(invalid[0])}; expected a table, or a list such as ["dim=64"]')
    return entries


def _from_tables(table: Mapping[str, Any], where: str, owner: str = "") -> Iterable[str]:
    for name, content in table.items():
        if isinstance(content, dict) and not owner:
            yield from _from_tables(content, where, f"{name}.")
        elif isinstance(content, bool):
            yield f"{owner}{name}={str(content).lower()}"
        else:
            yield f"{owner}{name}={_typed(content, f'{where} {owner}{name}')}"


def _kind(content: Any) -> str:
    """Describe a value and its type."""
    word = next((word for kind, word in _WORDS if isinstance(content, kind)), type(content).__name__)
    return word if isinstance(content, dict | list) else f"{content!r:.60} ({word})"


def _refused(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--config")
