"""How many of our own classes a class is made of."""

from __future__ import annotations

from collections.abc import Iterable

from laws.source_code import PACKAGE

DEEPEST = 3  # the class itself, `Recommender`, and one between


def depth(kind: type) -> int:
    """Count our classes in the MRO, the class itself included and protocols left out."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == PACKAGE]
    return sum(not vars(base).get("_is_protocol", False) for base in ours)


def too_deep(kinds: Iterable[type]) -> dict[tuple[str, ...], int]:
    """Return the names of classes that are made of too many, and of how many."""
    return {(kind.__name__,): depth(kind) for kind in kinds if depth(kind) > DEEPEST}


def recommenders() -> list[type]:
    """Every recommender of the registry."""
    from shortlist.recommenders.registry import REGISTRY, recommender_class

    return [recommender_class(name) for name in REGISTRY]
