"""Shortlist: item recommendation from implicit feedback.

    import shortlist as sl

    events = sl.Interactions.read("events.parquet", context="user", item="product", time="when")
    split = sl.splits.by_time(events, test=0.1)
    model = sl.IALS(dim=128).fit(split.train)
    sl.evaluate(model, split)
    model.recommend(["user-17"], n=10)

Names are imported on first use, so `import shortlist` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shortlist._signals import HeldSignals
from shortlist._version import __version__

if TYPE_CHECKING:
    from shortlist import metrics, objectives, sampling, tuning
    from shortlist.batch import BatchResult, write_lists
    from shortlist.data import datasets, splits
    from shortlist.data.features.aligned import AlignedFeatures
    from shortlist.data.features.table import Features
    from shortlist.data.interactions import Interactions
    from shortlist.data.splits import Split
    from shortlist.data.vocabulary import Vocabulary
    from shortlist.errors import (
        DataError,
        NotFittedError,
        SettingError,
        ShortlistError,
        ShortlistWarning,
        StorageError,
        UnknownIdError,
    )
    from shortlist.evaluation import Comparison, Evaluation, compare, evaluate, evaluate_candidates
    from shortlist.loading import convert, load
    from shortlist.online import Event, UserState, UserStates
    from shortlist.ranking.index import Index
    from shortlist.ranking.recommendations import Recommendations
    from shortlist.recommenders.base import Recommender
    from shortlist.recommenders.dot_product import DotProduct
    from shortlist.recommenders.ease import EASE
    from shortlist.recommenders.explanation import Explanation
    from shortlist.recommenders.factorization_machine import FactorizationMachine
    from shortlist.recommenders.feature_ials import FeatureIALS
    from shortlist.recommenders.ials import IALS
    from shortlist.recommenders.icd import ICD
    from shortlist.recommenders.matrix_factorization import (
        BPR,
        WARP,
        AdaptiveBPR,
        HingeMF,
        LambdaMF,
        LogisticMF,
        MatrixFactorization,
        SoftmaxMF,
        SquareMF,
    )
    from shortlist.recommenders.neighbours import ItemKNN, UserKNN
    from shortlist.recommenders.popularity import Popularity
    from shortlist.recommenders.rank_als import RankALS
    from shortlist.recommenders.slim import SLIM
    from shortlist.recommenders.tensor_factorization import PARAFAC, Tucker
    from shortlist.reranking import Candidates, LambdaMART, Reranker, TwoStage
    from shortlist.retrieval import slates
    from shortlist.solvers.train import STOP, Epoch
    from shortlist.tuning import Tuned, tune
    from shortlist.warming import WarmUpResult, warm_up

_HOME = {
    "AdaptiveBPR": "shortlist.recommenders",
    "AlignedFeatures": "shortlist.data.features.aligned",
    "BPR": "shortlist.recommenders",
    "Candidates": "shortlist.reranking",
    "Comparison": "shortlist.evaluation",
    "DataError": "shortlist.errors",
    "DotProduct": "shortlist.recommenders",
    "EASE": "shortlist.recommenders",
    "Epoch": "shortlist.solvers.train",
    "Evaluation": "shortlist.evaluation",
    "Event": "shortlist.online",
    "Explanation": "shortlist.recommenders",
    "FactorizationMachine": "shortlist.recommenders",
    "FeatureIALS": "shortlist.recommenders",
    "Features": "shortlist.data.features.table",
    "HingeMF": "shortlist.recommenders",
    "IALS": "shortlist.recommenders",
    "ICD": "shortlist.recommenders",
    "Index": "shortlist.ranking.index",
    "Interactions": "shortlist.data.interactions",
    "ItemKNN": "shortlist.recommenders",
    "LambdaMART": "shortlist.reranking",
    "LambdaMF": "shortlist.recommenders",
    "LogisticMF": "shortlist.recommenders",
    "MatrixFactorization": "shortlist.recommenders",
    "NotFittedError": "shortlist.errors",
    "PARAFAC": "shortlist.recommenders",
    "Popularity": "shortlist.recommenders",
    "RankALS": "shortlist.recommenders",
    "Recommendations": "shortlist.ranking.recommendations",
    "Recommender": "shortlist.recommenders",
    "Reranker": "shortlist.reranking",
    "SLIM": "shortlist.recommenders",
    "STOP": "shortlist.solvers.train",
    "SettingError": "shortlist.errors",
    "ShortlistError": "shortlist.errors",
    "ShortlistWarning": "shortlist.errors",
    "SoftmaxMF": "shortlist.recommenders",
    "Split": "shortlist.data.splits",
    "SquareMF": "shortlist.recommenders",
    "StorageError": "shortlist.errors",
    "Tucker": "shortlist.recommenders",
    "Tuned": "shortlist.tuning",
    "TwoStage": "shortlist.reranking",
    "UnknownIdError": "shortlist.errors",
    "UserKNN": "shortlist.recommenders",
    "UserState": "shortlist.online",
    "UserStates": "shortlist.online",
    "Vocabulary": "shortlist.data.vocabulary",
    "WARP": "shortlist.recommenders",
    "WarmUpResult": "shortlist.warming",
    "BatchResult": "shortlist.batch",
    "compare": "shortlist.evaluation",
    "evaluate": "shortlist.evaluation",
    "evaluate_candidates": "shortlist.evaluation",
    "convert": "shortlist.loading",
    "load": "shortlist.loading",
    "tune": "shortlist.tuning",
    "warm_up": "shortlist.warming",
    "write_lists": "shortlist.batch",
}
_MODULES = {
    "datasets": "shortlist.data.datasets",
    "metrics": "shortlist.metrics",
    "objectives": "shortlist.objectives",
    "sampling": "shortlist.sampling",
    "slates": "shortlist.retrieval.slates",
    "splits": "shortlist.data.splits",
    "tuning": "shortlist.tuning",
}

__all__ = [  # noqa: RUF022
    "Interactions", "Vocabulary", "Features", "AlignedFeatures", "Split", "splits", "datasets",
    "Recommender", "DotProduct", "Popularity", "ItemKNN", "UserKNN", "SLIM", "EASE", "IALS", "ICD",
    "MatrixFactorization", "BPR", "AdaptiveBPR", "WARP", "LambdaMF", "LogisticMF", "HingeMF", "SquareMF", "SoftmaxMF",
    "RankALS", "PARAFAC", "Tucker", "FactorizationMachine", "FeatureIALS",
    "Recommendations", "Explanation", "Index", "UserState", "UserStates", "Event", "load", "convert",
    "write_lists", "BatchResult", "TwoStage", "Reranker", "LambdaMART", "Candidates", "Epoch", "STOP",
    "evaluate", "evaluate_candidates", "compare", "Evaluation", "Comparison", "metrics", "objectives",
    "sampling", "slates",
    "tune", "Tuned", "tuning", "warm_up", "WarmUpResult",
    "ShortlistError", "DataError", "SettingError", "UnknownIdError", "NotFittedError", "StorageError",
    "ShortlistWarning", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _MODULES.get(name) or _HOME.get(name)
    if home is None:
        from shortlist._renamed import name_in

        return getattr(import_module(__name__), name_in(__name__, name))
    with HeldSignals():  # if Ctrl-C interrupted the first import of NumPy, this process could never import it
        module = import_module(home)
    value: Any = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
