"""Fitted models of every registered recommender, saved so that their bytes are the same in every run."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import shortlist as sl
from shortlist.data import vocabulary
from shortlist.recommenders.registry import REGISTRY, recommender_class
from storage.samples import forge

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"dim": 4, "epochs": 2}  # for those who have such settings
DATA = ("text", "integers", "tuples", "weights")


def events(kind: str, seed: int) -> sl.Interactions:
    """14 contexts, 11 items; some contexts have had one item only, and one has had nothing."""
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((14, 11)) < 0.3)
    columns: dict[str, Any] = {"user": [f"u{u} é" for u in users], "product": [f"item-{i}" for i in items]}
    if kind == "integers":
        columns = {"user": users * 1000 - 5, "product": items.astype(np.uint16)}
    if kind == "tuples":
        columns = {"user": [f"u{u // 2}" for u in users], "day": users % 2, "product": items * 10**15}
    context = ["user", "day"] if kind == "tuples" else "user"
    if kind == "weights":
        columns["times"] = rng.integers(0, 9, len(users))
        return sl.Interactions.from_frame(columns, context=context, item="product", weight="times", aggregate="sum")
    return sl.Interactions.from_frame(columns, context=context, item="product")


def fit(name: str, kind: str, seed: int) -> Any:
    """A small model; with weights in the data they count, where the recommender can use them."""
    known = {one.name for one in fields(recommender_class(name))}
    settings: dict[str, Any] = {key: value for key, value in SMALL.items() if key in known}
    if kind == "weights" and "weighting" in known:
        settings["weighting"] = "raw" if seed % 2 else "log"
    return recommender_class(name)(**settings).fit(events(kind, seed), progress=False, threads=1)


def make_bases(folder: Path) -> list[Path]:
    """Two models of each recommender and kind of data."""
    made = []
    for name in sorted(REGISTRY):
        for kind in DATA:
            for seed in (1, 2):
                path = folder / f"{name}-{kind}-{seed}"
                with pytest.MonkeyPatch.context() as patch:
                    if seed == 2:  # with an index of its ids, as large models have
                        patch.setattr(vocabulary, "_SMALL", 2)
                    fit(name, kind, seed).save(path)
                fix_names(path)
                made.append(path)
    return made


def fix_names(path: Path) -> None:
    """Take out of the directory what differs from save to save: the ticket in file names, and the time."""
    found = json.loads((path / "manifest.json").read_text())
    plain = {found["arrays"]["file"]: "arrays.safetensors"}
    plain.update({entry["file"]: f"table-{name}.arrow" for name, entry in found["tables"].items()})
    for old, new in plain.items():
        (path / old).rename(path / new)

    def change(found: dict[str, Any]) -> None:
        found["created"] = "2024-01-01T00:00:00+00:00"
        found["arrays"]["file"] = plain[found["arrays"]["file"]]
        for entry in found["tables"].values():
            entry["file"] = plain[entry["file"]]
        found["files"] = {plain[name]: entry for name, entry in found["files"].items()}

    forge(path, change)
