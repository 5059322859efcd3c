"""Features of contexts or items: a sparse matrix with named fields."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._checks import one_of
from shortlist._phrases import count
from shortlist._wording import Message
from shortlist.data.encode import OnBad
from shortlist.data.event_files import Format
from shortlist.data.features.aligned import AlignedFeatures
from shortlist.data.features.feature_fields import Field, Normalize, Scale, Unknown
from shortlist.data.features.feature_spec import FeatureSpec, Names, refuse_like_names
from shortlist.data.features.feature_tables import ColumnChoice, IdTable, read_table, table_of
from shortlist.data.features.id_types import comparable, converted
from shortlist.data.features.matrix import Triples, matrix, take_or_missing, triples, with_missing_counts, with_starts
from shortlist.data.features.serialize import FeatureParts, from_feature_parts, to_feature_parts
from shortlist.data.id_lists import ids_of_frame, is_table
from shortlist.data.mapped_ids import MappedIds
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id, Vocabulary, rows_at
from shortlist.errors import DataError, SettingError, ShortlistWarning

if TYPE_CHECKING:
    import scipy.sparse as sp


class Features:
    """Features of contexts or items: a sparse matrix with one row per id and columns in named fields. Immutable.

    A categorical field has one column per value, with 1 for the row's value. A multi-valued field has weights that sum
    to 1 for the row's values. A numeric field has the standardised number. The last column of every field stands for
    "missing": it is 1 if the value is missing (null, NaN, empty text or list).

    Create features with `read` (files) or `from_frame`; `encode` applies the same fields to other rows. `align` puts
    the rows into the order of a vocabulary. The id itself is not a feature: recommenders add an embedding of it.

    >>> import shortlist as sl
    >>> shop = sl.datasets.load("online-retail")
    >>> items = sl.Features.from_frame(
    ...     shop.items, id="product", multi_valued={"title": " "}, numeric={"price": "log"}, min_count=5)
    >>> items
    Features(3,659 rows by product, 650 features in 2 fields)
      field  kind                                                    features  missing rows
      title  multi-valued (sum 1, 1,541 rare values in one feature)  648       0
      price  numeric (log, mean 1.17, std 0.6755)                    2         0
    >>> items.align(shop.interactions.items)
    AlignedFeatures(3,659 ids of product × 650 features, 0 ids without features (every field missing), 0 cold rows \
(ids not in the vocabulary))
    >>> new = items.encode({"product": ["X1"], "title": ["RED ZEBRA"], "price": [None]}, unknown="missing")
    >>> new["X1"]
    {'title=RED': 0.5, 'title (missing)': 0.5, 'price (missing)': 1.0}
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        fields: Sequence[Field],
        rows: SparseRows,
        *,
        from_text: bool = False,
        unused: Sequence[str] = (),
        dropped: Mapping[str, int] | None = None,
        unknown: Mapping[str, int] | None = None,
    ) -> None:
        """Build from encoded rows; users call `read` or `from_frame`."""
        self._vocabulary = vocabulary
        self._fields = with_missing_counts(with_starts(fields), rows)
        self._rows = rows
        self.from_text = from_text
        self._unused = tuple(unused)
        self._dropped = dict(dropped or {})
        self._unknown = dict(unknown or {})

    # --- construction ------------------------------------------------------------------------------------------------

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        id: Names,  # noqa: A002
        categorical: Names = (),
        multi_valued: Names | Mapping[str, str | None] = (),
        numeric: Names | Mapping[str, Scale] = (),
        ignore: Names = (),
        min_count: int | Mapping[str, int] = 1,
        normalize: Normalize | None = "sum",
        on_bad: OnBad = "raise",
        format: Format | None = None,  # noqa: A002
        separator: str | None = None,
    ) -> Features:
        """Read features from CSV, TSV, Parquet or JSON lines: one file, a folder, or a glob pattern.

        Every column except the id and those in `ignore` becomes a field. `categorical`, `multi_valued` and `numeric`
        set the type of the columns they name; the type of the others is inferred. Numbers are numeric; text,
        categories, booleans and dates are categorical; lists are multi-valued. In text files (CSV, TSV) a column is
        numeric if all its cells are numbers in their usual spelling, else categorical. Lists of floats are an error:
        dense vectors are not supported.

        Args:
            path: a file, a folder (all data files in it and its subfolders) or a pattern such as `"items/*.parquet"`.
            id: the column of the id, as in the interactions; with several columns the id is a tuple. Ids of text files
                have no type and match other ids by spelling: 7 and '7' match, 7 and '007' do not.
            categorical: columns with one value per row: text, integers (also as floats such as 3.0), booleans, dates.
            multi_valued: columns with several values per row: lists, or text with its separator, as `{"genres": "|"}`
                (blanks around a value are stripped). A repeated value in a cell counts once.
            numeric: columns of numbers. The default scale is `"standard"` (zero mean, unit variance);
                `{"price": "log"}` standardises log(1 + x), `"raw"` keeps x.
            ignore: columns to drop; `repr` lists them.
            min_count: values in fewer rows than this share one feature, "rare". A number for all fields, or
                `{"genres": 5}`.
            normalize: the weight of each of a row's k values in a multi-valued field: 1/k (`"sum"`: the row gets the
                mean of its values' embeddings, like a categorical field), 1/√k (`"norm"`: the squares sum to 1) or 1
                (None).
            on_bad: `"raise"` an error for rows without an id and lines with too many or too few fields, or `"drop"`
                them and count them in `dropped`.
            format: `"csv"`, `"tsv"`, `"parquet"` or `"jsonl"`; by default the file name decides.
            separator: the field separator of text files; by default a comma, for TSV a tab.
        """
        one_of("on_bad", on_bad, ("raise", "drop"))
        spec = FeatureSpec.of(id, categorical, multi_valued, numeric, ignore, min_count, normalize)
        return cls._fit(read_table(path, spec.ids, spec.wanted, on_bad, format, separator), spec)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: Names,  # noqa: A002
        categorical: Names = (),
        multi_valued: Names | Mapping[str, str | None] = (),
        numeric: Names | Mapping[str, Scale] = (),
        ignore: Names = (),
        min_count: int | Mapping[str, int] = 1,
        normalize: Normalize | None = "sum",
        on_bad: OnBad = "raise",
    ) -> Features:
        """Build features from a data frame: polars (also lazy), pandas, Arrow or a mapping of columns.

        `id` is the id column; the other arguments are those of `read`.

        >>> Features.from_frame({"film": [1, 2], "genres": [["Drama", "War"], []], "year": [1994, 2001]}, id="film")
        Features(2 rows by film, 5 features in 2 fields)
          field   kind                          features  missing rows
          genres  multi-valued (sum 1)          3         1
          year    numeric (mean 1998, std 3.5)  2         0
        """
        one_of("on_bad", on_bad, ("raise", "drop"))
        spec = FeatureSpec.of(id, categorical, multi_valued, numeric, ignore, min_count, normalize)
        return cls._fit(table_of(frame, spec.ids, spec.wanted, on_bad), spec)

    def encode(self, source: Any, *, unknown: Unknown = "raise", on_bad: OnBad = "raise") -> Features:
        """Encode other rows with the same fields, such as new items for a model fitted with these features.

        Args:
            source: a frame with the same columns, or the path of a file.
            unknown: `"raise"` an error for values that these features have not learned, or treat them as `"missing"`;
                `unknown` of the result then counts the rows. Rare values are learned.
            on_bad: as for `read`.
        """
        one_of("unknown", unknown, ("raise", "missing"))
        one_of("on_bad", on_bad, ("raise", "drop"))
        ids, wanted = self._vocabulary.names, ColumnChoice([field.name for field in self.fields])
        if isinstance(source, str | Path):
            table = read_table(source, ids, wanted, on_bad)
        else:
            table = table_of(source, ids, wanted, on_bad)
        return self._encoded(table, self.fields, unknown)

    @classmethod
    def _fit(cls, table: IdTable, spec: FeatureSpec) -> Features:
        if not len(table):
            raise DataError(f"{table.origin} has no rows" + (" with an id" if table.dropped else ""), code="empty-data")
        return cls._encoded(table, spec.fit(table), "raise")

    @classmethod
    def _encoded(cls, table: IdTable, fields: Sequence[Field], unknown: Unknown) -> Features:
        parts, new = [], {}
        fields = with_starts(fields)
        for field in fields if len(table) else ():
            column = table.columns[field.name]
            entries = field.encode(column, from_text=table.from_text, unknown=unknown, origin=table.origin)
            parts.append(Triples(entries.rows, entries.columns + np.int32(field.start), entries.values))
            if entries.n_unknown:
                new[field.name] = entries.n_unknown
        return cls(
            table.ids,
            fields,
            matrix(parts, len(table), fields),
            from_text=table.from_text,
            unused=table.unused,
            dropped=table.dropped,
            unknown=new,
        )

    # --- size and names ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of rows (ids)."""
        return len(self._vocabulary)

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return self._rows.n_columns

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in the order of their columns: name, kind, `columns` (a slice), `feature_names`, `n_missing`."""
        return self._fields

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns, such as `genre=Drama`, `genre (rare)`, `genre (missing)`, `price`. All differ."""
        return tuple(name for field in self.fields for name in field.feature_names)

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids of the rows, in row order, with their column names."""
        return self._vocabulary

    @property
    def ids(self) -> list[Id]:
        """The ids of the rows, in row order."""
        return self._vocabulary.ids()

    @property
    def dropped(self) -> dict[str, int]:
        """The number of rows dropped by `on_bad="drop"`, by cause."""
        return dict(self._dropped)

    @property
    def unknown(self) -> dict[str, int]:
        """The number of rows with unknown values that `encode` treated as missing, by field."""
        return dict(self._unknown)

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> SparseRows:
        """The matrix, with rows in the order of `ids`. A number is stored even if it is 0."""
        return self._rows

    def rows_for(self, ids: Iterable[Id] | pl.DataFrame, *, unknown: Unknown = "raise") -> SparseRows:
        """Return the rows of these ids. Unknown ids are an error, or get a row in which every field is `"missing"`.

        A frame of ids (polars, pandas, Arrow, or {column: ids}) has one column per part of an id. They are matched by
        name if the names are the same as here, else by position.
        """
        one_of("unknown", unknown, ("raise", "missing"))
        vocabulary = self._vocabulary
        if is_table(ids) and not isinstance(ids, pl.DataFrame):
            ids = ids_of_frame(ids, vocabulary.names, "ids")
        if isinstance(ids, pl.DataFrame):
            ours, ids = comparable(vocabulary.frame, ids, "the frame", by_spelling=self.from_text)
            vocabulary = Vocabulary(ours)
        elif self.from_text and not isinstance(ids, str | bytes | int):
            ids = [converted(key, vocabulary.frame.dtypes) for key in ids]
        codes = vocabulary.encode(
            ids,
            unknown="raise" if unknown == "raise" else "mark",
            way_out=Message("pass {unknown} for a row in which every field is missing", unknown="missing"),
        )
        return take_or_missing(self._rows, codes, self.fields)

    def __getitem__(self, id: Id) -> dict[str, float]:  # noqa: A002
        """Return the features of an id as {name: value}."""
        _, columns, values = triples(self.rows_for([id]))
        return {self.feature_names[column]: value for column, value in zip(columns.tolist(), values.tolist())}

    def to_csr(self) -> tuple[sp.csr_array, list[Id], list[str]]:
        """Return the matrix as a SciPy matrix, with its row ids and column names."""
        import scipy.sparse as sp

        parts = (triples(self._rows).values, self._rows.indices, self._rows.indptr)
        csr = sp.csr_array(parts, shape=(len(self), self.n_features), copy=True)  # the caller may change it
        return csr, self.ids, list(self.feature_names)

    def align(self, vocabulary: Vocabulary) -> AlignedFeatures:
        """Return the rows in the order of a vocabulary, such as `events.items`.

        Ids without features get a row in which every field is missing. Rows of ids that are not in the vocabulary go to
        `cold` of the result.
        """
        if not isinstance(vocabulary, Vocabulary):
            raise SettingError(
                f"expected a vocabulary such as events.items or events.contexts, got {type(vocabulary).__name__}",
                field="vocabulary",
            )
        ours, theirs = comparable(
            self._vocabulary.frame, vocabulary.frame, "the vocabulary", by_spelling=self.from_text
        )
        codes = Vocabulary(ours).encode(theirs, unknown="mark")
        unmatched = np.ones(len(self), np.bool_)
        unmatched[codes[codes >= 0]] = False
        if len(self) and len(vocabulary) and unmatched.all():
            warnings.warn(
                f"none of the {len(vocabulary):,} ids of the vocabulary (such as {vocabulary.id_of(0)!r}) has "
                f"features; ids with features are like {self._vocabulary.id_of(0)!r}. Check that both are ids of the "
                "same things",
                ShortlistWarning,
                stacklevel=2,
            )
        places = np.flatnonzero(unmatched)
        cold = Features(
            Vocabulary(rows_at(ours, places)), self.fields, self._rows.take(places), from_text=self.from_text
        )
        rows = take_or_missing(self._rows, codes, self.fields)
        return AlignedFeatures(vocabulary, with_missing_counts(self.fields, rows), rows, cold, codes)

    # --- select and combine ------------------------------------------------------------------------------------------

    def select(self, fields: Names) -> Features:
        """Return the same rows with only these fields, in this order."""
        try:
            names = [fields] if isinstance(fields, str) else list(fields)
        except TypeError:
            names = []
        if not all(isinstance(name, str) for name in names):
            raise SettingError(f"fields is {fields!r:.80}; expected one or more names, each once", field="fields")
        known = {field.name: field for field in self.fields}
        for name in names:
            if name not in known:
                raise SettingError(
                    f"unknown field {name!r}; the fields are {', '.join(map(repr, known))}", field="fields"
                )
        if not names or len(set(names)) < len(names):
            raise SettingError(f"fields is {names!r}; expected one or more names, each once", field="fields")
        chosen = with_starts([known[name] for name in names])
        remap = np.full(self.n_features, -1, np.int32)
        for field in chosen:
            remap[known[field.name].columns] = np.arange(field.start, field.start + field.n_columns)
        rows, columns, values = triples(self._rows)
        keep = remap[columns] >= 0
        part = Triples(rows[keep], remap[columns[keep]], values[keep])
        return Features(
            self._vocabulary,
            chosen,
            matrix([part], len(self), chosen),
            from_text=self.from_text,
            dropped=self._dropped,
            unknown={name: count for name, count in self._unknown.items() if name in names},
        )

    def join(self, other: Features) -> Features:
        """Return the fields of both for all ids of either. Fields of ids that one side does not have are missing.

        The rows are those of `self`, then the new ones of `other`.
        """
        if not isinstance(other, Features):
            raise SettingError(f"expected Features, got {type(other).__name__}", field="other")
        other_names = {field.name for field in other.fields}
        common = [field.name for field in self.fields if field.name in other_names]
        if common:
            raise SettingError(
                f"both have the field {common[0]!r}",
                field=common[0],
                hint="rename the column, or drop one with select()",
            )
        refuse_like_names([field.name for field in (*self.fields, *other.fields)])
        from_text = self.from_text or other.from_text
        ours, theirs = comparable(
            self._vocabulary.frame, other._vocabulary.frame, "the other features", by_spelling=from_text
        )
        all_ids = Vocabulary(ours).extend(theirs)
        first, second = (np.full(len(all_ids), -1, np.int32) for _ in range(2))
        first[: len(self)] = np.arange(len(self))
        second[all_ids.encode(theirs)] = np.arange(len(other))
        left = triples(take_or_missing(self._rows, first, self.fields))
        right = triples(take_or_missing(other._rows, second, other.fields))
        right = right._replace(columns=right.columns + np.int32(self.n_features))
        fields = with_starts([*self.fields, *other.fields])
        causes = self._dropped | other._dropped
        return Features(
            all_ids,
            fields,
            matrix([left, right], len(all_ids), fields),
            from_text=from_text,
            unused=(*self._unused, *other._unused),
            dropped={cause: self._dropped.get(cause, 0) + other._dropped.get(cause, 0) for cause in causes},
            unknown=self._unknown | other._unknown,
        )

    def append(self, other: Features) -> Features:
        """Return the rows of both. If both have an id, the other's row wins. Make `other` with `encode`: same fields.

        >>> films = Features.from_frame({"film": [1, 2], "genre": ["Drama", "War"]}, id="film")
        >>> more = films.append(films.encode({"film": [3, 2], "genre": ["War", "Drama"]}))
        >>> more.ids, more[2]
        ([1, 2, 3], {'genre=Drama': 1.0})
        """
        if not isinstance(other, Features):
            raise SettingError(f"expected Features, got {type(other).__name__}", field="other")
        if self.feature_names != other.feature_names:
            names, other_names = (", ".join(field.name for field in table.fields) for table in (self, other))
            raise SettingError(
                f"the other features have the fields {other_names} with {other.n_features:,} features, these {names} "
                f"with {self.n_features:,}",
                field="other",
                hint="make the others with .encode(…) of these",
            )
        from_text = self.from_text or other.from_text
        ours, theirs = comparable(
            self._vocabulary.frame, other._vocabulary.frame, "the other features", by_spelling=from_text
        )
        all_ids = Vocabulary(ours).extend(theirs)
        places = np.arange(len(all_ids))
        places[all_ids.encode(theirs)] = len(self) + np.arange(len(other))
        stacked = SparseRows(
            np.concatenate([self._rows.indptr, self._rows.indptr[-1] + other._rows.indptr[1:]]),
            np.concatenate([self._rows.indices, other._rows.indices]),
            np.concatenate([triples(self._rows).values, triples(other._rows).values]),
            self.n_features,
        )
        return Features(all_ids, self.fields, stacked.take(places), from_text=from_text)

    # --- storage -----------------------------------------------------------------------------------------------------

    def to_parts(self, prefix: str = "") -> FeatureParts:
        """Return rows and fields as JSON `settings`, `arrays` and `tables`, to store them with a model.

        Names of arrays and tables begin with `prefix`, so that a model can store several features.
        """
        return to_feature_parts(self._vocabulary, self.fields, self._rows, self.from_text, prefix)

    @classmethod
    def from_parts(
        cls,
        settings: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        tables: Mapping[str, pl.DataFrame | MappedIds],
        prefix: str = "",
    ) -> Features:
        """Restore features from `to_parts`; raise StorageError if the parts are broken."""
        vocabulary, fields, rows, from_text = from_feature_parts(settings, arrays, tables, prefix)
        return cls(vocabulary, fields, rows, from_text=from_text)

    def __repr__(self) -> str:
        names = ", ".join(self._vocabulary.names)
        lines = [
            f"Features({count(len(self), 'row')} by {names}, {count(self.n_features, 'feature')} in "
            f"{count(len(self.fields), 'field')})"
        ]
        table = [("field", "kind", "features", "missing rows")]
        table += [(field.name, str(field), f"{field.n_columns:,}", f"{field.n_missing:,}") for field in self.fields]
        widths = [max(len(row[k]) for row in table) for k in range(4)]
        lines += ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]
        if self._unknown:
            counts = ", ".join(f"{name} in {count(n, 'row')}" for name, n in self._unknown.items())
            lines.append(f"  unknown values, marked as missing: {counts}")
        if self._unused:
            lines.append(f"  columns not used: {', '.join(self._unused)}")
        if self._dropped:
            lines.append(f"  {count(sum(self._dropped.values()), 'row')} dropped")
        return "\n".join(lines)
