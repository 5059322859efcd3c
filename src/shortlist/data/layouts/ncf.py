"""NCF's files: NAME.train.rating, NAME.test.rating and NAME.test.negative."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from shortlist.data.building import OnBad
from shortlist.data.layouts.lists import read_lists
from shortlist.data.layouts.parts import ITEM, USER, Parts, among, published, with_items
from shortlist.data.layouts.ratings import at_least, read_ratings
from shortlist.errors import DataError

_PATTERN = "user, item, rating and timestamp with tabs between them"
_NEGATIVES = "'(user,item)', a tab and items with tabs between them"


def read_ncf(train: Path, min_rating: float | None, on_bad: OnBad) -> Parts:
    """Read NAME.train.rating and what stands beside it.

    The test has one item a user; NAME.test.negative repeats it and lists the items that it is to be ranked against.
    """
    stem = train.name.removesuffix(".train.rating")
    test, negative = train.with_name(f"{stem}.test.rating"), train.with_name(f"{stem}.test.negative")
    if not test.is_file():
        raise DataError(f"{train.parent}: there is no {test.name} beside {train.name}; expected both")
    known, truth = (read_ratings(path, "\t", _PATTERN, on_bad=on_bad) for path in (train, test))
    pairs = truth.to_polars().select(USER, ITEM)
    known, truth = at_least(known, min_rating), at_least(truth, min_rating)
    split = published(with_items(known, truth.items.frame), truth, f"the published {test.name}")
    split.dropped.update({f"test {what}": count for what, count in truth.dropped.items()})
    parts = Parts(split.train, split=split)
    if not negative.is_file():
        return parts
    lists = read_lists(negative, _NEGATIVES, on_bad=on_bad, separators=b"(),", least=3)
    head = np.diff(lists.users, prepend=-1) != 0  # where a line begins stands the true item
    asked = pl.DataFrame({USER: lists.users[head], ITEM: lists.items[head]})
    if on_bad == "raise" and not asked.sort(USER, ITEM).equals(pairs.sort(USER, ITEM)):
        strange = asked.join(pairs, on=[USER, ITEM], how="anti")
        raise DataError(
            f"{negative} and {test.name} do not ask for the same pairs: {strange.height:,} of {asked.height:,} are not "
            f"among the {pairs.height:,} there{f', such as {strange.row(0)}' if strange.height else ''}"
        )
    return among(parts, lists.users[~head], lists.items[~head])
