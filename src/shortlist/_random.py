"""Counter-based random numbers for kernels: a number depends on what it is for, not on who drew before."""

from __future__ import annotations

import numpy as np

from shortlist._numba import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ by the golden ratio: steps of it visit every state
_64 = (1 << 64) - 1


@kernel
def mixed(z: np.uint64) -> np.uint64:
    """Spread the bits of z evenly: the output function of SplitMix64 (Steele et al. 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mixed_int(z: int) -> int:
    """`mixed` for Python's integers."""
    z &= _64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _64
    return z ^ (z >> 31)


def sown(seed: int) -> tuple[np.uint64, np.uint64]:
    """Return the states in which the two series of random numbers of sampled steps begin."""
    return np.uint64(seed), np.uint64(mixed_int(seed + int(GOLDEN)))
