"""Arrays in one safetensors file: eight bytes of header length, a JSON header, then the data of all arrays.

The package `safetensors` can read these files but is not used here, because it copies every array when writing and
again when reading. This module writes from the arrays' own memory and returns views of the one buffer whose sha256 was
checked. It does not parse the header: format version 1 fixes the layout, so the manifest determines every byte of the
header, and any other header is refused.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from shortlist.storage.manifest import ArrayEntry

CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
MAX_DIMENSIONS = 32
_ALIGN = 64
_BLOCK = 1 << 20


def check_array(name: str, array: object) -> None:
    """Raise ValueError unless the array can be written and read back unchanged."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise ValueError(f"array {name!r} is of type {type(array).__name__}; expected a plain numpy array")
    if array.dtype.name not in CODES:
        raise ValueError(f"array {name!r} has dtype {array.dtype}; expected one of {', '.join(CODES)}")
    if array.ndim > MAX_DIMENSIONS:
        raise ValueError(f"array {name!r} has {array.ndim} dimensions; at most {MAX_DIMENSIONS} are supported")
    check_values(name, array)


def check_values(name: str, array: NDArray[Any]) -> None:
    """Raise ValueError for NaN, infinity, and bool bytes other than 0 and 1."""
    if array.dtype.kind not in "fb":
        return
    flat = array.reshape(-1) if array.flags.c_contiguous else np.asarray(array, order="C").reshape(-1)
    for start in range(0, flat.size, _BLOCK):  # in blocks, so that no mask of the array's full size is needed
        block = flat[start : start + _BLOCK]
        if array.dtype.kind == "f" and not np.isfinite(block).all():
            at = start + int(np.argmin(np.isfinite(block)))
            index = [int(i) for i in np.unravel_index(at, array.shape)] if array.ndim else []
            raise ValueError(f"array {name!r} has the value {flat[at]} at {index}; only finite numbers can be saved")
        if array.dtype.kind == "b" and block.view(np.uint8).max() > 1:
            raise ValueError(f"array {name!r} has bytes that are neither false nor true")


def byte_count(entry: ArrayEntry) -> int:
    """Return the number of bytes of an array's data."""
    return math.prod(entry.shape) * np.dtype(entry.dtype).itemsize


def encode(entries: Mapping[str, ArrayEntry], arrays: Mapping[str, NDArray[Any]]) -> Iterator[memoryview]:
    """Yield the bytes of the file in pieces; contiguous arrays are not copied."""
    yield memoryview(header(entries))
    for name in _layout(entries):
        flat = np.asarray(arrays[name], dtype=_little(entries[name].dtype), order="C").reshape(-1)
        yield flat.view(np.uint8).data


def decode(entries: Mapping[str, ArrayEntry], buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """Return read-only views of `buffer` by name; raise ValueError if its layout does not match `entries`."""
    start = header(entries)
    if buffer[: len(start)].tobytes() != start:
        raise ValueError("its header does not describe the arrays (names, dtypes, shapes) that the manifest lists")
    if len(buffer) != len(start) + sum(map(byte_count, entries.values())):
        raise ValueError("its length does not match the arrays that the manifest lists")
    buffer.flags.writeable = False
    views, offset = {}, len(start)
    for name in _layout(entries):
        entry, end = entries[name], offset + byte_count(entries[name])
        views[name] = buffer[offset:end].view(_little(entry.dtype)).reshape(entry.shape)
        check_values(name, views[name])
        offset = end
    return {name: views[name] for name in entries}


def header(entries: Mapping[str, ArrayEntry]) -> bytes:
    """Return the length and the JSON header, padded with spaces so that every array is aligned."""
    described, offset = {}, 0
    for name in _layout(entries):
        end = offset + byte_count(entries[name])
        described[name] = {
            "dtype": CODES[entries[name].dtype],
            "shape": list(entries[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-(8 + len(text)) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


def _layout(entries: Mapping[str, ArrayEntry]) -> list[str]:
    # The format allows no gaps between arrays; sorting by item size, largest first, keeps all of them aligned.
    return sorted(entries, key=lambda name: (-np.dtype(entries[name].dtype).itemsize, name))


def _little(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")
