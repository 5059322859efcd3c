"""Base class of factorizations learned in epochs: start values, early stopping, checkpoints, `partial_fit`."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from shortlist._checks import integer, number
from shortlist._state import State
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split, among
from shortlist.errors import DataError, ShortlistWarning
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.unused_settings import unused_weights
from shortlist.recommenders.warm_start import checked_start, grown
from shortlist.solvers.stopping import EarlyStopping
from shortlist.solvers.train import Callback, Embeddings, EmbeddingTrainer, Epoch, ResumePoint, train

if TYPE_CHECKING:
    from shortlist.recommenders.checkpoint import Checkpoint


@dataclass(kw_only=True, repr=False, eq=False)
class Factorization(DotProduct):
    """Base class of dot-product models learned in epochs.

    `prepared` is what `_precompute` derives from the observed pairs; both learning and answering use it.
    """

    learns_in_epochs: ClassVar[bool] = True
    _every: ClassVar[int] = 1  # default number of epochs between evaluations

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

    def _identity(self) -> dict[str, Any]:
        """Return further facts that a checkpoint must agree with, as {name: fact}."""
        return {}

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, interactions: Interactions, options: FitOptions, monitor: Monitor) -> None:
        """Learn from interactions."""
        epochs = integer("epochs", self.epochs if options.epochs is None else options.epochs)
        start = None if options.start is None else self._checked_start(options.start)
        prepared = self._precompute(interactions.by_context)
        stopping = None if options.validation is None else self._stopping(interactions, options, prepared)
        checkpoint = None if options.checkpoint is None else self._checkpoint(interactions, options, epochs)
        saved = None if checkpoint is None else checkpoint.read(epochs)
        if checkpoint is None or saved is None:
            start_values = self._start(interactions, prepared, start, options.threads)
            trainer = self._trainer(interactions, prepared, *start_values, options.threads, epochs)
        else:
            contexts, items = (np.zeros(shape, np.float32) for shape in self._shapes(interactions))
            trainer = self._trainer(interactions, prepared, contexts, items, options.threads, epochs)
            checkpoint.resume(saved, trainer, stopping)
        past = None if saved is None else saved.past
        del saved  # the trainer has copied the state

        def keep(point: ResumePoint) -> None:
            if checkpoint is not None and checkpoint.due(options.checkpoint_share):
                checkpoint.write(point, trainer, stopping)

        training = train(
            trainer,
            epochs,
            callbacks=monitor.callbacks,
            stopping=stopping,
            every=self._every_of(options),
            past=past,
            keep=keep,
        )
        contexts, items = trainer.embeddings()
        self._set_contexts(contexts)
        self._set_items(items, prepared)
        self.training_: list[Epoch] = training
        self.best_epoch_: int | None = None if stopping is None else stopping.best_epoch

    def _every_of(self, options: FitOptions) -> int:
        """Return the number of epochs between evaluations."""
        return self._every if options.every is None else int(options.every)

    def _set_contexts(self, contexts: Embeddings) -> None:
        """Set the context embeddings."""
        self.context_embeddings_ = contexts  # type: ignore[misc]

    def _stopping(self, interactions: Interactions, options: FitOptions, prepared: Any) -> EarlyStopping:
        """Return early stopping by the validation metric.

        If a snapshot has no contexts, they are folded in from their histories.
        """
        from shortlist.evaluation.evaluate import validation_score

        split = options.validation
        assert split is not None
        _refuse_leak(interactions, split)
        folded = replace(split, fold_in=True)
        model = copy.copy(self)
        model.remember(interactions)

        def measure(snapshot: State) -> float:
            model._set_items(snapshot["items"], prepared)
            if "contexts" not in snapshot:
                return validation_score(model, folded, options.metric, options.threads)
            model._set_contexts(snapshot["contexts"])
            return validation_score(model, split, options.metric, options.threads)

        return EarlyStopping(measure, options.patience * self._every_of(options))

    def _checkpoint(self, interactions: Interactions, options: FitOptions, epochs: int) -> Checkpoint:
        from shortlist.recommenders.checkpoint import Checkpoint
        from shortlist.storage.digest import digest

        assert options.checkpoint is not None
        identity: dict[str, Any] = {
            "the ids of contexts": digest(interactions.contexts),
            "the ids of items": digest(interactions.items),
            "the pairs or their weights": digest(interactions.by_context),
            "the start": None,
            "the validation": None,
            **self._identity(),
        }
        if (schedule_epochs := self._schedule_epochs(epochs)) is not None:
            identity["the number of epochs, which the learning rate depends on,"] = schedule_epochs
        if options.start is not None:
            start = self._checked_start(options.start)
            embeddings = (start.context_embeddings_, start.item_embeddings_)
            identity["the start"] = digest(start.contexts_, start.items_, *embeddings)
        if options.validation is not None:
            parts = [
                part
                for events in (options.validation.history, options.validation.truth)
                for part in (events.contexts, events.items, events.by_context)
            ]
            every = self._every_of(options)
            if epochs % every:  # the last epoch is evaluated although it would not be in a longer fit
                identity["the number of epochs, no multiple of `every`,"] = epochs
            settings = [options.metric, int(options.patience), every, options.validation.repeats]
            identity["the validation"] = [*settings, digest(*parts)]
        return Checkpoint(options.checkpoint, type(self), self.settings(), identity)

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


def _refuse_leak(interactions: Interactions, split: Split) -> None:
    """Refuse to learn from held-out pairs of the validation split; pairs that its `train` repeats are no leak."""
    truth = split.truth
    leaked = int((among(truth, interactions) & ~among(truth, split.train)).sum())
    if leaked:
        raise DataError(
            f"{leaked:,} of the {len(truth):,} held-out pairs of the validation split are among the interactions to "
            "learn from",
            code="leaked-data",
            field="validation",
            hint="call fit(split.train, validation=split)",
        )
