"""NGCF's and LightGCN's folders: train.txt and test.txt, a line a user."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from shortlist.data.encode import OnBad
from shortlist.data.layouts.published import ITEM, USER, PublishedData, events_of, part_of, published
from shortlist.data.layouts.side_tables import fields_of
from shortlist.data.layouts.user_lines import read_lists
from shortlist.data.sparse_rows import has_pairs
from shortlist.errors import DataError

_PATTERN = "'user item item …'"


def read_lightgcn(train: Path, on_bad: OnBad) -> PublishedData:
    """Read train.txt, test.txt beside it and, where they are there, valid.txt, item_list.txt and user_list.txt.

    The validation part is published in two ways: cut out of train.txt, or as a part of it. Both end the same: the split
    trains on everything but test.txt, the validation split on that without the validation part.
    """
    paths = [train, train.with_name("test.txt"), train.with_name("valid.txt")]
    if not paths[1].is_file():
        raise DataError(f"{train.parent}: there is no test.txt beside {train.name}; expected both, perhaps valid.txt")
    if not paths[2].is_file():
        paths.pop()
    lists = [read_lists(path, _PATTERN, on_bad=on_bad) for path in paths]
    part = np.repeat(np.arange(len(lists)), [len(one.items) for one in lists])
    events = events_of(np.concatenate([one.users for one in lists]), np.concatenate([one.items for one in lists]))
    learnt = part == 0
    validation = None
    if len(lists) > 2:
        view = events.select(part == 2).by_context
        learnt &= ~has_pairs(view.indptr, view.indices, events.context_codes, events.item_codes)
        validation = published(part_of(events, learnt), part_of(events, part == 2), "the published valid.txt")
        learnt |= part == 2
    split = published(part_of(events, learnt), part_of(events, part == 1), "the published train.txt and test.txt")
    for path, one in zip(paths, lists):
        split.train.dropped.update(one.dropped(path, _PATTERN))
    everything = events.select(learnt | (part == 1))
    everything.dropped.update(split.train.dropped)
    items, contexts = (_originals(train.with_name(f"{name}_list.txt"), name) for name in (ITEM, USER))
    return PublishedData(split.train, items, contexts, split, validation, everything=everything)


def _originals(path: Path, key: str) -> pl.DataFrame | None:
    """The ids that were numbered, below the header `org_id remap_id`; there may be more columns."""
    if not path.is_file():
        return None
    found = fields_of(path, rf"^(?<original>\S+) +(?<{key}>\d+)( .*)?$", "org_id remap_id", key=key, n_headers=1)
    return found.select(key, "original")
