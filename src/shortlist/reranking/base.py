"""The interface of a reranker."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shortlist.errors import DataError, SettingError
from shortlist.reranking.candidates import Candidates


@runtime_checkable
class Reranker(Protocol):
    """The interface of stage two: an object with the methods `fit` and `score`, which learn from and score candidates.

    `candidates.features` is a float32 matrix with one row per candidate. `candidates.feature_names` names its columns,
    which are the same in `fit` and `score`. A linear reranker, for example:

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
        """Learn from candidates and their relevance: one integer per row, 0 for not relevant, higher for more relevant.

        Queries whose candidates are all equally relevant are dropped before.
        """

    def score(self, candidates: Candidates) -> npt.ArrayLike:
        """Return one score per row; higher scores rank first. A call may have only some of the queries."""


def check_reranker(reranker: object) -> Reranker:
    """Return the reranker, or refuse an object that is not one."""
    if isinstance(reranker, type) or not isinstance(reranker, Reranker):
        raise SettingError(
            f"reranker is {reranker!r:.80}; expected an object with the methods fit and score", field="reranker"
        )
    return reranker


def scores_of(reranker: Reranker, candidates: Candidates) -> npt.NDArray[np.float64]:
    """Return the reranker's scores, one per row. Refuse anything but numbers that fit float32."""
    method = f"{type(reranker).__name__}.score"
    answer = reranker.score(candidates)
    try:
        scores = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{method} did not return numbers: {error}", field="reranker") from error
    if scores.shape != (len(candidates),):
        raise SettingError(
            f"{method} returned an array of shape {scores.shape}; expected {(len(candidates),)}, one score per row",
            field="reranker",
        )
    if bad := int((~(np.abs(scores) <= np.finfo(np.float32).max)).sum()):
        raise DataError(
            f"{method} returned {bad:,} of {len(scores):,} scores that are not finite or too large for float32; "
            "expected numbers up to 3.4e+38"
        )
    return scores
