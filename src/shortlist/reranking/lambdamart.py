"""Gradient boosted trees under LambdaRank, by LightGBM."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import number, whole
from shortlist._phrases import count
from shortlist._threads import thread_count
from shortlist.errors import DataError, NotFittedError, SettingError, ShortlistWarning, StorageError
from shortlist.recommenders.unused_settings import refuse_unused
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.trees import Trees, from_lightgbm

GREATEST = 30  # grade of relevance that LightGBM has a gain for
SMALL = 2_000_000  # numbers in a table of features: with fewer, threads wait for each other longer than they work
_LARGEST = 10_000  # candidates of a query that LightGBM takes


def lightgbm() -> Any:
    """LightGBM, or an error that says how to get it."""
    try:
        return import_module("lightgbm")
    except ImportError:
        raise SettingError(
            'to fit LambdaMART, LightGBM is needed, which is not installed: pip install "shortlist[rerank]"'
        ) from None


@dataclass(kw_only=True, repr=False, eq=False)
class LambdaMART:
    """A sum of regression trees, each fitted to the LambdaRank gradients of NDCG (Burges 2010), by LightGBM.

    For every query and pair of candidates of unlike relevance the logistic loss of their difference of scores, weighed
    by what swapping the two would change in NDCG. A grade of relevance y gains 2^y − 1.

    LightGBM (extra `rerank`) grows the trees; afterwards it is needed no more. The same seed gives the same trees at
    any number of threads.

    Args:
        trees: at most so many.
        leaves: of each tree.
        learning_rate: what each tree's step is shrunk by.
        min_leaf: a leaf has at least so many candidates.
        regularization: L2 on the leaves' values.
        at: NDCG@at is what is aimed at.
        validation: the share of queries that say how many trees are enough; the trees are then grown anew from all
            queries. 0: as many as `trees` says.
        patience: stop when so many trees have brought no better NDCG@at on them.
        seed: decides which queries those are.

    After a fit `n_trees_` says how many trees there are, `importance()` which features they look at. Where there was
    too little for a single split, there is a warning: then all candidates score alike.
    """

    trees: int = 300
    leaves: int = 15
    learning_rate: float = 0.05
    min_leaf: int = 50
    regularization: float = 1.0
    at: int = 20
    validation: float = 0.2
    patience: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        self._check()
        self._learnt: _Learnt | None = None

    def _check(self) -> None:
        whole("trees", self.trees)
        whole("leaves", self.leaves, 2, 131_072)
        number("learning_rate", self.learning_rate, above=True)
        whole("min_leaf", self.min_leaf, most=2**31 - 1)
        number("regularization", self.regularization)
        whole("at", self.at, most=_LARGEST)
        if number("validation", self.validation) >= 1:
            raise SettingError(f"validation is {self.validation!r}; expected a share of the queries, below 1")
        whole("patience", self.patience)
        whole("seed", self.seed, 0, 2**31 - 1)
        if not self.validation:
            refuse_unused(self, {"patience": "validation is 0, so nothing says when to stop"})

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

    # --- fit and score -----------------------------------------------------------------------------------------------

    def fit(self, candidates: Candidates, relevance: npt.NDArray[np.int64]) -> Self:
        """Grow trees from candidates and their relevance: whole numbers from 0 to 30, a row each."""
        self._check()
        relevance = np.asarray(relevance)
        if relevance.shape != (len(candidates),) or relevance.dtype.kind not in "iub":
            raise DataError(
                f"relevance is {relevance.dtype} of shape {relevance.shape}; expected {len(candidates):,} whole numbers"
            )
        if len(relevance) and not 0 <= relevance.min() <= relevance.max() <= GREATEST:
            raise DataError(
                f"relevance goes from {relevance.min()} to {relevance.max()}; expected grades from 0 to {GREATEST}"
            )
        if (largest := int(candidates.sizes.max(initial=0))) > _LARGEST:
            raise DataError(
                f"a query has {largest:,} candidates; LightGBM takes at most {_LARGEST:,} for learning to rank"
            )
        if not relevance.any():
            raise DataError("no candidate is relevant, so there is nothing to learn from")
        engine = lightgbm()
        data = _Data(candidates.features, relevance, candidates.sizes)
        trees = self.trees
        held = np.random.default_rng([self.seed, 6]).permutation(candidates.n_queries)
        held = np.sort(held[: int(self.validation * candidates.n_queries)])
        if len(held):
            rest = np.setdiff1d(np.arange(candidates.n_queries), held)
            quiet = engine.early_stopping(self.patience, first_metric_only=True, verbose=False)
            judged = self._grown(engine, data.select(rest), candidates.threads, [quiet], data.select(held))
            trees = max(1, judged.best_iteration)
        booster = self._grown(engine, data, candidates.threads, trees=trees)
        gains = np.asarray(booster.feature_importance("gain"), np.float64)
        self._learnt = _Learnt(from_lightgbm(booster.model_to_string()), candidates.feature_names, gains)
        if not len(self._learnt.trees.feature):
            warnings.warn(
                f"nothing was learnt: with leaves of at least {self.min_leaf:,} candidates no tree splits the "
                f"{len(candidates):,} that there are, so all score alike; give LambdaMART a smaller min_leaf=, or more "
                "to learn from",
                ShortlistWarning,
                stacklevel=4,  # whoever called TwoStage.fit or fit_impressions
            )
        return self

    def _grown(
        self,
        engine: Any,
        data: _Data,
        threads: int | None,
        callbacks: list[Any] | None = None,
        held: _Data | None = None,
        *,
        trees: int | None = None,
    ) -> Any:
        parameters = {
            "objective": "lambdarank",
            "metric": "ndcg",
            "eval_at": [self.at],
            "lambdarank_truncation_level": self.at + 10,  # somewhat more than what counts, as LightGBM advises
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_leaf,
            "lambda_l2": self.regularization,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": thread_count(threads) if data.features.size >= SMALL else 1,
            "verbosity": -1,
        }
        train = data.dataset(engine, parameters)
        valid = None if held is None else [held.dataset(engine, parameters, train)]
        return engine.train(parameters, train, trees or self.trees, valid, callbacks=callbacks)

    def score(self, candidates: Candidates) -> npt.NDArray[np.float64]:
        """The sum of the trees' leaves for each candidate."""
        if candidates.feature_names != self.feature_names_:
            raise SettingError(mismatch(self.feature_names_, candidates.feature_names))
        return self.trees_.scores(candidates.features, candidates.threads)

    # --- what it learnt ----------------------------------------------------------------------------------------------

    @property
    def n_trees_(self) -> int:
        """How many trees there are."""
        return len(self.trees_)

    @property
    def trees_(self) -> Trees:
        """The trees."""
        return self._known.trees

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """The features that they look at."""
        return self._known.feature_names

    @property
    def _known(self) -> _Learnt:
        if self._learnt is None:
            raise NotFittedError("this LambdaMART has not been fitted; TwoStage(first, reranker).fit(split) does")
        return self._learnt

    def importance(self) -> pl.DataFrame:
        """Each feature's `gain`, what splits by it have brought the loss down by, and its share; greatest first."""
        gains = self._known.gains
        shares = gains / max(gains.sum(), np.finfo(np.float64).tiny)
        order = np.argsort(-gains, kind="stable")
        names = [self.feature_names_[k] for k in order]
        return pl.DataFrame({"feature": names, "gain": gains[order], "share": shares[order]})

    # --- storage -----------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What is kept beside settings and names of features."""
        return self.trees_.arrays() | {"gains": self._known.gains}

    @classmethod
    def restored(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], feature_names: tuple[str, ...]
    ) -> Self:
        """From what was kept, every part checked."""
        found = cls(**settings)
        arrays = dict(arrays)
        gains = arrays.pop("gains", None)
        if gains is None or gains.dtype != np.float64 or gains.shape != (len(feature_names),):
            raise StorageError(f"the reranker lacks the gains of its {len(feature_names)} features")
        found._learnt = _Learnt(Trees.from_arrays(arrays, len(feature_names)), feature_names, gains.copy())
        return found

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        known = self._learnt
        state = (
            ""
            if known is None
            else f" fitted: {count(len(known.trees), 'tree')} of {count(len(known.feature_names), 'feature')}"
        )
        return f"LambdaMART({inner}){state}"


@dataclass(frozen=True, eq=False)
class _Learnt:
    trees: Trees
    feature_names: tuple[str, ...]
    gains: npt.NDArray[np.float64]  # of each feature


@dataclass(frozen=True, eq=False)
class _Data:
    features: npt.NDArray[np.float32]
    relevance: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def select(self, queries: npt.NDArray[np.int64]) -> _Data:
        chosen = np.zeros(len(self.sizes), np.bool_)
        chosen[queries] = True
        rows = np.repeat(chosen, self.sizes)
        return _Data(self.features[rows], self.relevance[rows], self.sizes[queries])

    def dataset(self, engine: Any, parameters: dict[str, Any], like: Any = None) -> Any:
        return engine.Dataset(self.features, self.relevance, group=self.sizes, params=parameters, reference=like)


def mismatch(learnt: tuple[str, ...], found: tuple[str, ...]) -> str:
    """What to say where candidates have other features than those that were learnt from."""
    lacking = [name for name in learnt if name not in found]
    surplus = [name for name in found if name not in learnt]
    told = [f"it lacks {', '.join(map(repr, lacking[:5]))}"] if lacking else []
    told += [f"it has {', '.join(map(repr, surplus[:5]))} besides"] if surplus else []
    return (
        f"the candidates have {len(found)} features, the second stage learnt from {len(learnt)}: "
        f"{' and '.join(told) or 'the same in another order'}; describe them as in fit, or fit it again"
    )
