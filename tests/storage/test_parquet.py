"""Parquet files put behind each other: polars and Arrow read them as one."""

from __future__ import annotations

import io

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shortlist.storage.parquet import MAGIC, join_footers, split

COLUMNS = {
    "user": pl.String,
    "item": pl.Int64,
    "score": pl.Float32,
    "lists": pl.List(pl.String),
    "both": pl.List(pl.Float32),
}
ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=5),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(width=32, allow_nan=False),
        st.lists(st.sampled_from(["a", "bb", ""]), max_size=4),
        st.lists(st.floats(width=32, allow_nan=False), max_size=3),
    ),
    max_size=30,
)


def written(frame: pl.DataFrame, **options: object) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, **options)
    return buffer.getvalue()


def joined(files: list[bytes]) -> bytes:
    content, footers = bytearray(MAGIC), []
    for one in files:
        groups, footer = split(one)
        footers.append((len(content), footer))
        content += groups
    return bytes(content) + join_footers(footers)


@given(st.lists(ROWS, min_size=1, max_size=20), st.sampled_from(["zstd", "uncompressed", "snappy"]), st.integers(1, 40))
def test_several_files_are_one(parts: list[list[tuple[object, ...]]], compression: str, size: int) -> None:
    frames = [pl.DataFrame(rows, schema=COLUMNS, orient="row") for rows in parts]
    raw = joined([written(one, compression=compression, row_group_size=size) for one in frames])
    expected = pl.concat(frames)
    assert pl.read_parquet(io.BytesIO(raw)).equals(expected)
    arrow = pq.ParquetFile(io.BytesIO(raw))
    assert arrow.metadata.num_rows == expected.height
    assert pl.DataFrame(arrow.read()).equals(expected)
    lazy = pl.scan_parquet(io.BytesIO(raw)).filter(pl.col("item") > 0).select("score")  # by statistics and projection
    assert lazy.collect().equals(expected.filter(pl.col("item") > 0).select("score"))


def test_files_of_arrow_with_page_indexes() -> None:
    """Whatever a writer puts beside the data and points at is moved, or left out."""
    frames = [pl.DataFrame({"a": range(k, k + 50), "b": [f"x{k}"] * 50}) for k in range(3)]
    files = []
    for one in frames:
        buffer = io.BytesIO()
        pq.write_table(one.to_arrow(), buffer, write_page_index=True, row_group_size=20, data_page_size=64)
        files.append(buffer.getvalue())
    raw = joined(files)
    assert pl.read_parquet(io.BytesIO(raw)).equals(pl.concat(frames))
    assert pl.DataFrame(pq.read_table(io.BytesIO(raw))).equals(pl.concat(frames))
    column = pq.ParquetFile(io.BytesIO(raw)).metadata.row_group(5).column(0)
    assert not column.has_offset_index
    assert not column.has_column_index


def test_one_row_group_can_be_read_alone() -> None:
    frames = [pl.DataFrame({"a": [f"{k}-{j}" for j in range(100)]}) for k in range(5)]
    arrow = pq.ParquetFile(io.BytesIO(joined([written(one) for one in frames])))
    assert arrow.num_row_groups == 5
    for k, one in enumerate(frames):
        assert pl.DataFrame(arrow.read_row_group(k)).equals(one)
        assert arrow.metadata.row_group(k).column(0).statistics.min == f"{k}-0"


def test_what_is_refused() -> None:
    good = written(pl.DataFrame({"a": [1]}))
    for bad in (b"", b"PAR1PAR1", good[:-1], b"x" + good[1:], good[:-8] + b"\xff\xff\xff\x00PAR1"):
        with pytest.raises(ValueError):
            split(bad)
    with pytest.raises(ValueError, match="different columns"):
        joined([good, written(pl.DataFrame({"b": [1]}))])
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(io.BytesIO(good[:-1]))
