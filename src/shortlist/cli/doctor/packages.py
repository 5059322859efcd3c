"""The packages that Shortlist needs and those of its extras, as the metadata of the installed package names them."""

import re
from dataclasses import dataclass
from importlib import metadata

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")
PURPOSES = {
    "torch": "training on a GPU",
    "ann": "approximate search in very large catalogues",
    "tune": "search for good settings",
    "rerank": "a second stage that reranks, by LightGBM",
    "test": "the tests, and pandas and Arrow frames",
    "bench": "the benchmarks against other libraries",
    "bench-ials": "those of iALS, which need a newer NumPy",
    "bench-sgd": "peers of factorization by sampling, for benchmarks",
    "bench-retrieval": "libraries for nearest neighbours, for benchmarks",
}


@dataclass(frozen=True)
class Requirement:
    """A package that is asked for.

    >>> Requirement("numpy", "2.1.0", ">=1.26").trouble
    ''
    >>> Requirement("numpy", "1.9", ">=1.26").trouble
    'version 1.9, needed is >=1.26'
    """

    name: str
    version: str | None  # None where it is not installed
    wanted: str

    @property
    def trouble(self) -> str:
        """What is wrong with it, or nothing."""
        if self.version is None:
            return "not installed"
        least = re.search(r">=\s*([0-9.]+)", self.wanted)
        if least and _numbers(self.version) < _numbers(least[1]):
            return f"version {self.version}, needed is {self.wanted}"
        return ""


def requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """What Shortlist itself needs, and what each of its extras adds; empty where it runs without being installed."""
    base: list[Requirement] = []
    extras: dict[str, list[Requirement]] = {}
    try:
        texts = metadata.requires("shortlist") or []
    except metadata.PackageNotFoundError:
        texts = []
    for text in texts:
        found = _REQUIREMENT.match(text)
        if found is None or found[1].lower() == "shortlist":  # `all` names the other extras
            continue
        extra = _EXTRA.search(found[4] or "")
        where = base if extra is None else extras.setdefault(extra[1], [])
        where.append(Requirement(found[1], _version(found[1]), found[3].strip()))
    return base, extras


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> list[int]:
    """The release of a version: `2.1.0rc1` is [2, 1, 0]."""
    start = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return [int(part) for part in start[0].split(".")] if start else []
