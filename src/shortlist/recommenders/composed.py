"""What is made of recommenders, and is asked as they are."""

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
        first: the one that finds, fitted.
        candidates: how many items it is asked for.
    """

    first: Recommender
    candidates: int

    @property
    def contexts_(self) -> Vocabulary:
        """The contexts that stage one knows."""
        return self.first.contexts_

    @property
    def items_(self) -> Vocabulary:
        """The items that stage one knows."""
        return self.first.items_

    @property
    def _composes(self) -> bool:
        return self.first._composes

    @abstractmethod
    def _require_fit(self) -> None:
        """Refuse to answer before it has been fitted."""

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
        """The n best items for queries of `first`."""

    @abstractmethod
    def _stored(self) -> StoredModel:
        """All of it taken apart into what can be written down."""

    @abstractmethod
    def _code(self) -> list[str]:
        """The names of code of the user's own, which cannot."""
