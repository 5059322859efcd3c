"""Copies of vectors with fewer bytes, and upper bounds of their scores."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import types

from shortlist._numba import fast_kernel, kernel
from shortlist._prefetch import intrinsic
from shortlist._threads import run_chunks

Vectors = npt.NDArray[np.float32]


def halves_are_fast() -> bool:
    """Return whether the processor can convert half precision to single precision in hardware."""
    try:
        return platform.machine() in ("aarch64", "arm64") or bool(get_host_cpu_features().get("f16c"))
    except RuntimeError:  # LLVM does not know the processor
        return False


class CompressedVectors:
    """A copy of vectors in half precision or in bytes, with the distance of each copy from its vector."""

    def __init__(self, vectors: Vectors, precision: str, threads: int | None) -> None:
        self.shape = vectors.shape
        self.scales = np.ones(len(vectors), np.float32)
        self.halves = precision == "float16"
        largest = np.maximum(np.abs(vectors).max(axis=1), np.float32(1e-30))
        # Well within the range of half precision; for bytes, the largest coordinate becomes 127.
        self.scales[:] = largest.max() / 2.0**14 if self.halves else largest / 127
        self.numbers: npt.NDArray[Any] = np.empty(vectors.shape, np.uint16 if self.halves else np.int8)
        self.errors = np.empty(len(vectors), np.float32)

        def work(start: int, stop: int) -> None:
            part = vectors[start:stop]
            scaled = part / self.scales[start:stop, None]
            self.numbers[start:stop] = scaled.astype(np.float16).view(np.uint16) if self.halves else np.rint(scaled)
            back = np.empty(part.shape, np.float32)
            self.restore(start, stop, back)
            distance = np.sqrt(np.square(part.astype(np.float64) - back).sum(axis=1))
            length = np.sqrt(np.square(part.astype(np.float64)).sum(axis=1))
            # The rounding error of a float32 sum of d products is below (d + 2) · 2⁻²⁴; it counts twice: for the bound
            # and for the exact score.
            rounding = 2 * (part.shape[1] + 2) * 2.0**-24 * (length + distance)
            self.errors[start:stop] = distance * (1 + 1e-6) + rounding

        run_chunks(work, [(a, min(a + 8192, len(vectors))) for a in range(0, len(vectors), 8192)], threads)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return int(self.numbers.nbytes + self.scales.nbytes + self.errors.nbytes)

    def restore(self, start: int, stop: int, out: Vectors) -> None:
        """Write items start…stop as float32."""
        if self.halves:
            out[:] = self.numbers[start:stop].view(np.float16)
            out *= self.scales[start:stop, None]
        else:
            from_bytes(self.numbers[start:stop], self.scales[start:stop], out)


class CompressedScorer:
    """A `BlockScorer` of upper bounds of scores: ⟨query, copy⟩ + ‖query‖ · ‖item − copy‖."""

    def __init__(self, queries: Vectors, copy: CompressedVectors) -> None:
        self._queries, self._copy = queries, copy
        self.n_queries, self.n_items = len(queries), copy.shape[0]
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        self._lengths = (lengths * (1 + 1e-6)).astype(np.float32)

    def score(self, queries: slice, items: slice, out: Vectors) -> None:
        """Fill `out` with the bounds."""
        copy = self._copy
        bounds = bounds_of_halves if copy.halves else bounds_of_bytes
        parts = (copy.numbers[items], copy.scales[items], copy.errors[items])
        bounds(self._queries[queries], self._lengths[queries], *parts, out)


@kernel
def from_bytes(numbers: npt.NDArray[np.int8], scales: Vectors, out: Vectors) -> None:
    """Write each number times the scale of its row. Bound by reading the numbers."""
    for i in range(len(numbers)):
        scale = scales[i]
        for k in range(numbers.shape[1]):
            out[i, k] = np.float32(numbers[i, k]) * scale


@fast_kernel
def bounds_of_bytes(
    Q: Vectors, lengths: Vectors, numbers: npt.NDArray[np.int8], scales: Vectors, errors: Vectors, out: Vectors
) -> None:
    """Write the bounds of `CompressedScorer` for few queries. Limited by reading the numbers, a byte per coordinate."""
    for i in range(len(numbers)):
        for r in range(len(Q)):
            total = np.float32(0)
            for k in range(numbers.shape[1]):
                total += Q[r, k] * np.float32(numbers[i, k])
            out[r, i] = total * scales[i] + lengths[r] * errors[i]


@intrinsic
def half(typing: Any, bits: Any) -> Any:
    """Return the number whose half-precision form has these bits."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fpext(builder.bitcast(values[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@fast_kernel
def bounds_of_halves(
    Q: Vectors, lengths: Vectors, numbers: npt.NDArray[np.uint16], scales: Vectors, errors: Vectors, out: Vectors
) -> None:
    """Write the bounds for half precision, two bytes per coordinate. Needs a processor with fast conversion."""
    for i in range(len(numbers)):
        for r in range(len(Q)):
            total = np.float32(0)
            for k in range(numbers.shape[1]):
                total += Q[r, k] * half(numbers[i, k])
            out[r, i] = total * scales[i] + lengths[r] * errors[i]
