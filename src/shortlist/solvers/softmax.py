"""The trainer for the full and the sampled softmax loss with dot products (sections 3.3 and 4.3 of the article).

It runs at the speed of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY, integer, number, one_of
from shortlist._state import State, load_state
from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import SparseRows, by_key
from shortlist.errors import SettingError
from shortlist.objectives.loss_parts import LossParts
from shortlist.sampling.base import Exclude
from shortlist.solvers import softmax_kernels as kernels
from shortlist.solvers.optimizers import OptimizerState, state_arrays
from shortlist.solvers.row_products import OURS, whole_tiles
from shortlist.solvers.sgd import require_finite
from shortlist.solvers.softmax_pass import ItemGradients, ScoreBatch, SoftmaxPass

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.int32]
Schedule: TypeAlias = Callable[[float], float]  # maps the number of epochs done, a fraction, to a factor of the rates


class SharedNegatives(Protocol):
    """A sampler of negatives shared by all positives of a batch, with replacement from one q over the catalogue."""

    @property
    def log_q(self) -> npt.NDArray[np.float64]:
        """The log of q by item; −∞ for items that are never drawn."""

    def draw(self, rng: np.random.Generator, positives: Codes) -> Codes:
        """Return the items drawn for a batch with these positives; an item may occur several times."""


class CatalogueNegatives:
    """Shared negatives: `n` draws from q.

    >>> negatives = CatalogueNegatives(np.array([1.0, 1.0, 2.0]), n=1000)
    >>> np.exp(negatives.log_q)
    array([0.25, 0.25, 0.5 ])
    >>> len(negatives.draw(np.random.default_rng(0), np.empty(0, np.int32)))
    1000
    """

    def __init__(self, weights: npt.NDArray[Any], n: int) -> None:
        """Args: weights: q is proportional to these; n: number of draws for a batch."""
        self._n = integer("n", n)
        q = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)
        with np.errstate(divide="ignore"):
            self.log_q: npt.NDArray[np.float64] = np.log(q)
        self._bounds = np.cumsum(q)
        self._bounds /= self._bounds[-1]  # the last bound is exactly 1, so items with q = 0 at the end are never drawn

    def draw(self, rng: np.random.Generator, positives: Codes) -> Codes:
        """Draw by inverting the cumulative q."""
        return np.searchsorted(self._bounds, rng.random(self._n), side="right").astype(np.int32)


class BatchNegatives:
    """Shared negatives: the positives of the batch; q of an item is its fraction of the observed pairs."""

    def __init__(self, counts: npt.NDArray[Any]) -> None:
        """Args: counts: number of observed pairs of each item."""
        with np.errstate(divide="ignore"):
            self.log_q: npt.NDArray[np.float64] = np.log(counts / np.sum(counts, dtype=np.float64))

    def draw(self, rng: np.random.Generator, positives: Codes) -> Codes:
        """Return the positives."""
        return positives


class SoftmaxSteps:
    """A trainer that minimises the softmax loss of a dot product over the observed pairs by optimizer steps on batches.

        L = Σ_{(c,i)∈S} α(c,i)·[ ln Σ_j e^{ŷ(j|c)/τ} − ŷ(i|c)/τ + ½Σ_f λ_f w_{c,f}² + ½Σ_f λ_f h_{i,f}² ]

    ŷ = ⟨w_c, h_i⟩ over all coordinates; with `normalize`, the first `dim` coordinates of both sides are scaled to
    length 1 first. The sum over j includes i and, with `exclude="positive"`, all other items; with `exclude="history"`,
    all items outside of the context's history. A step uses the gradient of a batch divided by its Σα, so a learning
    rate means the same for every batch size. A row is regularised once for each of its pairs, weighted by α.

    **Full** (`negatives=None`): batches of contexts. A step changes the batch's contexts and all items.

    **Sampled**: batches of observed pairs, which share negatives. The sum over j becomes

        e^{ŷ_i/τ} + Σ_l e^{ŷ_{j_l}/τ} / (m·q(j_l|c,i)),   q(j|c,i) = q_j / (1 − Σ_{k excluded} q_k)

    over the m draws that are not excluded for the pair (Bengio and Senécal 2008). A pair whose draws are all excluded
    adds nothing. A step changes the batch's contexts, its items and the drawn items.

    Random numbers depend on the seed, the epoch and the batch; sums do not depend on the number of threads. So a fit is
    the same for any number of threads, and can be resumed after any epoch.

    Args:
        by_context: the observed pairs, with a row for each context.
        weights: α of each pair, in the order of `by_context`, or one number for all.
        contexts: start values, (contexts × width), changed in place.
        items: start values, (items × width), changed in place.
        temperature: τ.
        dim: number of coordinates that `normalize` applies to.
        normalize: whether the score is a cosine.
        exclude: see above.
        negatives: the sampler of shared negatives; None for the full softmax.
        batch: number of contexts (full) or observed pairs (sampled) of a step.
        kind: the optimizer's code, see `optimizers`.
        states: the optimizer's state for contexts and for items.
        rates: learning rates by coordinate, for contexts and for items; a coordinate with rate 0 does not change.
        ridges: λ by coordinate, for contexts and for items.
        schedule: maps the number of epochs done, a fraction, to a factor of the rates.
        seed: the seed of all random numbers.
        threads: number of threads.
        memory: maximum bytes for the exponentials of a batch; a larger batch is processed in parts.
    """

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
            raise SettingError(
                f"there are {len(weights)} weights; expected 1 or {len(by_context)}, one for each pair", field="weights"
            )
        self.number = 0  # number of epochs that are done
        self._rows, self._weights = by_context, weights
        self._contexts, self._items = contexts, items
        self._temperature, self._dim = number("temperature", temperature, above=True), dim
        self._normalize, self._exclude, self._negatives = normalize, exclude, negatives
        self._batch, self._kind = integer("batch", batch), kind
        self._states, self._rates, self._ridges = states, rates, ridges
        self._schedule, self._seed = schedule, seed
        self._threads, self._pass = threads, SoftmaxPass(threads, memory)
        self._mean = np.zeros(1)  # mean loss of the last epoch
        if negatives is None:
            self._order = np.flatnonzero(by_context.lengths).astype(np.int32)
            self._codes = np.arange(by_context.n_columns, dtype=np.int32)
            self._norms = np.ones(by_context.n_columns, np.float32)
            self._gradients, self._units = self._zeros(len(items)), self._zeros(len(items))
        else:
            self._order = np.arange(len(by_context), dtype=np.int32 if len(by_context) < 2**31 else np.int64)
            self._context_of = np.repeat(np.arange(by_context.n_rows, dtype=np.int32), by_context.lengths)
            self._where = np.full(by_context.n_columns, -1, np.int32)
            self._q = np.exp(negatives.log_q)
            self._q_of_context = kernels.sum_by_row(by_context.indptr, by_context.indices, self._q)

    def epoch(self) -> float:
        """Run one pass over the observed pairs in a new random order; return their mean loss during the pass."""
        order = self._random(0).permutation(self._order)
        n_batches = -(-len(order) // self._batch)
        loss, weight = 0.0, 0.0
        work = self._full if self._negatives is None else self._sampled
        with single_threaded_blas():
            for b in range(n_batches):
                factor = 1.0 if self._schedule is None else self._schedule(self.number + b / n_batches)
                rates = self._rates[0] * np.float32(factor), self._rates[1] * np.float32(factor)
                of_batch = work(order[b * self._batch : (b + 1) * self._batch], rates, b)
                loss, weight = loss + of_batch[0], weight + of_batch[1]
        self.number += 1
        require_finite(self.number, self._contexts, self._items)
        self._mean[0] = loss / weight if weight else 0.0
        return float(self._mean[0])

    @property
    def samples(self) -> int:
        """Number of observed pairs of an epoch."""
        return len(self._rows)

    def finish(self) -> None:
        """Do nothing: the steps learn contexts too."""

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Return the embeddings of contexts and of items; the arrays are not copied."""
        return {"contexts": self._contexts, "items": self._items}

    def restore(self, snapshot: State) -> None:
        """Set the embeddings to these values."""
        load_state(self.snapshot(), snapshot)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the embeddings, the optimizer's state, the loss of the last epoch and the number of epochs."""
        number = np.array([self.number], np.int64)
        return {**self.snapshot(), **state_arrays(self._states), "mean": self._mean, "epoch": number}

    def load_state_dict(self, state: State) -> None:
        """Continue from this state."""
        load_state(self.state_dict(), state)
        self.number = int(state["epoch"][0])

    def loss(self) -> LossParts:
        """Return the mean loss during the last epoch and the current regulariser, both divided by Σα."""
        weights = np.broadcast_to(self._weights, len(self._rows))
        context_of = np.repeat(np.arange(self._rows.n_rows), self._rows.lengths)
        total = 0.0
        for theta, codes, ridge in (
            (self._contexts, context_of, self._ridges[0]),
            (self._items, self._rows.indices, self._ridges[1]),
        ):
            squares = (theta * theta * ridge).sum(axis=1, dtype=np.float64)
            total += 0.5 * float((np.bincount(codes, weights, len(theta)) * squares).sum())
        regularizer = total / max(float(weights.sum(dtype=np.float64)), 1e-300)
        return LossParts(observed=self._mean[0], unobserved=0.0, regularizer=regularizer)

    def embeddings(self) -> tuple[Floats, Floats]:
        """Return the embeddings of contexts and of items; the arrays are not copied."""
        return self._contexts, self._items

    def _random(self, counter: int) -> np.random.Generator:
        key = np.array([self._seed, self.number], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 1, counter]))

    def _full(self, order: Codes, rates: tuple[Floats, Floats], _: int) -> tuple[float, float]:
        """Take a step on these contexts and all items; return the contexts' loss and weight."""
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
        result = self._pass.run(batch, 1.0 / weight, backward)
        touches = np.add.reduceat(rows.values, rows.indptr[:-1], dtype=np.float64) / weight
        at = np.arange(len(order), dtype=np.int32)
        self._step_contexts(order, at, result.rows, F, norms, rates[0], touches.astype(np.float32))
        return float(result.losses.sum()), weight

    def _sampled(self, pairs: Codes, rates: tuple[Floats, Floats], b: int) -> tuple[float, float]:
        """Take a step on the contexts, items and negatives of these pairs; return the pairs' loss and weight."""
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
        not_drawn = np.unique(positives[where[positives] < 0])
        where[not_drawn] = np.arange(len(drawn), len(drawn) + len(not_drawn), dtype=np.int32)
        codes, at = np.concatenate([drawn, not_drawn]), where[positives]
        hidden = self._hidden(contexts, positives, len(drawn), len(draws), counts)
        where[codes] = -1
        begins, ends, columns, shift = hidden
        H, norms = self._zeros(len(codes)), np.empty(len(codes), np.float32)
        self._pack(self._items, codes, 1.0, H, norms)
        F, context_norms = self._packed_contexts(contexts)
        bias = (np.log(counts) - self._negatives.log_q[drawn]).astype(np.float32)
        rows = np.arange(len(pairs) + 1, dtype=np.int64)
        batch = ScoreBatch(
            F, H, len(drawn), rows[:-1], rows[1:], at, weights, begins, ends, columns, bias, shift, ours=OURS
        )
        row_of = rows[:-1].astype(np.int32)
        backward = self._backward(batch, row_of, codes, self._zeros(len(codes)), norms, weight, rates[1])
        result = self._pass.run(batch, 1.0 / weight, backward)
        unique, first, inverse = np.unique(contexts, return_index=True, return_inverse=True)
        indptr, members = by_key(inverse.astype(np.int32), row_of, len(unique))
        kernels.add_repeats(result.rows, indptr, members, first)
        touches = (np.bincount(inverse, weights) / weight).astype(np.float32)
        self._step_contexts(unique, first.astype(np.int32), result.rows, F, context_norms, rates[0], touches)
        return float(result.losses.sum()), weight

    def _by_pair(self) -> Floats:
        """Return α of each pair; a single number is broadcast without a copy."""
        return np.broadcast_to(self._weights, len(self._rows)) if len(self._weights) == 1 else self._weights

    def _hidden(
        self, contexts: Codes, positives: Codes, n_drawn: int, n_draws: int, counts: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Codes, Floats]:
        """Return the bounds of each pair's excluded columns, these columns, and each pair's shift."""
        whole_history = self._exclude == "history"
        n = len(contexts)
        sizes = np.ones(n, np.int64)
        if whole_history:
            sizes = np.minimum(self._rows.indptr[contexts + 1] - self._rows.indptr[contexts], n_drawn)
        ends = np.cumsum(sizes)
        begins, columns, shift = ends - sizes, np.empty(int(ends[-1]), np.int32), np.empty(n, np.float32)
        of_row = positives[:0] if whole_history else positives

        def mark(start: int, stop: int) -> None:
            kernels.mark_drawn(
                self._where, n_drawn, n_draws, counts, self._q, self._q_of_context, self._rows.indptr,
                self._rows.indices, contexts, of_row, begins, ends, columns, shift, start, stop,
            )  # fmt: skip

        self._pass.in_chunks(mark, n, 256)
        return begins, ends, columns, shift

    def _packed_contexts(self, codes: Codes) -> tuple[Floats, Floats]:
        F, norms = self._zeros(len(codes)), np.empty(len(codes), np.float32)
        self._pack(self._contexts, codes, 1.0 / self._temperature, F, norms)
        return F, norms

    def _zeros(self, n: int) -> Floats:
        """Return zeros for n packed rows or their gradients; whole tiles if products use `row_products`."""
        width = self._items.shape[1]
        return np.zeros((n, whole_tiles(width) if OURS else width), np.float32)

    def _pack(self, theta: Floats, codes: Codes, scale: float, out: Floats, norms: Floats) -> None:
        def work(start: int, stop: int) -> None:
            kernels.pack(theta, codes, self._dim, self._normalize, scale, out, norms, start, stop)

        self._pass.in_chunks(work, len(codes), 4096)

    def _backward(
        self, batch: ScoreBatch, row_of: Codes, codes: Codes, D: Floats, norms: Floats, weight: float, rate: Floats
    ) -> ItemGradients:
        """Return the gradients of the items, with a step that is taken as soon as they are summed."""
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

        self._pass.in_chunks(work, len(codes), 1024)
