"""Next commands and config files for the user. They work as printed."""

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from shortlist.cli.events import EventSource

if TYPE_CHECKING:
    from shortlist.recommenders.base import Recommender

_WIDTH = 96


def program() -> str:
    """Return how to call this program: by name if the shell finds it, else by path."""
    import shutil
    import sys
    from pathlib import Path

    called = Path(sys.argv[0])
    on_path = shutil.which("shortlist")
    if called.name != "shortlist" or (on_path is not None and Path(on_path).resolve() == called.resolve()):
        return "shortlist"
    return shlex.quote(str(called))


def relevant_settings(
    recommender: "type[Recommender]", settings: Mapping[str, Any], searched: Collection[str] = ()
) -> dict[str, Any]:
    """Return the settings that were searched or differ from the defaults."""
    defaults = {field.name: field.default for field in fields(recommender)}
    return {name: value for name, value in settings.items() if name in searched or value != defaults[name]}


def fit_commands(
    source: EventSource,
    recommender: "type[Recommender]",
    settings: Mapping[str, Any],
    start: Mapping[str, Any] | None,
    searched: Collection[str],
    out: str,
) -> list[list[str]]:
    """Return the commands that fit the result of a search. A warm start needs its smaller model first."""
    name, start_dir, commands = recommender.__name__.lower(), None, []
    if start is not None:
        start_dir = start_path(out)
        commands.append(fit_command(source, name, relevant_settings(recommender, start, searched), start_dir))
    chosen = relevant_settings(recommender, settings, searched)
    return [*commands, fit_command(source, name, chosen, out, start_dir)]


def start_path(out: str) -> str:
    """Return the directory of the smaller model that the model at `out` starts from."""
    return f"{out}-start"


def fit_command(
    source: EventSource, model: str, settings: Mapping[str, Any], out: str, start: str | None = None
) -> list[str]:
    """Return `shortlist fit …` with these settings, as a list of parts that must not be split."""
    options = [("--context", column) for column in source.context]
    named = _named(source)
    options += [(f"--{key.replace('_', '-')}", str(value)) for key, value in named.items()]
    options += [("--model", model), *(("--set", f"{name}={_typed(value)}") for name, value in settings.items())]
    options += [("--start", start)] if start is not None else []
    options.append(("--out", out))
    return [
        f"{program()} fit {shlex.quote(source.data)}",
        *(f"{option} {shlex.quote(text)}" for option, text in options),
    ]


def lines(command: list[str]) -> list[str]:
    """Return a shell command, wrapped into several lines."""
    wrapped = [command[0]]
    for part in command[1:]:
        if len(wrapped[-1]) + len(part) + 3 > _WIDTH:
            wrapped[-1] += " \\"
            wrapped.append(f"  {part}")
        else:
            wrapped[-1] += f" {part}"
    return wrapped


def fit_toml(
    source: EventSource, model: str, settings: Mapping[str, Any], out: str, start: str | None = None
) -> list[str]:
    """Return the lines of an equivalent `--config` file."""
    table: dict[str, Any] = {"data": source.data}
    if source.context:
        table["context"] = source.context if len(source.context) > 1 else source.context[0]
    table |= {**_named(source), "model": model, **({} if start is None else {"start": start}), "out": out}
    return [
        "[fit]",
        *(f"{key} = {_toml(value)}" for key, value in table.items()),
        "",
        "[fit.set]",
        *(f"{name} = {_toml(value)}" for name, value in settings.items()),
    ]


def _named(source: EventSource) -> dict[str, Any]:
    """Return the given options about the data, by name."""
    named = {
        "item": source.item,
        "weight": source.weight,
        "time": source.time,
        "aggregate": source.aggregate,
        "on_bad": None if source.on_bad == "raise" else source.on_bad,
        "format": source.format,
        "separator": source.separator,
        "layout": source.layout,
        "min_rating": source.min_rating,
    }
    return {key: value for key, value in named.items() if value is not None}


def _typed(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str) or value is None:
        return json.dumps(_typed(value) if value is None else str(value), ensure_ascii=False)
    return _typed(value)
