"""Popular, middling and rare items, and how far two mixtures of them are apart."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[np.float64]

HEAD, MIDDLE, TAIL = 0, 1, 2
N_GROUPS = 3
EDGE = 0.2  # of all pairs: what the most popular items have, and what the least popular ones have


def popularity_groups(had: Array) -> npt.NDArray[np.int8]:
    """The group of each item, by how many contexts had it: 0 the head, 1 the middle, 2 the tail.

    The head are the most popular items that together have a fifth of all pairs, the tail the least popular ones that
    have a fifth (Abdollahpouri et al. 2021). Items that are equally popular are in the same group: in the head, where
    fewer than a fifth of the pairs are of more popular items; in the tail, where fewer than a fifth are of less popular
    ones; in the middle, where both or neither is so.

    >>> popularity_groups(np.array([1, 5, 1, 2, 1]))
    array([2, 0, 2, 1, 2], dtype=int8)
    """
    popularity, place = np.unique(had, return_inverse=True)
    pairs = popularity * np.bincount(place, minlength=len(popularity))
    up_to = np.cumsum(pairs)
    total = int(up_to[-1]) if len(up_to) else 0
    head = (total - up_to) < EDGE * total
    tail = (up_to - pairs) < EDGE * total
    tail |= popularity == 0
    group = np.where(head == tail, MIDDLE, np.where(head, HEAD, TAIL))
    return np.asarray(group.astype(np.int8)[place])


def shares_of_rows(rows: SparseRows, groups: npt.NDArray[np.int8]) -> Values:
    """Of each row the share of every group among its items; 0 of all where it is empty."""
    row_of = np.repeat(np.arange(rows.n_rows), rows.lengths)
    counts = np.bincount(row_of * N_GROUPS + groups[rows.indices], minlength=rows.n_rows * N_GROUPS)
    return np.asarray(counts.reshape(-1, N_GROUPS) / np.maximum(rows.lengths, 1)[:, None])


def shares_of_lists(lists: Array, groups: npt.NDArray[np.int8]) -> Values:
    """The same of lists with -1 where there is no item."""
    own = np.append(groups, N_GROUPS)[lists]  # an empty place, -1, takes the last: none of the groups
    counts = (own[:, :, None] == np.arange(N_GROUPS)).sum(axis=1)
    return np.asarray(counts / np.maximum(counts.sum(axis=1), 1)[:, None])


def divergence(p: Values, q: Values) -> Values:
    """The Jensen–Shannon divergence of two distributions, row by row, in bits: 0 of equal ones, 1 of disjoint ones.

    ½ Σ_g p_g log2(p_g / m_g) + ½ Σ_g q_g log2(q_g / m_g), where m = (p + q) / 2.

    >>> divergence(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.0, 1.0]]))
    array([0., 1.])
    """
    bits = np.zeros(len(p))
    for one, other in ((p, q), (q, p)):
        there = one > 0
        ratio = np.divide(2 * one, one + other, out=np.ones_like(one), where=there)
        bits += (one * np.log2(ratio)).sum(axis=1)
    return bits / 2
