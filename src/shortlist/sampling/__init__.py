"""Samplers of negatives, their distributions q(j|c), and the losses they imply (section 4 of the article)."""

from typing import Any

from shortlist._renamed import name_in
from shortlist.sampling.adaptive_rank import AdaptiveRank
from shortlist.sampling.all_items import AllItems
from shortlist.sampling.base import BoundSampler, Draw, Exclude, Sampler
from shortlist.sampling.implied import implied_weight, step_weight_for
from shortlist.sampling.in_batch import InBatch
from shortlist.sampling.popularity import Popularity
from shortlist.sampling.rejection import Rejection, expected_rank, rounds_law
from shortlist.sampling.sampler_tables import SamplerTables
from shortlist.sampling.uniform import Uniform

SAMPLERS: dict[str, type[Sampler | AllItems]] = {
    "Uniform": Uniform,
    "Popularity": Popularity,
    "InBatch": InBatch,
    "AdaptiveRank": AdaptiveRank,
    "Rejection": Rejection,
    "AllItems": AllItems,
}

__all__ = [
    "SAMPLERS",
    "AdaptiveRank",
    "AllItems",
    "BoundSampler",
    "Draw",
    "Exclude",
    "InBatch",
    "Popularity",
    "Rejection",
    "Sampler",
    "SamplerTables",
    "Uniform",
    "expected_rank",
    "implied_weight",
    "rounds_law",
    "step_weight_for",
]


def __getattr__(name: str) -> Any:
    return globals()[name_in(__name__, name)]
