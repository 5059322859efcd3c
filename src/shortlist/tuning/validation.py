"""Validation splits for tuning, and samples of them for the evaluation after each epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from shortlist.data import splits
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Vocabulary


def validation_split(events: Interactions, seed: int) -> Split:
    """Split off a tenth of the events for validation: the newest ones if they have times, else a random tenth."""
    if events.times is not None:
        return splits.by_time(events, 0.1)
    return splits.at_random(events, 0.1, seed=seed)


def sample_contexts(split: Split, n: int, seed: int) -> Split:
    """Return the split with a random sample of n held-out contexts, or the split itself if it has no more than n."""
    size = split.truth.n_contexts
    if size <= n:
        return split
    chosen = np.sort(np.random.default_rng([seed, 5]).permutation(size)[:n])
    codes = np.full(size, -1, np.int32)
    codes[chosen] = np.arange(n, dtype=np.int32)
    contexts = Vocabulary(split.truth.contexts.take(chosen))
    # Truth and history have the same contexts, possibly with different codes.
    of_history = codes[split.truth.contexts.encode(split.history.contexts.frame)]
    return replace(
        split,
        history=_select(split.history, contexts, of_history),
        truth=_select(split.truth, contexts, codes),
        protocol=f"{split.protocol}, {n:,} of {size:,} contexts",
    )


def _select(events: Interactions, contexts: Vocabulary, codes: npt.NDArray[np.int32]) -> Interactions:
    """Return the events of these contexts; `codes` maps old context codes to new ones, or to −1 to drop them."""
    context_codes = codes[events.context_codes]
    keep = context_codes >= 0
    return events.with_codes(contexts, events.items, context_codes[keep], events.item_codes[keep], keep)
