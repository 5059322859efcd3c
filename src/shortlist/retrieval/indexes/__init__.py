"""Indexes for maximum inner product search (the article's section 6): exact, quantized, and those of faiss."""

from __future__ import annotations

from shortlist.retrieval.indexes.base import VectorIndex
from shortlist.retrieval.indexes.choosing import KINDS, make_index
from shortlist.retrieval.indexes.exact import ExactIndex
from shortlist.retrieval.indexes.measured import Measured
from shortlist.retrieval.indexes.quantized import QuantizedIndex

__all__ = ["KINDS", "ExactIndex", "Measured", "QuantizedIndex", "VectorIndex", "make_index"]
