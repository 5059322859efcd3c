"""What is no whole, unaltered model of a known version is refused with a StorageError that says why."""

from __future__ import annotations

import json
import os
import resource
import shutil
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from shortlist._version import __version__
from shortlist.data.mapped_ids import frame_of
from shortlist.errors import StorageError
from shortlist.storage import StoredModel, load, load_model, read_manifest, save_model
from storage.samples import arrays_name, forge, replace_file, same, sample, table_name

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "m", sample(1))
    return tmp_path / "m"


def refused(path: Path, match: str) -> None:
    """It is refused, whether everything is checked or only what always is."""
    for verify in (False, True):
        with pytest.raises(StorageError, match=match):
            load_model(path, verify=verify)


def refused_if_verified(path: Path, match: str) -> None:
    load_model(path)
    with pytest.raises(StorageError, match=match):
        load_model(path, verify=True)


def manifest_refused(path: Path, match: str) -> None:
    refused(path, match)
    with pytest.raises(StorageError, match=match):
        read_manifest(path)


def test_nothing_there(tmp_path: Path) -> None:
    manifest_refused(tmp_path / "none", "it does not exist; expected a directory")


def test_a_file_there(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    manifest_refused(tmp_path / "f", "it is a file")


def test_no_manifest(tmp_path: Path) -> None:
    manifest_refused(tmp_path, r"has no manifest\.json")


def test_a_path_no_file_system_knows() -> None:
    manifest_refused(Path("a\0b"), "null byte")


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "manifest.json"),
        (b"{", "manifest.json"),
        (b"\xff\xfe{}", "utf-8"),
        (b"[" * 900_000, "nested"),
        (b'{"a":' * 200_000, "nested"),
        (b"null", "does not describe a Shortlist model"),
        (b'[{"format": "shortlist-model"}]', "a list"),
        (b'{"format": ["shortlist-model"]}', "does not describe"),
        (b'{"format": "mlflow", "sha256": 1}', "'mlflow', expected 'shortlist-model'"),
        (b'{"format": "shortlist-model"}', "format_version is None"),
        (b'{"format": "shortlist-model", "format_version": true}', "format_version is True"),
        (b'{"format": "shortlist-model", "format_version": "1"}', "format_version is '1'"),
        (b'{"format": "shortlist-model", "format_version": 0}', "format_version is 0"),
        (b'{"format": "shortlist-model", "format_version": 1}', "keys"),
        (b'{"format": "shortlist-model", "format": "shortlist-model"}', "same key twice"),
        (b'{"format": "shortlist-model", "a": NaN}', "NaN"),
        (b'{"format": "shortlist-model", "a": -Infinity}', "-Infinity"),
        (b'{"format": "shortlist-model", "a": ' + b"1" * 5000 + b"}", "digits"),
        (b" " * ((1 << 20) + 1), "1,048,577 bytes"),
    ],
    ids=range(19),
)
def test_manifests_that_are_none(model: Path, raw: bytes, match: str) -> None:
    (model / "manifest.json").write_bytes(raw)
    manifest_refused(model, match)


def test_a_huge_manifest_is_not_read(model: Path) -> None:
    with open(model / "manifest.json", "r+b") as file:
        file.truncate(1 << 40)  # takes no space on the disk
    manifest_refused(model, "1,099,511,627,776 bytes")


def test_a_future_version_names_both_and_the_way_out(model: Path) -> None:
    forge(model, lambda found: found.update(format_version=3, shortlist_version="7.5", new_field=[]))
    manifest_refused(model, rf"Shortlist 7\.5 .*this is Shortlist {__version__}.*upgrade")


def test_an_altered_manifest(model: Path) -> None:
    text = (model / "manifest.json").read_text()
    (model / "manifest.json").write_text(text.replace('"version": 1', '"version": 2'))
    manifest_refused(model, "altered")


def test_a_manifest_written_in_another_way_is_the_same_manifest(model: Path) -> None:
    found = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(dict(reversed(found.items())), ensure_ascii=False))
    assert same(load_model(model), sample(1))


def _set(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (_set("surprise", to=1), "surprise"),
        (lambda found: found.pop("kind"), "kind"),
        (_set("kind", to=3), "kind is of type int"),
        (_set("settings", to=[]), "settings is of type list"),
        (_set("extra", to=None), "extra is of type NoneType"),
        (_set("created", to=1.5), "created"),
        (_set("shortlist_version", to={}), "shortlist_version"),
        (_set("files", to=[]), "files is of type list"),
        (_set("tables", to="x"), "tables is of type str"),
        (_set("arrays", to={}), "arrays has the keys"),
        (_set("arrays", "file", to=1), "arrays.file"),
        (_set("arrays", "file", to="elsewhere"), "files it lists"),
        (_set("arrays", "entries", to=[]), "arrays.entries"),
        (_set("arrays", "entries", "items", to=None), "items"),
        (_set("arrays", "entries", "a/b", to={"dtype": "int8", "shape": []}), "cannot name an array"),
        (_set("arrays", "entries", "__metadata__", to={"dtype": "int8", "shape": []}), "cannot name an array"),
        (_set("arrays", "entries", "items", "dtype", to="object"), "dtype is 'object'"),
        (_set("arrays", "entries", "items", "dtype", to="complex64"), "dtype is 'complex64'"),
        (_set("arrays", "entries", "items", "dtype", to=["f4"]), "dtype is of type list"),
        (_set("arrays", "entries", "items", "shape", to=[7, -3]), "-3"),
        (_set("arrays", "entries", "items", "shape", to=[7, 3.0]), "3.0"),
        (_set("arrays", "entries", "items", "shape", to=[7, True]), "True"),
        (_set("arrays", "entries", "items", "shape", to=[1] * 33), "33 dimensions"),
        (_set("arrays", "entries", "items", "shape", to=[1 << 40, 3]), "take .* bytes"),
        (_set("arrays", "entries", "items", "shape", to=[10**4000, 10**4000]), "an integer from 0"),
        (_set("tables", "items", "rows", to=-1), "-1"),
        (_set("tables", "items", "rows", to=1 << 70), "an integer from 0"),
        (_set("tables", "items", "columns", to=[]), "no columns"),
        (_set("tables", "items", "columns", to=[["id"]]), "pairs"),
        (_set("tables", "items", "columns", to=[["id", "Object"]]), "'Object'"),
        (_set("tables", "../x", to={"file": "x", "rows": 0, "columns": [["id", "String"]]}), "cannot name a table"),
    ],
    ids=range(31),
)
def test_signed_manifests_with_wrong_types_and_numbers(
    model: Path, change: Callable[[dict[str, Any]], None], match: str
) -> None:
    forge(model, change)
    refused(model, match)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "a/b", "a\\b", "..", ".", "", "C:x", "manifest.json", ".hidden", "a\n"]
)
def test_file_names_that_lead_elsewhere(model: Path, name: str) -> None:
    (model.parent / "secret").write_text("x")

    def change(found: dict[str, Any]) -> None:
        found["files"][name] = found["files"].pop(found["arrays"]["file"])
        found["arrays"]["file"] = name

    forge(model, change)
    manifest_refused(model, "not a plain file name")


def test_two_tables_cannot_share_a_file(model: Path) -> None:
    def change(found: dict[str, Any]) -> None:
        del found["files"][found["tables"]["contexts"]["file"]]
        found["tables"]["contexts"] = found["tables"]["items"]

    forge(model, change)
    manifest_refused(model, "files it lists")


def test_a_place_with_long_names_is_named_in_short(model: Path) -> None:
    forge(model, lambda found: found["extra"].update({"k" * 10_000: {"l" * 10_000: [0, nested]}}))
    with pytest.raises(StorageError, match=r"k…|k\]\[|nested deeper") as caught:
        load_model(model)
    assert len(str(caught.value)) < 1000


nested: Any = []
for _ in range(70):
    nested = [nested]


def test_more_than_the_machine_has_room_for(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "machine_memory", lambda: 100)
    refused(model, r"it has \d+ bytes, but this machine has 100 bytes of memory")


def test_an_infinity_by_another_name(model: Path) -> None:
    text = (model / "manifest.json").read_text()
    (model / "manifest.json").write_text(text.replace('"rate": 1.1', '"rate": 1e999'))
    manifest_refused(model, "inf")


@pytest.mark.parametrize("kind", ["symlink", "directory", "pipe", "manifest symlink"])
def test_what_is_not_a_regular_file(model: Path, kind: str) -> None:
    path = model / ("manifest.json" if kind.startswith("manifest") else arrays_name(model))
    path.rename(model.parent / "aside")
    if kind.endswith("symlink"):
        path.symlink_to(model.parent / "aside")  # the content is right, and still
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    refused(model, "symbolic link" if kind.endswith("symlink") else "not a regular file")


def test_a_file_of_another_length_is_not_read(model: Path) -> None:
    with open(model / arrays_name(model), "r+b") as file:
        file.truncate(1 << 40)  # takes no space on the disk
    refused(model, r"it has 1,099,511,627,776 bytes, the manifest says \d{3}\b")


def test_a_missing_file_is_named(model: Path) -> None:
    name = table_name(model, "items")
    (model / name).unlink()
    refused(model, f"{name}' is missing")


def test_a_file_without_permission(model: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (model / arrays_name(model)).chmod(0)
    refused(model, "ermission")


def test_files_swapped_between_models(model: Path) -> None:
    other = model.parent / "other"
    save_model(other, sample(2))
    for part in (arrays_name, lambda m: table_name(m, "items"), lambda m: table_name(m, "contexts")):
        kept = (model / part(model)).read_bytes()
        shutil.copy(other / part(other), model / part(model))
        refused_if_verified(model, "altered")
        (model / part(model)).write_bytes(kept)
    assert same(load_model(model), sample(1))
    shutil.copy(other / "manifest.json", model / "manifest.json")
    refused(model, "missing")


def test_tables_swapped_within_a_model(model: Path) -> None:
    a, b = table_name(model, "items"), table_name(model, "contexts")
    (model / a).rename(model / "x")
    (model / b).rename(model / a)
    (model / "x").rename(model / b)
    refused(model, "it has|altered")


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        ("items", {"shape": [3, 7]}),
        ("items", {"dtype": "int32"}),
        ("bias", {"dtype": "uint64"}),
        ("flags", {"dtype": "uint8"}),
    ],
)
def test_an_array_header_that_disagrees_with_the_manifest(model: Path, entry: str, change: dict[str, Any]) -> None:
    forge(model, lambda found: found["arrays"]["entries"][entry].update(change))
    refused(model, "header does not describe|arrays take")


def test_an_array_of_another_name(model: Path) -> None:
    forge(model, lambda found: found["arrays"]["entries"].update(itemz=found["arrays"]["entries"].pop("items")))
    refused(model, "header does not describe")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_in_a_signed_file(tmp_path: Path, value: float) -> None:
    save_model(tmp_path / "m", StoredModel("A", {}, {"W": np.array([1.0, 12345.678])}, {}))
    name = arrays_name(tmp_path / "m")
    raw = (tmp_path / "m" / name).read_bytes()
    replace_file(tmp_path / "m", name, raw.replace(np.float64(12345.678).tobytes(), np.float64(value).tobytes()))
    refused_if_verified(tmp_path / "m", r"array 'W' has the value -?(nan|inf) at \[1\]")


def test_a_bool_that_is_neither_in_a_signed_file(tmp_path: Path) -> None:
    save_model(tmp_path / "m", StoredModel("A", {}, {"W": np.array([True, False])}, {}))
    name = arrays_name(tmp_path / "m")
    raw = (tmp_path / "m" / name).read_bytes()
    replace_file(tmp_path / "m", name, raw[:-1] + b"\x02")
    refused_if_verified(tmp_path / "m", "neither false nor true")


def _arrow(frame: pl.DataFrame, compression: Any = "uncompressed", views: bool = False) -> bytes:
    out = BytesIO()
    level = pl.CompatLevel.newest() if views else pl.CompatLevel.oldest()
    frame.write_ipc(out, compression=compression, compat_level=level)
    return out.getvalue()


IDS = [f"item {i} of 1 ☃" for i in range(7)]


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "not an Arrow file"),
        (b"ARROW1" * 4, "not an Arrow file"),
        (b"PK\x03\x04" * 100, "not an Arrow file"),
        (_arrow(pl.DataFrame({"id": IDS[:6]})), "6 rows"),
        (_arrow(pl.DataFrame({"name": IDS})), "'name'"),
        (_arrow(pl.DataFrame({"id": range(7)})), "Int64"),
        (_arrow(pl.DataFrame({"id": IDS, "b": IDS})), "2 columns"),
        (_arrow(pl.DataFrame({"id": [*IDS[:6], None]})), "nulls"),
        (_arrow(pl.DataFrame({"id": pl.Series(IDS, dtype=pl.Categorical)})), "dictionaries"),
        (_arrow(pl.DataFrame({"id": [{"a": i} for i in IDS]})), "neither integers nor strings"),
        (_arrow(pl.DataFrame({"id": [[i] for i in IDS]})), "neither integers nor strings"),
        (_arrow(pl.DataFrame({"id": IDS}), "zstd"), "compressed"),
        (_arrow(pl.DataFrame({"id": IDS}), "lz4"), "compressed"),
        (_arrow(pl.DataFrame({"id": IDS}), views=True), "neither integers nor strings"),
    ],
    ids=range(14),
)
def test_signed_tables_that_are_not_those_of_the_manifest(model: Path, raw: bytes, match: str) -> None:
    replace_file(model, table_name(model, "items"), raw)
    refused(model, f"table 'items' .*{match}")


@pytest.mark.parametrize("where", ["table", "column", "batch", "nowhere"])
def test_notes_in_a_table(model: Path, where: str) -> None:
    """Many of them may be one long text in the file, and would be many long texts in memory."""
    pa = pytest.importorskip("pyarrow")
    note = {"a": "b"}
    field = pa.field("id", pa.large_string(), metadata=note if where == "column" else None)
    schema = pa.schema([field], metadata=note if where == "table" else None)
    out = BytesIO()
    with pa.ipc.new_file(out, schema) as writer:
        batch = pa.record_batch([pa.array(IDS, pa.large_string())], schema=schema)
        writer.write_batch(batch, custom_metadata=note if where == "batch" else None)
    replace_file(model, table_name(model, "items"), out.getvalue())
    if where == "nowhere":
        table = load_model(model, verify=True).tables["items"]
        assert frame_of(table)["id"].to_list() == table.rows(np.arange(7)) == IDS
    else:
        refused(model, "metadata")


def test_a_small_file_cannot_unpack_to_a_large_table(tmp_path: Path) -> None:
    save_model(tmp_path / "m", StoredModel("A", {}, {}, {"items": pl.DataFrame({"id": [1]})}))
    bomb = _arrow(pl.DataFrame({"id": pl.zeros(50_000_000, dtype=pl.Int64, eager=True)}), "zstd")
    assert len(bomb) < 1 << 20
    replace_file(tmp_path / "m", table_name(tmp_path / "m", "items"), bomb)
    forge(tmp_path / "m", lambda found: found["tables"]["items"].update(rows=50_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(tmp_path / "m", "compressed")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_panic_in_the_reader_of_tables_becomes_a_storage_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object) -> None:
        raise pl.exceptions.PanicException("no luck")

    monkeypatch.setattr(pl, "read_ipc", panic)
    with pytest.raises(StorageError, match="no luck") as caught:
        load_model(model).tables["items"].frame  # noqa: B018
    with pytest.raises(StorageError, match="no luck"):
        load_model(model, verify=True)
    assert isinstance(caught.value.__cause__, pl.exceptions.PanicException)
