"""A second stage: candidates of a recommender, described by features and put into a new order (sections 2.3 and 2.4).

Stage one finds, in the whole catalogue, the few hundred items that may be right; it is judged by its recall among them.
Stage two looks at these only, so it can afford features of context, item and both, and decides the order.
"""

from shortlist.reranking.base import Reranker
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.lambdamart import LambdaMART
from shortlist.reranking.two_stage import TwoStage

__all__ = ["Candidates", "LambdaMART", "Reranker", "TwoStage"]
