"""Features of candidates: of the pair, the item and the context, scores of further models, and user-defined columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._numba import kernel
from shortlist.data.features.matrix import take_or_missing
from shortlist.data.features.table import Features
from shortlist.data.id_lists import as_list
from shortlist.data.sparse_rows import SparseRows, holds
from shortlist.data.vocabulary import Codes, Vocabulary
from shortlist.errors import SettingError, ShortlistError
from shortlist.ranking.engine import scores_of_items
from shortlist.ranking.inputs import recoded
from shortlist.ranking.queries import Queries
from shortlist.recommenders.base import Recommender
from shortlist.recommenders.dot_product import DotProduct
from shortlist.reranking.candidates import Candidates, Floats

Extra: TypeAlias = Callable[[Candidates], Any]
Models: TypeAlias = Mapping[str, Recommender] | Sequence[Recommender]

PAIR = ("score", "relative_score", "rank", "popularity", "history_length", "seen")
SIMILARITY = ("mean_similarity", "max_similarity")


@dataclass(frozen=True, eq=False)
class CandidateFeatures:
    """The features of candidates, in this order. Each depends on the query and the candidate alone.

    | feature | meaning |
    |---|---|
    | `score` | stage one's score |
    | `relative_score` | stage one's score, minus the mean over the query's candidates, divided by their standard \
deviation |
    | `rank` | stage one's rank, from 1 |
    | `popularity` | ln(1 + number of training contexts with the item) |
    | `history_length` | ln(1 + number of items in the history) |
    | `seen` | the item's weight in the history; 0 if it is not in the history |
    | `mean_similarity`, `max_similarity` | cosines of the item's embedding with those of the history's other items; \
0 if there are none. Only if stage one has embeddings |
    | `model:NAME` | the score of a further model; NaN if it does not know the context or the item |
    | `item:NAME`, `context:NAME` | features of the item and the context |
    | `extra:NAME` | columns of the user's own function |
    """

    first: Recommender
    models: dict[str, Recommender] = field(default_factory=dict)
    item_features: Features | None = None
    context_features: Features | None = None
    extra: Extra | None = None
    _computed: dict[str, tuple[tuple[object, ...], Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse a further model that knows none of the items."""
        for name in self.models:
            self._items_of(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, without those of `extra`."""
        names = PAIR + (SIMILARITY if isinstance(self.first, DotProduct) else ())
        names += tuple(f"model:{name}" for name in self.models)
        for prefix, features in (("item:", self.item_features), ("context:", self.context_features)):
            if features is not None:
                names += tuple(prefix + name for name in features.feature_names)
        return names

    def describe(self, candidates: Candidates) -> Candidates:
        """Return the candidates with their features."""
        names = self.names
        table = np.zeros((len(candidates), len(names)), np.float32)
        query_of, codes = candidates.query_of, candidates.item_codes
        histories = candidates.queries.histories.sets()
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
        """The item embeddings, scaled to length 1, without biases."""
        first = self.first
        assert isinstance(first, DotProduct)
        unit: Floats = self._cached("unit", (first.item_embeddings_,), first.unit_item_vectors)
        return unit

    @property
    def _item_rows(self) -> SparseRows:
        features, items = self.item_features, self.first.items_
        assert features is not None
        rows: SparseRows = self._cached("item rows", (items,), lambda: features.align(items).rows)
        return rows

    def _cached(self, name: str, sources: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """Return `make()`, cached until one of its sources is replaced, for example by `partial_fit`."""
        cached = self._computed.get(name)
        if cached is None or any(old is not new for old, new in zip(cached[0], sources)):
            cached = self._computed[name] = (sources, make())
        return cached[1]

    def _items_of(self, name: str) -> Codes:
        """Return the code of each item of stage one in a further model; −1 for items unknown to it."""
        ours, theirs = self.first.items_, self.models[name].items_

        def make() -> Codes:
            codes = theirs.encode(ours.frame, unknown="mark")
            if not (codes >= 0).any():
                raise SettingError(_no_overlap(name, "items", ours, theirs), field="models")
            return codes

        item_codes: Codes = self._cached(f"items of {name}", (ours, theirs), make)
        return item_codes

    def _contexts_of(self, name: str, contexts: pl.DataFrame) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Return the codes of contexts in a further model, and which contexts it can score."""
        model = self.models[name]
        ours, theirs = self.first.contexts_, model.contexts_

        def make() -> bool:
            if len(ours.names) != len(theirs.names) or not model.context_codes(ours.frame)[1].any():
                raise SettingError(_no_overlap(name, "contexts", ours, theirs), field="models")
            return True

        self._cached(f"contexts of {name}", (ours, theirs), make)
        return model.context_codes(contexts)

    def _scores_of(self, name: str, candidates: Candidates) -> Floats:
        """Return the scores of a further model. It may use other codes, and not know all contexts and items."""
        model, ours = self.models[name], candidates.queries
        items = self._items_of(name)[candidates.item_codes]
        codes, known = None, np.ones(len(ours), np.bool_)
        if ours.codes is not None:
            codes, known = self._contexts_of(name, ours.labels.frame())
        if model.ordered and not self.first.ordered:
            if codes is None:
                raise SettingError(
                    f"the model {name!r} reads histories in order, but stage one does not keep it",
                    field="history",
                    hint="pass contexts, or use a stage one that is ordered",
                )
            histories = model.histories_of(codes)
        else:
            histories = recoded(ours.histories, self.first.items_, model.items_, "skip")
        which = np.flatnonzero(known)
        queries = Queries.of(ours.labels, codes, histories).take(which)
        named = np.maximum(items, 0)  # unknown items become item 0; their scores are replaced by NaN below
        lists = [named[candidates.indptr[q] : candidates.indptr[q + 1]] for q in which]
        out = np.full(len(candidates), np.nan, np.float32)
        if len(which):
            out[known[candidates.query_of]] = np.concatenate(scores_of_items(model, queries, lists))
        out[items < 0] = np.nan
        return out

    def _context_rows(self, queries: Queries) -> SparseRows:
        """Return one row of context features per query; missing values for bare histories without a context id."""
        assert self.context_features is not None
        features = self.context_features
        if queries.labels.vocabulary is None:
            return take_or_missing(features.rows, np.full(len(queries), -1, np.int32), features.fields)
        return features.rows_for(queries.labels.frame(), unknown="missing")


def named_models(models: Models) -> dict[str, Recommender]:
    """Return further models by name: the given names, or class names, numbered if a class occurs several times."""
    if isinstance(models, Mapping):
        by_name = dict(models)
    else:
        listed = as_list(models, "a list of fitted recommenders as models, or {name: recommender}", "models")
        types = [type(model).__name__ for model in listed]
        by_name = {
            kind if types.count(kind) == 1 else f"{kind} {types[: k + 1].count(kind)}": model
            for k, (kind, model) in enumerate(zip(types, listed))
        }
    for name, model in by_name.items():
        if not isinstance(name, str) or not isinstance(model, Recommender):
            raise SettingError(
                f"models has {name!r:.40}: {model!r:.80}; expected fitted recommenders, or {{name: recommender}}",
                field="models",
            )
        model.require_fit()
    return by_name


def as_features(name: str, given: Any, ids: Vocabulary) -> Features | None:
    """Return `Features` unchanged, or convert a frame with the id columns and feature columns."""
    if given is None or isinstance(given, Features):
        return given
    try:
        return Features.from_frame(given, id=list(ids.names))
    except ShortlistError as error:
        raise error.prefixed(f"{name}: ") from error


def check_extra(extra: object) -> None:
    """Refuse an `extra` that is not a function."""
    if extra is not None and not callable(extra):
        raise SettingError(f"extra is {extra!r:.80}; expected a function that takes Candidates", field="extra")


def put_dense(rows: SparseRows, which: npt.NDArray[Any], out: Floats) -> None:
    """Write some rows of a sparse matrix into a dense matrix of zeros."""
    chosen = rows.take(which)
    assert chosen.values is not None
    out[np.repeat(np.arange(len(which)), chosen.lengths), chosen.indices] = chosen.values


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
    """Return the values at (row, column) of a sparse matrix with sorted rows, or 0. One binary search per value."""
    out = np.zeros(len(rows), np.float32)
    for p in range(len(rows)):
        begin, end = indptr[rows[p]], indptr[rows[p] + 1]
        if holds(indices, begin, end, columns[p]):
            out[p] = values[begin + np.searchsorted(indices[begin:end], columns[p])]
    return out


def add_similarities(
    unit: Floats, histories: SparseRows, indptr: npt.NDArray[np.int64], codes: Codes, out: Floats
) -> None:
    """Write the mean and maximum cosine of each candidate with the history's other items into two columns.

    The cost of a query is a BLAS product of candidates × history, and one pass over its result.
    """
    for q in range(len(indptr) - 1):
        rows = slice(indptr[q], indptr[q + 1])
        history = histories.row(q)
        row_items = codes[rows]
        if not len(history) or not len(row_items):
            continue
        cosines = unit[row_items] @ unit[history].T
        itself = row_items[:, None] == history[None, :]
        n_others = len(history) - itself.sum(axis=1)
        defined = n_others > 0
        sums = np.where(itself, 0, cosines).sum(axis=1)
        out[rows, 0] = np.where(defined, sums / np.maximum(n_others, 1), 0)
        out[rows, 1] = np.where(defined, np.where(itself, -np.inf, cosines).max(axis=1), 0)


def _no_overlap(name: str, what: str, ours: Vocabulary, theirs: Vocabulary) -> str:
    """Return the error message for a further model that shares no ids with stage one."""
    examples = f"{', '.join(ours.names)} {ours.ids([0])[0]!r}", f"{', '.join(theirs.names)} {theirs.ids([0])[0]!r}"
    return (
        f"the model {name!r} knows none of the {len(ours):,} {what} of stage one. Stage one has ids such as "
        f"{examples[0]}, the model has ids such as {examples[1]}; fit both on the same events"
    )


def _with_extra(candidates: Candidates, extra: Extra) -> Candidates:
    """Return the candidates with the columns of the user's function as further features."""
    columns = extra(candidates)
    if isinstance(columns, Mapping):
        if odd := [name for name in columns if not isinstance(name, str)]:
            raise SettingError(f"extra returned a column named {odd[0]!r:.80}; expected text", field="extra")
        try:
            columns = pl.DataFrame(dict(columns), strict=False)
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise SettingError(
                f"extra returned columns that do not form a frame: {str(error).splitlines()[0]}", field="extra"
            ) from error
    if not isinstance(columns, pl.DataFrame):
        raise SettingError(
            f"extra returned a {type(columns).__name__}; expected a polars frame or {{name: values}}, one row per "
            "candidate",
            field="extra",
        )
    if columns.height != len(candidates):
        raise SettingError(
            f"extra returned {columns.height:,} rows for {len(candidates):,} candidates; expected one row each",
            field="extra",
        )
    for column in columns:
        if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
            raise SettingError(
                f"extra: column {column.name!r} has type {column.dtype}; expected numbers", field="extra"
            )
    numbers = [column.cast(pl.Float32).to_numpy() for column in columns]  # null as NaN
    matrix = np.column_stack([np.empty((columns.height, 0), np.float32), *numbers])
    if np.isinf(matrix).any():
        raise SettingError(
            "extra returned infinite numbers; expected finite numbers, or NaN for unknown values", field="extra"
        )
    names = (*candidates.feature_names, *(f"extra:{name}" for name in columns.columns))
    return candidates.with_features(np.column_stack([candidates.features, matrix]).astype(np.float32), names)
