"""Recommenders whose parts were exchanged and signed anew: what does not fit together is refused, and named."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import shortlist as sl
from storage.bases import fit, fix_names
from storage.box import Box
from storage.harm_contents import with_arrays, with_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def saved(folder: Path, name: str, kind: str = "weights") -> Box:
    fit(name, kind, 1).save(folder / "m")
    fix_names(folder / "m")
    return Box(folder / "m", random.Random(0), [])


def refused(box: Box, match: str, code: str = "model-damaged") -> None:
    with pytest.raises(sl.StorageError, match=match) as caught:
        sl.load(box.path, verify=True)
    assert str(box.path) in str(caught.value)
    assert caught.value.code == code
    assert len(str(caught.value)) < 1000


def _bounds_over_the_edge(arrays: dict[str, Any]) -> None:
    arrays["seen.indptr"][1:3] = 2**63 - 1, -2  # every difference is positive modulo 2**64


def _unsorted(arrays: dict[str, Any]) -> None:
    row = slice(*arrays["seen.indptr"][1:3])
    arrays["seen.indices"][row] = arrays["seen.indices"][row][::-1].copy()


def _twice(arrays: dict[str, Any]) -> None:
    first = int(arrays["seen.indptr"][1])
    arrays["seen.indices"][first + 1] = arrays["seen.indices"][first]


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda arrays: arrays.update({name: value(arrays[name]) if callable(value) else value})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_bounds_over_the_edge, r"row 1 goes from 9223372036854775807 back to -2"),
        (_unsorted, "expected rising columns"),
        (_twice, r"row 1 has column (\d+) after column \1"),
        (_set("seen.indices", lambda a: a + 11), "expected 0 to 10"),
        (_set("seen.indptr", lambda a: a[:-1]), "expected int64"),
        (_set("seen.indptr", lambda a: a.astype(np.int32)), "expected int64"),
        (_set("seen.indices", lambda a: a.astype(np.int64)), "expected int32"),
        (_set("seen.values", lambda a: -a - 1), "a weight is -"),
        (_set("seen.values", lambda a: a[:-1]), "one per column"),
        (lambda arrays: arrays.pop("item_embeddings_"), "lacks the arrays item_embeddings_"),
        (lambda arrays: arrays.update(more=np.zeros(3)), "arrays that IALS does not use: more"),
        (_set("item_embeddings_", lambda a: a[:, :0]), "items × dimensions"),
        (_set("item_embeddings_", lambda a: a * 0 + np.nan), "only finite numbers"),
        (_set("item_embeddings_", lambda a: a * np.float32(1e22)), "too large"),
        (lambda arrays: [arrays[name].fill(2e19) for name in arrays if name.endswith("embeddings_")], "too large"),
        (_set("context_embeddings_", lambda a: a.astype(np.float64)), "expected float32"),
    ],
    ids=range(16),
)
def test_arrays_that_do_not_fit(tmp_path: Path, change: Callable[[dict[str, Any]], None], match: str) -> None:
    box = saved(tmp_path, "IALS")
    with_arrays(box, change)
    refused(box, match)


def test_weights_beyond_float32(tmp_path: Path) -> None:
    box = saved(tmp_path, "EASE")
    with_arrays(box, _set("item_weights_", lambda a: np.full_like(a, 3e38)))
    refused(box, "too large: scores could reach")


@pytest.mark.parametrize(
    ("table", "change", "match"),
    [
        ("items", lambda f: pl.concat([f[:-1], f[:1]]), "ids of items are not distinct: 1 of 11"),
        ("contexts", lambda f: pl.concat([f[:-2], f[:2]]), "ids of contexts are not distinct: 2 of"),
        ("items", lambda f: f.with_columns(more=f["product"]), "ids of items have 2 columns"),
        ("items", lambda f: f[:-1], "one int64 for each item"),
        ("items", lambda f: f[:0], "0 items; a fitted model has at least one of each"),
        ("contexts", lambda f: f[:-1], "expected int64"),
    ],
    ids=range(6),
)
def test_ids_that_do_not_fit(
    tmp_path: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame], match: str
) -> None:
    box = saved(tmp_path, "IALS")
    frame = change(pl.read_ipc((box.path / f"table-{table}.arrow").read_bytes()))
    columns = [[column.name, str(column.dtype)] for column in frame]
    with_table(box, table, lambda _: frame)
    box.change(lambda found: found["tables"][table].update(rows=frame.height, columns=columns))
    refused(box, match)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"dim": "4"}, "dim is '4'"),
        ({"regularization": 10**400}, "regularization is 1000"),
        ({"regularization": 1e300}, "too large"),
        ({"unobserved_weight": 1e300}, "too large"),
        ({"weighting": "w" * 9000}, "9,0.. characters in total|weighting is 'w"),
        ({"s" * 9000: 1}, "IALS has no setting"),
        ({"self": 1}, "self"),
        ({"_fitted": True}, "IALS has no setting"),
    ],
    ids=range(8),
)
def test_settings_that_are_none(tmp_path: Path, settings: dict[str, Any], match: str) -> None:
    box = saved(tmp_path, "IALS")
    box.change(lambda found: found["settings"].update(settings))
    refused(box, match)


def test_tables_and_kinds_that_nobody_knows(tmp_path: Path) -> None:
    box = saved(tmp_path, "Popularity")
    box.change(lambda found: found.update(kind="K" * 9000))
    refused(box, "does not know", "model-unsupported")
    box.change(lambda found: found.update(kind="Popularity"))
    sl.load(box.path)

    def rename(found: dict[str, Any]) -> None:
        found["tables"]["people"] = found["tables"].pop("contexts")

    box.change(rename)
    refused(box, "the id tables items, people; expected contexts and items")
