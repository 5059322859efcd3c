"""Thrift's compact protocol: what is parsed is written again as it was."""

from __future__ import annotations

import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.storage import thrift
from shortlist.storage.parquet import split
from shortlist.storage.thrift import ThriftField, ThriftList, parse, serialize

LONG = st.integers(-(2**63), 2**63 - 1)
LEAVES = {
    thrift.I8: st.binary(min_size=1, max_size=1),
    thrift.I16: st.integers(-(2**15), 2**15 - 1),
    thrift.I32: st.integers(-(2**31), 2**31 - 1),
    thrift.I64: LONG,
    thrift.DOUBLE: st.binary(min_size=8, max_size=8),
    thrift.BINARY: st.binary(max_size=200),
}
FLAGS = st.sampled_from([thrift.TRUE, thrift.FALSE]).map(lambda kind: ThriftField(kind, None))
NUMBERS = st.integers(1, 40) | st.integers(-(2**15), 2**15 - 1).filter(bool)


def structs(children: st.SearchStrategy[ThriftField]) -> st.SearchStrategy[dict[int, ThriftField]]:
    return st.dictionaries(NUMBERS, children, max_size=5)


def lists(children: st.SearchStrategy[ThriftField]) -> st.SearchStrategy[ThriftField]:
    of_leaves = [st.lists(one, max_size=20).map(lambda v, k=kind: ThriftList(k, v)) for kind, one in LEAVES.items()]
    of_structs = st.lists(structs(children), max_size=20).map(lambda v: ThriftList(thrift.STRUCT, v))
    return st.one_of(*of_leaves, of_structs).flatmap(
        lambda members: st.sampled_from([thrift.LIST, thrift.SET]).map(lambda kind: ThriftField(kind, members))
    )


LEAF = st.one_of(FLAGS, *(one.map(lambda v, k=kind: ThriftField(k, v)) for kind, one in LEAVES.items()))
FIELDS = st.recursive(LEAF, lambda inner: structs(inner).map(lambda v: ThriftField(thrift.STRUCT, v)) | lists(inner))


@given(structs(FIELDS))
def test_round_trip(struct: dict[int, ThriftField]) -> None:
    raw = serialize(struct)
    assert parse(raw) == struct
    assert serialize(parse(raw)) == raw


def test_a_footer_comes_out_as_it_was() -> None:
    frame = pl.DataFrame({"a": ["x", None], "b": [[1.0], []], "c": [True, False], "d": [-1, 2**40]})
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    footer = split(buffer.getvalue())[1]
    assert serialize(parse(footer)) == footer
    for end in range(len(footer)):
        with pytest.raises(ValueError):
            parse(footer[:end])
    with pytest.raises(ValueError, match="1 bytes follow after its end"):
        parse(footer + b"\0")


@given(st.binary(max_size=100))
def test_anything_else_is_refused_or_read(raw: bytes) -> None:
    try:
        found = parse(raw)
    except ValueError:
        return
    assert parse(serialize(found)) == found


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x1d\x00\x00", "of the type 13"),
        (b"\x16" + b"\xff" * 10 + b"\x00\x00", "longer than 64 bits"),
        (b"\x15\x02\x05\x02\x02\x00", "field 1 occurs twice"),
        (b"\x1c" * 100, "nested deeper"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f", "ends too early"),
    ],
)
def test_what_is_wrong(raw: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(raw)
