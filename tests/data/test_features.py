"""Features against a slow reference, and the laws that hold between them."""

from __future__ import annotations

import datetime as dt
import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shortlist as sl
from shortlist.data.features.feature_spec import refuse_like_names
from shortlist.data.sparse_rows import csr_error
from shortlist.errors import DataError, SettingError, ShortlistError

WEIRD = ["", " ", "a", "b", "b=c", "(missing)", "(rare)", "=", "é", "e\u0301", "日本", "a|b", "x" * 500, "null", "\x00"]
VALUES = st.none() | st.sampled_from(WEIRD) | st.text(max_size=3)
# In thousandths: numbers that hardly differ would make the others too far away to be scaled, which is refused.
NUMBERS = st.none() | st.just(math.nan) | st.integers(-(10**9), 10**9).map(lambda n: n / 1000)
ROW = st.tuples(VALUES, st.none() | st.lists(VALUES, max_size=4), NUMBERS)
SCHEMA = {"id": pl.Int64, "kind": pl.String, "tags": pl.List(pl.String), "size": pl.Float64}


def frame_of(rows):
    return pl.DataFrame([(k, *row) for k, row in enumerate(rows)], schema=SCHEMA, orient="row")


def everything(frame, **options):
    return sl.Features.from_frame(
        frame, id="id", categorical=["kind"], multi_valued=["tags"], numeric=["size"], **options
    )


def dense(features):
    return {one: features[one] for one in features.ids}


def assert_same(a, b):
    assert a.ids == b.ids
    assert a.feature_names == b.feature_names
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(a.rows, name), getattr(b.rows, name))
    assert [(f.name, f.kind, f.columns, f.n_missing, str(f)) for f in a.fields] == [
        (f.name, f.kind, f.columns, f.n_missing, str(f)) for f in b.fields
    ]


# --- the slow reference ----------------------------------------------------------------------------------------------


def reference(rows, min_count, normalize):
    """Feature by feature, in plain Python."""
    cells = [[v for v in dict.fromkeys([row[0]]) if v] for row in rows]
    lists = [[v for v in dict.fromkeys(row[1] or []) if v] for row in rows]
    numbers = [row[2] for row in rows if row[2] is not None and not math.isnan(row[2])]
    mean = sum(numbers) / len(numbers) if numbers else 0.0
    std = math.sqrt(sum((x - mean) ** 2 for x in numbers) / len(numbers)) if numbers else 1.0
    if len(set(numbers)) == 1:
        mean, std = numbers[0], 1.0

    def names(field, values, column):
        counts = {v: sum(v in other for other in column) for v in values}
        return list(dict.fromkeys(f"{field}={v}" if counts[v] >= min_count else f"{field} (rare)" for v in values))

    out = {}
    for k, row in enumerate(rows):
        found = dict.fromkeys(names("kind", cells[k], cells) or ["kind (missing)"], 1.0)
        tags = names("tags", lists[k], lists) or ["tags (missing)"]
        weight = {"sum": 1 / len(tags), "norm": 1 / math.sqrt(len(tags)), None: 1.0}[normalize]
        found |= dict.fromkeys(tags, weight)
        if row[2] is None or math.isnan(row[2]):
            found["size (missing)"] = 1.0
        else:
            found["size"] = (row[2] - mean) / (std or 1.0)
        out[k] = found
    return out


@settings(max_examples=120)
@given(st.lists(ROW, min_size=1, max_size=12), st.integers(1, 3), st.sampled_from(["sum", "norm", None]))
def test_every_entry_is_the_reference_s(rows, min_count, normalize):
    features = everything(frame_of(rows), min_count=min_count, normalize=normalize)
    expected = reference(rows, min_count, normalize)
    found = dense(features)
    for one, row in expected.items():
        assert found[one].keys() == row.keys()
        assert found[one] == pytest.approx(row, rel=1e-4, abs=1e-4)
    assert csr_error(features.rows, len(rows)) is None
    assert features.rows.values.dtype == np.float32
    assert len(set(features.feature_names)) == features.n_features
    for field in features.fields:
        assert list(features.feature_names[field.columns]) == field.feature_names
        assert features.feature_names[field.missing] == f"{field.name} (missing)"
        assert field.n_missing == sum(f"{field.name} (missing)" in row for row in expected.values())
    values = {v for row in rows for v in [row[0]] if v}
    assert {n for n in features.fields[0].feature_names if n.startswith("kind=")} == {
        f"kind={v}" for v in values if sum(row[0] == v for row in rows) >= min_count
    }


@settings(max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=12), st.integers(1, 3), st.randoms())
def test_rows_do_not_depend_on_their_order(rows, min_count, random):
    frame = frame_of(rows)
    features = everything(frame, min_count=min_count)
    shuffled = everything(frame[random.sample(range(len(rows)), len(rows))], min_count=min_count)
    assert shuffled.feature_names == features.feature_names
    for one in features.ids:
        assert shuffled[one] == pytest.approx(features[one], abs=1e-4)


@settings(max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=12), st.lists(ROW, max_size=8), st.integers(1, 3))
def test_encoding_the_same_rows_again_changes_nothing(rows, others, min_count):
    features = everything(frame_of(rows), min_count=min_count)
    assert_same(features.encode(frame_of(rows)), features)
    more = frame_of(others)
    encoded = features.encode(more.with_columns(pl.col("size") * 0.5), unknown="missing")
    assert encoded.feature_names == features.feature_names
    assert encoded.ids == list(range(len(others)))
    known = {v for row in rows if (v := row[0])}
    unseen = [k for k, row in enumerate(others) if row[0] and row[0] not in known]
    assert encoded.unknown.get("kind", 0) == len(unseen)
    assert all("kind (missing)" in encoded[k] for k in unseen)


@given(st.lists(st.text("ab= ", min_size=1, max_size=4), unique=True, min_size=1, max_size=6), st.booleans())
def test_names_that_could_be_told_apart_no_more(names, end):
    if end and f"{names[0]} (rare)" not in names:
        names = [*names, f"{names[0]} (rare)"]
    pairs = [(a, b) for a in names for b in names if b.startswith(f"{a}=") or b in (f"{a} (rare)", f"{a} (missing)")]
    if not pairs:
        refuse_like_names(names)
        return
    with pytest.raises(DataError) as caught:
        refuse_like_names(names)
    assert any(f"features of columns {a!r} and {b!r} could have the same name" in str(caught.value) for a, b in pairs)


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_kinds_are_inferred_where_none_is_named():
    frame = pl.DataFrame(
        {
            "id": [1, 2],
            "text": ["a", None],
            "flag": [True, False],
            "day": pl.Series(["2020-01-01", None]).str.to_date(),
            "cat": pl.Series(["x", "y"], dtype=pl.Categorical),
            "tags": [["p"], ["p", "q"]],
            "whole": [3, 4],
            "real": [0.5, None],
            "nothing": [None, None],
        }
    )
    features = sl.Features.from_frame(frame, id="id")
    assert [(f.name, f.kind) for f in features.fields] == [
        *(("text", "categorical"), ("flag", "categorical"), ("day", "categorical"), ("cat", "categorical")),
        *(("tags", "multi_valued"), ("whole", "numeric"), ("real", "numeric"), ("nothing", "categorical")),
    ]
    assert features[1] == {
        **{"text=a": 1, "flag=true": 1, "day=2020-01-01": 1, "cat=x": 1, "tags=p": 1, "whole": -1, "real": 0},
        "nothing (missing)": 1,
    }
    assert repr(features).splitlines()[-1].split() == ["nothing", "categorical", "1", "2"]
    with pytest.raises(DataError, match=r"cannot infer .* column 'when' of type Datetime.*ignore='when'"):
        sl.Features.from_frame(frame.with_columns(when=pl.datetime(2020, 1, 1)), id="id")
    with pytest.raises(DataError, match="no columns besides the id"):
        sl.Features.from_frame(frame.select("id"), id="id")


TABLE = {"id": [1, 2], "a": ["x", "y"], "b": [1, 2], "c": [["p"], []]}


@pytest.mark.parametrize(
    ("named", "kinds"),
    [
        ({}, {"a": "categorical", "b": "numeric", "c": "multi_valued"}),
        ({"multi_valued": "c"}, {"a": "categorical", "b": "numeric", "c": "multi_valued"}),
        ({"multi_valued": {"a": "|"}}, {"a": "multi_valued", "b": "numeric", "c": "multi_valued"}),
        ({"categorical": "b"}, {"a": "categorical", "b": "categorical", "c": "multi_valued"}),
        ({"numeric": {"b": "log"}}, {"a": "categorical", "b": "numeric", "c": "multi_valued"}),
        ({"multi_valued": "c", "ignore": ["a"]}, {"b": "numeric", "c": "multi_valued"}),
    ],
)
def test_naming_a_column_says_its_kind_and_drops_no_other(named, kinds):
    assert {field.name: field.kind for field in sl.Features.from_frame(TABLE, id="id", **named).fields} == kinds


def test_ignored_columns_are_left_out_and_shown():
    features = sl.Features.from_frame(TABLE, id="id", ignore=["b", "c"])
    assert features.feature_names == ("a=x", "a=y", "a (missing)")
    assert repr(features).endswith("columns not used: b, c")
    for wrong, message in [
        ({"ignore": "d"}, "no column 'd'"),
        ({"ignore": "id"}, "named in ignore and as the id"),
        ({"ignore": "a", "categorical": "a"}, "named in ignore and as categorical"),
        ({"ignore": ["a", "b", "c"]}, "no columns besides the id"),
    ]:
        with pytest.raises(ShortlistError, match=message):
            sl.Features.from_frame(TABLE, id="id", **wrong)


VECTORS = [[0.25, -1.5, 3.0], [1.0, 0.0, 2.0]]


@pytest.mark.parametrize(
    "vectors",
    [
        pl.Series(VECTORS),
        pl.Series(VECTORS, dtype=pl.Array(pl.Float32, 3)),
        VECTORS,
        np.array(VECTORS),
        np.array(VECTORS, dtype=np.float16),
        [VECTORS[0], None],
    ],
    ids=["list", "array", "lists", "matrix", "half", "gap"],
)
@pytest.mark.parametrize(
    "make", [dict, pl.DataFrame, pd.DataFrame, pa.table], ids=["dict", "polars", "pandas", "arrow"]
)
def test_lists_of_floats_are_refused_with_a_way_out_that_works(make, vectors):
    if make in (pd.DataFrame, pa.table):
        vectors = [None if one is None else np.array(one) for one in vectors]
    frame = make({"id": [1, 2], "v": vectors})
    for named in ({}, {"multi_valued": "v"}, {"categorical": "v"}, {"numeric": "v"}):
        with pytest.raises(
            DataError, match="column 'v' holds lists of floats; dense vectors are not supported"
        ) as told:
            sl.Features.from_frame(frame, id="id", **named)
    advice = re.search(r"frame\.with_columns\(.*\)\.drop\('v'\)", str(told.value))[0]
    apart = eval(advice, {"pl": pl, "frame": pl.DataFrame(frame)})  # noqa: S307  # what the message says
    assert [one.name for one in sl.Features.from_frame(apart, id="id").fields] == ["v0", "v1", "v2"]
    with pytest.raises(DataError, match="no columns besides the id"):
        sl.Features.from_frame(frame, id="id", ignore="v")


def test_objects_of_pandas_without_arrow_may_be_vectors():
    cells = np.empty(2, object)
    cells[:] = [np.array(one) for one in VECTORS]
    with pytest.raises(DataError, match="dense vectors are not supported"):
        sl.Features.from_frame({"id": [1, 2], "v": cells}, id="id")


def test_lists_of_whole_floats_are_values_where_they_are_named():
    frame = pl.DataFrame({"id": [1, 2], "tags": [[7.0, 8.0], [8.0, None]]})
    assert sl.Features.from_frame(frame, id="id", multi_valued="tags")[2] == {"tags=8": 1}
    with pytest.raises(DataError, match="dense vectors"):
        sl.Features.from_frame(frame, id="id")


def test_settings_for_kinds_that_are_not_there_are_refused():
    frame = {"id": [1, 2], "a": [1, 2]}
    with pytest.raises(SettingError, match="min_count is 5, but there are no categorical or multi-valued columns"):
        sl.Features.from_frame(frame, id="id", min_count=5)
    for normalize in ("norm", None):
        with pytest.raises(SettingError, match="but there are no multi-valued columns"):
            sl.Features.from_frame(frame, id="id", normalize=normalize)


@pytest.mark.parametrize(
    "values",
    [
        pl.Series([3, None, 4], dtype=pl.Int8),
        pl.Series([3.0, float("nan"), 4.0]),
        pl.Series([3.0, None, 4.0], dtype=pl.Float32),
        pl.Series(["3", "", "4"]),
        pl.Series(["3", None, "4"], dtype=pl.Categorical),
    ],
    ids=lambda s: str(s.dtype),
)
def test_whole_numbers_are_spelled_alike_whatever_their_type(values):
    features = sl.Features.from_frame({"id": [1, 2, 3], "shelf": values}, id="id", categorical="shelf")
    assert features.feature_names == ("shelf=3", "shelf=4", "shelf (missing)")
    assert features[2] == {"shelf (missing)": 1}
    others = {"id": [9], "shelf": [4.0]}
    assert features.encode(others)[9] == {"shelf=4": 1}


def test_floats_that_are_not_whole_or_huge_keep_their_digits():
    values = [0.5, -0.0, 1e300, 2.0**60, -7.0]
    features = sl.Features.from_frame({"id": range(5), "x": values}, id="id", categorical="x")
    assert {"x=0.5", "x=0", "x=-7"} <= set(features.feature_names)
    assert features.n_features == 6


def test_texts_are_split_and_trimmed():
    cells = ["Drama| War", "War|War|", "||", None, " ", "Drama"]
    features = sl.Features.from_frame({"id": range(6), "g": cells}, id="id", multi_valued={"g": "|"})
    assert features.feature_names == ("g=Drama", "g=War", "g (missing)")
    assert [features[k] for k in range(6)] == [
        *({"g=Drama": 0.5, "g=War": 0.5}, {"g=War": 1}),
        *[{"g (missing)": 1}] * 3,
        {"g=Drama": 1},
    ]
    with pytest.raises(DataError, match=r"'g' is text; expected lists.*multi_valued=\{'g': '\|'\}"):
        sl.Features.from_frame({"id": range(6), "g": cells}, id="id", multi_valued=["g"])


def test_rare_values_share_a_feature_and_are_counted():
    tags = [["a", "b"], ["a", "c", "d"], ["c"], ["e", "f"]]
    frame = {"id": range(4), "t": tags, "k": ["x", "x", "y", "z"]}
    features = sl.Features.from_frame(frame, id="id", multi_valued="t", categorical="k", min_count={"t": 2})
    field = features.fields[1]
    assert (field.n_rare, features.fields[0].n_rare) == (4, 0)
    assert features[1] == pytest.approx({"k=x": 1, "t=a": 1 / 3, "t=c": 1 / 3, "t (rare)": 1 / 3})
    assert features[3] == {"k=z": 1, "t (rare)": 1}
    assert dict(field.values.select("value", "count").rows()) == {"a": 2, "b": 1, "c": 2, "d": 1, "e": 1, "f": 1}


# --- numbers ---------------------------------------------------------------------------------------------------------


def numeric(values, scale="standard", **options):
    frame = pl.DataFrame({"id": range(len(values)), "x": pl.Series(values, strict=False)})
    return sl.Features.from_frame(frame, id="id", numeric={"x": scale}, **options)


def column(features, name="x"):
    return [features[one].get(name) for one in features.ids]


def test_numbers_are_standardised_and_missing_ones_marked():
    features = numeric([1.0, 3.0, None, math.nan])
    assert column(features) == [-1, 1, None, None]
    assert column(features, "x (missing)") == [None, None, 1, 1]
    assert (features.fields[0].mean, features.fields[0].std, features.fields[0].n_missing) == (2, 1, 2)
    assert column(features.encode({"id": [7], "x": [5]})) == [3]
    assert column(numeric([0.0, math.e - 1, (math.e - 1)], "log")) == pytest.approx([-math.sqrt(2), *[0.5**0.5] * 2])
    assert column(numeric([3, 5, None], "raw")) == [3, 5, None]
    assert column(numeric([True, False, None])) == [1, -1, None]


def test_constant_numbers_are_only_shifted():
    features = numeric([0.1] * 7)  # whose mean is not 0.1 in floating point
    assert column(features) == [0] * 7
    assert column(features.encode({"id": [1], "x": [1.1]})) == pytest.approx([1])
    assert column(numeric([0.0, 5e-324, 0.0])) == pytest.approx([0, 0, 0])


def test_a_column_in_which_everything_is_missing():
    frame = pl.DataFrame({"id": [1, 2], "a": [None, ""], "b": [[], None], "c": [math.nan, None], "d": [None, None]})
    features = sl.Features.from_frame(frame, id="id", categorical="a", multi_valued=["b"], numeric=["c", "d"])
    marks = {"a (missing)": 1, "b (missing)": 1, "c (missing)": 1, "d (missing)": 1}
    assert features[1] == features[2] == marks
    assert [field.n_missing for field in features.fields] == [2, 2, 2, 2]
    assert features.encode({"id": [3], "a": ["q"], "b": [["r"]], "c": [1.0], "d": [2.0]}, unknown="missing")[3] == {
        **{"a (missing)": 1, "b (missing)": 1, "c": 1, "d": 2}
    }


@pytest.mark.parametrize(
    ("values", "scale", "message"),
    [
        ([1.0, math.inf, -math.inf], "standard", r"is infinite or too large in 2 of 3 rows \(first: row 2, inf\)"),
        ([1e39, 1.0], "raw", r"is infinite or too large in 1 of 2 rows \(first: row 1, 1e\+39\)"),
        ([1.0, -0.5], "log", r"is negative in 1 of 2 rows \(first: row 2, -0.5\); scale 'log' needs numbers ≥ 0"),
        (["1", "2"], "standard", "column 'x' has type String; a numeric column holds numbers"),
    ],
)
def test_numbers_that_cannot_be_used_are_refused(values, scale, message):
    with pytest.raises(DataError, match=message):
        numeric(values, scale)


def test_a_number_too_far_from_the_others_is_refused():
    features = numeric([0.0, 1e-30])
    with pytest.raises(DataError, match=r"holds 1e\+20 \(row 1\); scaled .* it does not fit float32"):
        features.encode({"id": [1], "x": [1e20]})


# --- what others may know --------------------------------------------------------------------------------------------


def test_unknown_values_are_an_error_or_missing():
    features = sl.Features.from_frame(
        {"id": [1, 2], "k": ["a", "b"], "t": [["p"], ["q"]]}, id="id", categorical="k", multi_valued="t"
    )
    others = {"id": [7, 8, 9], "k": ["a", "z", None], "t": [["p", "y", "x"], ["q"], ["y"]]}
    with pytest.raises(DataError, match=r"'k': 1 of 3 rows hold an unknown value \(first: 'z'\); pass unknown"):
        features.encode(others)
    encoded = features.encode(others, unknown="missing")
    assert encoded[7] == {"k=a": 1, "t=p": 0.5, "t (missing)": 0.5}
    assert encoded[8] == {"k (missing)": 1, "t=q": 1}
    assert encoded[9] == {"k (missing)": 1, "t (missing)": 1}
    assert encoded.unknown == {"k": 1, "t": 2}
    assert "unknown values, marked as missing: k in 1 row, t in 2 rows" in repr(encoded)
    assert encoded.select("t").unknown == {"t": 2}
    with pytest.raises(DataError, match="no column 't'; columns found: 'id', 'k'"):
        features.encode({"id": [1], "k": ["a"]})
    with pytest.raises(SettingError, match="unknown is 'skip'; expected one of 'raise', 'missing'"):
        features.encode(others, unknown="skip")


def test_nobody_new_is_no_error_but_nothing_to_learn_from_is():
    features = everything(frame_of([("a", ["b"], 1.0)]))
    for empty in (frame_of([]), {"id": [], "kind": [], "tags": [], "size": []}, frame_of([]).to_pandas()):
        nobody = features.encode(empty)
        assert len(nobody) == len(nobody.rows) == 0
        assert nobody.feature_names == features.feature_names
        with pytest.raises(DataError, match="has no rows"):
            everything(empty)
    with pytest.raises(DataError, match="has no rows with an id"):
        everything(frame_of([("a", ["b"], 1.0)]).with_columns(id=pl.lit(None, pl.Int64)), on_bad="drop")


# --- what is said wrongly --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"id": []}, r"id is \[\]; expected the name of a column"),
        ({"id": 3}, "id is 3; expected the name of a column"),
        ({"id": ["a", "a"]}, "name each column once"),
        ({"categorical": "id"}, "'id' is both the id and categorical; remove it from categorical=: .* an embedding"),
        ({"categorical": "a", "numeric": ["a"]}, "'a' is named twice, as categorical and as numeric"),
        ({"categorical": 5}, "categorical is 5; expected names of columns"),
        ({"numeric": [5]}, r"numeric is \[5\]; expected names of columns"),
        ({"numeric": {"b": "rank"}}, r"numeric\['b'\] is 'rank'; expected one of 'standard', 'log', 'raw'"),
        ({"multi_valued": {"a": ""}}, r"multi_valued\['a'\] is ''; expected a separator"),
        ({"categorical": "a", "min_count": 0}, "min_count is 0; expected an integer ≥ 1"),
        ({"categorical": "a", "min_count": {"b": 2}}, "min_count names 'b', which is not a categorical"),
        ({"normalize": "max"}, "normalize is 'max'; expected one of 'sum', 'norm'"),
        ({"on_bad": "skip"}, "on_bad is 'skip'; expected one of 'raise', 'drop'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(SettingError, match=message):
        sl.Features.from_frame({"id": [1], "a": ["x"], "b": [1]}, **{"id": "id"} | options)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        ({"id": [1], "a": ["x"]}, {"categorical": "c"}, "no column 'c'; columns found: 'id', 'a'"),
        ({"id": [1], "^a$": ["x"]}, {}, "as a pattern; rename the column"),
        ({"id": [1], "a": [["x"]]}, {"categorical": "a"}, r"type List\(String\).*for lists use multi_valued="),
        (
            {"id": [1], "a": [dt.timedelta(1)]},
            {"categorical": "a"},
            r"type Duration.*; a categorical column holds",
        ),
        ({"id": [1], "a": [[dt.timedelta(1)]]}, {"multi_valued": "a"}, r"type Duration.*; a categorical column holds"),
        ({"id": [1], "a": [3]}, {"multi_valued": "a"}, "type Int64; a multi-valued column holds lists"),
        ({"id": [1], "a": ["x"], "a=b": [1]}, {}, "columns 'a' and 'a=b' could have the same name"),
        ({"id": [1], "a": ["x"], "a (missing)": [1]}, {}, "could have the same name"),
        ({"id": [1, 2], "a": ["x"]}, {}, "the columns differ in length"),
        ({"id": [1, 2], "a": ["x", 1]}, {}, "column 'a' mixes types"),
        ([1, 2], {}, "expected a frame with named columns .* got list; for a file use Features.read"),
        (object(), {}, "cannot read features from object"),
        (pd.DataFrame({"id": [1, 2], "a": ["x", 1]}), {}, r"'a' mixes types or holds objects \(int, str\)"),
        (pd.DataFrame({"a": ["x"]}, index=pd.Index([1], name="id")), {}, "it is in the index: call reset_index"),
        (pd.DataFrame({"id": [1], 5: ["x"]}), {}, "a column is called 5; names must be text"),
    ],
)
def test_frames_that_make_no_sense_are_refused(frame, options, message):
    with pytest.raises(DataError, match=message):
        sl.Features.from_frame(frame, id="id", **options)
