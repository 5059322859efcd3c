"""Describe a saved model."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shortlist.cli.output import Output, Stopwatch
from shortlist.cli.safe_text import shown

if TYPE_CHECKING:
    from shortlist.storage import Manifest

_SAMPLE = 5
_READ_UP_TO = 64 * 2**20  # largest id table, in bytes, that is read to show a few ids


def describe_model(path: str, output: Output, *, check: bool) -> None:
    """Show the manifest and a few ids. With `check`, also load the model and make one recommendation."""
    from shortlist.storage import read_manifest

    manifest = read_manifest(path)
    samples = {name: _sample(Path(path), manifest, name) for name in manifest.tables}
    checked = _check(path) if check else None
    sizes = {name: entry.rows for name, entry in manifest.tables.items()}
    seen = manifest.arrays.get("seen.indices")
    if seen is not None:
        sizes["interactions"] = seen.shape[0]
    if output.json:
        output.document(_document(path, manifest, sizes, samples, checked))
    else:
        _show(manifest, sizes, samples, checked, output)


def _document(
    path: str,
    manifest: "Manifest",
    sizes: Mapping[str, int],
    samples: Mapping[str, list[Any] | None],
    checked: dict[str, Any] | None,
) -> dict[str, Any]:
    return {
        "path": path,
        "what": "model",
        "kind": manifest.kind,
        "settings": manifest.settings,
        "derived": _derived(manifest),
        **sizes,
        "tables": {
            name: {
                "rows": entry.rows,
                "columns": [{"name": column, "type": kind} for column, kind in entry.columns],
                "sample": samples[name],
            }
            for name, entry in manifest.tables.items()
        },
        "arrays": [
            {"name": name, "dtype": entry.dtype, "shape": list(entry.shape)} for name, entry in manifest.arrays.items()
        ],
        "files": [{"name": name, "bytes": entry.bytes} for name, entry in manifest.files.items()],
        "bytes": manifest.total_bytes,
        "shortlist_version": manifest.shortlist_version,
        "created": manifest.created,
        "check": checked,
    }


def _show(
    manifest: "Manifest",
    sizes: Mapping[str, int],
    samples: Mapping[str, list[Any] | None],
    checked: dict[str, Any] | None,
    output: Output,
) -> None:
    facts: list[tuple[str, object]] = [("model", manifest.kind)]
    derived = _derived(manifest)
    for name, value in manifest.settings.items():
        facts.append((f"  {name}", f"{value} (from the data)" if name in derived else value))
    for name, entry in manifest.tables.items():
        kinds = ", ".join(f"{column}: {kind}" for column, kind in entry.columns)
        facts.append((name, f"{entry.rows:,} ({kinds}){_such_as(samples[name], entry.rows)}"))
    if "interactions" in sizes:
        facts.append(("interactions", f"{sizes['interactions']:,} distinct pairs"))
    facts.append(("created", f"{manifest.created} by Shortlist {manifest.shortlist_version}"))
    facts.append(("size", f"{manifest.total_bytes:,} bytes"))
    if checked is not None:
        facts.append(("check", f"OK: loaded in {checked['seconds']:.2f} s, all files intact, one recommendation made"))
    output.facts(facts)
    output.line()
    output.table(
        ["array", "type", "shape"],
        [[name, entry.dtype, " × ".join(f"{n:,}" for n in entry.shape)] for name, entry in manifest.arrays.items()],
    )
    output.line()
    output.table(
        ["file", "bytes"], [[name, f"{entry.bytes:,}"] for name, entry in manifest.files.items()], right=["bytes"]
    )


def _derived(manifest: "Manifest") -> list[str]:
    """Return the names of the settings that were derived from the data."""
    names = manifest.extra.get("derived", [])
    return [name for name in names if name in manifest.settings] if isinstance(names, list) else []


def _such_as(sample: list[Any] | None, rows: int) -> str:
    if not sample:
        return ""
    return ": " + ", ".join(shown(key) for key in sample) + (" …" if rows > len(sample) else "")


def _sample(directory: Path, manifest: "Manifest", name: str) -> list[Any] | None:
    """Return the first few ids of a table, or None if the file is missing, changed or too large."""
    import numpy as np

    from shortlist.errors import StorageError
    from shortlist.storage.files import file_size, open_regular, read_exactly
    from shortlist.storage.id_tables import decode

    entry = manifest.tables[name]
    expected = manifest.files[entry.file]
    if expected.bytes > _READ_UP_TO:
        return None
    with suppress(OSError, ValueError, StorageError), open_regular(directory / entry.file) as file:
        if file_size(file) == expected.bytes:
            content, sha256 = read_exactly(file, expected.bytes)
            if sha256 == expected.sha256:
                return decode(entry, content, directory / entry.file).rows(np.arange(min(_SAMPLE, entry.rows)))
    return None


def _check(path: str) -> dict[str, Any]:
    """Load the model and make one recommendation. Raise an error if anything is wrong."""
    from shortlist.loading import load

    with Stopwatch() as watch:
        model = load(path, verify=True)
        model.recommend(history=[[]], n=1)
    return {"ok": True, "seconds": watch.seconds}
