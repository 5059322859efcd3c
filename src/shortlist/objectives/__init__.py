"""Training objectives: losses, penalties and weights (section 3 of the article)."""

from shortlist.objectives.frequency_weights import FrequencyWeights
from shortlist.objectives.lambdarank import LambdaRank
from shortlist.objectives.loss_parts import LossParts
from shortlist.objectives.losses import loss_slopes, loss_values
from shortlist.objectives.pairwise_square import PairwiseSquare
from shortlist.objectives.penalties import Linear, Penalty, Reciprocal, Step, TopN
from shortlist.objectives.pointwise_square import PointwiseSquare, Terms
from shortlist.objectives.sampled import OBJECTIVES, Pairwise, Pointwise, Softmax
from shortlist.objectives.weighting import Weighting, strengths

WEIGHTS: dict[str, type[Penalty | LambdaRank]] = {
    "Reciprocal": Reciprocal,
    "Linear": Linear,
    "Step": Step,
    "TopN": TopN,
    "LambdaRank": LambdaRank,
}

__all__ = [
    "OBJECTIVES",
    "WEIGHTS",
    "FrequencyWeights",
    "LambdaRank",
    "Linear",
    "LossParts",
    "Pairwise",
    "PairwiseSquare",
    "Penalty",
    "Pointwise",
    "PointwiseSquare",
    "Reciprocal",
    "Softmax",
    "Step",
    "Terms",
    "TopN",
    "Weighting",
    "loss_slopes",
    "loss_values",
    "strengths",
]
