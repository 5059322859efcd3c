"""Small models to save, and the question whether two are the same."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist.data.mapped_ids import frame_of
from shortlist.storage import StoredModel

if TYPE_CHECKING:
    from collections.abc import Callable


def child_environment() -> dict[str, str]:
    """For a child process that imports this folder's modules."""
    paths = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def sample(version: int) -> StoredModel:
    """A model of which every file differs from those of another version."""
    rng = np.random.default_rng(version)
    return StoredModel(
        kind="Sample",
        settings={"version": version, "rate": 0.1 + version, "name": "é", "layers": [1, None, {"a": True}]},
        arrays={
            "flags": np.array([True, False, version % 2 == 0]),
            "items": rng.normal(size=(7, 3)).astype(np.float32),
            "bias": rng.normal(size=5),
        },
        tables={
            "items": pl.DataFrame({"id": [f"item {i} of {version} ☃" for i in range(7)]}),
            "contexts": pl.DataFrame({"user": [1, 2, version], "hour": ["a", "", "b"]}),
        },
        extra={"epochs": version},
    )


def same(a: StoredModel, b: StoredModel) -> bool:
    return (
        (a.kind, a.settings, a.extra) == (b.kind, b.settings, b.extra)
        and list(a.arrays) == list(b.arrays)
        and all(_same_array(a.arrays[name], b.arrays[name]) for name in a.arrays)
        and list(a.tables) == list(b.tables)
        and all(a.tables[name].schema == b.tables[name].schema for name in a.tables)
        and all(frame_of(a.tables[name]).equals(frame_of(b.tables[name])) for name in a.tables)
    )


def _same_array(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def clean(target: Path) -> bool:
    """Whether `target` has the files its manifest names, nothing else, and no unfinished sibling."""
    manifest = json.loads((target / "manifest.json").read_text())
    return set(os.listdir(target)) == {"manifest.json", *manifest["files"]} and not leftovers(target)


def leftovers(target: Path) -> list[str]:
    return [name for name in os.listdir(target.parent) if name.startswith(".shortlist-")]


def forge(target: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest and sign it anew, as someone would who means harm."""
    found = json.loads((target / "manifest.json").read_text())
    change(found)
    found.pop("sha256", None)
    spelling = json.dumps(found, sort_keys=True, separators=(",", ":"))
    found["sha256"] = hashlib.sha256(spelling.encode()).hexdigest()
    (target / "manifest.json").write_text(json.dumps(found))


def replace_file(target: Path, name: str, content: bytes) -> None:
    """Change a file and sign it anew."""
    (target / name).write_bytes(content)
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(target, lambda found: found["files"].update({name: entry}))


def arrays_name(target: Path) -> str:
    return str(json.loads((target / "manifest.json").read_text())["arrays"]["file"])


def table_name(target: Path, table: str) -> str:
    return str(json.loads((target / "manifest.json").read_text())["tables"][table]["file"])
