"""Sequences of items in time order: SASRec's and BERT4Rec's pairs, S3-Rec's lists with attributes and samples.

Published protocol: of a user with three events or more the last one is the test, the last but one the validation; the
events of the other users are trained on.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shortlist.data.csv_lines import opened
from shortlist.data.encode import WHOLE_NUMBER, OnBad
from shortlist.data.layouts.published import ITEM, PublishedData, among, events_of, part_of, published
from shortlist.data.layouts.user_lines import UserLines, read_lists, refuse_several_lines
from shortlist.data.sniff import refuse_other_content
from shortlist.data.sparse_rows import by_key
from shortlist.errors import DataError

_PAIR, _LIST = "'user item'", "'user item item …'"
_LEAST = 3  # events a user must have to be asked for


def read_sasrec(path: Path, on_bad: OnBad) -> PublishedData:
    """Read a file of `user item` lines, each user's in time order."""
    return _leave_last_out(path, read_lists(path, _PAIR, on_bad=on_bad, least=2, most=2), _PAIR)


def read_s3rec(path: Path, on_bad: OnBad) -> PublishedData:
    """Read a file of `user item item …` lines in time order.

    NAME_item2attributes.json and NAME_sample.txt, the items to rank the test item against, are read where they stand
    beside NAME.txt.
    """
    lists = read_lists(path, _LIST, on_bad=on_bad)
    refuse_several_lines(path, lists, f"one line a user, {_LIST} in time order")
    parts = _leave_last_out(path, lists, _LIST)
    stem = path.name.removesuffix(".gz").removesuffix(".txt")
    attributes, sample = path.with_name(f"{stem}_item2attributes.json"), path.with_name(f"{stem}_sample.txt")
    if attributes.is_file():
        parts = replace(parts, items=_attributes(attributes))
    if sample.is_file():
        others = read_lists(sample, _LIST, on_bad=on_bad)
        parts = among(parts, others.users, others.items, others.dropped(sample, _LIST))
    return parts


def _leave_last_out(path: Path, lists: UserLines, pattern: str) -> PublishedData:
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
    for part in (split.train, events):
        part.dropped.update(lists.dropped(path, pattern))
    return PublishedData(split.train, split=split, validation=validation, everything=events)


def _attributes(path: Path) -> pl.DataFrame:
    """The attributes of items: `{"item": [attribute, …], …}`."""
    refuse_other_content(path, None)
    with opened(path) as stream:
        try:
            content = json.load(stream)
            if not isinstance(content, dict):
                raise ValueError(f"it holds {str(content)!r:.40}")
            ids = [_number(item) for item in content]
            lists = [_numbers(item, found) for item, found in content.items()]
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path} cannot be read: {error}; expected one JSON object, items to lists of attributes, all whole "
                "numbers"
            ) from None
    return pl.DataFrame({ITEM: ids, "attributes": lists}, schema={ITEM: pl.Int64, "attributes": pl.List(pl.Int64)})


def _numbers(item: str, found: Any) -> list[int]:
    if not isinstance(found, list):
        raise ValueError(f"item {item} has {found!r:.40} and no list")
    return [_number(one) for one in found]


def _number(one: Any) -> int:
    """A whole number, which as a key is text in JSON."""
    whole = isinstance(one, int) and not isinstance(one, bool)
    if not whole and not (isinstance(one, str) and re.search(WHOLE_NUMBER, one)):
        raise ValueError(f"{one!r:.40} is not a whole number")
    if not -(2**63) <= int(one) < 2**63:
        raise ValueError(f"{one!r:.40} does not fit into 64 bits")
    return int(one)
