"""Features by id: whom they belong to, and how they meet interactions and each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.sparse_rows import csr_error
from shortlist.errors import DataError, SettingError, ShortlistWarning, UnknownIdError

ITEMS = pl.DataFrame({"item": ["tea", "jam", "fig"], "kind": ["dry", None, "fresh"], "price": [1.0, 2.0, None]})
LACKING = {"kind (missing)": 1, "price (missing)": 1}


def test_whole_floats_with_gaps_are_integers_with_gaps(tmp_path):
    frame = pl.DataFrame({"item": [1.0, None, 3.0], "kind": ["a", "b", "c"]})
    frame.write_parquet(tmp_path / "f.parquet")
    for take in (
        lambda **more: sl.Features.from_frame(frame, id="item", **more),
        lambda **more: sl.Features.from_frame(frame.to_pandas(), id="item", **more),
        lambda **more: sl.Features.read(tmp_path / "f.parquet", id="item", **more),
    ):
        assert take(on_bad="drop").dropped == {"'item' are null": 1}
        assert take(on_bad="drop").ids == [1, 3]
        with pytest.raises(DataError, match="null in 1 of 3 rows"):
            take()
    with pytest.raises(DataError, match=r"1 of its numbers are not integers .* \(first: 1\.5\)"):
        sl.Features.from_frame(frame.with_columns(item=pl.Series([1.0, None, 1.5])), id="item", on_bad="drop")


@pytest.fixture
def items():
    return sl.Features.from_frame(ITEMS, id="item")


def row(features, rows, r):
    part = slice(rows.indptr[r], rows.indptr[r + 1])
    return {features.feature_names[c]: x for c, x in zip(rows.indices[part], rows.values[part])}


# --- frames of every make --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f.lazy(),
        lambda f: f.to_dict(as_series=False),
        lambda f: {name: f[name].to_numpy() for name in f.columns},
        lambda f: f.to_pandas(),
        lambda f: f.to_pandas().astype({"item": "category", "kind": "category"}),
        lambda f: f.to_pandas().convert_dtypes(dtype_backend="pyarrow"),
        lambda f: f.to_arrow(),
        lambda f: pa.RecordBatchReader.from_batches(f.to_arrow().schema, f.to_arrow().to_batches()),
        lambda f: f.with_columns(pl.col("item").cast(pl.Categorical)),
    ],
)
def test_any_frame_gives_the_same_features(make, items):
    found = sl.Features.from_frame(make(ITEMS), id="item")
    assert found.ids == ["tea", "jam", "fig"]
    assert repr(found) == repr(items)
    assert [found[one] for one in found.ids] == [items[one] for one in items.ids]


def test_pandas_lists_with_nothing_between_them():
    frame = pd.DataFrame({"id": [1, 2, 3], "tags": [["a", "b"], None, float("nan")]})
    features = sl.Features.from_frame(frame, id="id")
    assert [features[k] for k in (1, 2, 3)] == [{"tags=a": 0.5, "tags=b": 0.5}, *[{"tags (missing)": 1}] * 2]


@pytest.mark.parametrize("names", [["^k", "a*"], ["é", "a b"], ["len", "row"], ["value", "count"]])
def test_names_of_columns_are_only_names(names):
    frame = pl.DataFrame({names[0]: [1, 2], names[1]: ["x", "y"], "kind": ["p", "q"], "column": [0.5, 1.5]})
    features = sl.Features.from_frame(frame, id=names[0], categorical=[names[1], "kind"], numeric="column")
    assert features[1] == {f"{names[1]}=x": 1, "kind=p": 1, "column": -1}
    assert features.encode(frame)[1] == features[1]
    assert len(features.align(sl.Vocabulary.of([2, 1, 3])).cold) == 0
    assert len(features.select("column").join(features.select("kind"))) == 2


# --- one row an id ---------------------------------------------------------------------------------------------------


def test_repeated_ids_are_refused_with_their_count():
    frame = pl.concat([ITEMS, ITEMS[1:], ITEMS[1:2]])
    with pytest.raises(
        DataError,
        match=r"3 of 6 rows .* repeat .* \(first: 'jam'\).*frame.unique\('item', keep='last'\)",
    ):
        sl.Features.from_frame(frame, id="item")
    assert len(sl.Features.from_frame(frame.unique("item", keep="last"), id="item")) == 3


def test_rows_without_an_id_are_refused_or_dropped_and_counted():
    frame = pl.concat([ITEMS, pl.DataFrame({"item": [None, None], "kind": ["odd", "odd"], "price": [9.0, 9.0]})])
    with pytest.raises(DataError, match=r"'item' is null in 2 of 5 rows.*on_bad='drop'"):
        sl.Features.from_frame(frame, id="item")
    features = sl.Features.from_frame(frame, id="item", on_bad="drop")
    assert features.dropped == {"'item' are null": 2}
    assert repr(features).endswith("2 rows dropped")
    assert "kind=odd" not in features.feature_names


@pytest.mark.parametrize("ids", [[1.0, 2.0, 3.0], [True, False, None], [[1], [2], [3]]])
def test_other_types_are_no_ids(ids):
    with pytest.raises(DataError, match=r"column 'item' has type .*; ids are integers or strings"):
        sl.Features.from_frame(ITEMS.with_columns(item=pl.Series(ids)), id="item", on_bad="drop")


# --- in the order of a vocabulary ------------------------------------------------------------------------------------


def test_align_counts_what_does_not_match(items):
    events = sl.Interactions.from_frame({"u": [1, 1, 2], "i": ["ham", "tea", "fig"]}, context="u", item="i")
    aligned = items.align(events.items)
    assert aligned.vocabulary.ids() == ["fig", "ham", "tea"]
    assert [row(items, aligned.rows, r) for r in range(3)] == [items["fig"], LACKING, items["tea"]]
    assert (aligned.n_without, aligned.without) == (1, ["ham"])
    assert aligned.cold.ids == ["jam"]
    assert aligned.cold["jam"] == items["jam"]
    assert row(items, aligned.cold.rows_for(["jam"]), 0) == items["jam"]
    assert [field.n_missing for field in aligned.fields] == [1, 2]
    assert (len(aligned), aligned.n_features, aligned.feature_names) == (3, items.n_features, items.feature_names)
    assert repr(aligned) == (
        "AlignedFeatures(3 ids of i × 5 features, 1 id without features (every field missing), "
        "1 cold row (ids not in the vocabulary))"
    )
    grown = items.align(events.extend(items=aligned.cold.ids).items)
    assert grown.n_without == 1
    assert len(grown.cold) == 0


@given(
    st.lists(st.integers(0, 30), unique=True, min_size=1),
    st.lists(st.integers(0, 30), unique=True, min_size=1),
    st.sampled_from([pl.Int64, pl.UInt8, pl.String]),
)
def test_align_loses_nothing(ours, theirs, dtype):
    theirs = [*theirs, ours[0]] if ours[0] not in theirs else theirs
    frame = pl.DataFrame({"i": pl.Series(ours).cast(dtype), "x": [float(one) for one in ours]})
    features = sl.Features.from_frame(frame, id="i", numeric={"x": "raw"})
    vocabulary = sl.Vocabulary.of(pl.Series(theirs).cast(pl.String if dtype == pl.String else pl.Int32))
    aligned = features.align(vocabulary)
    assert csr_error(aligned.rows, len(theirs)) is None
    for r, one in enumerate(theirs):
        assert row(features, aligned.rows, r) == ({"x": one} if one in ours else {"x (missing)": 1})
    assert sorted(map(int, aligned.without)) == sorted(set(theirs) - set(ours))
    assert [int(one) for one in aligned.cold.ids] == [one for one in ours if one not in theirs]
    for one, number in zip(aligned.cold.ids, (one for one in ours if one not in theirs)):
        assert aligned.cold[one] == {"x": number}


def test_integers_and_text_never_meet_in_silence():
    features = sl.Features.from_frame({"sku": ["7", "8"], "k": ["a", "b"]}, id="sku")
    with pytest.raises(
        DataError,
        match=r"ids of 'sku' are text here \(such as '7'\) but integers \(Int64\) in the vocabulary \(such as 7\).*"
        r"pl.col\('sku'\).cast\(pl.Int64\)",
    ):
        features.align(sl.Vocabulary.of([7, 8]))
    features = sl.Features.from_frame({"sku": [7, 8], "k": ["a", "b"]}, id="sku")
    with pytest.raises(
        DataError, match=r"are integers \(Int64\) here .* but text in the vocabulary.*cast\(pl.String\)"
    ):
        features.align(sl.Vocabulary.of(["7", "8"]))
    with pytest.raises(UnknownIdError, match=r"unknown id '7'.*of type int, such as 7"):
        features["7"]
    with pytest.raises(SettingError, match=r"expected a vocabulary such as events.items.* got list"):
        features.align([7])


def test_no_match_at_all_is_worth_a_warning(items):
    with pytest.warns(ShortlistWarning, match=r"none of the 1 ids of the vocabulary \(such as 'x'\) has features"):
        aligned = items.align(sl.Vocabulary.of(["x"]))
    assert (aligned.n_without, len(aligned.cold)) == (1, 3)
    assert len(items.align(sl.Vocabulary.of(pl.Series([], dtype=pl.Int64))).cold) == 3


def test_tuples():
    frame = {"day": ["mo", "tu", "mo"], "user": [1, 1, 2], "rain": [True, False, None]}
    features = sl.Features.from_frame(frame, id=["user", "day"], categorical=["rain", "day"])
    assert features.ids == [(1, "mo"), (1, "tu"), (2, "mo")]
    assert features[2, "mo"] == {"rain (missing)": 1, "day=mo": 1}
    assert sl.Features.from_frame(frame, id=["user", "day"]).feature_names == (
        "rain=false",
        "rain=true",
        "rain (missing)",
    )
    events = {"d": ["tu", "we"], "u": [1, 1], "day": ["tu", "we"], "user": [1, 1], "i": [5, 5]}
    for context in (
        ["user", "day"],
        ["day", "user"],
        ["u", "d"],
    ):  # by name where the names are the same, else by place
        aligned = features.align(sl.Interactions.from_frame(events, context=context, item="i").contexts)
        assert row(features, aligned.rows, 0) == features[1, "tu"]
        assert aligned.n_without == 1
        assert aligned.cold.ids == [(1, "mo"), (2, "mo")]
    with pytest.raises(DataError, match=r"ids have 2 columns here \(user, day\) but 1 in the vocabulary \(i\)"):
        features.align(sl.Vocabulary.of([1], "i"))
    twice = {name: [*values, values[0]] for name, values in frame.items()}
    with pytest.raises(DataError, match=r"1 of 4 rows .* repeats .* \(first: \(1, 'mo'\)\).*unique\(\['user', 'day'\]"):
        sl.Features.from_frame(twice, id=["user", "day"])


# --- by id -----------------------------------------------------------------------------------------------------------


def test_rows_for_ids(items):
    rows = items.rows_for(["fig", "tea", "fig"])
    assert [row(items, rows, r) for r in range(3)] == [items["fig"], items["tea"], items["fig"]]
    with pytest.raises(
        UnknownIdError,
        match=r"unknown id 'ham' \(1 of 2 ids is unknown.*pass unknown='missing'",
    ):
        items.rows_for(["tea", "ham"])
    rows = items.rows_for(["ham", "tea"], unknown="missing")
    assert [row(items, rows, r) for r in range(2)] == [LACKING, items["tea"]]
    assert items.rows_for([]).n_rows == 0
    with pytest.raises(SettingError, match=r"write \['tea'\]"):
        items.rows_for("tea")


@pytest.mark.parametrize("text", [True, False])
def test_rows_for_ids_in_a_frame(tmp_path, text):
    table = pl.DataFrame({"user": [1, 1, 2], "day": ["sat", "sun", "sat"], "x": ["a", "b", "c"]})
    if text:
        table.write_csv(tmp_path / "x.csv")
        features = sl.Features.read(tmp_path / "x.csv", id=["user", "day"])
    else:
        features = sl.Features.from_frame(table, id=["user", "day"])
    asked = pl.DataFrame({"day": ["sun", "sat", "mon"], "user": [1, 2, 1]})  # the names say which is which
    rows = features.rows_for(asked, unknown="missing")
    assert [row(features, rows, r) for r in range(3)] == [{"x=b": 1}, {"x=c": 1}, {"x (missing)": 1}]
    with pytest.raises(UnknownIdError, match=r"unknown id \(1, 'mon'\) \(1 of 3 .* pass unknown='missing'"):
        features.rows_for(asked)
    with pytest.raises(DataError, match=r"ids have 2 columns here .* but 1 in the frame"):
        features.rows_for(asked.select("user"))
    assert features.rows_for(asked.clear()).n_rows == 0


def test_rows_for_ids_of_other_types_in_a_frame(tmp_path, items):
    (tmp_path / "x.csv").write_text("id,x\n7,a\n8,b\n")
    features = sl.Features.read(tmp_path / "x.csv", id="id")
    for ids in (pl.Series(["8", "7"]), pl.Series([8, 7], dtype=pl.UInt8), pl.Series(["8", "7"], dtype=pl.Categorical)):
        rows = features.rows_for(ids.alias("sku").to_frame())
        assert [row(features, rows, r) for r in range(2)] == [{"x=b": 1}, {"x=a": 1}]
    with pytest.raises(DataError, match="column 'id' of the frame has type Float64; ids are integers or strings"):
        features.rows_for(pl.DataFrame({"id": [7.0]}))
    with pytest.raises(DataError, match=r"ids of 'item' are text here .* but integers \(Int64\) in the frame"):
        items.rows_for(pl.DataFrame({"item": [7]}))


def test_to_csr(items):
    matrix, ids, names = items.to_csr()
    assert matrix.shape == (3, 5)
    assert (ids, names) == (["tea", "jam", "fig"], list(items.feature_names))
    assert names == ["kind=dry", "kind=fresh", "kind (missing)", "price", "price (missing)"]
    np.testing.assert_array_equal(matrix.toarray(), [[1, 0, 0, -1, 0], [0, 0, 1, 1, 0], [0, 1, 0, 0, 1]])
    matrix.data[:] = 9
    assert items["tea"] == {"kind=dry": 1, "price": -1}


def test_nothing_can_be_replaced(items):
    for name in ("rows", "fields", "ids", "vocabulary", "n_features"):
        with pytest.raises(AttributeError):
            setattr(items, name, None)
    with pytest.raises(AttributeError):
        items.fields[0].name = "other"
    items.ids.clear()
    items.dropped["x"] = 1
    assert len(items.ids) == 3
    assert not items.dropped


# --- select and join -------------------------------------------------------------------------------------------------


def test_select(items):
    part = items.select(["price", "kind"])
    assert part.feature_names == ("price", "price (missing)", "kind=dry", "kind=fresh", "kind (missing)")
    assert all(part[one] == items[one] for one in items.ids)
    assert csr_error(part.rows, 3) is None
    assert items.select("price").feature_names == ("price", "price (missing)")
    assert [field.n_missing for field in part.fields] == [1, 1]
    assert items.select("price").encode({"item": ["x"], "price": [3.0]})["x"] == {"price": 3}
    for wrong, message in (
        (["size"], "unknown field 'size'; the fields are 'kind', 'price'"),
        ([], "one or more names"),
    ):
        with pytest.raises(SettingError, match=message):
            items.select(wrong)
    with pytest.raises(SettingError, match="each once"):
        items.select(["kind", "kind"])


@given(st.lists(st.integers(0, 9), unique=True, min_size=1), st.lists(st.integers(0, 9), unique=True, min_size=1))
def test_join_keeps_everybody(left, right):
    a = sl.Features.from_frame({"i": left, "x": [f"v{one % 3}" for one in left]}, id="i")
    b = sl.Features.from_frame({"j": right, "y": [f"w{one % 2}" for one in right]}, id="j")
    both = a.join(b)
    assert both.ids == left + [one for one in right if one not in left]
    assert both.feature_names == a.feature_names + b.feature_names
    assert csr_error(both.rows, len(both)) is None
    for one in both.ids:
        expected = a[one] if one in left else {"x (missing)": 1}
        assert both[one] == expected | (b[one] if one in right else {"y (missing)": 1})
    assert [field.n_missing for field in both.fields] == [len(both) - len(left), len(both) - len(right)]
    assert all(both.select("x")[one] == a[one] for one in left)


@pytest.mark.parametrize(
    "types", [(pl.Int8, pl.Int64), (pl.UInt32, pl.Int16), (pl.Int64, pl.UInt64), (pl.UInt64, pl.Int8)]
)
def test_integers_of_any_width_meet(types):
    large = 300 if types[1] in (pl.Int64, pl.Int16) else 3
    a = sl.Features.from_frame({"i": pl.Series([1, 2], dtype=types[0]), "x": ["a", "b"]}, id="i")
    b = sl.Features.from_frame({"i": pl.Series([2, large], dtype=types[1]), "y": ["c", "d"]}, id="i")
    both = a.join(b)
    assert both.ids == [1, 2, large]
    assert both[2] == {"x=b": 1, "y=c": 1}
    assert a.align(b.vocabulary).without == [large]
    assert b.align(a.vocabulary).cold.ids == [large]


@pytest.mark.parametrize("small", [1, -1])
def test_integers_that_fill_their_types_meet(small):
    """No type of 64 bits holds both −1 and 2⁶⁴ − 1."""
    large = 2**64 - 1
    a = sl.Features.from_frame({"i": pl.Series([small, 7], dtype=pl.Int64), "x": ["a", "b"]}, id="i")
    b = sl.Features.from_frame({"i": pl.Series([7, large], dtype=pl.UInt64), "y": ["c", "d"]}, id="i")
    for one, other, ids in ((a, b, [small, 7, large]), (b, a, [7, large, small])):
        both = one.join(other)
        assert both.ids == ids
        assert both[7] == {"x=b": 1, "y=c": 1}
        assert both[large] == {"x (missing)": 1, "y=d": 1}
        again = sl.Features.from_parts(*both.to_parts())
        assert again.ids == ids
    assert a.align(b.vocabulary).without == [large]
    assert b.align(a.vocabulary).cold.ids == [large]


def test_join_refuses_what_cannot_be_told_apart(items):
    with pytest.raises(SettingError, match="both have the field 'kind'; rename the column, or drop one with select"):
        items.join(items.select("kind"))
    with pytest.raises(DataError, match=r"ids of 'item' are text here .* in the other features"):
        items.join(sl.Features.from_frame({"item": [1], "x": [1]}, id="item"))
    with pytest.raises(DataError, match="'kind' and 'kind=dry' could have the same name"):
        items.join(sl.Features.from_frame({"item": ["tea"], "kind=dry": [1]}, id="item"))
    with pytest.raises(SettingError, match="expected Features, got DataFrame"):
        items.join(ITEMS)
