"""Names that were replaced by better ones and must not come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["module", "class", "function", "method", "attribute", "setting", "variable"]


@dataclass(frozen=True)
class OldName:
    """A name that is not used as this kind of thing within a package (or module); `*` is all of Shortlist.

    * module: a file or a folder
    * class, function, method: where it is defined, not where it is used
    * attribute: `thing.name`, read, written or called, and fields of classes
    * setting: a parameter of `__init__` or a field of a dataclass
    * variable: whatever is assigned, looped over or a parameter
    """

    name: str
    kind: Kind
    package: str = "*"
    better: str = "a noun that says what it is"


OLD_NAMES = (
    OldName("one", "variable"),
    OldName("found", "variable"),
    OldName("own", "variable"),
    # Examples, one a kind; the whole table comes with the renames.
    OldName("asked", "module", "recommenders", better="split_queries"),
    OldName("Everything", "class", better="AllItems"),
    OldName("contest", "function", "tuning", better="compare_tuned"),
    OldName("over", "method", "sampling", better="bind"),
    OldName("effort", "setting", "retrieval", better="ef_construction"),
    OldName("effective_counts", "attribute", "solvers", better="effective_counts"),
)
