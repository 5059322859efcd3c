"""JSON with nothing left open: no NaN, no key twice, no value that would come back as something else."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

MAX_DEPTH = 64


def check_json(value: object, where: str, depth: int = 0) -> None:
    """Raise ValueError, naming the place, unless `value` is made of JSON values only.

    Tuples are refused although `json` would write them: they would come back as lists.
    """
    _check(value, [where], depth)


def _check(value: object, path: list[str | int], depth: int) -> None:
    # The place is spelled out only where something is wrong: with long keys it would cost more than all the rest.
    if depth > MAX_DEPTH:
        raise ValueError(f"{_place(path)} is nested deeper than {MAX_DEPTH} levels or contains itself")
    if value is None or isinstance(value, (bool, int)):
        return
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{_place(path)} is {value}; JSON has finite numbers only, use None or a string")
    elif isinstance(value, list):
        for i, member in enumerate(value):
            path.append(i)
            _check(member, path, depth + 1)
            path.pop()
    elif isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise ValueError(
                    f"{_place(path)} has the key {key!r:.80} of type {type(key).__name__}; keys must be strings"
                )
            path.append(key)
            _check_text(key, path)
            _check(member, path, depth + 1)
            path.pop()
    else:
        raise ValueError(
            f"{_place(path)} is of type {type(value).__name__}; expected None, bool, int, float, str, list or dict"
        )


def _place(path: list[str | int]) -> str:
    first, *rest = path
    shown = "".join(f"[{part!r:.80}]" for part in rest)
    return f"{first}{shown}" if len(shown) <= 400 else f"{first}{shown[:200]}…{shown[-200:]}"


def parse_json(raw: bytes) -> Any:
    """Parse UTF-8 JSON; raise ValueError on anything doubtful."""
    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def canonical_sha256(value: object) -> str:
    """The sha256 of the one spelling of `value`: sorted keys, no spaces, ASCII."""
    spelling = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(spelling.encode("ascii")).hexdigest()


def _check_text(text: str, path: list[str | int]) -> None:
    # Two lone surrogates in a row would come back as one character.
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{_place(path)} has the text {text!r:.80}, which is not Unicode: it has lone surrogates")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_constant(token: str) -> Any:
    raise ValueError(f"{token} is not a JSON number")
