"""Digests of (context, item) pairs, by which a second stage remembers what it was trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shortlist.data.interactions import Interactions
from shortlist.data.vocabulary import Codes, Id, Vocabulary

Digests = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


@dataclass(frozen=True, eq=False)
class PairDigests:
    """A set of pairs as 64-bit numbers that depend on the ids only: the same for all data and processes.

    Attributes:
        values: the digests, ascending.
        of_texts: whether they are hashes of the pair's text, as in models of earlier versions.
    """

    values: Digests = field(default_factory=lambda: np.empty(0, np.uint64))
    of_texts: bool = False

    @classmethod
    def of(cls, contexts: Vocabulary, items: Vocabulary, context_codes: Codes, item_codes: Codes) -> PairDigests:
        """Return the digests of pairs in codes."""
        return cls(np.unique(_digests(contexts, items, context_codes, item_codes)))

    @classmethod
    def of_events(cls, events: Interactions) -> PairDigests:
        """Return the digests of the distinct pairs of events."""
        rows, columns = _pairs(events)
        return cls.of(events.contexts, events.items, rows, columns)

    def holds(self, events: Interactions) -> npt.NDArray[np.bool_]:
        """Return for each pair of `events.by_context` whether it is in this set."""
        rows, columns = _pairs(events)
        digests = _text_digests if self.of_texts else _digests
        return np.isin(digests(events.contexts, events.items, rows, columns), self.values)


def _pairs(events: Interactions) -> tuple[Codes, Codes]:
    view = events.by_context
    return np.repeat(np.arange(view.n_rows, dtype=np.int32), view.lengths), view.indices


def _digests(contexts: Vocabulary, items: Vocabulary, context_codes: Codes, item_codes: Codes) -> Digests:
    """Hash each id once and mix the hashes of each pair, as SplitMix64 mixes its state."""
    of_contexts, of_items = _id_hashes(contexts, context_codes), _id_hashes(items, item_codes)
    mixed = of_contexts * _ODD + of_items
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> shift)) * factor
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _id_hashes(vocabulary: Vocabulary, codes: Codes) -> Digests:
    """Return the hash of each code's id; every id is hashed once."""
    used, place = np.unique(codes, return_inverse=True)
    return _hashes(vocabulary.ids(used))[place]


def _text_digests(contexts: Vocabulary, items: Vocabulary, context_codes: Codes, item_codes: Codes) -> Digests:
    return _hashes(list(zip(contexts.ids(context_codes), items.ids(item_codes))))


def _hashes(ids: list[Id]) -> Digests:
    raw = b"".join(hashlib.blake2b(repr(id_).encode("utf-8", "surrogatepass"), digest_size=8).digest() for id_ in ids)
    return np.frombuffer(raw, "<u8").astype(np.uint64)
