"""What is known about contexts or items, as a sparse matrix with named fields."""

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
from shortlist.data.encode import OnBad
from shortlist.data.event_files import Format
from shortlist.data.features.aligned import AlignedFeatures
from shortlist.data.features.feature_fields import Field, Normalize, Scale, Unknown
from shortlist.data.features.feature_spec import FeatureSpec, Names, refuse_like_names
from shortlist.data.features.feature_tables import ColumnChoice, IdTable, read_table, table_of
from shortlist.data.features.id_types import comparable, respelled
from shortlist.data.features.matrix import Triples, counted, matrix, placed, taken, triples
from shortlist.data.features.serialize import FeatureParts, put_together, taken_apart
from shortlist.data.id_lists import ids_of_frame, is_table
from shortlist.data.sparse_rows import SparseRows
from shortlist.data.vocabulary import Id, Vocabulary, rows_at
from shortlist.errors import DataError, SettingError, ShortlistWarning

if TYPE_CHECKING:
    import scipy.sparse as sp


class Features:
    """What is known about contexts or items: a row an id, and columns in named fields. Immutable.

    The matrix is sparse. A categorical field has a column for each value, with a 1 for the row's own; a multi-valued
    one has weights that sum to 1 for the values of the row; a numeric one has the number less its mean, divided by its
    standard deviation. Every field ends with a column for "missing", which is 1 where there is nothing (null, NaN, an
    empty text or list): what is not known has a place, now and later, and no zero stands for it.

    Made by `read` (files) or `from_frame`; `encode` applies the same fields to other rows. `align` brings the rows into
    the order of a vocabulary. Recommenders add an embedding of the id itself: it is none of the features.

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
        """Put together from encoded rows; users call `read` or `from_frame`."""
        self._vocabulary = vocabulary
        self._fields = counted(placed(fields), rows)
        self._rows = rows
        self._from_text = from_text
        self._unused = tuple(unused)
        self._dropped = dict(dropped or {})
        self._unknown = dict(unknown or {})

    # --- made from ---------------------------------------------------------------------------------------------------

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

        Every column beside the id becomes a field: `categorical`, `multi_valued` and `numeric` only say of which kind
        the columns that they name are, and only `ignore` leaves columns out. The kind of the others is inferred:
        numbers are numeric; text, categories, booleans and dates are categorical; lists are multi-valued. In text files
        (CSV, TSV) a column is numeric where all of its cells are written as numbers are, else categorical. Lists of
        floats are refused: dense vectors are not supported.

        Args:
            path: the file, the folder (all data files in it and below) or a pattern such as `"items/*.parquet"`.
            id: the column of the id, as in the interactions; several make it a tuple. The ids of text files, which have
                no types, match others by their spelling: 7 and '7' are the same there, '007' is another.
            categorical: columns with one value a row: text, integers, booleans, dates. Whole floats count as integers.
            multi_valued: columns with several values a row: lists, or, as `{"genres": "|"}`, texts to be split there
                (blanks around a value do not count). A value that is repeated in a cell counts once.
            numeric: columns of numbers. `{"price": "log"}` takes the logarithm of 1 + x before it is standardised,
                `"raw"` leaves it as it is, `"standard"` is the default.
            ignore: columns to leave out; `repr` lists them.
            min_count: values that fewer rows have share one feature, "rare"; for all fields, or `{"genres": 5}`.
            normalize: what the weights of a row's k values in a multi-valued field are: 1/k (`"sum"`: their sum is 1,
                so the row gets the mean of its values' embeddings, and a field counts as much as a categorical one),
                1/√k (`"norm"`: the sum of their squares is 1) or 1 (None).
            on_bad: rows without an id and lines with too many or too few fields `"raise"` an error, or `"drop"` them
                and count them in `dropped`.
            format: `"csv"`, `"tsv"`, `"parquet"` or `"jsonl"`, where the file's name does not say it.
            separator: of text files; a comma, in TSV a tab.
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
        """Take features from a frame: polars (also lazy), pandas, Arrow, a mapping of columns. Arguments as for `read`.

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
        """Other rows with the same fields: new items, say, for a model that was fitted with these features.

        Args:
            source: a frame with the same columns, or the path of a file.
            unknown: a value that these features do not know is an error (`"raise"`), or counts as `"missing"`; then
                `unknown` of the result says in how many rows. Rare values are known.
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
            raise DataError(f"{table.origin}: there are no rows" + (" with an id" if table.dropped else ""))
        return cls._encoded(table, spec.fit(table), "raise")

    @classmethod
    def _encoded(cls, table: IdTable, fields: Sequence[Field], unknown: Unknown) -> Features:
        parts, new = [], {}
        fields = placed(fields)
        for field in fields if len(table) else ():
            column = table.columns[field.name]
            found = field.encode(column, from_text=table.from_text, unknown=unknown, origin=table.origin)
            parts.append(Triples(found.rows, found.columns + np.int32(field.start), found.values))
            if found.n_unknown:
                new[field.name] = found.n_unknown
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
        """The number of rows, one an id."""
        return len(self._vocabulary)

    @property
    def n_features(self) -> int:
        """How many columns the matrix has."""
        return self._rows.n_columns

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in the order of their columns: name, kind, `columns` (a slice), `feature_names`, `n_missing`."""
        return self._fields

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """What each column is called, such as `genre=Drama`, `genre (rare)`, `genre (missing)`, `price`; all differ."""
        return tuple(name for field in self.fields for name in field.feature_names)

    @property
    def vocabulary(self) -> Vocabulary:
        """The ids of the rows, in their order, with the columns they came from."""
        return self._vocabulary

    @property
    def ids(self) -> list[Id]:
        """The ids of the rows, in their order."""
        return self._vocabulary.ids()

    @property
    def dropped(self) -> dict[str, int]:
        """Rows that were left out by `on_bad="drop"`, by cause."""
        return dict(self._dropped)

    @property
    def unknown(self) -> dict[str, int]:
        """For each field in which `encode` took unknown values as missing, how many rows had one."""
        return dict(self._unknown)

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> SparseRows:
        """The matrix: a row an id, in the order of `ids`. A number is an entry even where it is 0."""
        return self._rows

    def rows_for(self, ids: Iterable[Id] | pl.DataFrame, *, unknown: Unknown = "raise") -> SparseRows:
        """The rows of these ids; unknown ids are an error, or get a row in which every field is `"missing"`.

        A frame (polars, pandas, Arrow, or {column: ids}) has a column for each part of an id. Its columns are matched
        by name where the names are the same as here, else by position.
        """
        one_of("unknown", unknown, ("raise", "missing"))
        vocabulary = self._vocabulary
        if is_table(ids) and not isinstance(ids, pl.DataFrame):
            ids = ids_of_frame(ids, vocabulary.names, "ids")
        if isinstance(ids, pl.DataFrame):
            ours, ids = comparable(vocabulary.frame, ids, "the frame", by_spelling=self._from_text)
            vocabulary = Vocabulary(ours)
        elif self._from_text and not isinstance(ids, str | bytes | int):
            ids = [respelled(one, vocabulary.frame.dtypes) for one in ids]
        codes = vocabulary.encode(
            ids,
            unknown="raise" if unknown == "raise" else "mark",
            way_out="pass unknown='missing' for a row in which every field is missing",
        )
        return taken(self._rows, codes, self.fields)

    def __getitem__(self, one: Id) -> dict[str, float]:
        """The features that one id has, by name."""
        _, columns, values = triples(self.rows_for([one]))
        return {self.feature_names[column]: value for column, value in zip(columns.tolist(), values.tolist())}

    def to_csr(self) -> tuple[sp.csr_array, list[Id], list[str]]:
        """The matrix as SciPy's, with the ids of its rows and the names of its columns."""
        import scipy.sparse as sp

        parts = (triples(self._rows).values, self._rows.indices, self._rows.indptr)
        found = sp.csr_array(parts, shape=(len(self), self.n_features), copy=True)  # theirs to change
        return found, self.ids, list(self.feature_names)

    def align(self, vocabulary: Vocabulary) -> AlignedFeatures:
        """The rows in the order of a vocabulary, such as `events.items`; the result counts what does not match.

        Ids that have no features get a row in which every field is missing. Rows whose ids the vocabulary does not have
        are kept in `cold`.
        """
        if not isinstance(vocabulary, Vocabulary):
            raise SettingError(
                f"expected a vocabulary such as events.items or events.contexts, got {type(vocabulary).__name__}"
            )
        ours, theirs = comparable(
            self._vocabulary.frame, vocabulary.frame, "the vocabulary", by_spelling=self._from_text
        )
        codes = Vocabulary(ours).encode(theirs, unknown="mark")
        others = np.ones(len(self), np.bool_)
        others[codes[codes >= 0]] = False
        if len(self) and len(vocabulary) and others.all():
            warnings.warn(
                f"none of the {len(vocabulary):,} ids of the vocabulary (such as {vocabulary._one(0)!r}) has features; "
                f"theirs are like {self._vocabulary._one(0)!r}. Are they ids of the same things?",
                ShortlistWarning,
                stacklevel=2,
            )
        places = np.flatnonzero(others)
        cold = Features(
            Vocabulary(rows_at(ours, places)), self.fields, self._rows.take(places), from_text=self._from_text
        )
        rows = taken(self._rows, codes, self.fields)
        return AlignedFeatures(vocabulary, counted(self.fields, rows), rows, cold, codes)

    # --- parts and sums ----------------------------------------------------------------------------------------------

    def select(self, fields: Names) -> Features:
        """The same rows with these fields only, in this order."""
        try:
            names = [fields] if isinstance(fields, str) else list(fields)
        except TypeError:
            names = []
        if not all(isinstance(name, str) for name in names):
            raise SettingError(f"fields is {fields!r:.80}; expected one or more names, each once")
        known = {field.name: field for field in self.fields}
        for name in names:
            if name not in known:
                raise SettingError(f"no field is called {name!r}; there are {', '.join(map(repr, known))}")
        if not names or len(set(names)) < len(names):
            raise SettingError(f"fields is {names!r}; expected one or more names, each once")
        chosen = placed([known[name] for name in names])
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
            from_text=self._from_text,
            dropped=self._dropped,
            unknown={name: count for name, count in self._unknown.items() if name in names},
        )

    def join(self, other: Features) -> Features:
        """The fields of both, for the ids of either: what one of them does not know of an id is missing.

        The rows are those of this one, then those that only the other has.
        """
        if not isinstance(other, Features):
            raise SettingError(f"expected Features, got {type(other).__name__}")
        both = [field.name for field in self.fields if field.name in {one.name for one in other.fields}]
        if both:
            raise SettingError(
                f"both have the field {both[0]!r}; rename the column of one, or leave it out with select()"
            )
        refuse_like_names([field.name for field in (*self.fields, *other.fields)])
        from_text = self._from_text or other._from_text
        ours, theirs = comparable(
            self._vocabulary.frame, other._vocabulary.frame, "the other features", by_spelling=from_text
        )
        everyone = Vocabulary(ours).extend(theirs)
        first, second = (np.full(len(everyone), -1, np.int32) for _ in range(2))
        first[: len(self)] = np.arange(len(self))
        second[everyone.encode(theirs)] = np.arange(len(other))
        left = triples(taken(self._rows, first, self.fields))
        right = triples(taken(other._rows, second, other.fields))
        right = right._replace(columns=right.columns + np.int32(self.n_features))
        fields = placed([*self.fields, *other.fields])
        causes = self._dropped | other._dropped
        return Features(
            everyone,
            fields,
            matrix([left, right], len(everyone), fields),
            from_text=from_text,
            unused=(*self._unused, *other._unused),
            dropped={cause: self._dropped.get(cause, 0) + other._dropped.get(cause, 0) for cause in causes},
            unknown=self._unknown | other._unknown,
        )

    def append(self, other: Features) -> Features:
        """The rows of both, which have the same fields, as `encode` makes them; where both have an id, the other's row.

        >>> films = Features.from_frame({"film": [1, 2], "genre": ["Drama", "War"]}, id="film")
        >>> more = films.append(films.encode({"film": [3, 2], "genre": ["War", "Drama"]}))
        >>> more.ids, more[2]
        ([1, 2, 3], {'genre=Drama': 1.0})
        """
        if not isinstance(other, Features):
            raise SettingError(f"expected Features, got {type(other).__name__}")
        if self.feature_names != other.feature_names:
            raise SettingError(
                f"the other features have the fields {', '.join(one.name for one in other.fields)} with "
                f"{other.n_features:,} features, these {', '.join(one.name for one in self.fields)} with "
                f"{self.n_features:,}; make them with .encode(…) of these"
            )
        from_text = self._from_text or other._from_text
        ours, theirs = comparable(
            self._vocabulary.frame, other._vocabulary.frame, "the other features", by_spelling=from_text
        )
        everyone = Vocabulary(ours).extend(theirs)
        places = np.arange(len(everyone))
        places[everyone.encode(theirs)] = len(self) + np.arange(len(other))
        both = SparseRows(
            np.concatenate([self._rows.indptr, self._rows.indptr[-1] + other._rows.indptr[1:]]),
            np.concatenate([self._rows.indices, other._rows.indices]),
            np.concatenate([triples(self._rows).values, triples(other._rows).values]),
            self.n_features,
        )
        return Features(everyone, self.fields, both.take(places), from_text=from_text)

    # --- kept --------------------------------------------------------------------------------------------------------

    def to_parts(self, prefix: str = "") -> FeatureParts:
        """Rows and fields as JSON-able `settings`, `arrays` and `tables`, which is how a model is stored.

        `prefix` goes before every name of an array or a table, so that a model can keep several.
        """
        return taken_apart(self._vocabulary, self.fields, self._rows, self._from_text, prefix)

    @classmethod
    def from_parts(
        cls,
        settings: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        tables: Mapping[str, pl.DataFrame],
        prefix: str = "",
    ) -> Features:
        """The features that `to_parts` took apart; StorageError where the parts do not fit together."""
        vocabulary, fields, rows, from_text = put_together(settings, arrays, tables, prefix)
        return cls(vocabulary, fields, rows, from_text=from_text)

    def __repr__(self) -> str:
        names = ", ".join(self._vocabulary.names)
        lines = [
            f"Features({count(len(self), 'row')} by {names}, {count(self.n_features, 'feature')} in "
            f"{count(len(self.fields), 'field')})"
        ]
        table = [("field", "kind", "features", "missing rows")]
        table += [(one.name, str(one), f"{one.n_columns:,}", f"{one.n_missing:,}") for one in self.fields]
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
