"""LambdaMART: gradient boosted trees for ranking, trained by LightGBM."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import integer, number
from shortlist._phrases import count
from shortlist._threads import thread_count
from shortlist.errors import DataError, NotFittedError, SettingError, ShortlistWarning, StorageError
from shortlist.recommenders.unused_settings import refuse_unused
from shortlist.reranking.candidates import Candidates
from shortlist.reranking.trees import Trees, from_lightgbm

HIGHEST_GRADE = 30  # the highest relevance grade that LightGBM has a gain for
SMALL = 2_000_000  # values in the feature matrix; below this, threads wait for each other longer than they work
_MOST_CANDIDATES = 10_000  # LightGBM's limit for a query


def lightgbm() -> Any:
    """Import LightGBM, or raise an error that says how to install it."""
    try:
        return import_module("lightgbm")
    except ImportError:
        raise SettingError(
            'LambdaMART.fit needs LightGBM, which is not installed: pip install "shortlist[rerank]"',
            code="package-missing",
        ) from None


@dataclass(kw_only=True, repr=False, eq=False)
class LambdaMART:
    """A reranker of gradient boosted regression trees, fitted to the LambdaRank gradients of NDCG (Burges 2010).

    The loss of a query is a sum over pairs of candidates with different relevance: the logistic loss of their score
    difference, weighted by how much NDCG would change if the two swapped places. Relevance grade y has gain 2^y − 1.

    LightGBM (`pip install "shortlist[rerank]"`) grows the trees. Only `fit` needs it; scoring, saving and loading do
    not. The same seed gives the same trees with any number of threads.

    Args:
        trees: the maximum number of trees.
        leaves: the maximum number of leaves per tree.
        learning_rate: the factor that shrinks the output of each tree.
        min_leaf: the minimum number of candidates per leaf.
        regularization: the L2 penalty on leaf values.
        at: the trees optimise NDCG@at.
        validation: the fraction of queries held out to choose the number of trees. The trees are then grown again from
            all queries. With 0 there are always `trees` trees.
        patience: stop after this many trees without a better NDCG@at on the held-out queries.
        seed: chooses the held-out queries.

    After a fit, `n_trees_` is the number of trees, and `importance()` says which features they use. If there is too
    little data for a single split, a warning says so, and all candidates get the same score.
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
        self._fitted: _FittedTrees | None = None

    def _check(self) -> None:
        integer("trees", self.trees)
        integer("leaves", self.leaves, 2, 131_072)
        number("learning_rate", self.learning_rate, above=True)
        integer("min_leaf", self.min_leaf, most=2**31 - 1)
        number("regularization", self.regularization)
        integer("at", self.at, most=_MOST_CANDIDATES)
        if number("validation", self.validation) >= 1:
            raise SettingError(
                f"validation is {self.validation!r}; expected a fraction of the queries, < 1", field="validation"
            )
        integer("patience", self.patience)
        integer("seed", self.seed, 0, 2**31 - 1)
        if not self.validation:
            refuse_unused(self, {"patience": "with validation=0, because there is no early stopping"})

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}

    # --- fit and score -----------------------------------------------------------------------------------------------

    def fit(self, candidates: Candidates, relevance: npt.NDArray[np.int64]) -> Self:
        """Grow trees from candidates and their relevance grades: integers from 0 to 30, one per row."""
        self._check()
        relevance = np.asarray(relevance)
        if relevance.shape != (len(candidates),) or relevance.dtype.kind not in "iub":
            raise DataError(
                f"relevance is {relevance.dtype} of shape {relevance.shape}; expected {len(candidates):,} integers",
                field="relevance",
            )
        if len(relevance) and not 0 <= relevance.min() <= relevance.max() <= HIGHEST_GRADE:
            raise DataError(
                f"relevance ranges from {relevance.min()} to {relevance.max()}; expected grades from 0 to "
                f"{HIGHEST_GRADE}"
            )
        if (largest := int(candidates.sizes.max(initial=0))) > _MOST_CANDIDATES:
            raise DataError(
                f"a query has {largest:,} candidates, but LightGBM ranks at most {_MOST_CANDIDATES:,}",
                hint="use fewer candidates",
            )
        if not relevance.any():
            raise DataError("no candidate is relevant; LambdaMART needs relevant candidates to learn from")
        engine = lightgbm()
        data = _Data(candidates.features, relevance, candidates.sizes)
        trees = self.trees
        held_out = np.random.default_rng([self.seed, 6]).permutation(candidates.n_queries)
        held_out = np.sort(held_out[: int(self.validation * candidates.n_queries)])
        if len(held_out):
            rest = np.setdiff1d(np.arange(candidates.n_queries), held_out)
            stopping = engine.early_stopping(self.patience, first_metric_only=True, verbose=False)
            trial = self._grow(engine, data.select(rest), candidates.threads, [stopping], data.select(held_out))
            trees = max(1, trial.best_iteration)
        booster = self._grow(engine, data, candidates.threads, trees=trees)
        gains = np.asarray(booster.feature_importance("gain"), np.float64)
        self._fitted = _FittedTrees(from_lightgbm(booster.model_to_string()), candidates.feature_names, gains)
        if not len(self._fitted.trees.feature):
            warnings.warn(
                f"LambdaMART learned nothing: with leaves of at least {self.min_leaf:,} candidates no tree can split "
                f"the {len(candidates):,} candidates, so all get the same score. Use a smaller min_leaf= or more "
                "training data",
                ShortlistWarning,
                stacklevel=4,  # the caller of TwoStage.fit or fit_impressions
            )
        return self

    def _grow(
        self,
        engine: Any,
        data: _Data,
        threads: int | None,
        callbacks: list[Any] | None = None,
        held_out: _Data | None = None,
        *,
        trees: int | None = None,
    ) -> Any:
        parameters = {
            "objective": "lambdarank",
            "metric": "ndcg",
            "eval_at": [self.at],
            "lambdarank_truncation_level": self.at + 10,  # slightly more than `at`, as LightGBM recommends
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
        valid = None if held_out is None else [held_out.dataset(engine, parameters, train)]
        return engine.train(parameters, train, trees or self.trees, valid, callbacks=callbacks)

    def score(self, candidates: Candidates) -> npt.NDArray[np.float64]:
        """Return the score of each candidate: the sum of its leaf values over all trees."""
        if candidates.feature_names != self.feature_names_:
            raise SettingError(mismatch(self.feature_names_, candidates.feature_names))
        return self.trees_.scores(candidates.features, candidates.threads)

    # --- what it learned ---------------------------------------------------------------------------------------------

    @property
    def n_trees_(self) -> int:
        """The number of trees."""
        return len(self.trees_)

    @property
    def trees_(self) -> Trees:
        """The trees."""
        return self._require_fit().trees

    @property
    def feature_names_(self) -> tuple[str, ...]:
        """The features that it was fitted on."""
        return self._require_fit().feature_names

    def _require_fit(self) -> _FittedTrees:
        if self._fitted is None:
            raise NotFittedError(
                "this LambdaMART has not been fitted", hint="call TwoStage(first, reranker).fit(split)"
            )
        return self._fitted

    def importance(self) -> pl.DataFrame:
        """Return the features with their `gain` (how much their splits reduced the loss) and `share`, highest first."""
        gains = self._require_fit().gains
        shares = gains / max(gains.sum(), np.finfo(np.float64).tiny)
        order = np.argsort(-gains, kind="stable")
        names = [self.feature_names_[k] for k in order]
        return pl.DataFrame({"feature": names, "gain": gains[order], "share": shares[order]})

    # --- storage -----------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays to store beside the settings and feature names."""
        return self.trees_.arrays() | {"gains": self._require_fit().gains}

    @classmethod
    def restored(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], feature_names: tuple[str, ...]
    ) -> Self:
        """Restore a fitted LambdaMART from stored parts, checking each."""
        model = cls(**settings)
        arrays = dict(arrays)
        gains = arrays.pop("gains", None)
        if gains is None or gains.dtype != np.float64 or gains.shape != (len(feature_names),):
            raise StorageError(f"the reranker has no gains for its {len(feature_names)} features")
        model._fitted = _FittedTrees(Trees.from_arrays(arrays, len(feature_names)), feature_names, gains.copy())
        return model

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        fitted = self._fitted
        state = (
            ""
            if fitted is None
            else f" fitted: {count(len(fitted.trees), 'tree')} of {count(len(fitted.feature_names), 'feature')}"
        )
        return f"LambdaMART({inner}){state}"


@dataclass(frozen=True, eq=False)
class _FittedTrees:
    trees: Trees
    feature_names: tuple[str, ...]
    gains: npt.NDArray[np.float64]  # one per feature


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


def mismatch(trained: tuple[str, ...], given: tuple[str, ...]) -> str:
    """Return the error message for candidates whose features differ from those in training."""
    missing = [name for name in trained if name not in given]
    unexpected = [name for name in given if name not in trained]
    differences = [f"missing: {', '.join(map(repr, missing[:5]))}"] if missing else []
    differences += [f"unexpected: {', '.join(map(repr, unexpected[:5]))}"] if unexpected else []
    return (
        f"the candidates have {len(given)} features, but the second stage was fitted on {len(trained)} "
        f"({'; '.join(differences) or 'the same in another order'}); pass the same features as in fit, or fit again"
    )
