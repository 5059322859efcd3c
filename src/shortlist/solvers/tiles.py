"""Products and Cholesky factorizations of small float32 matrices, built from square tiles in registers.

Each function works on one tile of a row-major matrix whose sides are padded to whole tiles. A tile is WIDTH rows of one
vector each. The docstrings give the equivalent NumPy code. All products run over the rows of both factors, AᵀB, so a
rank-k sum and a Cholesky factorization A = UᵀU use the same loop. It is bound by its multiply-adds: for WIDTH of them,
it loads one vector and WIDTH single numbers.

The code writes LLVM instructions, because no vectoriser finds this form in plain loops and BLAS targets larger
matrices. On Zen 4 at d = 128, a rank-128 sum took 21 µs and the factor 9 µs; OpenBLAS's SYRK and POTRF took 34 and
33 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.core.errors import TypingError

from shortlist._prefetch import intrinsic


def _width() -> int:
    """Return the width of a tile: 16 vectors of 16 use half of AVX-512's registers; 8 of 8 suit AVX2 and NEON."""
    try:
        return 16 if binding.get_host_cpu_features().get("avx512f") else 8
    except RuntimeError:  # LLVM does not know this processor's features
        return 8


WIDTH = _width()
cgutils: Any = _cgutils  # untyped
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_W = range(WIDTH)
_CHAINS = 4  # independent sums, so that an addition need not wait for the one before


class _Matrix:
    """A matrix of a kernel; its methods write instructions that load and store its vectors."""

    def __init__(self, write: _Writer, kind: Any, value: Any) -> None:
        array = write.context.make_array(kind)(write.context, write.builder, value)
        self._write, self._data = write, array.data
        self._stride = write.builder.extract_value(array.shape, kind.ndim - 1)

    def pointer(self, row: Any, column: Any) -> Any:
        builder = self._write.builder
        return builder.gep(self._data, [builder.add(builder.mul(row, self._stride), column)])

    def number(self, row: Any, column: Any) -> Any:
        return self._write.builder.load(self.pointer(row, column), align=4)

    def vector(self, row: Any, column: Any) -> Any:
        return self._write.builder.load(self._at(row, column), align=4)

    def set(self, row: Any, column: Any, vector: Any) -> None:
        self._write.builder.store(vector, self._at(row, column), align=4)

    def _at(self, row: Any, column: Any) -> Any:
        return self._write.builder.bitcast(self.pointer(row, column), _VECTOR.as_pointer())


class _Writer:
    """A writer of vector instructions."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder

    def _call(self, name: str, kind: Any, suffix: str, arguments: list[Any]) -> Any:
        signature = ir.FunctionType(kind, [kind] * len(arguments))
        function = cgutils.get_or_insert_function(self.builder.module, signature, f"llvm.{name}.{suffix}")
        return self.builder.call(function, arguments)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self._call("fmuladd", _VECTOR, f"v{WIDTH}f32", [a, b, c])

    def root(self, number: Any) -> Any:
        return self._call("sqrt", _FLOAT, "f32", [number])

    def plus(self, index: Any, r: int) -> Any:
        return self.builder.add(index, ir.Constant(index.type, r))

    def lane(self, vector: Any, r: int) -> Any:
        return self.builder.extract_element(vector, ir.Constant(_INT, r))

    def with_lane(self, vector: Any, r: int, number: Any) -> Any:
        return self.builder.insert_element(vector, number, ir.Constant(_INT, r))

    def lanes(self, a: Any, b: Any, chosen: list[int]) -> Any:
        """Return a vector of chosen lanes; the lanes of `a` are numbered from 0, those of `b` from WIDTH."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, WIDTH), chosen))

    def splat(self, number: Any) -> Any:
        first = self.with_lane(ir.Constant(_VECTOR, ir.Undefined), 0, number)
        return self.lanes(first, first, [0] * WIDTH)

    def tile(self, C: _Matrix, i: Any, j: Any) -> list[Any]:
        return [C.vector(self.plus(i, r), j) for r in _W]

    def set_tile(self, C: _Matrix, i: Any, j: Any, rows: list[Any]) -> None:
        for r in _W:
            C.set(self.plus(i, r), j, rows[r])

    @contextmanager
    def rows(self, tile: list[Any], count: Any) -> Iterator[tuple[Any, list[Any]]]:
        """Write a loop over k < count. The list carries values to the next iteration, and to `tile` at the end."""
        held = [cgutils.alloca_once_value(self.builder, row) for row in tile]
        with cgutils.for_range(self.builder, count) as loop:
            current = [self.builder.load(variable) for variable in held]
            yield loop.index, current
            for variable, row in zip(held, current):
                self.builder.store(row, variable)
        tile[:] = [self.builder.load(variable) for variable in held]

    def add_product(self, tile: list[Any], A: _Matrix, i: Any, B: _Matrix, j: Any, count: Any, minus: bool) -> None:
        with self.rows(tile, count) as (k, rows):
            right = B.vector(k, j)
            if minus:
                right = self.builder.fneg(right)
            for r in _W:
                rows[r] = self.multiply_add(self.splat(A.number(k, self.plus(i, r))), right, rows[r])

    def sum(self, vectors: list[Any]) -> Any:
        while len(vectors) > 1:
            vectors = [self.builder.fadd(a, b) for a, b in zip(vectors[::2], vectors[1::2])]
        return vectors[0]

    def in_tile(self, left: Any, vectors: list[Any], inverse: Any, order: list[int]) -> Any:
        """Solve a triangular system in this order of entries; subtract each entry times its vector from the rest."""
        solution = left
        for r in order:
            scaled = self.builder.fmul(left, inverse)
            solution = self.lanes(solution, scaled, [WIDTH + n if n == r else n for n in _W])
            entry = self.builder.fneg(self.lanes(scaled, scaled, [r] * WIDTH))
            left = self.multiply_add(entry, vectors[r], left)
        return solution

    def transposed(self, rows: list[Any]) -> list[Any]:
        """Return the transposed tile. In each of log₂(WIDTH) steps, pairs of rows exchange half of their lanes."""
        rows, half = list(rows), WIDTH // 2
        while half:
            for r in _W:
                if not r & half:
                    a, b = rows[r], rows[r + half]
                    rows[r] = self.lanes(a, b, [WIDTH + n - half if n & half else n for n in _W])
                    rows[r + half] = self.lanes(a, b, [WIDTH + n if n & half else n + half for n in _W])
            half //= 2
        return rows


def _on_tile(write_tile: Callable[..., None]) -> Callable[..., tuple[Any, Any]]:
    """Return a function for `intrinsic`; arrays become `_Matrix`, other arguments become indices."""

    def typed(*given: Any) -> tuple[Any, Any]:
        for kind in given:
            if isinstance(kind, types.Array) and (kind.dtype, kind.layout) != (types.float32, "C"):
                raise TypingError(f"the array is {kind}; expected a float32 array in row-major order")
        kinds = [kind if isinstance(kind, types.Array) else types.intp for kind in given]

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            write = _Writer(context, builder)
            arguments = [
                _Matrix(write, kind, value) if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args, values)
            ]
            write_tile(write, *arguments)
            return context.get_dummy_value()

        return types.none(*kinds), generate

    return typed


@intrinsic
def add_product(typing: Any, C: Any, i: Any, j: Any, A: Any, B: Any, count: Any) -> Any:
    """C[i:i+W, j:j+W] += A[:count, i:i+W].T @ B[:count, j:j+W]."""

    def write_tile(write: _Writer, C: _Matrix, i: Any, j: Any, A: _Matrix, B: _Matrix, count: Any) -> None:
        tile = write.tile(C, i, j)
        write.add_product(tile, A, i, B, j, count, minus=False)
        write.set_tile(C, i, j, tile)

    return _on_tile(write_tile)(C, i, j, A, B, count)


def _on_row(n: int) -> Callable[..., Any]:
    """Return `add_product` for one row of C and n vectors of its columns, with sums in the same order."""

    @intrinsic
    def add_row(typing: Any, C: Any, i: Any, j: Any, A: Any, B: Any, count: Any) -> Any:
        """C[i, j:j+n*W] += A[i, :count] @ B[:count, j:j+n*W]."""

        def write_row(write: _Writer, C: _Matrix, i: Any, j: Any, A: _Matrix, B: _Matrix, count: Any) -> None:
            columns = [write.plus(j, m * WIDTH) for m in range(n)]
            sums = [C.vector(i, column) for column in columns]
            with write.rows(sums, count) as (k, current):
                left = write.splat(A.number(i, k))
                for m, column in enumerate(columns):
                    current[m] = write.multiply_add(left, B.vector(k, column), current[m])
            for vector, column in zip(sums, columns):
                C.set(i, column, vector)

        return _on_tile(write_row)(C, i, j, A, B, count)

    intrinsic_row: Callable[..., Any] = add_row
    return intrinsic_row


ROW = 8  # vectors of `add_row`
add_row, add_vector = _on_row(ROW), _on_row(1)


@intrinsic
def factor(typing: Any, U: Any, i: Any, inverse: Any) -> Any:
    """U[i:i+W, i:i+W] = chol(U[i:i+W, i:i+W] − U[:i, i:i+W].T @ U[:i, i:i+W]), upper.

    Also sets inverse[i:i+W] = 1 / diagonal. Entries below the diagonal are rounding noise. A pivot ≤ 0 gives NaN.
    """

    def write_tile(write: _Writer, U: _Matrix, i: Any, inverse: _Matrix) -> None:
        tile = write.tile(U, i, i)
        write.add_product(tile, U, i, U, i, i, minus=True)
        inverses = ir.Constant(_VECTOR, ir.Undefined)
        for r in _W:
            reciprocal = write.builder.fdiv(ir.Constant(_FLOAT, 1.0), write.root(write.lane(tile[r], r)))
            inverses = write.with_lane(inverses, r, reciprocal)
            tile[r] = write.builder.fmul(tile[r], write.splat(reciprocal))
            minus = write.builder.fneg(tile[r])
            for s in range(r + 1, WIDTH):
                tile[s] = write.multiply_add(write.lanes(tile[r], tile[r], [s] * WIDTH), minus, tile[s])
        write.set_tile(U, i, i, tile)
        inverse.set(ir.Constant(i.type, 0), i, inverses)

    return _on_tile(write_tile)(U, i, inverse)


@intrinsic
def eliminate(typing: Any, U: Any, i: Any, j: Any, inverse: Any) -> Any:
    """U[i:i+W, j:j+W] = inv(U[i:i+W, i:i+W].T) @ (U[i:i+W, j:j+W] − U[:i, i:i+W].T @ U[:i, j:j+W])."""

    def write_tile(write: _Writer, U: _Matrix, i: Any, j: Any, inverse: _Matrix) -> None:
        tile = write.tile(U, i, j)
        write.add_product(tile, U, i, U, j, i, minus=True)
        for r in _W:
            reciprocal = inverse.number(ir.Constant(i.type, 0), write.plus(i, r))
            tile[r] = write.builder.fmul(tile[r], write.splat(reciprocal))
            minus = write.builder.fneg(tile[r])
            for s in range(r + 1, WIDTH):
                coefficient = U.number(write.plus(i, r), write.plus(i, s))
                tile[s] = write.multiply_add(write.splat(coefficient), minus, tile[s])
        write.set_tile(U, i, j, tile)

    return _on_tile(write_tile)(U, i, j, inverse)


@intrinsic
def transpose(typing: Any, C: Any, i: Any, j: Any, A: Any) -> Any:
    """C[i:i+W, j:j+W] = A[j:j+W, i:i+W].T."""

    def write_tile(write: _Writer, C: _Matrix, i: Any, j: Any, A: _Matrix) -> None:
        write.set_tile(C, i, j, write.transposed(write.tile(A, j, i)))

    return _on_tile(write_tile)(C, i, j, A)


@intrinsic
def substitute(typing: Any, U: Any, i: Any, inverse: Any, x: Any) -> Any:
    """x[i:i+W] = inv(U[i:i+W, i:i+W].T) @ (x[i:i+W] − U[:i, i:i+W].T @ x[:i])."""

    def write_tile(write: _Writer, U: _Matrix, i: Any, inverse: _Matrix, x: _Matrix) -> None:
        zero = ir.Constant(i.type, 0)
        sums = [ir.Constant(_VECTOR, None)] * _CHAINS
        with write.rows(sums, write.builder.udiv(i, ir.Constant(i.type, WIDTH))) as (tile, current):
            first = write.builder.mul(tile, ir.Constant(i.type, WIDTH))
            for r in _W:
                k = write.plus(first, r)
                current[r % _CHAINS] = write.multiply_add(
                    write.splat(x.number(zero, k)), U.vector(k, i), current[r % _CHAINS]
                )
        left = write.builder.fsub(x.vector(zero, i), write.sum(sums))
        rows = write.tile(U, i, i)
        x.set(zero, i, write.in_tile(left, rows, inverse.vector(zero, i), list(_W)))

    return _on_tile(write_tile)(U, i, inverse, x)


@intrinsic
def substitute_back(typing: Any, U: Any, i: Any, size: Any, inverse: Any, x: Any) -> Any:
    """x[i:i+W] = inv(U[i:i+W, i:i+W]) @ (x[i:i+W] − U[i:i+W, i+W:size] @ x[i+W:size])."""

    def write_tile(write: _Writer, U: _Matrix, i: Any, size: Any, inverse: _Matrix, x: _Matrix) -> None:
        zero, width = ir.Constant(i.type, 0), ir.Constant(i.type, WIDTH)
        after = write.builder.add(i, width)
        sums = [ir.Constant(_VECTOR, None)] * WIDTH
        with write.rows(sums, write.builder.udiv(write.builder.sub(size, after), width)) as (tile, current):
            j = write.builder.add(after, write.builder.mul(tile, width))
            right = x.vector(zero, j)
            for r in _W:
                current[r] = write.multiply_add(U.vector(write.plus(i, r), j), right, current[r])
        left = write.builder.fsub(x.vector(zero, i), write.sum(write.transposed(sums)))
        columns = write.transposed(write.tile(U, i, i))
        x.set(zero, i, write.in_tile(left, columns, inverse.vector(zero, i), list(reversed(_W))))

    return _on_tile(write_tile)(U, i, size, inverse, x)
