"""Prefetching of memory into the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic as _intrinsic

cgutils: Any = _cgutils  # untyped
_INT = ir.IntType(32)


def intrinsic(typed: Callable[..., Any]) -> Any:
    """Return a function for use in kernels; its LLVM instructions come from the decorated function."""
    return _intrinsic(typed)


@intrinsic
def prefetch(typing: Any, A: Any, i: Any, j: Any) -> Any:
    """Prefetch the cache line of A[i, j]; A is a matrix in row-major order."""
    if not isinstance(A, types.Array) or (A.layout, A.ndim) != ("C", 2):
        raise TypingError(f"prefetch needs a matrix in row-major order; got {A}")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(A)(context, builder, values[0])
        columns = builder.extract_value(array.shape, 1)
        _emit_prefetch(builder, array, builder.add(builder.mul(values[1], columns), values[2]))
        return context.get_dummy_value()

    return types.void(A, types.intp, types.intp), generate


@intrinsic
def prefetch_at(typing: Any, A: Any, i: Any) -> Any:
    """Prefetch the cache line of A[i]; A is a contiguous vector."""
    if not isinstance(A, types.Array) or (A.layout, A.ndim) != ("C", 1):
        raise TypingError(f"prefetch_at needs a contiguous vector; got {A}")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _emit_prefetch(builder, context.make_array(A)(context, builder, values[0]), values[1])
        return context.get_dummy_value()

    return types.void(A, types.intp), generate


def _emit_prefetch(builder: Any, array: Any, position: Any) -> None:
    pointer = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    read, keep, data = ir.Constant(_INT, 0), ir.Constant(_INT, 3), ir.Constant(_INT, 1)
    builder.call(function, [builder.bitcast(builder.gep(array.data, [position]), pointer), read, keep, data])
