"""Harm to arrays and tables, with everything that vouches for them signed anew."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from shortlist.storage import arrays as array_files
from shortlist.storage.manifest import ArrayEntry
from storage.box import Box, mutation
from storage.harm_manifest import nested

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[Any]"]


def with_arrays(box: Box, change: Callable[[Arrays], object]) -> None:
    """Change the arrays and make everything that describes them right again."""
    path = box.regular("arrays.safetensors")
    entries = {
        name: ArrayEntry(e["dtype"], tuple(e["shape"])) for name, e in box.manifest()["arrays"]["entries"].items()
    }
    version = box.manifest()["format_version"]
    buffer = np.frombuffer(path.read_bytes(), np.uint8).copy()
    views = array_files.decode(entries, version, buffer, verify=False)
    arrays = {name: view.copy() for name, view in views.items()}
    change(arrays)
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    entries = {name: ArrayEntry(array.dtype.name, array.shape) for name, array in arrays.items()}
    path.write_bytes(b"".join(map(bytes, array_files.encode(entries, version, arrays))))
    listed = {name: {"dtype": entry.dtype, "shape": list(entry.shape)} for name, entry in entries.items()}
    box.change(lambda found: found["arrays"].update(entries=listed))
    box.sign()


@mutation
def other_floats(box: Box) -> None:
    def change(arrays: Arrays) -> None:
        name = box.rng.choice([name for name, array in arrays.items() if array.dtype.kind == "f" and array.size])
        flat = arrays[name].reshape(-1)
        for _ in range(box.rng.choice([1, 3, flat.size])):
            flat[box.rng.randrange(flat.size)] = box.rng.choice(
                [
                    np.nan,
                    np.inf,
                    -np.inf,
                    0,
                    -0.0,
                    1,
                    -1,
                    3.4e38,
                    -3.4e38,
                    1e20,
                    -1e20,
                    1e-45,
                    1e-38,
                    box.rng.gauss(0, 1),
                ]
            )

    with_arrays(box, change)


@mutation
def all_floats_scaled(box: Box) -> None:
    def change(arrays: Arrays) -> None:
        name = box.rng.choice([name for name, array in arrays.items() if array.dtype.kind == "f"])
        with np.errstate(all="ignore"):
            arrays[name] *= np.float32(box.rng.choice([0, -1, 1e-40, 1e-20, 1e10, 1e18, 1e25, 1e37, np.nan]))

    with_arrays(box, change)


@mutation
def other_bounds(box: Box) -> None:
    """The bounds of rows: not rising, not from 0, not to the end, over the edge of 64 bits."""

    def change(arrays: Arrays) -> None:
        bounds = arrays[box.rng.choice([name for name in arrays if name.endswith(("indptr", "bounds_"))])]
        pick, at = box.rng.randrange(6), box.rng.randrange(len(bounds))
        if pick == 0:
            bounds[at] = box.rng.choice([-1, 0, 1, len(bounds), 2**31, 2**62, 2**63 - 1, -(2**63)])
        elif pick == 1:
            bounds[:] = np.sort(bounds)[::-1]
        elif pick == 2:
            bounds += box.rng.choice([-1, 1, 2**40])
        elif pick == 3 and len(bounds) > 3:
            bounds[1], bounds[2] = 2**63 - 1, -2  # each difference, modulo 2**64, is positive
        elif pick == 4:
            bounds[at], bounds[-1 - at] = bounds[-1 - at], bounds[at]
        else:
            bounds[:] = 0

    with_arrays(box, change)


@mutation
def other_columns(box: Box) -> None:
    """The columns within rows: out of range, unsorted, twice."""

    def change(arrays: Arrays) -> None:
        columns = arrays[box.rng.choice([name for name in arrays if name.endswith(("indices", "_items_", ".codes"))])]
        pick, at = box.rng.randrange(5), box.rng.randrange(len(columns))
        if pick == 0:
            columns[at] = box.rng.choice([-1, 11, 12, 10**6, 2**31 - 1, -(2**31)])
        elif pick == 1:
            columns[:] = columns[::-1].copy()
        elif pick == 2:
            columns[at] = columns[at - 1]
        elif pick == 3:
            columns[:] = box.rng.randrange(11)
        else:
            columns[at] = box.rng.randrange(11)

    with_arrays(box, change)


@mutation
def other_order(box: Box) -> None:
    """The popularity of items, and the index of ids: other numbers."""

    def change(arrays: Arrays) -> None:
        names = [name for name in arrays if name in ("popularity", "priority") or name.endswith((".hashes", ".codes"))]
        array = arrays[box.rng.choice(names)]
        limits = np.iinfo(array.dtype)
        for _ in range(box.rng.choice([1, 3, array.size])):
            array[box.rng.randrange(array.size)] = box.rng.choice([limits.min, limits.max, 0, 1, array.size])

    with_arrays(box, change)


@mutation
def other_dtypes(box: Box) -> None:
    def change(arrays: Arrays) -> None:
        name = box.rng.choice(list(arrays))
        with np.errstate(all="ignore"):
            arrays[name] = arrays[name].astype(box.rng.choice(list(array_files.CODES)))

    with_arrays(box, change)


@mutation
def other_shapes(box: Box) -> None:
    def change(arrays: Arrays) -> None:
        name = box.rng.choice(list(arrays))
        array = arrays[name]
        arrays[name] = box.rng.choice(
            [
                *(array.reshape(-1), array.T, array[:-1], array[1:], array[:0], np.concatenate([array, array])),
                *(array[..., None], array[None], array[..., :-1], array.reshape(-1)[:1].reshape(()), array[..., :0]),
            ]
        )

    with_arrays(box, change)


@mutation
def other_arrays(box: Box) -> None:
    def change(arrays: Arrays) -> None:
        names = list(arrays)
        a, b, pick = box.rng.choice(names), box.rng.choice(names), box.rng.randrange(4)
        if pick == 0:
            del arrays[a]
        elif pick == 1:
            arrays[box.rng.choice(["more", "seen.values", "__class__", "fit", "a" * 200])] = arrays[b].copy()
        elif pick == 2:
            arrays[a + "x"] = arrays.pop(a)
        else:
            arrays[a], arrays[b] = arrays[b], arrays[a]

    with_arrays(box, change)


@mutation
def nobody_and_nothing(box: Box) -> None:
    """No contexts, or no items, in all that is said of them."""
    table = box.rng.choice(["contexts", "items"])

    def change(arrays: Arrays) -> None:
        for name, array in arrays.items():
            arrays[name] = array[:0]
        arrays["seen.indptr"] = np.zeros(1 if table == "contexts" else 15, np.int64)

    with_arrays(box, change)
    with_table(box, table, lambda frame: frame[:0])


@mutation
def header_of_the_arrays(box: Box) -> None:
    """Length, depth, offsets and shapes in the safetensors header, with the file signed."""
    path = box.regular("arrays.safetensors")
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    text, rest = raw[8 : 8 + size], raw[8 + size :]
    found = json.loads(text)
    name = box.rng.choice(list(found))
    pick = box.rng.randrange(7)
    if pick == 0:
        size = box.rng.choice([0, 1, size - 1, size + 1, size + 8, len(raw), 2**31, 2**62, 2**63, 2**64 - 1])
        path.write_bytes(size.to_bytes(8, "little") + text + rest)
    else:
        if pick == 1:
            found[name]["shape"] = box.rng.choice([[2**40, 2**40], [2**63], [-1], [0, 2**62], [1.5], [], nested(50)])
        elif pick == 2:
            begin, end = found[name]["data_offsets"]
            found[name]["data_offsets"] = box.rng.choice(
                [[end, begin], [0, end], [begin, 2**62], [begin - 1, end], [-1]]
            )
        elif pick == 3:
            found[name]["dtype"] = box.rng.choice(["F32", "F64", "I8", "BF16", "", None, 7])
        elif pick == 4:
            found["__metadata__"] = {"a": "b" * box.rng.choice([1, 10_000])}
        elif pick == 5:
            found = dict(reversed(found.items()))
        else:
            found["twin"] = found[name]
        text = json.dumps(found, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % 64)
        path.write_bytes(len(text).to_bytes(8, "little") + text + rest)
    box.sign()


def with_table(box: Box, name: str, change: Callable[[pl.DataFrame], pl.DataFrame], **options: Any) -> None:
    """Change a table and, most of the time, make what describes it right again."""
    path = box.regular(f"table-{name}.arrow")
    frame = change(pl.read_ipc(path.read_bytes()))
    out = BytesIO()
    frame.write_ipc(out, **{"compression": "uncompressed", "compat_level": pl.CompatLevel.oldest(), **options})
    path.write_bytes(out.getvalue())
    if box.rng.random() < 0.8:
        columns = [[column.name, str(column.dtype)] for column in frame]
        box.change(lambda found: found["tables"][name].update(rows=frame.height, columns=columns))
    box.sign()


@mutation
def other_ids(box: Box) -> None:
    name = box.rng.choice(["contexts", "items"])

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        first = frame.columns[0]
        pick = box.rng.randrange(12)
        if pick == 0:
            return frame.with_columns(frame[first].gather([0] * frame.height))
        if pick == 1:
            return pl.concat([frame[:-1], frame[:1]])
        if pick == 2:
            return frame[:-1]
        if pick == 3:
            return pl.concat([frame, frame])
        if pick == 4:
            return frame.rename({first: box.rng.choice(["", "rank", "score", "product", "user", "é" * 300])})
        if pick == 5:
            return frame.with_columns(pl.Series(first, range(frame.height)).cast(box.rng.choice([pl.Int8, pl.UInt64])))
        if pick == 6:
            return frame.with_columns(
                pl.Series(first, [f"{k}" * box.rng.choice([1, 500]) for k in range(frame.height)])
            )
        if pick == 7:
            odd = box.rng.choice([pl.Float64, pl.Boolean, pl.Binary, pl.Categorical, pl.List(pl.String)])
            return frame.with_columns(pl.Series(first, [None] * frame.height, dtype=odd))
        if pick == 8:
            return frame.with_columns(pl.Series(first, [None] * frame.height, dtype=frame[first].dtype))
        if pick == 9:
            return frame.with_columns(pl.Series("more", range(frame.height)))
        if pick == 10:
            return frame.reverse()
        return frame[:0]

    with_table(box, name, change)


@mutation
def table_written_otherwise(box: Box) -> None:
    """The same ids: compressed, as views, in several batches."""
    name = box.rng.choice(["contexts", "items"])
    option: dict[str, Any] = box.rng.choice(
        [
            {"compression": "zstd"},
            {"compression": "lz4"},
            {"compat_level": pl.CompatLevel.newest()},
            {"record_batch_size": 3},
        ]
    )
    with_table(box, name, lambda frame: frame, **option)


@mutation
def words_of_a_table(box: Box) -> None:
    """The headers of the Arrow file: near its end, or at its beginning."""
    path = box.regular(f"table-{box.rng.choice(['contexts', 'items'])}.arrow")
    raw = bytearray(path.read_bytes())
    for _ in range(box.rng.choice([1, 1, 1, 2, 3])):
        size = box.rng.choice([1, 2, 4, 4, 8])
        back = box.rng.randrange(6, min(700, len(raw)), 2)
        at = len(raw) - back if box.rng.random() < 0.7 else box.rng.randrange(0, len(raw) - 8, 2)
        value = box.rng.choice(
            [0, 1, 2, 4, 8, 16, 24, 127, 128, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**40, 2**62, -1, -8]
        )
        raw[at : at + size] = (value % 256**size).to_bytes(size, "little")
    path.write_bytes(raw)
    box.sign()
