"""The facts about a reranker's training that a `TwoStage` needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from shortlist.errors import NotFittedError, SettingError
from shortlist.reranking.base import Reranker
from shortlist.reranking.pair_digests import PairDigests
from shortlist.reranking.training import TrainingSet


@dataclass(eq=False)
class RerankerState:
    """What a reranker was trained on. A `TwoStage` shares it with all its copies by `with_first`.

    Attributes:
        reranker: the reranker.
        feature_names: the features that it was trained on; None if it is not fitted.
        counts: the size of its training data: lists, candidates and so on.
        pairs: digests of the relevant pairs.
        clicks: whether it was trained on impressions.
        elsewhere: whether another `TwoStage` has fitted the same reranker since.
    """

    reranker: Reranker
    feature_names: tuple[str, ...] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    pairs: PairDigests = field(default_factory=PairDigests)
    clicks: bool = False
    elsewhere: bool = False

    def __post_init__(self) -> None:
        if self.feature_names is not None:  # loaded from a file
            _LAST.setdefault(id(self.reranker), self)

    def record_fit(self, feature_names: tuple[str, ...], training_set: TrainingSet) -> None:
        """Record a fit of the reranker, and mark the state of the `TwoStage` that fitted it before as out of date."""
        self.feature_names, self.counts = feature_names, training_set.counts
        self.pairs, self.clicks, self.elsewhere = training_set.relevant_pairs, training_set.clicks, False
        before = _LAST.get(id(self.reranker))
        if before is not None and before is not self:
            before.elsewhere = True
        _LAST[id(self.reranker)] = self

    def require_fit(self) -> None:
        """Refuse a reranker that is not fitted, or that was fitted again by another `TwoStage`."""
        if self.feature_names is None:
            raise NotFittedError(
                "the second stage has not been fitted",
                hint="call TwoStage(...).fit(split) or .fit_impressions(...) first",
            )
        if self.elsewhere:
            raise SettingError(
                f"this {type(self.reranker).__name__} has been fitted again by another TwoStage",
                hint="fit this TwoStage again, or give each its own reranker",
                field="reranker",
            )


# The last fit of each reranker, by its id. The state refers to the reranker, so an id in here is never reused.
_LAST: WeakValueDictionary[int, RerankerState] = WeakValueDictionary()
