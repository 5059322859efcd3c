"""The `--json` documents of all commands, and how two of them are compared.

Masked are times, memory, paths and versions, which differ from run to run, and texts for people: messages, commands to
copy, titles. Everything else must be as it was, numbers within a tolerance.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from golden.subjects import HERE
from shortlist.cli import app

EVENTS = ["{events}", "--context", "user", "--item", "product", "--time", "when"]
DROP, KEEP = ["--repeats", "drop"], ["--repeats", "keep"]
TINY = ["--set", "dim=4", "--set", "epochs=2", "--threads", "1"]

# In this order: later commands use the models of earlier ones.
COMMANDS: dict[str, list[str]] = {
    "fit": ["fit", *EVENTS, *TINY, "--out", "{folder}/ials"],
    "fit, tuples": ["fit", *EVENTS, "--context", "day", "--model", "parafac", *TINY, "--out", "{folder}/days"],
    "fit, validation": [
        "fit", *EVENTS, "--model", "bpr", *TINY, "--validation", "0.2", "--metric", "recall@10",
        "--out", "{folder}/bpr",
    ],
    "fit, features": [
        "fit", *EVENTS, "--model", "featureials", *TINY, "--item-features", "{items}", "--out", "{folder}/features",
    ],
    "fit, wrong setting": ["fit", *EVENTS, "--set", "dimm=3", "--out", "{folder}/none"],
    "evaluate": [
        "evaluate", *EVENTS, *DROP, "--model", "ease", "--model", "ials", "--set", "ials.dim=4",
        "--set", "ials.epochs=2", "--threads", "1",
        "--metrics", "recall@5,ndcg@10,hr@5,mrr,map@10,precision@5,auc,coverage@5,gini@5,popularity@5,novelty@5,"
        "distance@5,cold_share@5",
    ],
    "evaluate, last": ["evaluate", *EVENTS, *DROP, "--split", "last", "--model", "popularity"],
    "evaluate, contexts": ["evaluate", *EVENTS, "--split", "contexts", "--test", "8", "--model", "itemknn"],
    "tune": [
        "tune", *EVENTS, *KEEP, "--trials", "3", "--space", "dim=2,4", "--set", "epochs=2", "--threads", "1",
        "--out", "{folder}/tuned",
    ],
    "compare": [
        "compare", *EVENTS, *KEEP, "--trials", "2", "--model", "ease", "--model", "popularity",
        "--threads", "1",
    ],
    "recommend": ["recommend", "{folder}/ials", "u01", "u07", "-n", "4"],
    "recommend, history": ["recommend", "{folder}/ials", "--history", "p01", "--history", "p07", "-n", "4"],
    "recommend, unknown": ["recommend", "{folder}/ials", "nobody"],
    "similar": ["similar", "{folder}/ials", "p03", "-n", "5"],
    "batch": ["batch", "{folder}/ials", "--out", "{folder}/lists.parquet", "-n", "3"],
    "inspect, model": ["inspect", "{folder}/ials"],
    "convert": ["convert", "{folder}/ials", "{folder}/converted"],
    "inspect, events": ["inspect", *EVENTS],
    "datasets": ["datasets"],
    "warmup": ["warmup", "--model", "popularity"],
    "doctor": ["doctor"],
    "demo": ["demo", "--out", "{folder}/demo", "--threads", "1"],
}  # fmt: skip

MASKED_KEYS = {
    "bytes", "cache", "command", "commands", "cpu_seconds", "created", "date", "file", "frontier", "help", "hint",
    "kernels", "memory", "message", "note", "notes", "out", "path", "sha256", "shortlist", "shortlist_version", "title",
    "toml",
}  # fmt: skip
MACHINE = {"doctor"}  # its values are those of the machine: only keys are compared


def run(command: list[str], folder: Path) -> dict[str, Any]:
    """Return the exit code and the document of a command."""
    places = {
        "{events}": str(HERE / "events.csv"),
        "{items}": str(HERE / "item_features.csv"),
        "{folder}": str(folder),
    }
    for name, place in places.items():
        command = [argument.replace(name, place) for argument in command]
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, [*command, "--json", "--quiet"])
    text = done.stdout if done.exit_code == 0 else done.stderr
    return {"exit_code": done.exit_code, "document": json.loads(text)}


def masked(value: Any, *, values: bool = True) -> Any:
    """Return the document without what may differ; keys that are texts for people give way to their values in order."""
    if isinstance(value, dict):
        if any(" " in key for key in value):
            return sorted(value.values())
        return {
            key: "masked" if _is_masked(key, inner) else masked(inner, values=values) for key, inner in value.items()
        }
    if isinstance(value, list):
        items = [masked(inner, values=values) for inner in value]
        return items if values else items[:1]
    if not values:
        return "value"
    if isinstance(value, str) and (" " in value or "/" in value or value.endswith((".arrow", ".safetensors"))):
        return "text"
    return value


def _is_masked(key: str, value: Any) -> bool:
    return (key in MASKED_KEYS or key.endswith("seconds")) and not isinstance(value, dict)


def differences(old: Any, new: Any, relative: float, absolute: float, place: str = "") -> Iterator[str]:
    """Yield where two masked documents differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                yield f"{place}.{key} is only in the {'new' if key in new else 'old'} document"
            else:
                yield from differences(old[key], new[key], relative, absolute, f"{place}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (before, after) in enumerate(zip(old, new)):
            yield from differences(before, after, relative, absolute, f"{place}[{k}]")
    elif isinstance(old, float) and isinstance(new, int | float) and not isinstance(new, bool):
        if abs(old - new) > max(absolute, relative * max(abs(old), abs(new))):
            yield f"{place} was {old} and is {new}"
    elif type(old) is not type(new) or old != new:
        yield f"{place} was {old!r:.200} and is {new!r:.200}"
