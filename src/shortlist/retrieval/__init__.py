"""Top-n search and ranks on arrays (the article's section 6): exact, in blocks, with filters."""

from __future__ import annotations

from shortlist.retrieval.exact_search import item_ranks, top_n
from shortlist.retrieval.filters import Filters
from shortlist.scoring.blocks import BlockScorer, DotProductScorer

__all__ = ["BlockScorer", "DotProductScorer", "Filters", "item_ranks", "top_n"]
