"""Fold-in under the softmax loss: minimise a context's loss by L-BFGS with fixed items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY, integer, number, one_of
from shortlist._numba import fast_kernel
from shortlist._threads import single_threaded_blas
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import SettingError
from shortlist.objectives.pointwise_square import gramian
from shortlist.sampling.base import Exclude
from shortlist.solvers import softmax_kernels as kernels
from shortlist.solvers.row_products import product
from shortlist.solvers.softmax import CatalogueNegatives, SharedNegatives
from shortlist.solvers.softmax_pass import NOTHING, Array, Floats, ScoreBatch, SoftmaxPass, Tiles

Doubles: TypeAlias = npt.NDArray[np.float64]
_WHOLE = 20_000  # up to this number of items, the sum runs over all of them
_DRAWS = 8_192  # number of negatives for larger catalogues
_ROWS = 1024  # rows that are solved at once
_SMALL = 200_000  # below this number of scores, one thread is faster
_MEMORY = 16  # steps that L-BFGS keeps for the curvature
_TOLERANCE = 1e-5  # length of the gradient at which a row has converged; the Hessian is about 1


class SoftmaxFoldIn:
    """Embeddings of contexts from their histories, under the softmax loss.

    Each row minimises, over the first `dim` coordinates of w,

        Σ_{i∈I_c} α(c,i)·[ ln Σ_j e^{ŷ_j/τ} − ŷ_i/τ ] + ½·(Σ_i α(c,i))·Σ_f λ_f w_f²

    with the same j as in `SoftmaxSteps`. If the j are the items outside of the history, an item of the history with
    confidence g counts as 1 − g outside of it: it adds (1 − g)·e^{ŷ_j/τ} to the sums of the other items. Up to 20,000
    items, the sum over j is exact. For larger catalogues, the sum over the items outside of the history is estimated
    from negatives that all rows share. They are drawn once with a fixed seed: 8,192 uniform draws, or `negatives`. The
    items of the history are always summed exactly.

    With a dot product and L2 the loss is convex, and the row is its minimum. With a cosine it is not convex and the
    length of w does not matter; the row is the direction, of length 1, that is reached from Newton's direction at 0.
    The method is L-BFGS in at most `passes` passes over the columns, preconditioned with the Hessian at w = 0, which is
    the same for all rows except for the factor Σα.

    The result of a row does not depend on the other rows: all products use `row_products`.

    If items have the coordinates [h, b, 1], the row is [w, 1, 0]: the bias of a context does not change this loss. A
    row without weight is zero.

    Args:
        items: (items × width) embeddings.
        temperature: τ.
        dim: number of coordinates that are solved for.
        normalize: whether the score is a cosine.
        exclude: see `SoftmaxSteps`.
        ridge: λ by coordinate.
        negatives: the sampler for more than 20,000 items.
        passes: maximum number of passes over the columns; a small λ may need more.
        threads: number of threads; the result does not depend on it.
        memory: maximum bytes for the exponentials of some rows.
    """

    def __init__(
        self,
        items: Floats,
        *,
        temperature: float,
        dim: int,
        normalize: bool,
        exclude: Exclude,
        ridge: Floats,
        negatives: SharedNegatives | None = None,
        passes: int = 25,
        threads: int | None = None,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        one_of("exclude", exclude, ("history", "positive"))
        self._items, self._dim, self._normalize = items, dim, normalize
        self._temperature = number("temperature", temperature, above=True)
        self._together, self._ridge = exclude == "positive", ridge[:dim].astype(np.float64) * (not normalize)
        self._memory, self._passes = memory, integer("passes", passes)
        n_items = len(items)
        if n_items <= _WHOLE:
            self._drawn, self._counts = np.arange(n_items, dtype=np.int32), np.ones(n_items, np.int64)
            self._n_draws, self._q, self._bias = n_items, np.zeros(0), NOTHING
        else:
            negatives = negatives or CatalogueNegatives(np.ones(n_items), _DRAWS)
            draws = negatives.draw(np.random.Generator(np.random.Philox(key=0)), np.empty(0, np.int32))
            self._drawn, self._counts = np.unique(draws, return_counts=True)
            self._n_draws, self._q = len(draws), np.exp(negatives.log_q)
            self._bias = (np.log(self._counts) - negatives.log_q[self._drawn]).astype(np.float32)
        self._units = self._packed(self._drawn)
        self._tiles = Tiles.of(self._units)
        self._center(threads)

    def __call__(self, histories: SparseRows, weights: Floats, threads: int | None = None) -> Floats:
        """Return the embeddings of these histories; `weights` has α of each pair, or one number for all.

        Several threads may call this at once, because every call has its own buffers.
        """
        if histories.n_rows * len(self._units) < _SMALL:
            threads = 1  # starting threads would take longer than the work
        softmax = SoftmaxPass(threads, self._memory)
        if histories.n_columns != len(self._items):
            raise SettingError(
                f"the histories have {histories.n_columns} items; expected {len(self._items)}, the items of the model",
                field="histories",
            )
        if len(weights) not in {1, len(histories)}:
            raise SettingError(
                f"there are {len(weights)} weights; expected 1 or {len(histories)}, one for each pair", field="weights"
            )
        values = np.broadcast_to(weights, len(histories)).astype(np.float64)
        row_of = np.repeat(np.arange(histories.n_rows), histories.lengths)
        total = np.bincount(row_of, values, histories.n_rows)
        values = values / np.where(total > 0, total, 1)[row_of]
        normalised = replace(histories, values=values.astype(np.float32))
        out = np.zeros((histories.n_rows, self._items.shape[1]), np.float32)
        weighted = np.flatnonzero(total > 0)
        with single_threaded_blas():
            for start in range(0, len(weighted), _ROWS):
                rows = weighted[start : start + _ROWS]
                out[rows] = self._solve(normalised.take(rows), softmax)
        return out

    def _packed(self, codes: npt.NDArray[np.int32]) -> Floats:
        out, norms = np.empty((len(codes), self._items.shape[1]), np.float32), np.empty(len(codes), np.float32)
        kernels.pack(self._items, codes, self._dim, self._normalize, 1.0, out, norms, 0, len(codes))
        return out

    def _center(self, threads: int | None) -> None:
        """Compute the mean of the negatives at w = 0, and P^-½ for the Hessian P at w = 0."""
        H, d, t = self._units, self._dim, self._temperature
        offset = self._bias.astype(np.float64) if len(self._bias) else np.zeros(len(H))
        if H.shape[1] > d:
            offset = offset + H[:, d].astype(np.float64) / t
        p = np.exp(offset - offset.max())
        p /= p.sum()
        self._mean: Doubles = np.einsum("j,jf->f", p, H[:, :d])
        C = gramian(np.ascontiguousarray(H[:, :d] - self._mean.astype(np.float32)), p.astype(np.float32), threads)
        spectrum, axes = np.linalg.eigh(C / t**2 + np.diag(self._ridge))
        smallest = 1e-3 * spectrum.mean() if self._normalize else 1e-6 * spectrum.mean()
        self._half: Doubles = (axes / np.sqrt(np.maximum(spectrum, max(smallest, 1e-12)))) @ axes.T

    def _solve(self, rows: SparseRows, softmax: SoftmaxPass) -> Floats:
        """Return the embeddings of these histories, which are not empty and whose weights sum to 1."""
        batch = self._batch(rows)
        d, n = self._dim, rows.n_rows
        X = np.zeros((n, d), np.float32)
        if self._normalize:
            X = self._start(rows, batch)
        search = _LBFGS(X)
        for _ in range(self._passes):
            active = np.flatnonzero(~search.done)
            if len(active) == 0:
                break
            losses, slopes = self._evaluate(batch, active, search.trial[active], softmax)
            softmax.in_chunks(search.advance(active, losses, slopes), len(active), 32)
        W = product(search.x, self._half.astype(np.float32))
        if self._normalize:
            W /= np.maximum(np.linalg.norm(W, axis=1, keepdims=True), 1e-30)
        return self._whole(W)

    def _batch(self, rows: SparseRows) -> ScoreBatch:
        """Return the batch of these rows, with F not yet filled in."""
        assert rows.values is not None
        n, n_drawn = rows.n_rows, len(self._drawn)
        firsts, lasts = rows.indptr[:-1], rows.indptr[1:]
        F = np.empty((n, self._items.shape[1]), np.float32)
        spare = NOTHING if rows.confidence is None else 1 - rows.confidence
        if not len(self._q):
            sides = firsts, lasts, rows.indices
            return ScoreBatch(
                F, self._units, n_drawn, *sides, rows.values, *sides, together=self._together, spare=spare,
                tiles=self._tiles,
            )  # fmt: skip
        where = np.full(rows.n_columns, -1, np.int32)
        where[self._drawn] = np.arange(n_drawn, dtype=np.int32)
        not_drawn = np.unique(rows.indices[where[rows.indices] < 0])
        where[not_drawn] = np.arange(n_drawn, n_drawn + len(not_drawn), dtype=np.int32)
        excluded_q = kernels.sum_by_row(rows.indptr, rows.indices, self._q)
        ends, columns, shift = lasts.copy(), np.empty(len(rows), np.int32), np.empty(n, np.float32)
        kernels.mark_drawn(
            where, n_drawn, self._n_draws, self._counts, self._q, excluded_q, rows.indptr, rows.indices,
            np.arange(n, dtype=np.int32), rows.indices[:0], firsts, ends, columns, shift, 0, n,
        )  # fmt: skip
        H = np.concatenate([self._units, self._packed(not_drawn)])
        at = where[rows.indices]
        return ScoreBatch(
            F, H, n_drawn, firsts, lasts, at, rows.values, firsts, ends, columns, self._bias, shift, self._together,
            spare, self._tiles,
        )  # fmt: skip

    def _start(self, rows: SparseRows, batch: ScoreBatch) -> Floats:
        """Return Newton's direction at 0, P⁻¹(the history's mean − the negatives' mean), scaled so that ‖w‖ = 1."""
        assert rows.values is not None
        mean = np.add.reduceat(batch.H[batch.at, : self._dim] * rows.values[:, None], rows.indptr[:-1])
        half = self._half.astype(np.float32)
        toward = product((mean - self._mean).astype(np.float32), half)  # X = P^-½(…), because w = X P^-½
        length = np.linalg.norm(product(toward, half), axis=1, keepdims=True)
        start: Floats = (toward / np.maximum(length, 1e-30)).astype(np.float32)
        return start

    def _whole(self, W: Floats) -> Floats:
        out = np.zeros((len(W), self._items.shape[1]), np.float32)
        out[:, : self._dim] = W
        if out.shape[1] > self._dim:
            out[:, self._dim] = 1
        return out

    def _evaluate(
        self, batch: ScoreBatch, rows: npt.NDArray[np.int64], X: Floats, softmax: SoftmaxPass
    ) -> tuple[Doubles, Floats]:
        """Return the loss of each row at w = X P^-½ and its gradient with respect to X."""
        half, d = self._half.astype(np.float32), self._dim
        W = product(X, half)
        norms = np.ones((len(W), 1), np.float32)
        units = W
        if self._normalize:
            norms = np.maximum(np.linalg.norm(W, axis=1, keepdims=True), 1e-30)
            units = W / norms
        F = self._whole(units) / np.float32(self._temperature)
        shift = batch.shift[rows] if len(batch.shift) else NOTHING
        part = batch._replace(
            F=F, firsts=batch.firsts[rows], lasts=batch.lasts[rows], begins=batch.begins[rows], ends=batch.ends[rows],
            shift=shift,
        )  # fmt: skip
        result = softmax.run(part, 1.0)
        G = result.rows[:, :d] / np.float32(self._temperature)
        if self._normalize:
            G = (G - (G * units).sum(axis=1, keepdims=True) * units) / norms
        ridge = self._ridge.astype(np.float32)
        losses = result.losses + 0.5 * np.einsum("rf,f->r", W.astype(np.float64) ** 2, self._ridge)
        return losses, product(G + ridge * W, half)


class _LBFGS:
    """L-BFGS for many rows at once, each with its own steps; a row is done when its gradient is below `_TOLERANCE`."""

    def __init__(self, start: Floats) -> None:
        n, d = start.shape
        self.trial, self.x = start.copy(), start.copy()
        self.done = np.zeros(n, np.bool_)
        self._loss, self._t, self._count = np.full(n, np.inf), np.ones(n), np.full(n, -1, np.int64)
        self._g, self._direction = np.zeros((n, d), np.float32), np.zeros((n, d), np.float32)
        self._S, self._Y = (np.zeros((n, _MEMORY, d), np.float32) for _ in range(2))

    def advance(self, rows: npt.NDArray[np.int64], losses: Doubles, slopes: Floats) -> Callable[[int, int], object]:
        """Return a function that moves rows a…b to their next trial; takes losses and gradients at the current one."""

        def work(a: int, b: int) -> None:
            _advance(
                rows, losses, slopes, self.trial, self.x, self.done, self._loss, self._t, self._count, self._g,
                self._direction, self._S, self._Y, a, b,
            )  # fmt: skip

        return work


@fast_kernel
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


@fast_kernel
def _advance(
    rows: Array,
    losses: Array,
    slopes: Array,
    trial: Array,
    x: Array,
    done: Array,
    loss: Array,
    t: Array,
    count: Array,
    g: Array,
    direction: Array,
    S: Array,
    Y: Array,
    start: int,
    stop: int,
) -> None:
    """Accept the trial if the loss has decreased enough (Armijo), otherwise try a shorter step; see `_LBFGS`."""
    d = x.shape[1]
    products = np.empty(_MEMORY)
    for k in range(start, stop):
        r = rows[k]
        if count[r] >= 0:
            slope = _dot(g[r], direction[r])
            risen = losses[k] - loss[r]
            if not risen <= 1e-4 * t[r] * slope + 1e-6 * (1.0 + abs(loss[r])):
                best = -0.5 * slope * t[r] / (risen - slope * t[r])  # the minimum of the parabola
                t[r] *= min(max(best, 0.1), 0.5)
                if t[r] < 1e-4 and count[r] == 0:
                    done[r] = True
                elif t[r] < 1e-4:  # the stored curvature is wrong: drop it and follow the slope
                    count[r] = 0
                    t[r] = 1.0
                    for f in range(d):
                        direction[r, f] = -g[r, f]
                for f in range(d):
                    trial[r, f] = x[r, f] + t[r] * direction[r, f]
                continue
            curvature, square = 0.0, 0.0
            for f in range(d):
                s, y = trial[r, f] - x[r, f], slopes[k, f] - g[r, f]
                curvature += s * y
                square += s * s
            if curvature > 1e-6 * square:  # otherwise the stored curvature does not change
                slot = count[r] % _MEMORY
                for f in range(d):
                    S[r, slot, f], Y[r, slot, f] = trial[r, f] - x[r, f], slopes[k, f] - g[r, f]
                count[r] += 1
        else:
            count[r] = 0
        loss[r] = losses[k]
        for f in range(d):
            x[r, f], g[r, f] = trial[r, f], slopes[k, f]
        if _dot(g[r], g[r]) <= _TOLERANCE**2:
            done[r] = True
            continue
        known = min(count[r], _MEMORY)
        for f in range(d):
            direction[r, f] = -g[r, f]
        for back in range(known):
            slot = (count[r] - 1 - back) % _MEMORY
            products[slot] = _dot(S[r, slot], direction[r]) / _dot(S[r, slot], Y[r, slot])
            for f in range(d):
                direction[r, f] -= products[slot] * Y[r, slot, f]
        if known > 0:
            slot = (count[r] - 1) % _MEMORY
            scale = _dot(S[r, slot], Y[r, slot]) / _dot(Y[r, slot], Y[r, slot])
            for f in range(d):
                direction[r, f] *= scale
        for back in range(known - 1, -1, -1):
            slot = (count[r] - 1 - back) % _MEMORY
            other = _dot(Y[r, slot], direction[r]) / _dot(S[r, slot], Y[r, slot])
            for f in range(d):
                direction[r, f] += (products[slot] - other) * S[r, slot, f]
        if not _dot(direction[r], g[r]) < 0:
            count[r] = 0
            for f in range(d):
                direction[r, f] = -g[r, f]
        t[r] = 1.0
        for f in range(d):
            trial[r, f] = x[r, f] + direction[r, f]
