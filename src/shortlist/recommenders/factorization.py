"""Factorizations that are learnt in epochs: start values, early stopping, checkpoints, more events."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from shortlist._checks import number, whole
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.splits import Split, among
from shortlist.errors import DataError, ShortlistWarning
from shortlist.recommenders.dot_product import DotProduct
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.fit_progress import Monitor
from shortlist.recommenders.unused_settings import unused_weights
from shortlist.recommenders.warm_start import checked_start, grown
from shortlist.solvers.epochs import Callback, Embeddings, Epoch, Loop, ResumePoint, run
from shortlist.solvers.stopping import EarlyStopping

if TYPE_CHECKING:
    from shortlist.recommenders.checkpoint import Checkpoint


@dataclass(kw_only=True, repr=False, eq=False)
class Factorization(DotProduct):
    """A dot product learnt in epochs: a recommender adds these.

    What depends on the data only, and is needed both in learning and in answering, is its *basis*.
    """

    _in_epochs: ClassVar[bool] = True
    _every: ClassVar[int] = 1  # epochs from one evaluation to the next

    dim: int = 64
    epochs: int = 16
    init_scale: float = 0.1
    seed: int = 0

    def _check(self) -> None:
        whole("dim", self.dim)
        whole("epochs", self.epochs)
        whole("seed", self.seed, least=0)
        number("init_scale", self.init_scale, above=True)

    @property
    def _width(self) -> int:
        """The columns of the embeddings."""
        return int(self.dim)

    # --- what a factorization defines --------------------------------------------------------------------------------

    @abstractmethod
    def _precompute(self, by_context: SparseRows) -> Any:
        """What follows from the observed pairs alone."""

    @abstractmethod
    def _start(
        self, interactions: Interactions, start: DotProduct | None, threads: int | None
    ) -> tuple[Embeddings | None, Embeddings]:
        """Embeddings to begin with, of contexts where they need any and of items: those of `start`, if any."""

    @abstractmethod
    def _loop(
        self,
        interactions: Interactions,
        prepared: Any,
        contexts: Embeddings | None,
        items: Embeddings,
        threads: int | None,
        epochs: int,
    ) -> Loop:
        """What runs the epochs, from these start values."""

    @abstractmethod
    def _set_items(self, items: Embeddings, prepared: Any) -> None:
        """Take these items, and derive what folding in needs."""

    def _schedule_epochs(self, epochs: int) -> int | None:
        """How many epochs there will be, where what an epoch does depends on it."""
        return None

    def _shapes(self, interactions: Interactions) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of what is learnt of contexts, and of items."""
        return (interactions.n_contexts, self._width), (interactions.n_items, self._width)

    def _checked_start(self, start: object) -> DotProduct:
        """A model that this one can begin from."""
        return checked_start(start, self.dim)

    def _identity(self) -> dict[str, Any]:
        """What else a checkpoint must agree with, by name."""
        return {}

    # --- learning ----------------------------------------------------------------------------------------------------

    def _fit(self, interactions: Interactions, options: FitOptions, monitor: Monitor, threads: int | None) -> None:
        epochs = whole("epochs", self.epochs if options.epochs is None else options.epochs)
        start = None if options.start is None else self._checked_start(options.start)
        prepared = self._precompute(interactions.by_context)
        stopping = None if options.validation is None else self._stopping(interactions, options, prepared, threads)
        checkpoint = None if options.checkpoint is None else self._checkpoint(interactions, options, epochs)
        saved = None if checkpoint is None else checkpoint.read(*self._shapes(interactions), epochs)
        past: ResumePoint | None = None
        if saved is None:
            loop = self._loop(interactions, prepared, *self._start(interactions, start, threads), threads, epochs)
        else:
            past = saved.past
            loop = self._loop(interactions, prepared, saved.contexts, saved.items, threads, epochs)
            assert checkpoint is not None
            try:
                saved.resume(loop, stopping)
            except ValueError as error:
                raise checkpoint.unusable(error) from error
        del saved  # its arrays are the loop's now

        def keep(now: ResumePoint) -> None:
            if checkpoint is not None and checkpoint.due(options.checkpoint_share):
                checkpoint.write(now, loop, stopping)

        training = run(
            loop,
            epochs,
            callbacks=monitor.callbacks,
            stopping=stopping,
            every=self._every_of(options),
            past=past,
            keep=keep,
        )
        contexts, items = loop.embeddings()
        self._set_contexts(contexts)
        self._set_items(items, prepared)
        self.training_: list[Epoch] = training
        self.best_epoch_: int | None = None if stopping is None else stopping.best_epoch

    def _every_of(self, options: FitOptions) -> int:
        """Epochs from one evaluation to the next."""
        return self._every if options.every is None else int(options.every)

    def _set_contexts(self, contexts: Embeddings) -> None:
        """Take these contexts."""
        self.context_embeddings_ = contexts  # type: ignore[misc]

    def _stopping(
        self, interactions: Interactions, options: FitOptions, prepared: Any, threads: int | None
    ) -> EarlyStopping:
        """Judges embeddings by the metric.

        Contexts that follow from the items, or are not in training, are folded in from their histories.
        """
        from shortlist.evaluation.evaluate import validation_score

        own = options.validation
        assert own is not None
        _refuse_leak(interactions, own)
        folded = replace(own, fold_in=True)
        model = copy.copy(self)
        model._remember(interactions)

        def measure(items: Embeddings, contexts: Embeddings | None) -> float:
            model._set_items(items, prepared)
            if contexts is None:
                return validation_score(model, folded, options.metric, threads)
            model._set_contexts(contexts)
            return validation_score(model, own, options.metric, threads)

        return EarlyStopping(measure, options.patience * self._every_of(options))

    def _checkpoint(self, interactions: Interactions, options: FitOptions, epochs: int) -> Checkpoint:
        from shortlist.recommenders.checkpoint import Checkpoint, digest

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
            learnt = (start.context_embeddings_, start.item_embeddings_)
            identity["the start"] = digest(start.contexts_, start.items_, *learnt)
        if options.validation is not None:
            parts = [
                part
                for one in (options.validation.history, options.validation.truth)
                for part in (one.contexts, one.items, one.by_context)
            ]
            every = self._every_of(options)
            if epochs % every:  # the last epoch is judged, which it would not be if there were more
                identity["the number of epochs, no multiple of `every`,"] = epochs
            how = [options.metric, int(options.patience), every, options.validation.repeats]
            identity["the validation"] = [*how, digest(*parts)]
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
        """Learn from more events: a few epochs, from the current embeddings, over the old pairs and the new ones.

        Contexts and items that are new become known; weights of a pair that was there add up, unless the new events
        say that the latest counts. The events' columns may have other names: the model keeps its own. A model that was
        loaded can do it too.

        Args:
            interactions: the new events.
            epochs: how many.
            callbacks: as in `fit`, and likewise the others.
            progress: show a progress bar.
            threads: how many to use.

        >>> from shortlist import IALS, Interactions
        >>> model = IALS(dim=2, epochs=3).fit(Interactions.from_frame(
        ...     {"user": ["ann", "bob"], "product": ["tea", "jam"]}, context="user", item="product"))
        >>> more = Interactions.from_frame({"user": ["cy"], "product": ["tea"]}, context="user", item="product")
        >>> model.partial_fit(more).contexts_.ids()
        ['ann', 'bob', 'cy']
        """
        self._require_fit()
        whole("epochs", epochs)
        self._check_events(interactions, "partial_fit")
        for one in unused_weights(self, interactions):
            warnings.warn(one, ShortlistWarning, stacklevel=2)
        options = FitOptions(start=self, epochs=epochs)
        return self._learn(grown(self, interactions), options, "partial_fit", callbacks, progress, threads)


def _refuse_leak(interactions: Interactions, split: Split) -> None:
    """Refuse to learn from what the validation asks for; a pair that its training part has too is a repeat, no leak."""
    truth = split.truth
    leaked = int((among(truth, interactions) & ~among(truth, split.train)).sum())
    if leaked:
        raise DataError(
            f"{leaked:,} of the {len(truth):,} pairs that the validation asks for are among the interactions to learn "
            "from; call fit(split.train, validation=split)"
        )
