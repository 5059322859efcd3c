r"""Find and replace lone surrogates in JSON lines: "\ud800" alone is half of a surrogate pair and no character.

polars reads some of them as NUL characters and fails on others. They appear where a text was cut in the middle of an
emoji, often in columns that are not even used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from shortlist.data.csv_lines import blocks_of_lines, opened_text, shortened
from shortlist.errors import DataError

_ESCAPES = rb"\ud", rb"\uD"
_LONE_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
_LONE = re.compile("[\ud800-\udfff]")


def has_surrogates(path: Path) -> bool:
    """Return whether the file may hold a lone surrogate."""
    return any(_may_be_broken(block) for block in blocks_of_lines(path))


def without_surrogates(path: Path, named: Collection[str] = ()) -> bytes:
    r"""Return the file with null for broken texts in the `named` columns and "\ufffd" for lone surrogates elsewhere."""
    lines = []
    with opened_text(path) as stream:
        for line in stream:
            row = _broken_row(line)
            if row is None:
                lines.append(line)
                continue
            row = {name: None if name in named and _is_broken(value) else value for name, value in row.items()}
            lines.append(_LONE.sub("\ufffd", json.dumps(row, ensure_ascii=False)).encode() + b"\n")
    return b"".join(lines)


def refuse_surrogates(path: Path, named: Collection[str], hint: str) -> None:
    """Refuse a file with a lone surrogate in one of the named columns; the error shows the first such line."""
    with opened_text(path) as stream:
        for number, line in enumerate(stream, 1):
            for name, value in (_broken_row(line) or {}).items():
                if name in named and _is_broken(value):
                    raise DataError(
                        f"{path}: column {name!r} in line {number:,} is not Unicode text: it has half of a surrogate "
                        f"pair: {shortened(line)}",
                        code="bad-rows",
                        field=name,
                        hint=hint,
                    )


def _may_be_broken(data: bytes) -> bool:
    return any(escape in data for escape in _ESCAPES) and _LONE_ESCAPE.search(data) is not None


def _broken_row(line: bytes) -> dict[str, Any] | None:
    """Parse a line if it is a JSON object with a lone surrogate; return None for any other line."""
    if not _may_be_broken(line):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and _is_broken(row) else None


def _is_broken(value: Any) -> bool:
    return _LONE.search(json.dumps(value, ensure_ascii=False)) is not None
