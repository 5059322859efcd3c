"""Stochastic gradient descent over observed pairs and sampled negatives (Algorithms 1 and 2 of the article)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._aligned import aligned
from shortlist._random import GOLDEN, mixed_int
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives.pointwise_square import LossParts
from shortlist.sampling.base import BoundSampler
from shortlist.sampling.draw_kernels import units
from shortlist.sampling.history_filter import history_filter
from shortlist.sampling.sampler_tables import HISTORY, SamplerTables
from shortlist.scoring.pair_score import unit_rows
from shortlist.solvers.optimizers import SGD, OptimizerState, recall, remembered
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
_PART = 1 << 16  # pairs that are put into buckets by themselves
_RANKED = 1 << 24  # scores at a time, where ranks are exact


def learning_rate(schedule: Schedule, epoch: float, epochs: int) -> float:
    """What an epoch's learning rate is of the first one's; epochs from 0.

    `"constant"` 1, `"linear"` and `"cosine"` fall to 0 after the last epoch, `"inverse"` is 1/(1 + 9·epoch/epochs): a
    tenth at the end.

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
    """A number to seed random numbers with, for whatever these whole numbers name."""
    state = 0
    for one in parts:
        state = mixed_int(state + int(GOLDEN) + one)
    return np.uint64(state)


def require_finite(epoch: int, contexts: Floats, items: Floats) -> None:
    """Refuse embeddings whose scores need not be finite, by their largest numbers: cheap beside an epoch."""
    largest = [max(float(one.max(initial=0)), -float(one.min(initial=0))) for one in (contexts, items)]
    bound = items.shape[1] * largest[0] * largest[1]
    if not bound <= float(np.finfo(np.float32).max):
        raise SettingError(
            f"the fit diverged: scores are not finite after epoch {epoch}; take a smaller learning_rate or a larger "
            "regularization"
        )


@dataclass(eq=False)
class SampledSteps:
    """Epochs of steps on observed pairs in a fresh random order, each with negatives of its own.

    Threads take chunks of pairs and do not wait for each other (Recht et al. 2011): with several of them the result
    varies from run to run. With one it is a function of the seed, and a fit that goes on from a checkpoint is the fit
    without a break.

    Args:
        by_context: the observed pairs.
        strengths: of each, or one for all.
        negatives: the sampler over them.
        weigher: how sampled pairs are weighed.
        exact_ranks: whether the ranks for that are counted over all items.
        rules: what a step is, with the first epoch's learning rates.
        contexts: start values.
        items: likewise.
        states: what the optimizer remembers of contexts and of items.
        schedule: how learning rates go on.
        schedule_epochs: after how many epochs the schedule is at its end.
        seed: of all that is drawn.
        threads: how many to use.
        number: of epochs that are done already.
    """

    by_context: SparseRows
    strengths: Floats
    negatives: BoundSampler
    weigher: WeightTables
    exact_ranks: bool
    rules: StepTables
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

    joint: ClassVar[bool] = True

    # --- the loop ----------------------------------------------------------------------------------------------------

    @property
    def samples(self) -> int:
        """Observed pairs of an epoch."""
        return len(self.by_context)

    def epoch(self) -> None:
        """A step for every observed pair."""
        share = np.float32(learning_rate(self.schedule, self.number, self.schedule_epochs))
        rules = self.rules._replace(
            context_rates=share * self.rules.context_rates, item_rates=share * self.rules.item_rates
        )
        model = ModelTables(self.contexts, self.items, *self.states)
        if self.exact_ranks:
            self._ranked_epoch(rules, model)
        else:
            self._plain_epoch(rules, model)
        self.number += 1
        require_finite(self.number, *self.embeddings())

    def finish(self) -> None:
        """Nothing: contexts are as the epochs left them."""

    def restore(self, items: Floats, contexts: Floats | None) -> None:
        """Take these embeddings."""
        assert contexts is not None
        self.items[:], self.contexts[:] = items, contexts

    def embeddings(self) -> tuple[Floats, Floats]:
        """Of contexts and of items: the arrays themselves."""
        return self.contexts, self.items

    def outcome(self) -> tuple[Floats, Floats]:
        """Items and contexts as they are."""
        return self.items, self.contexts

    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """What going on needs beside the embeddings: the optimizer's state, and what the last epoch's loss was."""
        return remembered(self.states) | {"sums": self._sums}

    def recall(self, number: int, memory: dict[str, npt.NDArray[Any]]) -> None:
        """Go on after so many epochs, with what the optimizer remembered then."""
        recall(self.memory(), memory)
        self.number = number

    def loss(self) -> LossParts:
        """The loss as the steps of the last epoch met it, and the regularizer of what came out.

        An estimate, from every eighth pair: of the sum over observed pairs (`observed`; for pairwise losses, over pairs
        and their negatives) and of that over sampled negatives (`unobserved`).
        """
        scale = self.samples / max(1.0, self._sums[2])
        return LossParts(scale * self._sums[0], scale * self._sums[1], self._regularizer())

    def _regularizer(self) -> float:
        """½Σλ‖θ‖² over rows, each as often as it is expected to be in a step of an epoch."""
        rules = self.rules
        sides = (
            (self.contexts, rules.context_ridges, rules.context_scales, self.by_context.lengths),
            (self.items, rules.item_ridges, rules.item_scales, self.by_context.column_counts()),
        )
        times = touches(rules.objective, rules.n_negatives, *(one[3] for one in sides))
        total = 0.0
        for (embeddings, ridges, scales, _), often in zip(sides, times):
            squares = np.einsum("rd,d->r", embeddings.astype(np.float64) ** 2, ridges)
            total += 0.5 * float((squares * scales * often).sum())
        return total

    # --- how an epoch is worked through ------------------------------------------------------------------------------

    def _plain_epoch(self, rules: StepTables, model: ModelTables) -> None:
        bounds = self._buckets()
        chunks = list(zip(bounds[:-1].tolist(), bounds[1:].tolist()))
        sums = np.zeros((len(chunks), 3))
        number_of = {start: k for k, (start, stop) in enumerate(chunks) if stop > start}
        for some in self._between_refreshes(chunks):
            tables = self.negatives.tables
            plain = is_plain(tables, self.weigher, rules) and len(self.strengths) == 1 and self.strengths[0] == 1

            def work(start: int, stop: int, tables: SamplerTables = tables, plain: bool = plain) -> None:
                k = number_of[start]
                shuffle(key(self.seed, self.number, 1, k), self._pairs, start, stop)
                seed = key(self.seed, self.number, 2, k)
                room = work_space(self.items.shape[1], rules.n_negatives, self.weigher)
                if plain:
                    run_plain(seed, self._pairs, start, stop, tables, rules, model, room, sums[k])
                else:
                    run_chunk(seed, self._pairs, start, stop, tables, self.weigher, rules, model, room, sums[k])

            run_chunks(work, [one for one in some if one[1] > one[0]], self.threads)
        self._sums[:] = sums.sum(axis=0)

    def _buckets(self) -> npt.NDArray[np.int64]:
        """Deal the pairs out to buckets at random; with each in random order, that is a random order of all.

        Returns where the buckets begin and end. Bound by the scattered writes of 8 bytes a pair.
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
            given = (self._row_of, self.by_context.indices, self.strengths)
            fill_buckets(seed, start, stop, *given, cursors[start // _PART], *self._pairs[:3])

        run_chunks(fill, parts, self.threads)
        return np.asarray(bounds)

    def _between_refreshes(self, chunks: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """The chunks in runs, before each of which the sampler has taken note of the items where it wants to."""
        every = self.negatives.refresh_every
        if every is None:
            yield chunks
            return
        run: list[tuple[int, int]] = []
        for one in chunks:
            run.append(one)
            if (one[1] - run[0][0]) * self.rules.n_negatives >= every:
                self._refresh()
                yield run
                run = []
        if run:
            self._refresh()
            yield run

    def _refresh(self) -> None:
        self.negatives.refresh(unit_rows(self.items, self.rules.cosine), self.threads)

    def _ranked_epoch(self, rules: StepTables, model: ModelTables) -> None:
        """Contexts in random order, in blocks whose scores of all items are computed at once."""
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
            # The row of scores travels as the context until the order is random.
            pairs = TrainingPairs(local, rows.indices.copy(), strengths)
            shuffle(key(self.seed, self.number, 1, k), pairs, 0, len(local))
            own = pairs._replace(contexts=chosen[pairs.contexts])
            seed = key(self.seed, self.number, 2, k)
            room = work_space(self.items.shape[1], rules.n_negatives, self.weigher)
            run_ranked(
                seed, own, pairs.contexts, scores, 0, len(local),
                self.negatives.tables, self.weigher, rules, model, room, sums[k],
            )  # fmt: skip

        run_chunks(work, blocks, self.threads)
        self._sums[:] = sums.sum(axis=0)


def touches(
    objective: int, n_negatives: int, of_contexts: npt.NDArray[Any], of_items: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """In how many losses of an epoch each context and each item is, by how many pairs they are in.

    Negatives are counted as if they were drawn uniformly.
    """
    own = n_negatives if objective == PAIRWISE else 1
    drawn = n_negatives * of_items.sum() / len(of_items)
    of_context = own if objective == PAIRWISE else own + n_negatives
    return of_contexts * float(of_context), own * of_items + drawn


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
    """Embeddings of contexts with these histories, by the objective that the items were learnt with.

    Each context begins at the mean of its items by their strengths and takes passes over its own pairs, with negatives
    drawn and weighed as in training, the same optimizer, and a learning rate that falls to 0; the items stay. What
    comes out depends on the items of the history and the seed, not on the other contexts or the threads; a context
    without a history is zero. Of a pair of confidence g the part g of each step is taken.

    Args:
        histories: whom they are wanted for.
        strengths: of each pair, or one for all; confidence apart.
        items: their embeddings.
        dim: how many of their columns are coordinates; biases are behind them.
        tables: the sampler's, for these histories (`for_histories`).
        weigher: how sampled pairs are weighed.
        rules: what a step is, with what it has of each context by its place here.
        passes: how many.
        seed: of all that is drawn.
        threads: how many to use.
    """
    contexts = np.zeros((histories.n_rows, items.shape[1]), np.float32)
    items = aligned(items)  # a copy where it is read-only: the kernel is one that could write to it
    nothing = OptimizerState.of(SGD, (1, items.shape[1]))
    model = ModelTables(contexts, items, OptimizerState.of(rules.optimizer, contexts.shape), nothing)
    shares = WHOLE if histories.confidence is None else histories.confidence
    indptr, indices = histories.indptr, histories.indices

    def work(start: int, stop: int) -> None:
        own = rules._replace(frozen=1, context_rates=rules.context_rates.copy())
        room = work_space(items.shape[1], rules.n_negatives, weigher, int(histories.lengths[start:stop].max()))
        told = (tables, weigher, own, model, room, np.zeros(3))
        rates = rules.context_rates
        fold_rows(key(seed, 3), start, stop, passes, dim, rates, indptr, indices, strengths, shares, *told)

    run_chunks(work, balanced_chunks(histories.lengths + 1, 8 * thread_count(threads)), threads)
    return contexts


def for_histories(tables: SamplerTables, histories: SparseRows, seed: int = 0) -> SamplerTables:
    """A sampler's tables, for other histories than those it was made with.

    An item of confidence g belongs to the history with probability g, by a number that is the item's own: else it may
    be drawn, as one that was never had. So what is drawn has no bias, and the noise that any draws have.
    """
    if histories.confidence is not None:
        histories = histories.keep(units(key(seed, 4), histories.indices) < histories.confidence)
    bits, offset = history_filter(histories) if tables.exclude == HISTORY else (tables.bits, tables.offset)
    return tables._replace(indptr=histories.indptr, indices=histories.indices, bits=bits, offset=offset)
