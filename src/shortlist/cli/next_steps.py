"""Commands and files for the user to go on with: they work as they are printed."""

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
    """How to call this program again: by its name where the shell finds it, else by its path."""
    import shutil
    import sys
    from pathlib import Path

    called = Path(sys.argv[0])
    found = shutil.which("shortlist")
    if called.name != "shortlist" or (found is not None and Path(found).resolve() == called.resolve()):
        return "shortlist"
    return shlex.quote(str(called))


def worth_telling(
    recommender: "type[Recommender]", settings: Mapping[str, Any], searched: Collection[str] = ()
) -> dict[str, Any]:
    """Those of the settings that were searched, or that are not as they are by default."""
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
    """The commands that fit what a search has found: first the model that it begins from, if any."""
    name, place, commands = recommender.__name__.lower(), None, []
    if start is not None:
        place = start_place(out)
        commands.append(fit_command(source, name, worth_telling(recommender, start, searched), place))
    told = worth_telling(recommender, settings, searched)
    return [*commands, fit_command(source, name, told, out, place)]


def start_place(out: str) -> str:
    """Where the model is saved that the one at `out` begins from."""
    return f"{out}-start"


def fit_command(
    source: EventSource, model: str, settings: Mapping[str, Any], out: str, start: str | None = None
) -> list[str]:
    """`shortlist fit …` with these settings, in parts that belong together."""
    options = [("--context", one) for one in source.context]
    named = _named(source)
    options += [(f"--{key.replace('_', '-')}", str(value)) for key, value in named.items()]
    options += [("--model", model), *(("--set", f"{name}={_typed(value)}") for name, value in settings.items())]
    options += [("--start", start)] if start is not None else []
    options.append(("--out", out))
    return [f"{program()} fit {shlex.quote(source.data)}", *(f"{one} {shlex.quote(text)}" for one, text in options)]


def lines(command: list[str]) -> list[str]:
    """A command over several lines of a shell, none of them longer than need be."""
    found = [command[0]]
    for part in command[1:]:
        if len(found[-1]) + len(part) + 3 > _WIDTH:
            found[-1] += " \\"
            found.append(f"  {part}")
        else:
            found[-1] += f" {part}"
    return found


def fit_toml(
    source: EventSource, model: str, settings: Mapping[str, Any], out: str, start: str | None = None
) -> list[str]:
    """The same as a file for `--config`."""
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
    """The options about the data that were given, by their names."""
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
