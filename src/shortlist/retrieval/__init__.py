"""Top-n, arrays in and arrays out (the article's section 6): exact blocked search with filters, and ranks."""

from __future__ import annotations

from shortlist.retrieval.exact_search import item_ranks, top_n
from shortlist.retrieval.filters import Filters
from shortlist.scoring.blocks import BlockScorer, DotProductScorer

__all__ = ["BlockScorer", "DotProductScorer", "Filters", "item_ranks", "top_n"]
