"""Harm to files: their bytes, what they are, and whose they are."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from shortlist.storage import arrays as array_files
from shortlist.storage.manifest import FORMAT_VERSION, ArrayEntry
from storage.box import MANIFEST, Box, mutation

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def bytes_of(box: Box, alter: Callable[[bytearray, random.Random], object]) -> None:
    path = box.pick()
    raw = bytearray(path.read_bytes())
    alter(raw, box.rng)
    path.write_bytes(raw)
    if path.name != MANIFEST and box.rng.random() < 0.6:
        box.sign()


@mutation
def flip_bits(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)

    bytes_of(box, alter)


@mutation
def set_bytes(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        for _ in range(rng.choice([1, 1, 2, 4])):
            raw[rng.randrange(len(raw))] = rng.choice([0, 1, 127, 128, 255, 34, 44, 48, rng.randrange(256)])

    bytes_of(box, alter)


@mutation
def insert_bytes(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        at = rng.randrange(len(raw) + 1)
        raw[at:at] = rng.randbytes(rng.choice([1, 2, 8, 64])) if rng.random() < 0.5 else b" " * rng.choice([1, 8])

    bytes_of(box, alter)


@mutation
def delete_bytes(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        at = rng.randrange(len(raw))
        del raw[at : at + rng.choice([1, 2, 8, 64])]

    bytes_of(box, alter)


@mutation
def cut(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        del raw[rng.choice([0, 1, 7, 8, 9, rng.randrange(len(raw)), rng.randrange(len(raw))]) :]

    bytes_of(box, alter)


@mutation
def lengthen(box: Box) -> None:
    bytes_of(box, lambda raw, rng: raw.extend(rng.choice([b"\0", b" ", b"\n", b"x", bytes(raw)])))


@mutation
def zero_a_page(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        size = rng.choice([64, 512, 4096])
        at = rng.randrange(0, len(raw), size)
        raw[at : at + size] = bytes(len(raw[at : at + size]))

    bytes_of(box, alter)


@mutation
def repeat_a_page(box: Box) -> None:
    def alter(raw: bytearray, rng: random.Random) -> None:
        size = rng.choice([64, 512])
        source, at = rng.randrange(0, len(raw), size), rng.randrange(0, len(raw), size)
        raw[at : at + size] = raw[source : source + size]

    bytes_of(box, alter)


@mutation
def set_words(box: Box) -> None:
    """Numbers of 4 or 8 bytes, which is what headers of binary files are made of."""

    def alter(raw: bytearray, rng: random.Random) -> None:
        for _ in range(rng.choice([1, 1, 2])):
            size = rng.choice([4, 8])
            at = rng.randrange(0, max(1, len(raw) - size), 4)
            value = rng.choice([0, 1, 8, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
            raw[at : at + size] = (value & (256**size - 1)).to_bytes(size, "little")

    path = box.rng.choice(box.parts())
    raw = bytearray(path.read_bytes())
    alter(raw, box.rng)
    path.write_bytes(raw)
    box.sign()


@mutation
def remove(box: Box) -> None:
    box.pick().unlink()


@mutation
def empty(box: Box) -> None:
    box.pick().write_bytes(b"")
    if box.rng.random() < 0.5:
        box.sign()


@mutation
def duplicate(box: Box) -> None:
    """A second copy under another name: nobody asked for it, and nobody minds."""
    one = box.pick()
    shutil.copy(one, box.path / f"copy-{one.name}")


@mutation
def over_each_other(box: Box) -> None:
    one, other = box.pick(), box.pick()
    shutil.copy(one, box.path / "aside")
    os.replace(box.path / "aside", other)
    if box.rng.random() < 0.5:
        box.sign()


@mutation
def exchange_tables(box: Box) -> None:
    a, b = box.regular("table-items.arrow"), box.regular("table-contexts.arrow")
    kept = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(kept)
    if box.rng.random() < 0.5:
        box.sign()


@mutation
def a_directory(box: Box) -> None:
    one = box.pick()
    one.unlink()
    one.mkdir()
    if box.rng.random() < 0.5:
        (one / "inside").write_text("x")


@mutation
def a_link(box: Box) -> None:
    one = box.pick()
    aside = box.path.parent / "aside"
    one.rename(aside)
    one.symlink_to(box.rng.choice([str(aside), "/dev/zero", "/dev/null", "/dev/tty", "nowhere", one.name, "/"]))


@mutation
def a_pipe(box: Box) -> None:
    one = box.pick()
    one.unlink()
    os.mkfifo(one)


@mutation
def a_hard_link(box: Box) -> None:
    one = box.pick()
    one.rename(box.path.parent / "aside")
    os.link(box.path.parent / "aside", one)


@mutation
def a_huge_file(box: Box) -> None:
    """Without a byte on the disk; what it says of itself may agree with it."""
    one = box.pick()
    size = box.rng.choice([1 << 28, 1 << 33, 1 << 40, (1 << 43) - 1])
    os.truncate(one, size)
    if one.name == MANIFEST or box.rng.random() < 0.3:
        return
    if box.rng.random() < 0.5:
        size = max(size, 1 << 40)  # else it would be read, as it may
        os.truncate(one, size)
        box.sign()
        if one.suffix == ".safetensors":
            box.change(lambda found: found["arrays"]["entries"].update(_filling(found, size)))


def _filling(found: dict[str, Any], size: int) -> dict[str, Any]:
    """Array entries that take just that many bytes, in all."""
    name = min(found["arrays"]["entries"])
    for guess in range(size - 4096, size):
        entries = {**found["arrays"]["entries"], name: {"dtype": "int8", "shape": [guess]}}
        typed = {key: ArrayEntry(one["dtype"], tuple(one["shape"])) for key, one in entries.items()}
        if array_files.file_bytes(typed, FORMAT_VERSION) == size:
            return {name: entries[name]}
    return {}


@mutation
def permissions(box: Box) -> None:
    box.pick().chmod(box.rng.choice([0, 0o200, 0o400, 0o777]))


@mutation
def extra_files(box: Box) -> None:
    for name in ("README.md", "manifest.json.bak", ".hidden", "x" * 200):
        if not os.path.lexists(box.path / name):  # it may be a pipe by now
            (box.path / name).write_text("mine")
    (box.path / "folder").mkdir()


@mutation
def a_part_of_another(box: Box) -> None:
    name = box.pick().name
    shutil.copy(box.rng.choice(box.others) / name, box.path / name)
    if box.rng.random() < 0.6:
        box.sign()


@mutation
def all_parts_of_another(box: Box) -> None:
    """Everything but the manifest, or everything with it."""
    other = box.rng.choice(box.others)
    whole = box.rng.random() < 0.3
    for one in other.iterdir():
        if whole or one.name != MANIFEST:
            shutil.copy(one, box.regular(one.name))
    if box.rng.random() < 0.5:
        box.sign()


@mutation
def an_entry_of_another_manifest(box: Box) -> None:
    theirs = json.loads((box.rng.choice(box.others) / MANIFEST).read_text())
    key = box.rng.choice(["kind", "settings", "extra", "arrays", "tables", "files", "sha256"])
    if key == "sha256" or box.rng.random() < 0.3:
        found = {**box.manifest(), key: theirs[key]}
        box.regular(MANIFEST).write_text(json.dumps(found))
    else:
        box.change(lambda found: found.update({key: theirs[key]}))
