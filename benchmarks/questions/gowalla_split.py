"""Are the test and the validation part of gowalla alike?

    python -m benchmarks.questions.gowalla_split --data FOLDER

Shows what share of an item's pairs is in each part, by the popularity of the item.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

BOUNDS = (15, 30, 60, 120, 300)  # pairs of an item, in train and test together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data / "gowalla"
    train, test, valid = (
        pl.read_parquet(folder / f"{name}.parquet").group_by("item").agg(pl.len().alias(name))
        for name in ("train", "test", "valid_subset_of_train")
    )
    counts = train.join(test, on="item", how="full", coalesce=True).join(valid, on="item", how="left").fill_null(0)
    pairs = counts.with_columns(popularity=pl.col("train") + pl.col("test"))
    for low, high in zip((0, *BOUNDS), (*BOUNDS, None)):
        own = pairs.filter(pl.col("popularity") >= low, pl.lit(True) if high is None else pl.col("popularity") < high)
        sums = own.sum()
        of_test, of_valid = (
            sums[a].item() / sums[b].item() for a, b in (("test", "popularity"), (valid.columns[1], "train"))
        )
        told = f"{low} or more" if high is None else f"{low} to {high - 1}"
        print(f"{told:>11} pairs: {len(own):>6} items, {of_test:.1%} in test, {of_valid:.1%} of train in validation")


if __name__ == "__main__":
    main()
