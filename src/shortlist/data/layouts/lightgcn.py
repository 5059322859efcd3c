"""The files of NGCF and LightGCN: train.txt and test.txt, one line per user."""

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
    """Read train.txt, test.txt and, if they exist, valid.txt, item_list.txt and user_list.txt of the same folder.

    In some data sets train.txt includes the events of valid.txt, in others it does not. The result is the same: the
    split trains on all events except test.txt, the validation split on these except valid.txt.
    """
    paths = [train, train.with_name("test.txt"), train.with_name("valid.txt")]
    if not paths[1].is_file():
        raise DataError(
            f"{train.parent}: no test.txt beside {train.name}; expected both (valid.txt is optional)",
            code="no-such-file",
        )
    if not paths[2].is_file():
        paths.pop()
    lists = [read_lists(path, _PATTERN, on_bad=on_bad) for path in paths]
    part = np.repeat(np.arange(len(lists)), [len(lines.items) for lines in lists])
    users, item_ids = (np.concatenate(ids) for ids in zip(*[(lines.users, lines.items) for lines in lists]))
    events = events_of(users, item_ids)
    in_training = part == 0
    validation = None
    if len(lists) > 2:
        view = events.select(part == 2).by_context
        in_training &= ~has_pairs(view.indptr, view.indices, events.context_codes, events.item_codes)
        validation = published(part_of(events, in_training), part_of(events, part == 2), "the published valid.txt")
        in_training |= part == 2
    split = published(part_of(events, in_training), part_of(events, part == 1), "the published train.txt and test.txt")
    for path, lines in zip(paths, lists):
        split.train.dropped.update(lines.dropped(path, _PATTERN))
    everything = events.select(in_training | (part == 1))
    everything.dropped.update(split.train.dropped)
    items, contexts = (_originals(train.with_name(f"{name}_list.txt"), name) for name in (ITEM, USER))
    return PublishedData(split.train, items, contexts, split, validation, everything=everything)


def _originals(path: Path, key: str) -> pl.DataFrame | None:
    """Read the original ids of a file with the header `org_id remap_id`; None if it does not exist."""
    if not path.is_file():
        return None
    fields = fields_of(path, rf"^(?<original>\S+) +(?<{key}>\d+)( .*)?$", "org_id remap_id", key=key, n_headers=1)
    return fields.select(key, "original")
