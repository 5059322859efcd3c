"""What every sampler of negatives is: settings, and what they become over the histories of some data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import flag, instance, numbers, one_of, whole
from shortlist.data.sparse_rows import SparseRows, has_pairs
from shortlist.errors import SettingError
from shortlist.sampling.sampler_tables import SamplerTables

Array: TypeAlias = npt.NDArray[Any]
Exclude: TypeAlias = Literal["history", "positive"]
Score: TypeAlias = Callable[[Array, Array], Array]  # ŷ of each pair of a context and an item
_TRIES = 64  # draws, until one is not excluded


class Draw(NamedTuple):
    """Negatives, a row for each pair (c, i) of a batch."""

    items: npt.NDArray[np.int32]  # −1 where there is none
    log_q: npt.NDArray[np.float64] | None  # ln q(j|c,i) of each, where it was asked for; −∞ where there is none
    rounds: npt.NDArray[np.int32] | None  # proposals that each took, where it was searched for


class Sampler(ABC):
    """A distribution q(j|c,i) of the negatives j of an observed pair (c, i), as settings.

    Some items are never drawn, so their q is exactly 0: with `exclude="history"` all of I_c, with
    `exclude="positive"` the item i only. The rest of a sampler's distribution is scaled up to 1. The item i itself is
    excluded either way.
    """

    exclude: Exclude

    @abstractmethod
    def bind(self, histories: SparseRows) -> BoundSampler:
        """The sampler over some data, whose items by context these are (`interactions.by_context`)."""

    def _check_exclude(self) -> None:
        one_of("exclude", self.exclude, ("history", "positive"))


class BoundSampler(ABC):
    """A sampler over the histories of some data."""

    def __init__(self, histories: SparseRows, exclude: Exclude) -> None:
        instance("histories", histories, SparseRows, "rows of items by context, such as interactions.by_context")
        self.histories, self.exclude = histories, exclude
        self.n_items = histories.n_columns

    @property
    @abstractmethod
    def tables(self) -> SamplerTables:
        """What kernels draw from (`shortlist.sampling.draw_kernels`); another one after each `refresh`."""

    @property
    def refresh_every(self) -> int | None:
        """How many draws one `refresh` is good for; None where q does not depend on item embeddings."""
        return None

    def refresh(self, item_embeddings: Array, threads: int | None = None) -> None:
        """Follow the model: take note of its current item embeddings. Most samplers have no use for them."""
        return

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
        """Draw n negatives, with replacement, for each pair (c, i) of a batch.

        Args:
            contexts: the c of each pair.
            positives: the i of each pair.
            n: how many negatives.
            rng: where chance comes from.
            context_embeddings: φ(c), a row for each pair, for samplers that ask for them.
            score: ŷ for arrays of contexts and items of equal length, for samplers that ask for it.
            log_q: whether to report ln q(j|c,i) as well.

        Where a pair has nothing left that could be drawn, its negatives are −1.
        """
        contexts, positives = self._checked(contexts, positives, rng)
        whole("n", n)
        log_q = flag("log_q", log_q)
        items = np.full((len(contexts), n), -1, np.int32)
        todo = np.arange(items.size)
        for _ in range(_TRIES):
            pairs = todo // n
            drawn = self._propose(pairs, positives, rng, context_embeddings)
            good = ~self._excluded(contexts[pairs], positives[pairs], drawn)
            items.flat[todo[good]] = drawn[good]
            todo = todo[~good]
            if not len(todo):
                break
        for at in todo.tolist():  # a context who has nearly everything, or all of it
            q = self._left(at // n, contexts, positives, context_embeddings)
            if q.any():
                items.flat[at] = rng.choice(self.n_items, p=q / q.sum())
        return Draw(items, self._log_q(items, contexts, positives, context_embeddings) if log_q else None, None)

    def probabilities(
        self,
        context: int,
        positive: int | None = None,
        *,
        context_embedding: Array | None = None,
        scores: Array | None = None,
    ) -> npt.NDArray[np.float64]:
        """q(j|c,i) of every item j by brute force; q(j|c), where no positive is named. All 0 where nothing is left.

        `context_embedding` is φ(c) and `scores` is ŷ(·|c) over the catalogue, for samplers that ask for them.
        """
        weights = self._allowed(context, positive, context_embedding)
        total = weights.sum()
        return np.asarray(weights / total) if total > 0 else weights

    def base_probabilities(self) -> npt.NDArray[np.float64]:
        """The probability of every item before anything is excluded, of a sampler that asks for no context."""
        weights = self._weights(None)
        return np.asarray(weights / weights.sum())

    @abstractmethod
    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        """One item for each of these pairs of the batch, excluded or not."""

    @abstractmethod
    def _weights(self, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        """The distribution before anything is excluded, as a new array; it need not sum to 1."""

    def _allowed(self, context: int, positive: int | None, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        """The distribution with 0 for what is excluded; it need not sum to 1."""
        weights = self._weights(context_embedding)
        weights[self._barred(code("context", context, self.histories.n_rows), positive)] = 0
        return weights

    def _left(self, k: int, contexts: Array, positives: Array, context_embeddings: Array | None) -> Array:
        """What pair k of a batch may draw, in proportion."""
        embedding = None if context_embeddings is None else context_embeddings[k]
        return self._allowed(int(contexts[k]), int(positives[k]), embedding)

    def _log_q(self, items: Array, contexts: Array, positives: Array, context_embeddings: Array | None) -> Array:
        answer = np.full(items.shape, -np.inf)
        for k, row in enumerate(items):
            q = self._left(k, contexts, positives, context_embeddings)
            answer[k, row >= 0] = np.log(q[row[row >= 0]] / q.sum())
        return answer

    def _excluded(self, contexts: Array, positives: Array, items: Array) -> npt.NDArray[np.bool_]:
        same = np.asarray(items == positives)
        return same | self._in_history(contexts, items) if self.exclude == "history" else same

    def _in_history(self, contexts: Array, items: Array) -> npt.NDArray[np.bool_]:
        return np.asarray(has_pairs(self.histories.indptr, self.histories.indices, contexts, items))

    def _barred(self, context: int, positive: int | None) -> Array:
        """Every item that may not be drawn."""
        barred = self.histories.row(context) if self.exclude == "history" else np.empty(0, np.int32)
        if positive is None:
            return barred
        return np.union1d(barred, [code("positive", positive, self.n_items)]).astype(np.int32)

    def _checked(
        self, contexts: Array, positives: Array, rng: object
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        instance("rng", rng, np.random.Generator, "a generator such as np.random.default_rng(0)")
        contexts, positives = numbers("contexts", contexts), numbers("positives", positives)
        if contexts.shape != positives.shape or contexts.ndim != 1:
            raise SettingError(
                f"contexts have shape {contexts.shape} and positives {positives.shape}; expected one of each for a pair"
            )
        for name, codes, n in (
            ("contexts", contexts, self.histories.n_rows),
            ("positives", positives, self.n_items),
        ):
            if len(codes) and not (np.issubdtype(codes.dtype, np.integer) and codes.min() >= 0 and codes.max() < n):
                raise SettingError(f"{name} go from {codes.min()} to {codes.max()}; expected codes from 0 to {n - 1}")
        return contexts.astype(np.int32, copy=False), positives.astype(np.int32, copy=False)


def code(name: str, value: object, n: int) -> int:
    """A code of one of n contexts or items."""
    found = whole(name, value, 0)
    if found >= n:
        raise SettingError(f"{name} is {found}; expected a code from 0 to {n - 1}")
    return found
