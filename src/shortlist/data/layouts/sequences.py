"""Sequences of items in time order: pairs (SASRec, BERT4Rec) or lists with attributes and candidates (S3-Rec).

The published protocol is leave-one-out. For users with three or more events, the last event is the test, the one before
it the validation. All events of the other users are training events.
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
from shortlist.data.layouts.published import ITEM, PublishedData, events_of, part_of, published, with_candidates
from shortlist.data.layouts.user_lines import UserLines, read_lists, refuse_several_lines
from shortlist.data.sniff import refuse_other_content
from shortlist.data.sparse_rows import by_key
from shortlist.errors import DataError

_PAIR, _LIST = "'user item'", "'user item item …'"
_LEAST = 3  # events that a user needs to be in the test set


def read_sasrec(path: Path, on_bad: OnBad) -> PublishedData:
    """Read a file of `user item` lines; those of a user are in time order."""
    return _leave_one_out(path, read_lists(path, _PAIR, on_bad=on_bad, least=2, most=2), _PAIR)


def read_s3rec(path: Path, on_bad: OnBad) -> PublishedData:
    """Read a file of `user item item …` lines with items in time order.

    NAME_item2attributes.json and NAME_sample.txt (the items to rank the test item against) are read if they are in the
    folder of NAME.txt.
    """
    lists = read_lists(path, _LIST, on_bad=on_bad)
    refuse_several_lines(path, lists, f"one line per user, {_LIST} in time order")
    parts = _leave_one_out(path, lists, _LIST)
    stem = path.name.removesuffix(".gz").removesuffix(".txt")
    attributes, sample = path.with_name(f"{stem}_item2attributes.json"), path.with_name(f"{stem}_sample.txt")
    if attributes.is_file():
        parts = replace(parts, items=_attributes(attributes))
    if sample.is_file():
        candidates = read_lists(sample, _LIST, on_bad=on_bad)
        parts = with_candidates(parts, candidates.users, candidates.items, candidates.dropped(sample, _LIST))
    return parts


def _leave_one_out(path: Path, lists: UserLines, pattern: str) -> PublishedData:
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
        raise DataError(f"{path}: no user has {_LEAST} or more events, so the test set is empty", code="empty-data")
    last_but_one = (position == size - 2) & (size >= _LEAST)
    test, validated = part_of(events, last), part_of(events, last_but_one)
    split = published(part_of(events, ~last), test, "the published leave-one-out: the last item")
    validation = published(
        part_of(events, ~last & ~last_but_one), validated, "the published leave-one-out: the last item but one"
    )
    for part in (split.train, events):
        part.dropped.update(lists.dropped(path, pattern))
    return PublishedData(split.train, split=split, validation=validation, everything=events)


def _attributes(path: Path) -> pl.DataFrame:
    """Read the attributes of items: `{"item": [attribute, …], …}`."""
    refuse_other_content(path, None)
    with opened(path) as stream:
        try:
            content = json.load(stream)
            if not isinstance(content, dict):
                raise ValueError(f"it holds {str(content)!r:.40}")
            ids = [_integer(item) for item in content]
            lists = [_integers(item, attributes) for item, attributes in content.items()]
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path} cannot be read: {error}; expected one JSON object from items to lists of attributes, all "
                "integers",
                code="unreadable-file",
            ) from None
    return pl.DataFrame({ITEM: ids, "attributes": lists}, schema={ITEM: pl.Int64, "attributes": pl.List(pl.Int64)})


def _integers(item: str, attributes: Any) -> list[int]:
    if not isinstance(attributes, list):
        raise ValueError(f"item {item} has {attributes!r:.40} instead of a list")
    return [_integer(attribute) for attribute in attributes]


def _integer(value: Any) -> int:
    """Check and return an integer; it may be text, as JSON keys are."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and not (isinstance(value, str) and re.search(WHOLE_NUMBER, value)):
        raise ValueError(f"{value!r:.40} is not an integer")
    if not -(2**63) <= int(value) < 2**63:
        raise ValueError(f"{value!r:.40} does not fit into 64 bits")
    return int(value)
