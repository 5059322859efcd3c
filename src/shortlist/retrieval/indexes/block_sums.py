"""The innermost loop of the quantized index: sums of table entries for a block of items, in vector registers.

A block has BLOCK items. Each code m of an item has four bits and selects an entry of table m, which has 16 bytes. The
item's sum is Σ_m table_m[code_m]. Processors look up 16 to 64 entries with one instruction, a byte shuffle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import types

from shortlist._numba import lean_kernel
from shortlist._prefetch import cgutils, intrinsic

BLOCK = 64  # items
LARGEST = 127  # the largest table entry: the sum of two fits into a byte

_BYTE, _WORD = ir.IntType(8), ir.IntType(16)
_SHUFFLES = {64: ("avx512bw", "llvm.x86.avx512.pshuf.b.512"), 32: ("avx2", "llvm.x86.avx2.pshuf.b")}


def register_bytes() -> int:
    """Return the width of this processor's byte shuffles: 64, 32, or 0 if it has none and needs plain loops."""
    try:
        features = get_host_cpu_features()
    except RuntimeError:  # LLVM does not know the processor
        return 0
    return next((width for width, (feature, _) in _SHUFFLES.items() if features.get(feature)), 0)


def block_sums_numpy(codes: npt.NDArray[np.uint8], tables: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    """Return the sums of one block, from codes (pairs × BLOCK bytes) and tables (2 · pairs × 16).

    Byte b of a row has two codes of item b // 2 + (b % 2) · BLOCK / 2. Even bytes belong to the first half of the
    items, so that a mask and a shift turn a register of bytes into two registers of sums.
    """
    low, high = codes & 15, codes >> 4
    rows = np.arange(len(codes))[:, None]
    both = tables[2 * rows, low].astype(np.uint16) + tables[2 * rows + 1, high]
    sums = both.sum(axis=0, dtype=np.uint16)
    return np.concatenate([sums[0::2], sums[1::2]])


def _sums_in_registers(width: int) -> Any:
    """Return the intrinsic for processors with shuffles of `width` bytes."""
    bytes_, words = ir.VectorType(_BYTE, width), ir.VectorType(_WORD, width // 2)
    name = _SHUFFLES[width][1]
    aligned = 16

    @intrinsic
    def sums(typing: Any, codes: Any, at: Any, tables: Any, pairs: Any, least: Any, out: Any) -> Any:
        """See `block_sums`."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            def start(k: int) -> Any:
                array = context.make_array(signature.args[k])(context, builder, values[k])
                return builder.bitcast(array.data, _BYTE.as_pointer())

            code_at = builder.gep(start(0), [values[1]])
            table_at, out_at = start(2), start(5)
            kind = ir.FunctionType(bytes_, [bytes_, bytes_])
            shuffle = cgutils.get_or_insert_function(builder.module, kind, name)

            def load(pointer: Any, offset: Any, kind: Any) -> Any:
                place = builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())
                return builder.load(place, align=aligned)

            def all_of(kind: Any, value: int) -> Any:
                return ir.Constant(kind, [value] * kind.count)

            index = ir.IntType(64)
            parts = BLOCK // width
            totals = [
                [cgutils.alloca_once_value(builder, ir.Constant(words, None)) for _ in range(2)] for _ in range(parts)
            ]
            with cgutils.for_range(builder, values[3], intp=index) as loop:
                row = builder.mul(loop.index, ir.Constant(index, BLOCK))
                low_table = load(table_at, builder.mul(row, ir.Constant(index, 2)), bytes_)
                second = builder.add(builder.mul(row, ir.Constant(index, 2)), ir.Constant(index, BLOCK))
                high_table = load(table_at, second, bytes_)
                for part in range(parts):
                    packed = load(code_at, builder.add(row, ir.Constant(index, part * width)), bytes_)
                    low = builder.and_(packed, all_of(bytes_, 15))
                    moved = builder.lshr(builder.bitcast(packed, words), all_of(words, 4))
                    high = builder.and_(builder.bitcast(moved, bytes_), all_of(bytes_, 15))
                    both = builder.add(
                        builder.call(shuffle, [low_table, low]), builder.call(shuffle, [high_table, high])
                    )
                    as_words = builder.bitcast(both, words)  # the even byte plus 256 times the odd byte
                    even, odd = totals[part]
                    builder.store(builder.add(builder.load(even), as_words), even)
                    builder.store(builder.add(builder.load(odd), builder.lshr(as_words, all_of(words, 8))), odd)
            mask = ir.Constant(index, 0)
            lowest = builder.insert_element(ir.Constant(words, ir.Undefined), values[4], ir.Constant(ir.IntType(32), 0))
            lowest = builder.shuffle_vector(
                lowest,
                ir.Constant(words, ir.Undefined),
                ir.Constant(ir.VectorType(ir.IntType(32), width // 2), [0] * (width // 2)),
            )
            for part in range(parts):
                even, odd = (builder.load(total) for total in totals[part])
                even = builder.sub(even, builder.shl(odd, all_of(words, 8)))
                for half, total in enumerate((even, odd)):
                    first = half * BLOCK // 2 + part * width // 2
                    place = builder.gep(out_at, [ir.Constant(index, 2 * first)])
                    builder.store(total, builder.bitcast(place, words.as_pointer()), align=aligned)
                    reached = builder.icmp_unsigned(">=", total, lowest)
                    bits = builder.zext(builder.bitcast(reached, ir.IntType(width // 2)), index)
                    mask = builder.or_(mask, builder.shl(bits, ir.Constant(index, first)))
            return mask

        return types.uint64(codes, types.int64, tables, types.int64, types.uint16, out), generate

    return sums


@lean_kernel
def plain_sums(
    codes: npt.NDArray[np.uint8],
    at: int,
    tables: npt.NDArray[np.uint8],
    pairs: int,
    least: np.uint16,
    out: npt.NDArray[np.uint16],
) -> np.uint64:
    """Return `block_sums` by plain loops, for any processor."""
    out[:BLOCK] = 0
    for m in range(pairs):
        for b in range(BLOCK):
            code = codes[at + m * BLOCK + b]
            both = tables[2 * m * BLOCK + (code & 15)] + tables[(2 * m + 1) * BLOCK + (code >> 4)]
            out[b // 2 + (b % 2) * (BLOCK // 2)] += np.uint16(both)
    reached = np.uint64(0)
    for k in range(BLOCK):
        if out[k] >= least:
            reached |= np.uint64(1) << np.uint64(k)
    return reached


def sums_for(width: int) -> Any:
    """Return the function for processors with shuffles of `width` bytes; 0 is for any processor."""
    return _sums_in_registers(width) if width else plain_sums


block_sums = sums_for(register_bytes())
"""block_sums(codes, at, tables, pairs, least, out), for kernels: write the sums of the block that starts at byte `at`.

The sums go to `out`. The return value is a word whose bit k says whether item k's sum is at least `least`. `tables` has
2 · pairs tables of 16 bytes, each repeated four times. `codes`, `tables` and `out` start at multiples of 16 bytes.

With codes in the cache, bound by two shuffles and about seven other vector instructions per pair.
"""
