"""Features of candidates: of the pair as stage one sees it, of the item, of the context, and whatever else is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._numba import kernel
from shortlist.data.features.matrix import taken
from shortlist.data.features.table import Features
from shortlist.data.id_lists import as_list
from shortlist.data.sparse_rows import SparseRows, holds
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import SettingError, ShortlistError
from shortlist.recommenders.base import Queries, Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.reranking.candidates import Candidates, Floats

Extra: TypeAlias = Callable[[Candidates], Any]
Models: TypeAlias = Mapping[str, Recommender] | Sequence[Recommender]

PAIR = ("score", "relative_score", "rank", "popularity", "history_length", "seen")
_NOTHING = np.empty(0, np.int32)
SIMILARITY = ("mean_similarity", "max_similarity")


@dataclass(frozen=True, eq=False)
class CandidateFeatures:
    """Which features candidates get, in this order; each is a function of the query and the candidate alone.

    | feature | what it is |
    |---|---|
    | `score` | stage one's score |
    | `relative_score` | the same, less the mean of the query's candidates, by their standard deviation |
    | `rank` | stage one's rank, from 1 |
    | `popularity` | ln(1 + contexts that had the item in training) |
    | `history_length` | ln(1 + items in the history) |
    | `seen` | what the item weighs in the history; 0 where it is not in it |
    | `mean_similarity`, `max_similarity` | cosines of the item's embedding with those of the history's other items; \
0 without any. Where stage one has embeddings |
    | `model:NAME` | the score of a further model; NaN where it does not know the context or the item |
    | `item:NAME`, `context:NAME` | features of the item, of the context |
    | `extra:NAME` | columns of the user's own function |
    """

    first: Recommender
    models: dict[str, Recommender] = field(default_factory=dict)
    item_features: Features | None = None
    context_features: Features | None = None
    extra: Extra | None = None
    _made: dict[str, tuple[tuple[object, ...], Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse a further model that knows none of the items."""
        for name in self.models:
            self._items_of(name)

    @property
    def names(self) -> tuple[str, ...]:
        """What the features are called, but for those of `extra`."""
        found = PAIR + (SIMILARITY if isinstance(self.first, DotProduct) else ())
        found += tuple(f"model:{name}" for name in self.models)
        for prefix, features in (("item:", self.item_features), ("context:", self.context_features)):
            if features is not None:
                found += tuple(prefix + name for name in features.feature_names)
        return found

    def describe(self, candidates: Candidates) -> Candidates:
        """The candidates with their features."""
        names = self.names
        table = np.zeros((len(candidates), len(names)), np.float32)
        query_of, codes = candidates.query_of, candidates.item_codes
        histories = candidates.queries.histories
        spread = np.where(candidates.spread > 0, candidates.spread, 1.0)
        table[:, 0] = candidates.scores
        table[:, 1] = (candidates.scores - candidates.center[query_of]) / spread[query_of]
        table[:, 2] = candidates.ranks
        table[:, 3] = np.log1p(self.first.popularity_)[codes]
        table[:, 4] = np.log1p(histories.lengths)[query_of]
        table[:, 5] = _weight_in_history(histories, query_of, codes)
        at = len(PAIR)
        if isinstance(self.first, DotProduct):
            add_similarities(self._unit, histories, candidates.indptr, codes, table[:, at : at + 2])
            at += 2
        for name in self.models:
            table[:, at] = self._scores_of(name, candidates)
            at += 1
        if self.item_features is not None:
            width = self.item_features.n_features
            put_dense(self._item_rows, codes, table[:, at : at + width])
            at += width
        if self.context_features is not None:
            put_dense(self._context_rows(candidates.queries), query_of, table[:, at:])
        described = candidates.with_features(table, names)
        return described if self.extra is None else _with_extra(described, self.extra)

    @property
    def _unit(self) -> Floats:
        """Embeddings of items of length 1, without biases."""
        first = self.first
        assert isinstance(first, DotProduct)
        found: Floats = self._kept("unit", (first.item_embeddings_,), lambda: first._similarity(_NOTHING).items)
        return found

    @property
    def _item_rows(self) -> SparseRows:
        features, items = self.item_features, self.first.items_
        assert features is not None
        found: SparseRows = self._kept("item rows", (items,), lambda: features.align(items).rows)
        return found

    def _kept(self, name: str, sources: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """What is made of parts of models, until one of these becomes another, as `partial_fit` makes it."""
        known = self._made.get(name)
        if known is None or any(one is not other for one, other in zip(known[0], sources)):
            known = self._made[name] = (sources, make())
        return known[1]

    def _items_of(self, name: str) -> Codes:
        """Stage one's items in the codes of a further model, −1 where it does not know them."""
        ours, theirs = self.first.items_, self.models[name].items_

        def make() -> Codes:
            codes = theirs.encode(ours.frame, unknown="mark")
            if not (codes >= 0).any():
                raise SettingError(_strangers(name, "items", ours, theirs))
            return codes

        found: Codes = self._kept(f"items of {name}", (ours, theirs), make)
        return found

    def _contexts_of(self, name: str, asked: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Contexts in the codes of a further model, and which of them it can answer."""
        model = self.models[name]
        ours, theirs = self.first.contexts_, model.contexts_

        def make() -> bool:
            if len(ours.names) != len(theirs.names) or not model._answerable(ours.frame)[1].any():
                raise SettingError(_strangers(name, "contexts", ours, theirs))
            return True

        self._kept(f"contexts of {name}", (ours, theirs), make)
        return model._answerable(asked)

    def _scores_of(self, name: str, candidates: Candidates) -> Floats:
        """Scores of a further model, which may number contexts and items otherwise, and not know all of them."""
        model, asked = self.models[name], candidates.queries
        items = self._items_of(name)[candidates.item_codes]
        codes, known = None, np.ones(len(asked), np.bool_)
        if asked.codes is not None:
            codes, known = self._contexts_of(name, asked.labels.frame())
        histories = model._with_own_items(asked.histories, self.first.items_, "skip")
        which = np.flatnonzero(known)
        queries = Queries(asked.labels, codes, histories, asked.known).take(which)
        named = np.maximum(items, 0)  # whatever is said of what it does not know
        lists = [named[candidates.indptr[q] : candidates.indptr[q + 1]] for q in which]
        out = np.full(len(candidates), np.nan, np.float32)
        if len(which):
            out[known[candidates.query_of]] = np.concatenate(model._scores(queries, lists))
        out[items < 0] = np.nan
        return out

    def _context_rows(self, queries: Queries) -> SparseRows:
        """A row a query; all of it missing for histories of nobody in particular."""
        assert self.context_features is not None
        features = self.context_features
        if queries.labels.vocabulary is None:
            return taken(features.rows, np.full(len(queries), -1, np.int32), features.fields)
        return features.rows_for(queries.labels.frame(), unknown="missing")


def named_models(models: Models) -> dict[str, Recommender]:
    """Further models by name: the names given, or those of their classes, numbered where there are several."""
    if isinstance(models, Mapping):
        found = dict(models)
    else:
        listed = as_list(models, "a list of fitted recommenders as models, or {name: one}")
        kinds = [type(one).__name__ for one in listed]
        found = {
            kind if kinds.count(kind) == 1 else f"{kind} {kinds[: k + 1].count(kind)}": one
            for k, (kind, one) in enumerate(zip(kinds, listed))
        }
    for name, model in found.items():
        if not isinstance(name, str) or not isinstance(model, Recommender):
            raise SettingError(
                f"models has {name!r:.40}: {model!r:.80}; expected fitted recommenders, or {{name: one}}"
            )
        model._require_fit()
    return found


def as_features(name: str, given: Any, ids: Vocabulary) -> Features | None:
    """Features as they are, or of a frame that has the columns of the ids and others."""
    if given is None or isinstance(given, Features):
        return given
    try:
        return Features.from_frame(given, id=list(ids.names))
    except ShortlistError as error:
        raise type(error)(f"{name}: {error}") from error


def check_extra(extra: object) -> None:
    """Refuse what is no function."""
    if extra is not None and not callable(extra):
        raise SettingError(f"extra is {extra!r:.80}; expected a function that takes Candidates")


def put_dense(rows: SparseRows, which: npt.NDArray[Any], out: Floats) -> None:
    """Write some rows of a sparse matrix into a dense one that is 0 everywhere."""
    found = rows.take(which)
    assert found.values is not None
    out[np.repeat(np.arange(len(which)), found.lengths), found.indices] = found.values


def _weight_in_history(histories: SparseRows, query_of: npt.NDArray[np.int64], codes: Codes) -> Floats:
    values = np.ones(len(histories), np.float32) if histories.values is None else histories.values
    return weights_at(histories.indptr, histories.indices, values, query_of, codes)


@kernel
def weights_at(
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: Floats,
    rows: npt.NDArray[np.int64],
    columns: Codes,
) -> Floats:
    """The values at (row, column) of a sparse matrix with sorted rows, 0 where there are none: a binary search each."""
    out = np.zeros(len(rows), np.float32)
    for p in range(len(rows)):
        begin, end = indptr[rows[p]], indptr[rows[p] + 1]
        if holds(indices, begin, end, columns[p]):
            out[p] = values[begin + np.searchsorted(indices[begin:end], columns[p])]
    return out


def add_similarities(
    unit: Floats, histories: SparseRows, indptr: npt.NDArray[np.int64], codes: Codes, out: Floats
) -> None:
    """Mean and maximum of the cosines of each candidate with the history's other items, into two columns.

    A product of candidates × history for each query, in BLAS; the rest of a query is a pass over its result.
    """
    for q in range(len(indptr) - 1):
        rows = slice(indptr[q], indptr[q + 1])
        history = histories.row(q)
        mine = codes[rows]
        if not len(history) or not len(mine):
            continue
        cosines = unit[mine] @ unit[history].T
        itself = mine[:, None] == history[None, :]
        others = len(history) - itself.sum(axis=1)
        known = others > 0
        sums = np.where(itself, 0, cosines).sum(axis=1)
        out[rows, 0] = np.where(known, sums / np.maximum(others, 1), 0)
        out[rows, 1] = np.where(known, np.where(itself, -np.inf, cosines).max(axis=1), 0)


def _strangers(name: str, what: str, ours: Vocabulary, theirs: Vocabulary) -> str:
    like = f"{', '.join(ours.names)} {ours.ids([0])[0]!r}", f"{', '.join(theirs.names)} {theirs.ids([0])[0]!r}"
    return (
        f"the model {name!r} knows none of the {len(ours):,} {what} of stage one: these are like {like[0]}, its own "
        f"like {like[1]}; fit both on the same events"
    )


def _with_extra(candidates: Candidates, extra: Extra) -> Candidates:
    """Columns of the user's own function beside the others."""
    found = extra(candidates)
    if isinstance(found, Mapping):
        if odd := [name for name in found if not isinstance(name, str)]:
            raise SettingError(f"extra gave a column of the name {odd[0]!r:.80}; expected text")
        try:
            found = pl.DataFrame(dict(found), strict=False)
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise SettingError(f"extra gave columns that make no frame: {str(error).splitlines()[0]}") from error
    if not isinstance(found, pl.DataFrame):
        raise SettingError(
            f"extra gave a {type(found).__name__}; expected a polars frame, or {{name: values}}, a row a candidate"
        )
    if found.height != len(candidates):
        raise SettingError(f"extra gave {found.height:,} rows for {len(candidates):,} candidates; expected one each")
    for column in found:
        if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
            raise SettingError(f"extra: column {column.name!r} has type {column.dtype}; features are numbers")
    numbers = [column.cast(pl.Float32).to_numpy() for column in found]  # null as NaN
    more = np.column_stack([np.empty((found.height, 0), np.float32), *numbers])
    if np.isinf(more).any():
        raise SettingError("extra gave infinite numbers; expected finite ones, or NaN where something is not known")
    names = (*candidates.feature_names, *(f"extra:{name}" for name in found.columns))
    return candidates.with_features(np.column_stack([candidates.features, more]).astype(np.float32), names)
