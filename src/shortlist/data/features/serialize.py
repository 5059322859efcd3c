"""Features taken apart into JSON values, arrays and tables, and put together again after every part was checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from shortlist._fork import require_polars_threads
from shortlist.data.features.categorical import ValuesField
from shortlist.data.features.feature_fields import Field
from shortlist.data.features.numeric import NumericField
from shortlist.data.sparse_rows import SparseRows, csr_error
from shortlist.data.vocabulary import Vocabulary
from shortlist.errors import ShortlistError, StorageError

_FIELDS = {"field": pl.String()}
_VALUES = {"field": pl.Int32(), "value": pl.String(), "column": pl.Int32(), "count": pl.Int64()}


class FeatureParts(NamedTuple):
    """Features taken apart, as `StoredModel` keeps things.

    Attributes:
        settings: JSON values.
        arrays: the matrix: `indptr`, `indices` and `values`.
        tables: the `ids`; how each of the `fields` is encoded, a line of JSON each, as there may be more of them than
            settings have room for; and the `values` of the fields.
    """

    settings: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    tables: dict[str, pl.DataFrame]


def taken_apart(
    vocabulary: Vocabulary, fields: Sequence[Field], rows: SparseRows, from_text: bool, prefix: str
) -> FeatureParts:
    """The parts, with `prefix` before every name of an array or a table."""
    require_polars_threads("storing features")
    described: list[str] = []
    values = [pl.DataFrame(schema=_VALUES)]
    for number, field in enumerate(fields):
        one: dict[str, Any] = {"name": field.name, "kind": field.kind}
        if isinstance(field, NumericField):
            one |= {"scale": field.scale, "mean": field.mean, "std": field.std}
        elif isinstance(field, ValuesField):
            one |= {"n_rare": field.n_rare, "separator": field.separator, "normalize": field.normalize}
            values.append(field.values.select(pl.lit(number, pl.Int32).alias("field"), "value", "column", "count"))
        described.append(json.dumps(one))
    assert rows.values is not None
    return FeatureParts(
        {"from_text": from_text},
        {f"{prefix}indptr": rows.indptr, f"{prefix}indices": rows.indices, f"{prefix}values": rows.values},
        {
            f"{prefix}ids": vocabulary.frame,
            f"{prefix}fields": pl.DataFrame({"field": described}, schema=_FIELDS),
            f"{prefix}values": pl.concat(values),
        },
    )


def put_together(
    settings: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    tables: Mapping[str, pl.DataFrame],
    prefix: str,
) -> tuple[Vocabulary, list[Field], SparseRows, bool]:
    """The parts as they were; StorageError says which of them cannot be."""
    require_polars_threads("restoring features")
    for kind, found, names in (
        ("array", arrays, ("indptr", "indices", "values")),
        ("table", tables, ("ids", "values") if "fields" in settings else ("ids", "fields", "values")),
    ):
        for name in names:
            if prefix + name not in found:
                raise StorageError(f"the features lack the {kind} {prefix + name!r}")
    try:
        vocabulary = Vocabulary(tables[f"{prefix}ids"])
        if repeats := len(vocabulary) - vocabulary.frame.n_unique():
            raise ValueError(f"{repeats:,} ids are repeated")
        if "fields" in settings:  # a model saved before fields had a table of their own
            lines = [json.dumps(one) for one in _typed(settings["fields"], list, "fields")]
            described = pl.DataFrame({"field": lines}, schema=_FIELDS)
        else:
            described = tables[f"{prefix}fields"]
        fields = _fields(described, tables[f"{prefix}values"])
        from_text = _typed(settings["from_text"], bool, "from_text")
    except KeyError as error:
        raise StorageError(f"the settings of the features lack {error}") from None
    except (TypeError, ValueError, OverflowError, RecursionError, ShortlistError) as error:
        raise StorageError(f"the features cannot be used: {error}") from error
    width = sum(field.n_columns for field in fields)
    indptr, indices, values = (arrays[prefix + name].copy() for name in ("indptr", "indices", "values"))
    rows = SparseRows(indptr, indices, values, width)
    if problem := csr_error(rows, len(vocabulary)):
        raise StorageError(f"the matrix of the features cannot be used: {problem}")
    return vocabulary, fields, rows, from_text


def _fields(described: pl.DataFrame, values: pl.DataFrame) -> list[Field]:
    for what, table, schema in (("fields", described, _FIELDS), ("values", values, _VALUES)):
        if dict(table.schema) != schema:
            raise ValueError(f"the table of {what} has the columns {dict(table.schema)}; expected {schema}")
    nothing = values.clear().drop("field")
    parts = values.partition_by("field", as_dict=True, include_key=False)
    fields: list[Field] = []
    for number, line in enumerate(described["field"]):
        one = _typed(json.loads(line), dict, "a field")
        name, kind = _typed(one["name"], str, "name"), one["kind"]
        own = parts.get((number,), nothing)
        if kind == "numeric":
            mean, std = (float(_typed(one[key], float | int, key)) for key in ("mean", "std"))
            if one["scale"] not in ("standard", "log", "raw") or not (math.isfinite(mean) and 0 < std < math.inf):
                raise ValueError(f"field {name!r} is scaled by {one['scale']!r}, mean {mean}, std {std}")
            if own.height:
                raise ValueError(f"the numeric field {name!r} has {own.height:,} values")
            fields.append(NumericField(name=name, scale=one["scale"], mean=mean, std=std))
        elif kind in ("categorical", "multi_valued"):
            fields.append(_values_field(name, kind == "multi_valued", one, own))
        else:
            raise ValueError(f"field {name!r} is of kind {kind!r:.40}")
    names = [field.name for field in fields]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the fields are called {names!r:.200}; expected one or more different names")
    if values.height and not 0 <= values["field"].min() <= values["field"].max() < len(fields):  # type: ignore[operator]
        raise ValueError(f"the table of values speaks of more than the {len(fields)} fields there are")
    return fields


def _values_field(name: str, many: bool, one: dict[str, Any], own: pl.DataFrame) -> ValuesField:
    n_rare, separator, normalize = one["n_rare"], one["separator"], one["normalize"]
    if separator is not None and not _typed(separator, str, "separator"):
        raise ValueError(f"the separator of field {name!r} is empty")
    if normalize not in (("sum", "norm", None) if many else (None,)):
        raise ValueError(f"field {name!r} is normalized by {normalize!r:.40}")
    places = own["column"].to_numpy()
    n_values = own.height - _typed(n_rare, int, "n_rare")
    rare = places == n_values
    good = 0 <= n_rare <= own.height and rare.sum() == n_rare and np.array_equal(places[~rare], np.arange(n_values))
    if not good or own["value"].n_unique() < own.height or (own["count"] < 1).any():
        raise ValueError(
            f"the {own.height:,} values of field {name!r}, {n_rare!r} of them rare, do not fit its columns"
        )
    return ValuesField(name=name, values=own, n_rare=n_rare, many=many, separator=separator, normalize=normalize)


def _typed(value: Any, kind: Any, what: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{what} is {value!r:.80}; expected {getattr(kind, '__name__', kind)}")
    return value
