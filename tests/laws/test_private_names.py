"""Law: a module uses no `_private` names of another. Those of other packages are marked `packages` in the list.

Hooks of a base class within the same package are left to the law of inheritance; those of another package count.
"""

from __future__ import annotations

from laws import exception_lists
from laws.private_names import accesses


def test_no_private_names_of_other_modules(modules):
    exception_lists.check(
        "private_names",
        {(use.module, use.name, use.across) for use in accesses(modules)},
        "{0} uses {1} across {2}",
        "Make the name public where it is defined, or ask its owner by a public method.",
    )
