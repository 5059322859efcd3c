"""Which items play the negatives: the distributions q(j|c) of section 4 of the article, and the losses they imply."""

from shortlist.sampling.adaptive_rank import AdaptiveRank
from shortlist.sampling.base import Draw, Exclude, Negatives, Sampler
from shortlist.sampling.everything import Everything
from shortlist.sampling.implied import implied_weight, step_weight_for
from shortlist.sampling.in_batch import InBatch
from shortlist.sampling.popularity import Popularity
from shortlist.sampling.rejection import Rejection, expected_rank, rounds_law
from shortlist.sampling.tables import Tables
from shortlist.sampling.uniform import Uniform

SAMPLERS: dict[str, type[Sampler | Everything]] = {
    "Uniform": Uniform,
    "Popularity": Popularity,
    "InBatch": InBatch,
    "AdaptiveRank": AdaptiveRank,
    "Rejection": Rejection,
    "Everything": Everything,
}

__all__ = [
    "SAMPLERS",
    "AdaptiveRank",
    "Draw",
    "Everything",
    "Exclude",
    "InBatch",
    "Negatives",
    "Popularity",
    "Rejection",
    "Sampler",
    "Tables",
    "Uniform",
    "expected_rank",
    "implied_weight",
    "rounds_law",
    "step_weight_for",
]
