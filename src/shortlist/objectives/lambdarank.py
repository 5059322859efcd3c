"""LambdaRank: a pair's step weighs as much as the metric would change if the two items changed places (section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

from shortlist._checks import one_of, whole
from shortlist._numba import lean_kernel
from shortlist.errors import SettingError

Array: TypeAlias = npt.NDArray[Any]
Ranks: TypeAlias = Literal["sampled", "exact"]
_MOST_ITEMS = 2**31 - 1  # codes of items are int32
_WITHOUT, _WITH = ("ndcg", "ap", "auc"), ("ndcg", "ap", "precision", "recall")


@dataclass(frozen=True)
class LambdaRank:
    """α̃(c,i,j) = |ΔM|: by how much the metric M of context c changes if the items i and j change places.

    With ranks a of the positive and b of the negative, in the whole catalogue and from 1, and R = |I_c|:

        ndcg        |1/log₂(1+a) − 1/log₂(1+b)| / Σ_{k≤R} 1/log₂(1+k)
        precision   |1[a≤n] − 1[b≤n]| / n
        recall      |1[a≤n] − 1[b≤n]| / R
        auc         |a − b| / (R·(|I|−R))
        ap          ((K_lo + 1)/lo + Σ_{lo<r_p<hi} 1/r_p − (K_hi + 1)/hi) / R   with lo = min(a, b), hi = max(a, b),
                    r_p the ranks of the other positives, K_x how many of them are above x

    "@n" cuts after n places: what is behind gives nothing, and R becomes min(R, n) in ndcg and ap. The article has ΔM
    as a function of the two ranks; for AP it also depends on the positives between them.

    Args:
        metric: "ndcg", "ap" or "auc", or one with a cut such as "ndcg@20", "ap@20", "precision@10", "recall@20".
        ranks: `"exact"`: all items are scored for blocks of contexts, O(|C||I|d) an epoch. `"sampled"`: ranks are
            estimated from how many of a few random items score higher, as LambdaFM does (Yuan et al. 2016). Folding in,
            which is for one context at a time, always estimates them.
        candidates: how many, for `"sampled"`.

    If k of n candidates score higher than an item, its rank may be any, P(r|k) ∝ x^k(1−x)^{n−k} with x = (r−1)/(|I|−1).
    So |ΔM| is its mean over the ranks that the two items may have. With the most likely ranks instead, two items that
    none of the candidates beats would both be first, and exchanging them would change nothing; and these are the pairs
    that matter. For AP, which is a function of several ranks, each is its mean.

    >>> LambdaRank("ndcg").change(1, 3, [1], 100)
    0.5
    """

    metric: str = "ndcg"
    ranks: Ranks = "sampled"
    candidates: int = 32

    def __post_init__(self) -> None:
        self._parsed()
        one_of("ranks", self.ranks, ("sampled", "exact"))
        whole("candidates", self.candidates, most=1000)

    def _parsed(self) -> tuple[str, int]:
        """The metric, and after how many places it is cut; 0: it is not."""
        name, at, cut = self.metric.partition("@") if isinstance(self.metric, str) else ("", "", "")
        if name not in (_WITH if at else _WITHOUT) or (at and not (cut.isdecimal() and len(cut) < 10 and int(cut))):
            raise SettingError(
                f"metric is {self.metric!r}; expected 'ndcg', 'ap' or 'auc', or one with a cut: 'ndcg@20', 'ap@20', "
                "'precision@10', 'recall@20'"
            )
        return name, int(cut or 0)

    def tables(self, n_items: int, longest: int) -> MetricTables:
        """What kernels need, for histories of up to so many items."""
        name, _ = self._parsed()
        sizes = np.maximum(1, np.arange(longest + 1))
        return MetricTables(
            self._gains(n_items).astype(np.float32),
            self._norms(sizes, n_items).astype(np.float32),
            int(name == "ap"),
            int(self.candidates),
            np.zeros((1, 1), np.float32) if name == "ap" else _mean_changes(self, n_items),  # also for folding in
        )

    def _gains(self, n_items: int) -> npt.NDArray[np.float64]:
        """What a place is worth, by rank from 1."""
        return np.concatenate([[0.0], self._worth(np.arange(1, n_items + 1))])

    def _worth(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """What the places of these ranks are worth."""
        name, cut = self._parsed()
        within = ((ranks <= cut) | (cut == 0)).astype(np.float64)
        return {"ndcg": within / np.log2(1 + ranks), "auc": ranks.astype(np.float64), "ap": within / ranks}.get(
            name, within
        )

    def _norms(self, sizes: npt.NDArray[np.int64], n_items: int) -> npt.NDArray[np.float64]:
        """What the metric of a context with so many positives, at least 1, is divided by."""
        name, cut = self._parsed()
        if name == "ndcg":
            best = self._worth(np.arange(1, min(int(sizes.max()), n_items) + 1))
            return np.asarray(np.cumsum(best)[np.minimum(sizes, n_items) - 1])
        counts = sizes.astype(np.float64)
        if name == "auc":
            return counts * np.maximum(1.0, n_items - counts)
        if name == "ap":
            return np.minimum(counts, cut or n_items)
        return np.full(len(counts), float(cut)) if name == "precision" else counts

    def change(self, positive: int, negative: int, positives: npt.ArrayLike, n_items: int) -> float:
        """|ΔM| of two ranks, where `positives` are the ranks of all positives, `positive` among them.

        Ranks go from 1 to `n_items`. They may be estimates, so several items may have the same.
        """
        n_items = whole("n_items", n_items, least=2, most=_MOST_ITEMS)
        a, b = (whole(name, rank, most=n_items) for name, rank in (("positive", positive), ("negative", negative)))
        ranks = _checked_ranks(positives, n_items)
        if a not in ranks:
            raise SettingError(
                f"positive is the rank {a}, which is not among those of the positives: {positives!r:.80}"
            )
        # Only the order of the ranks and what each is worth matter, so a table of these ranks will do.
        distinct, places = np.unique(np.concatenate([[a, b], ranks]), return_inverse=True)
        tables = MetricTables(
            np.concatenate([[0.0], self._worth(distinct)]).astype(np.float32),
            np.repeat(self._norms(np.array([len(ranks)]), n_items), len(ranks) + 1).astype(np.float32),
            int(self._parsed()[0] == "ap"),
            int(self.candidates),
            np.zeros((1, 1), np.float32),
        )
        first, second, *_ = places = places + 1
        return float(metric_change(tables, first, second, places[2:], len(ranks)))


def _checked_ranks(given: npt.ArrayLike, n_items: int) -> npt.NDArray[np.int64]:
    """Ranks of positives, once they have been found to be possible."""
    try:
        ranks = np.asarray(given)
    except (TypeError, ValueError):  # lists of several lengths
        ranks = np.empty(0)
    fine = ranks.ndim == 1 and ranks.dtype.kind in "iu" and 0 < len(ranks) < n_items
    if not fine or ranks.min() < 1 or ranks.max() > n_items:
        raise SettingError(
            f"positives is {given!r:.80}; expected the ranks of 1 to {n_items - 1:,} positives, integers from 1 to "
            f"{n_items:,}"
        )
    return ranks.astype(np.int64)


class MetricTables(NamedTuple):
    """A metric, for kernels."""

    gains: npt.NDArray[np.float32]  # by rank, from 1
    norms: npt.NDArray[np.float32]  # by the length of the history
    by_positives: int  # whether the ranks of the other positives matter
    candidates: int
    changes: npt.NDArray[np.float32]  # for estimated ranks: by how many candidates score higher; not for AP


@lean_kernel
def metric_change(tables: MetricTables, a: int, b: int, ranks: Array, n: int) -> Any:
    """|ΔM| where a positive at rank a and a negative at rank b change places; `ranks[:n]`: of all positives."""
    gains = tables.gains
    norm = tables.norms[n]
    if tables.by_positives == 0:
        return abs(gains[a] - gains[b]) / norm
    low, high = min(a, b), max(a, b)
    above_low, above_high = 1, 1
    total, own = 0.0, False
    for k in range(n):
        r = ranks[k]
        if r == a and not own:  # the positive itself; others have its rank where ranks are estimates
            own = True
            continue
        above_low += r < low
        above_high += r < high
        if low < r < high:
            total += gains[r]
    return abs(above_low * gains[low] + total - above_high * gains[high]) / norm


@lru_cache(maxsize=16)
def _mean_changes(metric: LambdaRank, n_items: int) -> npt.NDArray[np.float32]:
    """The mean of |gain(a) − gain(b)| where k and l of n random items score higher than the two, by k and l = 0 … n.

    With C_k(r) = P(rank ≤ r|k) that is Σ_r |gain(r) − gain(r+1)|·(C_k(r)(1 − C_l(r)) + C_l(r)(1 − C_k(r))), as gains
    are monotone in the rank. The first ranks are taken one by one; of the others a block stands for each of its ranks,
    a fraction of the standard deviation of P(r|k) long.
    """
    n, gains = int(metric.candidates), metric._gains(n_items)[1:]
    bounds = [*range(min(1024, n_items))]
    while bounds[-1] < n_items:
        bounds.append(min(n_items, bounds[-1] + max(1, int(bounds[-1] * min(0.004, 0.1 / n**0.5)))))
    starts, sizes = np.array(bounds[:-1]), np.diff(bounds)
    worth = np.add.reduceat(gains, starts) / sizes
    x = (starts + (sizes - 1) / 2) / max(1, n_items - 1)
    k = np.arange(n + 1)[:, None]
    logs = xlogy(k, x) + xlog1py(n - k, -x)
    top = logs.max(axis=1, keepdims=True)
    law = sizes * np.exp(logs - np.where(np.isfinite(top), top, 0))
    law[~np.isfinite(top[:, 0])] = sizes  # of two items: some are above and some are not, so it can be either
    until = np.cumsum(law / law.sum(axis=1, keepdims=True), axis=1)[:, :-1]
    one_side = (until * np.abs(np.diff(worth))) @ (1 - until).T
    return np.ascontiguousarray(one_side + one_side.T, np.float32)
