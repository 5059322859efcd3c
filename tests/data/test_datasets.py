from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from shortlist.data import datasets, splits
from shortlist.errors import SettingError


def test_online_retail():
    retail = datasets.load("online-retail")
    events = retail.interactions
    assert len(events) == 386_250
    assert events.times is not None
    assert events.dropped == {}
    assert events.to_polars().schema == {
        "customer": pl.Int32, "product": pl.String, "quantity": pl.Float32, "time": pl.Datetime("us")
    }  # fmt: skip
    assert set(events.items.ids()) == set(retail.items["product"])
    assert set(events.contexts.ids()) == set(retail.contexts["customer"])
    assert events.weights.min() >= 1
    assert "CC BY 4.0" in repr(retail)
    assert [info.name for info in datasets.available()] == ["online-retail"]


def test_a_fifth_of_the_truth_repeats_history():
    """The reason why `repeats` exists; the count is by hand from the frame."""
    events = datasets.load("online-retail").interactions
    split = splits.by_time(events, "2011-11-01")
    late = pl.col("time") >= pl.datetime(2011, 11, 1)
    pairs = events.to_polars()
    before = pairs.filter(~late).select("customer", "product").unique()
    after = pairs.filter(late).select("customer", "product").unique()
    after = after.join(before.select("customer").unique(), on="customer", how="semi")
    after = after.join(before.select("product").unique(), on="product", how="semi")
    new = after.join(before, on=["customer", "product"], how="anti")
    assert len(split.truth) == new.height
    assert split.dropped["test pairs already in training"] == after.height - new.height


def test_unknown_name():
    with pytest.raises(SettingError, match=r"'online retail'; did you mean 'online-retail'\?; bundled: online-retail"):
        datasets.load("online retail")
    with pytest.raises(SettingError, match="unknown data set 'x'; bundled: online-retail"):
        datasets.load("x")


def test_synthetic():
    events = datasets.synthetic(200, 100, 3000, seed=3)
    assert (len(events), events.n_pairs, events.n_contexts, events.n_items) == (3000, 3000, 200, 100)
    same, other = datasets.synthetic(200, 100, 3000, seed=3), datasets.synthetic(200, 100, 3000, seed=4)
    assert np.array_equal(events.item_codes, same.item_codes)
    assert not np.array_equal(events.item_codes, other.item_codes)
    assert events.to_polars().schema == {"context": pl.Int32, "item": pl.Int32}
