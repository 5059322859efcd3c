"""Scores ŷ(c,i): how models compute them (section 2.1 of the article)."""

from shortlist.scoring.blocks import BlockScorer, DotProductScorer, PickScorer, SubsetScorer

__all__ = ["BlockScorer", "DotProductScorer", "PickScorer", "SubsetScorer"]
