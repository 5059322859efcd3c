from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import vocabulary
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError, SettingError, UnknownIdError
from shortlist.storage import StoredModel, load_model, save_model

INTS = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(
    st.lists(INTS, min_size=1, max_size=30, unique=True),
    st.lists(st.text(max_size=6), min_size=1, max_size=30, unique=True),
    st.lists(st.tuples(INTS, st.text(max_size=3)), min_size=1, max_size=30, unique=True),
)


@pytest.fixture(scope="module", params=["dictionary", "index"], autouse=True)
def way(request):
    """Run every test as for a small and as for a large vocabulary."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "index":
            patch.setattr(vocabulary, "_SMALL", -1)
            patch.setattr(vocabulary, "_FEW", 1 << 30)  # any number of ids is few
        yield request.param


def of(ids):
    return Vocabulary.of(ids, ["a", "b"] if isinstance(ids[0], tuple) else "a")


def many(ids, n=vocabulary._JOIN_FROM):
    """Enough of them for the hash join."""
    return (ids * (n // len(ids) + 1))[: n + 1]


@settings(max_examples=80, deadline=None)
@given(IDS, st.randoms())
def test_ids_come_back_and_codes_are_their_places(ids, random):
    v = of(ids)
    assert v.ids() == ids == list(v)
    assert len(v) == len(ids)
    assert all(type(a) is type(b) for a, b in zip(v.ids(), ids))
    shuffled = random.sample(ids, len(ids))
    assert v.encode(shuffled).tolist() == [ids.index(one) for one in shuffled]
    assert v.ids(v.encode(shuffled)) == shuffled
    assert v.encode(v.frame).tolist() == list(range(len(ids)))


@settings(max_examples=30, deadline=None)
@given(IDS, IDS)
def test_join_and_dictionary_agree_on_anything(ids, asked):
    v = of(ids)
    asked = [*asked, ids[0], None, 1.0, True, np.True_, "x", b"x", ("x",), (1.0, "x"), 2**80, object]
    expected = [ids.index(one) if type(one) is type(ids[0]) and one in ids else -1 for one in asked]
    assert v.encode(asked, unknown="mark").tolist() == expected
    assert v.encode(many(asked), unknown="mark").tolist() == many(expected)
    plain = [one for one in asked if type(one) is type(ids[0])]  # all of one type: the join itself
    expected = [ids.index(one) if one in ids else -1 for one in plain]
    assert v.encode(many(plain), unknown="mark").tolist() == many(expected)


@pytest.mark.parametrize("n", [3, 5000])
@pytest.mark.parametrize("wrong", [[1.0], [True], [np.float64(1)], ["1"], [None]], ids=str)
def test_what_only_looks_like_an_id_is_unknown(n, wrong):
    v = Vocabulary.of([0, 1, 2])
    assert v.encode(wrong * n, unknown="mark").tolist() == [-1] * n
    assert wrong[0] not in v


@pytest.mark.parametrize("n", [3, 5000])
def test_other_sources_of_ids(n):
    v = Vocabulary.of(["a", "b"])
    expected = [1, 0] * n
    for ids in (
        np.array(["b", "a"] * n),
        pl.Series(["b", "a"] * n),
        pl.Series(["b", "a"] * n, dtype=pl.Categorical),
        pl.Series(["b", "a"] * n, dtype=pl.Enum(["a", "b"])),
        (one for one in ["b", "a"] * n),
        tuple(["b", "a"] * n),
    ):
        assert v.encode(ids).tolist() == expected
    w = Vocabulary.of(pl.Series([5, 200], dtype=pl.UInt8))
    for ids in (np.array([200, 5] * n, np.int64), np.array([200, 5] * n, np.uint8), pl.Series([200, 5] * n)):
        assert w.encode(ids).tolist() == expected
    assert w.encode([256 + 5, -56] * n, unknown="mark").tolist() == [-1, -1] * n  # no wrap-around


def test_unknown_ids():
    v = Vocabulary.of(["a", "b"], name="product")
    with pytest.raises(
        UnknownIdError, match=r"unknown item 'c' \(2 of 3 ids are unknown; the model knows 2 ids\); pass unknown='skip'"
    ):
        v.encode(["a", "c", "d"], what="item")
    with pytest.raises(UnknownIdError, match="unknown item 'c'"):
        v.encode((one for one in ["a", "c"]), what="item")
    with pytest.raises(UnknownIdError, match=r"of type str, such as 'a'"):
        v.encode([7])
    with pytest.raises(UnknownIdError, match="unknown id 'c'"):
        v.encode(["a"] * 5000 + ["c"])
    assert v.encode(["c", "b"], unknown="skip").tolist() == [1]
    with pytest.raises(SettingError, match="unknown='drop'; expected 'raise'"):
        v.encode(["a"], unknown="drop")
    for single in ("a", 7, np.int64(7), b"a"):
        with pytest.raises(SettingError, match="got the single value"):
            v.encode(single)
        with pytest.raises(SettingError, match="got the single value"):
            v.extend(single)


@settings(max_examples=60, deadline=None)
@given(IDS.flatmap(lambda ids: st.tuples(st.just(ids), st.lists(st.sampled_from(ids), min_size=1))), st.data())
def test_growing_keeps_codes(both, data):
    ids, old = both
    cut = data.draw(st.integers(1, len(ids)))
    v = of(ids[:cut])
    more = old + ids[cut:] + old + ids[cut:]
    grown = v.extend(more)
    new = [one for one in dict.fromkeys(more) if one not in ids[:cut]]
    assert grown.ids() == ids[:cut] + new
    assert v.ids() == ids[:cut]
    assert grown.frame.schema == v.frame.schema
    assert v.extend([]) is v
    assert v.extend(ids[:cut]) is v


@pytest.mark.parametrize("names", [["__code", "code"], ["0", "1"], ["1", "0"], ["a b", "…"]])
def test_any_column_names(names):
    ids = [(k, str(k)) for k in range(5000)]
    v = Vocabulary.of(ids, names)
    assert v.encode(ids[::-1]).tolist() == list(range(5000))[::-1]
    assert v.encode(ids[:2]).tolist() == [0, 1]
    assert v.names == tuple(names)


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        ([1, "a"], "x"),
        ([1, True], "x"),
        ([True, False], "x"),
        ([1.0, 2.0], "x"),
        ([None, 1], "x"),
        ([b"a"], "x"),
        ([], "x"),
        ([1, 1], "x"),
        ([(1, "a"), ("b", 2)], ["x", "y"]),
        ([(1, "a"), (True, "b")], ["x", "y"]),
        ([(1, "a"), (1,)], ["x", "y"]),
        ([(1, "a", 2)], ["x", "y"]),
        ([(1, None)], ["x", "y"]),
        ([(1, "a"), (1, "a")], ["x", "y"]),
    ],
    ids=str,
)
def test_no_vocabulary_of_these(ids, name):
    with pytest.raises(DataError, match=r"x|column 'y' has type Null"):
        Vocabulary.of(ids, name)


def test_extending_with_another_type():
    for more in (["a"], [1.0], [True], [None], [2**40]):
        with pytest.raises(DataError):
            Vocabulary.of(pl.Series([1, 2], dtype=pl.Int32)).extend(more)


@pytest.mark.parametrize(
    "dtype",
    [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64],
    ids=str,
)
def test_every_integer_type(dtype):
    bits = int("".join(filter(str.isdigit, str(dtype))))
    low, high = (0, 2**bits - 1) if str(dtype).startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    v = Vocabulary.of(pl.Series([high, low, 1], dtype=dtype))
    assert v.ids() == [high, low, 1]
    assert v.encode([low, high]).tolist() == [1, 0]
    assert v.encode([low, high] * 3000).tolist() == [1, 0] * 3000
    assert v.encode([low - 1, high + 1], unknown="mark").tolist() == [-1, -1]


def test_parse():
    assert Vocabulary.of([5, 7]).parse("7") == 7
    assert Vocabulary.of(["5"]).parse("5") == "5"
    assert Vocabulary.of([(1, "a")], ["x", "y"]).parse("1,a") == (1, "a")
    with pytest.raises(UnknownIdError, match="unknown id 'x': ids of 'id' are integers"):
        Vocabulary.of([5]).parse("x")
    for text in ("05", "+5", " 5", "5 ", "5\n", "0_5", "５", "-0", "5.0", "", "9" * 5000):
        with pytest.raises(UnknownIdError, match="ids of 'id' are integers; pass plain digits such as 17"):
            Vocabulary.of([5, 0]).parse(text)
        assert Vocabulary.of([5, 0]).typed([text]) == text
    with pytest.raises(SettingError, match="'1' has 1 parts; expected 2: x,y"):
        Vocabulary.of([(1, "a")], ["x", "y"]).parse("1")


def test_equality_and_repr():
    v = Vocabulary.of(["a", "b"], "x")
    assert v == Vocabulary.of(["a", "b"], "x")
    assert v != Vocabulary.of(["b", "a"], "x")
    assert v != Vocabulary.of(["a", "b"], "y")
    assert v != 5
    assert Vocabulary.of([1]) != Vocabulary.of(pl.Series([1], dtype=pl.Int32))
    assert repr(v) == "Vocabulary(x: 2 String ids, 'a' … 'b')"
    with pytest.raises(TypeError):
        hash(v)


@settings(max_examples=60, deadline=None)
@given(IDS, IDS, st.data())
def test_a_mapped_vocabulary_is_the_same(ids, others, data):
    v = of(ids)
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "m", StoredModel("Sample", {}, {}, {"ids": v.frame}))
        mapped = Vocabulary(load_model(Path(folder) / "m").tables["ids"])
    asked = [*others, *ids, None, 1.0, True, "x", 2**80]
    assert mapped.encode(asked, unknown="mark").tolist() == v.encode(asked, unknown="mark").tolist()
    codes = data.draw(st.lists(st.integers(-len(ids), len(ids) - 1), max_size=5))
    assert mapped.ids(codes) == v.ids(codes)
    assert mapped.take(codes).equals(v.take(codes))
    assert (len(mapped), mapped.names, mapped.dtypes, repr(mapped)) == (len(v), v.names, v.dtypes, repr(v))
    assert mapped.ids() == v.ids()
    assert mapped == v
    assert mapped.extend(ids) is mapped
    for wrong in ([len(ids)], [-len(ids) - 1], ["a"], [[0]], 0, [0.5]):
        with pytest.raises(SettingError, match="expected a list of integers from 0 to"):
            mapped.ids(wrong)


def test_few_ids_are_looked_up_without_all_of_them(way):
    if way == "dictionary":
        pytest.skip("for large vocabularies")
    v = Vocabulary.of([("ann", 1), ("bob", 2)], ["who", "when"])
    assert v.is_large
    assert ("bob", np.int64(2)) in v
    assert ("bob", "2") not in v
    assert "bob" not in v
    assert ("bob", True) not in v
    assert v.encode([("bob", 2)]).tolist() == [1]
    assert v.ids([1, -1]) == [("bob", 2), ("bob", 2)]
    assert not {"_code_of", "_values"} & vars(v).keys()
