"""What settings are judged by: a validation split, and a sample of it for every epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from shortlist.data import splits
from shortlist.data.interactions import Interactions
from shortlist.data.splits import Split
from shortlist.data.vocabulary import Vocabulary


def validation_of(events: Interactions, seed: int) -> Split:
    """A tenth of the events to ask for: the newest ones where they have times, else some at random."""
    if events.times is not None:
        return splits.by_time(events, 0.1)
    return splits.at_random(events, 0.1, seed=seed)


def sampled(split: Split, n: int, seed: int) -> Split:
    """The same question for n of its contexts, drawn at random; the split itself where it has no more than n."""
    size = split.truth.n_contexts
    if size <= n:
        return split
    chosen = np.sort(np.random.default_rng([seed, 5]).permutation(size)[:n])
    codes = np.full(size, -1, np.int32)
    codes[chosen] = np.arange(n, dtype=np.int32)
    contexts = Vocabulary(split.truth.contexts.take(chosen))
    # The contexts of the truth are those of the history, under other codes at most.
    of_history = codes[split.truth.contexts.encode(split.history.contexts.frame)]
    return replace(
        split,
        history=_of(split.history, contexts, of_history),
        truth=_of(split.truth, contexts, codes),
        protocol=f"{split.protocol}, {n:,} of {size:,} contexts",
    )


def _of(events: Interactions, contexts: Vocabulary, codes: npt.NDArray[np.int32]) -> Interactions:
    """The events of these contexts; `codes` has their new codes by the old ones, −1 for the others."""
    own = codes[events.context_codes]
    keep = own >= 0
    return events.with_codes(contexts, events.items, own[keep], events.item_codes[keep], keep)
