"""LambdaRank: the weight of a pair's step is the change of a metric when its two items swap ranks (section 4.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

from shortlist._checks import integer, one_of
from shortlist._numba import lean_kernel
from shortlist.errors import SettingError

Array: TypeAlias = npt.NDArray[Any]
Ranks: TypeAlias = Literal["sampled", "exact"]
_MOST_ITEMS = 2**31 - 1  # codes of items are int32
_WITHOUT, _WITH = ("ndcg", "ap", "auc"), ("ndcg", "ap", "precision", "recall")


@dataclass(frozen=True)
class LambdaRank:
    """α̃(c,i,j) = |ΔM|: how much the metric M of context c changes when the items i and j swap ranks.

    The positive has rank a and the negative rank b, counted from 1 over the whole catalogue. With R = |I_c|:

        ndcg        |1/log₂(1+a) − 1/log₂(1+b)| / Σ_{k≤R} 1/log₂(1+k)
        precision   |1[a≤n] − 1[b≤n]| / n
        recall      |1[a≤n] − 1[b≤n]| / R
        auc         |a − b| / (R·(|I|−R))
        ap          ((K_lo + 1)/lo + Σ_{lo<r_p<hi} 1/r_p − (K_hi + 1)/hi) / R   with lo = min(a, b), hi = max(a, b),
                    r_p the ranks of the other positives, K_x how many of them are above x

    "@n" is a cutoff: ranks after n count 0, and R becomes min(R, n) in ndcg and ap. The article defines ΔM as a
    function of the two ranks; for AP it also depends on the positives between them.

    Args:
        metric: "ndcg", "ap" or "auc", or a metric with a cutoff such as "ndcg@20", "ap@20", "precision@10",
            "recall@20".
        ranks: `"exact"` scores all items for blocks of contexts, O(|C||I|d) an epoch. `"sampled"` estimates ranks from
            the number of random items that score higher, like LambdaFM (Yuan et al. 2016). Fold-in always uses
            estimates, because it treats one context at a time.
        candidates: number of random items for `"sampled"`.

    If k of n candidates score higher than an item, its rank r has the distribution P(r|k) ∝ x^k(1−x)^{n−k} with
    x = (r−1)/(|I|−1). |ΔM| is the mean over the possible ranks of both items. The most likely ranks would not do: two
    items that no candidate beats would both have rank 1, so a swap would change nothing, and these pairs matter most.
    AP depends on several ranks; each is replaced by its mean.

    >>> LambdaRank("ndcg").change(1, 3, [1], 100)
    0.5
    """

    metric: str = "ndcg"
    ranks: Ranks = "sampled"
    candidates: int = 32

    def __post_init__(self) -> None:
        self._parsed()
        one_of("ranks", self.ranks, ("sampled", "exact"))
        integer("candidates", self.candidates, most=1000)

    def _parsed(self) -> tuple[str, int]:
        """Return the metric's name and its cutoff, 0 for none."""
        name, at, cut = self.metric.partition("@") if isinstance(self.metric, str) else ("", "", "")
        if name not in (_WITH if at else _WITHOUT) or (at and not (cut.isdecimal() and len(cut) < 10 and int(cut))):
            raise SettingError(
                f"metric is {self.metric!r}; expected 'ndcg', 'ap' or 'auc', or a metric with a cutoff: 'ndcg@20', "
                "'ap@20', 'precision@10', 'recall@20'",
                field="metric",
            )
        return name, int(cut or 0)

    def tables(self, n_items: int, longest: int) -> MetricTables:
        """Return the metric's tables for kernels, for histories of up to `longest` items."""
        name, _ = self._parsed()
        sizes = np.maximum(1, np.arange(longest + 1))
        return MetricTables(
            self._gains(n_items).astype(np.float32),
            self._norms(sizes, n_items).astype(np.float32),
            int(name == "ap"),
            int(self.candidates),
            np.zeros((1, 1), np.float32) if name == "ap" else _mean_changes(self, n_items),  # also for fold-in
        )

    def _gains(self, n_items: int) -> npt.NDArray[np.float64]:
        """Return the gain of every rank; ranks start at 1, and element 0 is 0."""
        return np.concatenate([[0.0], self._gains_at(np.arange(1, n_items + 1))])

    def _gains_at(self, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the gains of these ranks."""
        name, cut = self._parsed()
        in_cut = ((ranks <= cut) | (cut == 0)).astype(np.float64)
        return {"ndcg": in_cut / np.log2(1 + ranks), "auc": ranks.astype(np.float64), "ap": in_cut / ranks}.get(
            name, in_cut
        )

    def _norms(self, sizes: npt.NDArray[np.int64], n_items: int) -> npt.NDArray[np.float64]:
        """Return the metric's denominator for contexts with these numbers of positives, all ≥ 1."""
        name, cut = self._parsed()
        if name == "ndcg":
            best = self._gains_at(np.arange(1, min(int(sizes.max()), n_items) + 1))
            return np.asarray(np.cumsum(best)[np.minimum(sizes, n_items) - 1])
        counts = sizes.astype(np.float64)
        if name == "auc":
            return counts * np.maximum(1.0, n_items - counts)
        if name == "ap":
            return np.minimum(counts, cut or n_items)
        return np.full(len(counts), float(cut)) if name == "precision" else counts

    def change(self, positive: int, negative: int, positives: npt.ArrayLike, n_items: int) -> float:
        """Return |ΔM| when a positive and a negative swap ranks.

        Args:
            positive: the positive's rank.
            negative: the negative's rank.
            positives: the ranks of all positives of the context, including `positive`.
            n_items: the size of the catalogue. Ranks go from 1 to `n_items`; as estimates, they may be tied.
        """
        n_items = integer("n_items", n_items, least=2, most=_MOST_ITEMS)
        a, b = (integer(name, rank, most=n_items) for name, rank in (("positive", positive), ("negative", negative)))
        ranks = _checked_ranks(positives, n_items)
        if a not in ranks:
            raise SettingError(
                f"positive is {a}, but positives, the ranks of all positives, does not contain it: {positives!r:.80}",
                field="positives",
            )
        # Only the order of the ranks and their gains matter, so a table of these ranks is enough.
        distinct, places = np.unique(np.concatenate([[a, b], ranks]), return_inverse=True)
        tables = MetricTables(
            np.concatenate([[0.0], self._gains_at(distinct)]).astype(np.float32),
            np.repeat(self._norms(np.array([len(ranks)]), n_items), len(ranks) + 1).astype(np.float32),
            int(self._parsed()[0] == "ap"),
            int(self.candidates),
            np.zeros((1, 1), np.float32),
        )
        first, second, *_ = places = places + 1
        return float(metric_change(tables, first, second, places[2:], len(ranks)))


def _checked_ranks(given: npt.ArrayLike, n_items: int) -> npt.NDArray[np.int64]:
    """Return the ranks of positives as an array; raise if they are not ranks from 1 to `n_items`."""
    try:
        ranks = np.asarray(given)
    except (TypeError, ValueError):  # lists of several lengths
        ranks = np.empty(0)
    valid = ranks.ndim == 1 and ranks.dtype.kind in "iu" and 0 < len(ranks) < n_items
    if not valid or ranks.min() < 1 or ranks.max() > n_items:
        raise SettingError(
            f"positives is {given!r:.80}; expected a list of 1 to {n_items - 1:,} ranks, integers from 1 to "
            f"{n_items:,}",
            field="positives",
        )
    return ranks.astype(np.int64)


class MetricTables(NamedTuple):
    """A metric, for kernels."""

    gains: npt.NDArray[np.float32]  # by rank, from 1
    norms: npt.NDArray[np.float32]  # by the length of the history
    by_positives: int  # 1 if the ranks of the other positives matter, as for AP
    candidates: int
    changes: npt.NDArray[np.float32]  # mean |ΔM| by the numbers of candidates that score higher; unused for AP


@lean_kernel
def metric_change(tables: MetricTables, a: int, b: int, ranks: Array, n: int) -> Any:
    """Return |ΔM| when a positive at rank a and a negative at rank b swap; `ranks[:n]` are those of all positives."""
    gains = tables.gains
    norm = tables.norms[n]
    if tables.by_positives == 0:
        return abs(gains[a] - gains[b]) / norm
    low, high = min(a, b), max(a, b)
    above_low, above_high = 1, 1
    total, skipped = 0.0, False
    for k in range(n):
        r = ranks[k]
        if r == a and not skipped:  # the positive itself; estimated ranks may tie, so skip only the first
            skipped = True
            continue
        above_low += r < low
        above_high += r < high
        if low < r < high:
            total += gains[r]
    return abs(above_low * gains[low] + total - above_high * gains[high]) / norm


@lru_cache(maxsize=16)
def _mean_changes(metric: LambdaRank, n_items: int) -> npt.NDArray[np.float32]:
    """Return the mean of |gain(a) − gain(b)| when k and l of n random items score higher, for k and l = 0 … n.

    With C_k(r) = P(rank ≤ r|k) it is Σ_r |gain(r) − gain(r+1)|·(C_k(r)(1 − C_l(r)) + C_l(r)(1 − C_k(r))), because gains
    are monotone in the rank. The first 1024 ranks are summed exactly. Later ranks are grouped into blocks, which are a
    fraction of the standard deviation of P(r|k) long and have the mean gain of their ranks.
    """
    n, gains = int(metric.candidates), metric._gains(n_items)[1:]
    bounds = [*range(min(1024, n_items))]
    while bounds[-1] < n_items:
        bounds.append(min(n_items, bounds[-1] + max(1, int(bounds[-1] * min(0.004, 0.1 / n**0.5)))))
    starts, sizes = np.array(bounds[:-1]), np.diff(bounds)
    block_gains = np.add.reduceat(gains, starts) / sizes
    x = (starts + (sizes - 1) / 2) / max(1, n_items - 1)
    k = np.arange(n + 1)[:, None]
    logs = xlogy(k, x) + xlog1py(n - k, -x)
    top = logs.max(axis=1, keepdims=True)
    likelihood = sizes * np.exp(logs - np.where(np.isfinite(top), top, 0))
    likelihood[~np.isfinite(top[:, 0])] = (
        sizes  # two items, some candidates above and some not: both ranks are possible
    )
    cumulative = np.cumsum(likelihood / likelihood.sum(axis=1, keepdims=True), axis=1)[:, :-1]
    half = (cumulative * np.abs(np.diff(block_gains))) @ (1 - cumulative).T
    return np.ascontiguousarray(half + half.T, np.float32)
