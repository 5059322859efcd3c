"""No sampling: every item."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist._checks import one_of
from shortlist.sampling.base import Exclude


@dataclass(frozen=True)
class AllItems:
    """All items, none drawn: for `Softmax` over the whole catalogue, O(|C||I|d) an epoch.

    Args:
        exclude: `"positive"`: the ordinary softmax. `"history"`: what else a context has had is not in the partition
            function of a positive.

    >>> AllItems()
    AllItems(exclude='positive')
    """

    exclude: Exclude = "positive"

    def __post_init__(self) -> None:
        one_of("exclude", self.exclude, ("positive", "history"))
