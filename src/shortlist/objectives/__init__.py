"""What a good score is (section 3 of the article)."""

from shortlist.objectives.omega import Omega
from shortlist.objectives.pointwise import LossParts, PointwiseSquare, Terms
from shortlist.objectives.weighting import Weighting, strengths

__all__ = ["LossParts", "Omega", "PointwiseSquare", "Terms", "Weighting", "strengths"]
