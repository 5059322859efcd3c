"""All items as negatives, without sampling."""

from __future__ import annotations

from dataclasses import dataclass

from shortlist._checks import one_of
from shortlist.sampling.base import Exclude


@dataclass(frozen=True)
class AllItems:
    """All items as negatives: `Softmax` over the whole catalogue, O(|C||I|d) an epoch.

    Args:
        exclude: `"positive"`: the ordinary softmax. `"history"`: the partition function of a positive omits the other
            items of the context's history.

    >>> AllItems()
    AllItems(exclude='positive')
    """

    exclude: Exclude = "positive"

    def __post_init__(self) -> None:
        one_of("exclude", self.exclude, ("positive", "history"))
