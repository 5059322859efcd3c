"""The recommenders, each a short combination of the other packages.

`from shortlist.recommenders import IALS` is the same as `from shortlist import IALS`. Names are loaded on first use.
"""

from importlib import import_module
from typing import Any

# The recommenders that can be fitted, for the command line and for storage too, and their modules.
RECOMMENDERS = {
    "AdaptiveBPR": "shortlist.recommenders.matrix_factorization",
    "BPR": "shortlist.recommenders.matrix_factorization",
    "EASE": "shortlist.recommenders.ease",
    "FactorizationMachine": "shortlist.recommenders.factorization_machine",
    "FeatureIALS": "shortlist.recommenders.feature_ials",
    "HingeMF": "shortlist.recommenders.matrix_factorization",
    "IALS": "shortlist.recommenders.ials",
    "ICD": "shortlist.recommenders.icd",
    "ItemKNN": "shortlist.recommenders.neighbours",
    "LambdaMF": "shortlist.recommenders.matrix_factorization",
    "LogisticMF": "shortlist.recommenders.matrix_factorization",
    "MatrixFactorization": "shortlist.recommenders.matrix_factorization",
    "PARAFAC": "shortlist.recommenders.tensor_factorization",
    "Popularity": "shortlist.recommenders.popularity",
    "RankALS": "shortlist.recommenders.rank_als",
    "SLIM": "shortlist.recommenders.slim",
    "SoftmaxMF": "shortlist.recommenders.matrix_factorization",
    "SquareMF": "shortlist.recommenders.matrix_factorization",
    "Tucker": "shortlist.recommenders.tensor_factorization",
    "UserKNN": "shortlist.recommenders.neighbours",
    "WARP": "shortlist.recommenders.matrix_factorization",
}
_HOMES = RECOMMENDERS | {
    "DotProduct": "shortlist.recommenders.dot_product",
    "Explanation": "shortlist.recommenders.explanation",
    "Recommender": "shortlist.recommenders.base",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
