"""The files of NCF: NAME.train.rating, NAME.test.rating and NAME.test.negative."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from shortlist.data.csv_lines import opened_text
from shortlist.data.encode import OnBad
from shortlist.data.layouts.published import (
    ITEM,
    USER,
    PublishedData,
    concatenated,
    published,
    with_candidates,
    with_items,
)
from shortlist.data.layouts.ratings import PARTS, at_least, read_ratings
from shortlist.data.layouts.user_lines import read_lists, refuse_several_lines
from shortlist.errors import DataError

_PATTERNS = {
    4: "user, item, rating and timestamp separated by tabs",
    3: "user, item and rating separated by tabs",
}
_NEGATIVES = "'(user,item)' and items separated by tabs"


def read_ncf(train: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read NAME.train.rating, NAME.test.rating and, if it exists, NAME.test.negative of the same folder.

    Timestamps may be missing. The test set has one item per user; NAME.test.negative repeats this item and lists the
    items to rank it against.
    """
    stem = train.name.removesuffix(".train.rating")
    test, negative = train.with_name(f"{stem}.test.rating"), train.with_name(f"{stem}.test.negative")
    if not test.is_file():
        raise DataError(f"{train.parent}: no {test.name} beside {train.name}; expected both", code="no-such-file")
    n_fields = _n_fields(train)
    train_events, truth = (
        read_ratings(path, "\t", _PATTERNS[n_fields], on_bad=on_bad, names=PARTS[:n_fields]) for path in (train, test)
    )
    pairs = truth.to_polars().select(USER, ITEM)
    train_events, truth = at_least(train_events, min_rating), at_least(truth, min_rating)
    split = published(with_items(train_events, truth.items.frame), truth, f"the published {test.name}")
    split.dropped.update({f"test {what}": count for what, count in truth.dropped.items()})
    parts = PublishedData(split.train, split=split, everything=concatenated(split.train, truth))
    if not negative.is_file():
        return parts
    lists = read_lists(negative, _NEGATIVES, on_bad=on_bad, separators=b"(),", least=3)
    refuse_several_lines(
        negative, lists, f"one line per user. Remove {negative.name} to read the data set without candidates"
    )
    head = lists.first  # the first item of a line is the test item
    repeated = pl.DataFrame({USER: lists.users[head], ITEM: lists.items[head]})
    if on_bad == "raise" and not repeated.sort(USER, ITEM).equals(pairs.sort(USER, ITEM)):
        extra = repeated.join(pairs, on=[USER, ITEM], how="anti")
        raise DataError(
            f"{negative} and {test.name} have different test pairs: {extra.height:,} of {repeated.height:,} are not "
            f"among the {pairs.height:,} of {test.name}{f', such as {extra.row(0)}' if extra.height else ''}",
            code="bad-rows",
        )
    return with_candidates(parts, lists.users[~head], lists.items[~head], lists.dropped(negative, _NEGATIVES))


def _n_fields(path: Path) -> int:
    """Return 3 if the first line that is not blank has no timestamp, else 4."""
    with opened_text(path) as stream:
        line = next((line for line in stream if line.strip()), b"")
    return 3 if line.count(b"\t") == 2 else 4
