"""WARP's sampler: uniform proposals until one scores near the positive or above it (section 4.2.3 of the article)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import flag, fraction, integer, number
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.sampling.base import Array, Draw, Exclude, Sampler, Score
from shortlist.sampling.sampler_tables import REJECTION, SamplerTables
from shortlist.sampling.uniform import BoundUniform

_MOST_LISTED = 10_000_000


@dataclass(frozen=True)
class Rejection(Sampler):
    """Uniform proposals until one has ŷ(j|c) + margin > ŷ(i|c): the sampler of WARP (Weston et al. 2011).

    Proposals are drawn from all items except i. A proposal is rejected if it scores too low or is excluded; the history
    is only searched if it scores high enough. The accepted item is uniform over the v violators that are not excluded.
    With p = v/(|I|−1), the number N of proposals is geometric: P(N) = p(1−p)^{N−1}. The search stops after `rounds`
    proposals, so

        q(j|c,i) = (1 − (1−p)^rounds) / v for violators, 0 for other items; no negative is found with (1−p)^rounds.

    A small N means that i ranks low: its estimated rank is ⌊(|I|−1)/N⌋. The article prints ⌊(N−1)/|I|⌋, which is always
    0. See `rounds_law` and `expected_rank`.

    A draw reports the number of rounds of each negative: `rounds` if the search failed, 0 if i is the only item. It
    does not report ln q, because v is unknown without scoring the catalogue.

    Args:
        margin: how far below the positive's score a violator may be.
        rounds: maximum number of proposals.
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> negatives = Rejection(rounds=3).bind(SparseRows.from_lists([np.array([0])], n_columns=5))
    >>> negatives.probabilities(context=0, positive=0, scores=np.array([2.0, 3.0, 1.5, 1.0, 0.0]))
    array([0.    , 0.4375, 0.4375, 0.    , 0.    ])
    """

    margin: float = 1.0
    rounds: int = 10
    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        number("margin", self.margin)
        integer("rounds", self.rounds, most=1_000_000)
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundRejection:
        """Return the sampler for these histories, see `Sampler.bind`."""
        return BoundRejection(histories, self)


class BoundRejection(BoundUniform):
    """`Rejection` bound to histories."""

    def __init__(self, histories: SparseRows, settings: Rejection) -> None:
        super().__init__(histories, settings.exclude)
        self._settings = settings

    @cached_property
    def tables(self) -> SamplerTables:
        """The tables that kernels draw from."""
        return SamplerTables.of(REJECTION, self.exclude, self.histories)._replace(
            margin=float(self._settings.margin), rounds=int(self._settings.rounds)
        )

    def draw(
        self,
        contexts: Array,
        positives: Array,
        n: int,
        rng: np.random.Generator,
        *,
        context_embeddings: Array | None = None,
        score: Score | None = None,
        log_q: bool = False,
    ) -> Draw:
        """Draw negatives as in `BoundSampler.draw`; needs `score`, reports rounds and refuses `log_q`."""
        if flag("log_q", log_q):
            raise SettingError(
                "Rejection cannot compute ln q of its draws",
                hint="use another sampler if the loss needs q",
                field="sampler",
            )
        if not callable(score):
            raise SettingError(
                "Rejection needs scores", field="score", hint="pass score, a function of contexts and items"
            )
        contexts, positives = self._checked(contexts, positives, rng)
        items = np.full((len(contexts), integer("n", n)), -1, np.int32)
        rounds = np.zeros(items.shape, np.int32)
        least = np.asarray(score(contexts, positives)) - self._settings.margin
        todo = np.arange(items.size if self.n_items > 1 else 0)
        for _ in range(self._settings.rounds):
            pairs = todo // n
            proposed = rng.integers(max(1, self.n_items - 1), size=len(todo), dtype=np.int32)
            proposed += proposed >= positives[pairs]
            rounds.flat[todo] += 1
            good = np.asarray(score(contexts[pairs], proposed)) > least[pairs]
            good &= ~self._excluded(contexts[pairs], positives[pairs], proposed)
            items.flat[todo[good]] = proposed[good]
            todo = todo[~good]
            if not len(todo):
                break
        return Draw(items, None, rounds)

    def probabilities(
        self,
        context: int,
        positive: int | None = None,
        *,
        context_embedding: Any = None,
        scores: Array | None = None,
    ) -> npt.NDArray[np.float64]:
        """Return q(j|c,i) of every item j by brute force; 1 minus their sum is the probability of finding none."""
        if positive is None or scores is None or np.shape(scores) != (self.n_items,):
            raise SettingError(
                "Rejection compares items with a positive",
                field="positive",
                hint=f"pass positive and {self.n_items} scores",
            )
        allowed = self._allowed(context, positive, None) > 0
        violators = allowed & (scores > scores[positive] - self._settings.margin)
        if not violators.any():
            return np.zeros(self.n_items)
        p = violators.sum() / (self.n_items - 1)
        return np.asarray(violators / violators.sum() * rounds_law(p, self._settings.rounds).sum())


def rounds_law(p: float, rounds: int) -> npt.NDArray[np.float64]:
    """Return P(N) = p(1−p)^{N−1} for N = 1 … rounds: the probability that proposal N is the first violator.

    The fraction of violators is p. 1 minus the sum, (1−p)^rounds, is the probability that none is found.

    >>> rounds_law(0.5, 3)
    array([0.5  , 0.25 , 0.125])
    """
    p, rounds = fraction("p", p), integer("rounds", rounds, most=_MOST_LISTED)
    return np.asarray(p * (1 - p) ** np.arange(rounds))


def expected_rank(p: float, n_items: int, rounds: int | None = None) -> float:
    """Return the mean of WARP's rank estimate, Σ_N P(N)·⌊(|I|−1)/N⌋, when a fraction p of the items are violators.

    The estimate is too high: for large catalogues it is ln(1/p)/(1−p) times the number of violators p·|I|. With
    `rounds`, the mean is over searches that succeed within `rounds` proposals, and higher still. It is 0 for p = 0.

    >>> round(expected_rank(0.1, 10_001) / (0.1 * 10_001), 2)
    2.56
    """
    p, n_others = fraction("p", p), integer("n_items", n_items, most=2**31 - 1) - 1
    most = n_others if rounds is None else min(n_others, integer("rounds", rounds))  # beyond |I| − 1 the estimate is 0
    if p in (0, 1) or not n_others:
        return p * n_others
    # Many consecutive N have the same estimate. Their blocks end at 1 … √|I|, then where the quotient changes.
    root = math.isqrt(n_others)
    ends = np.concatenate([np.arange(1, root + 1), n_others // np.arange(n_others // (root + 1), 0, -1)])
    estimates = n_others // ends
    ends = np.minimum(ends, most)
    starts = np.concatenate([[0], ends[:-1]])
    log_miss = math.log1p(-p)  # (1 − p)^n = exp(n·log_miss)
    total = float(estimates @ (np.exp(starts * log_miss) * -np.expm1((ends - starts) * log_miss)))
    return total if rounds is None else total / -math.expm1(rounds * log_miss)
