"""Metrics beyond accuracy: what the lists are like, whatever their contexts turn out to want.

None of them says whether a list is good: they are to be read beside the accuracy, and more is neither better nor worse.
All of them see the first n places of `Lists`. `coverage` and `gini` give one number for all lists together, the others
one per list, and NaN where a list is too short for a value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import instance
from shortlist.errors import SettingError
from shortlist.metrics.cosines import cosine_sums
from shortlist.metrics.lists import Lists
from shortlist.metrics.popularity_groups import divergence, popularity_groups, shares_of_lists, shares_of_rows
from shortlist.metrics.ranks import check_n

Values = npt.NDArray[np.float64]


def coverage(lists: Lists, n: int) -> float:
    """#{items in the first n places of any list} / #catalogue: how much of what there is anyone gets to see.

    >>> coverage(Lists.from_lists([[0, 1], [1, 2]], trained=[[0]], n_items=4), 2)
    0.75
    """
    return float(np.count_nonzero(_times_listed(lists, n)) / max(1, lists.n_items))


def gini(lists: Lists, n: int) -> float:
    """Σ_k (2k − N − 1) · x_k / ((N − 1) · Σ_k x_k), where x_1 ≤ … ≤ x_N: how often each of N items is in a list.

    The Gini coefficient over the catalogue: 0 if all items are recommended equally often, 1 if one has every place.
    Not a number if nothing is recommended at all.

    >>> gini(Lists.from_lists([[0], [0]], trained=[[0]], n_items=3), 1)
    1.0
    """
    listed = np.sort(_times_listed(lists, n))
    total, size = int(listed.sum()), len(listed)
    if not total:
        return float("nan")
    # Whole numbers, so the sum is exact whatever its order.
    above = int(((2 * np.arange(1, size + 1) - size - 1) * listed).sum())
    return above / (max(1, size - 1) * total)


def popularity(lists: Lists, n: int) -> Values:
    """The mean, over the items of the list, of the share of training contexts that had the item.

    >>> popularity(Lists.from_lists([[0, 1], [2]], trained=[[0, 1], [0]], n_items=3), 2)
    array([0.75, 0.  ])
    """
    _check_cut(lists, n)
    return _mean(lists, n, lists.had / max(1, lists.n_trained_contexts))


def novelty(lists: Lists, n: int) -> Values:
    """The mean, over the items of the list, of −log2(share of training contexts that had the item), in bits.

    Self-information: what half of the contexts had counts 1, what a quarter had 2. An item that none of C contexts had
    counts as if one of C + 1 had it, log2(C + 1): just above what one of C had.

    >>> novelty(Lists.from_lists([[0, 1], [2]], trained=[[0, 1], [0], [0]], n_items=3), 2).round(3)
    array([0.792, 2.   ])
    """
    _check_cut(lists, n)
    contexts = lists.n_trained_contexts
    one_of = np.where(lists.had > 0, contexts / np.maximum(lists.had, 1), contexts + 1)
    return _mean(lists, n, np.log2(one_of))


def distance(lists: Lists, n: int, *, threads: int | None = None) -> Values:
    """The mean of 1 − cos(i, j) over the pairs of items in the list, known as intra-list distance or diversity.

    cos(i, j) = #{training contexts that had both} / √(#{had i} · #{had j}), and 0 where one of them was never had: the
    cosine of the items' columns of the training data. No model has a part in it, so lists of different models can be
    compared. Not a number for a list of fewer than two items.

    >>> distance(Lists.from_lists([[0, 1], [0, 2]], trained=[[0, 1], [0], [2]], n_items=3), 2).round(3)
    array([0.293, 1.   ])
    """
    n = _check_cut(lists, n)
    lengths = lists.lengths(n)
    pairs = lengths * (lengths - 1) / 2
    sums = cosine_sums(lists.items[:, :n], lists.trained, threads)
    # The cosine of equal columns is 1 give or take a rounding, being made of roots.
    return np.maximum(0.0, 1.0 - _ratio(sums, pairs))


def miscalibration(lists: Lists, n: int) -> Values:
    """JS(shares of head, middle and tail in the context's history, those in the list): 0 if alike, 1 if disjoint.

    The head are the most popular items that together have a fifth of the training pairs, the tail the least popular
    ones that have a fifth, see `popularity_groups`; JS is the Jensen–Shannon divergence in bits. Its mean over the
    contexts of a group is the group's popularity deviation of Abdollahpouri et al. 2021. Not a number for an empty list
    or an empty history.

    >>> trained = [[0, 1], [0, 2], [0, 3], [0]]
    >>> miscalibration(Lists.from_lists([[0], [1, 3]], trained=trained, n_items=4, histories=[[0], [0]]), 2)
    array([0., 1.])
    """
    n = _check_cut(lists, n)
    if lists.histories is None:
        raise SettingError("miscalibration compares lists with histories, and these lists have none; pass histories=")
    groups = popularity_groups(lists.had)
    listed = shares_of_lists(lists.items[:, :n], groups)
    values = divergence(shares_of_rows(lists.histories, groups), listed)
    return np.where((lists.histories.lengths > 0) & (lists.lengths(n) > 0), values, np.nan)


def cold_share(lists: Lists, n: int) -> Values:
    """#{items of the list that no training context had} / #{items of the list}.

    A model learns nothing about such items but what its loss says of everything unobserved. Where the loss never pushes
    unrelated items down, they come out on top by accident: "folding" (Xin et al. 2017).

    >>> cold_share(Lists.from_lists([[0, 1], [2]], trained=[[0, 1], [0]], n_items=3), 2)
    array([0., 1.])
    """
    _check_cut(lists, n)
    return _mean(lists, n, (lists.had == 0).astype(np.float64))


def _times_listed(lists: Lists, n: int) -> npt.NDArray[np.int64]:
    n = _check_cut(lists, n)
    first = lists.items[:, :n].ravel()
    return np.bincount(first + 1, minlength=lists.n_items + 1)[1:]  # the first counts the empty places


def _mean(lists: Lists, n: int, of_item: Values) -> Values:
    n = _check_cut(lists, n)
    lengths = lists.lengths(n)
    sums = np.append(of_item, 0.0)[lists.items[:, :n]].sum(axis=1)  # an empty place, -1, takes the last: 0
    return _ratio(sums, lengths)


def _ratio(sums: Values, counts: npt.NDArray[Any]) -> Values:
    """Means, and NaN of nothing."""
    out = np.full(len(sums), np.nan)
    np.divide(sums, counts, out=out, where=counts > 0)
    return out


def _check_cut(lists: Lists, n: int) -> int:
    n = check_n(n)
    instance("lists", lists, Lists, "Lists, such as Lists.from_lists gives")
    width = lists.items.shape[1]
    if n > width and width < lists.n_items:
        raise SettingError(
            f"a metric at n={n} was asked of lists of {width} places out of {lists.n_items} items; search for at "
            f"least {n}, or ask for n ≤ {width}"
        )
    return n
