"""Base class of factorizations learned in epochs: start values, trainers, `partial_fit`."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from shortlist._checks import integer, number
from shortlist._state import State
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.errors import ShortlistWarning
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.epochs import learn_in_epochs, number_of_epochs
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.unused_settings import unused_weights
from shortlist.recommenders.warm_start import checked_start, grown
from shortlist.solvers.train import Callback, Embeddings, EmbeddingTrainer


@dataclass(kw_only=True, repr=False, eq=False)
class Factorization(DotProduct):
    """Base class of dot-product models learned in epochs.

    `prepared` is what `_precompute` derives from the observed pairs; both learning and answering use it.
    """

    learns_in_epochs: ClassVar[bool] = True
    _every: ClassVar[int] = 1  # default number of epochs between evaluations
    _snapshot_has_contexts: ClassVar[bool] = True  # if not, validation folds them in from their histories

    dim: int = 64
    epochs: int = 16
    init_scale: float = 0.1
    seed: int = 0

    def check_settings(self) -> None:
        """Raise SettingError for invalid settings."""
        integer("dim", self.dim)
        integer("epochs", self.epochs)
        integer("seed", self.seed, least=0)
        number("init_scale", self.init_scale, above=True)

    @property
    def _width(self) -> int:
        """The number of columns of the embeddings."""
        return int(self.dim)

    # --- what a factorization defines --------------------------------------------------------------------------------

    @abstractmethod
    def _precompute(self, by_context: SparseRows) -> Any:
        """Derive what depends on the observed pairs alone."""

    @abstractmethod
    def _start(
        self, interactions: Interactions, prepared: Any, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings | None, Embeddings]:
        """Return start values of contexts (None if not needed) and items, from the model `start` if there is one."""

    @abstractmethod
    def _trainer(
        self,
        interactions: Interactions,
        prepared: Any,
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> EmbeddingTrainer:
        """Return the trainer that runs the epochs from these start values."""

    @abstractmethod
    def _set_items(self, items: Embeddings, prepared: Any) -> None:
        """Set the item embeddings, and derive what folding in needs."""

    def _schedule_epochs(self, epochs: int) -> int | None:
        """Return the number of epochs of the learning-rate schedule, or None if epochs do not depend on it."""
        return None

    def _shapes(self, interactions: Interactions) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the shapes of the contexts' and the items' parameters."""
        return (interactions.n_contexts, self._width), (interactions.n_items, self._width)

    def _checked_start(self, start: object) -> DotProduct:
        """Return `start` if this model can take start values from it; else raise SettingError."""
        return checked_start(start, self.dim)

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        epochs, threads = number_of_epochs(self, options), options.threads
        start = None if options.start is None else self._checked_start(options.start)
        prepared = self._precompute(interactions.by_context)

        def new_trainer(resumes: bool) -> EmbeddingTrainer:
            contexts: Embeddings | None
            if resumes:
                contexts, items = (np.zeros(shape, np.float32) for shape in self._shapes(interactions))
            else:
                contexts, items = self._start(interactions, prepared, start, threads)
            return self._trainer(interactions, prepared, contexts, items, threads, epochs)

        def show(model: Factorization, snapshot: State) -> None:
            model._set_items(snapshot["items"], prepared)
            if "contexts" in snapshot:
                model._set_contexts(snapshot["contexts"])

        identity: dict[str, Any] = {}
        if (schedule_epochs := self._schedule_epochs(epochs)) is not None:
            identity["the number of epochs, which the learning rate depends on,"] = schedule_epochs
        trainer = learn_in_epochs(
            self,
            interactions,
            options,
            monitor,
            new_trainer,
            show,
            every=self._every,
            by_history=not self._snapshot_has_contexts,
            accepts_start=True,
            identity=identity,
        )
        contexts, items = trainer.embeddings()
        self._set_contexts(contexts)
        self._set_items(items, prepared)

    def _set_contexts(self, contexts: Embeddings) -> None:
        """Set the context embeddings."""
        self.context_embeddings_ = contexts  # type: ignore[misc]

    def partial_fit(
        self,
        interactions: Interactions,
        *,
        epochs: int = 2,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool | None = None,
        threads: int | None = None,
    ) -> Self:
        """Learn from new events: run a few epochs from the current embeddings over the old and the new pairs.

        New contexts and items become known. The weights of a repeated pair add up; if the new events were made with
        `aggregate="latest"`, the new weight replaces the old one. Columns of the new events may have other names; the
        model keeps its own. Loaded models can do this too.

        Args:
            interactions: the new events.
            epochs: number of epochs.
            callbacks: functions to call after each epoch, as in `fit`.
            progress: show a progress bar, as in `fit`.
            threads: number of threads, as in `fit`.

        >>> from shortlist import IALS, Interactions
        >>> model = IALS(dim=2, epochs=3).fit(Interactions.from_frame(
        ...     {"user": ["ann", "bob"], "product": ["tea", "jam"]}, context="user", item="product"))
        >>> more = Interactions.from_frame({"user": ["cy"], "product": ["tea"]}, context="user", item="product")
        >>> model.partial_fit(more).contexts_.ids()
        ['ann', 'bob', 'cy']
        """
        self.require_fit()
        integer("epochs", epochs)
        self._check_events(interactions, "partial_fit")
        for message in unused_weights(self, interactions):
            warnings.warn(message, ShortlistWarning, stacklevel=2)
        options = FitOptions(start=self, epochs=epochs)
        return self.fit_with(grown(self, interactions), options, "partial_fit", callbacks, progress, threads)
