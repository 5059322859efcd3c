"""Epochs of a dot-product model under the softmax loss, full or sampled, at the speed of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY, number, one_of, whole
from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import SparseRows, by_key
from shortlist.errors import SettingError
from shortlist.objectives.pointwise_square import LossParts
from shortlist.sampling.base import Exclude
from shortlist.solvers import softmax_kernels as kernels
from shortlist.solvers.optimizers import OptimizerState, recall, remembered
from shortlist.solvers.row_products import OURS, whole_tiles
from shortlist.solvers.sgd import require_finite
from shortlist.solvers.softmax_pass import ItemGradients, ScoreBatch, SoftmaxPass

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.int32]
Schedule: TypeAlias = Callable[[float], float]  # the epochs done, with the part of the one at work, to a factor


class SharedNegatives(Protocol):
    """Draws negatives that a whole batch of positives shares, with replacement from one q over the catalogue."""

    @property
    def log_q(self) -> npt.NDArray[np.float64]:
        """The log of q by item; −∞ for those that cannot be drawn."""

    def draw(self, rng: np.random.Generator, positives: Codes) -> Codes:
        """The items drawn for a batch with these positives; an item may come several times."""


class CatalogueNegatives:
    """`n` draws from q.

    >>> negatives = CatalogueNegatives(np.array([1.0, 1.0, 2.0]), n=1000)
    >>> np.exp(negatives.log_q)
    array([0.25, 0.25, 0.5 ])
    >>> len(negatives.draw(np.random.default_rng(0), np.empty(0, np.int32)))
    1000
    """

    def __init__(self, weights: npt.NDArray[Any], n: int) -> None:
        """Args: weights: what q is proportional to; n: draws for a batch."""
        self._n = whole("n", n)
        q = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)
        with np.errstate(divide="ignore"):
            self.log_q: npt.NDArray[np.float64] = np.log(q)
        self._bounds = np.cumsum(q)
        self._bounds /= self._bounds[-1]  # so that none is above it, and items with q = 0 at the end are not reached

    def draw(self, rng: np.random.Generator, positives: Codes) -> Codes:
        """By the inverse of the cumulative q."""
        return np.searchsorted(self._bounds, rng.random(self._n), side="right").astype(np.int32)


class BatchNegatives:
    """The batch's own positives: q is an item's share of the observed pairs."""

    def __init__(self, counts: npt.NDArray[Any]) -> None:
        """Args: counts: how often each item was observed."""
        with np.errstate(divide="ignore"):
            self.log_q: npt.NDArray[np.float64] = np.log(counts / np.sum(counts, dtype=np.float64))

    def draw(self, rng: np.random.Generator, positives: Codes) -> Codes:
        """The positives."""
        return positives


class SoftmaxSteps:
    """Minimises the softmax loss of a dot product over the observed pairs by optimizer steps on batches.

        L = Σ_{(c,i)∈S} α(c,i)·[ ln Σ_j e^{ŷ(j|c)/τ} − ŷ(i|c)/τ + ½Σ_f λ_f w_{c,f}² + ½Σ_f λ_f h_{i,f}² ]

    ŷ = ⟨w_c, h_i⟩ over all coordinates; with `normalize` the first `dim` of both sides are brought to length 1 before.
    Which j there are beside i: all other items with `exclude="positive"`, those outside of the context's
    history with `exclude="history"`. A step follows the batch's gradient divided by its Σα, so a rate means the same at
    any size of batch. A row is regularised as often as it is observed, by the same weights.

    **Full** (`negatives=None`): batches of contexts. Steps on the batch's contexts and on all items.

    **Sampled**: batches of observed pairs, which share the negatives drawn for them. The sum over j becomes

        e^{ŷ_i/τ} + Σ_l e^{ŷ_{j_l}/τ} / (m·q(j_l|c,i)),   q(j|c,i) = q_j / (1 − Σ_{k excluded} q_k)

    over the m of the pair's draws that are not excluded (Bengio and Senécal 2008); a pair that has none left does
    nothing. Steps on the batch's contexts, its items and the items drawn.

    What is random depends on the seed, the number of the epoch and that of the batch, and sums on nothing else: a fit
    is the same at any number of threads, and can go on from `number` another day.

    Args:
        by_context: the observed pairs, a row a context.
        weights: α by pair in the order of `by_context`; one number may stand for all.
        contexts: start values, (contexts × width); they are changed in place.
        items: likewise.
        temperature: τ.
        dim: how many coordinates `normalize` means.
        normalize: whether the score is a cosine.
        exclude: see above.
        negatives: who draws; None for the full softmax.
        batch: contexts, or observed pairs, to a step.
        kind: which optimizer, see `optimizers`.
        states: what it remembers of the contexts and of the items.
        rates: its rates by coordinate for contexts and for items; a coordinate whose rate is 0 stays.
        ridges: λ by coordinate for contexts and for items.
        schedule: multiplies the rates, given the epochs done as a fraction.
        seed: see above.
        threads: how many to use.
        memory: bytes for the exponentials of a batch; a larger one is worked through in parts.
    """

    joint = True

    def __init__(
        self,
        by_context: SparseRows,
        weights: Floats,
        contexts: Floats,
        items: Floats,
        *,
        temperature: float,
        dim: int,
        normalize: bool,
        exclude: Exclude,
        negatives: SharedNegatives | None,
        batch: int,
        kind: int,
        states: tuple[OptimizerState, OptimizerState],
        rates: tuple[Floats, Floats],
        ridges: tuple[Floats, Floats],
        schedule: Schedule | None = None,
        seed: int = 0,
        threads: int | None = None,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        one_of("exclude", exclude, ("history", "positive"))
        if len(weights) not in {1, len(by_context)}:
            raise SettingError(f"there are {len(weights)} weights; expected 1 or {len(by_context)}, one a pair")
        self.number = 0  # of epochs done; set it to go on from there, and the next with it
        self._rows, self._weights = by_context, weights
        self._contexts, self._items = contexts, items
        self._temperature, self._dim = number("temperature", temperature, above=True), dim
        self._normalize, self._exclude, self._negatives = normalize, exclude, negatives
        self._batch, self._kind = whole("batch", batch), kind
        self._states, self._rates, self._ridges = states, rates, ridges
        self._schedule, self._seed = schedule, seed
        self._threads, self._pass = threads, SoftmaxPass(threads, memory)
        self._mean = np.zeros(1)  # loss of the last epoch
        if negatives is None:
            self._order = np.flatnonzero(by_context.lengths).astype(np.int32)
            self._codes = np.arange(by_context.n_columns, dtype=np.int32)
            self._norms = np.ones(by_context.n_columns, np.float32)
            self._gradients, self._units = self._room(len(items)), self._room(len(items))
        else:
            self._order = np.arange(len(by_context), dtype=np.int32 if len(by_context) < 2**31 else np.int64)
            self._context_of = np.repeat(np.arange(by_context.n_rows, dtype=np.int32), by_context.lengths)
            self._where = np.full(by_context.n_columns, -1, np.int32)
            self._q = np.exp(negatives.log_q)
            self._q_of_context = kernels.sum_by_row(by_context.indptr, by_context.indices, self._q)

    def epoch(self) -> float:
        """One pass over the observed pairs in a fresh order; returns their mean loss, each as its batch found it."""
        order = self._random(0).permutation(self._order)
        n_batches = -(-len(order) // self._batch)
        loss, weight = 0.0, 0.0
        work = self._full if self._negatives is None else self._sampled
        with single_threaded_blas():
            for b in range(n_batches):
                by = 1.0 if self._schedule is None else self._schedule(self.number + b / n_batches)
                rates = self._rates[0] * np.float32(by), self._rates[1] * np.float32(by)
                of_batch = work(order[b * self._batch : (b + 1) * self._batch], rates, b)
                loss, weight = loss + of_batch[0], weight + of_batch[1]
        self.number += 1
        require_finite(self.number, self._contexts, self._items)
        self._mean[0] = loss / weight if weight else 0.0
        return float(self._mean[0])

    @property
    def samples(self) -> int:
        """Observed pairs of an epoch."""
        return len(self._rows)

    def finish(self) -> None:
        """Nothing: contexts are as the epochs left them."""

    def restore(self, items: Floats, contexts: Floats | None) -> None:
        """Take these embeddings."""
        assert contexts is not None
        self._items[:], self._contexts[:] = items, contexts

    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """What going on needs beside the embeddings: the optimizer's state, and what the last epoch's loss was."""
        return remembered(self._states) | {"mean": self._mean}

    def recall(self, number: int, memory: dict[str, npt.NDArray[Any]]) -> None:
        """Go on after so many epochs, with what the optimizer remembered then."""
        recall(self.memory(), memory)
        self.number = number

    def loss(self) -> LossParts:
        """The last epoch's mean loss as it went, and the regulariser as it is, each over Σα."""
        weights = np.broadcast_to(self._weights, len(self._rows))
        context_of = np.repeat(np.arange(self._rows.n_rows), self._rows.lengths)
        total = 0.0
        for theta, codes, ridge in (
            (self._contexts, context_of, self._ridges[0]),
            (self._items, self._rows.indices, self._ridges[1]),
        ):
            squares = (theta * theta * ridge).sum(axis=1, dtype=np.float64)
            total += 0.5 * float((np.bincount(codes, weights, len(theta)) * squares).sum())
        return LossParts(float(self._mean[0]), 0.0, total / max(float(weights.sum(dtype=np.float64)), 1e-300))

    def embeddings(self) -> tuple[Floats, Floats]:
        """Of contexts and of items: the arrays themselves."""
        return self._contexts, self._items

    def outcome(self) -> tuple[Floats, Floats]:
        """Items and contexts as they are."""
        return self._items, self._contexts

    def _random(self, counter: int) -> np.random.Generator:
        key = np.array([self._seed, self.number], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 1, counter]))

    def _full(self, order: Codes, rates: tuple[Floats, Floats], _: int) -> tuple[float, float]:
        """A step on these contexts and on all items; their loss and weight."""
        rows = SparseRows(self._rows.indptr, self._rows.indices, self._by_pair(), self._rows.n_columns).take(order)
        assert rows.values is not None
        weight = float(rows.values.sum(dtype=np.float64))
        if weight <= 0:
            return 0.0, 0.0
        self._pack(self._items, self._codes, 1.0, self._units, self._norms)
        F, norms = self._packed_contexts(order)
        together = self._exclude == "positive"
        batch = ScoreBatch(
            F, self._units, rows.n_columns, rows.indptr[:-1], rows.indptr[1:], rows.indices, rows.values,
            rows.indptr[:-1], rows.indptr[1:], rows.indices, together=together, ours=OURS,
        )  # fmt: skip
        row_of = np.repeat(np.arange(len(order), dtype=np.int32), rows.lengths)
        backward = self._backward(batch, row_of, self._codes, self._gradients, self._norms, weight, rates[1])
        found = self._pass.run(batch, 1.0 / weight, backward)
        touches = np.add.reduceat(rows.values, rows.indptr[:-1], dtype=np.float64) / weight
        at = np.arange(len(order), dtype=np.int32)
        self._step_contexts(order, at, found.rows, F, norms, rates[0], touches.astype(np.float32))
        return float(found.losses.sum()), weight

    def _sampled(self, pairs: Codes, rates: tuple[Floats, Floats], b: int) -> tuple[float, float]:
        """A step on these pairs' contexts and items and on what is drawn for them; their loss and weight."""
        assert self._negatives is not None
        positives, contexts = self._rows.indices[pairs], self._context_of[pairs]
        weights = self._weights[pairs] if len(self._weights) > 1 else np.repeat(self._weights, len(pairs))
        weight = float(weights.sum(dtype=np.float64))
        if weight <= 0:
            return 0.0, 0.0
        draws = self._negatives.draw(self._random(1 + b), positives)
        drawn, counts = np.unique(draws, return_counts=True)
        where = self._where
        where[drawn] = np.arange(len(drawn), dtype=np.int32)
        others = np.unique(positives[where[positives] < 0])
        where[others] = np.arange(len(drawn), len(drawn) + len(others), dtype=np.int32)
        codes, at = np.concatenate([drawn, others]), where[positives]
        hidden = self._hidden(contexts, positives, len(drawn), len(draws), counts)
        where[codes] = -1
        begins, ends, columns, shift = hidden
        H, norms = self._room(len(codes)), np.empty(len(codes), np.float32)
        self._pack(self._items, codes, 1.0, H, norms)
        F, context_norms = self._packed_contexts(contexts)
        bias = (np.log(counts) - self._negatives.log_q[drawn]).astype(np.float32)
        rows = np.arange(len(pairs) + 1, dtype=np.int64)
        batch = ScoreBatch(
            F, H, len(drawn), rows[:-1], rows[1:], at, weights, begins, ends, columns, bias, shift, ours=OURS
        )
        row_of = rows[:-1].astype(np.int32)
        backward = self._backward(batch, row_of, codes, self._room(len(codes)), norms, weight, rates[1])
        found = self._pass.run(batch, 1.0 / weight, backward)
        unique, first, inverse = np.unique(contexts, return_index=True, return_inverse=True)
        indptr, members = by_key(inverse.astype(np.int32), row_of, len(unique))
        kernels.add_repeats(found.rows, indptr, members, first)
        touches = (np.bincount(inverse, weights) / weight).astype(np.float32)
        self._step_contexts(unique, first.astype(np.int32), found.rows, F, context_norms, rates[0], touches)
        return float(found.losses.sum()), weight

    def _by_pair(self) -> Floats:
        """α by pair, without a copy where one number stands for all."""
        return np.broadcast_to(self._weights, len(self._rows)) if len(self._weights) == 1 else self._weights

    def _hidden(
        self, contexts: Codes, positives: Codes, n_drawn: int, n_draws: int, counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Codes, Floats]:
        """For each pair the bounds of its excluded columns, those columns, and its shift."""
        whole_history = self._exclude == "history"
        n = len(contexts)
        most = np.ones(n, np.int64)
        if whole_history:
            most = np.minimum(self._rows.indptr[contexts + 1] - self._rows.indptr[contexts], n_drawn)
        ends = np.cumsum(most)
        begins, columns, shift = ends - most, np.empty(int(ends[-1]), np.int32), np.empty(n, np.float32)
        of_row = positives[:0] if whole_history else positives

        def mark(start: int, stop: int) -> None:
            kernels.mark_drawn(
                self._where, n_drawn, n_draws, counts, self._q, self._q_of_context, self._rows.indptr,
                self._rows.indices, contexts, of_row, begins, ends, columns, shift, start, stop,
            )  # fmt: skip

        self._pass.over(mark, n, 256)
        return begins, ends, columns, shift

    def _packed_contexts(self, codes: Codes) -> tuple[Floats, Floats]:
        F, norms = self._room(len(codes)), np.empty(len(codes), np.float32)
        self._pack(self._contexts, codes, 1.0 / self._temperature, F, norms)
        return F, norms

    def _room(self, n: int) -> Floats:
        """Zeros for n packed rows or their gradients, of whole tiles where products are of `row_products`."""
        width = self._items.shape[1]
        return np.zeros((n, whole_tiles(width) if OURS else width), np.float32)

    def _pack(self, theta: Floats, codes: Codes, scale: float, out: Floats, norms: Floats) -> None:
        def work(start: int, stop: int) -> None:
            kernels.pack(theta, codes, self._dim, self._normalize, scale, out, norms, start, stop)

        self._pass.over(work, len(codes), 4096)

    def _backward(
        self, batch: ScoreBatch, row_of: Codes, codes: Codes, D: Floats, norms: Floats, weight: float, rate: Floats
    ) -> ItemGradients:
        """The items' steps, as soon as their gradients are summed."""
        indptr, entries = by_key(batch.at, np.arange(len(batch.at), dtype=np.int32), len(codes))
        touches = (np.bincount(batch.at, batch.weights, len(codes)) / weight).astype(np.float32)
        at = np.arange(len(codes), dtype=np.int32)

        def apply(start: int, stop: int) -> None:
            kernels.take_steps(
                self._kind, self._items, codes, at, D, 1.0, batch.H, 1.0, norms, self._dim, self._normalize,
                self._states[1], rate, self._ridges[1], touches, start, stop,
            )  # fmt: skip

        return ItemGradients(D, indptr, entries, row_of, apply)

    def _step_contexts(
        self, codes: Codes, at: Array, gradients: Floats, F: Floats, norms: Floats, rate: Floats, touches: Floats
    ) -> None:
        def work(start: int, stop: int) -> None:
            kernels.take_steps(
                self._kind, self._contexts, codes, at, gradients, 1.0 / self._temperature, F, 1.0 / self._temperature,
                norms, self._dim, self._normalize, self._states[0], rate, self._ridges[0], touches, start, stop,
            )  # fmt: skip

        self._pass.over(work, len(codes), 1024)
