"""Metrics beyond accuracy: properties of recommended lists that do not depend on the held-out items.

They do not say whether a list is good: report them next to accuracy. Higher values are neither better nor worse. All
are computed from the first n positions of `Lists`. `coverage` and `gini` give one number for all lists. The others give
one value per list, or NaN if the list is too short.
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
    """#{items in the first n positions of any list} / #catalogue, the fraction of items that are recommended at all.

    >>> coverage(Lists.from_lists([[0, 1], [1, 2]], trained=[[0]], n_items=4), 2)
    0.75
    """
    return float(np.count_nonzero(_times_listed(lists, n)) / max(1, lists.n_items))


def gini(lists: Lists, n: int) -> float:
    """Σ_k (2k − N − 1) · x_k / ((N − 1) · Σ_k x_k), where x_1 ≤ … ≤ x_N are the numbers of lists with each of N items.

    The Gini coefficient over the catalogue: 0 if all items are recommended equally often, 1 if one item has all
    positions. NaN if nothing is recommended.

    >>> gini(Lists.from_lists([[0], [0]], trained=[[0]], n_items=3), 1)
    1.0
    """
    listed = np.sort(_times_listed(lists, n))
    total, size = int(listed.sum()), len(listed)
    if not total:
        return float("nan")
    # Integers, so the sum is exact in any order.
    above = int(((2 * np.arange(1, size + 1) - size - 1) * listed).sum())
    return above / (max(1, size - 1) * total)


def popularity(lists: Lists, n: int) -> Values:
    """The mean, over the items of the list, of the fraction of training contexts that have the item.

    >>> popularity(Lists.from_lists([[0, 1], [2]], trained=[[0, 1], [0]], n_items=3), 2)
    array([0.75, 0.  ])
    """
    _check_cut(lists, n)
    return _mean(lists, n, lists.had / max(1, lists.n_trained_contexts))


def novelty(lists: Lists, n: int) -> Values:
    """The mean, over the items of the list, of −log2(fraction of training contexts that have the item), in bits.

    Also called self-information: 1 for an item of half of the contexts, 2 for an item of a quarter. An item that none
    of C contexts has gets log2(C + 1), as if one of C + 1 contexts had it.

    >>> novelty(Lists.from_lists([[0, 1], [2]], trained=[[0, 1], [0], [0]], n_items=3), 2).round(3)
    array([0.792, 2.   ])
    """
    _check_cut(lists, n)
    contexts = lists.n_trained_contexts
    one_of = np.where(lists.had > 0, contexts / np.maximum(lists.had, 1), contexts + 1)
    return _mean(lists, n, np.log2(one_of))


def distance(lists: Lists, n: int, *, threads: int | None = None) -> Values:
    """The mean of 1 − cos(i, j) over the pairs of items in the list, known as intra-list distance or diversity.

    cos(i, j) = #{training contexts with i and j} / √(#{with i} · #{with j}), the cosine of the items' columns in the
    training data; 0 if i or j has no training context. It does not depend on a model, so lists of different models can
    be compared. NaN for a list of fewer than two items.

    >>> distance(Lists.from_lists([[0, 1], [0, 2]], trained=[[0, 1], [0], [2]], n_items=3), 2).round(3)
    array([0.293, 1.   ])
    """
    n = _check_cut(lists, n)
    lengths = lists.lengths(n)
    pairs = lengths * (lengths - 1) / 2
    sums = cosine_sums(lists.items[:, :n], lists.trained, threads)
    # Rounding of the roots can make the cosine of equal columns exceed 1.
    return np.maximum(0.0, 1.0 - _ratio(sums, pairs))


def miscalibration(lists: Lists, n: int) -> Values:
    """JS(fractions of head, middle and tail items in the history, those in the list): 0 if equal, 1 if disjoint.

    The head is the most popular items with together a fifth of the training pairs, the tail the least popular items
    with a fifth; see `popularity_groups`. JS is the Jensen–Shannon divergence in bits. Its mean over a group of
    contexts is the group's popularity deviation (Abdollahpouri et al. 2021). NaN for an empty list or history.

    >>> trained = [[0, 1], [0, 2], [0, 3], [0]]
    >>> miscalibration(Lists.from_lists([[0], [1, 3]], trained=trained, n_items=4, histories=[[0], [0]]), 2)
    array([0., 1.])
    """
    n = _check_cut(lists, n)
    if lists.histories is None:
        raise SettingError(
            "miscalibration needs histories, but the lists have none", field="histories", hint="pass histories="
        )
    groups = popularity_groups(lists.had)
    listed = shares_of_lists(lists.items[:, :n], groups)
    values = divergence(shares_of_rows(lists.histories, groups), listed)
    return np.where((lists.histories.lengths > 0) & (lists.lengths(n) > 0), values, np.nan)


def cold_share(lists: Lists, n: int) -> Values:
    """#{items of the list that no training context has} / #{items of the list}, the fraction of cold items.

    A model learns about cold items only through the loss of unobserved pairs. If the loss never lowers the scores of
    unrelated items, cold items can get top ranks by accident: "folding" (Xin et al. 2017).

    >>> cold_share(Lists.from_lists([[0, 1], [2]], trained=[[0, 1], [0]], n_items=3), 2)
    array([0., 1.])
    """
    _check_cut(lists, n)
    return _mean(lists, n, (lists.had == 0).astype(np.float64))


def _times_listed(lists: Lists, n: int) -> npt.NDArray[np.int64]:
    n = _check_cut(lists, n)
    first = lists.items[:, :n].ravel()
    return np.bincount(first + 1, minlength=lists.n_items + 1)[1:]  # the first element counts empty positions


def _mean(lists: Lists, n: int, of_item: Values) -> Values:
    n = _check_cut(lists, n)
    lengths = lists.lengths(n)
    sums = np.append(of_item, 0.0)[lists.items[:, :n]].sum(axis=1)  # an empty position is -1 and reads the appended 0
    return _ratio(sums, lengths)


def _ratio(sums: Values, counts: npt.NDArray[Any]) -> Values:
    """Divide sums by counts; NaN for count 0."""
    out = np.full(len(sums), np.nan)
    np.divide(sums, counts, out=out, where=counts > 0)
    return out


def _check_cut(lists: Lists, n: int) -> int:
    n = check_n(n)
    instance("lists", lists, Lists, "Lists, such as the result of Lists.from_lists")
    width = lists.items.shape[1]
    if n > width and width < lists.n_items:
        raise SettingError(
            f"n is {n}, but the lists have {width} positions (of {lists.n_items} items)",
            hint=f"recommend at least {n} items, or use n ≤ {width}",
            field="n",
        )
    return n
