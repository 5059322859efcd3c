"""Decide which type of field each column becomes: as the user specifies, or inferred."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shortlist._checks import integer, one_of
from shortlist._wording import Message, Phrase
from shortlist.data.features.categorical import ValuesField, refuse_vectors
from shortlist.data.features.feature_fields import Field, Kind, Normalize, Scale, inferred_kind
from shortlist.data.features.feature_tables import ColumnChoice, IdTable, id_columns
from shortlist.data.features.numeric import NumericField
from shortlist.errors import DataError, SettingError

Names: TypeAlias = str | Sequence[str]


@dataclass(frozen=True)
class FeatureSpec:
    """The user's specification of a feature table: id columns, types of other columns, and how to encode them.

    The type of a column that is not in `kinds` is inferred.
    """

    ids: tuple[str, ...]
    kinds: dict[str, Kind]
    ignore: tuple[str, ...]
    separators: Mapping[str, str | None]
    scales: Mapping[str, Scale]
    min_count: int | Mapping[str, int]
    normalize: Normalize | None

    @classmethod
    def of(
        cls,
        id: Names,  # noqa: A002
        categorical: Names,
        multi_valued: Names | Mapping[str, str | None],
        numeric: Names | Mapping[str, Scale],
        ignore: Names,
        min_count: int | Mapping[str, int],
        normalize: Normalize | None,
    ) -> FeatureSpec:
        """Check the arguments of a user and build the specification."""
        ids = id_columns(id)
        kinds: dict[str, Kind] = {}
        arguments: list[tuple[Kind, Any]] = [
            ("categorical", categorical),
            ("multi_valued", multi_valued),
            ("numeric", numeric),
        ]
        for kind, columns in arguments:
            for name in _names(kind, columns):
                if name in kinds:
                    raise SettingError(
                        f"column {name!r} is named twice, as {kinds[name]} and as {kind}",
                        field=name,
                        hint="name it once",
                    )
                if ids == (name,):
                    raise SettingError(
                        f"column {name!r} is both the id and {kind}",
                        field=name,
                        hint=f"remove it from {kind}=: recommenders always learn an embedding of the id",
                    )
                kinds[name] = kind
        ignored = tuple(dict.fromkeys(_names("ignore", ignore)))
        for name in ignored:
            if name in kinds or name in ids:
                role = "the id" if name in ids else kinds[name]
                raise SettingError(
                    f"column {name!r} is named in ignore and as {role}", field=name, hint="remove it from one of them"
                )
        separators = dict(multi_valued) if isinstance(multi_valued, Mapping) else {}
        for name, separator in separators.items():
            if separator is not None and (not isinstance(separator, str) or not separator):
                raise SettingError(
                    f"multi_valued[{name!r}] is {separator!r}; expected a separator such as '|', or None",
                    field="multi_valued",
                )
        scales = dict(numeric) if isinstance(numeric, Mapping) else {}
        for name, scale in scales.items():
            one_of(f"numeric[{name!r}]", scale, ("standard", "log", "raw"))
        for name, count in min_count.items() if isinstance(min_count, Mapping) else [("", min_count)]:
            integer(f"min_count[{name!r}]" if name else "min_count", count)
        if normalize is not None:
            one_of("normalize", normalize, ("sum", "norm"))
        return cls(ids, kinds, ignored, separators, scales, min_count, normalize)

    @property
    def wanted(self) -> ColumnChoice:
        """The columns to read: all but the ignored ones."""
        return ColumnChoice(tuple(self.kinds), self.ignore)

    def fit(self, table: IdTable) -> list[Field]:
        """Learn the fields of a table."""
        kinds = {**self.kinds, **_inferred(table, self.kinds)}
        if not kinds:
            raise DataError(
                f"{table.origin}: there are no columns besides the id; expected features", code="empty-data"
            )
        if isinstance(self.min_count, Mapping):
            for name in self.min_count:
                if kinds.get(name, "numeric") == "numeric":
                    raise SettingError(
                        f"min_count names {name!r}, which is not a categorical or multi-valued column",
                        field="min_count",
                    )
        elif self.min_count > 1 and set(kinds.values()) == {"numeric"}:
            raise SettingError(
                f"min_count is {self.min_count}, but there are no categorical or multi-valued columns",
                hint="omit it",
                field="min_count",
            )
        if self.normalize != "sum" and "multi_valued" not in kinds.values():
            raise SettingError(
                f"normalize is {self.normalize!r}, but there are no multi-valued columns",
                hint="omit it",
                field="normalize",
            )
        refuse_like_names(list(kinds))
        return [self._field(name, kind, table) for name, kind in kinds.items()]

    def _field(self, name: str, kind: Kind, table: IdTable) -> Field:
        column = table.columns[name]
        refuse_vectors(column, table.origin, named=name in self.kinds)
        if kind == "numeric":
            scale = self.scales.get(name, "standard")
            return NumericField.fit(column, scale=scale, from_text=table.from_text, origin=table.origin)
        many = kind == "multi_valued"
        return ValuesField.fit(
            column,
            min_count=self.min_count if isinstance(self.min_count, int) else self.min_count.get(name, 1),
            many=many,
            separator=self.separators.get(name),
            normalize=self.normalize if many else None,
            origin=table.origin,
        )


def _names(kind: str, columns: Any) -> list[str]:
    names = (
        [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Sequence | Mapping) else None
    )
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise SettingError(f"{kind} is {columns!r:.80}; expected names of columns", field=kind)
    return names


def _inferred(table: IdTable, named: Mapping[str, Kind]) -> dict[str, Kind]:
    """Infer the types of all columns that the user did not name."""
    kinds: dict[str, Kind] = {}
    for name, column in table.columns.items():
        if name in table.ids.names or name in named:
            continue
        kind = inferred_kind(column, from_text=table.from_text)
        if kind is None:
            raise DataError(
                f"{table.origin}: cannot infer the type of field for column {name!r} of type {column.dtype}",
                code="column-type",
                field=name,
                hint=Message(
                    "name it in categorical=, multi_valued= or numeric=, or {}{!r}",
                    Phrase("ignore-column", "drop it with ignore="),
                    name,
                ),
            )
        kinds[name] = kind
    return kinds


def refuse_like_names(names: list[str]) -> None:
    """Refuse fields whose features could have the same name: value b=c of 'a' and value c of 'a=b' are both a=b=c."""
    known = set(names)
    for name in names:
        prefixes = [name[: match.start()] for match in re.finditer("=", name)]
        prefixes += [name.removesuffix(end) for end in (" (rare)", " (missing)") if name.endswith(end)]
        for prefix in prefixes:
            if prefix in known:
                raise DataError(
                    f"features of columns {prefix!r} and {name!r} could have the same name",
                    hint="rename one of the columns",
                )
