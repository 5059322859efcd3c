"""What a reranker has learnt from, as far as those who ask it have to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np

from shortlist.errors import NotFittedError, SettingError
from shortlist.reranking.base import Reranker
from shortlist.reranking.training import Digests, TrainingSet


@dataclass(eq=False)
class RerankerState:
    """One for a `TwoStage` and all that `with_first` makes of it: their reranker is one, so is what it learnt from.

    Attributes:
        reranker: whose it is.
        feature_names: the features that it learnt from; None before it has.
        counts: what it learnt from, counted.
        pairs: digests of the relevant pairs.
        clicks: whether it learnt from impressions.
        elsewhere: whether another `TwoStage` has fitted the same reranker since.
    """

    reranker: Reranker
    feature_names: tuple[str, ...] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    pairs: Digests = field(default_factory=lambda: np.empty(0, np.uint64))
    clicks: bool = False
    elsewhere: bool = False

    def __post_init__(self) -> None:
        if self.feature_names is not None:  # from a file
            _LAST.setdefault(id(self.reranker), self)

    def learnt(self, feature_names: tuple[str, ...], training_set: TrainingSet) -> None:
        """The reranker has been fitted; whoever fitted it before is told."""
        self.feature_names, self.counts = feature_names, training_set.counts
        self.pairs, self.clicks, self.elsewhere = training_set.learnt, training_set.clicks, False
        before = _LAST.get(id(self.reranker))
        if before is not None and before is not self:
            before.elsewhere = True
        _LAST[id(self.reranker)] = self

    def require_fit(self) -> None:
        """Refuse a reranker that has learnt nothing, or, since, something else."""
        if self.feature_names is None:
            raise NotFittedError(
                "the second stage has not been fitted; call TwoStage(...).fit(split) or .fit_impressions(...) first"
            )
        if self.elsewhere:
            raise SettingError(
                f"this {type(self.reranker).__name__} has been fitted again by another TwoStage, so it is not what was "
                "learnt here; fit this one again, or give each a reranker of its own"
            )


_LAST: WeakValueDictionary[int, RerankerState] = (
    WeakValueDictionary()
)  # who fitted a reranker; it lives as long as its entry
