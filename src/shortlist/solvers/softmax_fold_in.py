"""The context that a history asks for under the softmax loss, with the items as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._checks import DEFAULT_MEMORY, number, one_of, whole
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
_WHOLE = 20_000  # items up to which the sum runs over all of them
_DRAWS = 8_192  # beyond
_ROWS = 1024  # solved together
_SMALL = 200_000  # scores, for which no threads are started
_MEMORY = 16  # steps that a row's curvature is known from
_TOLERANCE = 1e-5  # of the gradient where the Hessian is about 1


class SoftmaxFoldIn:
    """Contexts by their histories.

    Each row minimises, over the first `dim` coordinates of w,

        Σ_{i∈I_c} α(c,i)·[ ln Σ_j e^{ŷ_j/τ} − ŷ_i/τ ] + ½·(Σ_i α(c,i))·Σ_f λ_f w_f²

    with the j that `SoftmaxSteps` sums over. Where these are items outside of the history, an item of it that has faded
    to confidence g is 1 − g parts outside of it: (1 − g)·e^{ŷ_j/τ} is in the sums of the other items. (Where j is any
    item, there is nothing to add.) Up to 20,000 items the sum is the full one; beyond, that over the items
    outside of the history is estimated by negatives which all rows share, drawn once under a fixed seed: 8,192 from the
    uniform distribution unless `negatives` says otherwise. The items of the history itself are always summed exactly.

    Of a dot product with L2 that is convex, and the row its minimiser. Of a cosine it is not, the length of w does not
    matter, and the row is the direction that is reached from Newton's at 0, of length 1. By L-BFGS in at most `passes`
    passes over the columns, preconditioned with the Hessian at w = 0, which but for Σα is the same for all rows.

    A row's result does not depend on the other rows: all products are of `row_products`.

    Where items have more than `dim` coordinates, [h, b, 1], the row is [w, 1, 0]: a bias of the context changes nothing
    here. A row without weight is zero.

    Args:
        items: (items × width).
        temperature: τ.
        dim: how many coordinates are solved for.
        normalize: whether the score is a cosine.
        exclude: see `SoftmaxSteps`.
        ridge: λ by coordinate.
        negatives: who draws, where there are more than 20,000 items.
        passes: how often the columns are gone over at most; a small λ may need more of them.
        threads: how many to use; the result does not depend on it.
        memory: bytes for the exponentials of some rows.
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
        self._memory, self._passes = memory, whole("passes", passes)
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
        """The rows of these histories; α by pair in their order, or one number for all.

        It may be called from several threads at once: each call has room of its own.
        """
        if histories.n_rows * len(self._units) < _SMALL:
            threads = 1  # starting others would take longer than all the rest
        room = SoftmaxPass(threads, self._memory)
        if histories.n_columns != len(self._items):
            found, expected = histories.n_columns, len(self._items)
            raise SettingError(f"the histories are of {found} items; expected {expected}, as many as were learnt")
        if len(weights) not in {1, len(histories)}:
            raise SettingError(f"there are {len(weights)} weights; expected 1 or {len(histories)}, one a pair")
        values = np.broadcast_to(weights, len(histories)).astype(np.float64)
        row_of = np.repeat(np.arange(histories.n_rows), histories.lengths)
        total = np.bincount(row_of, values, histories.n_rows)
        values = values / np.where(total > 0, total, 1)[row_of]
        shares = replace(histories, values=values.astype(np.float32))
        out = np.zeros((histories.n_rows, self._items.shape[1]), np.float32)
        some = np.flatnonzero(total > 0)
        with single_threaded_blas():
            for start in range(0, len(some), _ROWS):
                rows = some[start : start + _ROWS]
                out[rows] = self._solve(shares.take(rows), room)
        return out

    def _packed(self, codes: npt.NDArray[np.int32]) -> Floats:
        out, norms = np.empty((len(codes), self._items.shape[1]), np.float32), np.empty(len(codes), np.float32)
        kernels.pack(self._items, codes, self._dim, self._normalize, 1.0, out, norms, 0, len(codes))
        return out

    def _center(self, threads: int | None) -> None:
        """The mean of the negatives at w = 0, and P^-½ for the Hessian P there."""
        H, d, t = self._units, self._dim, self._temperature
        offset = self._bias.astype(np.float64) if len(self._bias) else np.zeros(len(H))
        if H.shape[1] > d:
            offset = offset + H[:, d].astype(np.float64) / t
        share = np.exp(offset - offset.max())
        share /= share.sum()
        self._mean: Doubles = np.einsum("j,jf->f", share, H[:, :d])
        C = gramian(np.ascontiguousarray(H[:, :d] - self._mean.astype(np.float32)), share.astype(np.float32), threads)
        spectrum, axes = np.linalg.eigh(C / t**2 + np.diag(self._ridge))
        least = 1e-3 * spectrum.mean() if self._normalize else 1e-6 * spectrum.mean()
        self._half: Doubles = (axes / np.sqrt(np.maximum(spectrum, max(least, 1e-12)))) @ axes.T

    def _solve(self, rows: SparseRows, room: SoftmaxPass) -> Floats:
        """The rows of these histories, none of which is empty; their weights sum to 1."""
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
            losses, slopes = self._evaluate(batch, active, search.trial[active], room)
            room.over(search.advance(active, losses, slopes), len(active), 32)
        W = product(search.x, self._half.astype(np.float32))
        if self._normalize:
            W /= np.maximum(np.linalg.norm(W, axis=1, keepdims=True), 1e-30)
        return self._whole(W)

    def _batch(self, rows: SparseRows) -> ScoreBatch:
        """The scores of these rows, for F to be filled in."""
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
        others = np.unique(rows.indices[where[rows.indices] < 0])
        where[others] = np.arange(n_drawn, n_drawn + len(others), dtype=np.int32)
        gone = kernels.sum_by_row(rows.indptr, rows.indices, self._q)
        ends, columns, shift = lasts.copy(), np.empty(len(rows), np.int32), np.empty(n, np.float32)
        kernels.mark_drawn(
            where, n_drawn, self._n_draws, self._counts, self._q, gone, rows.indptr, rows.indices,
            np.arange(n, dtype=np.int32), rows.indices[:0], firsts, ends, columns, shift, 0, n,
        )  # fmt: skip
        H = np.concatenate([self._units, self._packed(others)])
        at = where[rows.indices]
        return ScoreBatch(
            F, H, n_drawn, firsts, lasts, at, rows.values, firsts, ends, columns, self._bias, shift, self._together,
            spare, self._tiles,
        )  # fmt: skip

    def _start(self, rows: SparseRows, batch: ScoreBatch) -> Floats:
        """Newton's direction at 0, of length 1 as w: P⁻¹(the history's mean − the negatives' mean)."""
        assert rows.values is not None
        own = np.add.reduceat(batch.H[batch.at, : self._dim] * rows.values[:, None], rows.indptr[:-1])
        half = self._half.astype(np.float32)
        toward = product((own - self._mean).astype(np.float32), half)  # as w = X P^-½, X = P^-½(…)
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
        self, batch: ScoreBatch, rows: npt.NDArray[np.int64], X: Floats, room: SoftmaxPass
    ) -> tuple[Doubles, Floats]:
        """The loss of each row at X P^-½ and its gradient by X."""
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
        found = room.run(part, 1.0)
        G = found.rows[:, :d] / np.float32(self._temperature)
        if self._normalize:
            G = (G - (G * units).sum(axis=1, keepdims=True) * units) / norms
        ridge = self._ridge.astype(np.float32)
        losses = found.losses + 0.5 * np.einsum("rf,f->r", W.astype(np.float64) ** 2, self._ridge)
        return losses, product(G + ridge * W, half)


class _LBFGS:
    """L-BFGS for many rows at once, each with its own steps; a row is done where its gradient is nothing."""

    def __init__(self, start: Floats) -> None:
        n, d = start.shape
        self.trial, self.x = start.copy(), start.copy()
        self.done = np.zeros(n, np.bool_)
        self._loss, self._t, self._count = np.full(n, np.inf), np.ones(n), np.full(n, -1, np.int64)
        self._g, self._direction = np.zeros((n, d), np.float32), np.zeros((n, d), np.float32)
        self._S, self._Y = (np.zeros((n, _MEMORY, d), np.float32) for _ in range(2))

    def advance(self, rows: npt.NDArray[np.int64], losses: Doubles, slopes: Floats) -> Callable[[int, int], object]:
        """What takes rows a…b of these from the loss and gradient at their trial to the next one."""

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
    """Take the trial if the loss has fallen enough (Armijo), else a shorter step the same way; see `_LBFGS`."""
    d = x.shape[1]
    products = np.empty(_MEMORY)
    for k in range(start, stop):
        r = rows[k]
        if count[r] >= 0:
            slope = _dot(g[r], direction[r])
            risen = losses[k] - loss[r]
            if not risen <= 1e-4 * t[r] * slope + 1e-6 * (1.0 + abs(loss[r])):
                best = -0.5 * slope * t[r] / (risen - slope * t[r])  # where the parabola is lowest
                t[r] *= min(max(best, 0.1), 0.5)
                if t[r] < 1e-4 and count[r] == 0:
                    done[r] = True
                elif t[r] < 1e-4:  # the known curvature misleads: forget it, and follow the slope
                    count[r] = 0
                    t[r] = 1.0
                    for f in range(d):
                        direction[r, f] = -g[r, f]
                for f in range(d):
                    trial[r, f] = x[r, f] + t[r] * direction[r, f]
                continue
            bend, square = 0.0, 0.0
            for f in range(d):
                s, y = trial[r, f] - x[r, f], slopes[k, f] - g[r, f]
                bend += s * y
                square += s * s
            if bend > 1e-6 * square:  # else what is known stays as it is
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
