"""Which column of a table becomes which kind of field: what a user says about it, checked, or what can be inferred."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from shortlist._checks import one_of, whole
from shortlist.data.features.categorical import ValuesField, refuse_vectors
from shortlist.data.features.feature_fields import Field, Kind, Normalize, Scale, inferred_kind
from shortlist.data.features.feature_tables import ColumnChoice, IdTable, id_columns
from shortlist.data.features.numeric import NumericField
from shortlist.errors import DataError, SettingError

Names: TypeAlias = str | Sequence[str]


@dataclass(frozen=True)
class FeatureSpec:
    """What a user says about a table: the columns of the id, the kind of others, and how they are encoded.

    Columns that `kinds` does not name get the kind that is inferred from the table.
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
        """Check what the user says."""
        ids = id_columns(id)
        kinds: dict[str, Kind] = {}
        given: list[tuple[Kind, Any]] = [
            ("categorical", categorical),
            ("multi_valued", multi_valued),
            ("numeric", numeric),
        ]
        for kind, columns in given:
            for name in _names(kind, columns):
                if name in kinds:
                    raise SettingError(
                        f"column {name!r} is named twice, as {kinds[name]} and as {kind}; once is enough"
                    )
                if ids == (name,):
                    raise SettingError(
                        f"column {name!r} is the id and is named as {kind}; recommenders learn an embedding of the id "
                        "by themselves"
                    )
                kinds[name] = kind
        ignored = tuple(dict.fromkeys(_names("ignore", ignore)))
        for name in ignored:
            if name in kinds or name in ids:
                role = "the id" if name in ids else kinds[name]
                raise SettingError(f"column {name!r} is named in ignore and as {role}; take it out of one of them")
        separators = dict(multi_valued) if isinstance(multi_valued, Mapping) else {}
        for name, separator in separators.items():
            if separator is not None and (not isinstance(separator, str) or not separator):
                raise SettingError(
                    f"multi_valued[{name!r}] is {separator!r}; expected a separator such as '|', or None"
                )
        scales = dict(numeric) if isinstance(numeric, Mapping) else {}
        for name, scale in scales.items():
            one_of(f"numeric[{name!r}]", scale, ("standard", "log", "raw"))
        for name, count in min_count.items() if isinstance(min_count, Mapping) else [("", min_count)]:
            whole(f"min_count[{name!r}]" if name else "min_count", count)
        if normalize is not None:
            one_of("normalize", normalize, ("sum", "norm"))
        return cls(ids, kinds, ignored, separators, scales, min_count, normalize)

    @property
    def wanted(self) -> ColumnChoice:
        """The columns to read: those that are named, and all others but the ignored ones."""
        return ColumnChoice(tuple(self.kinds), self.ignore)

    def fit(self, table: IdTable) -> list[Field]:
        """The fields of a table."""
        kinds = {**self.kinds, **_inferred(table, self.kinds)}
        if not kinds:
            raise DataError(f"{table.origin}: there is no column beside the id; expected what is known about it")
        if isinstance(self.min_count, Mapping):
            for name in self.min_count:
                if kinds.get(name, "numeric") == "numeric":
                    raise SettingError(f"min_count names {name!r}, which is no categorical or multi-valued column")
        elif self.min_count > 1 and set(kinds.values()) == {"numeric"}:
            raise SettingError(
                f"min_count is {self.min_count}, but there are no categorical or multi-valued columns; leave it out"
            )
        if self.normalize != "sum" and "multi_valued" not in kinds.values():
            raise SettingError(f"normalize is {self.normalize!r}, but there are no multi-valued columns; leave it out")
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
        raise SettingError(f"{kind} is {columns!r:.80}; expected names of columns")
    return names


def _inferred(table: IdTable, named: Mapping[str, Kind]) -> dict[str, Kind]:
    """The kinds of the columns that nobody named."""
    kinds: dict[str, Kind] = {}
    for name, column in table.columns.items():
        if name in table.ids.names or name in named:
            continue
        kind = inferred_kind(column, from_text=table.from_text)
        if kind is None:
            raise DataError(
                f"{table.origin}: column {name!r} has type {column.dtype}, which says nothing about its kind; say it "
                f"with categorical=, multi_valued= or numeric=, or leave the column out with ignore={name!r}"
            )
        kinds[name] = kind
    return kinds


def refuse_like_names(names: list[str]) -> None:
    """Refuse fields of which features could be called the same, as the value b=c of 'a' and the value c of 'a=b'."""
    known = set(names)
    for other in names:
        begins = [other[: found.start()] for found in re.finditer("=", other)]
        begins += [other.removesuffix(end) for end in (" (rare)", " (missing)") if other.endswith(end)]
        for one in begins:
            if one in known:
                raise DataError(f"columns {one!r} and {other!r} could give features of one name; rename one of them")
