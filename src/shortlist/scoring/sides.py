"""Multilinear embeddings: linear in each of several blocks of parameters (section 5.1.2 of the article).

A *side* computes the embeddings Φ of all contexts, or of all items, from its parameters. A *block* θ (groups × k) is a
part of the parameters in which Φ is linear while the other blocks are fixed: Φ = Jθ + rest. It is the article's θ̃, and
J is its ∇φ.
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
        values: θ; solvers change it in place.
        ridge: the λ of ridge·‖θ − prior‖² in the loss; by group, with k columns or one column for all.
        prior: see `ridge`.
        rows: the rows of Φ that depend on the block, None for all.
        groups: the only group that each of these rows depends on; None if rows depend on several groups, so that groups
            cannot be solved independently.
    """

    values: Floats
    ridge: Floats
    prior: Floats | float
    rows: npt.NDArray[np.int64] | None
    groups: Integers | None

    @abstractmethod
    def forward(self, change: Floats) -> Floats:
        """Return J·change: the change of the rows when θ changes by `change`."""

    @abstractmethod
    def back(self, slopes: Floats) -> Floats:
        """Return Jᵀ·slopes: the slopes of θ, given the slopes of the rows."""

    @abstractmethod
    def squared_transpose(self, diagonal: Floats) -> Floats:
        """Return (J∘J)ᵀ·diagonal: the diagonal of JᵀDJ."""

    @abstractmethod
    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the change of each row when column j of its group grows by 1, and the coordinates that change.

        The first array has a column for each of these coordinates. Needs `groups`; for coordinate descent.
        """


class Side(ABC):
    """The embeddings of all contexts, or of all items, as a function of `parameters`, which solvers change in place."""

    parameters: list[Floats]
    ridges: list[Floats]  # of each parameter array, as in `Block`; set by `regularize`
    priors: list[Floats | float]
    threads: int | None = None

    @abstractmethod
    def embeddings(self) -> Floats:
        """Return Φ for the current parameters."""

    @abstractmethod
    def blocks(self, Phi: Floats, *, grouped: bool, last: bool = False) -> Iterator[Block]:
        """Yield the blocks one after the other; each takes the changes of the previous blocks into account.

        Args:
            Phi: the embeddings; the caller must update them after changing a block.
            grouped: yield only blocks with groups.
            last: yield only the last block: the ids, or the ids of the first part.
        """

    @abstractmethod
    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set `ridges` to λ·size^ν, where a group's size is the sum of the sizes of its rows."""

    def settle(self) -> None:
        """Set parameters that only the regularizer depends on, if there are any, to their minimum."""
        return

    def penalty(self) -> float:
        """Return Σ ridge·(θ − prior)²."""
        return sum(
            float((ridge * np.square(values - prior, dtype=np.float64)).sum())
            for values, ridge, prior in zip(self.parameters, self.ridges, self.priors)
        )

    def packed(self) -> Floats:
        """Return all parameters in one column."""
        return np.concatenate([array.reshape(-1, 1) for array in self.parameters])

    def unpack(self, packed: Floats) -> None:
        """Set the parameters from the result of `packed`."""
        start = 0
        for array in self.parameters:
            array[...] = packed[start : start + array.size].reshape(array.shape)
            start += array.size


def packed_size(shapes: Sequence[tuple[int, int]]) -> int:
    """Return the total size of parameters with these shapes."""
    return sum(rows * columns for rows, columns in shapes)


def unpacked(packed: Floats, shapes: Sequence[tuple[int, int]]) -> list[Floats]:
    """Return copies of the parameters with these shapes."""
    out, start = [], 0
    flat = packed.reshape(-1)
    for rows, columns in shapes:
        out.append(flat[start : start + rows * columns].reshape(rows, columns).copy())
        start += rows * columns
    return out


def ridge_of(sizes: npt.NDArray[Any], strength: float, exponent: float) -> Floats:
    """Return λ·size^ν of each group."""
    return (strength * sizes**exponent).astype(np.float32)[:, None]


class GroupSums:
    """Sums over the rows of each group, in the order of the rows."""

    def __init__(self, groups: Integers, n_groups: int) -> None:
        numbers = np.arange(len(groups), dtype=np.int32)
        self.indptr, self.order = by_key(groups.astype(np.int32, copy=False), numbers, n_groups)

    def __call__(self, X: Floats) -> Floats:
        """Return the sum of the rows of X in each group."""
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
    """Matrix factorization: an embedding for each row."""

    def __init__(self, values: Floats, prior: Floats | float = 0.0) -> None:
        self.parameters, self.priors, self.ridges = [values], [prior], []

    def embeddings(self) -> Floats:
        """Return a copy of the table."""
        return self.parameters[0].copy()

    def blocks(self, Phi: Floats, *, grouped: bool, last: bool = False) -> Iterator[Block]:
        """Yield the only block."""
        yield TableBlock(self.parameters[0], self.ridges[0], self.priors[0], None, np.arange(len(Phi)))

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set the ridge to λ·size^ν."""
        self.ridges = [ridge_of(sizes, strength, exponent)]


class TableBlock(Block):
    """A block in which J is the identity."""

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
    """PARAFAC: φ(c) = u_a ∘ t_b ∘ …, the elementwise product of the embeddings of the parts of c = (a, b, …).

    Args:
        codes: the parts of each row, rows × parts.
        tables: the embeddings of each part, all with d columns.
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

    def blocks(self, Phi: Floats, *, grouped: bool, last: bool = False) -> Iterator[Block]:
        """Yield a block for each part; the first part comes last, because fold-in solves for it."""
        for part in range(0 if last else len(self.parameters) - 1, -1, -1):
            rest = self._product([k for k in range(len(self.parameters)) if k != part])
            groups = self.codes[:, part]
            yield ScaledBlock(self.parameters[part], self.ridges[part], self.priors[part], None, groups, rest)

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set the ridge of each id to λ·(sum of the sizes of its rows)^ν."""
        self.ridges = [
            ridge_of(np.bincount(self.codes[:, part], sizes, len(table)), strength, exponent)
            for part, table in enumerate(self.parameters)
        ]


@dataclass(eq=False)
class ScaledBlock(Block):
    """A block in which J scales coordinates: row c changes by change[group] ∘ rest."""

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
    """Tucker: φ(c) = core ×₁ u_a ×₂ t_b …, all products of one coordinate of each part, times a matrix.

    Let o_c be the K products of the coordinates of all parts except the first, and M_a = u_a·core (K × d). Then
    φ(c) = o_c·M_a. M is computed once for each id of the first part, which has the most ids, not once for each context.

    Args:
        codes: the parts of each row, rows × parts.
        tables: the embeddings of each part, with k₁, k₂, … columns.
        core: k₁k₂… × d.
    """

    def __init__(self, codes: Integers, tables: list[Floats], core: Floats) -> None:
        self.codes, self.tables, self.core = codes, tables, core
        self.parameters, self.ridges = [*tables, core], []
        priors = [np.zeros((1, table.shape[1]), np.float32) for table in tables[1:]]
        for prior in priors:
            prior[0, 0] = 1
        self.priors = [0.0, *priors, neutral_core([table.shape[1] for table in tables], core.shape[1])]
        self.first = codes[:, 0].astype(np.int64)
        self.sums = GroupSums(self.first, len(tables[0]))

    @property
    def width(self) -> int:
        """K, the number of products of coordinates of all parts except the first."""
        return len(self.core) // int(self.tables[0].shape[1])

    def products(self, part: int | None = None, change: Floats | None = None) -> Floats:
        """Return o of every row, rows × K; with `part`, `change` replaces its table, or the part is omitted."""
        out = np.ones((len(self.codes), 1), np.float32)
        for k, table in enumerate(self.tables[1:], start=1):
            if k == part and change is None:
                continue
            factor = (table if change is None or k != part else change)[self.codes[:, k]]
            out = (out[:, :, None] * factor[:, None, :]).reshape(len(out), -1)
        return out

    def maps(self, u: Floats, core: Floats) -> Floats:
        """Return M of every id of the first part, ids × Kd."""
        return np.asarray(u @ core.reshape(u.shape[1], -1))

    def combine(self, products: Floats, M: Floats) -> Floats:
        """Return o_c·M_a of every row."""
        out = np.empty((len(self.codes), self.core.shape[1]), np.float32)
        self._in_chunks(len(out), lambda start, stop: _combine(products, M, self.first, out, start, stop))
        return out

    def outer_sums(self, products: Floats, slopes: Floats) -> Floats:
        """Return Σ_c o_c ⊗ slope_c over the rows of each id of the first part, ids × Kd."""
        out = np.zeros((len(self.tables[0]), self.width * slopes.shape[1]), np.float32)
        slopes = np.ascontiguousarray(slopes)
        bounds, order = self.sums.indptr, self.sums.order
        self._in_chunks(len(out), lambda start, stop: _add_outer(bounds, order, products, slopes, out, start, stop))
        return out

    def _in_chunks(self, n: int, work: Callable[[int, int], object]) -> None:
        n_chunks = 8 * thread_count(self.threads)
        bounds = [n * k // n_chunks for k in range(n_chunks + 1)]
        run_chunks(work, [(a, b) for a, b in pairwise(bounds) if a < b], self.threads)

    @cached_property
    def combinations(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The rows grouped by the parts after the first: bounds, an example of each group, and rows in that order."""
        number = np.zeros(len(self.codes), np.int64)
        for k, table in enumerate(self.tables[1:], start=1):
            number = number * len(table) + self.codes[:, k]
        distinct, example, which = np.unique(number, return_index=True, return_inverse=True)
        rows = np.arange(len(number), dtype=np.int32)
        indptr, order = by_key(which.reshape(-1).astype(np.int32), rows, len(distinct))
        return indptr, example, order

    def embeddings(self) -> Floats:
        """See `Side`."""
        return self.combine(self.products(), self.maps(self.tables[0], self.core))

    def blocks(self, Phi: Floats, *, grouped: bool, last: bool = False) -> Iterator[Block]:
        """Yield the core, then the parts; the first part comes last."""
        if not last:
            ridge, prior = (
                np.broadcast_to(array, self.core.shape).reshape(1, -1) for array in (self.ridges[-1], self.priors[-1])
            )
            yield CoreBlock(self.core.reshape(1, -1), ridge, prior, None, np.zeros(len(Phi), np.int64), self)
            for part in range(len(self.tables) - 1, 0, -1):
                ridge, prior_ = self.ridges[part], self.priors[part]
                yield PartBlock(self.tables[part], ridge, prior_, None, self.codes[:, part], self, part)
        yield FirstBlock(self.tables[0], self.ridges[0], self.priors[0], None, self.first, self)

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set the ridge of each id to λ·(sum of the sizes of its rows)^ν; for the core, the sum is over all rows."""
        self.ridges = [
            ridge_of(np.bincount(self.codes[:, part], sizes, len(table)), strength, exponent)
            for part, table in enumerate(self.tables)
        ]
        self.ridges.append(ridge_of(np.full(len(self.core), sizes.sum()), strength, exponent))


def neutral_core(ranks: Sequence[int], dim: int) -> Floats:
    """Return the core that makes the model a matrix factorization, if the other parts' first coordinate is 1."""
    core = np.zeros((*ranks, dim), np.float32)
    core.reshape(ranks[0], -1, dim)[:, 0] = np.eye(ranks[0], dim)
    return core.reshape(-1, dim)


@fast_kernel
def _combine(products: Array, M: Array, first: Array, out: Array, start: int, stop: int) -> None:
    d = out.shape[1]
    for r in range(start, stop):
        row = M[first[r]]
        for f in range(d):
            out[r, f] = 0
        for k in range(products.shape[1]):
            for f in range(d):
                out[r, f] += products[r, k] * row[k * d + f]


@fast_kernel
def _add_outer(indptr: Array, order: Array, products: Array, slopes: Array, out: Array, start: int, stop: int) -> None:
    d = slopes.shape[1]
    for g in range(start, stop):
        row = out[g]
        for e in range(indptr[g], indptr[g + 1]):
            r = order[e]
            for k in range(products.shape[1]):
                for f in range(d):
                    row[k * d + f] += products[r, k] * slopes[r, f]


@fast_kernel
def _map_slopes(M: Array, slopes: Array, first: Array, squared: bool, out: Array) -> None:
    """Set `out` to M_a·slope of every row, rows × K; with `squared`, use the squares of M's entries."""
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
    """The core of a Tucker model: M, and so Φ, is linear in it."""

    side: TuckerSide

    def __post_init__(self) -> None:
        self._products = self.side.products()

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return self.side.combine(self._products, self.side.maps(self.side.tables[0], change))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`. BLAS runs on one thread, because more threads sum over rows in a different order."""
        by_id = self.side.outer_sums(self._products, slopes)
        with single_threaded_blas():
            return np.asarray(self.side.tables[0].T @ by_id).reshape(1, -1)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        by_id = self.side.outer_sums(np.square(self._products), diagonal)
        with single_threaded_blas():
            return np.asarray(np.square(self.side.tables[0]).T @ by_id).reshape(1, -1)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        k, f = divmod(j, self.side.core.shape[1])
        a, o = divmod(k, self.side.width)
        return (self.side.tables[0][self.side.first, a] * self._products[:, o])[:, None], np.array([f])


@dataclass(eq=False)
class FirstBlock(Block):
    """The first part of a Tucker model."""

    groups: Integers
    side: TuckerSide

    def __post_init__(self) -> None:
        self._products = self.side.products()
        self._core = self.side.core.reshape(self.values.shape[1], -1)

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return self.side.combine(self._products, self.side.maps(change, self.side.core))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return np.asarray(self.side.outer_sums(self._products, slopes) @ self._core.T)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`; rows with the same other parts have the same J."""
        k, d = self.values.shape[1], self.side.core.shape[1]
        indptr, example, order = self.side.combinations
        by_product = self._core.reshape(k, -1, d).transpose(1, 0, 2).reshape(-1, k * d)
        out = np.zeros((len(diagonal), k), np.float32)
        for o in range(len(example)):
            rows = order[indptr[o] : indptr[o + 1]]
            J = (self._products[example[o]] @ by_product).reshape(k, d)
            out[rows] = diagonal[rows] @ np.square(J).T
        return self.side.sums(out)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        d = self.side.core.shape[1]
        return np.asarray(self._products @ self._core[j].reshape(-1, d)), np.arange(d)


@dataclass(eq=False)
class PartBlock(Block):
    """A part of a Tucker model after the first: o is linear in it."""

    groups: Integers
    side: TuckerSide
    part: int

    def __post_init__(self) -> None:
        self._sums = GroupSums(self.groups, len(self.values))
        self._M = self.side.maps(self.side.tables[0], self.side.core)
        self._rest = self.side.products(self.part)
        sizes = [table.shape[1] for table in self.side.tables[1:]]
        self._before, self._after = int(np.prod(sizes[: self.part - 1])), int(np.prod(sizes[self.part :]))

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        return self.side.combine(self.side.products(self.part, change), self._M)

    def _back(self, slopes: Floats, squared: bool) -> Floats:
        mapped = np.empty((len(slopes), self.side.width), np.float32)
        _map_slopes(self._M, np.ascontiguousarray(slopes), self.side.first, squared, mapped)
        k = self.values.shape[1]
        rest = self._rest.reshape(-1, self._before, self._after)
        parts = mapped.reshape(-1, self._before, k, self._after)
        return self._sums(np.einsum("rbka,rba->rk", parts, np.square(rest) if squared else rest))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return self._back(slopes, False)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`; exact for two parts; with more, a sum of squares replaces the square of a sum."""
        return self._back(diagonal, True)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        unit = np.zeros_like(self.values)
        unit[:, j] = 1
        return self.forward(unit), np.arange(self.side.core.shape[1])


# --- factorization machine -------------------------------------------------------------------------------------------


class FeatureSum(Side):
    """One side of a factorization machine: embeddings [q, bias, 1] or [q, 1, bias].

        q = Σ_g x_g v_g,   bias = w₀ + Σ_g x_g w_g + ½(‖q‖² − Σ_g x_g²‖v_g‖²)

    The last term sums the interactions between features of this side; `same_side_pairs=False` drops it.

    Args:
        X: rows × features.
        spans: the columns of each field. If every row has at most one entry of a field, its features are independent
            and solved in parallel.
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
        self.bias = self.dim + (offset is None)  # column of this side's bias; the other of the last two columns is 1
        self._matrix = _csr(X)
        self._groups: dict[bool, list[_FeatureGroup]] = {}

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

    def blocks(self, Phi: Floats, *, grouped: bool, last: bool = False) -> Iterator[Block]:
        """Yield w₀, then sets of features of which every row has at most one, or whole fields if that is possible.

        Fields are in reverse order: ids are the first field, so they come last.
        """
        if self.offset is not None and not last:
            one_group = np.zeros(len(Phi), np.int64)
            yield OffsetBlock(self.offset, self.ridges[1], 0.0, None, one_group, self.dim + 2, self.bias)
        features = self._feature_groups(grouped or self.same_side_pairs)
        for group in features[-1:] if last else features:
            values, ridge = self.values[group.columns], self.ridges[0][group.columns]
            block: Block
            if group.groups is None:
                block = JointBlock(values, ridge, 0.0, group.rows, None, group.X, self.bias)
            else:
                assert group.sums is not None
                rest = np.zeros((len(group.groups), self.dim), np.float32)
                if self.same_side_pairs:
                    rows = np.arange(len(rest)) if group.rows is None else group.rows
                    _subtract_features(Phi, rows, group.groups, group.x, values, rest)
                block = FeatureBlock(values, ridge, 0.0, group.rows, group.groups, group.x, rest, self.bias, group.sums)
            yield block
            self.values[group.columns] = values

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set the ridge of each feature to λ·(Σ x²·size over its rows)^ν; w₀ counts as a feature of all rows."""
        X = self._matrix
        self.ridges = [ridge_of(X.multiply(X).T @ sizes, strength, exponent)]
        if self.offset is not None:
            self.ridges.append(ridge_of(sizes.sum(keepdims=True), strength, exponent))

    def _feature_groups(self, grouped: bool) -> list[_FeatureGroup]:
        """Return the groups of features that are solved for together."""
        if grouped not in self._groups:
            feature_groups = []
            for span in reversed(self.spans):
                X = self._matrix[:, span]
                if not X.nnz:
                    continue
                several = int(np.diff(X.indptr).max()) > 1
                if several and not grouped:
                    columns = np.arange(span.start, span.stop)
                    feature_groups.append(_FeatureGroup(columns, None, None, X, np.empty(0, np.float32), None))
                    continue
                by_column = X.tocsc()
                colours = _colour_columns(X.indptr, X.indices, by_column.indptr, by_column.indices) if several else None
                for colour in range(1 if colours is None else int(colours.max()) + 1):
                    chosen = np.arange(X.shape[1]) if colours is None else np.flatnonzero(colours == colour)
                    feature_groups.append(_grouped_features(by_column, chosen, span.start, len(self.X.indptr) - 1))
            self._groups[grouped] = feature_groups
        return self._groups[grouped]


@dataclass(frozen=True, eq=False)
class _FeatureGroup:
    """Features that are solved for together."""

    columns: npt.NDArray[np.int64]  # the columns of these features in X
    rows: npt.NDArray[np.int64] | None  # the rows that have one of them; None for all
    groups: Integers | None  # the index in `columns` of each row's feature
    X: Any  # rows × columns, if there are no groups
    x: Floats  # the value of each row's feature
    sums: GroupSums | None


def _grouped_features(by_column: Any, chosen: npt.NDArray[np.int64], start: int, n_rows: int) -> _FeatureGroup:
    """Group features of which no row has two; `by_column` is the matrix of a field that starts at column `start`."""
    part = by_column[:, chosen].tocsc()
    rows = part.indices.astype(np.int64)
    groups = np.repeat(np.arange(len(chosen)), np.diff(part.indptr))
    order = np.argsort(rows, kind="stable")
    rows, groups, x = rows[order], groups[order], part.data[order].astype(np.float32)
    return _FeatureGroup(
        chosen + start, None if len(rows) == n_rows else rows, groups, None, x, GroupSums(groups, len(chosen))
    )


def _csr(rows: SparseRows) -> sp.csr_array:
    import scipy.sparse as sp

    values = np.ones(len(rows), np.float32) if rows.values is None else rows.values
    return sp.csr_array((values, rows.indices, rows.indptr), shape=(rows.n_rows, rows.n_columns))


@kernel
def _colour_columns(indptr: Array, indices: Array, column_indptr: Array, column_indices: Array) -> Array:
    """Return a colour for each column so that no row has two columns of one colour (greedy colouring)."""
    n = len(column_indptr) - 1
    colours = np.full(n, -1, np.int64)
    taken = np.full(n + 1, -1, np.int64)  # the last column for which a colour was already taken
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
def _subtract_features(Phi: Array, rows: Array, groups: Array, x: Array, values: Array, rest: Array) -> None:
    """Set `rest` to the q of each row without its feature of this group."""
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
    """Features of which each row has one: v changes q by x·v, and the bias by x·(w + ⟨rest, v⟩)."""

    groups: Integers  # never None
    x: Floats
    rest: Floats  # q without this feature, or 0 if features of a side do not interact
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
        by_row = np.empty((len(diagonal), d + 1), np.float32)
        by_row[:, d] = diagonal[:, self.bias]
        by_row[:, :d] = diagonal[:, :d] + by_row[:, d:] * self.rest * self.rest
        return self.sums(by_row * (self.x * self.x)[:, None])

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """See `Block`."""
        if j == self.rest.shape[1]:
            return self.x[:, None], np.array([self.bias])
        return np.stack([self.x, self.x * self.rest[:, j]], axis=1), np.array([j, self.bias])


@dataclass(eq=False)
class JointBlock(Block):
    """Features of which a row may have several and that do not interact in the bias: J is the matrix X."""

    X: Any
    bias: int

    def __post_init__(self) -> None:
        self._transposed = self.X.T.tocsr()
        self._squared = self._transposed.multiply(self._transposed).tocsr()

    def forward(self, change: Floats) -> Floats:
        """See `Block`."""
        moved = self.X @ change
        d = moved.shape[1] - 1
        out = np.zeros((len(moved), d + 2), np.float32)
        out[:, :d], out[:, self.bias] = moved[:, :d], moved[:, d]
        return out

    def _product(self, X: Any, slopes: Floats) -> Floats:
        d = slopes.shape[1] - 2
        return np.asarray(X @ np.ascontiguousarray(slopes[:, [*range(d), self.bias]]))

    def back(self, slopes: Floats) -> Floats:
        """See `Block`."""
        return self._product(self._transposed, slopes)

    def squared_transpose(self, diagonal: Floats) -> Floats:
        """See `Block`."""
        return self._product(self._squared, diagonal)

    def direction(self, j: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Raise NotImplementedError: rows have several of these features."""
        raise NotImplementedError


@dataclass(eq=False)
class OffsetBlock(Block):
    """w₀, which is added to the bias of every row."""

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
    """An embedding for each row with a prior mean from its features: λ_c‖w_c − Aᵀx_c‖² + μ‖A‖² in the loss.

    Args:
        values: w, rows × d.
        X: rows × features; a constant feature is added.
        maps: A, (1 + features) × d; its first row belongs to the constant.
        strength: μ in multiples of the mean λ_c; a larger value shrinks A more.
    """

    def __init__(self, values: Floats, X: SparseRows, maps: Floats, strength: float = 1.0) -> None:
        import scipy.sparse as sp

        self.parameters, self.ridges = [values, maps], []
        self._strength = strength
        constant = sp.csr_array(np.ones((X.n_rows, 1), np.float32))
        self._X = sp.csr_array(sp.hstack([constant, _csr(X)], format="csr"))
        self._transposed = self._X.T.tocsr()
        self.priors = [self.feature_means(), 0.0]

    def unpack(self, packed: Floats) -> None:
        """See `Side`."""
        super().unpack(packed)
        self.priors[0] = self.feature_means()

    def feature_means(self) -> Floats:
        """Return Aᵀx of every row, the prior mean of its embedding."""
        return np.asarray(self._X @ self.parameters[1])

    def embeddings(self) -> Floats:
        """See `Side`."""
        return self.parameters[0].copy()

    def blocks(self, Phi: Floats, *, grouped: bool, last: bool = False) -> Iterator[Block]:
        """Yield the block of w; A is set by `settle`."""
        yield TableBlock(self.parameters[0], self.ridges[0], self.priors[0], None, np.arange(len(Phi)))

    def regularize(self, sizes: npt.NDArray[np.float64], strength: float, exponent: float) -> None:
        """Set the ridge of w to λ·size^ν and the ridge of A to μ; the constant's row of A is not regularised."""
        of_rows = ridge_of(sizes, strength, exponent)
        of_maps = np.full((len(self.parameters[1]), 1), self._strength * float(of_rows.mean()), np.float32)
        of_maps[0] = 0
        self.ridges = [of_rows, of_maps]

    def settle(self) -> None:
        """Set A by ridge regression of w on the features: (XᵀΛX + μ)A = XᵀΛw, by conjugate gradients."""
        w, A = self.parameters
        of_rows, of_maps = self.ridges
        X, transposed = self._X, self._transposed

        def apply(P: Floats) -> Floats:
            return np.asarray(transposed @ (of_rows * (X @ P)) + of_maps * P)

        residual = transposed @ (of_rows * w) - apply(A)
        diagonal = transposed.multiply(transposed) @ of_rows + of_maps
        inverse = np.divide(1, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        P = inverse * residual
        size = np.einsum("gd,gd->d", residual, P)
        first = np.einsum("gd,gd->d", transposed @ (of_rows * w), inverse * (transposed @ (of_rows * w)))
        for _ in range(_MOST_STEPS):
            if (size <= _NEAR * first).all():
                break
            product = apply(P)
            along = np.einsum("gd,gd->d", P, product)
            step = np.divide(size, along, out=np.zeros_like(size), where=along > 0)
            A += step * P
            residual -= step * product
            scaled = inverse * residual
            new = np.einsum("gd,gd->d", residual, scaled)
            P = scaled + np.divide(new, size, out=np.zeros_like(size), where=size > 0) * P
            size = new
        self.priors[0] = self.feature_means()


_MOST_STEPS = 200  # maximum number of steps of a ridge regression, which starts from the last result
_NEAR = 1e-12  # converged at this fraction of the squared size of the right-hand side, the limit of float32
