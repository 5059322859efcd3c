"""Which pairs of a data set are held out, and what is left to learn from?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

MOST_ASKED = 5000
Part: TypeAlias = dict[str, np.ndarray]


def events_of(folder: Path) -> Any:
    """All events of a data set, whatever its published parts are."""
    import polars as pl

    names = ("interactions", "ratings", "sequences", "train", "test", "test_foldin", "test_heldout")
    names += ("valid_foldin", "valid_heldout")
    frames = [pl.read_parquet(folder / f"{name}.parquet") for name in names if (folder / f"{name}.parquet").exists()]
    time_of = next((name for name in ("timestamp", "position") if name in frames[0].columns), None)
    columns = ["user", "item", *([time_of] if time_of else [])]
    return pl.concat([frame.select(columns) for frame in frames]), time_of


def prepare(data: Path, out: Path) -> None:
    """Every data set as pairs sorted by context, and for each variant which pairs train and which are asked for."""
    import polars as pl

    arrays: dict[str, np.ndarray] = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        events, time_of = events_of(folder)
        codes = [events[name].rank("dense").to_numpy().astype(np.int64) - 1 for name in ("user", "item")]
        when = events[time_of].to_numpy() if time_of else np.zeros(len(events), np.int64)
        whole = pl.DataFrame({"c": codes[0], "i": codes[1], "t": when})
        pairs = whole.group_by("c", "i").agg(pl.col("t").min()).sort("c", "i")
        contexts, items, times = (pairs[name].to_numpy() for name in "cit")
        held = {"random": np.random.default_rng(0).random(len(pairs)) < 0.2}
        if time_of == "timestamp":
            held["time"] = times >= np.quantile(when, 0.9)
        if folder.name == "ml-1m-sasrec" or time_of == "position":
            last = pairs.with_columns(last=(pl.col("t").rank("ordinal").bind("c") == pl.len().bind("c")))
            held["last"] = last["last"].to_numpy()
        name = folder.name
        arrays[f"{name} lengths"] = np.bincount(contexts).astype(np.int32)
        arrays[f"{name} items"] = items.astype(np.uint16 if items.max() < 1 << 16 else np.int32)
        for how, mask in held.items():
            arrays[f"{name} {how}"] = np.packbits(mask)
        print(name, len(pairs), list(held), flush=True)
    np.savez_compressed(out, **arrays)


def names_of(loaded: Any) -> list[str]:
    """Of the variants: data set and kind of split."""
    return [name for name in loaded.files if name.rpartition(" ")[2] in ("random", "time", "last")]


def variant(loaded: Any, name: str, most: int | None = None) -> Part:
    """Train, and what is asked for, by codes of the contexts and items of train.

    `most`: of how many pairs at most, of contexts drawn at random.
    """
    source = name.rpartition(" ")[0]
    lengths, items = loaded[f"{source} lengths"], loaded[f"{source} items"].astype(np.int64)
    held = np.unpackbits(loaded[name], count=len(items)).astype(bool)
    contexts = np.repeat(np.arange(len(lengths)), lengths)
    if most is not None and most < len(items):
        order = np.random.default_rng(1).permutation(len(lengths))
        drawn = np.zeros(len(lengths), bool)
        drawn[order[: np.searchsorted(np.cumsum(lengths[order]), most)]] = True
        contexts, items, held = (column[drawn[contexts]] for column in (contexts, items, held))
    place = []
    for codes, size in ((contexts, len(lengths)), (items, int(items.max()) + 1)):
        known = np.bincount(codes[~held], minlength=size) > 0
        place.append(np.where(known, np.cumsum(known) - 1, -1))
    contexts, items = place[0][contexts], place[1][items]
    n_contexts, n_items = (int(codes.max()) + 1 for codes in place)
    train, truth = ~held, held & (contexts >= 0) & (items >= 0)
    asked = np.unique(contexts[truth])
    if len(asked) > MOST_ASKED:
        asked = np.sort(np.random.default_rng(0).choice(asked, MOST_ASKED, replace=False))
    truth &= np.isin(contexts, asked)
    size = np.bincount(contexts[truth], minlength=n_contexts)[asked]
    return {
        "shape": np.array([n_contexts, n_items]),
        "indptr": np.concatenate([[0], np.cumsum(np.bincount(contexts[train], minlength=n_contexts))]),
        "indices": items[train].astype(np.int32),
        "asked": asked,
        "truth_indptr": np.concatenate([[0], np.cumsum(size)]),
        "truth_indices": items[truth],
    }
