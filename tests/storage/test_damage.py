"""Truncated and altered files: refused, or the same content; never another answer."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from shortlist.data.mapped_ids import frame_of
from shortlist.errors import StorageError
from shortlist.storage import id_tables, load_model, save_model
from shortlist.storage.manifest import TableEntry
from storage.samples import arrays_name, replace_file, same, sample, table_name

if TYPE_CHECKING:
    from pathlib import Path


def _refused_or_same(path: Path) -> bool:
    try:
        loaded = load_model(path, verify=True)
    except StorageError:
        return True
    assert same(loaded, sample(1))
    return False


def _files(path: Path) -> list[Path]:
    save_model(path, sample(1))
    return sorted(path.iterdir())


def test_every_file_cut_at_many_lengths(tmp_path: Path) -> None:
    for file in _files(tmp_path / "m"):
        whole = file.read_bytes()
        for length in {0, 1, 7, 8, 9, len(whole) - 2, *range(0, len(whole) - 1, max(1, len(whole) // 50))}:
            file.write_bytes(whole[:length])
            assert _refused_or_same(tmp_path / "m"), f"{file.name} cut at {length}"
        file.write_bytes(whole + b"\0")
        assert _refused_or_same(tmp_path / "m")
        file.write_bytes(whole)
    assert not _refused_or_same(tmp_path / "m")


def test_every_file_with_a_byte_changed_in_many_places(tmp_path: Path) -> None:
    rng = random.Random(0)
    for file in _files(tmp_path / "m"):
        whole = file.read_bytes()
        refused = 0
        for _ in range(300):
            altered = bytearray(whole)
            altered[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            file.write_bytes(altered)
            refused += _refused_or_same(tmp_path / "m")
        assert refused >= (150 if file.name == "manifest.json" else 300)  # there, a space may become another space
        file.write_bytes(whole)


def test_every_single_byte_of_the_manifest(tmp_path: Path) -> None:
    manifest = next(file for file in _files(tmp_path / "m") if file.name == "manifest.json")
    whole = manifest.read_bytes()
    for at in range(len(whole)):
        for byte in (0, ord("1"), ord('"'), 255):
            manifest.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            _refused_or_same(tmp_path / "m")


def test_altered_arrays_that_were_signed_anew_never_raise_anything_else(tmp_path: Path) -> None:
    rng = random.Random(1)
    save_model(tmp_path / "m", sample(1))
    name = arrays_name(tmp_path / "m")
    whole = (tmp_path / "m" / name).read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(300):
        altered = bytearray(whole)
        at = rng.randrange(len(whole))
        altered[at] ^= 1 << rng.randrange(8)
        replace_file(tmp_path / "m", name, bytes(altered))
        if at < start:
            with pytest.raises(StorageError, match="header"):
                load_model(tmp_path / "m")
        else:
            with suppress(StorageError):
                load_model(tmp_path / "m", verify=True)


def test_altered_tables_that_were_signed_anew_never_raise_anything_else(tmp_path: Path) -> None:
    rng = random.Random(2)
    save_model(tmp_path / "m", sample(1))
    name = table_name(tmp_path / "m", "contexts")
    whole = (tmp_path / "m" / name).read_bytes()
    refused = 0
    for _ in range(500):
        altered = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 4])):
            altered[rng.randrange(len(whole))] = rng.choice([0, 127, 128, 255, rng.randrange(256)])
        replace_file(tmp_path / "m", name, bytes(altered))
        try:
            table = load_model(tmp_path / "m").tables["contexts"]
            assert table.schema == sample(1).tables["contexts"].schema
            assert table.height == 3
            with suppress(StorageError):
                assert len(table.rows(np.arange(3))) == 3
            assert len(frame_of(table).rows()) == 3
        except StorageError:
            refused += 1
    assert 100 < refused < 500


@pytest.mark.slow
def test_altered_tables_at_length() -> None:
    rng = random.Random(3)
    frame = pl.DataFrame({"a": ["", "é", "x" * 40, "yy"] * 5, "b": range(20)})
    entry = TableEntry("x", 20, (("a", "String"), ("b", "Int64")))
    whole = bytes(id_tables.encode(frame))
    for _ in range(50_000):
        altered = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 4])):
            altered[rng.randrange(len(whole))] = rng.choice([0, 127, 128, 255, rng.randrange(256)])
        try:
            table = id_tables.decode(entry, np.frombuffer(bytes(altered), np.uint8), "x")
            with suppress(StorageError):
                assert len(table.rows(np.arange(20))) == 20
            assert len(table.frame.rows()) == 20
        except (ValueError, StorageError):
            continue
