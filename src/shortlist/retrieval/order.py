"""The order of items in search and ranks, as integers that kernels can compare quickly.

Items are ordered by score, higher first. Ties are broken by a tie number, lower first, then by item code, lower first.
Kernels replace a score by its *sort key*: the int32 that sorts like the float, with -0 as 0 and every NaN as one value
below -inf. A sort key and a tie number together are a *rank key*: one int64, higher is better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist._numba import bare_kernel
from shortlist._random import GOLDEN, mixed
from shortlist.errors import SettingError

# Filtered scores are overwritten with the bits 0xffffffff, a NaN that no arithmetic produces, and the only float whose
# key is the lowest int32. So filtered items are distinct from items that the model itself scores -inf or NaN.
FILTERED_BITS = np.int32(-1)
FILTERED = np.int32(-(2**31))
NAN_KEY = np.int32(-(2**31) + 1)
MINUS_INFINITY_KEY = np.int32(-(2**31) + 0x7FFFFF)
INFINITY_KEY = np.int32(0x7F800000)

BY_CODE, BY_PRIORITY, BY_HASH = 0, 1, 2


class Order(NamedTuple):
    """How to break ties. If only some items are scored, `codes` has the item code of each column, else it is empty."""

    mode: int
    priority: npt.NDArray[np.uint32]  # BY_PRIORITY: the tie number of each item code
    seed: np.uint64  # BY_HASH
    query_keys: npt.NDArray[np.int64]  # BY_HASH: one per query
    codes: npt.NDArray[np.int32]


def make_order(
    n_queries: int,
    n_items: int,
    priority: npt.ArrayLike | None,
    tie_seed: int | None,
    query_keys: npt.ArrayLike | None,
    codes: npt.NDArray[np.int32],
) -> Order:
    """Check the arguments for ties and convert them into the form that kernels read."""
    ranks, seed, keys = np.empty(0, np.uint32), np.uint64(0), np.empty(0, np.int64)
    mode = BY_CODE
    if tie_seed is not None:
        mode = BY_HASH
        seed = np.uint64(int(tie_seed) & 0xFFFFFFFFFFFFFFFF)
        keys = np.arange(n_queries) if query_keys is None else np.array(query_keys, dtype=np.int64)
        if keys.shape != (n_queries,):
            raise SettingError(
                f"query_keys has shape {keys.shape}; expected ({n_queries},), one key per query", field="query_keys"
            )
    elif priority is not None:
        mode = BY_PRIORITY
        given = np.asarray(priority)
        if given.shape != (n_items,) or given.dtype.kind not in "iu":
            raise SettingError(
                f"priority is {given.dtype} of shape {given.shape}; expected integers of shape ({n_items},)",
                field="priority",
            )
        if n_items and (int(given.max()) >= 2**31 or int(given.min()) < -(2**31)):
            given = np.unique(given, return_inverse=True)[1].reshape(-1)  # only the order matters
        ranks = (given.astype(np.int64) + 2**31).astype(np.uint32)
    return Order(mode, ranks, seed, keys, codes)


@bare_kernel
def raw_key_of(x: np.int32) -> np.int32:
    """Return the sort key of the float32 with bits x, except for -0 (below 0) and NaN (below -inf or above inf).

    The function is its own inverse: it also returns the bits of the float32 with sort key x. The casts keep Numba from
    widening to int64.
    """
    return np.int32(x ^ np.int32(np.int32(x >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@bare_kernel
def key_of(x: np.int32) -> np.int32:
    """Return the sort key of the float32 with bits x."""
    s = raw_key_of(x)
    if s > INFINITY_KEY or (s < MINUS_INFINITY_KEY and s != FILTERED):
        return NAN_KEY
    if s == np.int32(-1):  # -0
        return np.int32(0)
    return s


def keys_numpy(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.int32]:
    """Return sort keys. The NumPy version of `key_of`, for scores without filtered ones."""
    bits = (scores + np.float32(0)).view(np.int32)
    keys = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)
    return np.where(np.isnan(scores), NAN_KEY, keys).astype(np.int32)


@bare_kernel
def row_seed(order: Order, q: int) -> np.uint64:
    """Return the seed of query q's hash. It depends on the seed and the query's key only."""
    if order.mode != BY_HASH:
        return np.uint64(0)
    return mixed(mixed(order.seed + GOLDEN) + np.uint64(order.query_keys[q]) * GOLDEN)


@bare_kernel
def rank_key(s: np.int32, i: np.int32, mode: int, priority: npt.NDArray[np.uint32], seed: np.uint64) -> np.int64:
    """Combine sort key s and the tie number of item i into one int64; higher is better. `seed` is from `row_seed`."""
    if mode == BY_CODE:
        tie = np.int64(i)
    elif mode == BY_PRIORITY:
        tie = np.int64(priority[i])
    else:
        tie = np.int64(mixed(seed + np.uint64(i + 1) * np.uint64(0xD1342543DE82EF95)) >> np.uint64(32))
    return (np.int64(s) << np.int64(32)) | (np.int64(0xFFFFFFFF) - tie)


def ties_numpy(order: Order, q: int, items: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the tie numbers of items for query q. The NumPy version of the tie number inside `rank_key`."""

    def mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    if order.mode == BY_CODE:
        return items.astype(np.int64)
    if order.mode == BY_PRIORITY:
        ties: npt.NDArray[np.int64] = order.priority[items].astype(np.int64)
        return ties
    golden = np.array([GOLDEN])
    seed = mix(mix(order.seed + golden) + order.query_keys[q : q + 1].astype(np.uint64) * golden)
    hashes = mix(seed + (items.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1342543DE82EF95))
    return (hashes >> np.uint64(32)).astype(np.int64)
