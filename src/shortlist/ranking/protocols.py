"""Protocols: everything that this package and the packages below it may ask of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist.data.histories import Histories
from shortlist.data.vocabulary import Codes, Id, Unknown, Vocabulary
from shortlist.ranking.inputs import Advice, History
from shortlist.ranking.queries import Queries
from shortlist.ranking.request import Request
from shortlist.retrieval import Filters
from shortlist.retrieval.slates.base import Catalogue
from shortlist.scoring import BlockScorer

if TYPE_CHECKING:
    from shortlist.data.splits import Split
    from shortlist.storage import StoredModel


class TopItems(NamedTuple):
    """The best items of each query, best first: codes, −1 in empty places, and scores."""

    items: Codes
    scores: npt.NDArray[np.float32]


class Ranker(Protocol):
    """A model that ranks items. Evaluation, batch recommendations, second stages and live users use nothing else.

    `Recommender` and `TwoStage` are rankers. `unknown` and the other arguments are those of `Recommender.recommend`.
    """

    @property
    def ordered(self) -> bool:
        """Whether the order of a history matters; if not, histories are sets."""

    @property
    def contexts_(self) -> Vocabulary:
        """The contexts that the model knows."""

    @property
    def items_(self) -> Vocabulary:
        """The catalogue."""

    @property
    def popularity_(self) -> npt.NDArray[np.int64]:
        """The number of training contexts of each item."""

    @property
    def item_priority_(self) -> npt.NDArray[np.int32]:
        """The order of items with equal scores: the position of each item by popularity, from 0."""

    @property
    def uses_features(self) -> bool:
        """Whether the model learns from features too, so that it can score items without events."""

    @property
    def composes_contexts(self) -> bool:
        """Whether the model answers unseen combinations of known parts of contexts."""

    @property
    def catalogue(self) -> Catalogue:
        """The item data that slates use."""

    def require_fit(self) -> None:
        """Raise NotFittedError before `fit`."""

    def queries(
        self,
        contexts: Iterable[Id] | None = None,
        history: History | None = None,
        *,
        unknown: Unknown = "raise",
        advice: Advice = ...,
    ) -> Queries:
        """Return queries in codes for ids of contexts, or for histories of any users."""

    def context_codes(self, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of contexts, −1 for new ones, and which of them the model can answer."""

    def histories_of(self, codes: Codes) -> Histories:
        """Return the training histories of contexts; empty for code −1."""

    def filters(self, queries: Queries, request: Request) -> Filters:
        """Return the filters of a request in codes."""

    def scorer(self, queries: Queries, threads: int | None = None) -> BlockScorer:
        """Return a scorer of all items for these queries."""

    def top(self, queries: Queries, filters: Filters, request: Request) -> TopItems:
        """Return the n best items of each query."""


class StorableRanker(Ranker, Protocol):
    """A ranker that can be saved, and so be recognised by its content."""

    def to_stored(self) -> StoredModel:
        """Return the model as settings, arrays and tables."""

    def custom_code(self) -> list[str]:
        """Return the names of the user's own classes and functions, which cannot be stored."""


class EmbeddingRanker(Ranker, Protocol):
    """A ranker whose score is the inner product of a context's and an item's embedding: for indexes and live users."""

    @property
    def item_embeddings_(self) -> npt.NDArray[np.float32]:
        """One row per item."""

    def encode(self, queries: Queries, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Return the embeddings of queries, one row each."""

    def unit_item_vectors(self) -> npt.NDArray[np.float32]:
        """Return the item embeddings without biases, scaled to length 1."""


class StagedRanker(Ranker, Protocol):
    """A ranker in two stages: the first finds candidates, the second orders them."""

    candidates: int

    @property
    def stages(self) -> tuple[str, str]:
        """The names of both stages."""

    def check_split(self, split: Split, *, stacklevel: int = 2) -> None:
        """Warn if a stage has seen held-out pairs of the split; `stacklevel` is as in `warnings.warn`."""

    def rerank(
        self, queries: Queries, lists: TopItems, memory: int, threads: int | None
    ) -> tuple[Codes, npt.NDArray[np.float64]]:
        """Return stage one's lists with the candidates in stage two's order."""


def is_ranker(model: object) -> TypeGuard[Ranker]:
    """Return whether an object has the methods of a ranker, fitted or not."""
    methods = ("queries", "filters", "scorer", "top", "require_fit")
    return not isinstance(model, type) and all(callable(getattr(model, name, None)) for name in methods)


def is_staged(model: object) -> TypeGuard[StagedRanker]:
    """Return whether an object is a ranker in two stages."""
    return is_ranker(model) and callable(getattr(model, "rerank", None))


def has_embeddings(model: object) -> TypeGuard[EmbeddingRanker]:
    """Return whether an object is a ranker with embeddings, fitted or not."""
    return is_ranker(model) and callable(getattr(model, "encode", None))
