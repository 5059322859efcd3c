"""LightGCN and NCF: data with its split in files of its own."""

from __future__ import annotations

import numpy as np
import pytest

import shortlist as sl
from data.layout_files import (
    ncf,
    put,
    rows,
    second,
)
from shortlist.data import layouts
from shortlist.errors import DataError


def test_lightgcn(tmp_path):
    put(
        tmp_path,
        train__txt="0 5 3 \n1 3 4\n\n2\n3 4\n",
        test__txt="0 4\n1 9 5\n2 \n7 3\n",
        item_list__txt="org_id remap_id\nB00 3\nB01 4 m.0gw\n",
        README__md="# words",
    )
    assert layouts.recognise(tmp_path) == "lightgcn"
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [(0, 5), (0, 3), (1, 3), (1, 4), (3, 4)]
    assert data.interactions is data.split.train
    assert data.interactions.items.ids() == [3, 4, 5, 9]  # 9 is known from the test only
    assert sorted(rows(data.split.truth)) == [(0, 4), (1, 5), (1, 9)]
    assert data.split.dropped["test events of unknown contexts"] == 1
    assert data.split.exclude_seen
    assert data.validation is None
    assert (data.items.columns, data.items.rows()) == (["item", "original"], [(3, "B00"), (4, "B01")])
    assert data.contexts.rows() == [(0,), (1,), (3,)]
    assert "held-out pairs" in repr(data)
    assert sorted(rows(data.everything)) == sorted([*rows(data.interactions), (0, 4), (1, 5), (1, 9), (7, 3)])
    assert data.everything.items == data.interactions.items
    assert "everything: 9 events" in repr(data)
    assert rows(sl.datasets.read(tmp_path / "test.txt").interactions) == rows(data.interactions)


@pytest.mark.parametrize("inside", [True, False])
def test_lightgcn_validation(tmp_path, inside):
    """valid.txt may be a part of train.txt or stand beside it."""
    train = "0 1 2 3\n1 1 2\n" if inside else "0 1 3\n1 1\n"
    put(tmp_path, train__txt=train, valid__txt="0 2\n1 2\n", test__txt="0 4\n1 3\n")
    data = sl.datasets.read(tmp_path)
    assert sorted(rows(data.interactions)) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert sorted(rows(data.validation.train)) == [(0, 1), (0, 3), (1, 1)]
    assert rows(data.validation.truth) == [(0, 2), (1, 2)]
    assert rows(data.split.truth) == [(0, 4), (1, 3)]
    assert data.validation.train.items == data.split.train.items
    assert sorted(rows(data.everything)) == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2), (1, 3)]  # each once


def test_fitting_the_interactions_does_not_leak(tmp_path):
    """`evaluate` warns (an error here) where a model may know the answers."""
    rng = np.random.default_rng(0)
    histories = [list(map(str, rng.permutation(12)[:7])) for _ in range(20)]
    put(
        tmp_path,
        train__txt="".join(f"{u} {' '.join(items[:5])}\n" for u, items in enumerate(histories)),
        test__txt="".join(f"{u} {' '.join(items[5:])}\n" for u, items in enumerate(histories)),
    )
    data = sl.datasets.read(tmp_path)
    result = sl.evaluate(sl.Popularity().fit(data.interactions), data.split, ["recall@3"])
    assert 0 <= result["recall@3"] <= 1


def test_ncf(tmp_path):
    assert layouts.recognise(ncf(tmp_path)) == "ncf"
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [
        (0, 1, 5.0, second(100)), (0, 2, 3.0, second(90)), (1, 2, 4.0, second(80)), (1, 3, 1.0, second(70))
    ]  # fmt: skip
    assert rows(data.split.truth) == [(0, 3, 4.0, second(110)), (1, 1, 2.0, second(120))]
    assert sorted(data.interactions.items.ids()) == [0, 1, 2, 3, 4, 5]
    assert rows(data.candidates) == [(0, 4), (0, 5), (1, 4), (1, 0)]
    assert data.candidates.dropped == {"candidates that are the true item": 1, "candidates named twice": 1}
    model = sl.Popularity().fit(data.interactions)
    result = sl.evaluate_candidates(model, data.split.truth, data.candidates, ["hit@1"])
    assert result["hit@1"] == 1.0  # nobody has had a candidate
    sl.evaluate(model, data.split)
    assert data.interactions is data.split.train
    assert rows(data.everything) == rows(data.interactions) + rows(data.split.truth)
    assert data.everything.items == data.interactions.items


def test_ncf_without_timestamps(tmp_path):
    ncf(tmp_path)
    for name in ("ml-1m.train.rating", "ml-1m.test.rating"):
        lines = (tmp_path / name).read_text().splitlines()
        (tmp_path / name).write_text("\n" + "".join(line.rpartition("\t")[0] + "\n" for line in lines))
    data = sl.datasets.read(tmp_path)
    assert rows(data.interactions) == [(0, 1, 5.0), (0, 2, 3.0), (1, 2, 4.0), (1, 3, 1.0)]
    assert data.interactions.times is None
    assert rows(data.everything) == [*rows(data.interactions), (0, 3, 4.0), (1, 1, 2.0)]
    assert rows(data.candidates) == [(0, 4), (0, 5), (1, 4), (1, 0)]
    put(tmp_path, **{"ml-1m.train.rating": "0\t1\t5\n0\t2\n1\t1\t1\n"})
    with pytest.raises(DataError, match=r"1 of 3 lines are not written as user, item and rating separated by tabs"):
        sl.datasets.read(tmp_path)


def test_ncf_lines_left_out_of_the_candidates_are_counted(tmp_path):
    put(ncf(tmp_path), **{"ml-1m.test.negative": "(0,3)\t4\t5\n(1,1)\t4\tx\n"})
    data = sl.datasets.read(tmp_path, on_bad="drop")
    assert rows(data.candidates) == [(0, 4), (0, 5)]
    assert data.candidates.dropped == {
        "lines of ml-1m.test.negative that are not '(user,item)' and items separated by tabs": 1
    }


def test_ncf_with_several_test_items_of_a_user(tmp_path):
    put(
        ncf(tmp_path),
        **{
            "ml-1m.test.rating": "0\t3\t4\t110\n0\t4\t4\t111\n1\t1\t2\t120\n",
            "ml-1m.test.negative": "(0,3)\t5\t6\n(0,4)\t5\t7\n(1,1)\t4\t0\n",
        },
    )
    with pytest.raises(
        DataError, match=r"1 users have several lines \(first: user 0\); expected one line per user. Rem"
    ):
        sl.datasets.read(tmp_path)
    (tmp_path / "ml-1m.test.negative").unlink()
    data = sl.datasets.read(tmp_path)
    assert [row[:2] for row in rows(data.split.truth)] == [(0, 3), (0, 4), (1, 1)]


def test_ncf_min_rating_goes_for_both_parts(tmp_path):
    data = sl.datasets.read(ncf(tmp_path), min_rating=3)
    assert [row[:2] for row in rows(data.interactions)] == [(0, 1), (0, 2), (1, 2)]
    assert data.interactions.dropped == {"events rated below 3": 1}
    assert [row[:2] for row in rows(data.split.truth)] == [(0, 3)]
    assert data.split.dropped["test events rated below 3"] == 1
    assert rows(data.candidates) == [(0, 4), (0, 5)]
    assert data.candidates.dropped["candidates of users without test items"] == 3
    assert [row[:2] for row in rows(data.everything)] == [(0, 1), (0, 2), (1, 2), (0, 3)]
    assert data.everything.dropped == {"events rated below 3": 2}


def test_several_ncf_sets_in_a_folder(tmp_path):
    ncf(ncf(tmp_path, "ml-1m"), "pinterest-20")
    with pytest.raises(DataError) as caught:
        sl.datasets.read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds several data sets in the layout 'ncf': ml-1m.train.rating, pinterest-20.train.rating; "
        f"pass the path of one of them, such as {tmp_path / 'ml-1m.train.rating'}"
    )
    for part in ("train.rating", "test.rating", "test.negative"):
        assert len(sl.datasets.read(tmp_path / f"pinterest-20.{part}").candidates) == 4


def test_ncf_parts_that_do_not_agree(tmp_path):
    ncf(tmp_path)
    put(tmp_path, **{"ml-1m.test.negative": "(0,3)\t4\t5\n(1,2)\t4\t0\n"})
    with pytest.raises(DataError, match=r"1 of 2 are not among the 2 of .*, such as \(1, 2\)"):
        sl.datasets.read(tmp_path)
    (tmp_path / "ml-1m.test.rating").unlink()
    with pytest.raises(DataError, match=r"no ml-1m.test.rating beside ml-1m.train.rating"):
        sl.datasets.read(tmp_path)
