"""Accuracy metrics: one value per context (article, section "Evaluation").

All metrics are computed from `Ranks`. Metrics with `n` only use ranks 1…n, so they also work with ranks cut off at n or
later.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist._checks import instance
from shortlist.errors import SettingError
from shortlist.metrics.ranks import Ranks, check_n

Values = npt.NDArray[np.float64]


def precision(ranks: Ranks, n: int) -> Values:
    """#{r ∈ R: r ≤ n} / n, the fraction of relevant items among the first n (article, "Evaluation").

    The divisor is n even if fewer than n items are relevant or ranked; the value is then below 1.

    >>> precision(Ranks.from_lists([[1, 3, 12], [5]], n_items=20), 4)
    array([0.5, 0. ])
    """
    return _hits(ranks, n) / n


def recall(ranks: Ranks, n: int) -> Values:
    """#{r ∈ R: r ≤ n} / #R, the fraction of the relevant items that are among the first n (article, "Evaluation").

    If more than n items are relevant, it is below 1; `capped_recall` can still reach 1.

    >>> recall(Ranks.from_lists([[1, 3, 12, 13], [5]], n_items=20), 5)
    array([0.5, 1. ])
    """
    return _hits(ranks, n) / ranks.n_relevant


def capped_recall(ranks: Ranks, n: int) -> Values:
    """#{r ∈ R: r ≤ n} / min(n, #R): 1 for the best possible first n items.

    Not in the article; called "Recall@R" by Liang et al. (2018, Mult-VAE) and in later tables.

    >>> capped_recall(Ranks.from_lists([[1, 3, 12], [5]], n_items=20), 2)
    array([0.5, 0. ])
    """
    return _hits(ranks, n) / np.minimum(ranks.n_relevant, n)


def average_precision(ranks: Ranks, n: int) -> Values:
    """Σ_{r ∈ R, r ≤ n} precision@r / min(#R, n) (article, "Evaluation"). Its mean over contexts is known as MAP@n.

    >>> average_precision(Ranks.from_lists([[1, 4, 12], [5]], n_items=20), 5)
    array([0.5, 0.2])
    """
    n = _check_cut(ranks, n)
    rows = ranks.rows
    # The ranks of a context are ascending: the k-th of them has k hits up to and including it.
    n_hits = np.arange(1, len(rows) + 1) - ranks.indptr[rows]
    hits = ranks.ranks <= n
    total = _sum_by_context(ranks, rows[hits], n_hits[hits] / ranks.ranks[hits])
    return total / np.minimum(ranks.n_relevant, n)


def ndcg(ranks: Ranks, n: int) -> Values:
    """Σ_{r ∈ R, r ≤ n} 1/log2(r+1) / Σ_{i ≤ min(#R, n)} 1/log2(i+1) (article, "Evaluation").

    >>> ndcg(Ranks.from_lists([[1, 2], [3]], n_items=20), 5)
    array([1. , 0.5])
    """
    n = _check_cut(ranks, n)
    hits = ranks.ranks <= n
    best = np.minimum(ranks.n_relevant, n)
    # Both sums use the same table in the same order, so that a perfect ranking gives exactly 1.
    longest = max(ranks.ranks[hits].max(initial=0), best.max(initial=0))
    gain = np.concatenate([[0.0], 1.0 / np.log2(np.arange(2, longest + 2))])
    total = _sum_by_context(ranks, ranks.rows[hits], gain[ranks.ranks[hits]])
    ideal: Values = np.cumsum(gain)[best]
    return total / ideal


def hit_rate(ranks: Ranks, n: int) -> Values:
    """1 if any relevant item is among the first n, else 0: #{r ∈ R: r ≤ n} > 0. Not in the article.

    >>> hit_rate(Ranks.from_lists([[1, 3, 12], [5]], n_items=20), 4)
    array([1., 0.])
    """
    return (_hits(ranks, n) > 0).astype(np.float64)


def reciprocal_rank(ranks: Ranks, n: int | None = None) -> Values:
    """1 / min R, or 0 if min R > n (n=None: no limit). Not in the article; its mean is known as MRR.

    >>> ranks = Ranks.from_lists([[2, 3], [5]], n_items=20)
    >>> reciprocal_rank(ranks), reciprocal_rank(ranks, 4)
    (array([0.5, 0.2]), array([0.5, 0. ]))
    """
    if n is None:
        _check_whole(ranks, "the reciprocal rank without n")
    else:
        n = _check_cut(ranks, n)
    values = np.zeros(len(ranks))
    some = np.flatnonzero(np.diff(ranks.indptr))
    first = ranks.ranks[ranks.indptr[some]]
    values[some] = np.where(first <= (first if n is None else n), 1.0 / first, 0.0)
    return values


def auc(ranks: Ranks) -> Values:
    """#{r ∈ R, r' ∈ {1…N} ∖ R: r < r'} / (#R · (N − #R)), the area under the ROC curve (article, "Evaluation").

    The probability that a random relevant item is ranked above a random irrelevant item. N is the number of *ranked*
    items: the article's |I| if nothing is excluded. If all ranked items of a context are relevant, its AUC is not
    defined, which is an error: drop such contexts with `select`, as below.

    >>> ranks = Ranks.from_lists([[1, 4], [1, 2]], n_items=[4, 2])
    >>> auc(ranks.select(ranks.n_relevant < ranks.n_ranked))
    array([0.5])
    """
    _check_whole(ranks, "AUC")
    relevant, irrelevant = ranks.n_relevant, ranks.n_ranked - ranks.n_relevant
    if len(bad := np.flatnonzero(irrelevant == 0)):
        raise SettingError(
            f"AUC is not defined if every ranked item is relevant, as at position {bad[0]} ({len(bad)} of "
            f"{len(ranks)} contexts)",
            field="ranks",
            hint="drop these contexts with ranks.select(ranks.n_relevant < ranks.n_ranked)",
        )
    # Above the k-th best relevant item there are r − k irrelevant ones. Integers, so the sums are exact.
    ends = np.concatenate([[0], np.cumsum(ranks.ranks)])
    above = ends[ranks.indptr[1:]] - ends[ranks.indptr[:-1]] - relevant * (relevant + 1) // 2
    disordered: Values = above / (relevant * irrelevant)
    return 1.0 - disordered


def _hits(ranks: Ranks, n: int) -> Values:
    n = _check_cut(ranks, n)
    return np.bincount(ranks.rows[ranks.ranks <= n], minlength=len(ranks)).astype(np.float64)


def _sum_by_context(ranks: Ranks, rows: npt.NDArray[np.int64], values: Values) -> Values:
    return np.bincount(rows, weights=values, minlength=len(ranks)).astype(np.float64)


def _check_cut(ranks: Ranks, n: int) -> int:
    n = check_n(n)
    instance("ranks", ranks, Ranks, "Ranks, such as the result of Ranks.from_lists")
    if ranks.cutoff is not None and n > ranks.cutoff:
        raise SettingError(
            f"n is {n}, but the ranks are cut off at {ranks.cutoff}",
            hint=f"rank with cutoff ≥ {n}, or use n ≤ {ranks.cutoff}",
            field="n",
        )
    return n


def _check_whole(ranks: Ranks, what: str) -> None:
    instance("ranks", ranks, Ranks, "Ranks, such as the result of Ranks.from_lists")
    if ranks.cutoff is not None:
        raise SettingError(
            f"{what} needs the rank of every relevant item, but the ranks are cut off at {ranks.cutoff}",
            field="ranks",
            hint="rank without a cutoff",
        )
