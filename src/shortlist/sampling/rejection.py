"""Items that come too near to the positive one: proposals until one does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist._checks import flag, number, share, whole
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.sampling.base import Array, Draw, Exclude, Sampler, Score
from shortlist.sampling.sampler_tables import REJECTION, SamplerTables
from shortlist.sampling.uniform import BoundUniform

_MOST_LISTED = 10_000_000


@dataclass(frozen=True)
class Rejection(Sampler):
    """Uniform proposals until one has ŷ(j|c) + margin > ŷ(i|c): the sampler of WARP (Weston et al. 2011).

    Proposals are all items but i. One that is excluded is rejected as one that scores too low is, so most need not be
    looked up in the history. An accepted item is uniform over the v violators that are not excluded, and with
    p = v/(|I|−1) the number N of proposals is geometric, P(N) = p(1−p)^{N−1}. After `rounds` the search is given up, so

        q(j|c,i) = (1 − (1−p)^rounds) / v for violators, 0 for all others;  the rest of 1 is that none was found.

    Few rounds mean that i is badly ranked: its rank is estimated by ⌊(|I|−1)/N⌋. The article prints ⌊(N−1)/|I|⌋, which
    is 0 always. See `rounds_law` and `expected_rank`.

    A draw reports the rounds of each negative: all of them where the search was given up, 0 where there is no other
    item than i. ln q is not reported, since v is not known without scoring the catalogue.

    Args:
        margin: how far below the positive item's score a violator may be.
        rounds: how many proposals at most.
        exclude: `"history"` or `"positive"`, see `Sampler`.

    >>> negatives = Rejection(rounds=3).bind(Rows.from_lists([np.array([0])], n_columns=5))
    >>> negatives.probabilities(context=0, positive=0, scores=np.array([2.0, 3.0, 1.5, 1.0, 0.0]))
    array([0.    , 0.4375, 0.4375, 0.    , 0.    ])
    """

    margin: float = 1.0
    rounds: int = 10
    exclude: Exclude = "history"

    def __post_init__(self) -> None:
        number("margin", self.margin)
        whole("rounds", self.rounds, most=1_000_000)
        self._check_exclude()

    def bind(self, histories: SparseRows) -> BoundRejection:
        """The sampler over some data, see `Sampler.bind`."""
        return BoundRejection(histories, self)


class BoundRejection(BoundUniform):
    """`Rejection` over some data."""

    def __init__(self, histories: SparseRows, settings: Rejection) -> None:
        super().__init__(histories, settings.exclude)
        self._settings = settings

    @cached_property
    def tables(self) -> SamplerTables:
        """What kernels draw from."""
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
        """As `Negatives.draw`; needs `score`, reports rounds, and refuses `log_q`."""
        if flag("log_q", log_q):
            raise SettingError("Rejection knows no ln q of its draws; take another sampler where a loss needs q")
        if not callable(score):
            raise SettingError("Rejection compares scores; pass score, a function of contexts and items")
        contexts, positives = self._checked(contexts, positives, rng)
        items = np.full((len(contexts), whole("n", n)), -1, np.int32)
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
        """q(j|c,i) of every item j by brute force; what it lacks to 1 is the probability that none is found."""
        if positive is None or scores is None or np.shape(scores) != (self.n_items,):
            raise SettingError(f"Rejection compares with a positive item; pass positive and {self.n_items} scores")
        allowed = self._allowed(context, positive, None) > 0
        violators = allowed & (scores > scores[positive] - self._settings.margin)
        if not violators.any():
            return np.zeros(self.n_items)
        p = violators.sum() / (self.n_items - 1)
        return np.asarray(violators / violators.sum() * rounds_law(p, self._settings.rounds).sum())


def rounds_law(p: float, rounds: int) -> npt.NDArray[np.float64]:
    """P(N) = p(1−p)^{N−1} for N = 1 … rounds: that the N-th proposal is the first violator, of a share p of them.

    What it lacks to 1, (1−p)^rounds, is the probability that none is found.

    >>> rounds_law(0.5, 3)
    array([0.5  , 0.25 , 0.125])
    """
    p, rounds = share("p", p), whole("rounds", rounds, most=_MOST_LISTED)
    return np.asarray(p * (1 - p) ** np.arange(rounds))


def expected_rank(p: float, n_items: int, rounds: int | None = None) -> float:
    """The mean of WARP's estimate ⌊(|I|−1)/N⌋ of a rank, Σ_N P(N)·⌊(|I|−1)/N⌋, for a share p of violators.

    It overestimates the number of violators p·|I|: by ln(1/p)/(1−p) for large catalogues. With `rounds`, the mean over
    searches that succeed within so many: of those the estimate is higher still. Without violators, p = 0, it is 0.

    >>> round(expected_rank(0.1, 10_001) / (0.1 * 10_001), 2)
    2.56
    """
    p, others = share("p", p), whole("n_items", n_items, most=2**31 - 1) - 1
    most = others if rounds is None else min(others, whole("rounds", rounds))  # beyond |I| − 1 the estimate is 0
    if p in (0, 1) or not others:
        return p * others
    # The estimate is the same for many N in a row: these blocks end at 1 … √|I|, then where the quotient changes.
    root = math.isqrt(others)
    ends = np.concatenate([np.arange(1, root + 1), others // np.arange(others // (root + 1), 0, -1)])
    estimates = others // ends
    ends = np.minimum(ends, most)
    starts = np.concatenate([[0], ends[:-1]])
    fails = math.log1p(-p)  # (1 − p)^n = exp(n·fails)
    total = float(estimates @ (np.exp(starts * fails) * -np.expm1((ends - starts) * fails)))
    return total if rounds is None else total / -math.expm1(rounds * fails)
