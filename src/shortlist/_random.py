"""Counter-based random numbers for kernels: each number depends on its counter only, not on earlier draws."""

from __future__ import annotations

import numpy as np

from shortlist._numba import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, odd: adding it repeatedly visits every state
_64 = (1 << 64) - 1


@kernel
def mixed(z: np.uint64) -> np.uint64:
    """Mix the bits of z with the output function of SplitMix64 (Steele et al. 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mixed_int(z: int) -> int:
    """Return `mixed` of a Python integer."""
    z &= _64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _64
    return z ^ (z >> 31)


def initial_states(seed: int) -> tuple[np.uint64, np.uint64]:
    """Return the start states of the two random number sequences of sampled steps."""
    return np.uint64(seed), np.uint64(mixed_int(seed + int(GOLDEN)))
