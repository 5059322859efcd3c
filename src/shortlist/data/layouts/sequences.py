"""Sequences of items in time order: SASRec's and BERT4Rec's pairs, S3-Rec's lists with attributes and samples.

Published protocol: of a user with three events or more the last one is the test, the last but one the validation; the
events of the other users are trained on.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from shortlist.data.building import OnBad
from shortlist.data.content import refuse_other_content
from shortlist.data.layouts.lists import Lists, read_lists
from shortlist.data.layouts.parts import ITEM, Parts, among, events_of, part_of, published
from shortlist.data.rows import by_key
from shortlist.data.text import opened
from shortlist.errors import DataError

_PAIR, _LIST = "'user item'", "'user item item …'"
_LEAST = 3  # events a user must have to be asked for


def read_sasrec(path: Path, on_bad: OnBad) -> Parts:
    """Read a file of `user item` lines, each user's in time order."""
    return _leave_last_out(path, read_lists(path, _PAIR, on_bad=on_bad, least=2, most=2), _PAIR)


def read_s3rec(path: Path, on_bad: OnBad) -> Parts:
    """Read a file of `user item item …` lines in time order.

    NAME_item2attributes.json and NAME_sample.txt, the items to rank the test item against, are read where they stand
    beside NAME.txt.
    """
    lists = read_lists(path, _LIST, on_bad=on_bad)
    heads = np.sort(lists.users[np.flatnonzero(np.diff(lists.users, prepend=-1))])
    twice = heads[1:][heads[1:] == heads[:-1]]
    if len(twice):
        raise DataError(
            f"{path}: {len(np.unique(twice)):,} users such as {twice[0]} have several lines; expected one line a user, "
            f"{_LIST} in time order"
        )
    parts = _leave_last_out(path, lists, _LIST)
    stem = path.name.removesuffix(".gz").removesuffix(".txt")
    attributes, sample = path.with_name(f"{stem}_item2attributes.json"), path.with_name(f"{stem}_sample.txt")
    if attributes.is_file():
        parts = replace(parts, items=_attributes(attributes))
    if sample.is_file():
        others = read_lists(sample, _LIST, on_bad=on_bad)
        parts = among(parts, others.users, others.items)
    return parts


def _leave_last_out(path: Path, lists: Lists, pattern: str) -> Parts:
    events = events_of(lists.users, lists.items)
    everywhere = np.arange(len(events), dtype=np.uint32)
    indptr, places = by_key(events.context_codes, everywhere, events.n_contexts)
    sizes = np.diff(indptr)
    position = np.empty(len(events), np.int64)
    position[places] = np.arange(len(events)) - np.repeat(indptr[:-1], sizes)
    events = events_of(lists.users, lists.items, position)
    size = sizes[events.context_codes]
    last = (position == size - 1) & (size >= _LEAST)
    if not last.any():
        raise DataError(f"{path}: no user has {_LEAST} events or more, so nothing can be asked for")
    last_but_one = (position == size - 2) & (size >= _LEAST)
    asked, validated = part_of(events, last), part_of(events, last_but_one)
    split = published(part_of(events, ~last), asked, "the published leave-one-out: the last item")
    validation = published(
        part_of(events, ~last & ~last_but_one), validated, "the published leave-one-out: the last item but one"
    )
    if lists.n_dropped:
        split.train.dropped[f"lines that are not {pattern}"] = lists.n_dropped
    return Parts(split.train, split=split, validation=validation)


def _attributes(path: Path) -> pl.DataFrame:
    """The attributes of items: `{"item": [attribute, …], …}`."""
    refuse_other_content(path, None)
    with opened(path) as stream:
        try:
            content = json.load(stream)
            ids = [int(item) for item in content]
            lists = [[int(one) for one in content[item]] for item in content]
        except (ValueError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path} cannot be read: {error}; expected one JSON object, items to lists of attributes, all numbers"
            ) from None
    return pl.DataFrame({ITEM: ids, "attributes": lists}, schema={ITEM: pl.Int64, "attributes": pl.List(pl.Int64)})
