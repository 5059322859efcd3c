"""Base class of models that combine several recommenders and answer like one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from shortlist.data.vocabulary import Vocabulary
from shortlist.recommenders.base import Queries, Recommender
from shortlist.recommenders.recommendations import Recommendations
from shortlist.retrieval import Filters
from shortlist.retrieval.slates.base import Slate

if TYPE_CHECKING:
    from shortlist.storage import StoredModel


class Composed(ABC):
    """Several recommenders that answer as one. Ids, queries and filters are those of the first.

    Attributes:
        first: the fitted recommender that finds the candidates.
        candidates: number of candidates per query.
    """

    first: Recommender
    candidates: int

    @property
    def contexts_(self) -> Vocabulary:
        """The contexts that the first stage knows."""
        return self.first.contexts_

    @property
    def items_(self) -> Vocabulary:
        """The items that the first stage knows."""
        return self.first.items_

    @property
    def _composes(self) -> bool:
        return self.first._composes

    @abstractmethod
    def _require_fit(self) -> None:
        """Raise NotFittedError before `fit`."""

    @abstractmethod
    def _answer(
        self,
        queries: Queries,
        filters: Filters,
        n: int,
        slate: Slate | None,
        memory: int | str | None,
        threads: int | None,
    ) -> Recommendations:
        """Return the n best items for queries of `first`."""

    @abstractmethod
    def _stored(self) -> StoredModel:
        """Return the model as settings, arrays and tables."""

    @abstractmethod
    def _code(self) -> list[str]:
        """Return the names of the user's own classes and functions, which cannot be stored."""
