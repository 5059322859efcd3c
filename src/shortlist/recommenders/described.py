"""Base class of recommenders that learn from features of contexts and items, and so also score cold ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import polars as pl

from shortlist._threads import Step
from shortlist.data.features.id_types import comparable
from shortlist.data.features.table import Features
from shortlist.data.interactions import Interactions
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import DataError, SettingError, ShortlistWarning, StorageError
from shortlist.recommenders.fit_options import FitOptions
from shortlist.recommenders.multilinear_model import MultilinearModel
from shortlist.recommenders.unused_settings import unused_weights
from shortlist.recommenders.warm_start import grown
from shortlist.solvers.train import Callback

if TYPE_CHECKING:
    from shortlist.storage import StoredModel

_SIDES = ("context", "item")


@dataclass(kw_only=True, repr=False, eq=False)
class DescribedMultilinear(MultilinearModel):
    """A multilinear model with features of contexts and items; ids without events are scored by their features."""

    uses_features: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.context_features_: Features | None = None
        self.item_features_: Features | None = None

    # --- learning ----------------------------------------------------------------------------------------------------

    def fit_with(
        self,
        interactions: Interactions,
        options: FitOptions,
        who: str,
        callbacks: Callback | Sequence[Callback],
        progress: bool | None,
        threads: int | None,
        step: Step | None = None,
    ) -> Self:
        """Add ids that only have features to the vocabularies, then learn."""
        self._check_events(interactions, who)
        for side in _SIDES:
            interactions = _with_described(interactions, getattr(options, f"{side}_features"), side)
        return super().fit_with(interactions, options, who, callbacks, progress, threads, step)

    def _prepare(self, interactions: Interactions, options: FitOptions) -> None:
        self.context_features_, self.item_features_ = options.context_features, options.item_features
        super()._prepare(interactions, options)

    def partial_fit(
        self,
        interactions: Interactions,
        *,
        epochs: int = 2,
        context_features: Features | None = None,
        item_features: Features | None = None,
        callbacks: Callback | Sequence[Callback] = (),
        progress: bool | None = None,
        threads: int | None = None,
    ) -> Self:
        """Learn from new events, as `Factorization.partial_fit` does; the model keeps its features.

        Args:
            interactions: the new events.
            epochs: number of epochs.
            context_features: features of new contexts, with the same fields as the old features; make them with
                `model.context_features_.encode(…)`.
            item_features: features of new items; make them with `model.item_features_.encode(…)`.
            callbacks: functions to call after each epoch, as in `fit`.
            progress: show a progress bar, as in `fit`.
            threads: number of threads, as in `fit`.
        """
        self.require_fit()
        self._check_events(interactions, "partial_fit")
        for message in unused_weights(self, interactions):
            warnings.warn(message, ShortlistWarning, stacklevel=2)
        options = FitOptions(
            start=self,
            epochs=epochs,
            context_features=self._with_new("context", context_features),
            item_features=self._with_new("item", item_features),
        )
        return self.fit_with(grown(self, interactions), options, "partial_fit", callbacks, progress, threads)

    def _with_new(self, side: str, new: Features | None) -> Features | None:
        """Return the features of a side, with those of new ids appended."""
        known: Features | None = getattr(self, f"{side}_features_")
        if new is None:
            return known
        if not isinstance(new, Features):
            raise SettingError(
                f"the features of {side}s are of type {type(new).__name__}; expected Features, made with "
                f"model.{side}_features_.encode(…)",
                field=f"{side}_features",
            )
        if known is None:
            raise SettingError(
                f"this {type(self).__name__} was fitted without features of {side}s",
                field=f"{side}_features",
                hint=f"pass {side}_features= to fit",
            )
        return known.append(new)

    # --- cold items and contexts --------------------------------------------------------------------------------------

    def add_items(self, features: Features) -> Self:
        """Add new items to the catalogue from their features alone, without training.

        Args:
            features: features of items that have no events yet, with the fields that the model was fitted with; make
                them with `model.item_features_.encode(frame)`.

        >>> import shortlist as sl
        >>> shop = sl.datasets.load("online-retail")
        >>> titles = sl.Features.from_frame(
        ...     shop.items, id="product", multi_valued={"title": " "}, ignore="price", min_count=5)
        >>> model = sl.FeatureIALS(dim=8, epochs=2).fit(shop.interactions, item_features=titles)
        >>> new = titles.encode({"product": ["N1"], "title": ["RED RETROSPOT BAG"]}, unknown="missing")
        >>> "N1" in model.add_items(new).items_
        True
        """
        return self._add("item", features)

    def add_contexts(self, features: Features) -> Self:
        """Add new contexts from their features alone, without training; see `add_items`."""
        return self._add("context", features)

    def _add(self, side: str, features: Features) -> Self:
        self.require_fit()
        merged = self._with_new(side, features)
        assert merged is not None
        vocabulary: Vocabulary = self.contexts_ if side == "context" else self.items_
        counts = self.seen_.lengths if side == "context" else self.popularity_
        given_ids, model_ids = comparable(
            features.vocabulary.frame, vocabulary.frame, "the model", by_spelling=features.from_text
        )
        codes = Vocabulary(model_ids).encode(given_ids, unknown="mark")
        known = codes[codes >= 0][counts[codes[codes >= 0]] > 0]
        if len(known):
            example = vocabulary.ids(known[:1])[0]
            raise DataError(
                f"{len(known):,} of the {len(features):,} {side}s have events already, such as {example!r}, so the "
                "model has learned them",
                field=f"{side}_features",
                hint="drop them",
            )
        longer = _extended(vocabulary, merged, side)
        more = len(longer) - len(vocabulary)
        seen = self.seen_
        if side == "context":
            indptr = np.append(seen.indptr, np.full(more, seen.indptr[-1]))
            self.contexts_, self.seen_ = longer, SparseRows(indptr, seen.indices, seen.values, seen.n_columns)
            self.context_features_ = merged
        else:
            self.items_, self.seen_ = longer, replace(seen, n_columns=len(longer))
            self.item_features_ = merged
        self._layout = self._layout_for(self.contexts_, self.items_, self.seen_)
        self._set_contexts(self.context_parameters_)
        self._set_items(self.item_parameters_, self._precompute(self.seen_))
        self._set_popularity()
        return self

    # --- storage -----------------------------------------------------------------------------------------------------

    def store_more(self, stored: StoredModel) -> None:
        """Add the features of both sides."""
        for side in _SIDES:
            features: Features | None = getattr(self, f"{side}_features_")
            if features is not None:
                parts = features.to_parts(f"{side}_features.")
                stored.extra[f"{side}_features"] = parts.settings
                stored.arrays.update(parts.arrays)
                stored.tables.update(parts.tables)

    def restore_more(self, stored: StoredModel) -> None:
        """Take the features of both sides out of what was stored."""
        for side in _SIDES:
            prefix = f"{side}_features."
            settings = stored.extra.get(f"{side}_features")
            if settings is None:
                continue
            if not isinstance(settings, dict):
                raise StorageError(
                    f"{side}_features is of type {type(settings).__name__}; expected settings", field=f"{side}_features"
                )
            arrays = {name: stored.arrays.pop(name) for name in list(stored.arrays) if name.startswith(prefix)}
            tables = {name: stored.tables.pop(name) for name in list(stored.tables) if name.startswith(prefix)}
            setattr(self, f"{side}_features_", Features.from_parts(settings, arrays, tables, prefix))


def _with_described(interactions: Interactions, features: Features | None, side: str) -> Interactions:
    """Return the same events, with vocabularies that include ids with features but no events."""
    if features is None:
        return interactions
    vocabulary = interactions.contexts if side == "context" else interactions.items
    longer = _extended(vocabulary, features, side)
    if longer is vocabulary:
        return interactions
    contexts, items = (longer, interactions.items) if side == "context" else (interactions.contexts, longer)
    return interactions.with_codes(contexts, items, interactions.context_codes, interactions.item_codes, slice(None))


def _extended(vocabulary: Vocabulary, features: Features, side: str) -> Vocabulary:
    """Return the vocabulary extended by ids that only the features have."""
    names = features.vocabulary.names
    if len(names) < len(vocabulary.names):
        return vocabulary  # features of a part of contexts
    cold = features.align(vocabulary).cold.vocabulary.frame
    if not cold.height:
        return vocabulary
    try:
        types = vocabulary.frame.dtypes
        return vocabulary.extend(pl.DataFrame([column.cast(dtype) for column, dtype in zip(cold.get_columns(), types)]))
    except (pl.exceptions.PolarsError, DataError) as error:
        why = str(error).partition("\n")[0]
        raise DataError(
            f"ids of the {side} features do not match the ids of the events: {why}", field=f"{side}_features"
        ) from None


def described(features: Features | None, frame: pl.DataFrame) -> SparseRows | None:
    """Return the feature rows of these ids; ids without features get rows with all fields missing.

    Features of a part of the ids are matched by the names of their columns.
    """
    if features is None:
        return None
    names = features.vocabulary.names
    if len(names) < frame.width:
        if missing := [name for name in names if name not in frame.columns]:
            raise DataError(
                f"the features are for {', '.join(names)}, but contexts have no column {missing[0]!r}; they have "
                f"{', '.join(frame.columns)}"
            )
        frame = frame[list(names)]
    return features.rows_for(frame, unknown="missing")
