"""Harm to the manifest: its text as it stands, and its content, signed anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from storage.box import MANIFEST, Box, mutation

if TYPE_CHECKING:
    import random


def nested(depth: int) -> Any:
    value: Any = 1
    for k in range(depth):
        value = [value] if k % 2 else {"a": value}
    return value


@mutation
def spelled_otherwise(box: Box) -> None:
    """The same content."""
    found = box.manifest()
    if box.rng.random() < 0.5:
        found = dict(sorted(found.items(), key=lambda _: box.rng.random()))
    indent = box.rng.choice([None, 0, 4, "\t"])
    text = json.dumps(found, indent=indent, ensure_ascii=box.rng.random() < 0.5)
    if box.rng.random() < 0.5:
        at = text.index('"', box.rng.randrange(len(text) // 2)) + 1
        if text[at].isalpha():
            text = f"{text[:at]}\\u{ord(text[at]):04x}{text[at + 1 :]}"
    box.regular(MANIFEST).write_text(text)


@mutation
def odd_text(box: Box) -> None:
    text = box.regular(MANIFEST).read_text()
    where = [at for at, character in enumerate(text) if character in "{,[:"]
    at = box.rng.choice(where) + 1
    odd = box.rng.choice(
        [
            *('"a":1,', '"kind":"EASE",', '"format":"shortlist-model",', '"a":NaN,', '"a":-Infinity,', '"a":1e999,'),
            *(
                "NaN,",
                "Infinity,",
                "1e999,",
                "null,",
                "-",
                "+",
                ".",
                "0x10,",
                "01,",
                "1" * 5000 + ",",
                "// a\n",
                "/**/",
            ),
            *('"\\ud800":1,', '"\\ud800",', '"\\u0000":1,', "'a':1,", "\x00", "\x0b", "\ufeff", "]", "}", ",", '"'),
            *('"a":' * 3000, "[" * 100_000, '{"a":' * 100_000, " " * (1 << 15), '"' + "a" * 100_000 + '":1,'),
        ]
    )
    box.regular(MANIFEST).write_text(text[:at] + odd + text[at:])


@mutation
def twice_the_same_key(box: Box) -> None:
    """The same object, once as it was and once otherwise; whichever a reader takes, it must not take it silently."""
    text = box.regular(MANIFEST).read_text()
    found = box.manifest()
    key = box.rng.choice(list(found))
    member = f'"{key}": {json.dumps(box.rng.choice([found[key], weird(box.rng)]))}'
    before = box.rng.random() < 0.5
    text = text.strip()
    text = f"{{{member}, {text[1:]}" if before else f"{text[:-1]}, {member}}}"
    box.regular(MANIFEST).write_text(text)


@mutation
def as_utf_16_or_with_a_mark(box: Box) -> None:
    text = box.regular(MANIFEST).read_text()
    box.regular(MANIFEST).write_bytes(text.encode(box.rng.choice(["utf-16", "utf-8-sig", "utf-32", "utf-16-le"])))


@mutation
def a_large_manifest(box: Box) -> None:
    """Large in bytes, or in what its bytes unpack to."""
    pick = box.rng.randrange(5)
    size = box.rng.choice([1 << 14, 1 << 16, 1 << 19, (1 << 20) - 5000, 1 << 21])
    text = box.regular(MANIFEST).read_text()
    if pick == 0:
        box.regular(MANIFEST).write_text(text + " " * size)
    elif pick == 1:
        box.change(lambda found: found["extra"].update(a=[[]] * (size // 4)))
    elif pick == 2:
        box.change(lambda found: found["extra"].update({"k" * (size // 2): [0] * (size // 6)}))
    elif pick == 3:
        box.change(lambda found: found["extra"].update({str(k): {} for k in range(size // 12)}))
    else:
        box.change(lambda found: found["settings"].update({"s" * (size // 2): "v" * (size // 2)}))


def weird(rng: random.Random) -> Any:
    return rng.choice(
        [
            *(None, True, False, 0, -1, 1, 2, 7, 1.0, 1.5, -0.0, 1e-300, 1e308, -1e308, 3.4e38, 1e30, 2**31, 2**53 + 1),
            *(2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, 10**4000, "", "x", "é", "\x00", "a" * 5000, "../x"),
            *("IALS", "binary", "raw", "int32", "float64", "String", "arrays.safetensors", "manifest.json", "."),
            *([], {}, [[]], {"a": 1}, [1, 2, 3], [0, 2**62, 2**62], "1", "1e5", nested(30), nested(70), nested(300)),
        ]
    )


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += places(value[key], (*here, key))
    return found


def holder(found: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        found = found[key]
    return found


@mutation
def another_value(box: Box) -> None:
    def change(found: dict[str, Any]) -> None:
        for _ in range(box.rng.choice([1, 1, 1, 2])):
            place = box.rng.choice(places(found))
            holder(found, place)[place[-1]] = weird(box.rng)

    box.change(change)


@mutation
def a_number_changed(box: Box) -> None:
    """Rows, bytes and shapes: by one, doubled, as a float, as text, huge, negative."""

    def change(found: dict[str, Any]) -> None:
        numbers = [place for place in places(found) if type(holder(found, place)[place[-1]]) is int]
        place = box.rng.choice(numbers)
        n = holder(found, place)[place[-1]]
        holder(found, place)[place[-1]] = box.rng.choice(
            [n + 1, n - 1, 2 * n, -n, float(n), str(n), [n], n + 2**32, n + 2**64, 2**62, 2**63, 10**25, n * 2**40]
        )

    box.change(change)


@mutation
def a_key_gone_added_or_renamed(box: Box) -> None:
    def change(found: dict[str, Any]) -> None:
        place = box.rng.choice(places(found))
        inside, key = holder(found, place), place[-1]
        pick = box.rng.randrange(3)
        if pick == 0:
            del inside[key]
        elif isinstance(inside, list):
            inside.insert(key, weird(box.rng))
        else:
            inside[box.rng.choice(["", "a", "sha256", "__class__", "seed", key + "_", "k" * 3000])] = inside[key]
            if pick == 1:
                del inside[key]

    box.change(change)


@mutation
def other_settings(box: Box) -> None:
    def change(found: dict[str, Any]) -> None:
        settings = found["settings"]
        key = box.rng.choice(list(settings)) if settings else "a"
        pick = box.rng.randrange(6)
        if pick == 0:
            settings.pop(key, None)
        elif pick == 1:
            settings[box.rng.choice(["extra", "self", "_fitted", "seen_", "d" * 10_000])] = weird(box.rng)
        elif pick == 2 and isinstance(settings.get(key), int | float):
            settings[key] = settings[key] * box.rng.choice([-1, 0, 2, 1e10, 1e30, 1e100, 1e300, 1e-30, 1e-300])
        else:
            settings[key] = weird(box.rng)

    box.change(change)


@mutation
def another_kind_or_version(box: Box) -> None:
    key = box.rng.choice(["kind", "kind", "format", "format_version", "shortlist_version"])
    kinds = ["EASE", "IALS", "Popularity", "ials", "os.system", "Recommender", "", "K" * 9000]
    box.change(
        lambda found: found.update({key: box.rng.choice([*kinds, 0, 2, 1.0, "1", None, 10**50, weird(box.rng)])})
    )
