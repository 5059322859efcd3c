"""Base classes of samplers: `Sampler` holds the settings, `BoundSampler` draws negatives for given histories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import flag, instance, integer, numbers, one_of
from shortlist.data.sparse_rows import SparseRows, has_pairs
from shortlist.errors import SettingError
from shortlist.sampling.sampler_tables import SamplerTables

Array: TypeAlias = npt.NDArray[Any]
Exclude: TypeAlias = Literal["history", "positive"]
Score: TypeAlias = Callable[[Array, Array], Array]  # ŷ of each pair of a context and an item
_TRIES = 64  # draws before the remaining items are listed


class Draw(NamedTuple):
    """Negatives, with a row for each pair (c, i) of a batch."""

    items: npt.NDArray[np.int32]  # −1 if there is no negative
    log_q: npt.NDArray[np.float64] | None  # ln q(j|c,i) of each, if requested; −∞ if there is no negative
    rounds: npt.NDArray[np.int32] | None  # proposals that each negative took; `Rejection` only


class Sampler(ABC):
    """The settings of a distribution q(j|c,i) of negatives j for an observed pair (c, i).

    Excluded items are never drawn: their q is exactly 0, and the q of the other items sum to 1. With
    `exclude="positive"` only the item i is excluded; with `exclude="history"` all of I_c and i are.
    """

    exclude: Exclude

    @abstractmethod
    def bind(self, histories: SparseRows) -> BoundSampler:
        """Return a sampler for these histories, the items of each context (`interactions.by_context`)."""

    def _check_exclude(self) -> None:
        one_of("exclude", self.exclude, ("history", "positive"))


class BoundSampler(ABC):
    """A sampler bound to the histories of a dataset."""

    def __init__(self, histories: SparseRows, exclude: Exclude) -> None:
        instance("histories", histories, SparseRows, "rows of items by context, such as interactions.by_context")
        self.histories, self.exclude = histories, exclude
        self.n_items = histories.n_columns

    @property
    @abstractmethod
    def tables(self) -> SamplerTables:
        """The tables that kernels draw from (`shortlist.sampling.draw_kernels`); `refresh` replaces them."""

    @property
    def refresh_every(self) -> int | None:
        """The number of draws between two calls of `refresh`; None if q does not depend on item embeddings."""
        return None

    def refresh(self, item_embeddings: Array, threads: int | None = None) -> None:
        """Update the sampler to the model's current item embeddings. Most samplers ignore them."""
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
            n: number of negatives for each pair.
            rng: the random generator.
            context_embeddings: φ(c), a row for each pair; needed by `AdaptiveRank`.
            score: a function that returns ŷ for arrays of contexts and items of equal length; needed by `Rejection`.
            log_q: whether to return ln q(j|c,i) too.

        The negatives of a pair are −1 if all items are excluded.
        """
        contexts, positives = self._checked(contexts, positives, rng)
        integer("n", n)
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
        for at in todo.tolist():  # contexts with nearly all items, or all of them
            q = self._remaining(at // n, contexts, positives, context_embeddings)
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
        """Return q(j|c,i) of every item j by brute force; q(j|c) without a positive. All 0 if every item is excluded.

        Args:
            context: c.
            positive: i.
            context_embedding: φ(c); needed by `AdaptiveRank`.
            scores: ŷ(·|c) over the catalogue; needed by `Rejection`.
        """
        weights = self._allowed(context, positive, context_embedding)
        total = weights.sum()
        return np.asarray(weights / total) if total > 0 else weights

    def base_probabilities(self) -> npt.NDArray[np.float64]:
        """Return the probability of every item before exclusions, for samplers that do not depend on the context."""
        weights = self._weights(None)
        return np.asarray(weights / weights.sum())

    @abstractmethod
    def _propose(self, pairs: Array, positives: Array, rng: np.random.Generator, context_embeddings: Any) -> Array:
        """Propose an item for each of these pairs of the batch; it may be excluded."""

    @abstractmethod
    def _weights(self, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        """Return the distribution before exclusions, as a new array; it need not sum to 1."""

    def _allowed(self, context: int, positive: int | None, context_embedding: Array | None) -> npt.NDArray[np.float64]:
        """Return the distribution with 0 for excluded items; it need not sum to 1."""
        weights = self._weights(context_embedding)
        weights[self._excluded_items(code("context", context, self.histories.n_rows), positive)] = 0
        return weights

    def _remaining(self, k: int, contexts: Array, positives: Array, context_embeddings: Array | None) -> Array:
        """Return the distribution of pair k of a batch; it need not sum to 1."""
        embedding = None if context_embeddings is None else context_embeddings[k]
        return self._allowed(int(contexts[k]), int(positives[k]), embedding)

    def _log_q(self, items: Array, contexts: Array, positives: Array, context_embeddings: Array | None) -> Array:
        log_q = np.full(items.shape, -np.inf)
        for k, row in enumerate(items):
            q = self._remaining(k, contexts, positives, context_embeddings)
            log_q[k, row >= 0] = np.log(q[row[row >= 0]] / q.sum())
        return log_q

    def _excluded(self, contexts: Array, positives: Array, items: Array) -> npt.NDArray[np.bool_]:
        same = np.asarray(items == positives)
        return same | self._in_history(contexts, items) if self.exclude == "history" else same

    def _in_history(self, contexts: Array, items: Array) -> npt.NDArray[np.bool_]:
        return np.asarray(has_pairs(self.histories.indptr, self.histories.indices, contexts, items))

    def _excluded_items(self, context: int, positive: int | None) -> Array:
        """Return the excluded items of a context."""
        excluded = self.histories.row(context) if self.exclude == "history" else np.empty(0, np.int32)
        if positive is None:
            return excluded
        return np.union1d(excluded, [code("positive", positive, self.n_items)]).astype(np.int32)

    def _checked(
        self, contexts: Array, positives: Array, rng: object
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        instance("rng", rng, np.random.Generator, "a generator such as np.random.default_rng(0)")
        contexts, positives = numbers("contexts", contexts), numbers("positives", positives)
        if contexts.shape != positives.shape or contexts.ndim != 1:
            raise SettingError(
                f"contexts has shape {contexts.shape} and positives has shape {positives.shape}; expected two lists of "
                "equal length",
                field="contexts",
            )
        for name, codes, n in (
            ("contexts", contexts, self.histories.n_rows),
            ("positives", positives, self.n_items),
        ):
            if len(codes) and not (np.issubdtype(codes.dtype, np.integer) and codes.min() >= 0 and codes.max() < n):
                raise SettingError(
                    f"{name} has values from {codes.min()} to {codes.max()}; expected codes from 0 to {n - 1}",
                    field=name,
                )
        return contexts.astype(np.int32, copy=False), positives.astype(np.int32, copy=False)


def code(name: str, value: object, n: int) -> int:
    """Check that a value is the code of one of n contexts or items, and return it."""
    checked = integer(name, value, 0)
    if checked >= n:
        raise SettingError(f"{name} is {checked}; expected a code from 0 to {n - 1}", field=name)
    return checked
