"""Embeddings that are linear in each of several blocks of parameters (section 5.1.2 of the article).

A *side* makes the embeddings Φ of all contexts, or of all items, from its parameters. A *block* θ of them, groups × k,
is one in which Φ = Jθ + rest is linear while the other blocks stand still: the article's θ̃, whose ∇φ is J.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shortlist._numba import fast_kernel, kernel
from shortlist._threads import run_chunks, single_threaded_blas, thread_count
from shortlist.data.sparse_rows import SparseRows, by_key

if TYPE_CHECKING:
    import scipy.sparse as sp

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[Any]


@dataclass(eq=False)
class Block(ABC):
    """Parameters θ, groups × k, in which embeddings are linear.

    Attributes:
        values: θ; whoever improves it changes it in place.
        ridge: of the loss's ridge·‖θ − prior‖²; by group, with a column for each of the k or one for all.
        prior: see `ridge`.
        rows: the rows of Φ that depend on it, None for all.
        groups: for each of these rows the only group that it depends on; None where rows depend on several, so that
            groups cannot be solved for by themselves.
    """

    values: Floats
    ridge: Floats
    prior: Floats | float
    rows: npt.NDArray[np.int64] | None
    groups: Integers | None

    @abstractmethod
    def forward(self, change: Floats) -> Floats:
        """J·change: what the rows move by when θ moves by that."""

    @abstractmethod
    def back(self, slopes: Floats) -> Floats:
        """Jᵀ·slopes: what θ sees of slopes of the rows."""

    @abstractmethod
    def squared_transpose(self, diagonal: Floats) -> Floats:
        """(J∘J)ᵀ·diagonal: the diagonal of JᵀDJ."""

    @abstractmethod
    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Where each row goes when column j of its group rises by 1: a column for each coordinate moved; and which.

        For coordinate descent, so only where there are groups.
        """


class Side(ABC):
    """All contexts, or all items, as made from `parameters`: arrays of float32 that whoever learns changes in place."""

    parameters: list[Floats]
    ridges: list[Floats]  # of each, as for a block; set by `regularize`
    priors: list[Floats | float]
    threads: int | None = None  # how many to use

    @abstractmethod
    def embeddings(self) -> Floats:
        """Φ, from the parameters as they are."""

    @abstractmethod
    def blocks(self, Phi: Floats, *, apart: bool, last: bool = False) -> Iterator[Block]:
        """The blocks one after the other, each in view of what was done to those before it.

        Args:
            Phi: the embeddings, which whoever improves a block keeps up to date.
            apart: only such blocks as have groups.
            last: only the last one: the ids, or those of the first part.
        """

    @abstractmethod
    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set `ridges`: λ·size^ν, where a group's size is the sum of those of its rows."""

    def settle(self) -> None:
        """Set parameters that only the regularizer knows of, where there are any, to their best."""
        return

    def penalty(self) -> float:
        """Σ ridge·(θ − prior)²."""
        return sum(
            float((ridge * np.square(values - prior, dtype=np.float64)).sum())
            for values, ridge, prior in zip(self.parameters, self.ridges, self.priors)
        )

    def packed(self) -> Floats:
        """All parameters in one column."""
        return np.concatenate([one.reshape(-1, 1) for one in self.parameters])

    def unpack(self, packed: Floats) -> None:
        """Take what `packed` gave."""
        start = 0
        for one in self.parameters:
            one[...] = packed[start : start + one.size].reshape(one.shape)
            start += one.size


def packed_size(shapes: Sequence[tuple[int, int]]) -> int:
    """How many numbers parameters of these shapes are."""
    return sum(rows * columns for rows, columns in shapes)


def unpacked(packed: Floats, shapes: Sequence[tuple[int, int]]) -> list[Floats]:
    """Parameters of these shapes, as copies."""
    out, start = [], 0
    flat = packed.reshape(-1)
    for rows, columns in shapes:
        out.append(flat[start : start + rows * columns].reshape(rows, columns).copy())
        start += rows * columns
    return out


def ridge_of(sizes: npt.NDArray[Any], strength: float, exponent: float) -> Floats:
    """λ·size^ν, by group."""
    return (strength * sizes**exponent).astype(np.float32)[:, None]


class GroupSums:
    """Sums of rows by their groups, each over its rows in their order."""

    def __init__(self, groups: Integers, n_groups: int) -> None:
        numbers = np.arange(len(groups), dtype=np.int32)
        self.indptr, self.order = by_key(groups.astype(np.int32, copy=False), numbers, n_groups)

    def __call__(self, X: Floats) -> Floats:
        """The sums."""
        out = np.zeros((len(self.indptr) - 1, X.shape[1]), np.float32)
        _sum_groups(self.indptr, self.order, X, out)
        return out


@kernel
def _sum_groups(indptr: Array, order: Array, X: Array, out: Array) -> None:
    total = np.zeros(X.shape[1], np.float64)
    for g in range(len(indptr) - 1):
        total[:] = 0.0
        for e in range(indptr[g], indptr[g + 1]):
            r = order[e]
            for f in range(X.shape[1]):
                total[f] += X[r, f]
        for f in range(X.shape[1]):
            out[g, f] = total[f]


# --- matrix factorization --------------------------------------------------------------------------------------------


class EmbeddingTable(Side):
    """An embedding for each row: matrix factorization."""

    def __init__(self, values: Floats, prior: Floats | float = 0.0) -> None:
        self.parameters, self.priors, self.ridges = [values], [prior], []

    def embeddings(self) -> Floats:
        """A copy of the table."""
        return self.parameters[0].copy()

    def blocks(self, Phi: Floats, *, apart: bool, last: bool = False) -> Iterator[Block]:
        """One."""
        yield TableBlock(self.parameters[0], self.ridges[0], self.priors[0], None, np.arange(len(Phi)))

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """λ·size^ν."""
        self.ridges = [ridge_of(sizes, strength, exponent)]


class TableBlock(Block):
    """J is the identity."""

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return change

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return slopes

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        return diagonal

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        return np.ones((len(self.values), 1), np.float32), np.array([j])


# --- PARAFAC ---------------------------------------------------------------------------------------------------------


class ParafacSide(Side):
    """φ(c) = u_a ∘ t_b ∘ …, the product by coordinates of an embedding for each part of c = (a, b, …).

    Args:
        codes: the parts of each row, rows × parts.
        tables: for each part its embeddings, all of d columns.
    """

    def __init__(self, codes: Integers, tables: list[Floats]) -> None:
        self.codes, self.parameters, self.ridges = codes, tables, []
        self.priors = [0.0, *(1.0 for _ in tables[1:])]

    def embeddings(self) -> Floats:
        """See `Side`."""
        return self._product(range(len(self.parameters)))

    def _product(self, parts: Sequence[int]) -> Floats:
        if not parts:
            return np.ones((len(self.codes), self.parameters[0].shape[1]), np.float32)
        out = self.parameters[parts[0]][self.codes[:, parts[0]]]
        for part in parts[1:]:
            out *= self.parameters[part][self.codes[:, part]]
        return out

    def blocks(self, Phi: Floats, *, apart: bool, last: bool = False) -> Iterator[Block]:
        """A block for each part, the first one last: whoever folds in ends with it."""
        for part in range(0 if last else len(self.parameters) - 1, -1, -1):
            rest = self._product([k for k in range(len(self.parameters)) if k != part])
            groups = self.codes[:, part]
            yield ScaledBlock(self.parameters[part], self.ridges[part], self.priors[part], None, groups, rest)

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """λ·(sum over the rows that have this part)^ν."""
        self.ridges = [
            ridge_of(np.bincount(self.codes[:, part], sizes, len(table)), strength, exponent)
            for part, table in enumerate(self.parameters)
        ]


@dataclass(eq=False)
class ScaledBlock(Block):
    """J scales the coordinates: row c moves by change[group] ∘ rest."""

    groups: Integers
    rest: Floats

    def __post_init__(self) -> None:
        self._sums = GroupSums(self.groups, len(self.values))

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return np.asarray(change[self.groups] * self.rest)

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return self._sums(slopes * self.rest)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        return self._sums(diagonal * self.rest * self.rest)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        return self.rest[:, j : j + 1], np.array([j])


# --- Tucker ----------------------------------------------------------------------------------------------------------


class TuckerSide(Side):
    """φ(c) = core ×₁ u_a ×₂ t_b …: every product of a coordinate of each part, times a matrix.

    With o_c the products of the coordinates of all parts but the first, K of them, and M_a = u_a·core, K × d, it is
    φ(c) = o_c·M_a: the first part, which has the most ids, meets the core once an id and not once a context.

    Args:
        codes: the parts of each row, rows × parts.
        tables: for each part its embeddings, of k₁, k₂, … columns.
        core: k₁k₂… × d.
    """

    def __init__(self, codes: Integers, tables: list[Floats], core: Floats) -> None:
        self.codes, self.tables, self.core = codes, tables, core
        self.parameters, self.ridges = [*tables, core], []
        first = [np.zeros((1, table.shape[1]), np.float32) for table in tables[1:]]
        for one in first:
            one[0, 0] = 1
        self.priors = [0.0, *first, neutral_core([table.shape[1] for table in tables], core.shape[1])]
        self.first = codes[:, 0].astype(np.int64)
        self.sums = GroupSums(self.first, len(tables[0]))

    @property
    def width(self) -> int:
        """K."""
        return len(self.core) // int(self.tables[0].shape[1])

    def others(self, part: int | None = None, change: Floats | None = None) -> Floats:
        """The o of every row, rows × K; with another table for one part, or with ones for it where there is none."""
        out = np.ones((len(self.codes), 1), np.float32)
        for k, table in enumerate(self.tables[1:], start=1):
            if k == part and change is None:
                continue
            own = (table if change is None or k != part else change)[self.codes[:, k]]
            out = (out[:, :, None] * own[:, None, :]).reshape(len(out), -1)
        return out

    def meet(self, u: Floats, core: Floats) -> Floats:
        """M of every id of the first part, ids × Kd."""
        return np.asarray(u @ core.reshape(u.shape[1], -1))

    def combine(self, others: Floats, M: Floats) -> Floats:
        """o_c·M_a of every row."""
        out = np.empty((len(self.codes), self.core.shape[1]), np.float32)
        self._in_chunks(len(out), lambda start, stop: _combine(others, M, self.first, out, start, stop))
        return out

    def spread(self, others: Floats, slopes: Floats) -> Floats:
        """Σ_c o_c ⊗ slope_c over the rows of each id of the first part, ids × Kd."""
        out = np.zeros((len(self.tables[0]), self.width * slopes.shape[1]), np.float32)
        slopes = np.ascontiguousarray(slopes)
        bounds, order = self.sums.indptr, self.sums.order
        self._in_chunks(len(out), lambda start, stop: _spread(bounds, order, others, slopes, out, start, stop))
        return out

    def _in_chunks(self, n: int, work: Callable[[int, int], object]) -> None:
        n_chunks = 8 * thread_count(self.threads)
        bounds = [n * k // n_chunks for k in range(n_chunks + 1)]
        run_chunks(work, [(a, b) for a, b in pairwise(bounds) if a < b], self.threads)

    @cached_property
    def combinations(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The rows by their combination of the other parts: bounds, an example of each, and the rows in their order."""
        number = np.zeros(len(self.codes), np.int64)
        for k, table in enumerate(self.tables[1:], start=1):
            number = number * len(table) + self.codes[:, k]
        distinct, example, which = np.unique(number, return_index=True, return_inverse=True)
        rows = np.arange(len(number), dtype=np.int32)
        indptr, order = by_key(which.reshape(-1).astype(np.int32), rows, len(distinct))
        return indptr, example, order

    def embeddings(self) -> Floats:
        """See `Side`."""
        return self.combine(self.others(), self.meet(self.tables[0], self.core))

    def blocks(self, Phi: Floats, *, apart: bool, last: bool = False) -> Iterator[Block]:
        """The core, then the parts, the first one last."""
        if not last:
            ridge, prior = (np.broadcast_to(one, self.core.shape).reshape(1, -1) for one in (
                self.ridges[-1], self.priors[-1]))  # fmt: skip
            yield CoreBlock(self.core.reshape(1, -1), ridge, prior, None, np.zeros(len(Phi), np.int64), self)
            for part in range(len(self.tables) - 1, 0, -1):
                ridge, prior_ = self.ridges[part], self.priors[part]
                yield PartBlock(self.tables[part], ridge, prior_, None, self.codes[:, part], self, part)
        yield FirstBlock(self.tables[0], self.ridges[0], self.priors[0], None, self.first, self)

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """λ·(sum over the rows that have this part)^ν; for the core, over all rows."""
        self.ridges = [
            ridge_of(np.bincount(self.codes[:, part], sizes, len(table)), strength, exponent)
            for part, table in enumerate(self.tables)
        ]
        self.ridges.append(ridge_of(np.full(len(self.core), sizes.sum()), strength, exponent))


def neutral_core(ranks: Sequence[int], dim: int) -> Floats:
    """The core with which only the first part counts, while the others' first coordinate is 1: MF."""
    core = np.zeros((*ranks, dim), np.float32)
    core.reshape(ranks[0], -1, dim)[:, 0] = np.eye(ranks[0], dim)
    return core.reshape(-1, dim)


@fast_kernel
def _combine(others: Array, M: Array, first: Array, out: Array, start: int, stop: int) -> None:
    d = out.shape[1]
    for r in range(start, stop):
        row = M[first[r]]
        for f in range(d):
            out[r, f] = 0
        for k in range(others.shape[1]):
            for f in range(d):
                out[r, f] += others[r, k] * row[k * d + f]


@fast_kernel
def _spread(indptr: Array, order: Array, others: Array, slopes: Array, out: Array, start: int, stop: int) -> None:
    d = slopes.shape[1]
    for g in range(start, stop):
        row = out[g]
        for e in range(indptr[g], indptr[g + 1]):
            r = order[e]
            for k in range(others.shape[1]):
                for f in range(d):
                    row[k * d + f] += others[r, k] * slopes[r, f]


@fast_kernel
def _meet_slopes(M: Array, slopes: Array, first: Array, squared: bool, out: Array) -> None:
    """M_a·slope of every row, rows × K; of the squares of M's entries where that is asked."""
    d = slopes.shape[1]
    for r in range(len(first)):
        row = M[first[r]]
        for k in range(out.shape[1]):
            total = np.float32(0)
            for f in range(d):
                entry = row[k * d + f]
                total += slopes[r, f] * (entry * entry if squared else entry)
            out[r, k] = total


@dataclass(eq=False)
class CoreBlock(Block):
    """The core: Φ is linear in it through M."""

    side: TuckerSide

    def __post_init__(self) -> None:
        self._others = self.side.others()

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return self.side.combine(self._others, self.side.meet(self.side.tables[0], change))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`. On one thread: BLAS sums over rows in another order on more."""
        spread = self.side.spread(self._others, slopes)
        with single_threaded_blas():
            return np.asarray(self.side.tables[0].T @ spread).reshape(1, -1)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        spread = self.side.spread(np.square(self._others), diagonal)
        with single_threaded_blas():
            return np.asarray(np.square(self.side.tables[0]).T @ spread).reshape(1, -1)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        k, f = divmod(j, self.side.core.shape[1])
        a, o = divmod(k, self.side.width)
        return (self.side.tables[0][self.side.first, a] * self._others[:, o])[:, None], np.array([f])


@dataclass(eq=False)
class FirstBlock(Block):
    """The first part of a Tucker model."""

    groups: Integers
    side: TuckerSide

    def __post_init__(self) -> None:
        self._others = self.side.others()
        self._core = self.side.core.reshape(self.values.shape[1], -1)

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return self.side.combine(self._others, self.side.meet(change, self.side.core))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return np.asarray(self.side.spread(self._others, slopes) @ self._core.T)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`; a J for each combination of the other parts that occurs."""
        k, d = self.values.shape[1], self.side.core.shape[1]
        indptr, example, order = self.side.combinations
        by_others = self._core.reshape(k, -1, d).transpose(1, 0, 2).reshape(-1, k * d)
        out = np.zeros((len(diagonal), k), np.float32)
        for o in range(len(example)):
            rows = order[indptr[o] : indptr[o + 1]]
            J = (self._others[example[o]] @ by_others).reshape(k, d)
            out[rows] = diagonal[rows] @ np.square(J).T
        return self.side.sums(out)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        d = self.side.core.shape[1]
        return np.asarray(self._others @ self._core[j].reshape(-1, d)), np.arange(d)


@dataclass(eq=False)
class PartBlock(Block):
    """One of the other parts of a Tucker model: o is linear in it."""

    groups: Integers
    side: TuckerSide
    part: int

    def __post_init__(self) -> None:
        self._sums = GroupSums(self.groups, len(self.values))
        self._M = self.side.meet(self.side.tables[0], self.side.core)
        self._rest = self.side.others(self.part)
        sizes = [table.shape[1] for table in self.side.tables[1:]]
        self._before, self._after = int(np.prod(sizes[: self.part - 1])), int(np.prod(sizes[self.part :]))

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return self.side.combine(self.side.others(self.part, change), self._M)

    def _back(self, slopes: Floats, squared: bool) -> Floats:
        seen = np.empty((len(slopes), self.side.width), np.float32)
        _meet_slopes(self._M, np.ascontiguousarray(slopes), self.side.first, squared, seen)
        k = self.values.shape[1]
        rest = self._rest.reshape(-1, self._before, self._after)
        parts = seen.reshape(-1, self._before, k, self._after)
        return self._sums(np.einsum("rbka,rba->rk", parts, np.square(rest) if squared else rest))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return self._back(slopes, False)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`; exact for two parts, and for more a sum of squares in place of the square of a sum."""
        return self._back(diagonal, True)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        unit = np.zeros_like(self.values)
        unit[:, j] = 1
        return self.forward(unit), np.arange(self.side.core.shape[1])


# --- factorization machine -------------------------------------------------------------------------------------------


class FeatureSum(Side):
    """One side of a factorization machine: [q, bias, 1] or [q, 1, bias], by where the bias of this side stands.

        q = Σ_g x_g v_g,   bias = w₀ + Σ_g x_g w_g + ½(‖q‖² − Σ_g x_g²‖v_g‖²)

    The last term, every product of two features of this side, is left out with `same_side_pairs=False`.

    Args:
        X: rows × features.
        spans: the columns of each field; where every row has one entry of a field at most, its features are solved for
            in parallel, each by itself.
        values: a row for each feature: v_g, then w_g.
        offset: w₀, one number; None for items.
        same_side_pairs: see above.
    """

    def __init__(
        self, X: SparseRows, spans: Sequence[slice], values: Floats, offset: Floats | None, same_side_pairs: bool = True
    ) -> None:
        self.X, self.spans, self.values, self.offset, self.same_side_pairs = X, spans, values, offset, same_side_pairs
        self.parameters = [values] if offset is None else [values, offset]
        self.priors, self.ridges = [0.0] * len(self.parameters), []
        self.dim = values.shape[1] - 1
        self.bias = self.dim + (offset is None)  # where this side's bias is; the other of the two columns is 1
        self._matrix = _csr(X)
        self._classes: dict[bool, list[_FeatureGroup]] = {}

    def embeddings(self) -> Floats:
        """See `Side`."""
        d, X = self.dim, self._matrix
        out = np.ones((X.shape[0], d + 2), np.float32)
        out[:, :d] = X @ self.values[:, :d]
        bias = X @ self.values[:, d]
        if self.same_side_pairs:
            lengths = np.einsum("gd,gd->g", self.values[:, :d], self.values[:, :d])
            bias += 0.5 * (np.einsum("rd,rd->r", out[:, :d], out[:, :d]) - X.multiply(X) @ lengths)
        out[:, self.bias] = bias if self.offset is None else bias + self.offset[0, 0]
        return out

    def blocks(self, Phi: Floats, *, apart: bool, last: bool = False) -> Iterator[Block]:
        """w₀; then sets of features of which every row has one at most, or, where nothing forbids it, whole fields.

        Fields come in their reverse order: ids are first among them, and so last here.
        """
        if self.offset is not None and not last:
            everyone = np.zeros(len(Phi), np.int64)
            yield OffsetBlock(self.offset, self.ridges[1], 0.0, None, everyone, self.dim + 2, self.bias)
        sets = self._sets(apart or self.same_side_pairs)
        for one in sets[-1:] if last else sets:
            values = self.values[one.columns]
            block: Block
            if one.groups is None:
                block = JointBlock(values, self.ridges[0][one.columns], 0.0, one.rows, None, one.X, self.bias)
            else:
                assert one.sums is not None
                rest = np.zeros((len(one.groups), self.dim), np.float32)
                if self.same_side_pairs:
                    rows = np.arange(len(rest)) if one.rows is None else one.rows
                    _without(Phi, rows, one.groups, one.x, values, rest)
                block = FeatureBlock(
                    values, self.ridges[0][one.columns], 0.0, one.rows, one.groups, one.x, rest, self.bias, one.sums
                )
            yield block
            self.values[one.columns] = values

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """λ·(Σ x²·size over the rows that have a feature)^ν; w₀ counts as one that all have."""
        X = self._matrix
        self.ridges = [ridge_of(X.multiply(X).T @ sizes, strength, exponent)]
        if self.offset is not None:
            self.ridges.append(ridge_of(sizes.sum(keepdims=True), strength, exponent))

    def _sets(self, apart: bool) -> list[_FeatureGroup]:
        """Which features are solved for together."""
        if apart not in self._classes:
            found = []
            for span in reversed(self.spans):
                X = self._matrix[:, span]
                if not X.nnz:
                    continue
                several = int(np.diff(X.indptr).max()) > 1
                if several and not apart:
                    found.append(
                        _FeatureGroup(np.arange(span.start, span.stop), None, None, X, np.empty(0, np.float32), None)
                    )
                    continue
                columns = X.tocsc()
                colours = _coloured(X.indptr, X.indices, columns.indptr, columns.indices) if several else None
                for colour in range(1 if colours is None else int(colours.max()) + 1):
                    chosen = np.arange(X.shape[1]) if colours is None else np.flatnonzero(colours == colour)
                    found.append(_class_of(columns, chosen, span.start, len(self.X.indptr) - 1))
            self._classes[apart] = found
        return self._classes[apart]


@dataclass(frozen=True, eq=False)
class _FeatureGroup:
    """Features that are solved for together."""

    columns: npt.NDArray[np.int64]  # among all features
    rows: npt.NDArray[np.int64] | None  # that have one of them; None for all
    groups: Integers | None  # which of `columns` a row has
    X: Any  # rows × columns, where there are no groups
    x: Floats  # the row's value of it
    sums: GroupSums | None


def _class_of(columns: Any, chosen: npt.NDArray[np.int64], start: int, n_rows: int) -> _FeatureGroup:
    """Features of which no row has two. `columns` is a field's matrix by columns; `start` its first column of all."""
    part = columns[:, chosen].tocsc()
    rows = part.indices.astype(np.int64)
    groups = np.repeat(np.arange(len(chosen)), np.diff(part.indptr))
    order = np.argsort(rows, kind="stable")
    rows, groups, x = rows[order], groups[order], part.data[order].astype(np.float32)
    some = None if len(rows) == n_rows else rows
    return _FeatureGroup(chosen + start, some, groups, None, x, GroupSums(groups, len(chosen)))


def _csr(rows: SparseRows) -> sp.csr_array:
    import scipy.sparse as sp

    values = np.ones(len(rows), np.float32) if rows.values is None else rows.values
    return sp.csr_array((values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_columns))


@kernel
def _coloured(indptr: Array, indices: Array, column_indptr: Array, column_indices: Array) -> Array:
    """A colour for each column, such that no row has two of one colour: the first that is free, in their order."""
    n = len(column_indptr) - 1
    colours = np.full(n, -1, np.int64)
    taken = np.full(n + 1, -1, np.int64)  # by which column a colour was last found taken
    for g in range(n):
        for e in range(column_indptr[g], column_indptr[g + 1]):
            r = column_indices[e]
            for k in range(indptr[r], indptr[r + 1]):
                if colours[indices[k]] >= 0:
                    taken[colours[indices[k]]] = g
        colour = 0
        while taken[colour] == g:
            colour += 1
        colours[g] = colour
    return colours


@fast_kernel
def _without(Phi: Array, rows: Array, groups: Array, x: Array, values: Array, rest: Array) -> None:
    """The q of rows without one feature of theirs."""
    for r in range(len(rows)):
        c, g = rows[r], groups[r]
        for f in range(rest.shape[1]):
            rest[r, f] = Phi[c, f] - x[r] * values[g, f]


@fast_kernel
def _feature_forward(change: Array, groups: Array, x: Array, rest: Array, bias: int, out: Array) -> None:
    d = rest.shape[1]
    for r in range(len(groups)):
        g = groups[r]
        total = change[g, d]
        for f in range(d):
            out[r, f] = x[r] * change[g, f]
            total += rest[r, f] * change[g, f]
        out[r, d] = out[r, d + 1] = 0
        out[r, bias] = x[r] * total


@fast_kernel
def _feature_back(indptr: Array, order: Array, slopes: Array, x: Array, rest: Array, bias: int, out: Array) -> None:
    d = rest.shape[1]
    total = np.zeros(d + 1)
    for g in range(len(indptr) - 1):
        total[:] = 0.0
        for e in range(indptr[g], indptr[g + 1]):
            r = order[e]
            b = x[r] * slopes[r, bias]
            for f in range(d):
                total[f] += x[r] * slopes[r, f] + b * rest[r, f]
            total[d] += b
        for f in range(d + 1):
            out[g, f] = total[f]


@dataclass(eq=False)
class FeatureBlock(Block):
    """Features of which each row has one: v moves q by x·v, and the bias by x·(w + ⟨rest, v⟩)."""

    groups: Integers  # there always are some
    x: Floats
    rest: Floats  # q without this feature, 0 where features of a side do not meet
    bias: int
    sums: GroupSums

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        out = np.empty((len(self.groups), self.rest.shape[1] + 2), np.float32)
        _feature_forward(np.ascontiguousarray(change), self.groups, self.x, self.rest, self.bias, out)
        return out

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        out = np.zeros((len(self.values), self.rest.shape[1] + 1), np.float32)
        order = self.sums
        _feature_back(order.indptr, order.order, np.ascontiguousarray(slopes), self.x, self.rest, self.bias, out)
        return out

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        d = self.rest.shape[1]
        seen = np.empty((len(diagonal), d + 1), np.float32)
        seen[:, d] = diagonal[:, self.bias]
        seen[:, :d] = diagonal[:, :d] + seen[:, d:] * self.rest * self.rest
        return self.sums(seen * (self.x * self.x)[:, None])

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        if j == self.rest.shape[1]:
            return self.x[:, None], np.array([self.bias])
        return np.stack([self.x, self.x * self.rest[:, j]], axis=1), np.array([j, self.bias])


@dataclass(eq=False)
class JointBlock(Block):
    """Features of which a row may have several, which do not meet in the bias: J is the matrix X."""

    X: Any
    bias: int

    def __post_init__(self) -> None:
        self._transposed = self.X.T.tocsr()
        self._squared = self._transposed.multiply(self._transposed).tocsr()

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        own = self.X @ change
        d = own.shape[1] - 1
        out = np.zeros((len(own), d + 2), np.float32)
        out[:, :d], out[:, self.bias] = own[:, :d], own[:, d]
        return out

    def _seen(self, X: Any, slopes: Floats) -> Floats:
        d = slopes.shape[1] - 2
        return np.asarray(X @ np.ascontiguousarray(slopes[:, [*range(d), self.bias]]))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return self._seen(self._transposed, slopes)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        return self._seen(self._squared, diagonal)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Rows have several of these features, so there is none."""
        raise NotImplementedError


@dataclass(eq=False)
class OffsetBlock(Block):
    """w₀, which moves the bias of every row."""

    width: int
    bias: int

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        assert self.groups is not None
        out = np.zeros((len(self.groups), self.width), np.float32)
        out[:, self.bias] = change[0, 0]
        return out

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return np.full((1, 1), slopes[:, self.bias].sum(dtype=np.float64), np.float32)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        return self.back(diagonal)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        assert self.groups is not None
        return np.ones((len(self.groups), 1), np.float32), np.array([self.bias])


# --- factors with a prior from features ------------------------------------------------------------------------------


class FeaturePrior(Side):
    """An embedding for each row, drawn towards what its features say: λ_c‖w_c − Aᵀx_c‖², and μ‖A‖².

    Args:
        values: w, rows × d.
        X: rows × features; a constant is added to them.
        maps: A, (1 + features) × d; its first row belongs to the constant.
        strength: μ in multiples of the mean λ_c: how many rows weigh as much as the wish that A be 0.
    """

    def __init__(self, values: Floats, X: SparseRows, maps: Floats, strength: float = 1.0) -> None:
        import scipy.sparse as sp

        self.parameters, self.ridges = [values, maps], []
        self._strength = strength
        constant = sp.csr_array(np.ones((X.n_rows, 1), np.float32))
        self._X = sp.csr_array(sp.hstack([constant, _csr(X)], format="csr"))
        self._turned = self._X.T.tocsr()
        self.priors = [self.told(), 0.0]

    def unpack(self, packed: Floats) -> None:
        """See `Side`."""
        super().unpack(packed)
        self.priors[0] = self.told()

    def told(self) -> Floats:
        """Aᵀx of every row: what its features say."""
        return np.asarray(self._X @ self.parameters[1])

    def embeddings(self) -> Floats:
        """See `Side`."""
        return self.parameters[0].copy()

    def blocks(self, Phi: Floats, *, apart: bool, last: bool = False) -> Iterator[Block]:
        """One; A is set by `settle`."""
        yield TableBlock(self.parameters[0], self.ridges[0], self.priors[0], None, np.arange(len(Phi)))

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """λ·size^ν for w; μ for A, but for its constant, which is free."""
        own = ridge_of(sizes, strength, exponent)
        of_maps = np.full((len(self.parameters[1]), 1), self._strength * float(own.mean()), np.float32)
        of_maps[0] = 0
        self.ridges = [own, of_maps]

    def settle(self) -> None:
        """The ridge regression of w on the features: (XᵀΛX + μ)A = XᵀΛw, by conjugate gradients from the last A."""
        w, A = self.parameters
        own, of_maps = self.ridges
        X, turned = self._X, self._turned

        def apply(P: Floats) -> Floats:
            return np.asarray(turned @ (own * (X @ P)) + of_maps * P)

        residual = turned @ (own * w) - apply(A)
        diagonal = turned.multiply(turned) @ own + of_maps
        inverse = np.divide(1, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        P = inverse * residual
        size = np.einsum("gd,gd->d", residual, P)
        first = np.einsum("gd,gd->d", turned @ (own * w), inverse * (turned @ (own * w)))
        for _ in range(_MOST_STEPS):
            if (size <= _NEAR * first).all():
                break
            turn = apply(P)
            along = np.einsum("gd,gd->d", P, turn)
            step = np.divide(size, along, out=np.zeros_like(size), where=along > 0)
            A += step * P
            residual -= step * turn
            scaled = inverse * residual
            new = np.einsum("gd,gd->d", residual, scaled)
            P = scaled + np.divide(new, size, out=np.zeros_like(size), where=size > 0) * P
            size = new
        self.priors[0] = self.told()


_MOST_STEPS = 200  # of a ridge regression that starts from the last result
_NEAR = 1e-12  # of the squared size of its right side, where it ends: what float32 can reach
