"""Groups of items by popularity (head, middle, tail), and the divergence of two distributions over them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist.data.sparse_rows import SparseRows

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[np.float64]

HEAD, MIDDLE, TAIL = 0, 1, 2
N_GROUPS = 3
EDGE = 0.2  # the head has this fraction of all pairs, and so has the tail


def popularity_groups(had: Array) -> npt.NDArray[np.int8]:
    """Return the group of each item, given its number of contexts: 0 for head, 1 for middle, 2 for tail.

    The head is the most popular items with together a fifth of all pairs, the tail the least popular items with a fifth
    (Abdollahpouri et al. 2021). Equally popular items are in the same group: the head if more popular items have less
    than a fifth of the pairs, the tail if less popular items have less than a fifth, the middle if both or neither is
    true. Items without pairs count as tail.

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
    """Return the fraction of each group among the items of each row; all 0 for an empty row."""
    row_of = np.repeat(np.arange(rows.n_rows), rows.lengths)
    counts = np.bincount(row_of * N_GROUPS + groups[rows.indices], minlength=rows.n_rows * N_GROUPS)
    return np.asarray(counts.reshape(-1, N_GROUPS) / np.maximum(rows.lengths, 1)[:, None])


def shares_of_lists(lists: Array, groups: npt.NDArray[np.int8]) -> Values:
    """Return the fraction of each group among the items of each list; -1 is an empty place."""
    list_groups = np.append(groups, N_GROUPS)[lists]  # an empty place is -1 and reads the appended N_GROUPS
    counts = (list_groups[:, :, None] == np.arange(N_GROUPS)).sum(axis=1)
    return np.asarray(counts / np.maximum(counts.sum(axis=1), 1)[:, None])


def divergence(p: Values, q: Values) -> Values:
    """Return the Jensen–Shannon divergence of distributions, row by row, in bits: 0 if equal, 1 if disjoint.

    ½ Σ_g p_g log2(p_g / m_g) + ½ Σ_g q_g log2(q_g / m_g), where m = (p + q) / 2.

    >>> divergence(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.0, 1.0]]))
    array([0., 1.])
    """
    bits = np.zeros(len(p))
    for a, b in ((p, q), (q, p)):
        ratio = np.divide(2 * a, a + b, out=np.ones_like(a), where=a > 0)
        bits += (a * np.log2(ratio)).sum(axis=1)
    return bits / 2
