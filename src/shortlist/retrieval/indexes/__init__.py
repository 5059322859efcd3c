"""Indexes for maximum inner product search (the article's section 6): exact, quantized, and faiss indexes."""

from __future__ import annotations

from shortlist.retrieval.indexes.base import VectorIndex
from shortlist.retrieval.indexes.exact_index import ExactIndex
from shortlist.retrieval.indexes.index_choice import AS_REQUESTED, KINDS, make_index
from shortlist.retrieval.indexes.measurements import IndexMeasurements
from shortlist.retrieval.indexes.quantized import QuantizedIndex

__all__ = [
    "AS_REQUESTED",
    "KINDS",
    "ExactIndex",
    "IndexMeasurements",
    "QuantizedIndex",
    "VectorIndex",
    "make_index",
]
