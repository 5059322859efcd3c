"""Two-stage recommendation: a recommender finds candidates, a reranker orders them by features (sections 2.3 and 2.4).

Stage one searches the whole catalogue for a few hundred candidates, and aims at recall. Stage two scores only these, so
it can afford features of the context, the item and the pair. It decides the final order.
"""

from shortlist.reranking.base import Reranker
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.lambdamart import LambdaMART
from shortlist.reranking.two_stage import TwoStage

__all__ = ["Candidates", "LambdaMART", "Reranker", "TwoStage"]
