"""NCF's files: NAME.train.rating, NAME.test.rating and NAME.test.negative."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from shortlist.data.csv_lines import opened_text
from shortlist.data.encode import OnBad
from shortlist.data.layouts.published import ITEM, USER, PublishedData, among, published, together, with_items
from shortlist.data.layouts.ratings import PARTS, at_least, read_ratings
from shortlist.data.layouts.user_lines import read_lists, refuse_several_lines
from shortlist.errors import DataError

_PATTERNS = {
    4: "user, item, rating and timestamp with tabs between them",
    3: "user, item and rating with tabs between them",
}
_NEGATIVES = "'(user,item)', a tab and items with tabs between them"


def read_ncf(train: Path, min_rating: float | None, on_bad: OnBad) -> PublishedData:
    """Read NAME.train.rating and what stands beside it.

    Timestamps may be missing. The test has one item a user; NAME.test.negative repeats it and lists the items that it
    is to be ranked against.
    """
    stem = train.name.removesuffix(".train.rating")
    test, negative = train.with_name(f"{stem}.test.rating"), train.with_name(f"{stem}.test.negative")
    if not test.is_file():
        raise DataError(f"{train.parent}: there is no {test.name} beside {train.name}; expected both")
    n_fields = _n_fields(train)
    known, truth = (
        read_ratings(path, "\t", _PATTERNS[n_fields], on_bad=on_bad, names=PARTS[:n_fields]) for path in (train, test)
    )
    pairs = truth.to_polars().select(USER, ITEM)
    known, truth = at_least(known, min_rating), at_least(truth, min_rating)
    split = published(with_items(known, truth.items.frame), truth, f"the published {test.name}")
    split.dropped.update({f"test {what}": count for what, count in truth.dropped.items()})
    parts = PublishedData(split.train, split=split, everything=together(split.train, truth))
    if not negative.is_file():
        return parts
    lists = read_lists(negative, _NEGATIVES, on_bad=on_bad, separators=b"(),", least=3)
    refuse_several_lines(negative, lists, f"one line a user; without {negative.name} the rest is read as it is")
    head = lists.first  # where a line begins stands the true item
    asked = pl.DataFrame({USER: lists.users[head], ITEM: lists.items[head]})
    if on_bad == "raise" and not asked.sort(USER, ITEM).equals(pairs.sort(USER, ITEM)):
        strange = asked.join(pairs, on=[USER, ITEM], how="anti")
        raise DataError(
            f"{negative} and {test.name} do not ask for the same pairs: {strange.height:,} of {asked.height:,} are not "
            f"among the {pairs.height:,} there{f', such as {strange.row(0)}' if strange.height else ''}"
        )
    return among(parts, lists.users[~head], lists.items[~head], lists.dropped(negative, _NEGATIVES))


def _n_fields(path: Path) -> int:
    """3 where the first line that is not blank has no timestamp, else 4."""
    with opened_text(path) as stream:
        line = next((line for line in stream if line.strip()), b"")
    return 3 if line.count(b"\t") == 2 else 4
