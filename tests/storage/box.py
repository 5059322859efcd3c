"""A saved model that may be harmed, and the list of ways to do so."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from storage.samples import forge

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

MANIFEST = "manifest.json"


@dataclass
class Box:
    """A copy of a base model that may be harmed, and the other base models to take parts from."""

    path: Path
    rng: random.Random
    others: list[Path]
    signed: bool = False
    done: list[str] = field(default_factory=list)

    def files(self) -> list[Path]:
        """Those that can be read and copied: neither links nor ones that an earlier mutation made huge."""
        regular = (one for one in self.path.iterdir() if one.is_file() and not one.is_symlink())
        return sorted(one for one in regular if one.stat().st_size < 1 << 26)

    def parts(self) -> list[Path]:
        """The files that the manifest vouches for."""
        return [one for one in self.files() if one.name != MANIFEST]

    def regular(self, name: str) -> Path:
        """The file of that name; LookupError where an earlier mutation put something there that must not be opened."""
        return {one.name: one for one in self.files()}[name]

    def pick(self) -> Path:
        return self.rng.choice(self.files())

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.regular(MANIFEST).read_bytes())
        return found

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the manifest and sign it."""
        self.regular(MANIFEST)
        forge(self.path, change)
        self.signed = True

    def sign(self) -> None:
        """Make lengths and checksums right for whatever the files now hold."""

        def change(found: dict[str, Any]) -> None:
            for name, entry in found["files"].items():
                path = self.path / name
                if not path.is_file() or path.is_symlink():
                    continue
                size = path.stat().st_size
                if 1 << 26 < size < 1 << 40:
                    continue  # it would be read into memory, and rightly so
                entry["bytes"] = size
                if size <= 1 << 26:  # a huge one is empty, and its checksum would take too long
                    entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()

        self.change(change)


MUTATIONS: dict[str, Callable[[Box], object]] = {}


def mutation(function: Callable[[Box], object]) -> Callable[[Box], object]:
    MUTATIONS[function.__name__] = function
    return function
