"""Published splits, from folders of Parquet files as benchmarks/README.md describes them."""

from __future__ import annotations

import warnings
from pathlib import Path

import polars as pl

import shortlist as sl


def read(path: Path) -> sl.Interactions:
    return sl.Interactions.read(path, context="user", item="item")


def pairs(frame: pl.DataFrame) -> sl.Interactions:
    return sl.Interactions.from_frame(frame, context="user", item="item")


def ncf(folder: Path) -> tuple[sl.Interactions, sl.Interactions, sl.Interactions]:
    """Leave-one-out of He et al. (2017): train, the true pairs, and 99 candidates for each of them."""
    train, truth, negatives = (read(folder / f"{name}.parquet") for name in ("train", "test", "test_negatives"))
    return train.extend(items=[*truth.items, *negatives.items]), truth, negatives  # two items are in the test only


def ncf_validation(folder: Path) -> sl.splits.Split:
    """The last of each user's training events, as the test has the last of all."""
    events = sl.Interactions.read(folder / "train.parquet", context="user", item="item", time="timestamp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sl.ShortlistWarning)  # that it leaks: so does the published test
        return sl.splits.leave_last_out(events)


def gowalla(data: Path, *, validation: bool = False) -> sl.splits.Split:
    """The split of NGCF and LightGCN; for settings, its train split once more, by the published validation subset."""
    folder = data / "gowalla"
    if not validation:
        return sl.splits.given(read(folder / "train.parquet"), read(folder / "test.parquet"))
    train = pl.read_parquet(folder / "train.parquet")
    subset = pl.read_parquet(folder / "valid_subset_of_train.parquet")
    return sl.splits.given(pairs(train.join(subset, on=["user", "item"], how="anti")), pairs(subset))


def strong(folder: Path, part: str = "test") -> sl.splits.Split:
    """Strong generalisation: contexts that are not in train, by their fold-in and held-out items."""
    names = ("train", f"{part}_foldin", f"{part}_heldout")
    train, history, truth = (read(folder / f"{name}.parquet") for name in names)
    return sl.splits.given(train, truth, history=history)
