"""Synthetic interactions that resemble real ones.

Few items are popular, few contexts are very active, and taste has a structure that a model can learn.

Pairs (context c, item i) are drawn from these distributions:

    P(i)   ∝ (rank(i) + offset)^−zipf                                            popularity, Zipf-Mandelbrot
    P(i|c) = common · P(i|common) + (1 − common) · Σ_k θ_ck · P(i|topic t_ck)    taste
    n_c    ∝ exp(spread · z_c), z_c normal; from 1 to max_share · n_items        activity, log-normal

The offset is 0 unless the most popular item would be expected in more than `top_share` of the contexts. Every item
belongs to two topics. A context mixes three topics, drawn by their probability, with weights θ_c from a flat Dirichlet
distribution. The common part has the fraction 1 − taste of the demand for every item, and any demand that exceeds a
fifth of a topic. Both parts sum to P(i), so taste does not change popularity. P(i|c) has low rank: the number of topics
plus one.

A context draws until it has n_c distinct items, which flattens the head of the popularity curve further. With three
interactions per context the slope of the head is within a tenth of `zipf`. Denser data is flatter, because no item can
have more interactions than there are contexts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist._numba import kernel
from shortlist._random import GOLDEN, mixed
from shortlist._threads import balanced_chunks, run_chunks, thread_count
from shortlist.errors import SettingError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.int32]

_INT32_MAX = 2**31 - 1
_TOPICS_OF_CONTEXT = 3
_MAIN_TOPIC = 0.7  # fraction of an item's topical demand in its first topic; the rest is in its second
_ITEMS_PER_TOPIC = 20  # minimum, if the number of topics is not set
_TRIES = 16  # draws per item before a context is filled up deterministically

_S11, _S32 = np.uint64(11), np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)
_ONE, _63 = np.uint64(1), np.uint64(63)


def synthetic_codes(
    n_contexts: int,
    n_items: int,
    n_interactions: int,
    seed: int = 0,
    *,
    zipf: float = 0.9,
    top_share: float = 0.25,
    spread: float = 1.0,
    topics: int | None = None,
    taste: float = 0.9,
    max_share: float = 0.5,
    threads: int | None = None,
) -> tuple[Codes, Codes]:
    """Distinct pairs: P(i) ∝ rank(i)^−zipf, P(i|c) = common · P(i|common) + (1 − common) · Σ_k θ_ck · P(i|topic t_ck).

    Draws exactly `n_interactions` observations S (article, "Learning from Implicit Feedback") as described in the
    docstring of this module. The result depends on the settings and the seed, not on the number of threads. Item codes
    are independent of popularity. If there are enough interactions, every context has at least one.

    Args:
        n_contexts: number of contexts; codes are 0 … n_contexts − 1.
        n_items: number of items; codes are 0 … n_items − 1, and the least popular may not occur.
        n_interactions: number of pairs, at most n_contexts · max_share · n_items.
        seed: an integer from 0 to 2⁶⁴ − 1.
        zipf: exponent of the popularity distribution, 0 (all equal) to 3.
        top_share: approximate maximum fraction of contexts that have the most popular item, 0 to 1; 1 for plain Zipf.
        spread: standard deviation of the logarithm of the activity, 0 (all equal) to 5.
        topics: number of topics; None for 64, or for one per 20 items if that is less.
        taste: maximum fraction of the demand that depends on topics, 0 (popularity explains everything) to 1.
        max_share: maximum fraction of the items that a context can have, 0 to 1 (but at least one item).
        threads: number of threads; None for all CPUs.

    Returns:
        The contexts (ascending) and the items (in random order within a context).

    >>> contexts, items = synthetic_codes(n_contexts=100, n_items=50, n_interactions=600, seed=1)
    >>> len(contexts), len(set(zip(contexts.tolist(), items.tolist()))), contexts.dtype
    (600, 600, dtype('int32'))
    """
    n_contexts = _integer("n_contexts", n_contexts, 1, _INT32_MAX)
    n_items = _integer("n_items", n_items, 1, _INT32_MAX)
    n_interactions = _integer("n_interactions", n_interactions, 1, 2**63 - 1)
    seed = _integer("seed", seed, 0, 2**64 - 1)
    zipf, spread = _number("zipf", zipf, 0, 3), _number("spread", spread, 0, 5)
    top_share, taste = _number("top_share", top_share, 0, 1), _number("taste", taste, 0, 1)
    max_share = _number("max_share", max_share, 0, 1)
    if topics is None:
        n_topics = min(64, max(1, n_items // _ITEMS_PER_TOPIC))
    else:
        n_topics = _integer("topics", topics, 1, n_items)
    most = max(1, int(max_share * n_items))
    if n_interactions > n_contexts * most:
        raise SettingError(
            f"n_interactions is {n_interactions}, but {n_contexts} contexts with at most {most} of {n_items} items "
            f"each (max_share={max_share:g}) have at most {n_contexts * most}",
            hint="lower n_interactions, or raise n_contexts, n_items or max_share",
            field="n_interactions",
        )
    threads = thread_count(threads)

    rng = np.random.default_rng(seed)
    counts = _activities(rng, n_contexts, n_interactions, spread, most)
    top = max(top_share * n_contexts / n_interactions, 4 / n_items)  # of P; a smaller top would leave no curve
    code_of_rank = rng.permutation(n_items).astype(np.int32)
    popularity = (np.arange(1, n_items + 1) + _offset(n_items, zipf, top)) ** -zipf
    demand = _split_demand(rng, popularity / popularity.sum(), n_topics, taste)

    starts = np.concatenate([[0], np.cumsum(counts)])
    contexts, items = np.empty(n_interactions, np.int32), np.empty(n_interactions, np.int32)

    def fill(start: int, stop: int) -> None:
        _draw(np.uint64(seed), start, stop, starts, demand, code_of_rank, contexts, items)

    n_chunks = min(4096, 1 + n_interactions // 2**17)
    run_chunks(fill, balanced_chunks(counts + 10, n_chunks), threads)
    return contexts, items


class _ItemDemand(NamedTuple):
    """The distributions that `_draw` draws from. Items are numbered by popularity.

    The alias tables are concatenated: first that of the common part, then one per topic.
    """

    common: float  # fraction of the demand that is common to all contexts
    topic_ends: Floats  # cumulative sum of the topics' fractions of the rest
    bounds: Ints  # start of each table, and the end
    item: Words
    threshold: Words
    other: Words


def _activities(rng: np.random.Generator, n_contexts: int, total: int, spread: float, most: int) -> Ints:
    """Return n_c = s · exp(spread · z_c), clipped to 1 … `most` and rounded, with s such that they sum to `total`."""
    weights = np.exp(spread * rng.standard_normal(n_contexts))
    least = 1 if total >= n_contexts else 0
    ascending = np.sort(weights)
    sums = np.concatenate([[0.0], np.cumsum(ascending)])
    low, high = 0.0, most / ascending[0]
    for _ in range(100):
        scale = (low + high) / 2
        raised, free = np.searchsorted(ascending, [least / scale, most / scale])
        reached = least * raised + scale * (sums[free] - sums[raised]) + most * (n_contexts - free)
        low, high = (scale, high) if reached < total else (low, scale)
    exact = np.clip(high * weights, least, most)
    counts: Ints = exact.astype(np.int64)
    # Round the largest remainders up. A second pass is only needed if `exact` itself has rounding errors.
    while missing := total - int(counts.sum()):
        step = 1 if missing > 0 else -1
        candidates = np.flatnonzero(counts < most if step > 0 else counts > least)
        if len(candidates) > abs(missing):
            first = np.argpartition(step * (counts - exact)[candidates], abs(missing))[: abs(missing)]
            candidates = candidates[first]
        counts[candidates] += step
    return counts


def _split_demand(rng: np.random.Generator, p: Floats, n_topics: int, taste: float) -> _ItemDemand:
    """Split P(i) into a part common to all contexts and parts of topics; they sum to P(i)."""
    n_items = len(p)
    # An item has at most a fifth of a topic (or three times its average in small topics). Otherwise contexts with this
    # topic alone would draw little else.
    most = max(1 / 5, 3 * n_topics / n_items) / n_topics
    topical = np.minimum(taste * p, most)
    rest = p - topical
    main, second = _deal(rng, n_items, n_topics), _deal(rng, n_items, n_topics)
    topic = np.concatenate([main, second])
    weight = np.concatenate([_MAIN_TOPIC * topical, (1 - _MAIN_TOPIC) * topical])
    by_topic = np.argsort(topic, kind="stable")

    sizes = np.bincount(topic, minlength=n_topics)
    bounds = np.concatenate([[0, n_items], n_items + np.cumsum(sizes)])
    item = np.concatenate([np.arange(n_items), by_topic % n_items]).astype(np.uint32)
    threshold, other = np.empty(len(item), np.uint32), np.empty(len(item), np.uint32)
    _alias_tables(bounds, item, np.concatenate([rest, weight[by_topic]]), threshold, other)
    topic_ends = np.cumsum(np.bincount(topic, weights=weight, minlength=n_topics))
    common = 1.0 if topic_ends[-1] <= 0 else float(rest.sum())
    return _ItemDemand(common, topic_ends / max(topic_ends[-1], 1e-300), bounds, item, threshold, other)


def _offset(n_items: int, zipf: float, top: float) -> float:
    """Return the least offset with (1 + offset)^−zipf / Σ_rank (rank + offset)^−zipf ≤ top; the sum is an integral."""

    def first(offset: float) -> float:
        low, high = 0.5 + offset, n_items + 0.5 + offset
        power = 1.0 - zipf
        total = math.log(high / low) if abs(power) < 1e-9 else (math.pow(high, power) - math.pow(low, power)) / power
        return math.pow(1 + offset, -zipf) / total

    if first(0.0) <= top:
        return 0.0
    low, high = 0.0, 1e3 * n_items
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if first(middle) <= top else (middle, high)
    return high


def _deal(rng: np.random.Generator, n_items: int, n_topics: int) -> Ints:
    """Assign a topic to each item in rounds of one item per topic, so that all topics have popular items."""
    rounds = rng.random((-(-n_items // n_topics), n_topics)).argsort(axis=1)
    return rounds.reshape(-1)[:n_items]


@kernel
def _alias_tables(bounds: Ints, item: Words, weight: Floats, threshold: Words, other: Words) -> None:
    """Build alias tables by Vose's method for each range of `weight`, which is overwritten.

    To draw: choose a uniform position x, then item[x] if a uniform 32-bit number is below threshold[x], else other[x].
    """
    stack = np.empty(len(item), np.int64)
    for t in range(len(bounds) - 1):
        start, stop = bounds[t], bounds[t + 1]
        total = 0.0
        for x in range(start, stop):
            total += weight[x]
        unit = (stop - start) / total if total > 0 else 0.0
        n_small, n_large = 0, 0
        for x in range(start, stop):  # small weights at the front of the stack, large ones at its end
            weight[x] *= unit
            other[x] = item[x]
            threshold[x] = np.uint32(0xFFFFFFFF)
            if weight[x] < 1.0:
                stack[start + n_small] = x
                n_small += 1
            else:
                n_large += 1
                stack[stop - n_large] = x
        while n_small > 0 and n_large > 0:
            n_small -= 1
            x = stack[start + n_small]
            y = stack[stop - n_large]
            threshold[x] = np.uint32(weight[x] * 4294967295.0)
            other[x] = item[y]
            weight[y] -= 1.0 - weight[x]
            if weight[y] < 1.0:
                n_large -= 1
                stack[start + n_small] = y
                n_small += 1


@kernel
def _unit(bits: np.uint64) -> np.float64:
    """Convert to a double in (0, 1)."""
    return (np.float64(bits >> _S11) + 0.5) * (1.0 / 9007199254740992.0)


@kernel
def _below(bits: np.uint64, n: int) -> np.int64:
    """Convert the upper 32 bits to an integer in [0, n)."""
    return np.int64(((bits >> _S32) * np.uint64(n)) >> _S32)


@kernel
def _draw(
    seed: np.uint64,
    start: int,
    stop: int,
    starts: Ints,
    demand: _ItemDemand,
    code_of_rank: Codes,
    contexts: Codes,
    items: Codes,
) -> None:
    """Draw the items of contexts start … stop − 1. Random numbers depend on (seed, context) only."""
    common, topic_ends, bounds, item, threshold, other = demand
    n_items = len(code_of_rank)
    taken = np.zeros((n_items + 63) // 64, np.uint64)
    topics = np.empty(_TOPICS_OF_CONTEXT + 1, np.int64)
    ends = np.empty(_TOPICS_OF_CONTEXT + 1, np.float64)
    for c in range(start, stop):
        state = mixed(mixed(seed + GOLDEN) + np.uint64(c) * GOLDEN)

        topics[0], ends[0] = 0, 0.0
        for k in range(1, _TOPICS_OF_CONTEXT + 1):
            state += GOLDEN
            u = _unit(mixed(state))
            topics[k] = 1 + min(int(np.searchsorted(topic_ends, u)), len(topic_ends) - 1)
            state += GOLDEN
            ends[k] = ends[k - 1] - np.log(_unit(mixed(state)))
        for k in range(_TOPICS_OF_CONTEXT + 1):
            ends[k] = common + (1.0 - common) * ends[k] / ends[_TOPICS_OF_CONTEXT]

        first, end = starts[c], starts[c + 1]
        at = first
        tries = _TRIES * (end - first)
        while at < end and tries > 0:
            tries -= 1
            state += GOLDEN
            u = _unit(mixed(state))
            k = 0
            while k < _TOPICS_OF_CONTEXT and u >= ends[k]:
                k += 1
            left, right = bounds[topics[k]], bounds[topics[k] + 1]
            state += GOLDEN
            bits = mixed(state)
            x = left + _below(bits, right - left)
            i = item[x] if (bits & _LOW_32) < threshold[x] else other[x]
            word, bit = int(i) >> 6, _ONE << (np.uint64(i) & _63)
            if taken[word] & bit == 0:
                taken[word] |= bit
                items[at] = i
                at += 1
        # Drawing takes too long for the remaining items. Go down the popularity list and take each free item with
        # probability 1/2; then again, and take every free item.
        for turn in range(2):
            for rank in range(n_items):
                if at == end:
                    break
                state += GOLDEN
                word, bit = rank >> 6, _ONE << (np.uint64(rank) & _63)
                if taken[word] & bit == 0 and (turn == 1 or mixed(state) & _ONE == 0):
                    taken[word] |= bit
                    items[at] = rank
                    at += 1

        for x in range(first, end):
            contexts[x] = c
            taken[items[x] >> 6] = 0
            items[x] = code_of_rank[items[x]]
        # Popular items tend to be drawn early: shuffle.
        for x in range(end - 1, first, -1):
            state += GOLDEN
            y = first + _below(mixed(state), x - first + 1)
            items[x], items[y] = items[y], items[x]


def _integer(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and least <= value <= most:
        return int(value)
    raise SettingError(f"{name} is {value!r}; expected an integer from {least} to {most}", field=name)


def _number(name: str, value: object, least: float, most: float) -> float:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if is_number and least <= value <= most:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    raise SettingError(f"{name} is {value!r}; expected a number from {least:g} to {most:g}", field=name)
