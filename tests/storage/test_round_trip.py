from __future__ import annotations

import importlib
import mmap
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shortlist._kernel_views import for_kernels
from shortlist._version import __version__
from shortlist.data.mapped_ids import frame_of
from shortlist.errors import StorageError
from shortlist.storage import StoredModel, is_model, load_model, read_manifest, save_model
from storage.samples import arrays_name, clean, same, sample, table_name

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
INTEGERS = {
    getattr(pl, name): (-(2 ** (bits - 1)) if name[0] == "I" else 0, 2 ** (bits - (name[0] == "I")) - 1)
    for bits in (8, 16, 32, 64, 128)
    for name in (f"Int{bits}", f"UInt{bits}")
    if hasattr(pl, name)
}
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    dtype = np.dtype(draw(st.sampled_from(DTYPES + FLOATS)))
    elements = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else None
    return draw(hnp.arrays(dtype, shape, elements=elements))


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    rows = draw(st.integers(0, 6))
    columns = {}
    for name in draw(st.lists(st.text(max_size=5), min_size=1, max_size=3, unique=True)):
        dtype = draw(st.sampled_from([*INTEGERS, pl.String]))
        ids = st.text(max_size=20) if dtype == pl.String else st.integers(*INTEGERS[dtype])
        columns[name] = pl.Series(name, draw(st.lists(ids, min_size=rows, max_size=rows)), dtype=dtype)
    return pl.DataFrame(columns)


MODELS = st.builds(
    StoredModel,
    kind=st.text(min_size=1, max_size=10),
    settings=st.dictionaries(st.text(), JSON, max_size=4),
    arrays=st.dictionaries(NAMES, arrays(), max_size=4),
    tables=st.dictionaries(NAMES.map(str.lower), frames(), max_size=3),
    extra=st.dictionaries(st.text(), JSON, max_size=2),
)


@settings(deadline=None, max_examples=150)
@given(MODELS)
def test_any_model_comes_back_as_it_was(model: StoredModel) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "m", model)
        assert same(load_model(Path(folder) / "m"), model)
        assert clean(Path(folder) / "m")


@pytest.mark.parametrize("dtype", [*INTEGERS, pl.String], ids=str)
def test_extreme_ids_of_every_dtype(tmp_path: Path, dtype: Any) -> None:
    ids = ["", "\0", "é☃𝄞", "x" * 1000] if dtype == pl.String else list(INTEGERS[dtype])
    frame = pl.DataFrame({"id": pl.Series(ids, dtype=dtype)})
    save_model(tmp_path / "m", StoredModel("A", {}, {}, {"items": frame}))
    loaded = load_model(tmp_path / "m").tables["items"]
    assert loaded.schema == frame.schema
    assert frame_of(loaded)["id"].to_list() == ids
    assert loaded.rows(np.array([-1, 0, len(ids) - 1])) == [ids[-1], ids[0], ids[-1]]
    assert loaded.take(np.array([1, 0])).equals(frame[[1, 0]])


def test_many_ids_in_several_chunks_and_slices(tmp_path: Path) -> None:
    whole = pl.DataFrame({"id": [f"a rather long id, number {i}" for i in range(300_000)]})
    parts = pl.concat([whole[10:20], whole[20:290_000], whole[:5]], rechunk=False)
    save_model(tmp_path / "m", StoredModel("A", {}, {}, {"items": parts}))
    assert load_model(tmp_path / "m").tables["items"].frame.equals(parts)


def test_arrays_larger_than_a_block(tmp_path: Path) -> None:
    model = StoredModel("A", {}, {"W": np.random.default_rng(0).normal(size=(1_100_000, 2)), "b": np.ones(3, bool)}, {})
    save_model(tmp_path / "m", model)
    assert same(load_model(tmp_path / "m"), model)


def test_strided_and_big_endian_arrays_keep_their_values(tmp_path: Path) -> None:
    W = np.arange(24, dtype=np.float32).reshape(4, 6)
    save_model(tmp_path / "m", StoredModel("A", {}, {"t": W.T, "s": W[::2, 1::2], "b": W.astype(">f4")}, {}))
    loaded = load_model(tmp_path / "m").arrays
    assert np.array_equal(loaded["t"], W.T)
    assert np.array_equal(loaded["s"], W[::2, 1::2])
    assert np.array_equal(loaded["b"], W)
    assert all(array.flags.c_contiguous and array.dtype == np.float32 for array in loaded.values())


def test_loaded_arrays_start_at_cache_lines_and_cannot_be_written_to(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(1))
    for array in load_model(tmp_path / "m").arrays.values():
        assert array.ctypes.data % 64 == 0
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_write_to_the_view_for_kernels_never_reaches_the_file(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(1))
    array = load_model(tmp_path / "m").arrays["items"]
    view = for_kernels(array)
    assert np.shares_memory(view, array)
    assert view.flags.carray
    view[:] = 0
    assert same(load_model(tmp_path / "m", verify=True), sample(1))


def test_files_are_mapped_or_read(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(1))
    mapped, read = load_model(tmp_path / "m"), load_model(tmp_path / "m", mapped=False)
    assert same(mapped, read)
    assert not read.arrays["items"].flags.writeable
    assert _is_mapped(mapped.arrays["items"])
    assert not _is_mapped(read.arrays["items"])


def _is_mapped(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def test_the_files_are_what_they_are_called(tmp_path: Path) -> None:
    model = sample(1)
    save_model(tmp_path / "m", model)
    read = safetensors.numpy.load_file(tmp_path / "m" / arrays_name(tmp_path / "m"))
    assert {name for name in read if not name.startswith("(padding")} == model.arrays.keys()
    assert all(np.array_equal(read[name], array) for name, array in model.arrays.items())
    items = pl.read_ipc(tmp_path / "m" / table_name(tmp_path / "m", "items"))
    assert items.equals(model.tables["items"])


def test_a_model_without_arrays_is_still_a_safetensors_file(tmp_path: Path) -> None:
    save_model(tmp_path / "m", StoredModel("A", {}, {}, {}))
    assert safetensors.numpy.load_file(tmp_path / "m" / arrays_name(tmp_path / "m")) == {}


def test_pyarrow_reads_the_ids(tmp_path: Path) -> None:
    ipc = pytest.importorskip("pyarrow.ipc")
    save_model(tmp_path / "m", sample(1))
    table = ipc.open_file(tmp_path / "m" / table_name(tmp_path / "m", "contexts")).read_all()
    assert table.to_pydict() == sample(1).tables["contexts"].to_dict(as_series=False)


def test_the_manifest_tells_without_the_arrays(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(3))
    (tmp_path / "m" / arrays_name(tmp_path / "m")).unlink()
    manifest = read_manifest(str(tmp_path / "m"))
    assert (manifest.kind, manifest.settings, manifest.extra) == ("Sample", sample(3).settings, {"epochs": 3})
    assert manifest.shortlist_version == __version__
    assert datetime.fromisoformat(manifest.created).utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    assert manifest.arrays["items"].dtype == "float32"
    assert manifest.arrays["items"].shape == (7, 3)
    assert manifest.tables["contexts"].rows == 3
    assert manifest.tables["contexts"].columns == (("user", "Int64"), ("hour", "String"))
    assert manifest.total_bytes > 0


def test_is_model(tmp_path: Path) -> None:
    save_model(tmp_path / "m", sample(1))
    assert is_model(tmp_path / "m")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text("{}")
    for path in (tmp_path, tmp_path / "none", tmp_path / "other", tmp_path / "other" / "manifest.json", "\0"):
        assert not is_model(path)


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), (1, 2), {1: 2}, b"x", np.int64(3), {"a": [object()]}, "\ud83d\ude00"]
)
def test_settings_that_are_not_json_are_refused(tmp_path: Path, bad: object) -> None:
    for model in (StoredModel("A", {"deep": [bad]}, {}, {}), StoredModel("A", {}, {}, {}, {"deep": [bad]})):
        with pytest.raises(StorageError, match="deep"):
            save_model(tmp_path / "m", model)
    assert list(tmp_path.iterdir()) == []


def test_nesting_has_a_limit_that_saving_and_loading_share(tmp_path: Path) -> None:
    def nested(levels: int) -> dict[str, Any]:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return {"v": value}

    save_model(tmp_path / "m", StoredModel("A", nested(62), {}, {}))
    assert load_model(tmp_path / "m").settings == nested(62)
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    for settings_ in (nested(63), nested(100_000), {"v": cyclic}):
        with pytest.raises(StorageError, match="nested deeper"):
            save_model(tmp_path / "n", StoredModel("A", settings_, {}, {}))


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, np.nan]),
        np.array(np.inf, dtype=np.float32),
        np.array([[0, -np.inf]], dtype=np.float16),
        np.array([None]),
        np.array(["a"]),
        np.array([1j]),
        np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.ma.masked_array([1.0], mask=[True]),
        [1.0],
    ],
    ids=repr,
)
def test_arrays_that_cannot_be_kept_are_refused(tmp_path: Path, array: Any) -> None:
    with pytest.raises(StorageError, match="array 'W'"):
        save_model(tmp_path / "m", StoredModel("A", {}, {"W": array}, {}))
    assert list(tmp_path.iterdir()) == []


def test_the_place_of_a_nan_is_named(tmp_path: Path) -> None:
    W = np.zeros((1_200_000, 2), dtype=np.float32)
    W[1_100_000, 1] = np.nan
    with pytest.raises(StorageError, match=r"nan at \[1100000, 1\]"):
        save_model(tmp_path / "m", StoredModel("A", {}, {"W": W}, {}))


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"id": [1.0]}),
        pl.DataFrame({"id": [True]}),
        pl.DataFrame({"id": [1, None]}),
        pl.DataFrame({"id": ["a", None]}),
        pl.DataFrame({"id": [{"a": 1}]}),
        pl.DataFrame({"id": [[1]]}),
        pl.DataFrame({"id": pl.Series(["a"], dtype=pl.Categorical)}),
        pl.DataFrame(),
        pl.DataFrame({"id": [1]}).lazy(),
    ],
    ids=lambda frame: f"{type(frame).__name__} {dict(frame.lazy().collect_schema())}",
)
def test_tables_that_are_not_ids_are_refused(tmp_path: Path, frame: Any) -> None:
    with pytest.raises(StorageError, match="table 'items'"):
        save_model(tmp_path / "m", StoredModel("A", {}, {}, {"items": frame}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "../a", ".hidden", "a b", "é", "x" * 300, "__metadata__"])
def test_names_that_could_escape_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="cannot name an array"):
        save_model(tmp_path / "m", StoredModel("A", {}, {name: np.ones(1)}, {}))
    if name != "__metadata__":
        with pytest.raises(StorageError, match="cannot name a table"):
            save_model(tmp_path / "m", StoredModel("A", {}, {}, {name: pl.DataFrame({"id": [1]})}))
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_too_large_to_be_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="1,048,576"):
        save_model(tmp_path / "m", StoredModel("A", {"text": "x" * (1 << 20)}, {}, {}))
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_too_large_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = importlib.import_module("shortlist.storage.save")
    monkeypatch.setattr(home, "write_file", lambda *_: pytest.fail("a file was written"))
    with pytest.raises(StorageError, match=r"cannot save this model .* 1,048,576"):
        save_model(tmp_path / "m", StoredModel("A", {"text": "x" * (1 << 20)}, {"W": np.ones(3)}, {}))


def test_a_number_too_long_for_python_to_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        save_model(tmp_path / "m", StoredModel("A", {"n": 10**5000}, {}, {}))
    assert list(tmp_path.iterdir()) == []
