"""Features on disk: they come back as they were, or not at all."""

from __future__ import annotations

import copy
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.features.numeric import NumericField
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import StorageError
from shortlist.storage import StoredModel, load_model, save_model

FRAME = pl.DataFrame(
    {
        "user": [1, 2, 3],
        "day": ["mo", "tu", "é"],
        "k": ["a", "b", None],
        "t": ["p|q", "p", "r|r|=x"],
        "n": [1.5, None, -3.0],
        "log": [0.0, 1.0, 7.0],
    }
)


def made(**options):
    return sl.Features.from_frame(
        FRAME,
        id=["user", "day"],
        categorical="k",
        multi_valued={"t": "|"},
        numeric={"n": "standard", "log": "log"},
        **{"min_count": {"t": 2}, "normalize": "norm"} | options,
    )


def assert_same(a, b):
    assert repr(a.select([f.name for f in a.fields])) == repr(b.select([f.name for f in b.fields]))
    assert a.ids == b.ids
    assert a.vocabulary == b.vocabulary
    assert a.feature_names == b.feature_names
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(a.rows, name), getattr(b.rows, name))


def test_round_trip_beside_another_one(tmp_path):
    ours, others = made(), made(normalize=None, min_count=1).select(["n", "t"])
    parts, more = ours.to_parts("item_features."), others.to_parts("context_features.")
    stored = StoredModel(
        "Sample", {"a": parts.settings, "b": more.settings}, parts.arrays | more.arrays, parts.tables | more.tables
    )
    save_model(tmp_path / "m", stored)
    found = load_model(tmp_path / "m")
    again = sl.Features.from_parts(found.settings["a"], found.arrays, found.tables, "item_features.")
    assert_same(again, ours)
    assert_same(sl.Features.from_parts(found.settings["b"], found.arrays, found.tables, "context_features."), others)
    new = FRAME.with_columns(k=pl.lit("zzz"), n=pl.lit(0.25))
    assert_same(again.encode(new, unknown="missing"), ours.encode(new, unknown="missing"))
    assert again.rows.values.flags.writeable  # kernels are compiled for such arrays


@settings(max_examples=25)
@given(st.lists(st.text(max_size=5), min_size=1, max_size=8), st.integers(1, 3))
def test_any_value_comes_back(tmp_path_factory, values, min_count):
    features = sl.Features.from_frame({"id": range(len(values)), "v": values}, id="id", min_count=min_count)
    path = tmp_path_factory.mktemp("model") / "m"
    parts = features.to_parts()
    save_model(path, StoredModel("Sample", *parts))
    found = load_model(path)
    assert_same(sl.Features.from_parts(found.settings, found.arrays, found.tables), features)


def test_more_numeric_columns_than_settings_have_room_for(tmp_path):
    wide = [NumericField(name=f"column {k}", mean=k / 3, std=1.5) for k in range(12_000)]
    n_columns = sum(one.n_columns for one in wide)
    rows = SparseRows(np.array([0, 1], np.int64), np.array([5], np.int32), np.ones(1, np.float32), n_columns)
    features = sl.Features(Vocabulary(pl.DataFrame({"product": [7]})), wide, rows)
    path = tmp_path / "m"
    save_model(path, StoredModel("Sample", *features.to_parts()))
    found = load_model(path)
    again = sl.Features.from_parts(found.settings, found.arrays, found.tables)
    assert again.feature_names == features.feature_names
    assert [(one.mean, one.std) for one in again.fields] == [(one.mean, one.std) for one in features.fields]


def test_nobody_comes_back_too(tmp_path):
    nobody = made().encode(FRAME.clear())
    save_model(tmp_path / "m", StoredModel("Sample", *nobody.to_parts()))
    found = load_model(tmp_path / "m")
    assert_same(sl.Features.from_parts(found.settings, found.arrays, found.tables), nobody)


def test_ids_of_text_files_still_meet_by_spelling(tmp_path):
    (tmp_path / "i.csv").write_text("id,k\n7,a\n")
    parts = sl.Features.read(tmp_path / "i.csv", id="id").to_parts()
    assert sl.Features.from_parts(*parts)["7"] == {"k=a": 1}


def fields(change):
    """Change what is said of the fields."""

    def damage(parts):
        told = [json.loads(line) for line in parts.tables["fields"]["field"]]
        change(told)
        parts.tables["fields"] = pl.DataFrame({"field": [json.dumps(one) for one in told]}, schema={"field": pl.String})

    return damage


def field(number, **values):
    return fields(lambda told: told[number].update(values))


def table(name, change):
    return lambda p: p.tables.update({name: change(p.tables[name])})


def array(name, change):
    return lambda p: p.arrays.update({name: change(p.arrays[name])})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.tables.pop("fields"), "have no table 'fields'"),
        (lambda p: p.tables.update(fields=pl.DataFrame({"field": [3]})), "the table of fields has the columns"),
        (lambda p: p.tables.update(fields=pl.DataFrame({"field": ["{"]})), "the features cannot be used"),
        (fields(lambda told: told.clear()), "expected one or more different names"),
        (lambda p: p.settings.pop("from_text"), "have no 'from_text'"),
        (lambda p: p.settings.update(from_text=1), "from_text is 1"),
        (fields(lambda told: told.pop()), "cannot be used"),
        (fields(lambda told: told.append(3)), "a field is 3"),
        (fields(lambda told: told[2].pop("mean")), "have no 'mean'"),
        (field(0, name=7), "name is 7"),
        (field(0, name="t"), "expected one or more different names"),
        (field(0, kind="image"), "unknown type 'image'"),
        (field(0, kind="numeric", scale="raw", mean=0.0, std=1.0), "numeric field 'k' has 2 values"),
        (field(0, normalize="sum"), "unknown normalize 'sum'"),
        (field(1, separator=""), "separator of field 't' is empty"),
        (field(1, separator=5), "separator is 5"),
        (field(1, n_rare=0), "do not match its columns"),
        (field(1, n_rare=-1), "do not match its columns"),
        (field(1, n_rare=True), "n_rare is True"),
        (field(2, std=0.0), "std 0.0"),
        (field(2, mean=float("nan")), "mean nan"),
        (field(2, mean=10**400), "the features cannot be used"),
        (lambda p: p.tables.update(fields=pl.DataFrame({"field": ["[" * 100_000]})), "the features cannot be used"),
        (field(2, mean="0"), "mean is '0'"),
        (field(2, scale="rank"), "has scale 'rank'"),
        (lambda p: p.tables.pop("ids"), "have no table 'ids'"),
        (lambda p: p.arrays.pop("values"), "have no array 'values'"),
        (table("ids", lambda f: f[:2]), "indptr is"),
        (table("ids", lambda f: f[[0, 0, 1]]), "1 ids are repeated"),
        (table("values", lambda f: f.drop("count")), "has the columns"),
        (table("values", lambda f: f[1:]), "do not match its columns"),
        (table("values", lambda f: pl.concat([f, f[-1:]])), "do not match its columns"),
        (table("values", lambda f: pl.concat([f, f[-1:].with_columns(field=pl.lit(9, pl.Int32))])), "outside 0 … 3"),
        (table("values", lambda f: f.with_columns(pl.lit(0, pl.Int64).alias("count"))), "do not match its columns"),
        (table("values", lambda f: f.with_columns(pl.col("column") + 1)), "do not match its columns"),
        (array("indices", lambda a: a + 100), "the columns go from"),
        (array("indices", lambda a: a[::-1].copy()), "expected rising columns"),
        (array("indices", lambda a: a.astype(np.int64)), "expected int32"),
        (array("values", lambda a: a[1:]), "the values are"),
        (array("values", lambda a: a * np.float32("inf")), "expected finite numbers"),
        (array("indptr", lambda a: a + 1), "the rows go from 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(damage, message):
    parts = made().to_parts()
    parts = type(parts)(copy.deepcopy(parts.settings), dict(parts.arrays), dict(parts.tables))
    damage(parts)
    with pytest.raises(StorageError, match=message):
        sl.Features.from_parts(*parts)


def test_fields_among_the_settings_as_earlier_models_have_them():
    ours = made()
    parts = ours.to_parts("")
    told = [json.loads(line) for line in parts.tables.pop("fields")["field"]]
    assert_same(sl.Features.from_parts(parts.settings | {"fields": told}, parts.arrays, parts.tables, ""), ours)
