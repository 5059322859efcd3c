"""Files of `user item item …` lines, against a plain reading of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.csv_lines import shortened
from shortlist.data.layouts import published, user_lines
from shortlist.errors import DataError

GIVEN = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
IDS = st.integers(0, 10**18 - 1) | st.integers(0, 30)
FILES = st.lists(st.tuples(IDS, st.lists(IDS, max_size=6)), min_size=1, max_size=12)
BLANK = st.sampled_from([" ", "\t", "  "])


@GIVEN
@given(
    file=FILES,
    blank=BLANK,
    end=st.sampled_from(["\n", "\r\n", " \n", "\n\n"]),
    last=st.booleans(),
    mark=st.booleans(),
    block=st.integers(1, 40),
)
def test_round_trip(tmp_path, monkeypatch, file, blank, end, last, mark, block):
    monkeypatch.setattr("shortlist.data.csv_lines._BLOCK", block)
    text = end.join(blank.join(map(str, [user, *items])) for user, items in file) + (end if last else "")
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" * mark + text.encode())
    events = [(user, item) for user, items in file for item in items]
    if not events:
        with pytest.raises(DataError, match="has no items"):
            user_lines.read_lists(path, "x")
        return
    found = user_lines.read_lists(path, "x")
    assert list(zip(found.users.tolist(), found.items.tolist())) == events
    assert found.n_dropped == 0
    assert found.first.tolist() == [k == 0 for _, items in file for k in range(len(items))]
    back = published.events_of(found.users, found.items)
    assert back.to_polars().rows() == events
    assert back.items.ids() == sorted({item for _, item in events})


@GIVEN
@given(
    lines=st.lists(
        st.lists(st.sampled_from(["1", "22", "007", "x", "-3", "1.5", "1" * 19, "é", "3,4"]), max_size=4), max_size=15
    ),
    least=st.integers(1, 3),
    most=st.sampled_from([0, 3]),
    block=st.integers(1, 30),
)
def test_bad_lines_are_counted_named_and_left_out(tmp_path, monkeypatch, lines, least, most, block):
    monkeypatch.setattr("shortlist.data.csv_lines._BLOCK", block)
    path = tmp_path / "a.txt"
    path.write_text("7 8 9\n" + "".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")

    def good(line):
        plain = all(field.isascii() and field.isdigit() and len(field) < 19 for field in line)
        return plain and least <= len(line) and (not most or len(line) <= most)

    numbered = [(number, line) for number, line in enumerate(lines, 2) if line]
    bad = [(number, line) for number, line in numbered if not good(line)]
    events = [(7, 8), (7, 9), *((int(line[0]), int(item)) for _, line in numbered if good(line) for item in line[1:])]
    found = user_lines.read_lists(path, "x", on_bad="drop", least=least, most=most)
    assert list(zip(found.users.tolist(), found.items.tolist())) == events
    assert found.n_dropped == len(bad)
    if bad:
        with pytest.raises(DataError) as caught:
            user_lines.read_lists(path, "'user item'", least=least, most=most)
        message = str(caught.value)
        assert f"{len(bad)} of {len(numbered) + 1} lines are not written as 'user item'" in message
        for number, line in bad[:3]:
            assert f"line {number} {shortened(' '.join(line))}" in message


@GIVEN
@given(histories=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=8))
def test_pairs_and_lists_hold_the_same(tmp_path, histories):
    """What SASRec writes as pairs and S3-Rec as lists is one split: nothing is lost, nothing is asked for twice."""
    pairs, lines = tmp_path / "pairs.txt", tmp_path / "lists.txt"
    pairs.write_text("".join(f"{u} {i}\n" for u, items in enumerate(histories) for i in items))
    lines.write_text("".join(f"{u} {' '.join(map(str, items))}\n" for u, items in enumerate(histories)))
    asked = {u: items[-1] for u, items in enumerate(histories) if len(items) > 2 and items[-1] not in items[:-1]}
    before = {u: items[-2] for u, items in enumerate(histories) if len(items) > 2 and items[-2] not in items[:-2]}
    if not asked or not before:
        with pytest.raises(DataError, match=r"no user has 3 or more events|test set is empty"):
            sl.datasets.read(pairs, "sasrec")
        return
    one, two = sl.datasets.read(pairs, "sasrec"), sl.datasets.read(lines, "s3rec")
    for data in (one, two):
        assert {row[0]: row[1] for row in data.split.truth.to_polars().rows()} == asked
        assert {row[0]: row[1] for row in data.validation.truth.to_polars().rows()} == before
        for u, items in enumerate(histories):
            assert data.interactions.history(u) == (items[:-1] if len(items) > 2 else items)
            assert data.everything.history(u) == items
        dropped = sum(len(items) > 2 for items in histories) - len(asked)
        assert data.split.dropped["test pairs already in training"] == dropped
    assert one.interactions.to_polars().equals(two.interactions.to_polars())


def test_codes_of_ids_far_apart_and_close_together():
    for ids in ([5, 3, 5, 0], [10**15, 3, 10**15, 0]):
        vocabulary, codes = published.coded(np.array(ids), "item")
        assert vocabulary.ids() == sorted(set(ids))
        assert vocabulary.ids(codes) == ids
        assert codes.dtype == np.int32
