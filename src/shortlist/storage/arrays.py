"""Arrays in one safetensors file: eight bytes of header length, a JSON header, then the data of all arrays.

The package `safetensors` can read these files but is not used here, because it copies every array when writing and
again when reading. This module writes from the arrays' own memory and returns views of the mapped file. It does not
parse the header: the format version fixes the layout, so the manifest determines every byte of the header, and any
other header is refused.

Since format version 2 every array starts at a multiple of 64 bytes, so that kernels can use it in place. Safetensors
files have no gaps; the bytes in between are arrays of their own, with names that no other array can have.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

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


def file_bytes(entries: Mapping[str, ArrayEntry], version: int) -> int:
    """Return the size of the file of these arrays."""
    layout = _layout(entries, version)
    return len(header(entries, version)) + (layout[-1].stop if layout else 0)


def encode(entries: Mapping[str, ArrayEntry], version: int, arrays: Mapping[str, NDArray[Any]]) -> Iterator[memoryview]:
    """Yield the bytes of the file in pieces; contiguous arrays are not copied."""
    yield memoryview(header(entries, version))
    for part in _layout(entries, version):
        if part.name is None:
            yield memoryview(bytes(part.stop - part.start))
        else:
            flat = np.asarray(arrays[part.name], dtype=_little(part.dtype), order="C").reshape(-1)
            yield flat.view(np.uint8).data


def decode(
    entries: Mapping[str, ArrayEntry], version: int, buffer: NDArray[np.uint8], *, verify: bool
) -> dict[str, NDArray[Any]]:
    """Return read-only views of `buffer` by name; raise ValueError if its layout does not match `entries`.

    Args:
        entries: the arrays that the manifest lists.
        version: the version of the file format.
        buffer: the content of the file.
        verify: check the values too.
    """
    start = header(entries, version)
    if buffer[: len(start)].tobytes() != start:
        raise ValueError("its header does not describe the arrays (names, dtypes, shapes) that the manifest lists")
    if len(buffer) != file_bytes(entries, version):
        raise ValueError("its length does not match the arrays that the manifest lists")
    views = {}
    for part in _layout(entries, version):
        if part.name is not None:
            view = buffer[len(start) + part.start : len(start) + part.stop].view(_little(part.dtype))
            view = views[part.name] = view.reshape(part.shape)
            view.flags.writeable = False
            if verify:
                check_values(part.name, view)
    return {name: views[name] for name in entries}


def header(entries: Mapping[str, ArrayEntry], version: int) -> bytes:
    """Return the length and the JSON header, padded with spaces so that the first array is aligned."""
    described = {}
    for number, part in enumerate(_layout(entries, version)):
        described[f"(padding {number})" if part.name is None else part.name] = {
            "dtype": CODES[part.dtype],
            "shape": list(part.shape),
            "data_offsets": [part.start, part.stop],
        }
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-(8 + len(text)) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


class _FilePart(NamedTuple):
    """A range of the file after the header: an array, or padding without a name."""

    name: str | None
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def _layout(entries: Mapping[str, ArrayEntry], version: int) -> list[_FilePart]:
    """Return the parts of the file. Larger items come first, which aligned them in version 1, without padding."""
    parts: list[_FilePart] = []
    end = 0
    for name in sorted(entries, key=lambda name: (-np.dtype(entries[name].dtype).itemsize, name)):
        entry = entries[name]
        if version > 1 and (gap := -end % _ALIGN):
            parts.append(_FilePart(None, "uint8", (gap,), end, end + gap))
            end += gap
        parts.append(_FilePart(name, entry.dtype, entry.shape, end, end + byte_count(entry)))
        end += byte_count(entry)
    return parts


def _little(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")
