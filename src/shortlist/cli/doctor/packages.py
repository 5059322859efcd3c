"""The requirements of Shortlist and of its extras, read from the metadata of the installed package."""

import re
from dataclasses import dataclass
from importlib import metadata

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)[\"']")
PURPOSES = {
    "torch": "training on a GPU",
    "ann": "approximate search in very large catalogues",
    "tune": "hyperparameter search",
    "rerank": "reranking with LightGBM",
    "test": "tests, including pandas and Arrow frames",
    "bench": "benchmarks against other libraries",
    "bench-ials": "benchmarks of iALS, which need a newer NumPy",
    "bench-sgd": "benchmarks of sampled factorization",
    "bench-retrieval": "benchmarks of nearest-neighbour search",
}


@dataclass(frozen=True)
class Requirement:
    """A required package.

    >>> Requirement("numpy", "2.1.0", ">=1.26").trouble
    ''
    >>> Requirement("numpy", "1.9", ">=1.26").trouble
    'version 1.9; requires >=1.26'
    """

    name: str
    version: str | None  # None where it is not installed
    wanted: str

    @property
    def trouble(self) -> str:
        """The problem with this package, or an empty text."""
        if self.version is None:
            return "not installed"
        least = re.search(r">=\s*([0-9.]+)", self.wanted)
        if least and _numbers(self.version) < _numbers(least[1]):
            return f"version {self.version}; requires {self.wanted}"
        return ""


def requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    """Return the requirements of Shortlist, and those of each extra. Both are empty if it is not installed."""
    base: list[Requirement] = []
    extras: dict[str, list[Requirement]] = {}
    try:
        texts = metadata.requires("shortlist") or []
    except metadata.PackageNotFoundError:
        texts = []
    for text in texts:
        match = _REQUIREMENT.match(text)
        if match is None or match[1].lower() == "shortlist":  # `all` names the other extras
            continue
        extra = _EXTRA.search(match[4] or "")
        group = base if extra is None else extras.setdefault(extra[1], [])
        group.append(Requirement(match[1], _version(match[1]), match[3].strip()))
    return base, extras


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> list[int]:
    """Return the release numbers of a version: `2.1.0rc1` is [2, 1, 0]."""
    start = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    return [int(part) for part in start[0].split(".")] if start else []
