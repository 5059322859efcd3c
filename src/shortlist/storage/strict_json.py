"""Strict JSON: no NaN, no duplicate keys, no value that would be read back as something else."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

MAX_DEPTH = 64


def check_json(value: object, where: str, depth: int = 0) -> None:
    """Raise ValueError, with the position, unless `value` has JSON values only.

    Tuples are refused, although `json` can write them, because they would be read back as lists.
    """
    _check(value, [where], depth)


def _check(value: object, path: list[str | int], depth: int) -> None:
    # The position is formatted only for an error: with long keys, this would cost more than the whole check.
    if depth > MAX_DEPTH:
        raise ValueError(f"{_position(path)} is nested deeper than {MAX_DEPTH} levels or contains itself")
    if value is None or isinstance(value, (bool, int)):
        return
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{_position(path)} is {value}; JSON has finite numbers only, use None or a string")
    elif isinstance(value, list):
        for i, member in enumerate(value):
            path.append(i)
            _check(member, path, depth + 1)
            path.pop()
    elif isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise ValueError(
                    f"{_position(path)} has the key {key!r:.80} of type {type(key).__name__}; keys must be strings"
                )
            path.append(key)
            _check_text(key, path)
            _check(member, path, depth + 1)
            path.pop()
    else:
        raise ValueError(
            f"{_position(path)} is of type {type(value).__name__}; expected None, bool, int, float, str, list or dict"
        )


def _position(path: list[str | int]) -> str:
    first, *rest = path
    shown = "".join(f"[{part!r:.80}]" for part in rest)
    return f"{first}{shown}" if len(shown) <= 400 else f"{first}{shown[:200]}…{shown[-200:]}"


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raise ValueError unless it is strictly valid."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def canonical_sha256(value: object) -> str:
    """Return the sha256 of the canonical JSON of `value`: sorted keys, no spaces, ASCII."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _check_text(text: str, path: list[str | int]) -> None:
    # Two lone surrogates in a row would be read back as one character.
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{_position(path)} has the text {text!r:.80}, which is not Unicode: it has lone surrogates")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same key twice")
    return members


def _no_constant(token: str) -> Any:
    raise ValueError(f"{token} is not a JSON number")
