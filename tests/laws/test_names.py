"""Law: old names are gone for good, and no two modules and no two classes share a name."""

from __future__ import annotations

import pytest

from laws import exception_lists
from laws.names import old_names_in_use, repeated_classes, repeated_modules
from laws.old_names import OLD_NAMES


def test_old_names_are_gone(modules):
    better = "; ".join(f"{old.name} → {old.better}" for old in OLD_NAMES)
    exception_lists.check_counts(
        "old_names",
        old_names_in_use(modules, OLD_NAMES),
        "the {0} {1} occurs in {2} {number} times",
        f"Use the better name: {better}.",
    )


@pytest.mark.parametrize(("name", "repeated"), [("modules", repeated_modules), ("classes", repeated_classes)])
def test_no_two_have_the_same_name(modules, name, repeated):
    exception_lists.check_counts(
        f"same_name_{name}",
        repeated(modules),
        "{number} of kind {0} have the name {1}",
        "Name them for what tells them apart.",
    )
