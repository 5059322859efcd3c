"""The trainer of SGD over observed pairs and sampled negatives (Algorithms 1 and 2 of the article)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._aligned import aligned
from shortlist._random import GOLDEN, mixed_int
from shortlist._state import State, load_state
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives.loss_parts import LossParts
from shortlist.sampling.base import BoundSampler
from shortlist.sampling.draw_kernels import random_units
from shortlist.sampling.history_filter import history_filter
from shortlist.sampling.sampler_tables import HISTORY, SamplerTables
from shortlist.scoring.pair_score import unit_rows
from shortlist.solvers.optimizers import SGD, OptimizerState, state_arrays
from shortlist.solvers.sgd_kernels import fold_rows, is_plain, run_chunk, run_plain, run_ranked
from shortlist.solvers.sgd_order import count_buckets, fill_buckets, shuffle
from shortlist.solvers.sgd_tables import (
    PAIRWISE,
    WHOLE,
    ModelTables,
    StepTables,
    TrainingPairs,
    WeightTables,
    work_space,
)

Floats: TypeAlias = npt.NDArray[np.float32]
Schedule: TypeAlias = Literal["constant", "linear", "cosine", "inverse"]
SCHEDULES = ("constant", "linear", "cosine", "inverse")
_CHUNK = 8192  # pairs that a thread takes at a time
_PART = 1 << 16  # pairs that a thread puts into buckets at a time
_RANKED = 1 << 24  # scores that are computed at once for exact ranks


def learning_rate(schedule: Schedule, epoch: float, epochs: int) -> float:
    """Return the factor of the learning rate of an epoch, counted from 0.

    `"constant"` is 1, `"linear"` and `"cosine"` fall to 0 after the last epoch, and `"inverse"` is
    1/(1 + 9·epoch/epochs): 0.1 after the last epoch.

    >>> [round(learning_rate("linear", e, 4), 2) for e in range(4)]
    [1.0, 0.75, 0.5, 0.25]
    """
    part = epoch / max(1, epochs)
    if schedule == "linear":
        return max(0.0, 1 - part)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * min(1.0, part)))
    return 1 / (1 + 9 * part) if schedule == "inverse" else 1.0


def key(*parts: int) -> np.uint64:
    """Return a random seed that depends on all of these integers."""
    state = 0
    for part in parts:
        state = mixed_int(state + int(GOLDEN) + part)
    return np.uint64(state)


def require_finite(epoch: int, contexts: Floats, items: Floats) -> None:
    """Raise if scores could be infinite, judging by the largest entries; this is cheap compared with an epoch."""
    largest = [max(float(side.max(initial=0)), -float(side.min(initial=0))) for side in (contexts, items)]
    bound = items.shape[1] * largest[0] * largest[1]
    if not bound <= float(np.finfo(np.float32).max):
        raise SettingError(
            f"the fit diverged: scores are not finite after epoch {epoch}",
            hint="use a smaller learning_rate or a larger regularization",
            code="diverged",
        )


@dataclass(eq=False)
class SampledSteps:
    """A trainer whose epochs take a step for every observed pair in random order, each with its own negatives.

    Threads take chunks of pairs and do not wait for each other (Recht et al. 2011), so with several threads the result
    varies from run to run. With one thread it depends only on the seed, and a fit that resumes from a checkpoint gives
    the same result as a fit without interruption.

    Args:
        by_context: the observed pairs.
        strengths: the strength of each pair, or one for all.
        negatives: the sampler, bound to these pairs.
        weigher: the weights of sampled pairs.
        exact_ranks: whether the ranks for these weights are counted over all items.
        rules: the settings of a step, with the learning rates of the first epoch.
        counts: the number of pairs of each item.
        contexts: start values.
        items: start values.
        states: the optimizer's state for contexts and for items.
        schedule: the schedule of the learning rates.
        schedule_epochs: number of epochs after which the schedule ends.
        seed: the seed of all random numbers.
        threads: number of threads.
        number: number of epochs that are already done.
    """

    by_context: SparseRows
    strengths: Floats
    negatives: BoundSampler
    weigher: WeightTables
    exact_ranks: bool
    rules: StepTables
    counts: npt.NDArray[np.int64]
    contexts: Floats
    items: Floats
    states: tuple[OptimizerState, OptimizerState]
    schedule: Schedule
    schedule_epochs: int
    seed: int
    threads: int | None = None
    number: int = 0

    def __post_init__(self) -> None:
        n = len(self.by_context)
        self.contexts, self.items = aligned(self.contexts), aligned(self.items)
        self._row_of = np.repeat(np.arange(self.by_context.n_rows, dtype=np.int32), self.by_context.lengths)
        self._pairs = TrainingPairs(
            np.empty(n, np.int32),
            np.empty(n, np.int32),
            np.empty(n, np.float32) if len(self.strengths) > 1 else self.strengths,
        )
        self._sums = np.zeros(3)

    # --- the trainer --------------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Number of observed pairs, the steps of an epoch."""
        return len(self.by_context)

    def epoch(self) -> None:
        """Take a step for every observed pair."""
        factor = np.float32(learning_rate(self.schedule, self.number, self.schedule_epochs))
        rules = self.rules._replace(
            context_rates=factor * self.rules.context_rates, item_rates=factor * self.rules.item_rates
        )
        model = ModelTables(self.contexts, self.items, *self.states)
        if self.exact_ranks:
            self._ranked_epoch(rules, model)
        else:
            self._plain_epoch(rules, model)
        self.number += 1
        require_finite(self.number, *self.embeddings())

    def finish(self) -> None:
        """Do nothing: the steps learn contexts too."""

    def embeddings(self) -> tuple[Floats, Floats]:
        """Return the embeddings of contexts and of items; the arrays are not copied."""
        return self.contexts, self.items

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return the embeddings of contexts and of items; the arrays are not copied."""
        return {"contexts": self.contexts, "items": self.items}

    def restore(self, snapshot: State) -> None:
        """Set the embeddings to these values."""
        load_state(self.snapshot(), snapshot)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the embeddings, the optimizer's state, the sums of the last epoch's loss and the number of epochs."""
        number = np.array([self.number], np.int64)
        return {**self.snapshot(), **state_arrays(self.states), "sums": self._sums, "epoch": number}

    def load_state_dict(self, state: State) -> None:
        """Continue from this state."""
        load_state(self.state_dict(), state)
        self.number = int(state["epoch"][0])

    def loss(self) -> LossParts:
        """Return an estimate of the loss during the last epoch, and the regularizer of the current embeddings.

        The estimate uses every eighth pair. `observed` is the sum over observed pairs (with a pairwise loss, over pairs
        and their negatives); `unobserved` is the sum over sampled negatives.
        """
        scale = self.samples / max(1.0, self._sums[2])
        return LossParts(
            observed=scale * self._sums[0], unobserved=scale * self._sums[1], regularizer=self._regularizer()
        )

    def _regularizer(self) -> float:
        """Return ½Σλ‖θ‖² over rows, each weighted by its expected number of steps in an epoch."""
        rules = self.rules
        sides = (
            (self.contexts, rules.context_ridges, rules.context_scales, self.by_context.lengths),
            (self.items, rules.item_ridges, rules.item_scales, self.counts),
        )
        counts = touches(rules.objective, rules.n_negatives, *(n_pairs for _, _, _, n_pairs in sides))
        total = 0.0
        for (embeddings, ridges, scales, _), n_steps in zip(sides, counts):
            squares = np.einsum("rd,d->r", embeddings.astype(np.float64) ** 2, ridges)
            total += 0.5 * float((squares * scales * n_steps).sum())
        return total

    # --- an epoch ----------------------------------------------------------------------------------------------------

    def _plain_epoch(self, rules: StepTables, model: ModelTables) -> None:
        bounds = self._buckets()
        chunks = list(zip(bounds[:-1].tolist(), bounds[1:].tolist()))
        sums = np.zeros((len(chunks), 3))
        number_of = {start: k for k, (start, stop) in enumerate(chunks) if stop > start}
        for some_chunks in self._between_refreshes(chunks):
            tables = self.negatives.tables
            plain = is_plain(tables, self.weigher, rules) and len(self.strengths) == 1 and self.strengths[0] == 1

            def work(start: int, stop: int, tables: SamplerTables = tables, plain: bool = plain) -> None:
                k = number_of[start]
                shuffle(key(self.seed, self.number, 1, k), self._pairs, start, stop)
                seed = key(self.seed, self.number, 2, k)
                space = work_space(self.items.shape[1], rules.n_negatives, self.weigher)
                if plain:
                    run_plain(seed, self._pairs, start, stop, tables, rules, model, space, sums[k])
                else:
                    run_chunk(seed, self._pairs, start, stop, tables, self.weigher, rules, model, space, sums[k])

            run_chunks(work, [(start, stop) for start, stop in some_chunks if stop > start], self.threads)
        self._sums[:] = sums.sum(axis=0)

    def _buckets(self) -> npt.NDArray[np.int64]:
        """Put the pairs into random buckets and return the bounds of the buckets.

        Shuffling each bucket then gives a random order of all pairs. Bound by the scattered writes of 8 bytes a pair.
        """
        n = self.samples
        n_buckets = max(1, min(-(-n // _CHUNK) if n > 16 * _CHUNK else 16, n // 256))
        seed = key(self.seed, self.number, 0)
        parts = [(start, min(start + _PART, n)) for start in range(0, n, _PART)]
        counts = np.zeros((len(parts), n_buckets), np.int64)
        run_chunks(lambda start, stop: count_buckets(seed, start, stop, counts[start // _PART]), parts, self.threads)
        bounds = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        cursors = bounds[:-1] + np.cumsum(counts, axis=0) - counts

        def fill(start: int, stop: int) -> None:
            source = (self._row_of, self.by_context.indices, self.strengths)
            fill_buckets(seed, start, stop, *source, cursors[start // _PART], *self._pairs[:3])

        run_chunks(fill, parts, self.threads)
        return np.asarray(bounds)

    def _between_refreshes(self, chunks: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Yield the chunks in runs; if the sampler depends on item embeddings, it is refreshed before each run."""
        every = self.negatives.refresh_every
        if every is None:
            yield chunks
            return
        run: list[tuple[int, int]] = []
        for chunk in chunks:
            run.append(chunk)
            if (chunk[1] - run[0][0]) * self.rules.n_negatives >= every:
                self._refresh()
                yield run
                run = []
        if run:
            self._refresh()
            yield run

    def _refresh(self) -> None:
        self.negatives.refresh(unit_rows(self.items, self.rules.cosine), self.threads)

    def _ranked_epoch(self, rules: StepTables, model: ModelTables) -> None:
        """Run an epoch with exact ranks: contexts in random order, in blocks for which all items are scored at once."""
        if self.negatives.refresh_every is not None:
            self._refresh()
        rng = np.random.Generator(np.random.Philox(key=[self.seed, self.number], counter=[0, 0, 2, 0]))
        order = rng.permutation(self.by_context.n_rows).astype(np.int32)
        size = max(1, min(64, _RANKED // self.by_context.n_columns))
        blocks = [(start, min(start + size, len(order))) for start in range(0, len(order), size)]
        sums = np.zeros((len(blocks), 3))

        def work(start: int, stop: int) -> None:
            k = start // size
            chosen = order[start:stop]
            rows = self.by_context.take(chosen)
            if not len(rows):
                return
            scores = unit_rows(self.contexts[chosen], rules.cosine) @ unit_rows(self.items, rules.cosine).T
            strengths = self.strengths
            if len(strengths) > 1:
                where = [np.arange(self.by_context.indptr[c], self.by_context.indptr[c + 1]) for c in chosen]
                strengths = strengths[np.concatenate(where)]
            local = np.repeat(np.arange(len(chosen), dtype=np.int32), rows.lengths)
            # The row of scores stands in for the context until the pairs are shuffled.
            pairs = TrainingPairs(local, rows.indices.copy(), strengths)
            shuffle(key(self.seed, self.number, 1, k), pairs, 0, len(local))
            with_contexts = pairs._replace(contexts=chosen[pairs.contexts])
            seed = key(self.seed, self.number, 2, k)
            space = work_space(self.items.shape[1], rules.n_negatives, self.weigher)
            run_ranked(
                seed, with_contexts, pairs.contexts, scores, 0, len(local),
                self.negatives.tables, self.weigher, rules, model, space, sums[k],
            )  # fmt: skip

        run_chunks(work, blocks, self.threads)
        self._sums[:] = sums.sum(axis=0)


def touches(
    objective: int, n_negatives: int, of_contexts: npt.NDArray[Any], of_items: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the number of loss terms of an epoch with each context and with each item, given their numbers of pairs.

    Negatives are counted as if they were drawn uniformly.
    """
    as_positive = n_negatives if objective == PAIRWISE else 1
    as_negative = n_negatives * of_items.sum() / len(of_items)
    of_context = as_positive if objective == PAIRWISE else as_positive + n_negatives
    return of_contexts * float(of_context), as_positive * of_items + as_negative


def fold_in(
    histories: SparseRows,
    strengths: Floats,
    items: Floats,
    *,
    dim: int,
    tables: SamplerTables,
    weigher: WeightTables,
    rules: StepTables,
    passes: int,
    seed: int,
    threads: int | None = None,
) -> Floats:
    """Return embeddings of contexts with these histories, under the objective that the items were trained with.

    Each context starts at the mean of its items, weighted by strength. It takes passes over its pairs, with negatives
    and weights as in training, the same optimizer, and a learning rate that falls to 0. The items do not change. The
    result depends on the items of the history and the seed, not on other contexts or the number of threads. A context
    with an empty history is zero. For a pair with confidence g, each step is multiplied by g.

    Args:
        histories: the histories.
        strengths: the strength of each pair, or one for all, without the confidence.
        items: the item embeddings.
        dim: number of columns that are coordinates; biases follow them.
        tables: the sampler's tables for these histories (`for_histories`).
        weigher: the weights of sampled pairs.
        rules: the settings of a step; values by context are indexed by the rows of `histories`.
        passes: number of passes over a history.
        seed: the seed of all random numbers.
        threads: number of threads.
    """
    contexts = np.zeros((histories.n_rows, items.shape[1]), np.float32)
    items = aligned(items)  # copied if read-only, because the kernel takes writable arrays
    no_state = OptimizerState.of(SGD, (1, items.shape[1]))
    model = ModelTables(contexts, items, OptimizerState.of(rules.optimizer, contexts.shape), no_state)
    shares = WHOLE if histories.confidence is None else histories.confidence
    indptr, indices = histories.indptr, histories.indices

    def work(start: int, stop: int) -> None:
        frozen = rules._replace(frozen=1, context_rates=rules.context_rates.copy())
        space = work_space(items.shape[1], rules.n_negatives, weigher, int(histories.lengths[start:stop].max()))
        shared = (tables, weigher, frozen, model, space, np.zeros(3))
        rates = rules.context_rates
        fold_rows(key(seed, 3), start, stop, passes, dim, rates, indptr, indices, strengths, shares, *shared)

    run_chunks(work, balanced_chunks(histories.lengths + 1, 8 * thread_count(threads)), threads)
    return contexts


def for_histories(tables: SamplerTables, histories: SparseRows, seed: int = 0) -> SamplerTables:
    """Return a sampler's tables with other histories.

    An item with confidence g belongs to the history with probability g, decided by a random number that depends only on
    the item. Otherwise it can be drawn as a negative. This makes the draws unbiased.
    """
    if histories.confidence is not None:
        histories = histories.keep(random_units(key(seed, 4), histories.indices) < histories.confidence)
    bits, offset = history_filter(histories) if tables.exclude == HISTORY else (tables.bits, tables.offset)
    return tables._replace(indptr=histories.indptr, indices=histories.indices, bits=bits, offset=offset)
