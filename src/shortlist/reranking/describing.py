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
from shortlist.data.rows import Rows, holds
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import SettingError
from shortlist.recommenders.base import Queries, Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.reranking.candidates import Candidates, Floats

Extra: TypeAlias = Callable[[Candidates], Any]
Models: TypeAlias = Mapping[str, Recommender] | Sequence[Recommender]

PAIR = ("score", "relative_score", "rank", "popularity", "history_length", "seen")
_NOTHING = np.empty(0, np.int32)
SIMILARITY = ("mean_similarity", "max_similarity")


@dataclass(frozen=True, eq=False)
class Describer:
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
    | `model:NAME` | the score of a further model |
    | `item:NAME`, `context:NAME` | features of the item, of the context |
    | `extra:NAME` | columns of the user's own function |
    """

    first: Recommender
    models: dict[str, Recommender] = field(default_factory=dict)
    item_features: Features | None = None
    context_features: Features | None = None
    extra: Extra | None = None
    _made: dict[str, tuple[object, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name, model in self.models.items():
            strange = [one for one in self.first.items_ if one not in model.items_]
            if strange:
                raise SettingError(
                    f"the model {name!r} does not know {len(strange):,} of the {len(self.first.items_):,} items of "
                    f"stage one, such as {strange[0]!r}; fit both on the same events"
                )

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
        for name, model in self.models.items():
            table[:, at] = _scored_by(model, name, candidates)
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
        found: Floats = self._kept("unit", first.item_embeddings_, lambda: first._similarity(_NOTHING).items)
        return found

    @property
    def _item_rows(self) -> Rows:
        features, items = self.item_features, self.first.items_
        assert features is not None
        found: Rows = self._kept("item rows", items, lambda: features.align(items).rows)
        return found

    def _kept(self, name: str, source: object, make: Callable[[], Any]) -> Any:
        """What is made of a part of stage one, until that becomes another, as `partial_fit` makes it."""
        known = self._made.get(name)
        if known is None or known[0] is not source:
            known = self._made[name] = (source, make())
        return known[1]

    def _context_rows(self, queries: Queries) -> Rows:
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
        listed = list(models)
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


def as_features(name: str, given: Features | pl.DataFrame | None, ids: Vocabulary) -> Features | None:
    """Features as they are, or of a frame that has the columns of the ids and others."""
    if given is None or isinstance(given, Features):
        return given
    if not isinstance(given, pl.DataFrame):
        raise SettingError(
            f"{name} is of type {type(given).__name__}; expected Features, or a polars frame with the column "
            f"{', '.join(ids.names)}"
        )
    return Features.from_frame(given, id=list(ids.names))


def put_dense(rows: Rows, which: npt.NDArray[Any], out: Floats) -> None:
    """Write some rows of a sparse matrix into a dense one that is 0 everywhere."""
    found = rows.take(which)
    assert found.values is not None
    out[np.repeat(np.arange(len(which)), found.lengths), found.indices] = found.values


def _weight_in_history(histories: Rows, query_of: npt.NDArray[np.int64], codes: Codes) -> Floats:
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


def add_similarities(unit: Floats, histories: Rows, indptr: npt.NDArray[np.int64], codes: Codes, out: Floats) -> None:
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


def _scored_by(model: Recommender, name: str, candidates: Candidates) -> Floats:
    """Scores of another model, which may number contexts and items otherwise."""
    asked = candidates.queries
    histories = model._with_own_items(asked.histories, candidates.first.items_, "skip")
    codes = None
    if asked.codes is not None:
        codes = model._context_codes(asked.labels.frame(), f"fit the model {name!r} on what stage one was fitted on")
    queries = Queries(asked.labels, codes, histories, asked.known)
    items = model.items_.encode(candidates.first.items_.frame)[candidates.item_codes]
    lists = np.split(items, candidates.indptr[1:-1])
    return np.concatenate([np.empty(0, np.float32), *model._scores(queries, lists)])


def _with_extra(candidates: Candidates, extra: Extra) -> Candidates:
    """Columns of the user's own function beside the others."""
    found = extra(candidates)
    if isinstance(found, Mapping):
        found = pl.DataFrame(dict(found), strict=False)
    if not isinstance(found, pl.DataFrame):
        raise SettingError(
            f"extra gave a {type(found).__name__}; expected a polars frame, or {{name: values}}, a row a candidate"
        )
    if found.height != len(candidates):
        raise SettingError(f"extra gave {found.height:,} rows for {len(candidates):,} candidates; expected one each")
    for column in found:
        if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
            raise SettingError(f"extra: column {column.name!r} has type {column.dtype}; features are numbers")
    more = found.cast(pl.Float32).fill_null(float("nan")).to_numpy()
    if np.isinf(more).any():
        raise SettingError("extra gave infinite numbers; expected finite ones, or NaN where something is not known")
    names = (*candidates.feature_names, *(f"extra:{name}" for name in found.columns))
    return candidates.with_features(np.column_stack([candidates.features, more]).astype(np.float32), names)
