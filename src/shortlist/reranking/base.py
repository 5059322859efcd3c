"""What a second stage has to do."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shortlist.errors import DataError, SettingError
from shortlist.reranking.candidates import Candidates


@runtime_checkable
class Reranker(Protocol):
    """Anything that learns how relevant candidates are from their features, and scores others.

    Two methods are all there is to it. `candidates.features` is a float32 matrix, a row a candidate; what its columns
    are, `candidates.feature_names` says, and is the same whenever a reranker is asked. A linear one, for example:

    >>> import numpy as np
    >>> import shortlist as sl
    >>> class Linear:
    ...     def fit(self, candidates, relevance):
    ...         X = np.column_stack([candidates.features, np.ones(len(candidates))])
    ...         self.weights = np.linalg.lstsq(X, relevance, rcond=None)[0]
    ...
    ...     def score(self, candidates):
    ...         return candidates.features @ self.weights[:-1] + self.weights[-1]
    >>> isinstance(Linear(), sl.Reranker)
    True
    >>> events = sl.datasets.synthetic(200, 50, 4000, seed=0)
    >>> split = sl.splits.at_random(events, test=0.2)
    >>> two = sl.TwoStage(sl.EASE().fit(split.train), Linear(), candidates=20).fit(split)
    >>> len(two.recommend(split.truth.contexts.ids()[:1], n=5).ids[0])
    5
    """

    def fit(self, candidates: Candidates, relevance: npt.NDArray[np.int64]) -> object:
        """Learn from candidates, of whom `relevance` has a number a row: 0 is not relevant, more is more so.

        Queries in which all candidates are equally relevant are not among them.
        """

    def score(self, candidates: Candidates) -> npt.ArrayLike:
        """A number a row, higher first within a query. It may be asked for some of the queries at a time."""


def check_reranker(reranker: object) -> Reranker:
    """A reranker, and nothing else."""
    if isinstance(reranker, type) or not isinstance(reranker, Reranker):
        raise SettingError(f"reranker is {reranker!r:.80}; expected an object with the methods fit and score")
    return reranker


def scores_of(reranker: Reranker, candidates: Candidates) -> npt.NDArray[np.float64]:
    """What a reranker says, one number a row that float32 can hold; anything else is refused."""
    who = f"{type(reranker).__name__}.score"
    answer = reranker.score(candidates)
    try:
        found = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{who} gave something that is not numbers: {error}") from error
    if found.shape != (len(candidates),):
        raise SettingError(f"{who} gave an array of shape {found.shape}; expected {(len(candidates),)}, a score a row")
    if bad := int((~(np.abs(found) <= np.finfo(np.float32).max)).sum()):
        raise DataError(
            f"{who} gave {bad:,} of {len(found):,} scores that are not finite numbers, or not within float32, "
            "which ends at 3.4e+38"
        )
    return found
