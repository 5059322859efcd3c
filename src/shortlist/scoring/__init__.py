"""ŷ(c,i): what a score is made of (section 2.1)."""

from shortlist.scoring.blocks import BlockScorer, DotProductScorer, SubsetScorer

__all__ = ["BlockScorer", "DotProductScorer", "SubsetScorer"]
